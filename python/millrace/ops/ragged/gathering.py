"""Picking elements of ragged tensors: by index, by condition, by group."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.ops import array, partition, sorting
from millrace.ops import gather as dense
from millrace.ops.along import range as range_of
from millrace.ops.math import cast
from millrace.ops.ragged.broadcast import (
    broadcast_together,
    partitioned,
    rank_of,
    same_rows,
    splits_type_of,
)
from millrace.ops.ragged.tensor import (
    RaggedTensor,
    after,
    as_ragged_or_tensor,
    checked,
    flat_indices,
    is_ragged,
    picked_rows,
    positive_axis,
    same_splits,
)


def pick(value: Any, rows: Tensor) -> Any:
    """Rows of a tensor, ragged or not, by a vector of their numbers."""
    return (
        picked_rows(value, rows) if isinstance(value, RaggedTensor) else dense.gather(value, rows)
    )


def _rank(value: Any, name: str) -> int:
    rank = value.shape.ndims
    if rank is None:
        raise ValueError(f"{name}.shape.ndims must be known statically")
    return rank


def gather_v2(
    params: Any, indices: Any, validate_indices: Any = None, axis: Any = None, batch_dims: int = 0,
    name: Any = None,
) -> Any:  # fmt: skip
    """The ragged form of gather."""
    del validate_indices, name
    params = as_ragged_or_tensor(params, "params")
    indices = as_ragged_or_tensor(indices, "indices")
    rank, count = _rank(params, "params"), _rank(indices, "indices")
    batch_dims = positive_axis(batch_dims, count + 1)
    if axis is None:
        axis = batch_dims
    elif isinstance(axis, Tensor):
        axis = int(axis)
    axis = positive_axis(axis, rank)
    if axis < batch_dims:
        raise ValueError(
            f"axis must be greater than or equal to batch_dims (got axis={axis}, "
            f"batch_dims={batch_dims})"
        )
    kind = splits_type_of([params, indices])
    return _gathered(params, indices, axis, batch_dims, kind)


def gather(
    params: Any, indices: Any, validate_indices: Any = None, name: Any = None, axis: Any = None,
    batch_dims: int = 0,
) -> Any:  # fmt: skip
    """The same for TensorFlow 1's gather."""
    return gather_v2(params, indices, validate_indices, axis, batch_dims, name)


def batch_gather(params: Any, indices: Any, name: Any = None) -> Any:
    """The ragged form of batch_gather: along the last dimension of the indices."""
    indices = as_ragged_or_tensor(indices, "indices")
    last = _rank(indices, "indices") - 1
    return gather_v2(params, indices, axis=last, batch_dims=last)


def _gathered(params: Any, indices: Any, axis: int, batch_dims: int, kind: dtypes.DType) -> Any:
    if not isinstance(params, RaggedTensor) and not isinstance(indices, RaggedTensor):
        return dense.gather(params, indices, axis=axis, batch_dims=batch_dims)
    if axis == 0:
        return _first_axis(params, indices, kind)
    if batch_dims == 0:
        params = partitioned(params, 1, kind)
        if axis > 1:
            return params.with_values(_gathered(params.values, indices, axis - 1, 0, kind))
        # The same indices for each of the rows.
        again = gen_ops.fill(array.reshape(params.nrows(), [1]), cast(0, kind))
        rows = _gathered(params, pick(_with_first(indices), again), 1, 1, kind)
        if isinstance(indices, RaggedTensor) or isinstance(params.values, RaggedTensor):
            return rows
        sizes = array.shape(indices, out_type=kind)
        count = array.reshape(params.nrows(), [1])
        inner = array.shape(params.values, out_type=kind)[1:]
        return array.reshape(rows.flat_values, array.concat([count, sizes, inner], 0))
    if rank_of(indices) == 1:  # one index for each row
        made = _gathered(params, array.expand_dims(indices, 1), axis, batch_dims, kind)
        from millrace.ops.ragged.arrange import squeezed  # late: it is made of these

        return squeezed(made, axis)
    params, indices = partitioned(params, 1, kind), partitioned(indices, 1, kind)
    if batch_dims > 1:
        indices = _in_rows_of(indices, params)
        inner = _gathered(params.values, indices.values, axis - 1, batch_dims - 1, kind)
        return indices.with_values(inner)
    if axis > 1:
        # Each of the values takes the indices of its row.
        inner = pick(indices, params.value_rowids())
        return params.with_values(_gathered(params.values, inner, axis - 1, 1, kind))
    count = gen_ops.equal(params.nrows(), indices.nrows())
    flat = checked(
        cast(indices.flat_values, kind), [(count, "params and indices have different batch sizes")]
    )
    rows = _outer_rows(indices)
    lengths = dense.gather(params.row_lengths(), rows)
    starts = dense.gather(params.row_starts(), rows)
    inner_rank = rank_of(flat)
    for _ in range(inner_rank - 1):
        lengths, starts = array.expand_dims(lengths, -1), array.expand_dims(starts, -1)
    flat = _within(flat, lengths) + starts
    places = indices.with_flat_values(flat)
    return indices.with_values(_first_axis(params.values, places.values, kind))


