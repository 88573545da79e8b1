"""How values are divided into rows."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.static_value import constant_value
from millrace.ops import array
from millrace.ops.math import cast
from millrace.ops.ragged.tensor import RaggedTensor, checked, places_in_rows


@export(v2="experimental.RowPartition")
class RowPartition:
    """How a number of values is divided into rows: what a RaggedTensor has besides its values. Made
    by functions such as `from_row_splits`, which check what they are given."""

    __slots__ = ("_row_splits", "_uniform_row_length")

    def __init__(
        self, row_splits: Tensor, uniform_row_length: Tensor | None = None, internal: bool = False
    ):
        if not internal:
            raise ValueError(
                "RowPartition constructor is private; please use one of the factory methods "
                "instead (e.g., RowPartition.from_row_lengths())"
            )
        self._row_splits = row_splits
        self._uniform_row_length = uniform_row_length

    @classmethod
    def of(cls, ragged: RaggedTensor) -> "RowPartition":
        """The rows of a ragged tensor."""
        return cls(ragged.row_splits, ragged.uniform_row_length, internal=True)

    # Making them: as ragged tensors of so many values are made.

    @classmethod
    def from_value_rowids(
        cls, value_rowids: Any, nrows: Any = None, validate: bool = True, dtype: Any = None,
        dtype_hint: Any = None,
    ) -> "RowPartition":  # fmt: skip
        """Value i belongs to row value_rowids[i]; these never fall."""
        ids = _given(value_rowids, "value_rowids", dtype, dtype_hint)
        values = gen_ops.zeros_like(ids)
        return cls.of(RaggedTensor.from_value_rowids(values, ids, nrows, validate=validate))

    @classmethod
    def from_row_splits(
        cls, row_splits: Any, validate: bool = True, dtype: Any = None, dtype_hint: Any = None
    ) -> "RowPartition":
        """Row i is of the values from row_splits[i] to row_splits[i + 1]."""
        splits = _given(row_splits, "row_splits", dtype, dtype_hint)
        if splits.shape.as_list() == [0]:
            raise ValueError("row_splits tensor may not be empty.")
        if validate:
            message = "Arguments to from_row_splits do not form a valid RaggedTensor"
            rising = gen_ops.all(gen_ops.less_equal(splits[:-1], splits[1:]), [0])
            begins = gen_ops.equal(splits[0], cast(0, splits.dtype))
            splits = checked(
                splits, [(begins, f"{message}: zero"), (rising, f"{message}: monotonic")]
            )
        return cls(splits, internal=True)

    @classmethod
    def from_row_lengths(
        cls, row_lengths: Any, validate: bool = True, dtype: Any = None, dtype_hint: Any = None
    ) -> "RowPartition":
        """Rows of these lengths, one after the other."""
        lengths = _given(row_lengths, "row_lengths", dtype, dtype_hint)
        zero = array.zeros([1], lengths.dtype)
        splits = array.concat([zero, gen_ops.cumsum(lengths, 0)], 0)
        return cls.from_row_splits(splits, validate)

    @classmethod
    def from_row_starts(
        cls, row_starts: Any, nvals: Any, validate: bool = True, dtype: Any = None,
        dtype_hint: Any = None,
    ) -> "RowPartition":  # fmt: skip
        """Row i begins at row_starts[i], and the first one at 0."""
        starts = _given(row_starts, "row_starts", dtype, dtype_hint)
        end = array.reshape(cast(nvals, starts.dtype), [1])
        return cls.from_row_splits(array.concat([starts, end], 0), validate)

    @classmethod
    def from_row_limits(
        cls, row_limits: Any, validate: bool = True, dtype: Any = None, dtype_hint: Any = None
    ) -> "RowPartition":
        """Row i ends before row_limits[i]."""
        limits = _given(row_limits, "row_limits", dtype, dtype_hint)
        zero = array.zeros([1], limits.dtype)
        return cls.from_row_splits(array.concat([zero, limits], 0), validate)

    @classmethod
    def from_uniform_row_length(
        cls, uniform_row_length: Any, nvals: Any = None, nrows: Any = None, validate: bool = True,
        dtype: Any = None, dtype_hint: Any = None,
    ) -> "RowPartition":  # fmt: skip
        """Rows of one length: so many, or as many as there are values for."""
        if nvals is None and nrows is None:
            raise ValueError("Either (or both) of nvals and nrows must be specified")
        length = _given(uniform_row_length, "uniform_row_length", dtype, dtype_hint, 0)
        count = cast(nrows, length.dtype) * length if nvals is None else cast(nvals, length.dtype)
        values = gen_ops.fill(array.reshape(count, [1]), False)
        made = RaggedTensor.from_uniform_row_length(values, length, nrows, validate=validate)
        return cls.of(made)

    # What they say.

    @property
    def dtype(self) -> dtypes.DType:
        """The type of the numbers."""
        return self._row_splits.dtype

    @property
    def static_nrows(self) -> int | None:
        """How many rows there are, where it is known."""
        size = self._row_splits.shape.as_list()[0] if self._row_splits.shape.ndims else None
        return None if size is None else size - 1

    @property
    def static_nvals(self) -> int | None:
        """How many values there are, where it is known."""
        splits = constant_value(self._row_splits)
        return None if splits is None else int(splits[-1])

    @property
    def static_uniform_row_length(self) -> int | None:
        """The length of all rows, where they were made of one that is known."""
        known = None
        if self._uniform_row_length is not None:
            known = constant_value(self._uniform_row_length)
        return None if known is None else int(known)

    def row_splits(self) -> Tensor:
        """Where each row begins, and the end of the last one."""
        return self._row_splits

    def row_starts(self) -> Tensor:
        """Where each row begins."""
        return self._row_splits[:-1]

    def row_limits(self) -> Tensor:
        """Where each row ends."""
        return self._row_splits[1:]

    def row_lengths(self) -> Tensor:
        """How long the rows are."""
        return self._row_splits[1:] - self._row_splits[:-1]

    def nrows(self) -> Tensor:
        """How many rows there are."""
        return array.shape(self._row_splits, out_type=self.dtype)[0] - 1

    def nvals(self) -> Tensor:
        """How many values there are."""
        return self._row_splits[-1]

    def value_rowids(self) -> Tensor:
        """The row of each value."""
        return self._rows().value_rowids()

    def offsets_in_rows(self) -> Tensor:
        """Where in its row each value stands."""
        return places_in_rows(self._rows())

    def uniform_row_length(self) -> Tensor | None:
        """The length of all rows, where they were made of one length."""
        return self._uniform_row_length

    def is_uniform(self) -> bool:
        """Whether the rows were made of one length."""
        return self._uniform_row_length is not None

    def with_dtype(self, dtype: Any) -> "RowPartition":
        """With numbers of another type: int32 or int64."""
        dtype = dtypes.as_dtype(dtype)
        if dtype not in (dtypes.int32, dtypes.int64):
            raise ValueError(f"Argument `dtype` must be int32 or int64. Received {dtype!r}.")
        length = self._uniform_row_length
        if length is not None:
            length = cast(length, dtype)
        return RowPartition(cast(self._row_splits, dtype), length, internal=True)

    def rows_of(self, values: Any) -> RaggedTensor:
        """The ragged tensor of values, as many as there must be."""
        return RaggedTensor(values, self._row_splits, True, self._uniform_row_length)

    def _rows(self) -> RaggedTensor:
        return self.rows_of(gen_ops.fill(array.reshape(self.nvals(), [1]), False))

    def _parts(self) -> list[Tensor]:
        return [self._row_splits]

    def _from_parts(self, parts: list[Tensor]) -> "RowPartition":
        known = self.static_uniform_row_length
        length = None if known is None else convert_to_tensor(known, dtype=self.dtype)
        return RowPartition(parts[0], length, internal=True)

    def __repr__(self) -> str:
        if self._uniform_row_length is not None:
            length = _text(self._uniform_row_length)
            return f"tf.RowPartition(nrows={_text(self.nrows())}, uniform_row_length={length})"
        return f"tf.RowPartition(row_splits={_text(self._row_splits)})"


def _text(tensor: Tensor) -> str:
    return str(tensor.numpy()) if hasattr(tensor, "numpy") else str(tensor)


def _given(value: Any, name: str, dtype: Any, hint: Any, rank: int = 1) -> Tensor:
    """What a row partition is made of as a tensor of integers."""
    if not isinstance(value, Tensor) and dtype is None and hint is None:
        hint = dtypes.int64
    tensor = convert_to_tensor(value, dtype=dtype, dtype_hint=hint, name=name)
    if tensor.dtype not in (dtypes.int32, dtypes.int64):
        raise ValueError(f"{name} must have dtype int32 or int64")
    tensor.shape.assert_has_rank(rank)
    return tensor
