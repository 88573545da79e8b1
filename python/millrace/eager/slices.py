"""Tensors with values that were sliced out of variables: `variable[1:].assign(value)`.

Such tensors have no attributes of their own, so what assigns to the variable is kept beside them,
as long as they live.
"""

import weakref
from typing import Any, Callable

from millrace.eager.tensor import EagerTensor

_assigns: dict[int, tuple[Any, Callable[..., Any]]] = {}


def add(tensor: Any, assign: Callable[..., Any]) -> None:
    """`tensor.assign(value)` is `assign(value)` from now on."""
    number = id(tensor)
    gone = weakref.ref(tensor, lambda _: _assigns.pop(number, None))
    _assigns[number] = gone, assign


def _assign(self: Any) -> Callable[..., Any]:
    found = _assigns.get(id(self))
    if found is None:
        raise AttributeError(
            "a tensor has no `assign`: assign to a variable, or to a slice of one, v[1:].assign(x)"
        )
    return found[1]


EagerTensor.assign = property(_assign)
