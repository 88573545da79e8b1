"""The operators of ragged tensors, `a + b`, `a == b` ...: those of tensors, of the elements."""

from typing import Any, Callable

from millrace.ops import math, overloads
from millrace.ops.ragged import numeric
from millrace.ops.ragged.elementwise import of_pairs
from millrace.ops.ragged.indexing import getitem
from millrace.ops.ragged.tensor import RaggedTensor


def _of_pairs(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The two methods of an operator with two operands."""
    method = getattr(overloads, name)

    def reflected(y: Any, x: Any) -> Any:
        return of_pairs(method, x, y)

    return lambda x, y: of_pairs(method, x, y), reflected


def _of_elements(name: str) -> Callable[[RaggedTensor], RaggedTensor]:
    method = getattr(overloads, name)
    return lambda x: x.with_flat_values(method(x.flat_values))


def _compared(op: Callable[..., Any], without: bool) -> Callable[[RaggedTensor, Any], Any]:
    """Elements compared; `without` where the two are not of one type or shape."""

    def method(x: RaggedTensor, y: Any) -> Any:
        if y is None:
            return without
        try:
            return of_pairs(op, x, y)
        except (TypeError, ValueError):
            return without

    return method


__add__, __radd__ = _of_pairs("__add__")
__sub__, __rsub__ = _of_pairs("__sub__")
__mul__, __rmul__ = _of_pairs("__mul__")
__div__, __rdiv__ = _of_pairs("__div__")
__truediv__, __rtruediv__ = _of_pairs("__truediv__")
__floordiv__, __rfloordiv__ = _of_pairs("__floordiv__")
__mod__, __rmod__ = _of_pairs("__mod__")
__pow__, __rpow__ = _of_pairs("__pow__")
__and__, __rand__ = _of_pairs("__and__")
__or__, __ror__ = _of_pairs("__or__")
__xor__, __rxor__ = _of_pairs("__xor__")
__lt__, _ = _of_pairs("__lt__")
__le__, _ = _of_pairs("__le__")
__gt__, _ = _of_pairs("__gt__")
__ge__, _ = _of_pairs("__ge__")
__neg__ = _of_elements("__neg__")
__abs__ = _of_elements("__abs__")
__invert__ = _of_elements("__invert__")
__eq__ = _compared(math.equal, False)
__ne__ = _compared(math.not_equal, True)
__getitem__ = getitem


def __matmul__(a: Any, b: Any) -> Any:
    return numeric.matmul(a, b)


def __rmatmul__(b: Any, a: Any) -> Any:
    return numeric.matmul(a, b)
