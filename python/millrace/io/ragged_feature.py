"""Features whose values make rows of different lengths."""

from __future__ import annotations

from typing import Any, NamedTuple

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.sparse import SparseTensor
from millrace.ops import array, gather
from millrace.ops.math import cast
from millrace.ops.ragged.tensor import RaggedTensor, checked


class _Lengths(NamedTuple):
    """Rows by a feature of integers."""

    key: str


class _RowSplits(_Lengths):
    """Where each row begins and the last one ends."""


class _RowLengths(_Lengths):
    """How long each row is."""


class _RowStarts(_Lengths):
    """Where each row begins."""


class _RowLimits(_Lengths):
    """Where each row ends."""


class _ValueRowIds(_Lengths):
    """The row of each value."""


class _UniformRowLength(NamedTuple):
    """Rows of one length."""

    length: int


class _Feature(NamedTuple):
    dtype: Any
    value_key: str | None = None
    partitions: tuple[Any, ...] = ()
    row_splits_dtype: Any = dtypes.int32
    validate: bool = False


@export(v1="io.RaggedFeature", v2="io.RaggedFeature")
class RaggedFeature(_Feature):
    """Values in each example, in rows of different lengths: parsed into a RaggedTensor.

    Args:
      value_key: the feature with the values; the one that this stands for by default.
      partitions: how the values of an example make rows, these rows of rows and so on, the
        outermost first: `RaggedFeature.RowSplits(key)`, `RowLengths`, `RowStarts`, `RowLimits`,
        `ValueRowIds` name a feature of integers, `UniformRowLength(length)` is a number.

    Rows are checked against the values whatever `validate` says.
    """

    RowSplits = _RowSplits
    RowLengths = _RowLengths
    RowStarts = _RowStarts
    RowLimits = _RowLimits
    ValueRowIds = _ValueRowIds
    UniformRowLength = _UniformRowLength

    def keys(self, key: str) -> tuple[str, list[str]]:
        """The features with the values and with the partitions, where it stands for `key`."""
        own = self.value_key or key
        return own, [p.key for p in self.partitions if isinstance(p, _Lengths)]

    def of(self, key: str, tensors: dict[str, Any], single: bool) -> Any:
        """The ragged tensor of what was found in examples; of `single` one, without a batch."""
        own, _ = self.keys(key)
        kind = dtypes.as_dtype(self.row_splits_dtype)
        values = _Found(tensors[own])
        # Of each example: what has been made of its values so far, and how many there are.
        made, counts = values.values, values.counts
        for part in reversed(self.partitions):
            if isinstance(part, _UniformRowLength):
                length = cast(part.length, dtypes.int64)
                fits = gen_ops.all(gen_ops.equal(gen_ops.floor_mod(counts, length), 0), [0])
                counts = checked(counts, [(fits, f"{key}: values do not fill rows")])
                made = RaggedTensor.from_uniform_row_length(made, length)
                counts = gen_ops.floor_div(counts, length)
                continue
            found = _Found(tensors[part.key])
            lengths = found.lengths(part, counts)
            total = gen_ops.unsorted_segment_sum(
                lengths.values, lengths.value_rowids(), lengths.nrows()
            )
            fits = gen_ops.all(gen_ops.equal(total, counts), [0])
            flat = checked(lengths.values, [(fits, f"{key}: rows and values differ in number")])
            made, counts = RaggedTensor.from_row_lengths(made, flat), lengths.row_lengths()
        if not single:
            made = RaggedTensor.from_row_lengths(made, counts)
        return made.with_row_splits_dtype(kind) if isinstance(made, RaggedTensor) else made


class _Found:
    """The values of a feature in each example, one after the other."""

    def __init__(self, found: SparseTensor):
        self.values = found.values
        if found.indices.shape.as_list()[1] == 1:  # of one example alone
            self.counts = array.shape(found.values, out_type=dtypes.int64)
        else:
            ids, rows = found.indices[:, 0], found.dense_shape[0]
            self.counts = gen_ops.unsorted_segment_sum(gen_ops.ones_like(ids), ids, rows)

    def _rows(self) -> RaggedTensor:
        return RaggedTensor.from_row_lengths(self.values, self.counts, validate=False)

    def lengths(self, part: Any, counts: Tensor) -> RaggedTensor:
        """How long the rows of each example are, of as many values as `counts` says."""
        rows = self._rows()
        if isinstance(part, _RowLengths):
            return rows
        if isinstance(part, _ValueRowIds):
            none = cast(-1, dtypes.int64)
            last = gen_ops.unsorted_segment_max(rows.values, rows.value_rowids(), rows.nrows())
            sizes = gen_ops.maximum(last, none) + 1
            starts = gen_ops.cumsum(sizes, 0, exclusive=True)
            inside = gen_ops.all(gen_ops.greater_equal(rows.values, 0), [0])
            ids = checked(rows.values, [(inside, "value_rowids must not be negative")])
            ids = ids + gather.gather(starts, rows.value_rowids())
            rising = gen_ops.all(gen_ops.less_equal(ids[:-1], ids[1:]), [0])
            ids = checked(ids, [(rising, "value_rowids must not fall")])
            total = gen_ops.sum(sizes, 0)
            each = gen_ops.unsorted_segment_sum(gen_ops.ones_like(ids), ids, total)
            return RaggedTensor.from_row_lengths(each, sizes, validate=False)
        if isinstance(part, _RowSplits):
            first, last = rows[:, :-1], rows[:, 1:]
            begins = gen_ops.gather(rows.values, rows.row_starts())
            zero = gen_ops.all(gen_ops.equal(begins, 0), [0])
            ends = checked(last.values, [(zero, "row_splits must begin at 0")])
            return last.with_values(ends - first.values)
        # Starts without the end of the last row, or limits without the begin of the first one.
        ids = rows.value_rowids()
        if isinstance(part, _RowStarts):
            end = array.expand_dims(counts, 1)
            whole = _joined(rows, RaggedTensor.from_tensor(end))
            begins = gen_ops.unsorted_segment_min(rows.values, ids, rows.nrows())
            some = gen_ops.greater(rows.row_lengths(), 0)
            zero = gen_ops.all(gen_ops.logical_or(gen_ops.equal(begins, 0), ~some), [0])
            flat = checked(whole.values, [(zero, "row_starts must begin at 0")])
        else:
            zeros = array.expand_dims(gen_ops.zeros_like(counts), 1)
            whole = _joined(RaggedTensor.from_tensor(zeros), rows)
            flat = whole.values
        whole = whole.with_values(flat)
        first, last = whole[:, :-1], whole[:, 1:]
        return last.with_values(last.values - first.values)


def _joined(a: RaggedTensor, b: RaggedTensor) -> RaggedTensor:
    from millrace.ops.ragged.arrange import concat  # late: few features need it

    return concat([a, b], 1)
