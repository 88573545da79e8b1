"""Command-line flags: `tf.flags` and `tf.app.flags`.

A program defines flags with the DEFINE functions and reads them as attributes of `FLAGS`. The
command line is parsed by `tf.app.run`, or else when a flag is read for the first time.

    --name=value   --name value   -name value      any flag
    --name   --noname   --name=false               boolean flags
    --                                             ends the flags
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any

from millrace.core.export import export
from millrace.core.suggest import nearest


@export("flags.Error", "app.flags.Error")
class Error(Exception):
    """The base of all errors of flags."""


@export("flags.DuplicateFlagError", "app.flags.DuplicateFlagError")
class DuplicateFlagError(Error):
    """A flag is defined twice."""


@export("flags.IllegalFlagValueError", "app.flags.IllegalFlagValueError")
class IllegalFlagValueError(Error):
    """A value that a flag cannot have."""


@export("flags.ValidationError", "app.flags.ValidationError")
class ValidationError(Error):
    """Raised by validators that refuse a value."""


@export("flags.UnparsedFlagAccessError", "app.flags.UnparsedFlagAccessError")
class UnparsedFlagAccessError(Error):
    """A flag is read before the command line has been parsed."""


@export("flags.UnrecognizedFlagError", "app.flags.UnrecognizedFlagError")
class UnrecognizedFlagError(Error):
    """A flag that is not defined."""


_HELP_FLAGS = {"help", "helpshort", "helpfull", "h"}
_OLD_ARGUMENTS = {"flag_name": "name", "default_value": "default", "docstring": "help"}


def _unknown_flag(name: str, defined: Iterable[str]) -> str:
    like = nearest(name, defined)
    hint = f"; nearest flags: {', '.join('--' + each for each in like)}" if like else ""
    return f"Unknown command line flag '{name}'{hint}"


class Flag:
    """One flag: what it is called, how its text is read, its default and its value."""

    def __init__(
        self,
        name: str,
        default: Any,
        help: str | None,
        parse: Callable[[Any], Any],
        *,
        kind: str = "",
        boolean: bool = False,
        multiple: bool = False,
    ) -> None:
        """`parse` makes a value of text, or of a default; ValueError where it cannot.

        `kind` says what a value is, for the help text. A flag that is `multiple` collects the
        values of all its occurrences in a list.
        """
        self.name = name
        self.help = help or ""
        self.kind = kind
        self.boolean = boolean
        self.multiple = multiple
        self.module = ""
        self._parse = parse
        self.present = 0
        if default is not None and multiple:
            values = [default] if isinstance(default, str) else _as_list(default)
            default = [self._read(value) for value in values]
        elif default is not None:
            default = self._read(default)
        self.default = default
        self.value = default

    def _read(self, value: Any) -> Any:
        try:
            return self._parse(value)
        except (ValueError, TypeError) as error:
            raise IllegalFlagValueError(f"flag --{self.name}={value}: {error}") from None

    def parse(self, text: Any, again: bool = False) -> None:
        """Takes a value from the command line; `again` where that has given one before."""
        value = self._read(text)
        if self.multiple:
            value = [*self.value, value] if again else [value]
        self.value = value
        self.present += 1

    def unparse(self) -> None:
        """Goes back to the default."""
        self.value = self.default
        self.present = 0


class FlagValues:
    """All flags of a program; their values are attributes.

    Reading a flag parses `sys.argv` if nothing has yet. `flags[name]` is the Flag itself.
    """

    def __init__(self) -> None:
        self.__dict__["_flags"] = {}
        self.__dict__["_validators"] = []
        self.__dict__["_parsed"] = False

    def __getattr__(self, name: str) -> Any:
        flags = self.__dict__.get("_flags", {})
        flag = flags.get(name)
        if flag is None:
            if name == "__flags":
                return self.flag_values_dict()
            raise AttributeError(_unknown_flag(name, flags))
        self._parse_if_needed()
        return flag.value

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._flags:
            raise UnrecognizedFlagError(_unknown_flag(name, self._flags))
        flag = self._flags[name]
        flag.value = value
        flag.present += 1
        self._validate({name})

    def __delattr__(self, name: str) -> None:
        if name not in self._flags:
            raise AttributeError(_unknown_flag(name, self._flags))
        del self._flags[name]

    def __getitem__(self, name: str) -> Flag:
        return self._flags[name]

    def __setitem__(self, name: str, flag: Flag) -> None:
        self._flags[name] = flag

    def __contains__(self, name: object) -> bool:
        return name in self._flags

    def __iter__(self) -> Iterator[str]:
        return iter(self._flags)

    def __len__(self) -> int:
        return len(self._flags)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._flags]

    def __call__(self, argv: list[str], known_only: bool = False) -> list[str]:
        """Parses `argv`, whose first element is the program; returns what is not a flag.

        Flags that are not defined are left in the result with `known_only`, and are an
        UnrecognizedFlagError otherwise. Raises IllegalFlagValueError for bad values.
        """
        if isinstance(argv, (str, bytes)):
            raise TypeError(f"the command line must be a list of strings, got {argv!r}")
        if not argv:
            raise ValueError("the command line must start with the program's name, got []")
        rest = self._parse_arguments(list(argv), known_only)
        self.__dict__["_parsed"] = True
        self._validate(self._flags)
        return rest

    def _parse_arguments(self, argv: list[str], known_only: bool) -> list[str]:
        rest, arguments, seen = argv[:1], iter(argv[1:]), set()
        for argument in arguments:
            if argument == "--":
                rest += [argument, *arguments] if known_only else arguments
                break
            if argument[:1] != "-" or argument == "-":
                rest.append(argument)
                continue
            name, equals, text = argument[2 if argument[:2] == "--" else 1 :].partition("=")
            flag = self._flags.get(name)
            if flag is not None and flag.boolean:
                flag.parse(text if equals else True)
            elif flag is not None:
                value = text if equals else self._next_value(name, arguments)
                flag.parse(value, again=flag.name in seen)
                seen.add(flag.name)
            elif name[:2] == "no" and name[2:] in self._flags and self._flags[name[2:]].boolean:
                if equals:
                    raise IllegalFlagValueError(f"--{name}={text}: --{name} takes no value")
                self._flags[name[2:]].parse(False)
            elif known_only:
                rest.append(argument)
            else:
                raise UnrecognizedFlagError(_unknown_flag(name, self._flags))
        return rest

    @staticmethod
    def _next_value(name: str, arguments: Iterator[str]) -> str:
        value = next(arguments, None)
        if value is None:
            raise Error(f"Missing value for flag --{name}")
        return value

    def _parse_if_needed(self) -> None:
        if not self._parsed:
            argv = sys.argv or [""]
            exit_for_help(argv)
            self(argv)

    def _parse_flags(self, args: list[str] | None = None) -> list[str]:
        """Parses `args`, without the program's name; the name of this in TensorFlow 1.0."""
        return self([*(sys.argv[:1] or [""]), *(sys.argv[1:] if args is None else args)], True)[1:]

    def _validate(self, changed: Iterable[str]) -> None:
        problems = []
        for names, check, message in self._validators:
            if not any(name in changed for name in names) or any(n not in self for n in names):
                continue
            values = {name: self._flags[name].value for name in names}
            try:
                good = check(next(iter(values.values())) if len(names) == 1 else values)
            except ValidationError as error:
                good, message = False, str(error)
            if not good:
                shown = ", ".join(f"--{name}={value}" for name, value in values.items())
                problems.append(f"flag {shown}: {message}")
        if problems:
            raise IllegalFlagValueError("\n".join(problems))

    def is_parsed(self) -> bool:
        """Whether a command line has been parsed."""
        return self._parsed

    def mark_as_parsed(self) -> None:
        """Leaves the flags at their defaults, as if an empty command line had been parsed."""
        self.__dict__["_parsed"] = True

    def unparse_flags(self) -> None:
        """Sets all flags back to their defaults; the next read parses the command line again."""
        for flag in self._flags.values():
            flag.unparse()
        self.__dict__["_parsed"] = False

    def set_default(self, name: str, value: Any) -> None:
        """Changes the default of a flag, and its value where the command line gave none."""
        if name not in self._flags:
            raise UnrecognizedFlagError(_unknown_flag(name, self._flags))
        flag = self._flags[name]
        flag.default = value if value is None or flag.multiple else flag._read(value)
        if not flag.present:
            flag.value = flag.default

    def flag_values_dict(self) -> dict[str, Any]:
        """The values of all flags by name."""
        self._parse_if_needed()
        return {name: flag.value for name, flag in self._flags.items()}

    def get_flag_value(self, name: str, default: Any) -> Any:
        """The value of a flag, or `default` where it is None."""
        value = getattr(self, name)
        return default if value is None else value

    def get_help(self) -> str:
        """What `--help` prints of the flags."""
        lines = []
        for name in sorted(self._flags):
            flag = self._flags[name]
            prefix = "--[no]" if flag.boolean else "--"
            lines.append(f"  {prefix}{name}: {flag.help}")
            notes = [f"a {flag.kind}"] if flag.kind else []
            if flag.multiple:
                notes.append("may be repeated")
            notes.append(f"default: {_written(flag.default)}")
            lines.append(f"    ({', '.join(notes)})")
        return "\n".join(lines)


