"""What a sparse argument must be."""

from typing import Any

from millrace.core.tensor import Tensor
from millrace.graph.sparse import SparseTensor, SparseTensorValue
from millrace.ops.sparse import parts


def is_sparse(value: Any) -> bool:
    return isinstance(value, (SparseTensor, SparseTensorValue))


def as_sparse(value: Any, name: str = "Input") -> SparseTensor:
    """The value as a SparseTensor. TypeError when it is not sparse."""
    if not is_sparse(value):
        raise TypeError(f"{name} must be a SparseTensor, got {type(value).__name__}: {value!r}")
    return SparseTensor.from_value(value)


def parts_of(value: SparseTensor) -> tuple[Tensor, Tensor, Tensor]:
    return value.indices, value.values, value.dense_shape


def places_of(value: SparseTensor) -> Tensor:
    return parts.places(value.indices, value.dense_shape)


def one_keepdims(keepdims: bool | None, keep_dims: bool | None) -> bool:
    if keepdims is not None and keep_dims is not None:
        raise ValueError("Cannot specify both 'keepdims' and 'keep_dims'.")
    return bool(keepdims) or bool(keep_dims)


def sparse_list(values: Any) -> list[SparseTensor]:
    if not isinstance(values, (list, tuple)):
        raise TypeError(f"Inputs must be a list of SparseTensors, got {type(values).__name__}")
    if not all(is_sparse(v) for v in values):
        raise TypeError(
            "All inputs must be SparseTensors, got "
            + ", ".join(sorted({type(v).__name__ for v in values}))
        )
    return [SparseTensor.from_value(v) for v in values]
