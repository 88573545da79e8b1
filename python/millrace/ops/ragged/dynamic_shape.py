"""Shapes with rows of different lengths."""

from typing import Any

import numpy as np

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.static_value import constant_value
from millrace.ops import array
from millrace.ops.math import cast
from millrace.ops.ragged.broadcast import broadcast_together
from millrace.ops.ragged.row_partition import RowPartition
from millrace.ops.ragged.tensor import RaggedTensor, as_ragged_or_tensor, is_ragged


@export(v2="experimental.DynamicRaggedShape")
class DynamicRaggedShape:
    """The shape of a ragged tensor, or of a tensor: row partitions of the first dimensions, and the
    sizes of what is inside, the number of flat values first. What `tf.shape` gives for a
    RaggedTensor; `tf.reshape`, `tf.broadcast_to`, `tf.fill` and the like take it.

    Args:
      row_partitions: the outermost first.
      inner_shape: a vector.
    """

    __slots__ = ("_inner_shape", "_row_partitions")
    _has_ragged_form = True

    def __init__(
        self, row_partitions: Any, inner_shape: Any, dtype: Any = None, validate: bool = False
    ):
        del validate  # partitions are checked when they are made
        partitions = list(row_partitions)
        if not all(isinstance(p, RowPartition) for p in partitions):
            raise TypeError("row_partitions must be a list of RowPartitions")
        if dtype is None:
            kinds = {p.dtype for p in partitions}
            if isinstance(inner_shape, Tensor):
                kinds.add(inner_shape.dtype)
            dtype = dtypes.int32 if kinds == {dtypes.int32} else dtypes.int64
        dtype = dtypes.as_dtype(dtype)
        if dtype not in (dtypes.int32, dtypes.int64):
            raise ValueError(f"dtype must be int32 or int64, got {dtype.name}")
        self._row_partitions = tuple(p.with_dtype(dtype) for p in partitions)
        self._inner_shape = cast(convert_to_tensor(inner_shape, dtype_hint=dtype), dtype)
        self._inner_shape.shape.assert_has_rank(1)
        if partitions and self._inner_shape.shape.as_list()[0] == 0:
            raise ValueError("inner_shape must have the number of flat values")

    @classmethod
    def from_lengths(
        cls, lengths: Any, num_row_partitions: int | None = None, dtype: Any = dtypes.int64
    ) -> "DynamicRaggedShape":
        """From sizes: a number for a uniform dimension, the length of each row for a ragged one.

        Args:
          num_row_partitions: at least as many dimensions as are ragged or before one that is.
        """
        sizes = list(lengths)
        ragged = [i for i, size in enumerate(sizes) if not isinstance(size, (int, np.integer))]
        least = max(ragged, default=0)
        count = least if num_row_partitions is None else num_row_partitions
        if ragged and ragged[0] == 0:
            raise ValueError("The first dimension of a shape must not be ragged.")
        if count < least or (sizes and count >= len(sizes)) or count < 0:
            raise ValueError(
                f"num_row_partitions={count} should be from {least} on and less than the rank, "
                f"{len(sizes)}"
            )
        partitions = []
        rows = sizes[0] if sizes else 0
        for size in sizes[1 : count + 1]:
            if isinstance(size, (int, np.integer)):
                made = RowPartition.from_uniform_row_length(size, nrows=rows, dtype=dtype)
                rows = rows * size
            else:
                if len(size) != rows:
                    raise ValueError(f"{len(size)} lengths are given for {rows} rows: {lengths}")
                made = RowPartition.from_row_lengths(list(size), dtype=dtype)
                rows = sum(size)
            partitions.append(made)
        inner = [rows, *sizes[count + 1 :]] if sizes else np.zeros([0], np.int64)
        return cls(partitions, convert_to_tensor(np.array(inner, np.int64)), dtype)

    @classmethod
    def from_row_partitions(cls, row_partitions: Any, dtype: Any = None) -> "DynamicRaggedShape":
        """The shape with these partitions alone: all dimensions but the first are rows."""
        partitions = list(row_partitions)
        if not partitions:
            raise ValueError("row_partitions cannot be empty")
        return cls(partitions, array.reshape(partitions[-1].nvals(), [1]), dtype)

    @classmethod
    def from_tensor(cls, t: Any, dtype: Any = None) -> "DynamicRaggedShape":
        """The shape of a ragged tensor, or of a tensor."""
        value = as_ragged_or_tensor(t)
        partitions, part = [], value
        while isinstance(part, RaggedTensor):
            partitions.append(RowPartition.of(part))
            part = part.values
        kind = dtype
        if kind is None:
            kind = value.row_splits.dtype if isinstance(value, RaggedTensor) else dtypes.int64
        return cls(partitions, array.shape(part, out_type=kind), kind)

    # What it says.

    @property
    def dtype(self) -> dtypes.DType:
        """The type of the sizes."""
        return self._inner_shape.dtype

    @property
    def row_partitions(self) -> tuple[RowPartition, ...]:
        """The rows of the first dimensions, the outermost first."""
        return self._row_partitions

    @property
    def num_row_partitions(self) -> int:
        """How many they are."""
        return len(self._row_partitions)

    @property
    def inner_shape(self) -> Tensor:
        """The sizes of what is inside, the number of flat values first."""
        return self._inner_shape

    @property
    def inner_rank(self) -> int | None:
        """How many they are."""
        return self._inner_shape.shape.as_list()[0]

    @property
    def rank(self) -> int | None:
        """The number of dimensions."""
        inner = self.inner_rank
        return None if inner is None else inner + self.num_row_partitions

    def is_uniform(self, axis: int) -> bool:
        """Whether a dimension is of one size."""
        if axis < 0 or (self.rank is not None and axis >= self.rank):
            raise ValueError(f"Expected 0 <= axis < rank, got {axis} for rank {self.rank}")
        inside = axis == 0 or axis > self.num_row_partitions
        return inside or self._row_partitions[axis - 1].is_uniform()

    def with_dtype(self, dtype: Any) -> "DynamicRaggedShape":
        """With sizes of another type: int32 or int64."""
        return DynamicRaggedShape(self._row_partitions, self._inner_shape, dtype)

    def static_lengths(self, ragged_lengths: bool = True) -> list[Any]:
        """What is known of the sizes: the lengths of all rows (None without `ragged_lengths`) for
        ragged dimensions, None for what is not known."""
        known = constant_value(self._inner_shape)
        sizes: list[Any] = [None] * (self.inner_rank or 0) if known is None else known.tolist()
        if not self._row_partitions:
            return sizes
        out: list[Any] = [self._row_partitions[0].static_nrows]
        for part in self._row_partitions:
            length: Any = part.static_uniform_row_length
            if length is None and ragged_lengths and not part.is_uniform():
                splits = constant_value(part.row_splits())
                length = None if splits is None else tuple(np.diff(splits).tolist())
            out.append(length)
        return out + sizes[1:]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self._part(index)
        if not isinstance(index, int):
            raise TypeError(f"a DynamicRaggedShape is indexed by ints, got {index!r}")
        if index < 0:
            if self.rank is None:
                raise ValueError("Cannot use a negative index where the rank is not known.")
            index += self.rank
        if index < 0 or (self.rank is not None and index >= self.rank):
            raise IndexError(f"Index must be less than rank {self.rank}, got {index}")
        if not self.is_uniform(index):
            raise ValueError(f"Index {index} is not uniform")
        if index == 0 and self._row_partitions:
            return self._row_partitions[0].nrows()
        if 0 < index <= self.num_row_partitions:
            return self._row_partitions[index - 1].uniform_row_length()
        return self._inner_shape[index - self.num_row_partitions]

    def _part(self, index: slice) -> "DynamicRaggedShape":
        rank, count = self.rank, self.num_row_partitions
        if index.step not in (None, 1) or rank is None:
            raise IndexError("Cannot stride through a shape, or slice one of unknown rank")
        start, stop, _ = index.indices(rank)
        if start > 0 or stop == 0:
            if not all(self.is_uniform(i) for i in range(start, stop)):
                raise ValueError("All relevant dimensions must be uniform")
            sizes = [self[i] for i in range(start, stop)]
            inner = array.stack(sizes) if sizes else array.zeros([0], self.dtype)
            return DynamicRaggedShape([], inner, self.dtype)
        if stop > count:
            inner = self._inner_shape[: stop - count]
            return DynamicRaggedShape(self._row_partitions, inner, self.dtype)
        inner = array.reshape(self._row_partitions[stop - 1].nrows(), [1])
        return DynamicRaggedShape(self._row_partitions[: stop - 1], inner, self.dtype)

    def rows_of(self, flat: Any) -> Any:
        """The value of this shape with such flat values."""
        for part in reversed(self._row_partitions):
            flat = part.rows_of(flat)
        return flat

    def __eq__(self, other: object) -> Any:
        if not isinstance(other, DynamicRaggedShape):
            return False
        if self.rank != other.rank or self.num_row_partitions != other.num_row_partitions:
            return convert_to_tensor(False)
        pairs = zip(self._parts(), other._parts(), strict=True)
        same = convert_to_tensor(True)
        for a, b in pairs:
            equal = gen_ops.equal(cast(a, dtypes.int64), cast(b, dtypes.int64), False)
            same = gen_ops.logical_and(
                same, gen_ops.all(equal, list(range(equal.shape.ndims or 0)))
            )
        return same

    __hash__ = None  # type: ignore[assignment]

    def _parts(self) -> list[Tensor]:
        return [self._inner_shape, *(p.row_splits() for p in self._row_partitions)]

    def _from_parts(self, parts: list[Tensor]) -> "DynamicRaggedShape":
        rows = [p._from_parts([s]) for p, s in zip(self._row_partitions, parts[1:], strict=True)]
        return DynamicRaggedShape(rows, parts[0])

    def __repr__(self) -> str:
        return (
            f"<DynamicRaggedShape lengths={self.static_lengths()} "
            f"num_row_partitions={self.num_row_partitions}>"
        )


