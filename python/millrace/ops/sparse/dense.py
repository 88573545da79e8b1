"""Sparse tensors from dense ones, and back."""

from typing import Any

import numpy as np

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.sparse import SparseTensor
from millrace.ops import array, gather
from millrace.ops.sparse.arrange import sparse_merge
from millrace.ops.sparse.checks import as_sparse


@export(v1=("sparse_placeholder", "sparse.placeholder"))
def sparse_placeholder(dtype: Any, shape: Any = None, name: str | None = None) -> SparseTensor:
    """A sparse tensor whose value is fed: a SparseTensorValue, or its three parts.

    `shape`: what the values are held to; sizes may be None, and the whole too.
    """
    prefix = "" if name is None else name + "/"
    rank = None
    if shape is None:
        dense_shape = array.placeholder(dtypes.int64, [None], prefix + "shape" if name else None)
    elif isinstance(shape, Tensor):
        rank = shape.shape.as_list()[0] if shape.shape.ndims == 1 else None
        dense_shape = convert_to_tensor(shape, dtypes.int64)
    else:
        sizes = TensorShape(shape)
        rank = sizes.ndims
        label = prefix + "shape" if name else None
        if rank is None:
            dense_shape = array.placeholder(dtypes.int64, [None], label)
        else:
            known = np.array([-1 if d is None else d for d in sizes.as_list()], np.int64)
            dense_shape = convert_to_tensor(known, name=label)
            if not sizes.is_fully_defined():
                dense_shape = array.placeholder_with_default(dense_shape, [rank])
    return SparseTensor(
        array.placeholder(dtypes.int64, [None, rank], prefix + "indices" if name else None),
        array.placeholder(dtype, [None], prefix + "values" if name else None),
        dense_shape,
    )


@export(v1="sparse.from_dense", v2="sparse.from_dense")
def from_dense(tensor: Any, name: str | None = None) -> SparseTensor:
    """The elements of a dense tensor that are not zero."""
    with name_scope(name, "dense_to_sparse", [tensor]):
        tensor = convert_to_tensor(tensor)
        indices = gather.where(gen_ops.not_equal(tensor, array.zeros_like(tensor)))
        values = gen_ops.gather_nd(tensor, indices)
        return SparseTensor(indices, values, array.shape(tensor, out_type=dtypes.int64))


@export(v1="sparse.eye", v2="sparse.eye")
def eye(
    num_rows: int, num_columns: int | None = None, dtype: Any = dtypes.float32,
    name: str | None = None,
) -> SparseTensor:  # fmt: skip
    """A matrix of ones on the diagonal."""
    with name_scope(name, "eye", []):
        columns = num_rows if num_columns is None else num_columns
        count = np.arange(min(num_rows, columns), dtype=np.int64)
        ones = array.ones([len(count)], dtype)
        return SparseTensor(np.stack([count, count], 1), ones, [num_rows, columns])


@export(v1="sparse_to_dense")
def sparse_to_dense(
    sparse_indices: Any, output_shape: Any, sparse_values: Any, default_value: Any = 0,
    validate_indices: bool = True, name: str | None = None,
) -> Tensor:  # fmt: skip
    """A dense tensor of `default_value`, with the values at the places given.

    `validate_indices`: indices that are out of order or come twice are an error.
    """
    return gen_ops.sparse_to_dense(
        sparse_indices, output_shape, sparse_values, default_value,
        validate_indices=validate_indices, name=name,
    )  # fmt: skip


@export(v1=("sparse_tensor_to_dense", "sparse.to_dense"), v2="sparse.to_dense")
def sparse_tensor_to_dense(
    sp_input: Any, default_value: Any = None, validate_indices: bool = True, name: str | None = None
) -> Tensor:
    """The sparse tensor as a dense one, with `default_value` (zero) where nothing is given."""
    sp_input = as_sparse(sp_input)
    if default_value is None:
        default_value = array.zeros([], sp_input.dtype)
    return sparse_to_dense(
        sp_input.indices, sp_input.dense_shape, sp_input.values, default_value, validate_indices,
        name,
    )  # fmt: skip


@export(v1=("sparse_to_indicator", "sparse.to_indicator"), v2="sparse.to_indicator")
def sparse_to_indicator(sp_input: Any, vocab_size: Any, name: str | None = None) -> Tensor:
    """Booleans: whether number i is among the values of the last dimension."""
    sp_input = as_sparse(sp_input)
    with name_scope(name, "SparseToIndicator", [sp_input.values]) as scope:
        true = array.fill(array.shape(sp_input.values), True)
        marks = SparseTensor(sp_input.indices, true, sp_input.dense_shape)
        merged = sparse_merge(sp_input, marks, vocab_size, name=scope)
        return sparse_tensor_to_dense(merged, False, validate_indices=False, name=scope)
