"""Sums, means and the like over dimensions of a tensor."""

from typing import Any, Callable

import numpy as np

from millrace import _core, gen_ops
from millrace.core import dtypes
from millrace.core.arguments import reordered
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import constant, convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.sparse import SparseTensor
from millrace.ops.along import either
from millrace.ops.math import cast
from millrace.ops.sizes import rank_of


def keeps(keepdims: Any, keep_dims: Any) -> bool:
    """Whether reduced dimensions stay, with size 1. ValueError when both names are used."""
    return bool(either(keepdims, keep_dims, "keep_dims", "keepdims"))


def reduction_dims(x: Any, axis: Any) -> Any:
    """The dimensions to reduce: `axis`, or all of them."""
    if axis is not None:
        return axis
    if isinstance(x, SparseTensor):
        count = x.dense_shape.shape.as_list()[0]
        if count is None:
            return gen_ops.range(0, gen_ops.size(x.dense_shape), 1)
    else:
        count = rank_of(x)
        if not isinstance(count, int):
            return gen_ops.range(0, count, 1, name="range")
    if count and _core.is_eager_tensor(x):
        return list(range(count))
    return constant(np.arange(count, dtype=np.int32))


def _reduce(
    op: Callable[..., Tensor], x: Any, axis: Any, keepdims: Any, name: Any, indices: Any, old: Any,
    dtype: Any = None,
) -> Tensor:  # fmt: skip
    axis = either(axis, indices, "reduction_indices")
    keep = keeps(keepdims, old)
    if not isinstance(x, Tensor):
        x = convert_to_tensor(x, dtype, name="input_tensor")
    out = op(x, reduction_dims(x, axis), keep, name=name)
    if axis is None and not keep and out.shape.ndims is None:
        out.set_shape(())
    return out


@export(v1=("reduce_sum", "math.reduce_sum"), v2=("reduce_sum", "math.reduce_sum"))
def reduce_sum(
    input_tensor: Any, axis: Any = None, keepdims: bool | None = None, name: str | None = None,
    reduction_indices: Any = None, keep_dims: bool | None = None,
) -> Tensor:  # fmt: skip
    """The sum over the dimensions `axis`, or over all of them.

    `keepdims` keeps reduced dimensions, with size 1.
    """
    return _reduce(gen_ops.sum, input_tensor, axis, keepdims, name, reduction_indices, keep_dims)


@export(v1=("reduce_mean", "math.reduce_mean"), v2=("reduce_mean", "math.reduce_mean"))
def reduce_mean(
    input_tensor: Any, axis: Any = None, keepdims: bool | None = None, name: str | None = None,
    reduction_indices: Any = None, keep_dims: bool | None = None,
) -> Tensor:  # fmt: skip
    """The mean over the dimensions `axis`, or over all of them; of integers an integer."""
    return _reduce(gen_ops.mean, input_tensor, axis, keepdims, name, reduction_indices, keep_dims)


@export(v1=("reduce_prod", "math.reduce_prod"), v2=("reduce_prod", "math.reduce_prod"))
def reduce_prod(
    input_tensor: Any, axis: Any = None, keepdims: bool | None = None, name: str | None = None,
    reduction_indices: Any = None, keep_dims: bool | None = None,
) -> Tensor:  # fmt: skip
    """The product over the dimensions `axis`, or over all of them."""
    return _reduce(gen_ops.prod, input_tensor, axis, keepdims, name, reduction_indices, keep_dims)


@export(v1=("reduce_max", "math.reduce_max"), v2=("reduce_max", "math.reduce_max"))
def reduce_max(
    input_tensor: Any, axis: Any = None, keepdims: bool | None = None, name: str | None = None,
    reduction_indices: Any = None, keep_dims: bool | None = None,
) -> Tensor:  # fmt: skip
    """The greatest element over the dimensions `axis`, or over all of them."""
    return _reduce(gen_ops.max, input_tensor, axis, keepdims, name, reduction_indices, keep_dims)


@export(v1=("reduce_min", "math.reduce_min"), v2=("reduce_min", "math.reduce_min"))
def reduce_min(
    input_tensor: Any, axis: Any = None, keepdims: bool | None = None, name: str | None = None,
    reduction_indices: Any = None, keep_dims: bool | None = None,
) -> Tensor:  # fmt: skip
    """The least element over the dimensions `axis`, or over all of them."""
    return _reduce(gen_ops.min, input_tensor, axis, keepdims, name, reduction_indices, keep_dims)


@export(v1=("reduce_all", "math.reduce_all"), v2=("reduce_all", "math.reduce_all"))
def reduce_all(
    input_tensor: Any, axis: Any = None, keepdims: bool | None = None, name: str | None = None,
    reduction_indices: Any = None, keep_dims: bool | None = None,
) -> Tensor:  # fmt: skip
    """Whether all elements over the dimensions `axis`, or all at all, are true."""
    return _reduce(
        gen_ops.all, input_tensor, axis, keepdims, name, reduction_indices, keep_dims, dtypes.bool_
    )


