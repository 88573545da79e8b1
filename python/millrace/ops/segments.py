"""Reductions over groups of rows, and counts of values."""

from typing import Any

import numpy as np

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.arguments import reordered
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import get_default_graph, name_scope
from millrace.ops.math import cast

segment_sum = export(v1=("segment_sum", "math.segment_sum"), v2="math.segment_sum")(
    gen_ops.segment_sum
)
segment_mean = export(v1=("segment_mean", "math.segment_mean"), v2="math.segment_mean")(
    gen_ops.segment_mean
)
segment_prod = export(v1=("segment_prod", "math.segment_prod"), v2="math.segment_prod")(
    gen_ops.segment_prod
)
segment_max = export(v1=("segment_max", "math.segment_max"), v2="math.segment_max")(
    gen_ops.segment_max
)
segment_min = export(v1=("segment_min", "math.segment_min"), v2="math.segment_min")(
    gen_ops.segment_min
)
unsorted_segment_sum = export(
    v1=("unsorted_segment_sum", "math.unsorted_segment_sum"), v2="math.unsorted_segment_sum"
)(gen_ops.unsorted_segment_sum)
unsorted_segment_prod = export(
    v1=("unsorted_segment_prod", "math.unsorted_segment_prod"), v2="math.unsorted_segment_prod"
)(gen_ops.unsorted_segment_prod)
unsorted_segment_max = export(
    v1=("unsorted_segment_max", "math.unsorted_segment_max"), v2="math.unsorted_segment_max"
)(gen_ops.unsorted_segment_max)
unsorted_segment_min = export(
    v1=("unsorted_segment_min", "math.unsorted_segment_min"), v2="math.unsorted_segment_min"
)(gen_ops.unsorted_segment_min)
sparse_segment_mean_grad = export(v1="sparse_segment_mean_grad")(gen_ops.sparse_segment_mean_grad)
sparse_segment_sqrt_n_grad = export(v1="sparse_segment_sqrt_n_grad")(
    gen_ops.sparse_segment_sqrt_n_grad
)


def _rows_per_segment(data: Tensor, segment_ids: Tensor, num_segments: Any) -> Tensor:
    """How many rows each segment has, at least 1, in a shape that divides their sums."""
    ones = gen_ops.fill(
        gen_ops.shape(segment_ids), convert_to_tensor(1, dtype=data.dtype.base_dtype)
    )
    counts = gen_ops.unsorted_segment_sum(ones, segment_ids, num_segments)
    counts = gen_ops.maximum(counts, convert_to_tensor(1, dtype=data.dtype.base_dtype))
    trailing = gen_ops.rank(data) - gen_ops.rank(segment_ids)
    shape = gen_ops.concat_v2(
        [gen_ops.shape(counts), gen_ops.fill(gen_ops.expand_dims(trailing, 0), 1)], 0
    )
    return gen_ops.reshape(counts, shape)


@export(v1=("unsorted_segment_mean", "math.unsorted_segment_mean"), v2="math.unsorted_segment_mean")
def unsorted_segment_mean(
    data: Any, segment_ids: Any, num_segments: Any, name: str | None = None
) -> Tensor:
    """The mean of the rows of each segment; 0 for a segment without rows."""
    with name_scope(name, "UnsortedSegmentMean", [data, segment_ids]):
        data = convert_to_tensor(data)
        segment_ids = convert_to_tensor(segment_ids)
        sums = gen_ops.unsorted_segment_sum(data, segment_ids, num_segments)
        return sums / _rows_per_segment(data, segment_ids, num_segments)


@export(
    v1=("unsorted_segment_sqrt_n", "math.unsorted_segment_sqrt_n"),
    v2="math.unsorted_segment_sqrt_n",
)
def unsorted_segment_sqrt_n(
    data: Any, segment_ids: Any, num_segments: Any, name: str | None = None
) -> Tensor:
    """The sum of the rows of each segment, divided by the square root of their number."""
    with name_scope(name, "UnsortedSegmentSqrtN", [data, segment_ids]):
        data = convert_to_tensor(data)
        segment_ids = convert_to_tensor(segment_ids)
        sums = gen_ops.unsorted_segment_sum(data, segment_ids, num_segments)
        return sums / gen_ops.sqrt(_rows_per_segment(data, segment_ids, num_segments))


@export(v1=("sparse_segment_sum", "sparse.segment_sum"))
def sparse_segment_sum(
    data: Any, indices: Any, segment_ids: Any, name: str | None = None, num_segments: Any = None
) -> Tensor:
    """The sums of segments of the rows `data[indices]`; `num_segments`: how many there are."""
    if num_segments is None:
        return gen_ops.sparse_segment_sum(data, indices, segment_ids, name=name)
    return gen_ops.sparse_segment_sum_with_num_segments(
        data, indices, segment_ids, num_segments, name=name
    )


sparse_segment_sum_v2 = export(v2="sparse.segment_sum")(
    reordered(sparse_segment_sum, "data indices segment_ids num_segments name")
)


@export(v1=("sparse_segment_mean", "sparse.segment_mean"))
def sparse_segment_mean(
    data: Any, indices: Any, segment_ids: Any, name: str | None = None, num_segments: Any = None
) -> Tensor:
    """The means of segments of the rows `data[indices]`; `num_segments`: how many there are."""
    if num_segments is None:
        return gen_ops.sparse_segment_mean(data, indices, segment_ids, name=name)
    return gen_ops.sparse_segment_mean_with_num_segments(
        data, indices, segment_ids, num_segments, name=name
    )


