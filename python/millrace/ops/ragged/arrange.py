"""Ragged tensors joined, repeated, cut and laid out anew."""

from itertools import pairwise
from typing import Any

import numpy as np

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.ops import array
from millrace.ops import gather as dense
from millrace.ops.along import range as range_of
from millrace.ops.math import cast
from millrace.ops.ragged.broadcast import partitioned, rank_of, splits_type_of
from millrace.ops.ragged.gathering import pick
from millrace.ops.ragged.reduce import with_dimension
from millrace.ops.ragged.tensor import (
    RaggedTensor,
    after,
    as_ragged_or_tensor,
    checked,
    frame_of,
    places_in_rows,
    positive_axis,
    same_splits,
)

# Joining.


def _inputs(values: Any) -> list[Any]:
    if not isinstance(values, (list, tuple)):
        values = [values]
    if not values:
        raise ValueError("values must be a non-empty list")
    known = next((v.dtype for v in values if hasattr(v, "dtype")), None)
    return [
        as_ragged_or_tensor(v, "values") if hasattr(v, "dtype") or hasattr(v, "row_splits")
        else convert_to_tensor(v, dtype_hint=known, name="values")
        for v in values
    ]  # fmt: skip


def concat(values: Any, axis: Any, name: Any = None) -> Any:
    """The ragged form of concat."""
    del name
    parts = _inputs(values)
    if isinstance(axis, Tensor):
        axis = int(axis)
    rank = next((p.shape.ndims for p in parts if p.shape.ndims is not None), None)
    for part in parts:
        if rank is not None and part.shape.ndims is not None and part.shape.ndims != rank:
            raise ValueError(
                f"Shapes {parts[0].shape} and {part.shape} are incompatible: the parts to join "
                "must have as many dimensions"
            )
    axis = positive_axis(axis, rank)
    if len(parts) == 1:
        return parts[0]
    return _joined(parts, axis, splits_type_of(parts))


def _joined(parts: list[Any], axis: int, kind: dtypes.DType) -> Any:
    if not any(isinstance(p, RaggedTensor) for p in parts):
        return array.concat(parts, axis)
    if len({p.dtype for p in parts}) > 1:
        raise ValueError(
            "the parts to join must be of one type, got " + ", ".join(p.dtype.name for p in parts)
        )
    depth = max(p.ragged_rank for p in parts if isinstance(p, RaggedTensor))
    parts = [partitioned(p, depth, kind) for p in parts]
    if axis == 0:
        values = _joined([p.values for p in parts], 0, kind)
        splits, before = [parts[0].row_splits], parts[0].row_splits[-1]
        for part in parts[1:]:
            splits.append(part.row_splits[1:] + before)
            before = before + part.row_splits[-1]
        return RaggedTensor.from_row_splits(values, array.concat(splits, 0), validate=False)
    rows = _equal_counts(parts)
    if axis == 1:
        # Row i of the first, row i of the second, and so on: as many rows after each other.
        whole = _joined(parts, 0, kind)
        count = len(parts)
        order = array.expand_dims(range_of(rows), 1) + range_of(cast(count, kind)) * rows
        values = pick(whole, array.reshape(order, [-1])).values
        lengths = parts[0].row_lengths()
        for part in parts[1:]:
            lengths = lengths + part.row_lengths()
        return RaggedTensor.from_row_lengths(values, lengths, validate=False)
    first = parts[0]
    splits = first.row_splits
    for part in parts[1:]:
        splits = same_splits(splits, part.row_splits, "Inputs must have identical ragged splits")
    values = _joined([p.values for p in parts], axis - 1, kind)
    return RaggedTensor(values, splits, True, first.uniform_row_length)


def _equal_counts(parts: list[Any]) -> Tensor:
    rows = parts[0].nrows()
    message = "Input tensors have incompatible shapes: different numbers of rows"
    return checked(rows, [(gen_ops.equal(rows, p.nrows()), message) for p in parts[1:]])


