"""Ranges, products, running sums and the like of ragged tensors."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.ops import array, linalg
from millrace.ops import gather as dense
from millrace.ops.along import cumsum as dense_cumsum
from millrace.ops.math import add_n as dense_add_n
from millrace.ops.math import cast
from millrace.ops.ragged import reduce
from millrace.ops.ragged.elementwise import map_flat_values, of_pairs
from millrace.ops.ragged.tensor import (
    RaggedTensor,
    as_ragged_or_tensor,
    checked,
    flat_indices,
    frame_of,
    is_ragged,
    places_in_rows,
    positive_axis,
)


@export(v1="ragged.range", v2="ragged.range")
def range(
    starts: Any, limits: Any = None, deltas: Any = 1, dtype: Any = None, name: str | None = None,
    row_splits_dtype: Any = dtypes.int64,
) -> RaggedTensor:  # fmt: skip
    """Rows of numbers: from starts[i], in steps of deltas[i], to what is before limits[i].

    Scalars serve for all rows. With one argument, it is the limits.
    """
    if limits is None:
        starts, limits = 0, starts
    kind = dtypes.as_dtype(row_splits_dtype)
    with name_scope(name, "RaggedRange", [starts, limits, deltas]):
        starts = convert_to_tensor(starts, dtype=dtype, name="starts")
        limits = convert_to_tensor(limits, dtype=dtype, name="limits")
        deltas = convert_to_tensor(deltas, dtype=dtype, name="deltas")
        if dtype is None:
            starts, limits, deltas = _of_one_type([starts, limits, deltas])
        count = None
        for part, what in ((starts, "starts"), (limits, "limits"), (deltas, "deltas")):
            part.shape.with_rank_at_most(1)
            size = part.shape.as_list()[0] if part.shape.ndims == 1 else None
            if size is not None and count not in (None, size):
                raise ValueError(
                    f"starts, limits, and deltas must have the same shape: {what} has {size} "
                    f"elements, not {count}"
                )
            count = size if size is not None else count
        # A vector each, as long as the longest.
        like = gen_ops.zeros_like(starts) + gen_ops.zeros_like(limits) + gen_ops.zeros_like(deltas)
        like = array.reshape(like, [-1])
        starts, limits, deltas = starts + like, limits + like, deltas + like
        moves = gen_ops.all(gen_ops.not_equal(deltas, cast(0, deltas.dtype)), [0])
        deltas = checked(deltas, [(moves, "Requires delta != 0")])
        lengths = _lengths(starts, limits, deltas, kind)
        frame = frame_of(lengths)
        rows = frame.value_rowids()
        steps = cast(places_in_rows(frame), starts.dtype)
        values = dense.gather(starts, rows) + steps * dense.gather(deltas, rows)
        return frame.with_values(values)


def _of_one_type(parts: list[Tensor]) -> list[Tensor]:
    order = [dtypes.int32, dtypes.int64, dtypes.float32, dtypes.float64]
    for part in parts:
        if part.dtype not in order:
            raise TypeError(f"ranges are of numbers, got {part.dtype.name}")
    kind = max((p.dtype for p in parts), key=order.index)
    return [cast(p, kind) for p in parts]


def _lengths(starts: Tensor, limits: Tensor, deltas: Tensor, kind: dtypes.DType) -> Tensor:
    """How many steps lead from the starts to the limits."""
    if starts.dtype.is_floating:
        count = gen_ops.ceil((limits - starts) / deltas)
        return cast(gen_ops.maximum(count, cast(0, count.dtype)), kind)
    # In int64, where differences of int32 fit.
    starts, limits, deltas = (cast(x, dtypes.int64) for x in (starts, limits, deltas))
    count = -gen_ops.floor_div(starts - limits, deltas)
    return cast(gen_ops.maximum(count, cast(0, dtypes.int64)), kind)


def one_hot(
    indices: Any, depth: Any, on_value: Any = None, off_value: Any = None, axis: Any = None,
    dtype: Any = None, name: Any = None,
) -> Any:  # fmt: skip
    """The ragged form of one_hot: the new dimension is an inner one."""
    value = as_ragged_or_tensor(indices, "indices")
    if isinstance(axis, int) and axis >= 0:
        if axis <= value.ragged_rank:
            raise ValueError(
                f"axis ({axis}) must be greater than indices.ragged_rank ({value.ragged_rank})."
            )
        axis -= value.ragged_rank
    return value.with_flat_values(
        dense.one_hot(value.flat_values, depth, on_value, off_value, axis, dtype, name)
    )


def add_n(inputs: Any, name: Any = None) -> Any:
    """The ragged form of add_n: all have the same rows."""
    if not inputs:
        raise ValueError("Argument `inputs` cannot be empty.")
    if not all(is_ragged(x) for x in inputs):
        raise ValueError("Ragged add_n cannot combine ragged and dense inputs.")
    return map_flat_values(dense_add_n, list(inputs), name=name)


def softmax(logits: Any, axis: Any = None, name: Any = None, dim: Any = None) -> Any:
    """The ragged form of softmax: over the last dimension, or the one that is said."""
    del name
    value = as_ragged_or_tensor(logits, "logits")
    axis = -1 if axis is None and dim is None else array.one_of("axis", axis, "dim", dim)
    greatest = reduce.reduce_max(value, axis, keepdims=True)
    powers = of_pairs(lambda x, top: gen_ops.exp(x - top), value, greatest)
    return of_pairs(gen_ops.real_div, powers, reduce.reduce_sum(powers, axis, keepdims=True))


def cumsum(
    x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False, name: Any = None
) -> Any:
    """The ragged form of cumsum."""
    del name
    value = as_ragged_or_tensor(x)
    if isinstance(axis, Tensor):
        axis = int(axis)
    axis = positive_axis(axis, value.shape.ndims)
    return _summed(value, axis, exclusive, reverse)


def _summed(value: Any, axis: int, exclusive: bool, backwards: bool) -> Any:
    if not isinstance(value, RaggedTensor):
        return dense_cumsum(value, axis, exclusive, backwards)
    if axis > 1:
        return value.with_values(_summed(value.values, axis - 1, exclusive, backwards))
    # Shorter rows are filled up with zeros, which change no sum, and cut again.
    summed = dense_cumsum(value.to_tensor(), axis, exclusive, backwards)
    places = flat_indices(value.with_row_splits_dtype(dtypes.int64))
    return value.with_flat_values(gen_ops.gather_nd(summed, places))


def matmul(
    a: Any, b: Any, transpose_a: bool = False, transpose_b: bool = False, adjoint_a: bool = False,
    adjoint_b: bool = False, a_is_sparse: bool = False, b_is_sparse: bool = False,
    output_type: Any = None, name: Any = None,
) -> Any:  # fmt: skip
    """The ragged form of matmul: a product for each pair of matrices, whose sizes may differ."""
    del a_is_sparse, b_is_sparse, name
    if (transpose_a and adjoint_a) or (transpose_b and adjoint_b):
        raise ValueError("Only one of transpose and adjoint can be True for a factor.")
    a, b = as_ragged_or_tensor(a, "a"), as_ragged_or_tensor(b, "b")
    if a.dtype is not b.dtype:
        raise TypeError(f"matmul of different types: {a.dtype.name} and {b.dtype.name}")
    rank = a.shape.ndims
    if rank is None or rank != b.shape.ndims:
        raise ValueError("matmul of ragged tensors: both must have as many dimensions")
    if rank not in (2, 3):
        raise ValueError("matmul of ragged tensors: matrices, or a batch of them")

    def product(x: Tensor, y: Tensor) -> Tensor:
        made = linalg.matmul(
            x, y, transpose_a=transpose_a, transpose_b=transpose_b, adjoint_a=adjoint_a,
            adjoint_b=adjoint_b,
        )  # fmt: skip
        return made if output_type is None else cast(made, output_type)

    if rank == 2:
        return product(_as_matrix(a), _as_matrix(b))
    left = _Matrices(a, transpose_a or adjoint_a)
    right = _Matrices(b, transpose_b or adjoint_b)
    message = "matmul: the matrices do not fit together"
    count = gen_ops.equal(array.size(left.columns), array.size(right.rows))
    columns = checked(left.columns, [(count, message)])
    same = gen_ops.all(gen_ops.equal(columns, right.rows), [0])
    # Zeros fill up the matrices, and add nothing.
    made = product(checked(left.padded, [(same, message)]), right.padded)
    kind = next(x.row_splits.dtype for x in (a, b) if isinstance(x, RaggedTensor))
    return _cut(made, left, right).with_row_splits_dtype(kind)


_UNEVEN = "matmul: the rows of a matrix differ in length"


def _as_matrix(value: Any) -> Tensor:
    if not isinstance(value, RaggedTensor):
        return value
    matrix, lengths = value.to_tensor(), value.row_lengths()
    even = gen_ops.all(gen_ops.equal(lengths, array.shape(matrix, out_type=lengths.dtype)[1]), [0])
    return checked(matrix, [(even, _UNEVEN)])


class _Matrices:
    """A batch of matrices: how many rows and columns each has, and all filled up to one size."""

    def __init__(self, value: Any, transposed: bool):
        ragged = isinstance(value, RaggedTensor)
        self.padded = value.to_tensor() if ragged else value
        sizes = array.shape(self.padded, out_type=dtypes.int64)
        count = array.reshape(sizes[0], [1])
        self.rows, self.columns = gen_ops.fill(count, sizes[1]), gen_ops.fill(count, sizes[2])
        self.differ_in_rows = self.differ_in_columns = False
        if ragged:
            value = value.with_row_splits_dtype(dtypes.int64)
            self.rows = value.row_lengths()
            self.differ_in_rows = value.uniform_row_length is None
            if value.ragged_rank > 1:
                self.columns = _columns(value)
                self.differ_in_columns = value.values.uniform_row_length is None
        if transposed:
            self.rows, self.columns = self.columns, self.rows
            self.differ_in_rows, self.differ_in_columns = (
                self.differ_in_columns, self.differ_in_rows,
            )  # fmt: skip


def _columns(value: RaggedTensor) -> Tensor:
    """The length of the rows of each matrix, which must be one."""
    lengths, ids = value.values.row_lengths(), value.value_rowids()
    longest = gen_ops.maximum(gen_ops.unsorted_segment_max(lengths, ids, value.nrows()), 0)
    even = gen_ops.all(gen_ops.equal(lengths, dense.gather(longest, ids)), [0])
    return checked(longest, [(even, _UNEVEN)])


def _cut(product: Tensor, left: _Matrices, right: _Matrices) -> RaggedTensor:
    """The products without what filled them up."""
    if not left.differ_in_rows and not right.differ_in_columns:
        return RaggedTensor.from_tensor(product)
    rows = RaggedTensor.from_tensor(product, lengths=left.rows)
    if not right.differ_in_columns:
        return rows
    lengths = dense.gather(right.columns, rows.value_rowids())
    return rows.with_values(RaggedTensor.from_tensor(rows.values, lengths=lengths))


# Rows as splits and as the numbers of rows.


@export(v1="ragged.row_splits_to_segment_ids", v2="ragged.row_splits_to_segment_ids")
def row_splits_to_segment_ids(splits: Any, name: str | None = None, out_type: Any = None) -> Tensor:
    """The row of each value: row_splits_to_segment_ids([0, 3, 3, 5]) is [0, 0, 0, 2, 2]."""
    with name_scope(name, "RaggedSplitsToSegmentIds", [splits]):
        splits = _integers(splits, "splits")
        if splits.shape.as_list() == [0]:
            raise ValueError("Invalid row_splits: []")
        kind = splits.dtype if out_type is None else dtypes.as_dtype(out_type)
        if kind not in (dtypes.int32, dtypes.int64):
            raise ValueError("out_type must be int32 or int64.")
        rising = gen_ops.all(gen_ops.less_equal(splits[:-1], splits[1:]), [0])
        begins = gen_ops.equal(splits[0], 0)
        splits = checked(
            splits, [(begins, "row_splits must begin at 0"), (rising, "row_splits must not fall")]
        )
        return cast(frame_of(splits[1:] - splits[:-1]).value_rowids(), kind)


@export(v1="ragged.segment_ids_to_row_splits", v2="ragged.segment_ids_to_row_splits")
def segment_ids_to_row_splits(
    segment_ids: Any, num_segments: Any = None, out_type: Any = None, name: str | None = None
) -> Tensor:
    """Where each row begins and the last one ends: segment_ids_to_row_splits([0, 0, 0, 2, 2]) is
    [0, 3, 3, 5]. The numbers of rows must not fall."""
    with name_scope(name, "SegmentIdsToRaggedSplits", [segment_ids]):
        ids = _integers(segment_ids, "segment_ids")
        kind = ids.dtype if out_type is None else dtypes.as_dtype(out_type)
        if kind not in (dtypes.int32, dtypes.int64):
            raise ValueError("out_type must be int32 or int64.")
        if num_segments is not None:
            num_segments = cast(convert_to_tensor(num_segments), ids.dtype)
            num_segments.shape.assert_has_rank(0)
        values = gen_ops.zeros_like(ids)
        rows = RaggedTensor.from_value_rowids(values, ids, nrows=num_segments)
        return cast(rows.row_splits, kind)


def _integers(value: Any, name: str) -> Tensor:
    tensor = convert_to_tensor(value, name=name, preferred_dtype=dtypes.int64)
    if tensor.dtype not in (dtypes.int32, dtypes.int64):
        raise ValueError(f"{name} must have type int32 or int64, got {tensor.dtype.name}")
    tensor.shape.assert_has_rank(1)
    return tensor


# How large they are.


def rank(input: Any, name: Any = None) -> Tensor:
    """The ragged form of rank."""
    del name
    value = as_ragged_or_tensor(input)
    known = value.shape.ndims
    if known is not None:
        return convert_to_tensor(known, dtype=dtypes.int32)
    return gen_ops.rank(value.flat_values) + value.ragged_rank


def size_v2(input: Any, out_type: Any = dtypes.int32, name: Any = None) -> Tensor:
    """The ragged form of size: how many elements there are."""
    return array.size(as_ragged_or_tensor(input).flat_values, name, out_type)


def size(input: Any, name: Any = None, out_type: Any = dtypes.int32) -> Tensor:
    """The same for TensorFlow 1's size."""
    return size_v2(input, out_type, name)