# The forms of functions that give or take shapes.


def shape_v2(input: Any, out_type: Any = dtypes.int32, name: Any = None) -> DynamicRaggedShape:
    """The ragged form of shape."""
    del name
    return DynamicRaggedShape.from_tensor(input, dtypes.int32 if out_type is None else out_type)


def shape(input: Any, name: Any = None, out_type: Any = dtypes.int32) -> DynamicRaggedShape:
    """The same for TensorFlow 1's shape."""
    return shape_v2(input, out_type, name)


def reshape(tensor: Any, shape: Any, name: Any = None) -> Any:
    """The ragged form of reshape: the elements one after the other in another shape."""
    del name
    value = as_ragged_or_tensor(tensor)
    flat = value.flat_values if isinstance(value, RaggedTensor) else value
    if not isinstance(shape, DynamicRaggedShape):
        return array.reshape(flat, shape)
    return shape.rows_of(array.reshape(flat, shape.inner_shape))


def fill(dims: Any, value: Any, name: Any = None) -> Any:
    """The ragged form of fill."""
    del name
    return dims.rows_of(array.fill(dims.inner_shape, value))


def ones(shape: Any, dtype: Any = dtypes.float32, name: Any = None) -> Any:
    """The ragged form of ones."""
    del name
    return shape.rows_of(array.ones(shape.inner_shape, dtype))


