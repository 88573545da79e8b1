"""Sums, means and the like over dimensions of ragged tensors, and over groups of their rows."""

from typing import Any, Callable

import numpy as np

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.tensor import Tensor
from millrace.ops import array, gather, reduce
from millrace.ops.along import cumsum, either
from millrace.ops.math import cast
from millrace.ops.ragged.broadcast import rank_of
from millrace.ops.ragged.elementwise import of_pairs
from millrace.ops.ragged.tensor import (
    RaggedTensor,
    after,
    as_ragged_or_tensor,
    is_ragged,
    places_in_rows,
    positive_axis,
    same_splits,
)

# An op that combines the rows of each group: (data, groups, number of groups).
_Combine = Callable[[Tensor, Tensor, Tensor], Tensor]


def _grouped(combine: _Combine, data: Any, ids: Tensor, count: Tensor) -> Any:
    """The rows of each group combined. Where rows are ragged, each element of the result is made of
    those that stand at its place in the rows of its group."""
    if not isinstance(data, RaggedTensor):
        return combine(data, ids, count)
    lengths = data.row_lengths()
    out_lengths = gen_ops.maximum(gen_ops.unsorted_segment_max(lengths, ids, count), 0)
    ends = array.concat([array.zeros([1], lengths.dtype), cumsum(out_lengths)], 0)
    rows = gather.gather(gather.gather(ends, ids), data.value_rowids())
    values = _grouped(combine, data.values, rows + places_in_rows(data), ends[-1])
    return RaggedTensor.from_row_splits(values, ends, validate=False)


def _over_axis(combine: _Combine, data: Any, axis: int, whole: Callable[[Any, int], Any]) -> Any:
    """One dimension of a ragged tensor reduced."""
    if not isinstance(data, RaggedTensor):
        return whole(data, axis)
    if axis == 0:
        columns = gen_ops.max(
            array.concat([array.zeros([1], data.row_splits.dtype), data.row_lengths()], 0), [0]
        )
        return _grouped(combine, data.values, places_in_rows(data), columns)
    if axis == 1:
        return _grouped(combine, data.values, data.value_rowids(), data.nrows())
    return data.with_values(_over_axis(combine, data.values, axis - 1, whole))


def reduced(
    combine: _Combine, whole: Callable[..., Any], data: Any, axis: Any, keepdims: Any
) -> Any:
    """The dimensions `axis` of a ragged tensor reduced, or all of them."""
    data = as_ragged_or_tensor(data)
    axes = _axes(data, axis)
    if axes is None:
        result = whole(data.flat_values, None)
        for _ in range(rank_of(data) if keepdims else 0):
            result = array.expand_dims(result, 0)
        return result
    for one in sorted(axes, reverse=True):
        data = _over_axis(combine, data, one, lambda x, a: whole(x, [a]))
    for one in sorted(axes) if keepdims else ():
        data = with_dimension(data, one)
    return data


def _axes(data: Any, axis: Any) -> list[int] | None:
    """Dimensions, each once and counted from the first; None for all."""
    if axis is None:
        return None
    if isinstance(axis, Tensor):
        if not hasattr(axis, "numpy"):
            raise ValueError("axis must be known at graph construction time.")
        axis = axis.numpy()
    axis = np.asarray(axis)
    if axis.dtype.kind not in "iu" and axis.size:
        raise TypeError(f"axis must be an int; got {axis.dtype}")
    rank = data.shape.ndims
    if axis.ndim and not axis.size:
        return []
    chosen = {positive_axis(int(a), rank) for a in np.atleast_1d(axis)}
    if rank is not None and axis.ndim and len(chosen) == rank:
        return None
    return sorted(chosen)


def with_dimension(value: Any, axis: int) -> Any:
    """A value with a dimension of size 1 more, counted from the first."""
    if not isinstance(value, RaggedTensor):
        return array.expand_dims(value, axis)
    if axis == 0:
        return RaggedTensor.from_uniform_row_length(value, value.nrows(), nrows=1, validate=False)
    if axis == 1:
        return RaggedTensor.from_uniform_row_length(value, 1, nrows=value.nrows(), validate=False)
    return value.with_values(with_dimension(value.values, axis - 1))


def _reduction(combine: _Combine, whole: Callable[..., Any]) -> Callable[..., Any]:
    def form(
        input_tensor: Any, axis: Any = None, keepdims: Any = None, name: Any = None,
        reduction_indices: Any = None, keep_dims: Any = None,
    ) -> Any:  # fmt: skip
        axis = either(axis, reduction_indices, "reduction_indices")
        return reduced(combine, whole, input_tensor, axis, reduce.keeps(keepdims, keep_dims))

    return form


reduce_sum = _reduction(gen_ops.unsorted_segment_sum, reduce.reduce_sum)
reduce_prod = _reduction(gen_ops.unsorted_segment_prod, reduce.reduce_prod)
reduce_min = _reduction(gen_ops.unsorted_segment_min, reduce.reduce_min)
reduce_max = _reduction(gen_ops.unsorted_segment_max, reduce.reduce_max)


