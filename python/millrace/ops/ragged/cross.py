"""All combinations of the elements of rows: crossed features."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.graph.convert import convert_to_tensor
from millrace.graph.sparse import SparseTensor, SparseTensorValue
from millrace.ops.math import cast
from millrace.ops.ragged.tensor import RaggedTensor, after, as_ragged_or_tensor, checked, is_ragged
from millrace.ops.sparse.cross import crossed, crossed_hashes


@export(v1="ragged.cross", v2="ragged.cross")
def cross(inputs: Any, name: str | None = None) -> RaggedTensor:
    """All combinations of one element of each input, row by row, as strings joined by "_X_".

    Args:
      inputs: matrices of strings or integers: ragged, sparse or dense.
    """
    del name
    columns, kind = _columns(inputs)
    return RaggedTensor.from_sparse(crossed(columns, "_X_"), row_splits_dtype=kind)


@export(v1="ragged.cross_hashed", v2="ragged.cross_hashed")
def cross_hashed(
    inputs: Any, num_buckets: int = 0, hash_key: int | None = None, name: str | None = None
) -> RaggedTensor:
    """The same as hashes below `num_buckets`, if it is not 0: those of TensorFlow."""
    del name
    columns, kind = _columns(inputs)
    made = crossed_hashes(columns, num_buckets, hash_key)
    return RaggedTensor.from_sparse(made, row_splits_dtype=kind)


def _columns(inputs: Any) -> tuple[list[SparseTensor], dtypes.DType]:
    """The inputs as sparse matrices with as many rows each, and the type of row splits."""
    if not isinstance(inputs, (list, tuple)):
        raise TypeError("Inputs must be a list")
    if not inputs:
        raise ValueError("tf.ragged.cross needs at least one input")
    columns, kinds = [], []
    for value in inputs:
        if is_ragged(value):
            value = as_ragged_or_tensor(value)
            kinds.append(value.row_splits.dtype)
        elif isinstance(value, SparseTensorValue):
            value = SparseTensor.from_value(value)
        elif not isinstance(value, SparseTensor):
            value = convert_to_tensor(value)
        if value.shape.ndims not in (2, None):
            raise ValueError("tf.ragged.cross only supports inputs with rank=2.")
        if not (value.dtype.is_integer or value.dtype is dtypes.string):
            raise ValueError(f"Unexpected dtype for inputs: {value.dtype.name}")
        if not isinstance(value, (RaggedTensor, SparseTensor)):
            value = RaggedTensor.from_tensor(value)
        columns.append(value if isinstance(value, SparseTensor) else value.to_sparse())
    rows = columns[0].dense_shape[0]
    message = "inputs must all have the same batch dimension"
    for column in columns[1:]:
        fits = gen_ops.equal(rows, column.dense_shape[0])
        rows = checked(rows, [(fits, message)])
    first = columns[0]
    columns[0] = SparseTensor(first.indices, after(first.values, rows), first.dense_shape)
    integer = dtypes.int32 if kinds and all(k is dtypes.int32 for k in kinds) else dtypes.int64
    return [_wide(column) for column in columns], integer


def _wide(column: SparseTensor) -> SparseTensor:
    """Integers as int64."""
    if column.dtype is dtypes.string:
        return column
    return SparseTensor(column.indices, cast(column.values, dtypes.int64), column.dense_shape)
