"""The operators of tensors: `a + b`, `a[1:, None]`, and so on.

Whoever reaches for the classes of tensors, this package's users and its C++ part, does it here: so
they have their operators.
"""

from typing import Any, Callable

from millrace import _core, gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import OPERATORS, Tensor, TensorOperators, label_of
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.sparse import SparseTensor
from millrace.graph.tensor import SymbolicTensor as SymbolicTensor
from millrace.ops import indexing, linalg, math
from millrace.ops.sparse import operators as sparse_operators

export(v1="Tensor", v2=("Tensor", "experimental.numpy.ndarray"))(Tensor)


def _plain(op: str, name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The two methods of an operator that is one op: the other operand takes the tensor's type."""
    add = _core.op(op)

    def method(x: Any, y: Any) -> Any:
        if getattr(y, "_operators_first", False):
            return NotImplemented
        return add(name, (x, y))

    def reflected(y: Any, x: Any) -> Any:
        return add(name, (x, y), True)

    return method, reflected


def _composed(
    op: Callable[..., Tensor], name: str
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The same for an operator made of several ops."""

    def method(x: Any, y: Any) -> Any:
        if getattr(y, "_operators_first", False):
            return NotImplemented
        with name_scope(None, name, [x, y]) as scope:
            x = convert_to_tensor(x, name="x")
            return op(x, _like(y, x, name), name=scope)

    def reflected(y: Any, x: Any) -> Any:
        with name_scope(None, name, [x, y]) as scope:
            y = convert_to_tensor(y, name="y")
            return op(_like(x, y, name, "x"), y, name=scope)

    return method, reflected


def _like(value: Any, other: Tensor, op: str, name: str = "y") -> Tensor:
    """The other operand, of the same type. TypeError names both."""
    if isinstance(value, Tensor):
        if value.dtype.base_dtype is other.dtype.base_dtype:
            return value
        left, right = (other, value) if name == "y" else (value, other)
        raise TypeError(
            f"{op}: the operands have different types: '{label_of(left)}' is "
            f"{left.dtype.base_dtype.name} "
            f"with shape {left.shape}, '{label_of(right)}' is {right.dtype.base_dtype.name} with "
            "shape "
            f"{right.shape}. Use tf.cast on one of them."
        )
    try:
        return convert_to_tensor(value, dtype=other.dtype.base_dtype, name=name)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"{op}: {error} The other operand is '{label_of(other)}' "
            f"({other.dtype.base_dtype.name}, "
            f"shape {other.shape})."
        ) from None


def _divide(x: Tensor, y: Tensor, name: str) -> Tensor:
    """Division as Python 3 has it: integers give floats."""
    if x.dtype.base_dtype.is_integer:
        small = x.dtype.base_dtype in (dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16)
        to = dtypes.float32 if small else dtypes.float64
        x, y = gen_ops.cast(x, to), gen_ops.cast(y, to)
    return gen_ops.real_div(x, y, name=name)


def _old_divide(x: Tensor, y: Tensor, name: str) -> Tensor:
    """Division as Python 2 has it: integers give integers."""
    if x.dtype.base_dtype.is_floating or x.dtype.base_dtype.is_complex:
        return gen_ops.real_div(x, y, name=name)
    return gen_ops.floor_div(x, y, name=name)


def _matmul(x: Tensor, y: Tensor, name: str) -> Tensor:
    return linalg.matmul(x, y, name=name)


def _logical_xor(x: Tensor, y: Tensor, name: str) -> Tensor:
    both = gen_ops.logical_and(x, y)
    return gen_ops.logical_and(gen_ops.logical_or(x, y), gen_ops.logical_not(both), name=name)


__add__, __radd__ = _plain("Add", "add")
__sub__, __rsub__ = _plain("Sub", "sub")
__mul__, __rmul__ = _plain("Mul", "mul")
__div__, __rdiv__ = _composed(_old_divide, "div")
__truediv__, __rtruediv__ = _composed(_divide, "truediv")
__floordiv__, __rfloordiv__ = _plain("FloorDiv", "floordiv")
__mod__, __rmod__ = _plain("FloorMod", "mod")
__pow__, __rpow__ = _plain("Pow", "pow")
__matmul__, __rmatmul__ = _composed(_matmul, "matmul")


def _of_bits(logical: Any, bitwise: Any) -> Callable[[Tensor, Tensor, str], Tensor]:
    """`&` and the like: of truth values, and of the bits of integers."""

    def op(x: Tensor, y: Tensor, name: str) -> Tensor:
        kind = bitwise if x.dtype.base_dtype.is_integer else logical
        return kind(x, y, name=name)

    return op


__and__, __rand__ = _composed(_of_bits(gen_ops.logical_and, gen_ops.bitwise_and), "and")
__or__, __ror__ = _composed(_of_bits(gen_ops.logical_or, gen_ops.bitwise_or), "or")
__xor__, __rxor__ = _composed(_of_bits(_logical_xor, gen_ops.bitwise_xor), "xor")


__lt__, _ = _plain("Less", "Less")
__le__, _ = _plain("LessEqual", "LessEqual")
__gt__, _ = _plain("Greater", "Greater")
__ge__, _ = _plain("GreaterEqual", "GreaterEqual")


def __invert__(x: Any) -> Tensor:
    if x.dtype.base_dtype.is_integer:
        return gen_ops.invert(convert_to_tensor(x))
    return gen_ops.logical_not(x)


def __neg__(x: Any) -> Tensor:
    return gen_ops.neg(x)


def __abs__(x: Any) -> Tensor:
    return math.abs(x)


def __getitem__(tensor: Any, item: Any) -> Tensor:
    """`tensor[item]` with integers, slices, None (a new dimension) and ... as NumPy has them."""
    return indexing.getitem(tensor, item)


for _name in OPERATORS:
    setattr(TensorOperators, _name, globals()[_name])
SparseTensor.__mul__ = SparseTensor.__rmul__ = sparse_operators.multiply
SparseTensor.__truediv__ = SparseTensor.__div__ = sparse_operators.divide
