"""Command-line flags: `tf.flags` and `tf.app.flags`.

A program defines flags with the DEFINE functions and reads them as attributes of `FLAGS`. The
command line is parsed by `tf.app.run`, or else when a flag is read for the first time.

    --name=value   --name value   -name value      any flag
    --name   --noname   --name=false               boolean flags
    --                                             ends the flags
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from millrace.compat.v1.flags.flag_values import (
    FLAGS,
    DuplicateFlagError,
    Error,
    Flag,
    FlagHolder,
    FlagValues,
    UnrecognizedFlagError,
    unknown_flag,
)
from millrace.compat.v1.flags.parsers import (
    as_boolean,
    as_float,
    as_integer,
    as_text,
    bounded,
    commas,
    enum_member,
    one_of,
    split_by,
)
from millrace.compat.v1.flags.validators import mark_flag_as_required
from millrace.core.export import export

_OLD_ARGUMENTS = {"flag_name": "name", "default_value": "default", "docstring": "help"}


def _define(flag: Flag, flag_values: FlagValues | None, args: dict[str, Any]) -> FlagHolder:
    """Adds a flag for a DEFINE function called, through `_renamed`, by the module above."""
    values = FLAGS if flag_values is None else flag_values
    name = flag.name
    if not isinstance(name, str) or not name:
        raise Error(f"the name of a flag must be text that is not empty, got {name!r}")
    if name.startswith("_") or hasattr(FlagValues, name):
        raise Error(f"a flag cannot be called '{name}': FLAGS keeps that name for itself")
    caller = sys._getframe(3).f_globals
    flag.module = caller.get("__name__", "")
    override = args.pop("allow_override", False)
    short_name = args.pop("short_name", None)
    required = args.pop("required", False)
    if args:
        raise TypeError(f"flag '{name}' got unexpected arguments: {', '.join(sorted(args))}")
    if name in values and not override:
        known = values[name]
        raise DuplicateFlagError(
            f"The flag '{name}' is defined twice: first in {known.module}, then in {flag.module}. "
            f"The first one means: {known.help}"
        )
    values[name] = flag
    if short_name:
        values[short_name] = flag
    if required:
        mark_flag_as_required(name, values)
    return FlagHolder(values, name)


def _renamed(define: Callable[..., FlagHolder]) -> Callable[..., FlagHolder]:
    """Lets a DEFINE function take the argument names of TensorFlow 1.0 as well."""

    @wraps(define)
    def wrapper(*args: Any, **kwargs: Any) -> FlagHolder:
        for old, new in _OLD_ARGUMENTS.items():
            if old in kwargs:
                kwargs[new] = kwargs.pop(old)
        return define(*args, **kwargs)

    return wrapper


@export(v1=("flags.DEFINE_string", "app.flags.DEFINE_string"))
@_renamed
def DEFINE_string(
    name: str, default: str | None, help: str, flag_values: FlagValues | None = None, **args: Any
) -> FlagHolder:
    """Defines a flag whose value is any text."""
    return _define(Flag(name, default, help, as_text), flag_values, args)


@export(v1=("flags.DEFINE_boolean", "app.flags.DEFINE_boolean"))
@_renamed
def DEFINE_boolean(
    name: str, default: bool | None, help: str, flag_values: FlagValues | None = None, **args: Any
) -> FlagHolder:
    """Defines a flag that is true or false: `--name`, `--noname`, `--name=false`."""
    return _define(Flag(name, default, help, as_boolean, boolean=True), flag_values, args)


DEFINE_bool = export(v1=("flags.DEFINE_bool", "app.flags.DEFINE_bool"))(DEFINE_boolean)


@export(v1=("flags.DEFINE_integer", "app.flags.DEFINE_integer"))
@_renamed
def DEFINE_integer(
    name: str,
    default: int | None,
    help: str,
    lower_bound: int | None = None,
    upper_bound: int | None = None,
    flag_values: FlagValues | None = None,
    **args: Any,
) -> FlagHolder:
    """Defines a flag whose value is an integer, within the bounds that are given."""
    parse = bounded(as_integer, lower_bound, upper_bound)
    return _define(Flag(name, default, help, parse, kind="whole number"), flag_values, args)


@export(v1=("flags.DEFINE_float", "app.flags.DEFINE_float"))
@_renamed
def DEFINE_float(
    name: str,
    default: float | None,
    help: str,
    lower_bound: float | None = None,
    upper_bound: float | None = None,
    flag_values: FlagValues | None = None,
    **args: Any,
) -> FlagHolder:
    """Defines a flag whose value is a number, within the bounds that are given."""
    parse = bounded(as_float, lower_bound, upper_bound)
    return _define(Flag(name, default, help, parse, kind="number"), flag_values, args)


@export(v1=("flags.DEFINE_enum", "app.flags.DEFINE_enum"))
@_renamed
def DEFINE_enum(
    name: str,
    default: str | None,
    enum_values: list[str],
    help: str,
    flag_values: FlagValues | None = None,
    **args: Any,
) -> FlagHolder:
    """Defines a flag whose value is one of `enum_values`."""
    help = f"<{'|'.join(enum_values)}>: {help}"
    return _define(Flag(name, default, help, one_of(enum_values)), flag_values, args)


@export(v1=("flags.DEFINE_enum_class", "app.flags.DEFINE_enum_class"))
@_renamed
def DEFINE_enum_class(
    name: str,
    default: Any,
    enum_class: Any,
    help: str,
    flag_values: FlagValues | None = None,
    **args: Any,
) -> FlagHolder:
    """Defines a flag whose value is a member of an Enum, given by its name."""
    help = f"<{'|'.join(n.lower() for n in enum_class.__members__)}>: {help}"
    return _define(Flag(name, default, help, enum_member(enum_class)), flag_values, args)


@export(v1=("flags.DEFINE_list", "app.flags.DEFINE_list"))
@_renamed
def DEFINE_list(
    name: str, default: Any, help: str, flag_values: FlagValues | None = None, **args: Any
) -> FlagHolder:
    """Defines a flag whose value is a list of texts, separated by commas."""
    parse = split_by(commas)
    return _define(Flag(name, default, help, parse, kind="comma separated list"), flag_values, args)


@export(v1=("flags.DEFINE_spaceseplist", "app.flags.DEFINE_spaceseplist"))
@_renamed
def DEFINE_spaceseplist(
    name: str,
    default: Any,
    help: str,
    comma_compat: bool = False,
    flag_values: FlagValues | None = None,
    **args: Any,
) -> FlagHolder:
    """Defines a flag whose value is a list of texts, separated by spaces (or commas)."""

    def separate(text: str) -> list[str]:
        return (text.replace(",", " ") if comma_compat else text).split()

    parse = split_by(separate)
    return _define(Flag(name, default, help, parse, kind="space separated list"), flag_values, args)


@export(v1=("flags.DEFINE_multi_string", "app.flags.DEFINE_multi_string"))
@_renamed
def DEFINE_multi_string(
    name: str, default: Any, help: str, flag_values: FlagValues | None = None, **args: Any
) -> FlagHolder:
    """Defines a flag that may be repeated: its value is the list of the texts given."""
    return _define(Flag(name, default, help, as_text, multiple=True), flag_values, args)


@export(v1=("flags.DEFINE_multi_integer", "app.flags.DEFINE_multi_integer"))
@_renamed
def DEFINE_multi_integer(
    name: str,
    default: Any,
    help: str,
    lower_bound: int | None = None,
    upper_bound: int | None = None,
    flag_values: FlagValues | None = None,
    **args: Any,
) -> FlagHolder:
    """Defines a flag that may be repeated: its value is the list of the integers given."""
    parse = bounded(as_integer, lower_bound, upper_bound)
    flag = Flag(name, default, help, parse, kind="whole number", multiple=True)
    return _define(flag, flag_values, args)


@export(v1=("flags.DEFINE_multi_float", "app.flags.DEFINE_multi_float"))
@_renamed
def DEFINE_multi_float(
    name: str,
    default: Any,
    help: str,
    lower_bound: float | None = None,
    upper_bound: float | None = None,
    flag_values: FlagValues | None = None,
    **args: Any,
) -> FlagHolder:
    """Defines a flag that may be repeated: its value is the list of the numbers given."""
    parse = bounded(as_float, lower_bound, upper_bound)
    return _define(
        Flag(name, default, help, parse, kind="number", multiple=True), flag_values, args
    )


@export(v1=("flags.DEFINE_multi_enum", "app.flags.DEFINE_multi_enum"))
@_renamed
def DEFINE_multi_enum(
    name: str,
    default: Any,
    enum_values: list[str],
    help: str,
    flag_values: FlagValues | None = None,
    case_sensitive: bool = True,
    **args: Any,
) -> FlagHolder:
    """Defines a flag that may be repeated: its value is a list of some of `enum_values`."""
    parse = one_of(enum_values, case_sensitive)
    help = f"<{'|'.join(enum_values)}>: {help}"
    return _define(Flag(name, default, help, parse, multiple=True), flag_values, args)


@export(v1=("flags.DEFINE_alias", "app.flags.DEFINE_alias"))
def DEFINE_alias(
    name: str, original_name: str, flag_values: FlagValues | None = None
) -> FlagHolder:
    """Makes `name` another name of the flag `original_name`."""
    values = FLAGS if flag_values is None else flag_values
    if original_name not in values:
        raise UnrecognizedFlagError(unknown_flag(original_name, values))
    values[name] = values[original_name]
    return FlagHolder(values, name)