@export(v1="ragged.stack", v2="ragged.stack")
def stack(values: Any, axis: int = 0, name: str | None = None) -> Any:
    """Joins tensors of one rank along a new dimension, which stands at `axis`. Their sizes may
    differ: the result is ragged."""
    del name
    parts = _inputs(values)
    rank = parts[0].shape.ndims
    axis = positive_axis(axis, None if rank is None else rank + 1)
    for part in parts[1:]:
        part.shape.with_rank(rank)
    if rank is None:
        raise ValueError("the rank of what is stacked must be known")
    if rank == 0:
        return array.stack(parts)
    kind = splits_type_of(parts)
    # Rows of all but vectors are ragged, so that their lengths may differ.
    grown = [with_dimension(partitioned(p, min(rank - 1, 1), kind), axis) for p in parts]
    grown = [partitioned(g, 1, kind) for g in grown]
    return grown[0] if len(grown) == 1 else _joined(grown, axis, kind)


# Dimensions of size 1.


def expand_dims(input: Any, axis: Any = None, name: Any = None, dim: Any = None) -> Any:
    """The ragged form of expand_dims."""
    del name
    axis = array.one_of("axis", axis, "dim", dim)
    if axis is None:
        raise ValueError("expand_dims: must specify an axis argument")
    value = as_ragged_or_tensor(input)
    rank = value.shape.ndims
    axis = positive_axis(
        int(axis) if isinstance(axis, Tensor) else axis, None if rank is None else rank + 1
    )
    return with_dimension(value, axis)


def squeeze(input: Any, axis: Any = None, name: Any = None, squeeze_dims: Any = None) -> Any:
    """The ragged form of squeeze. The axes must be said."""
    del name
    axis = array.one_of("axis", axis, "squeeze_dims", squeeze_dims)
    value = as_ragged_or_tensor(input)
    if axis is None:
        raise ValueError("Ragged.squeeze must have an axis argument.")
    if isinstance(axis, Tensor):
        raise TypeError("axis must be a list of ints, got a tensor")
    axes = [axis] if isinstance(axis, (int, np.integer)) else list(axis)
    rank = value.shape.ndims
    for one in sorted({positive_axis(int(a), rank) for a in axes}, reverse=True):
        value = squeezed(value, one)
    return value


def squeezed(value: Any, axis: int) -> Any:
    """A value without one of its dimensions, which must be of size 1."""
    if not isinstance(value, RaggedTensor):
        size = array.shape(value)[axis]
        message = f"Can not squeeze dim[{axis}], expected a dimension of 1"
        return array.squeeze(checked(value, [(gen_ops.equal(size, 1), message)]), [axis])
    if axis == 0:
        fits, splits = gen_ops.equal(value.nrows(), 1), value.row_splits
    elif axis == 1:
        fits, splits = gen_ops.all(gen_ops.equal(value.row_lengths(), 1), [0]), value.row_splits
    else:
        return value.with_values(squeezed(value.values, axis - 1))
    message = f"the given axis (axis = {axis}) is not squeezable!"
    return after(value.values, checked(splits, [(fits, message)]))


# Order and repetition.


def reverse(tensor: Any, axis: Any, name: Any = None) -> Any:
    """The ragged form of reverse."""
    del name
    value = as_ragged_or_tensor(tensor)
    if isinstance(axis, Tensor):
        axis = axis.numpy() if hasattr(axis, "numpy") else None
    if axis is None:
        raise ValueError(
            "reverse of ragged tensors: the axis must be known at graph construction time"
        )
    axes = [axis] if isinstance(axis, (int, np.integer)) else list(axis)
    rank = value.shape.ndims
    for one in axes:
        at = positive_axis(int(one), rank)
        value = value[(*[slice(None)] * at, slice(None, None, -1))]
    return value


