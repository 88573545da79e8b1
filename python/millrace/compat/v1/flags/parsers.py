"""From the text of a command line to values."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from numbers import Integral, Real
from typing import Any

from millrace.core.suggest import nearest


def as_list(values: Any) -> list[Any]:
    return list(values) if isinstance(values, Iterable) else [values]


def as_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"flag value must be a string, found {type(value).__name__}")
    return value


def as_boolean(value: Any) -> bool:
    if isinstance(value, str):
        lower = value.lower()
        if lower in ("true", "t", "1"):
            return True
        if lower in ("false", "f", "0"):
            return False
    elif value in (0, 1):
        return bool(value)
    raise ValueError("a boolean flag is one of true, t, 1, false, f and 0")


def bounded(convert: Callable[[Any], Any], low: Any, high: Any) -> Callable[[Any], Any]:
    """Reads numbers with `convert` and checks that they lie in [low, high]."""

    def parse(value: Any) -> Any:
        number = convert(value)
        if (low is not None and number < low) or (high is not None and number > high):
            bounds = [f"at least {low}"] if low is not None else []
            bounds += [f"at most {high}"] if high is not None else []
            raise ValueError(f"must be {' and '.join(bounds)}")
        return number

    return parse


def as_integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (str, Integral)):
        raise TypeError(f"an integer flag is a string or an int, found {type(value).__name__}")
    if isinstance(value, str):
        digits = value.strip().lstrip("+-").lower()
        base = {"0x": 16, "0o": 8}.get(digits[:2], 10)
        return int(value, base)
    return int(value)


def as_float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (str, Real)):
        raise TypeError(f"a float flag is a string or a number, found {type(value).__name__}")
    return float(value)


def one_of(choices: Any, case_sensitive: bool = True) -> Callable[[Any], str]:
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


def enum_member(enum_class: Any) -> Callable[[Any], Any]:
    names = {name.lower(): name for name in enum_class.__members__}
    choose = one_of(names, case_sensitive=False)

    def parse(value: Any) -> Any:
        if isinstance(value, enum_class):
            return value
        return enum_class.__members__[names[choose(value)]]

    return parse


def split_by(separate: Callable[[str], list[str]]) -> Callable[[Any], list[str]]:
    def parse(value: Any) -> list[str]:
        return list(value) if isinstance(value, (list, tuple)) else separate(as_text(value))

    return parse


def commas(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")] if text else []
