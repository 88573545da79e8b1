"""The operators of tensors that have values.

Whoever makes such tensors, this package and its C++ part, takes their class from here: so they have
their operators. `==` compares elements, as TensorFlow 2's does.
"""

from typing import Any

from millrace import gen_ops
from millrace.core.tensor import Tensor
from millrace.eager import rules as rules  # which gives gradients what they need to run at once
from millrace.eager.tensor import EagerTensor
from millrace.graph.convert import convert_to_tensor
from millrace.ops import overloads as overloads


def _compared(op: Any, x: Any, y: Any, without: bool) -> Any:
    """The elements compared; `without` where the two cannot be."""
    if y is None:
        return without
    if getattr(y, "_operators_first", False):
        return NotImplemented
    if not isinstance(x, Tensor):
        x = convert_to_tensor(x)
    try:
        if not isinstance(y, Tensor):
            y = convert_to_tensor(y, dtype=x.dtype.base_dtype)
        return op(x, y, incompatible_shape_error=False)
    except (TypeError, ValueError):
        return without


def equal(x: Any, y: Any) -> Any:
    """Element by element; False where shapes or types do not go together."""
    return _compared(gen_ops.equal, x, y, False)


def not_equal(x: Any, y: Any) -> Any:
    """Element by element; True where shapes or types do not go together."""
    return _compared(gen_ops.not_equal, x, y, True)


EagerTensor.__eq__ = equal
EagerTensor.__ne__ = not_equal