def tile(input: Any, multiples: Any, name: Any = None) -> Any:
    """The ragged form of tile."""
    del name
    value = as_ragged_or_tensor(input)
    times = convert_to_tensor(multiples, dtype_hint=value.row_splits.dtype, name="multiples")
    times.shape.assert_has_rank(1)
    rank, count = value.shape.ndims, times.shape.as_list()[0]
    if rank is not None and count is not None and rank != count:
        raise ValueError(
            f"multiples must have a number for each of the {rank} dimensions, got {count}"
        )
    return _tiled(value, cast(times, value.row_splits.dtype), rank_of(value))


def _tiled(value: Any, times: Tensor, rank: int) -> Any:
    if not isinstance(value, RaggedTensor):
        return gen_ops.tile(value, times)
    kind = value.row_splits.dtype
    # What lies within the rows, then each row, then the rows.
    inner = array.concat([array.ones([1], kind), times[2:]], 0)
    value = value.with_values(_tiled(value.values, inner, rank - 1))
    lengths = value.row_lengths()
    frame = frame_of(lengths * times[1])
    rows = frame.value_rowids()
    within = gen_ops.floor_mod(
        places_in_rows(frame), gen_ops.maximum(dense.gather(lengths, rows), 1)
    )
    places = dense.gather(value.row_starts(), rows) + within
    repeated = frame.with_values(pick(value.values, places))
    return pick(repeated, gen_ops.tile(range_of(value.nrows()), array.reshape(times[0], [1])))


def split(
    value: Any, num_or_size_splits: Any, axis: Any = 0, num: Any = None, name: Any = None
) -> Any:
    """The ragged form of split. The dimension must not be ragged."""
    del name
    value = as_ragged_or_tensor(value)
    rank = value.shape.ndims
    if rank is None:
        raise ValueError("`value` must have known rank")
    if isinstance(axis, Tensor):
        axis = int(axis)
    axis = positive_axis(axis, rank)
    if 0 < axis <= value.ragged_rank and not _uniform(value, axis):
        raise ValueError(
            f"Cannot split a ragged dimension. Got `value` with shape {value.shape} and `axis` "
            f"{axis}."
        )
    kind = value.row_splits.dtype
    size = value.bounding_shape(axis) if axis else value.nrows()
    given = convert_to_tensor(num_or_size_splits)
    if given.shape.ndims == 0:
        if not isinstance(num_or_size_splits, (int, np.integer)):
            raise ValueError("the number of parts must be an int")
        count = int(num_or_size_splits)
        even = gen_ops.equal(gen_ops.floor_mod(size, cast(count, kind)), 0)
        length = checked(
            gen_ops.floor_div(size, cast(count, kind)),
            [(even, f"Cannot exactly split axis {axis} into {count} parts")],
        )
        ends: list[Any] = [length * i for i in range(count + 1)]
    else:
        given.shape.assert_has_rank(1)
        count = num if num is not None else given.shape.as_list()[0]
        if count is None:
            raise ValueError("`num` must be given where the number of parts is not known")
        sizes = cast(given, kind)
        rest = size - (gen_ops.sum(sizes, 0) + 1)
        sizes = dense.where_v2(gen_ops.equal(sizes, -1), rest, sizes)
        fits = gen_ops.equal(gen_ops.sum(sizes, 0), size)
        sizes = checked(
            sizes,
            [
                (fits, f"the sizes of the parts must make up that of axis {axis}"),
                (
                    gen_ops.all(gen_ops.greater_equal(sizes, 0), [0]),
                    "sizes of parts must not be negative",
                ),
            ],
        )
        ends = [cast(0, kind)]
        for i in range(count):
            ends.append(ends[-1] + sizes[i])
    before = [slice(None)] * axis
    return [value[(*before, slice(a, b))] for a, b in pairwise(ends)]


def _uniform(value: Any, axis: int) -> bool:
    for _ in range(axis - 1):
        value = value.values
    return value.uniform_row_length is not None