@export(v1=("reduce_any", "math.reduce_any"), v2=("reduce_any", "math.reduce_any"))
def reduce_any(
    input_tensor: Any, axis: Any = None, keepdims: bool | None = None, name: str | None = None,
    reduction_indices: Any = None, keep_dims: bool | None = None,
) -> Tensor:  # fmt: skip
    """Whether any element over the dimensions `axis`, or any at all, is true."""
    return _reduce(
        gen_ops.any, input_tensor, axis, keepdims, name, reduction_indices, keep_dims, dtypes.bool_
    )


@export(
    v1=("reduce_logsumexp", "math.reduce_logsumexp"),
    v2=("reduce_logsumexp", "math.reduce_logsumexp"),
)
def reduce_logsumexp(
    input_tensor: Any, axis: Any = None, keepdims: bool | None = None, name: str | None = None,
    reduction_indices: Any = None, keep_dims: bool | None = None,
) -> Tensor:  # fmt: skip
    """log(sum(exp(x))) over the dimensions `axis`, or over all of them, without overflow."""
    axis = either(axis, reduction_indices, "reduction_indices")
    keep = keeps(keepdims, keep_dims)
    with name_scope(name, "ReduceLogSumExp", [input_tensor]) as scope:
        x = convert_to_tensor(input_tensor, name="input_tensor")
        greatest = reduce_max(x, axis, keepdims=True)
        # An infinite maximum would give inf - inf below.
        shift = gen_ops.stop_gradient(
            gen_ops.select(gen_ops.is_finite(greatest), greatest, gen_ops.zeros_like(greatest))
        )
        total = gen_ops.log(reduce_sum(gen_ops.exp(x - shift), axis, keepdims=keep))
        if not keep:
            shift = gen_ops.reshape(shift, gen_ops.shape(total))
        return gen_ops.add(total, shift, name=scope)


@export(v1=("count_nonzero", "math.count_nonzero"))
def count_nonzero(
    input_tensor: Any = None, axis: Any = None, keepdims: bool | None = None,
    dtype: Any = dtypes.int64, name: str | None = None, reduction_indices: Any = None,
    keep_dims: bool | None = None, input: Any = None,
) -> Tensor:  # fmt: skip
    """How many elements over the dimensions `axis`, or at all, are not 0 (not empty, for text)."""
    x = either(input_tensor, input, "input", "input_tensor")
    axis = either(axis, reduction_indices, "reduction_indices")
    keep = keeps(keepdims, keep_dims)
    with name_scope(name, "count_nonzero", [x]):
        x = convert_to_tensor(x, name="input")
        kind = x.dtype.base_dtype
        zero = "" if kind is dtypes.string else np.zeros((), kind.as_numpy_dtype)
        differs = gen_ops.not_equal(x, convert_to_tensor(zero, dtype=kind, name="zeros"))
        return cast(reduce_sum(gen_ops.cast(differs, dtypes.int64), axis, keepdims=keep), dtype)


count_nonzero_v2 = export(v2="math.count_nonzero")(
    reordered(count_nonzero, "input axis keepdims dtype name")
)


@export(v1="math.reduce_variance", v2="math.reduce_variance")
def reduce_variance(
    input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None
) -> Tensor:
    """The mean of the squared distances from the mean. TypeError for integers."""
    with name_scope(name, "reduce_variance", [input_tensor]):
        x = convert_to_tensor(input_tensor)
        if x.dtype.is_integer:
            raise TypeError(
                f"Input must be either real or complex. Received integer type {x.dtype}."
            )
        distance = x - reduce_mean(x, axis, keepdims=True)
        if x.dtype.is_complex:
            real = gen_ops.real(distance * gen_ops.conj(distance), Tout=x.dtype.real_dtype)
            return reduce_mean(real, axis, keepdims)
        return reduce_mean(gen_ops.square(distance), axis, keepdims)


@export(v1="math.reduce_std", v2="math.reduce_std")
def reduce_std(
    input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None
) -> Tensor:
    """The square root of `reduce_variance`."""
    with name_scope(name, "reduce_std", [input_tensor]):
        return gen_ops.sqrt(reduce_variance(input_tensor, axis, keepdims))


@export(v1="math.reduce_euclidean_norm", v2="math.reduce_euclidean_norm")
def reduce_euclidean_norm(
    input_tensor: Any, axis: Any = None, keepdims: bool = False, name: str | None = None
) -> Tensor:
    """The square root of the sum of squares."""
    with name_scope(name, "EuclideanNorm", [input_tensor]) as scope:
        x = convert_to_tensor(input_tensor, name="input_tensor")
        return gen_ops.sqrt(reduce_sum(x * x, axis, keepdims), name=scope)


@export(v1="reduced_shape")
def reduced_shape(input_shape: Any, axes: Any) -> Tensor:
    """The shape of a reduction over `axes` that keeps them with size 1."""
    shape = cast(convert_to_tensor(input_shape), dtypes.int32)
    axes = cast(convert_to_tensor(axes), dtypes.int32)
    rank = gen_ops.size(shape)
    axes = gen_ops.reshape(gen_ops.floor_mod(axes + rank, rank), [-1])
    ones = gen_ops.fill(gen_ops.shape(axes), 1)
    return gen_ops.dynamic_stitch([gen_ops.range(0, rank, 1), axes], [shape, ones])
