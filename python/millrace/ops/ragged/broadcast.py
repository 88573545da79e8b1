"""Ragged tensors brought to one shape, as NumPy broadcasts arrays."""

from typing import Any, Callable

import numpy as np

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.ops import array, gather
from millrace.ops.along import range as range_of
from millrace.ops.math import cast
from millrace.ops.ragged.tensor import RaggedTensor, checked, frame_of, places_in_rows


def rank_of(value: Any) -> int:
    """The number of dimensions. ValueError where it is not known."""
    rank = value.shape.ndims
    if rank is None:
        raise ValueError(
            "Unable to broadcast: unknown rank. The number of dimensions of operands of ragged "
            "tensors must be statically known."
        )
    return rank


def splits_type_of(values: Any) -> dtypes.DType:
    """The type of the row splits that ragged tensors have. ValueError where they differ."""
    kinds = {v.row_splits.dtype for v in values if isinstance(v, RaggedTensor)}
    if len(kinds) > 1:
        raise ValueError(
            "Input RaggedTensors have mismatched row_splits dtypes; use "
            "RaggedTensor.with_row_splits_dtype() to convert them to compatible dtypes."
        )
    return kinds.pop() if kinds else dtypes.int64


def same_rows(a: RaggedTensor, b: RaggedTensor) -> bool:
    """Whether two ragged tensors are known to have the same rows."""
    mine, given = a.nested_row_splits, b.nested_row_splits
    if len(mine) != len(given):
        return False
    for x, y in zip(mine, given, strict=True):
        if x is y:
            continue
        if not (hasattr(x, "numpy") and hasattr(y, "numpy")):
            return False
        if not np.array_equal(x.numpy(), y.numpy()):
            return False
    return True


def partitioned(value: Any, ragged_rank: int, splits_type: dtypes.DType) -> Any:
    """A value whose first dimensions, so many, are partitions: rows of one length, where they
    were not ragged."""
    if isinstance(value, RaggedTensor):
        missing = ragged_rank - value.ragged_rank
        if missing <= 0:
            return value
        return value.with_flat_values(partitioned(value.flat_values, missing, splits_type))
    if ragged_rank <= 0:
        return value
    return RaggedTensor.from_tensor(value, ragged_rank=ragged_rank, row_splits_dtype=splits_type)


def _with_first_dims(value: Any, count: int) -> Any:
    for _ in range(count):
        if isinstance(value, RaggedTensor):
            value = RaggedTensor.from_uniform_row_length(
                value, value.nrows(), nrows=1, validate=False
            )
        else:
            value = array.expand_dims(value, 0)
    return value


def broadcast_together(values: list[Any]) -> tuple[list[Tensor], Callable[[Tensor], Any]]:
    """(flat values, wrap): the values broadcast to one shape but for their inner dimensions, which
    dense tensors broadcast by themselves, and what makes the result of flat values ragged."""
    kind = splits_type_of(values)
    rank = max(rank_of(v) for v in values)
    depth = max(v.ragged_rank + rank - rank_of(v) for v in values if isinstance(v, RaggedTensor))
    parts = [partitioned(_with_first_dims(v, rank - rank_of(v)), depth, kind) for v in values]
    counts = [p.nrows() for p in parts]
    total = counts[0]
    for count in counts[1:]:
        total = gather.where_v2(gen_ops.equal(total, 1), count, total)
    fits = [_either(gen_ops.equal(c, 1), gen_ops.equal(c, total)) for c in counts]
    total = checked(total, [(f, _mismatch(0)) for f in fits])
    numbers = range_of(total)
    picks = [numbers * cast(gen_ops.not_equal(c, 1), kind) for c in counts]
    frames = []
    for level in range(depth):
        lengths = [
            gather.gather(p.row_lengths(), pick) for p, pick in zip(parts, picks, strict=True)
        ]
        single = [_single(p) for p in parts]
        out, one = lengths[0], single[0]
        for length, alone in zip(lengths[1:], single[1:], strict=True):
            out = gather.where_v2(one, length, out)
            one = gen_ops.logical_and(one, alone)
        fits = [
            _either(alone, gen_ops.all(gen_ops.equal(length, out), [0]))
            for length, alone in zip(lengths, single, strict=True)
        ]
        out = checked(out, [(f, _mismatch(level + 1)) for f in fits])
        frame = frame_of(out)
        rows, within = frame.value_rowids(), places_in_rows(frame)
        picks = [
            gather.gather(gather.gather(p.row_starts(), pick), rows)
            + within * cast(gen_ops.logical_not(alone), kind)
            for p, pick, alone in zip(parts, picks, single, strict=True)
        ]
        uniform = [p.uniform_row_length for p in parts]
        length = None
        if all(u is not None for u in uniform):
            length = uniform[0]
            for u in uniform[1:]:
                length = gather.where_v2(gen_ops.equal(length, 1), u, length)
        frames.append((frame.row_splits, length))
        parts = [p.values for p in parts]
    flats = [gather.gather(p, pick) for p, pick in zip(parts, picks, strict=True)]

    def wrap(flat: Tensor) -> Any:
        for splits, length in reversed(frames):
            flat = RaggedTensor(flat, splits, internal=True, uniform_row_length=length)
        return flat

    return flats, wrap


def _single(part: RaggedTensor) -> Tensor:
    """Whether all rows are broadcast: the dimension is uniform, of size 1."""
    if part.uniform_row_length is not None:
        return gen_ops.equal(part.uniform_row_length, 1)
    return convert_to_tensor(False)


def _either(a: Tensor, b: Tensor) -> Tensor:
    return gen_ops.logical_or(a, b)


def _mismatch(dimension: int) -> str:
    return f"Unable to broadcast: dimension size mismatch in dimension {dimension}"
