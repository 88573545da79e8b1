"""Sparse tensors as strings or variants."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.arguments import reordered
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.sparse import SparseTensor
from millrace.ops.sparse.checks import as_sparse, parts_of


@export(v1=("serialize_sparse", "io.serialize_sparse"))
def serialize_sparse(
    sp_input: Any, name: str | None = None, out_type: Any = dtypes.string
) -> Tensor:
    """A sparse tensor as three strings or, by `out_type`, variants."""
    sparse = parts_of(as_sparse(sp_input))
    return gen_ops.serialize_sparse(*sparse, out_type=dtypes.as_dtype(out_type), name=name)


serialize_sparse_v2 = export(v2="io.serialize_sparse")(
    reordered(serialize_sparse, "sp_input out_type name")
)


@export(v1=("serialize_many_sparse", "io.serialize_many_sparse"))
def serialize_many_sparse(
    sp_input: Any, name: str | None = None, out_type: Any = dtypes.string
) -> Tensor:
    """The rows of a sparse tensor, each as three strings or, by `out_type`, variants."""
    sparse = parts_of(as_sparse(sp_input))
    return gen_ops.serialize_many_sparse(*sparse, out_type=dtypes.as_dtype(out_type), name=name)


serialize_many_sparse_v2 = export(v2="io.serialize_many_sparse")(
    reordered(serialize_many_sparse, "sp_input out_type name")
)


@export(
    v1=("deserialize_many_sparse", "io.deserialize_many_sparse"), v2="io.deserialize_many_sparse"
)
def deserialize_many_sparse(
    serialized_sparse: Any, dtype: Any, rank: int | None = None, name: str | None = None
) -> SparseTensor:
    """Joins the rows that `serialize_many_sparse` wrote. `rank`: of the rows, where it is known."""
    indices, values, shape = gen_ops.deserialize_many_sparse(serialized_sparse, dtype, name=name)
    indices.set_shape([None, rank])
    shape.set_shape([rank])
    return SparseTensor(indices, values, shape)