def _with_first(value: Any) -> Any:
    from millrace.ops.ragged.reduce import with_dimension  # late: it is made of these

    return with_dimension(value, 0)


def _in_rows_of(value: RaggedTensor, other: RaggedTensor) -> RaggedTensor:
    """A ragged tensor, once it is known that the rows of another are as long."""
    message = "params and indices have different batch sizes"
    splits = same_splits(value.row_splits, other.row_splits, message)
    return RaggedTensor(value.values, splits, True, value.uniform_row_length)


def _outer_rows(value: RaggedTensor) -> Tensor:
    """The row, of the outermost dimension, of each of the flat values."""
    rows = value.value_rowids()
    inner = value.values
    while isinstance(inner, RaggedTensor):
        rows = dense.gather(rows, inner.value_rowids())
        inner = inner.values
    return rows


def _within(index: Tensor, sizes: Tensor) -> Tensor:
    """Indices, once it is known that they are not out of range."""
    fits = gen_ops.logical_and(gen_ops.greater_equal(index, 0), gen_ops.less(index, sizes))
    rank = rank_of(index)
    return checked(index, [(gen_ops.all(fits, list(range(rank))), "indices are out of range")])


def _first_axis(params: Any, indices: Any, kind: dtypes.DType) -> Any:
    if isinstance(indices, RaggedTensor):
        return indices.with_values(_first_axis(params, indices.values, kind))
    if not isinstance(params, RaggedTensor):
        return dense.gather(params, indices)
    rank = rank_of(indices)
    if rank == 0:
        return params[indices]
    if rank == 1:
        return picked_rows(params, indices)
    rows = partitioned(indices, rank - 1, kind)
    return rows.with_flat_values(picked_rows(params, rows.flat_values))


def gather_nd_v2(params: Any, indices: Any, batch_dims: int = 0, name: Any = None) -> Any:
    """The ragged form of gather_nd."""
    del name
    if not isinstance(batch_dims, int) or batch_dims != 0:
        raise ValueError("batch_dims != 0 is not supported for ragged gather yet.")
    params = as_ragged_or_tensor(params, "params")
    indices = as_ragged_or_tensor(indices, "indices")
    rank = indices.shape.ndims
    if rank is None:
        raise ValueError("indices.rank be statically known.")
    if rank == 0:
        raise ValueError("indices.rank must be at least 1.")
    if isinstance(indices, RaggedTensor) and indices.ragged_rank == rank - 1:
        raise ValueError("The innermost dimension of indices may not be ragged")
    size = indices.shape.as_list()[-1]
    if size is None:
        raise ValueError("indices.shape[-1] must be statically known.")
    if isinstance(indices, RaggedTensor):
        return indices.with_flat_values(gather_nd_v2(params, indices.flat_values))
    if not isinstance(params, RaggedTensor):
        return dense.gather_nd(params, indices)
    kind = params.row_splits.dtype
    if rank > 2:
        rows = partitioned(indices, rank - 2, kind)
        return rows.with_flat_values(gather_nd_v2(params, rows.flat_values))
    if rank == 1:
        return gather_nd_v2(params, array.expand_dims(indices, 0))[0]
    if size == 0:
        count = array.shape(indices, out_type=kind)[0]
        return pick(_with_first(params), gen_ops.fill(array.reshape(count, [1]), cast(0, kind)))
    indices = cast(indices, kind)
    places, column = indices[:, 0], 1
    while column < size and isinstance(params, RaggedTensor):
        inner = _within(indices[:, column], dense.gather(params.row_lengths(), places))
        places = dense.gather(params.row_starts(), places) + inner
        params, column = params.values, column + 1
    if column < size:
        rest = array.concat([array.expand_dims(places, 1), indices[:, column:]], 1)
        return dense.gather_nd(params, rest)
    return pick(params, places)