def _written(value: Any) -> str:
    """A value as it would be written on the command line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return "'" + ",".join(map(str, value)) + "'"
    return repr(value) if isinstance(value, str) else str(value)


FLAGS = export("flags.FLAGS", "app.flags.FLAGS")(FlagValues())


def exit_for_help(argv: list[str]) -> None:
    """Prints the flags and exits where `argv` asks for help before any `--`."""
    for argument in argv[1:]:
        if argument == "--":
            return
        name = argument.lstrip("-")
        if argument != name and name in _HELP_FLAGS and name not in FLAGS:
            about = getattr(sys.modules.get("__main__"), "__doc__", None)
            heading = about.strip() + "\n\n" if about else ""
            program = argv[0] or "program"
            sys.stdout.write(f"{heading}flags of {program}:\n\n{FLAGS.get_help()}\n")
            sys.exit(0)


@export("flags.FlagHolder", "app.flags.FlagHolder")
class FlagHolder:
    """What a DEFINE function returns: one flag of a set of flags."""

    def __init__(self, flag_values: FlagValues, name: str) -> None:
        self._flag_values = flag_values
        self._name = name

    @property
    def name(self) -> str:
        """The name of the flag."""
        return self._name

    @property
    def value(self) -> Any:
        """The value, which parses the command line if nothing has yet."""
        return getattr(self._flag_values, self._name)

    @property
    def default(self) -> Any:
        """The value without a command line."""
        return self._flag_values[self._name].default

    @property
    def present(self) -> bool:
        """Whether the command line gave a value."""
        return bool(self._flag_values[self._name].present)


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


def _as_list(values: Any) -> list[Any]:
    return list(values) if isinstance(values, Iterable) else [values]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"flag value must be a string, found {type(value).__name__}")
    return value


def _boolean(value: Any) -> bool:
    if isinstance(value, str):
        lower = value.lower()
        if lower in ("true", "t", "1"):
            return True
        if lower in ("false", "f", "0"):
            return False
    elif value in (0, 1):
        return bool(value)
    raise ValueError("a boolean flag is one of true, t, 1, false, f and 0")


def _number(convert: Callable[[Any], Any], low: Any, high: Any) -> Callable[[Any], Any]:
    """Reads numbers with `convert` and checks that they lie in [low, high]."""

    def parse(value: Any) -> Any:
        number = convert(value)
        if (low is not None and number < low) or (high is not None and number > high):
            bounds = [f"at least {low}"] if low is not None else []
            bounds += [f"at most {high}"] if high is not None else []
            raise ValueError(f"must be {' and '.join(bounds)}")
        return number

    return parse


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise TypeError(f"an integer flag is a string or an int, found {type(value).__name__}")
    if isinstance(value, str):
        digits = value.strip().lstrip("+-").lower()
        base = {"0x": 16, "0o": 8}.get(digits[:2], 10)
        return int(value, base)
    return value


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise TypeError(f"a float flag is a string or a number, found {type(value).__name__}")
    return float(value)


def _one_of(choices: Any, case_sensitive: bool = True) -> Callable[[Any], str]:
    choices = list(choices)

    def parse(value: Any) -> str:
        for choice in choices:
            if value == choice:
                return choice
            if not case_sensitive and str(value).lower() == choice.lower():
                return choice
        like = nearest(str(value), choices, 1)
        hint = f", nearest: {like[0]}" if like else ""
        raise ValueError(f"value should be one of <{'|'.join(choices)}>{hint}")

    return parse


def _enum_member(enum_class: Any) -> Callable[[Any], Any]:
    names = {name.lower(): name for name in enum_class.__members__}
    choose = _one_of(names, case_sensitive=False)

    def parse(value: Any) -> Any:
        if isinstance(value, enum_class):
            return value
        return enum_class.__members__[names[choose(value)]]

    return parse


def _split(separate: Callable[[str], list[str]]) -> Callable[[Any], list[str]]:
    def parse(value: Any) -> list[str]:
        return list(value) if isinstance(value, (list, tuple)) else separate(_text(value))

    return parse


def _commas(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")] if text else []


@export("flags.DEFINE_string", "app.flags.DEFINE_string")
@_renamed
def DEFINE_string(
    name: str, default: str | None, help: str, flag_values: FlagValues | None = None, **args: Any
) -> FlagHolder:
    """Defines a flag whose value is any text."""
    return _define(Flag(name, default, help, _text), flag_values, args)


@export("flags.DEFINE_boolean", "app.flags.DEFINE_boolean")
@_renamed
def DEFINE_boolean(
    name: str, default: bool | None, help: str, flag_values: FlagValues | None = None, **args: Any
) -> FlagHolder:
    """Defines a flag that is true or false: `--name`, `--noname`, `--name=false`."""
    return _define(Flag(name, default, help, _boolean, boolean=True), flag_values, args)


DEFINE_bool = export("flags.DEFINE_bool", "app.flags.DEFINE_bool")(DEFINE_boolean)


@export("flags.DEFINE_integer", "app.flags.DEFINE_integer")
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
    parse = _number(_integer, lower_bound, upper_bound)
    return _define(Flag(name, default, help, parse, kind="whole number"), flag_values, args)


@export("flags.DEFINE_float", "app.flags.DEFINE_float")
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
    parse = _number(_float, lower_bound, upper_bound)
    return _define(Flag(name, default, help, parse, kind="number"), flag_values, args)


@export("flags.DEFINE_enum", "app.flags.DEFINE_enum")
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
    return _define(Flag(name, default, help, _one_of(enum_values)), flag_values, args)


@export("flags.DEFINE_enum_class", "app.flags.DEFINE_enum_class")
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
    return _define(Flag(name, default, help, _enum_member(enum_class)), flag_values, args)


@export("flags.DEFINE_list", "app.flags.DEFINE_list")
@_renamed
def DEFINE_list(
    name: str, default: Any, help: str, flag_values: FlagValues | None = None, **args: Any
) -> FlagHolder:
    """Defines a flag whose value is a list of texts, separated by commas."""
    parse = _split(_commas)
    return _define(Flag(name, default, help, parse, kind="comma separated list"), flag_values, args)


@export("flags.DEFINE_spaceseplist", "app.flags.DEFINE_spaceseplist")
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

    parse = _split(separate)
    return _define(Flag(name, default, help, parse, kind="space separated list"), flag_values, args)


@export("flags.DEFINE_multi_string", "app.flags.DEFINE_multi_string")
@_renamed
def DEFINE_multi_string(
    name: str, default: Any, help: str, flag_values: FlagValues | None = None, **args: Any
) -> FlagHolder:
    """Defines a flag that may be repeated: its value is the list of the texts given."""
    return _define(Flag(name, default, help, _text, multiple=True), flag_values, args)


@export("flags.DEFINE_multi_integer", "app.flags.DEFINE_multi_integer")
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
    parse = _number(_integer, lower_bound, upper_bound)
    flag = Flag(name, default, help, parse, kind="whole number", multiple=True)
    return _define(flag, flag_values, args)


@export("flags.DEFINE_multi_float", "app.flags.DEFINE_multi_float")
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
    parse = _number(_float, lower_bound, upper_bound)
    return _define(
        Flag(name, default, help, parse, kind="number", multiple=True), flag_values, args
    )


@export("flags.DEFINE_multi_enum", "app.flags.DEFINE_multi_enum")
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
    parse = _one_of(enum_values, case_sensitive)
    help = f"<{'|'.join(enum_values)}>: {help}"
    return _define(Flag(name, default, help, parse, multiple=True), flag_values, args)


@export("flags.DEFINE_alias", "app.flags.DEFINE_alias")
def DEFINE_alias(
    name: str, original_name: str, flag_values: FlagValues | None = None
) -> FlagHolder:
    """Makes `name` another name of the flag `original_name`."""
    values = FLAGS if flag_values is None else flag_values
    if original_name not in values:
        raise UnrecognizedFlagError(_unknown_flag(original_name, values))
    values[name] = values[original_name]
    return FlagHolder(values, name)


def _validators(flag_names: Iterable[str], flag_values: FlagValues | None) -> list[Any]:
    values = FLAGS if flag_values is None else flag_values
    for name in flag_names:
        if name not in values:
            raise UnrecognizedFlagError(_unknown_flag(name, values))
    return values._validators


@export("flags.register_validator", "app.flags.register_validator")
def register_validator(
    flag_name: str,
    checker: Callable[[Any], bool],
    message: str = "Flag validation failed",
    flag_values: FlagValues | None = None,
) -> None:
    """Refuses values for which `checker(value)` is false, when the command line is parsed."""
    _validators([flag_name], flag_values).append(((flag_name,), checker, message))


@export("flags.validator", "app.flags.validator")
def validator(
    flag_name: str,
    message: str = "Flag validation failed",
    flag_values: FlagValues | None = None,
) -> Callable[[Callable[[Any], bool]], Callable[[Any], bool]]:
    """`register_validator` as a decorator."""

    def decorate(checker: Callable[[Any], bool]) -> Callable[[Any], bool]:
        register_validator(flag_name, checker, message, flag_values)
        return checker

    return decorate


@export("flags.register_multi_flags_validator", "app.flags.register_multi_flags_validator")
def register_multi_flags_validator(
    flag_names: list[str],
    multi_flags_checker: Callable[[dict[str, Any]], bool],
    message: str = "Flags validation failed",
    flag_values: FlagValues | None = None,
) -> None:
    """Refuses values of several flags for which `multi_flags_checker({name: value})` is false."""

    def check(values: Any) -> bool:
        return multi_flags_checker(values if len(flag_names) > 1 else {flag_names[0]: values})

    _validators(flag_names, flag_values).append((tuple(flag_names), check, message))


@export("flags.mark_flag_as_required", "app.flags.mark_flag_as_required")
def mark_flag_as_required(flag_name: str, flag_values: FlagValues | None = None) -> None:
    """Makes a command line that gives the flag no value, where it has no default, an error."""
    register_validator(
        flag_name,
        lambda value: value is not None,
        f"Flag --{flag_name} must have a value other than None.",
        flag_values,
    )


@export("flags.mark_flags_as_required", "app.flags.mark_flags_as_required")
def mark_flags_as_required(
    flag_names: Iterable[str], flag_values: FlagValues | None = None
) -> None:
    """`mark_flag_as_required` for each of `flag_names`."""
    for name in flag_names:
        mark_flag_as_required(name, flag_values)


@export("flags.mark_flags_as_mutual_exclusive", "app.flags.mark_flags_as_mutual_exclusive")
def mark_flags_as_mutual_exclusive(
    flag_names: list[str], required: bool = False, flag_values: FlagValues | None = None
) -> None:
    """Allows at most one of the flags to be other than None; exactly one with `required`."""

    def check(values: dict[str, Any]) -> bool:
        given = sum(value is not None for value in values.values())
        return given == 1 or (given == 0 and not required)

    count = "Exactly" if required else "At most"
    message = f"{count} one of ({', '.join(flag_names)}) must have a value other than None."
    register_multi_flags_validator(flag_names, check, message, flag_values)
