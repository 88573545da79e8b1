"""The operators of SparseTensor: `sparse * dense` and `sparse / dense`."""

from typing import Any

import numpy as np

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.sparse import SparseTensor
from millrace.ops import array
from millrace.ops.sparse import parts


def multiply(sp: SparseTensor, dense: Any) -> SparseTensor:
    """`sp * dense`, where sp has elements; dense is broadcast."""
    with name_scope(None, "mul", [sp.values, dense]) as scope:
        dense = convert_to_tensor(dense, sp.dtype.base_dtype, name="y")
        values = gen_ops.mul(sp.values, _picked(sp, dense), name=scope)
        return SparseTensor(sp.indices, values, sp.dense_shape)


def _picked(sp: SparseTensor, dense: Tensor) -> Tensor:
    """The elements of a dense tensor, broadcast to the shape of sp, where sp has some."""
    rank = gen_ops.size(sp.dense_shape)
    missing = rank - array.rank(dense)
    missing = parts.checked(
        missing, gen_ops.less_equal(0, missing),
        "SparseDenseBinaryOpShared broadcasts dense to sparse only: the dense tensor has more "
        "dimensions", sp.dense_shape,
    )  # fmt: skip
    ones = gen_ops.fill(array.reshape(missing, [1]), np.int64(1))
    sizes = array.concat([ones, array.shape(dense, out_type=dtypes.int64)], 0)
    single = gen_ops.equal(sizes, array.ones_like(sizes))
    fits = gen_ops.logical_or(single, gen_ops.equal(sizes, sp.dense_shape))
    sizes = parts.checked(
        sizes, fits,
        "SparseDenseBinaryOpShared broadcasts dense to sparse only; got incompatible shapes",
        sp.dense_shape, sizes,
    )  # fmt: skip
    many = gen_ops.cast(gen_ops.logical_not(single), dtypes.int64)
    return gen_ops.gather_nd(gen_ops.reshape(dense, sizes), sp.indices * many)


def divide(sp: SparseTensor, dense: Any) -> SparseTensor:
    """`sp / dense`, where sp has elements; dense is broadcast. Integers give floats."""
    with name_scope(None, "truediv", [sp.values, dense]) as scope:
        dense = convert_to_tensor(dense, sp.dtype.base_dtype, name="y")
        values, kind = sp.values, sp.dtype.base_dtype
        if kind.is_integer:
            small = kind in (dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16)
            to = dtypes.float32 if small else dtypes.float64
            values, dense = gen_ops.cast(values, to), gen_ops.cast(dense, to)
        values = gen_ops.real_div(values, _picked(sp, dense), name=scope)
        return SparseTensor(sp.indices, values, sp.dense_shape)