def gather_nd(params: Any, indices: Any, name: Any = None, batch_dims: int = 0) -> Any:
    """The same for TensorFlow 1's gather_nd."""
    return gather_nd_v2(params, indices, batch_dims, name)


# By condition.


def _condition(value: Any) -> Any:
    condition = as_ragged_or_tensor(value, "condition")
    if condition.dtype is not dtypes.bool_:
        raise TypeError(f"condition must be of type bool, got {condition.dtype.name}")
    return condition


def where_v2(condition: Any, x: Any = None, y: Any = None, name: Any = None) -> Any:
    """The ragged form of where: condition, x and y broadcast together."""
    del name
    if (x is None) != (y is None):
        raise ValueError("x and y must be either both None or both non-None")
    condition = _condition(condition)
    if x is None:
        return places_where(condition)
    x, y = _alike(x, y)
    values = [condition, x, y]
    ragged = [v for v in values if isinstance(v, RaggedTensor)]
    splits_type_of(ragged)
    first = ragged[0]
    inner = first.flat_values.shape.ndims
    if all(
        v.shape.ndims == 0
        or (
            isinstance(v, RaggedTensor)
            and same_rows(v, first)
            and v.flat_values.shape.ndims == inner
        )
        for v in values
    ):
        flats = [v.flat_values if isinstance(v, RaggedTensor) else v for v in values]
        return first.with_flat_values(dense.where_v2(*flats))
    flats, wrap = broadcast_together(values)
    return wrap(dense.where_v2(*flats))


def _alike(x: Any, y: Any) -> tuple[Any, Any]:
    """Two values as tensors of one type."""
    if not is_ragged(x) and not isinstance(x, Tensor) and (is_ragged(y) or isinstance(y, Tensor)):
        y = as_ragged_or_tensor(y, "y")
        return convert_to_tensor(x, dtype_hint=y.dtype, name="x"), y
    x = as_ragged_or_tensor(x, "x")
    if not is_ragged(y) and not isinstance(y, Tensor):
        return x, convert_to_tensor(y, dtype_hint=x.dtype, name="y")
    return x, as_ragged_or_tensor(y, "y")


def where(condition: Any, x: Any = None, y: Any = None, name: Any = None) -> Any:
    """The ragged form of TensorFlow 1's where: elements chosen one by one, or whole rows."""
    del name
    if (x is None) != (y is None):
        raise ValueError("x and y must be either both None or both non-None")
    condition = _condition(condition)
    if x is None:
        return places_where(condition)
    x, y = _alike(x, y)
    if isinstance(condition, RaggedTensor):
        if not (
            isinstance(x, RaggedTensor) and isinstance(y, RaggedTensor)
            and x.ragged_rank == y.ragged_rank == condition.ragged_rank
        ):  # fmt: skip
            raise ValueError("Input shapes do not match.")
        return where_v2(condition, x, y)
    if rank_of(condition) != 1:
        raise ValueError("Input shapes do not match.")
    from millrace.ops.ragged.arrange import concat  # late: it is made of these

    kind = splits_type_of([x, y])
    numbers = range_of(array.shape(condition, out_type=kind)[0])
    count = x.nrows() if isinstance(x, RaggedTensor) else array.shape(x, out_type=kind)[0]
    rows = dense.where_v2(condition, numbers, numbers + count)
    return pick(concat([x, y], 0), rows)


def places_where(condition: Any) -> Tensor:
    """The indices of the true elements, int64: a row for each."""
    if not isinstance(condition, RaggedTensor):
        return dense.where(condition)
    condition = condition.with_row_splits_dtype(dtypes.int64)
    flat = condition.flat_values
    true = dense.where(flat)
    outer = dense.gather(flat_indices(condition), true[:, 0])
    return array.concat([outer, true[:, 1:]], 1)


