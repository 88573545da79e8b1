"""Rows, elements and slices of ragged tensors."""

from typing import Any

from millrace import gen_ops
from millrace.ops import array, gather
from millrace.ops.along import range as range_of
from millrace.ops.math import cast
from millrace.ops.ragged.tensor import RaggedTensor, frame_of, picked_rows


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
        splits = array.stack([cast(0, value.row_splits.dtype), cast(count, value.row_splits.dtype)])
        return RaggedTensor.from_row_splits(inner, splits, validate=False)
    if isinstance(first, slice):
        rows = value
        if first != slice(None):
            numbers = range_of(value.nrows())[first]
            rows = picked_rows(value, numbers)
        return _below(rows, rest)
    index = first
    if isinstance(index, (bool, float)):
        raise TypeError(f"a RaggedTensor is indexed by integers and slices, not {index!r}")
    splits = value.row_splits
    if isinstance(index, int) and index < 0:
        start, end = splits[index - 1], splits[index]
    else:
        start, end = splits[index], splits[index + 1]
    return _item(value.values[start:end], rest)


def _below(rows: RaggedTensor, keys: list[Any]) -> Any:
    """keys applied to each row."""
    if not keys:
        return rows
    first, rest = keys[0], keys[1:]
    if first is None:
        ends = range_of(rows.nrows() + 1)
        return _below(
            RaggedTensor.from_row_splits(rows, ends, validate=False), [slice(None), *rest]
        )
    if not isinstance(first, slice):
        if rows.uniform_row_length is None:
            raise ValueError("Cannot index into an inner ragged dimension.")
        places = rows.row_starts() + cast(first, rows.row_splits.dtype)
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
    return frame.with_values(picked)