def reduce_mean(
    input_tensor: Any, axis: Any = None, keepdims: Any = None, name: Any = None,
    reduction_indices: Any = None, keep_dims: Any = None,
) -> Any:  # fmt: skip
    """The ragged form of reduce_mean: sums divided by how many elements they have."""
    data = _divisible(input_tensor)
    axis = either(axis, reduction_indices, "reduction_indices")
    keep = reduce.keeps(keepdims, keep_dims)
    total = reduce_sum(data, axis, keep)
    ones = data.with_flat_values(array.ones_like(data.flat_values))
    return _each_pair(gen_ops.real_div, total, reduce_sum(ones, axis, keep))


def _divisible(value: Any) -> Any:
    """A ragged tensor; integers as the numbers that they are divided as."""
    data = as_ragged_or_tensor(value)
    flat = data.flat_values
    if not flat.dtype.is_integer:
        return data
    small = flat.dtype in (dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16)
    return data.with_flat_values(cast(flat, dtypes.float32 if small else dtypes.float64))


def _each_pair(function: Callable[..., Any], x: Any, y: Any) -> Any:
    return of_pairs(function, x, y) if is_ragged(x) or is_ragged(y) else function(x, y)


def reduce_variance(
    input_tensor: Any, axis: Any = None, keepdims: bool = False, name: Any = None
) -> Any:
    """The ragged form of reduce_variance: the mean of squares without the square of the mean."""
    data = _divisible(input_tensor)
    squares = reduce_mean(data.with_flat_values(gen_ops.square(data.flat_values)), axis, keepdims)
    means = reduce_mean(data, axis, keepdims)

    def spread(square: Tensor, mean: Tensor) -> Tensor:
        difference = square - gen_ops.square(mean)
        # Rounding may lead below zero.
        return gather.where_v2(
            gen_ops.less(difference, 0), array.zeros_like(difference), difference
        )

    return _each_pair(spread, squares, means)


def reduce_std(
    input_tensor: Any, axis: Any = None, keepdims: bool = False, name: Any = None
) -> Any:
    """The ragged form of reduce_std."""
    variance = reduce_variance(input_tensor, axis, keepdims)
    if isinstance(variance, RaggedTensor):
        return variance.with_flat_values(gen_ops.sqrt(variance.flat_values))
    return gen_ops.sqrt(variance)


def _logical(reduction: Callable[..., Any]) -> Callable[..., Any]:
    def form(input_tensor: Any, axis: Any = None, *args: Any, **kwargs: Any) -> Any:
        data = as_ragged_or_tensor(input_tensor)
        numbers = data.with_flat_values(cast(data.flat_values, dtypes.int32))
        result = reduction(numbers, axis, *args, **kwargs)
        if isinstance(result, RaggedTensor):
            return result.with_flat_values(cast(result.flat_values, dtypes.bool_))
        return cast(result, dtypes.bool_)

    return form


reduce_all = _logical(reduce_prod)
reduce_any = _logical(reduce_sum)


# Groups of rows.


def _by_group(combine: _Combine) -> Callable[..., Any]:
    def form(data: Any, segment_ids: Any, num_segments: Any, name: Any = None) -> Any:
        return _segments(combine, data, segment_ids, num_segments)

    return form


def _segments(combine: _Combine, data: Any, segment_ids: Any, num_segments: Any) -> Any:
    data = as_ragged_or_tensor(data, "data")
    ids = as_ragged_or_tensor(segment_ids, "segment_ids")
    if not isinstance(ids, RaggedTensor):
        kind = data.row_splits.dtype if isinstance(data, RaggedTensor) else ids.dtype
        return _grouped(combine, data, cast(ids, kind), cast(num_segments, kind))
    # Groups of values, whose rows must be those of the data.
    message = "segment_ids.shape must be a prefix of data.shape"
    if not isinstance(data, RaggedTensor):
        raise ValueError(f"{message}, but segment_ids is ragged and data is not.")
    inner = after(ids.values, same_splits(ids.row_splits, data.row_splits, message))
    return _segments(combine, data.values, inner, num_segments)


unsorted_segment_sum = _by_group(gen_ops.unsorted_segment_sum)
unsorted_segment_prod = _by_group(gen_ops.unsorted_segment_prod)
unsorted_segment_min = _by_group(gen_ops.unsorted_segment_min)
unsorted_segment_max = _by_group(gen_ops.unsorted_segment_max)


def _counts(data: Any, segment_ids: Any, num_segments: Any) -> Any:
    ones = data.with_flat_values(array.ones_like(data.flat_values))
    return unsorted_segment_sum(ones, segment_ids, num_segments)


def unsorted_segment_mean(data: Any, segment_ids: Any, num_segments: Any, name: Any = None) -> Any:
    """The ragged form of unsorted_segment_mean."""
    data = _divisible(data)
    total = unsorted_segment_sum(data, segment_ids, num_segments)
    return _each_pair(gen_ops.real_div, total, _counts(data, segment_ids, num_segments))


def unsorted_segment_sqrt_n(
    data: Any, segment_ids: Any, num_segments: Any, name: Any = None
) -> Any:
    """The ragged form of unsorted_segment_sqrt_n."""
    data = _divisible(data)
    total = unsorted_segment_sum(data, segment_ids, num_segments)
    counts = _counts(data, segment_ids, num_segments)
    return _each_pair(lambda x, n: gen_ops.real_div(x, gen_ops.sqrt(n)), total, counts)
