"""Sums, products and the larger of two."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes, errors
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import control_dependencies, name_scope
from millrace.graph.sparse import SparseTensor
from millrace.ops import array
from millrace.ops.sparse import parts
from millrace.ops.sparse.arrange import sparse_retain
from millrace.ops.sparse.checks import as_sparse, is_sparse, places_of


@export(v1=("sparse_add", "sparse.add"))
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
        with name_scope(None, "SparseAdd", [a.values, b.values]):
            shape = _common_shape(a, b)
            at, of_a, of_b = parts.union(places_of(a), places_of(b))
            values = array.concat([a.values, b.values], 0)
            sums = parts.summed(values, array.concat([of_a, of_b], 0), parts.count(at))
            whole = SparseTensor(parts.indices_of(at, shape), sums, shape)
            if threshold is None:
                return whole
            size = gen_ops.complex_abs(sums) if sums.dtype.is_complex else gen_ops.abs(sums)
            return sparse_retain(whole, gen_ops.less_equal(limit, size))
    if is_sparse(b):
        a, b = b, a
    a = as_sparse(a)
    with name_scope(None, "SparseTensorDenseAdd", [a.values, b]) as scope:
        b = convert_to_tensor(b, a.dtype.base_dtype)
        a.shape.assert_is_compatible_with(b.shape)
        shape = parts.same_shape(
            a.dense_shape, array.shape(b, out_type=dtypes.int64),
            "Shapes of the sparse and the dense tensor must match",
        )  # fmt: skip
        return gen_ops.add(gen_ops.scatter_nd(a.indices, a.values, shape), b, name=scope)


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
        b.shape.with_rank(2)
        if adjoint_b:
            b = array.transpose(b, [1, 0], conjugate=True)
        values, row, column = sp_a.values, 0, 1
        if adjoint_a:
            values, row, column = _conjugate(values), 1, 0
        inner = gen_ops.cast(array.shape(b)[0], dtypes.int64)
        size = sp_a.dense_shape[column]
        if not sp_a.shape.with_rank(2)[column].is_compatible_with(b.shape[0]):
            raise ValueError(
                "Dimensions must be equal: cannot multiply A and B because inner dimension does "
                f"not match: A has shape {sp_a.shape}, B has shape {b.shape} "
                f"(adjoint_a={adjoint_a}, "
                f"adjoint_b={adjoint_b})"
            )
        inner = parts.checked(
            inner, gen_ops.equal(inner, size),
            "Cannot multiply A and B because inner dimension does not match", size, inner,
        )  # fmt: skip
        with control_dependencies([inner]):
            picked = gen_ops.gather(b, sp_a.indices[:, column])
        products = array.expand_dims(values, 1) * picked
        rows = gen_ops.cast(sp_a.dense_shape[row], dtypes.int32)
        made = gen_ops.unsorted_segment_sum(products, sp_a.indices[:, row], rows, name=scope)
        made.set_shape([sp_a.shape[row], b.shape[1]])
        return made


def _conjugate(values: Tensor) -> Tensor:
    return gen_ops.conj(values) if values.dtype.base_dtype.is_complex else values


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
