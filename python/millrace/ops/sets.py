"""Sets in the last dimension of tensors."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.sparse import (
    SparseTensor,
    SparseTensorValue,
    convert_to_tensor_or_sparse_tensor,
)

_TYPES = frozenset(
    {dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64, dtypes.uint8, dtypes.uint16,
     dtypes.string}
)  # fmt: skip


def _parts(value: SparseTensor) -> tuple[Tensor, Tensor, Tensor]:
    return value.indices, value.values, value.dense_shape


@export(v1=("sets.set_size", "sets.size"), v2="sets.size")
def set_size(a: Any, validate_indices: bool = True) -> Tensor:
    """How many different elements each set of a sparse tensor has."""
    if not isinstance(a, (SparseTensor, SparseTensorValue)):
        raise TypeError(f"Expected `SparseTensor`, got {a!r}.")
    a = SparseTensor.from_value(a)
    if a.values.dtype.base_dtype not in _TYPES:
        raise TypeError(f"Invalid dtype {a.values.dtype.name}: sets are of integers or strings.")
    return gen_ops.set_size(*_parts(a), validate_indices)


def _operate(a: Any, b: Any, operation: str, validate_indices: bool) -> SparseTensor:
    a = convert_to_tensor_or_sparse_tensor(a, name="a")
    b = convert_to_tensor_or_sparse_tensor(b, name="b")
    if a.dtype.base_dtype not in _TYPES:
        raise TypeError(f"'a' has dtype {a.dtype.name}: sets are of integers or strings.")
    if b.dtype.base_dtype is not a.dtype.base_dtype:
        raise TypeError(f"Types don't match, {a.dtype.name} vs {b.dtype.name}.")
    if isinstance(a, SparseTensor):
        if isinstance(b, SparseTensor):
            made = gen_ops.sparse_to_sparse_set_operation(
                *_parts(a), *_parts(b), operation, validate_indices
            )
        elif operation in ("a-b", "b-a"):
            # The op takes the dense one first: the roles change.
            flipped = "b-a" if operation == "a-b" else "a-b"
            made = gen_ops.dense_to_sparse_set_operation(b, *_parts(a), flipped, validate_indices)
        else:
            made = gen_ops.dense_to_sparse_set_operation(b, *_parts(a), operation, validate_indices)
    elif isinstance(b, SparseTensor):
        made = gen_ops.dense_to_sparse_set_operation(a, *_parts(b), operation, validate_indices)
    else:
        made = gen_ops.dense_to_dense_set_operation(a, b, operation, validate_indices)
    return SparseTensor(*made)


@export(v1=("sets.set_intersection", "sets.intersection"), v2="sets.intersection")
def set_intersection(a: Any, b: Any, validate_indices: bool = True) -> SparseTensor:
    """The elements of the sets of the last dimension that both have."""
    return _operate(a, b, "intersection", validate_indices)


@export(v1=("sets.set_difference", "sets.difference"), v2="sets.difference")
def set_difference(
    a: Any, b: Any, aminusb: bool = True, validate_indices: bool = True
) -> SparseTensor:
    """The elements that only a has; with `aminusb=False`, that only b has."""
    return _operate(a, b, "a-b" if aminusb else "b-a", validate_indices)


@export(v1=("sets.set_union", "sets.union"), v2="sets.union")
def set_union(a: Any, b: Any, validate_indices: bool = True) -> SparseTensor:
    """The elements that either has."""
    return _operate(a, b, "union", validate_indices)