sparse_segment_mean_v2 = export(v2="sparse.segment_mean")(
    reordered(sparse_segment_mean, "data indices segment_ids num_segments name")
)


@export(v1=("sparse_segment_sqrt_n", "sparse.segment_sqrt_n"))
def sparse_segment_sqrt_n(
    data: Any, indices: Any, segment_ids: Any, name: str | None = None, num_segments: Any = None
) -> Tensor:
    """As `sparse_segment_sum`, divided by the square root of the number of rows of each segment."""
    if num_segments is None:
        return gen_ops.sparse_segment_sqrt_n(data, indices, segment_ids, name=name)
    return gen_ops.sparse_segment_sqrt_n_with_num_segments(
        data, indices, segment_ids, num_segments, name=name
    )


sparse_segment_sqrt_n_v2 = export(v2="sparse.segment_sqrt_n")(
    reordered(sparse_segment_sqrt_n, "data indices segment_ids num_segments name")
)


# Counts.


@export(v1=("bincount", "math.bincount"))
def bincount(
    arr: Any, weights: Any = None, minlength: Any = None, maxlength: Any = None,
    dtype: Any = dtypes.int32,
) -> Tensor:  # fmt: skip
    """How often 0, 1, 2, ... occur in an array of non-negative integers.

    Args:
      weights: of the shape of `arr`: what each occurrence counts for.
      minlength, maxlength: bounds of the length of the result, which is max(arr) + 1 otherwise;
        values at or above `maxlength` are not counted.
      dtype: of the counts where there are no weights.
    """
    with name_scope(None, "bincount", [arr, weights, minlength, maxlength]):
        arr = cast(convert_to_tensor(arr, name="arr"), dtypes.int32)
        flat = gen_ops.reshape(arr, [-1])
        least = gen_ops.all(gen_ops.greater_equal(flat, 0), [0])
        check = gen_ops.assert_(least, ["Input arr must be non-negative!"], name="Assert")
        with get_default_graph().control_dependencies([check]):
            flat = gen_ops.identity(flat)
        # max() of nothing is the least int32: 0 values then.
        length = gen_ops.maximum(gen_ops.max(flat, [0]), -1) + 1
        if minlength is not None:
            length = gen_ops.maximum(cast(convert_to_tensor(minlength), dtypes.int32), length)
        if maxlength is not None:
            length = gen_ops.minimum(cast(convert_to_tensor(maxlength), dtypes.int32), length)
        if weights is None:
            kind = dtypes.as_dtype(dtype)
            one = gen_ops.cast(convert_to_tensor(1), kind) if kind != dtypes.int32 else 1
            counted = gen_ops.fill(gen_ops.shape(flat), one)
        else:
            counted = gen_ops.reshape(convert_to_tensor(weights, name="weights"), [-1])
        # Segments of negative numbers are left out.
        beyond = gen_ops.fill(gen_ops.shape(flat), -1)
        ids = gen_ops.select(gen_ops.less(flat, length), flat, beyond)
        return gen_ops.unsorted_segment_sum(counted, ids, length)


@export(v1="histogram_fixed_width", v2="histogram_fixed_width")
def histogram_fixed_width(
    values: Any, value_range: Any, nbins: Any = 100, dtype: Any = dtypes.int32,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """How many values fall into each of `nbins` equal parts of a range.

    Values outside of [value_range[0], value_range[1]) count for the first or the last part.
    """
    with name_scope(name, "histogram_fixed_width", [values, value_range, nbins]):
        bins = histogram_fixed_width_bins(values, value_range, nbins)
        bins = gen_ops.reshape(bins, [-1])
        kind = dtypes.as_dtype(dtype)
        one = convert_to_tensor(np.ones((), kind.as_numpy_dtype), dtype=kind)
        ones = gen_ops.fill(gen_ops.shape(bins), one)
        return gen_ops.unsorted_segment_sum(ones, bins, nbins)


@export(v1="histogram_fixed_width_bins", v2="histogram_fixed_width_bins")
def histogram_fixed_width_bins(
    values: Any, value_range: Any, nbins: Any = 100, dtype: Any = dtypes.int32,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """Which of `nbins` equal parts of a range each value falls into."""
    with name_scope(name, "histogram_fixed_width_bins", [values, value_range, nbins]):
        values = convert_to_tensor(values, name="values")
        kind = values.dtype.base_dtype
        value_range = convert_to_tensor(value_range, dtype=kind, name="value_range")
        nbins = cast(convert_to_tensor(nbins, name="nbins"), dtypes.int32)
        within = dtypes.float64 if kind in (dtypes.int32, dtypes.int64, dtypes.float64) else kind
        low, high = cast(value_range[0], within), cast(value_range[1], within)
        share = (cast(values, within) - low) / (high - low)
        place = gen_ops.floor(share * cast(nbins, within))
        # As floats, so that values far outside stay outside.
        last = cast(nbins - 1, within)
        inside = gen_ops.minimum(gen_ops.maximum(place, gen_ops.zeros_like(place)), last)
        return cast(inside, dtype)
