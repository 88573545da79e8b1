"""Rows, elements and slices of ragged tensors."""

from typing import Any

from millrace import gen_ops
from millrace.graph.static_value import constant_value
from millrace.ops import array, gather
from millrace.ops.along import range as range_of
from millrace.ops.math import cast
from millrace.ops.ragged.tensor import RaggedTensor, checked, frame_of, picked_rows


def getitem(ragged: RaggedTensor, key: Any) -> Any:
    """`ragged[key]`: numbers, slices and "..." as of lists; a number not within a ragged dimension
    but as its last index is an error, as rows differ."""
    keys = list(key) if isinstance(key, tuple) else [key]
    if any(k is Ellipsis for k in keys):
        at = next(i for i, k in enumerate(keys) if k is Ellipsis)
        rank = ragged.shape.ndims
        if rank is None:
            raise ValueError("Ellipsis not supported for unknown shape RaggedTensors")
        named = sum(k is not None and k is not Ellipsis for k in keys)
        keys[at : at + 1] = [slice(None)] * (rank - named)
    return _item(ragged, keys)


def _item(value: Any, keys: list[Any]) -> Any:
    if not keys:
        return value
    if not isinstance(value, RaggedTensor):
        return value[tuple(keys)]
    first, rest = keys[0], keys[1:]
    if first is None:
        inner = _item(value, rest)
        count = inner.nrows() if isinstance(inner, RaggedTensor) else array.shape(inner)[0]
        length = cast(count, value.row_splits.dtype)
        return RaggedTensor.from_uniform_row_length(inner, length, nrows=1, validate=False)
    if isinstance(first, slice):
        rows = value
        if first != slice(None):
            numbers = range_of(value.nrows())[first]
            rows = picked_rows(value, numbers)
        return _below(rows, rest)
    index = first
    if isinstance(index, (bool, float)):
        raise TypeError(f"a RaggedTensor is indexed by integers and slices, not {index!r}")
    start, end = value.row_starts()[index], value.row_limits()[index]
    return _item(value.values[start:end], rest)


def _below(rows: RaggedTensor, keys: list[Any]) -> Any:
    """keys applied to each row."""
    if not keys:
        return rows
    first, rest = keys[0], keys[1:]
    if first is None:
        count = rows.nrows()
        alone = RaggedTensor.from_uniform_row_length(rows, cast(1, count.dtype), nrows=count)
        return _below(alone, [slice(None), *rest])
    if not isinstance(first, slice):
        if rows.uniform_row_length is None:
            raise ValueError("Cannot index into an inner ragged dimension.")
        place, length = cast(first, rows.row_splits.dtype), rows.uniform_row_length
        place = gather.where_v2(gen_ops.less(place, 0), place + length, place)
        inside = gen_ops.logical_and(gen_ops.greater_equal(place, 0), gen_ops.less(place, length))
        message = f"index {first} is out of range for rows of length {length}"
        places = rows.row_starts() + checked(place, [(inside, message)])
        picked = (
            picked_rows(rows.values, places)
            if isinstance(rows.values, RaggedTensor)
            else gather.gather(rows.values, places)
        )
        return _item(picked, [slice(None), *rest]) if rest else picked
    if first != slice(None):
        rows = _slice_rows(rows, first)
    if not rest:
        return rows
    inner = _item(rows.values, [slice(None), *rest])
    return rows.with_values(inner)


def _slice_rows(rows: RaggedTensor, part: slice) -> RaggedTensor:
    """Each row cut by one slice."""
    step = 1 if part.step is None else int(part.step)
    if step == 0:
        raise ValueError("slice step cannot be zero")
    kind = rows.row_splits.dtype
    lengths = rows.row_lengths()

    def bound(value: Any, default: Any) -> Any:
        if value is None:
            return default
        value = cast(value, kind)
        value = gather.where_v2(
            gen_ops.less(value, 0), value + lengths, value + array.zeros_like(lengths)
        )
        low, high = (0, lengths) if step > 0 else (-1, lengths - 1)
        return gen_ops.maximum(gen_ops.minimum(value, high), cast(low, kind))

    zero = array.zeros_like(lengths)
    if step > 0:
        begin, end = bound(part.start, zero), bound(part.stop, lengths)
        counts = gen_ops.floor_div(end - begin + (step - 1), cast(step, kind))
    else:
        begin, end = bound(part.start, lengths - 1), bound(part.stop, zero - 1)
        counts = gen_ops.floor_div(begin - end + (-step - 1), cast(-step, kind))
    counts = gen_ops.maximum(counts, zero)
    frame = frame_of(counts)
    ids = frame.value_rowids()
    within = range_of(cast(array.shape(ids)[0], kind)) - gather.gather(frame.row_starts(), ids)
    places = gather.gather(rows.row_starts() + begin, ids) + within * step
    values = rows.values
    picked = (
        picked_rows(values, places)
        if isinstance(values, RaggedTensor)
        else gather.gather(values, places)
    )
    return RaggedTensor(picked, frame.row_splits, True, _length_of(rows, part))


def _length_of(rows: RaggedTensor, part: slice) -> Any:
    """How long all rows are once they are cut, where it is known."""
    length = rows.uniform_row_length
    known = None if length is None else constant_value(length)
    bounds = (part.start, part.stop, part.step)
    if known is None or not all(b is None or isinstance(b, int) for b in bounds):
        return None
    return cast(len(range(*part.indices(int(known)))), length.dtype)
