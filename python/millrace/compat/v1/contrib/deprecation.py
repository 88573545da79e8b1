"""Decorators for what will go away: each warns once for a function."""

import functools
import inspect
from typing import Any, Callable

from millrace.core import logging
from millrace.core.export import export


def _instructions(date: str | None, instructions: str) -> str:
    if not instructions:
        raise ValueError("Don't deprecate things without conversion instructions!")
    when = "in a future version" if date is None else f"after {date}"
    return f"will be removed {when}. Instructions for updating: {instructions}"


def _warning(
    func: Callable[..., Any], applies: Callable[[inspect.BoundArguments], str | None], rest: str,
    warn_once: bool,
) -> Callable[..., Any]:  # fmt: skip
    """`func`, which warns where `applies` says of its arguments what is deprecated."""
    signature = inspect.signature(func)
    told: set[str] = set()

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            what = applies(signature.bind_partial(*args, **kwargs))
        except TypeError:
            what = None  # which the call itself will say
        if what is not None and not (warn_once and what in told):
            told.add(what)
            logging.warning("From %s: %s %s", func.__module__, what, rest)
        return func(*args, **kwargs)

    return wrapped


@export(v1=("contrib.framework.deprecated", "contrib.layers.deprecated"))
def deprecated(
    date: str | None, instructions: str, warn_once: bool = True
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Marks a function or a method.

    Args:
      date: when it will be removed, "2017-01-31"; None: in a future version.
      instructions: what to do instead.
      warn_once: whether to warn at the first call only.
    """
    rest = "is deprecated and " + _instructions(date, instructions)
    return lambda func: _warning(func, lambda _: func.__qualname__, rest, warn_once)


@export(v1=("contrib.framework.deprecated_args", "contrib.layers.deprecated_args"))
def deprecated_args(
    date: str | None, instructions: str, *deprecated_arg_names_or_tuples: Any, **kwargs: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Marks arguments by their names; of (name, value), only other values than that are.

    `warn_once=False` warns at each call. ValueError for names that the function has not.
    """
    rest = "are deprecated and " + _instructions(date, instructions)
    pairs = dict(x if isinstance(x, tuple) else (x, ...) for x in deprecated_arg_names_or_tuples)

    def mark(func: Callable[..., Any]) -> Callable[..., Any]:
        missing = [name for name in pairs if name not in inspect.signature(func).parameters]
        if missing:
            raise ValueError(f"{func.__qualname__} has no arguments {', '.join(missing)}")

        def applies(bound: inspect.BoundArguments) -> str | None:
            values = bound.arguments
            given = [n for n, fine in pairs.items() if n in values and values[n] is not fine]
            given = [n for n in given if pairs[n] is ... or values[n] != pairs[n]]
            return f"the arguments {given} of {func.__qualname__}" if given else None

        return _warning(func, applies, rest, kwargs.get("warn_once", True))

    return mark


@export(v1=("contrib.framework.deprecated_arg_values", "contrib.layers.deprecated_arg_values"))
def deprecated_arg_values(
    date: str | None, instructions: str, warn_once: bool = True, **deprecated_kwargs: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Marks values of arguments: `deprecated_arg_values(None, "...", mode="old")`."""
    if not deprecated_kwargs:
        raise ValueError("Specify which argument values are deprecated.")
    rest = "is deprecated and " + _instructions(date, instructions)

    def mark(func: Callable[..., Any]) -> Callable[..., Any]:
        def applies(bound: inspect.BoundArguments) -> str | None:
            for name, value in deprecated_kwargs.items():
                if name in bound.arguments and bound.arguments[name] == value:
                    return f"{name}={value!r} of {func.__qualname__}"
            return None

        return _warning(func, applies, rest, warn_once)

    return mark
