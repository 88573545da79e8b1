"""Sums, products and the larger of two."""

from typing import Any

from millrace import gen_ops
from millrace.core import errors
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.sparse import SparseTensor
from millrace.ops.sparse import parts
from millrace.ops.sparse.checks import as_sparse, is_sparse, parts_of, places_of


@export(v1=("sparse_add", "sparse.add"), v2="sparse.add")
def sparse_add(a: Any, b: Any, threshold: Any = None, thresh: Any = None) -> Any:
    """The sum of two tensors, at least one of which is sparse; sparse when both are.

    `threshold`: leave out sums that are not larger than it. TypeError when neither is sparse.
    """
    threshold = thresh if threshold is None else threshold
    if not is_sparse(a) and not is_sparse(b):
        raise TypeError(
            "At least one input should be SparseTensor; do you mean to use tf.add()? Got "
            f"{type(a).__name__} and {type(b).__name__}"
        )
    if is_sparse(a) and is_sparse(b):
        a, b = as_sparse(a), as_sparse(b)
        real = a.values.dtype.real_dtype.base_dtype
        limit = convert_to_tensor(0 if threshold is None else threshold, real, name="thresh")
        return SparseTensor(*gen_ops.sparse_add(*parts_of(a), *parts_of(b), limit))
    if is_sparse(b):
        a, b = b, a
    a = as_sparse(a)
    b = convert_to_tensor(b, a.dtype.base_dtype)
    return gen_ops.sparse_tensor_dense_add(*parts_of(a), b)


def _common_shape(a: SparseTensor, b: SparseTensor) -> Tensor:
    """The shape of both; an error, now or when the graph runs, when they differ."""
    if not a.shape.is_compatible_with(b.shape):
        same_rank = a.shape.ndims == b.shape.ndims
        what = (
            "Operands' shapes do not match" if same_rank else "Operands do not have the same ranks"
        )
        raise errors.InvalidArgumentError(None, None, f"{what}: got {a.shape} and {b.shape}")
    if a.shape.is_fully_defined() and b.shape.is_fully_defined():
        return a.dense_shape
    return parts.same_shape(a.dense_shape, b.dense_shape, "Operands' shapes do not match")


@export(
    v1=("sparse_tensor_dense_matmul", "sparse.matmul", "sparse.sparse_dense_matmul"),
    v2="sparse.sparse_dense_matmul",
)
def sparse_tensor_dense_matmul(
    sp_a: Any, b: Any, adjoint_a: bool = False, adjoint_b: bool = False, name: str | None = None
) -> Tensor:
    """The product of a sparse and a dense matrix; `adjoint_*`: of the conjugate transpose."""
    sp_a = as_sparse(sp_a)
    with name_scope(name, "SparseTensorDenseMatMul", [sp_a.values, b]) as scope:
        b = convert_to_tensor(b, name="b")
        return gen_ops.sparse_tensor_dense_mat_mul(
            *parts_of(sp_a), b, adjoint_a=adjoint_a, adjoint_b=adjoint_b, name=scope
        )


@export(v1=("sparse_softmax", "sparse.softmax"), v2="sparse.softmax")
def sparse_softmax(sp_input: Any, name: str | None = None) -> SparseTensor:
    """Softmax over the last dimension, among the elements that are given."""
    sp_input = as_sparse(sp_input)
    with name_scope(name, "SparseSoftmax", [sp_input.indices, sp_input.values]) as scope:
        row = gen_ops.floor_div(places_of(sp_input), sp_input.dense_shape[-1])
        rows, number = gen_ops.unique(row)
        values, size = sp_input.values, parts.count(rows)
        top = gen_ops.stop_gradient(parts.largest(values, number, size))
        powers = gen_ops.exp(values - gen_ops.gather(top, number))
        sums = gen_ops.gather(parts.summed(powers, number, size), number)
        values = gen_ops.real_div(powers, sums, name=scope)
        return SparseTensor(sp_input.indices, values, sp_input.dense_shape)


def _merged(sp_a: Any, sp_b: Any, choose: Any, name: str | None, default: str) -> SparseTensor:
    """choose(a, b) of the elements that either gives; what is not given counts as zero."""
    a, b = as_sparse(sp_a), as_sparse(sp_b)
    with name_scope(name, default, [a.values, b.values]) as scope:
        shape = _common_shape(a, b)
        at, of_a, of_b = parts.union(places_of(a), places_of(b))
        size = parts.count(at)
        values = choose(
            parts.summed(a.values, of_a, size), parts.summed(b.values, of_b, size), name=scope
        )
        return SparseTensor(parts.indices_of(at, shape), values, shape)


@export(v1=("sparse_maximum", "sparse.maximum"), v2="sparse.maximum")
def sparse_maximum(sp_a: Any, sp_b: Any, name: str | None = None) -> SparseTensor:
    """The larger of two sparse tensors' elements; what is not given counts as zero."""
    return _merged(sp_a, sp_b, gen_ops.maximum, name, "SparseSparseMaximum")


@export(v1=("sparse_minimum", "sparse.minimum"), v2="sparse.minimum")
def sparse_minimum(sp_a: Any, sp_b: Any, name: str | None = None) -> SparseTensor:
    """The smaller of two sparse tensors' elements; what is not given counts as zero."""
    return _merged(sp_a, sp_b, gen_ops.minimum, name, "SparseSparseMinimum")
