"""Functions with their arguments in another order."""

import functools
from typing import Any, Callable


def reordered(function: Callable[..., Any], order: str, **renamed: str) -> Callable[..., Any]:
    """`function` with the arguments of `order`, by position or name. `renamed`: what the function
    itself calls some of them."""
    names = order.split()
    count = len(names)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) > count:
            raise TypeError(f"{function.__name__} takes {count} arguments, got {len(args)}")
        for name, value in zip(names, args, strict=False):
            if name in kwargs:
                raise TypeError(f"{function.__name__} got two values for argument {name!r}")
            kwargs[name] = value
        for name in kwargs:
            if name not in names:
                raise TypeError(f"{function.__name__} got an unexpected argument {name!r}")
        for name, own in renamed.items():
            if name in kwargs:
                kwargs[own] = kwargs.pop(name)
        return function(**kwargs)

    call._order = {name: renamed.get(name, name) for name in names}  # type: ignore[attr-defined]
    return call


def parameters_of(function: Callable[..., Any]) -> list[Any]:
    """The parameters of a function, in the order in which it takes them."""
    import inspect  # late: seldom

    order = getattr(function, "_order", None)
    own = inspect.signature(function).parameters
    if order is None:
        return list(own.values())
    return [
        own[name].replace(name=given, kind=inspect.Parameter.POSITIONAL_OR_KEYWORD)
        for given, name in order.items()
    ]
