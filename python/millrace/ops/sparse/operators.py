"""The operators of SparseTensor: `sparse * dense` and `sparse / dense`."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.sparse import SparseTensor
from millrace.ops.sparse.checks import parts_of


def multiply(sp: SparseTensor, dense: Any) -> SparseTensor:
    """`sp * dense`, where sp has elements; dense is broadcast."""
    with name_scope(None, "mul", [sp.values, dense]) as scope:
        dense = convert_to_tensor(dense, sp.dtype.base_dtype, name="y")
        values = gen_ops.sparse_dense_cwise_mul(*parts_of(sp), dense, name=scope)
        return SparseTensor(sp.indices, values, sp.dense_shape)


def divide(sp: SparseTensor, dense: Any) -> SparseTensor:
    """`sp / dense`, where sp has elements; dense is broadcast. Integers give floats."""
    with name_scope(None, "truediv", [sp.values, dense]) as scope:
        dense = convert_to_tensor(dense, sp.dtype.base_dtype, name="y")
        values, kind = sp.values, sp.dtype.base_dtype
        if kind.is_integer:
            small = kind in (dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16)
            to = dtypes.float32 if small else dtypes.float64
            values, dense = gen_ops.cast(values, to), gen_ops.cast(dense, to)
        values = gen_ops.sparse_dense_cwise_div(
            sp.indices, values, sp.dense_shape, dense, name=scope
        )
        return SparseTensor(sp.indices, values, sp.dense_shape)
