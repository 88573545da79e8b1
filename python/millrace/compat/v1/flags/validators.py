"""What values of flags must be."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from millrace.compat.v1.flags.flag_values import (
    FLAGS,
    FlagValues,
    UnrecognizedFlagError,
    unknown_flag,
)
from millrace.core.export import export


def _validators(flag_names: Iterable[str], flag_values: FlagValues | None) -> list[Any]:
    values = FLAGS if flag_values is None else flag_values
    for name in flag_names:
        if name not in values:
            raise UnrecognizedFlagError(unknown_flag(name, values))
    return values._validators


@export(v1=("flags.register_validator", "app.flags.register_validator"))
def register_validator(
    flag_name: str,
    checker: Callable[[Any], bool],
    message: str = "Flag validation failed",
    flag_values: FlagValues | None = None,
) -> None:
    """Refuses values for which `checker(value)` is false, when the command line is parsed."""
    _validators([flag_name], flag_values).append(((flag_name,), checker, message))


@export(v1=("flags.validator", "app.flags.validator"))
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


@export(v1=("flags.register_multi_flags_validator", "app.flags.register_multi_flags_validator"))
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


@export(v1=("flags.mark_flag_as_required", "app.flags.mark_flag_as_required"))
def mark_flag_as_required(flag_name: str, flag_values: FlagValues | None = None) -> None:
    """Makes a command line that gives the flag no value, where it has no default, an error."""
    register_validator(
        flag_name,
        lambda value: value is not None,
        f"Flag --{flag_name} must have a value other than None.",
        flag_values,
    )


@export(v1=("flags.mark_flags_as_required", "app.flags.mark_flags_as_required"))
def mark_flags_as_required(
    flag_names: Iterable[str], flag_values: FlagValues | None = None
) -> None:
    """`mark_flag_as_required` for each of `flag_names`."""
    for name in flag_names:
        mark_flag_as_required(name, flag_values)


@export(v1=("flags.mark_flags_as_mutual_exclusive", "app.flags.mark_flags_as_mutual_exclusive"))
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