@export(v1="ragged.boolean_mask", v2="ragged.boolean_mask")
def boolean_mask(data: Any, mask: Any, name: str | None = None) -> Any:
    """The elements of `data` for which `mask` holds. The sizes of the mask are the first ones of
    the data; the result has its dimensions, the last of which becomes ragged."""
    data = as_ragged_or_tensor(data, "data")
    if not is_ragged(mask):
        mask = convert_to_tensor(mask, dtype=dtypes.bool_, name="mask")
    mask = as_ragged_or_tensor(mask, "mask")
    if mask.dtype is not dtypes.bool_:
        raise TypeError(f"mask must be of type bool, got {mask.dtype.name}")
    rank = mask.shape.ndims
    if rank is None:
        raise ValueError("mask.shape.ndims must be known statically.")
    if rank == 0:
        raise ValueError("mask cannot be scalar.")
    kind = splits_type_of([data, mask])
    if rank == 1:
        data.shape[:1].assert_is_compatible_with(mask.shape)
        if not isinstance(data, RaggedTensor):
            return partition.boolean_mask(data, mask)
        return picked_rows(data, dense.where(mask)[:, 0])
    if not isinstance(data, RaggedTensor) and not isinstance(mask, RaggedTensor):
        data.shape[:rank].assert_is_compatible_with(mask.shape)
    data = partitioned(data, rank - 1, kind)
    mask = partitioned(mask, rank - 1, kind)
    return _masked(data, mask)


def _masked(data: RaggedTensor, mask: RaggedTensor) -> RaggedTensor:
    message = "mask and data have different row splits"
    splits = same_splits(mask.row_splits, data.row_splits, message)
    mask = RaggedTensor(mask.values, splits, True, mask.uniform_row_length)
    if isinstance(mask.values, RaggedTensor):
        return mask.with_values(_masked(data.values, mask.values))
    kept = dense.where(mask.values)[:, 0]
    lengths = gen_ops.unsorted_segment_sum(
        cast(mask.values, splits.dtype), mask.value_rowids(), mask.nrows()
    )
    return RaggedTensor.from_row_lengths(pick(data.values, kept), lengths, validate=False)


# By group.


@export(v1="ragged.stack_dynamic_partitions", v2="ragged.stack_dynamic_partitions")
def stack_dynamic_partitions(
    data: Any, partitions: Any, num_partitions: Any, name: str | None = None
) -> RaggedTensor:
    """The slices of `data` in so many groups: row i has those for which `partitions` is i, in their
    order. The sizes of the partitions are the first ones of the data."""
    data = as_ragged_or_tensor(data, "data")
    groups = as_ragged_or_tensor(partitions, "partitions")
    rank = groups.shape.ndims
    if rank is None:
        raise ValueError("partitions must have known rank")
    count = convert_to_tensor(num_partitions, name="num_partitions")
    count.shape.assert_has_rank(0)
    count = cast(count, groups.dtype)
    if rank == 0:
        return stack_dynamic_partitions(_with_first(data), array.expand_dims(groups, 0), count)
    groups.shape.assert_is_compatible_with(data.shape[:rank])
    if isinstance(groups, RaggedTensor):
        data = partitioned(data, 1, splits_type_of([data, groups]))
        message = "data and partitions have incompatible ragged shapes"
        splits = same_splits(groups.row_splits, data.row_splits, message)
        return stack_dynamic_partitions(data.values, after(groups.values, splits), count)
    if rank > 1:
        if isinstance(data, RaggedTensor):
            flat = data.merge_dims(0, rank - 1)
        else:
            sizes = array.shape(data)
            flat = array.reshape(data, array.concat([[-1], sizes[rank:]], 0))
        return stack_dynamic_partitions(flat, array.reshape(groups, [-1]), count)
    groups = checked(
        groups,
        [
            (gen_ops.all(gen_ops.greater_equal(groups, 0), [0]), "partitions must be non-negative"),
            (
                gen_ops.all(gen_ops.less(groups, count), [0]),
                "partitions must be less than num_partitions",
            ),
        ],
    )
    order = sorting.argsort(groups, stable=True)
    return RaggedTensor.from_value_rowids(
        pick(data, order), dense.gather(groups, order), nrows=count, validate=False
    )


def dynamic_partition(data: Any, partitions: Any, num_partitions: int, name: Any = None) -> Any:
    """The ragged form of dynamic_partition."""
    if not isinstance(num_partitions, int) or num_partitions < 0:
        raise TypeError("num_partitions must be a non-negative integer")
    made = stack_dynamic_partitions(data, partitions, num_partitions, name)
    return [made[i] for i in range(num_partitions)]