def zeros(shape: Any, dtype: Any = dtypes.float32, name: Any = None) -> Any:
    """The ragged form of zeros."""
    del name
    return shape.rows_of(array.zeros(shape.inner_shape, dtype))


def broadcast_to(input: Any, shape: Any, name: Any = None) -> Any:
    """The ragged form of broadcast_to."""
    del name
    value = as_ragged_or_tensor(input)
    if not isinstance(shape, DynamicRaggedShape):
        raise TypeError("a RaggedTensor is broadcast to a DynamicRaggedShape")
    like = fill(shape, False)
    if not is_ragged(value) and not is_ragged(like):
        return gen_ops.broadcast_to(value, shape.inner_shape)
    if is_ragged(value):
        value = value.with_row_splits_dtype(shape.dtype)
    (flat, empty), wrap = broadcast_together([value, like])
    return wrap(gen_ops.broadcast_to(flat, array.shape(empty)))


def broadcast_dynamic_shape(shape_x: Any, shape_y: Any) -> DynamicRaggedShape:
    """The ragged form of broadcast_dynamic_shape."""
    shapes = [
        s if isinstance(s, DynamicRaggedShape) else DynamicRaggedShape([], s)
        for s in (shape_x, shape_y)
    ]
    kind = dtypes.int32 if all(s.dtype is dtypes.int32 for s in shapes) else dtypes.int64
    values = [fill(s.with_dtype(kind), False) for s in shapes]
    if not any(is_ragged(v) for v in values):
        return DynamicRaggedShape(
            [], array.broadcast_dynamic_shape(*(s.inner_shape for s in shapes))
        )
    (x, y), wrap = broadcast_together(values)
    return DynamicRaggedShape.from_tensor(wrap(gen_ops.logical_or(x, y)), kind)
