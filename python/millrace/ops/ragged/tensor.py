"""RaggedTensor: rows of different lengths as values in a row and where each row begins."""

from itertools import pairwise
from typing import Any

import numpy as np

from millrace import _core, gen_ops
from millrace.core import dtypes
from millrace.core.errors import InvalidArgumentError
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.tensor import OPERATORS, Tensor, TensorOperators
from millrace.graph.convert import convert_to_tensor, register_tensor_conversion_function
from millrace.graph.default_graph import control_dependencies, name_scope
from millrace.graph.sparse import SparseTensor
from millrace.graph.static_value import constant_value
from millrace.ops import array, check, gather, partition
from millrace.ops.along import cumsum
from millrace.ops.along import range as range_of
from millrace.ops.math import cast
from millrace.ops.ragged.value import RaggedTensorValue
from millrace.ops.reduce import reduce_max


def _failing(message: str) -> InvalidArgumentError:
    return InvalidArgumentError(None, None, message)


@export(v1="RaggedTensor", v2="RaggedTensor")
class RaggedTensor(TensorOperators):
    """Rows of different lengths. Row i is `values[row_splits[i]:row_splits[i + 1]]`; values may be
    ragged themselves. Made by functions such as `from_row_splits`."""

    _parts_never_change = True
    _operators_first = True  # of `tensor + ragged`, this one decides
    _has_ragged_form = True  # see core/ragged_forms.py

    def __init__(
        self, values: Any, row_splits: Tensor, internal: bool = False,
        uniform_row_length: Tensor | None = None,
    ):  # fmt: skip
        if not internal:
            raise ValueError(
                "RaggedTensor constructor is private; please use one of the factory methods "
                "instead (e.g., RaggedTensor.from_row_lengths())"
            )
        self._values = values
        self._row_splits = row_splits
        self._uniform_row_length = uniform_row_length

    # Making them.

    @classmethod
    def from_row_splits(
        cls, values: Any, row_splits: Any, name: str | None = None, validate: bool = True
    ) -> "RaggedTensor":
        """Row i is values[row_splits[i]:row_splits[i + 1]]."""
        with name_scope(name, "RaggedFromRowSplits", [row_splits]):
            values, splits = _values(values), _partition(row_splits, "row_splits")
            splits.shape.assert_has_rank(1)
            if splits.shape.as_list() == [0]:
                raise ValueError("row_splits tensor may not be empty.")
            if validate:
                splits = _checked_splits(splits, values)
            return cls(values, splits, internal=True)

    @classmethod
    def from_row_lengths(
        cls, values: Any, row_lengths: Any, name: str | None = None, validate: bool = True
    ) -> "RaggedTensor":
        """Rows of these lengths, one after the other."""
        with name_scope(name, "RaggedFromRowLengths", [row_lengths]):
            values, lengths = _values(values), _partition(row_lengths, "row_lengths")
            lengths.shape.assert_has_rank(1)
            splits = array.concat([array.zeros([1], lengths.dtype), cumsum(lengths)], 0)
            return cls.from_row_splits(values, splits, validate=validate)

    @classmethod
    def from_value_rowids(
        cls, values: Any, value_rowids: Any, nrows: Any = None, name: str | None = None,
        validate: bool = True,
    ) -> "RaggedTensor":  # fmt: skip
        """Value i belongs to row value_rowids[i]; these never fall."""
        with name_scope(name, "RaggedFromValueRowIds", [value_rowids, nrows]):
            values, ids = _values(values), _partition(value_rowids, "value_rowids")
            ids.shape.assert_has_rank(1)
            if nrows is None:
                # One row more than the last one; none without values.
                nrows = array.concat([ids[-1:] + 1, array.zeros([1], ids.dtype)], 0)[0]
            else:
                nrows = convert_to_tensor(nrows, dtype=ids.dtype, name="nrows")
                nrows.shape.assert_has_rank(0)
            if validate:
                ids = _checked_rowids(ids, values, nrows)
            lengths = gen_ops.unsorted_segment_sum(array.ones_like(ids), ids, nrows)
            return cls.from_row_lengths(values, lengths, validate=validate)

    @classmethod
    def from_row_starts(
        cls, values: Any, row_starts: Any, name: str | None = None, validate: bool = True
    ) -> "RaggedTensor":
        """Row i begins at row_starts[i], and the first one at 0."""
        with name_scope(name, "RaggedFromRowStarts", [row_starts]):
            values, starts = _values(values), _partition(row_starts, "row_starts")
            end = cast(_rows(values), starts.dtype)
            splits = array.concat([starts, array.expand_dims(end, 0)], 0)
            return cls.from_row_splits(values, splits, validate=validate)

    @classmethod
    def from_row_limits(
        cls, values: Any, row_limits: Any, name: str | None = None, validate: bool = True
    ) -> "RaggedTensor":
        """Row i ends before row_limits[i]."""
        with name_scope(name, "RaggedFromRowLimits", [row_limits]):
            values, limits = _values(values), _partition(row_limits, "row_limits")
            splits = array.concat([array.zeros([1], limits.dtype), limits], 0)
            return cls.from_row_splits(values, splits, validate=validate)

    @classmethod
    def from_uniform_row_length(
        cls, values: Any, uniform_row_length: Any, nrows: Any = None, validate: bool = True,
        name: str | None = None,
    ) -> "RaggedTensor":  # fmt: skip
        """Rows of one length. `nrows` is needed where that is 0."""
        with name_scope(name, "RaggedFromUniformRowLength", [uniform_row_length, nrows]):
            values = _values(values)
            length = _partition(uniform_row_length, "uniform_row_length")
            if isinstance(values, RaggedTensor):
                length = cast(length, values.row_splits.dtype)
            count = cast(_rows(values), length.dtype)
            if nrows is None:
                nrows = gen_ops.floor_div(count, gen_ops.maximum(length, 1))
            nrows = convert_to_tensor(nrows, dtype=length.dtype, name="nrows")
            if validate:
                known = [constant_value(x) for x in (length, nrows, count)]
                if all(x is not None for x in known) and known[0] * known[1] != known[2]:
                    raise ValueError(
                        f"uniform_row_length={known[0]} times nrows={known[1]} must equal "
                        f"nvals={known[2]}"
                    )
                fits = gen_ops.equal(nrows * length, count)
                message = "uniform_row_length times nrows must equal nvals"
                length = checked(length, [(fits, message)])
            splits = range_of(nrows + 1) * length
            return cls(values, splits, internal=True, uniform_row_length=length)

    @classmethod
    def from_nested_row_splits(
        cls, flat_values: Any, nested_row_splits: Any, name: str | None = None,
        validate: bool = True,
    ) -> "RaggedTensor":  # fmt: skip
        """From the splits of each ragged dimension, the outermost first."""
        if isinstance(nested_row_splits, Tensor):
            raise TypeError("nested_row_splits must be a list of Tensors")
        result = flat_values
        for splits in reversed(list(nested_row_splits)):
            result = cls.from_row_splits(result, splits, name, validate)
        return result

    @classmethod
    def from_nested_row_lengths(
        cls, flat_values: Any, nested_row_lengths: Any, name: str | None = None,
        validate: bool = True,
    ) -> "RaggedTensor":  # fmt: skip
        """From the lengths of the rows of each ragged dimension, the outermost first."""
        if isinstance(nested_row_lengths, Tensor):
            raise TypeError("nested_row_lengths must be a list of Tensors")
        result = flat_values
        for lengths in reversed(list(nested_row_lengths)):
            result = cls.from_row_lengths(result, lengths, name, validate)
        return result

    @classmethod
    def from_nested_value_rowids(
        cls, flat_values: Any, nested_value_rowids: Any, nested_nrows: Any = None,
        name: str | None = None, validate: bool = True,
    ) -> "RaggedTensor":  # fmt: skip
        """From the rows of the values of each ragged dimension, the outermost first."""
        if isinstance(nested_value_rowids, Tensor):
            raise TypeError("nested_value_rowids must be a list of Tensors")
        rows = list(nested_nrows or [None] * len(nested_value_rowids))
        if len(rows) != len(nested_value_rowids):
            raise ValueError("nested_nrows must have as many elements as nested_value_rowids")
        result = flat_values
        for ids, nrows in reversed(list(zip(nested_value_rowids, rows, strict=True))):
            result = cls.from_value_rowids(result, ids, nrows, name, validate)
        return result

    @classmethod
    def from_tensor(
        cls, tensor: Any, lengths: Any = None, padding: Any = None, ragged_rank: int = 1,
        name: str | None = None, row_splits_dtype: Any = dtypes.int64,
    ) -> "RaggedTensor":  # fmt: skip
        """The rows of a dense tensor, cut to `lengths` or without the padding at their ends."""
        splits_type = dtypes.as_dtype(row_splits_dtype)
        if lengths is not None and padding is not None:
            raise ValueError("Specify argument `lengths` or `padding`, but not both.")
        if not isinstance(ragged_rank, int) or ragged_rank < 1:
            raise ValueError(f"ragged_rank must be greater than 0; got {ragged_rank}")
        with name_scope(name, "RaggedFromTensor", [tensor, lengths, padding]):
            tensor = convert_to_tensor(tensor, name="tensor")
            rank = tensor.shape.ndims
            if rank is not None and ragged_rank >= rank:
                raise ValueError(
                    f"ragged_rank must be less than the rank of the tensor, {rank}; got "
                    f"{ragged_rank}"
                )
            sizes = array.shape(tensor, out_type=splits_type)
            if isinstance(lengths, (list, tuple)) and lengths and not isinstance(lengths[0], int):
                given = [_partition(part, "lengths") for part in lengths]
                result = cls.from_tensor(
                    tensor, None, None, len(given), row_splits_dtype=splits_type
                )
                return _cut_nested(result, given)
            count = gen_ops.prod(sizes[: ragged_rank + 1], [0])
            flat = array.reshape(tensor, array.concat([[count], sizes[ragged_rank + 1 :]], 0))
            if rank is not None:
                known = tensor.shape.as_list()
                outer = known[: ragged_rank + 1]
                whole = None if None in outer else int(np.prod(outer, dtype=np.int64))
                flat.set_shape([whole, *known[ragged_rank + 1 :]])
            row = sizes[ragged_rank]
            rows = gen_ops.prod(sizes[:ragged_rank], 0)
            if lengths is None and padding is None:
                inner = cls(flat, range_of(rows + 1) * row, True, row)
            else:
                if lengths is None:
                    lengths = _lengths_without(flat, padding, rows, row, splits_type)
                else:
                    lengths = cast(array.reshape(_partition(lengths, "lengths"), [-1]), splits_type)
                mask = array.sequence_mask(lengths, row)
                kept = partition.boolean_mask(flat, array.reshape(mask, [-1]))
                inner = cls.from_row_lengths(
                    kept, gen_ops.minimum(gen_ops.maximum(lengths, 0), row)
                )
            for axis in range(ragged_rank - 1, 0, -1):
                outer = gen_ops.prod(sizes[:axis], 0)
                inner = cls(inner, range_of(outer + 1) * sizes[axis], True, sizes[axis])
            return inner

    @classmethod
    def from_sparse(
        cls, st_input: SparseTensor, name: str | None = None, row_splits_dtype: Any = dtypes.int64
    ) -> "RaggedTensor":
        """The rows of a sparse matrix whose elements stand at the beginnings of its rows."""
        if not isinstance(st_input, SparseTensor):
            raise TypeError(f"Expected SparseTensor, got {type(st_input).__name__}")
        with name_scope(name, "RaggedFromSparse", [st_input.values]):
            rank = st_input.shape.ndims
            if rank is not None and rank != 2:
                raise ValueError(f"Expected a matrix, got a SparseTensor of rank {rank}")
            splits_type = dtypes.as_dtype(row_splits_dtype)
            ids = cast(st_input.indices[:, 0], splits_type)
            rows = cast(st_input.dense_shape[0], splits_type)
            result = cls.from_value_rowids(st_input.values, ids, rows)
            if _core.executing_eagerly():
                places = st_input.indices[:, 1].numpy() if _count(result.values) else []
                wanted = _places_in_rows(result).numpy() if _count(result.values) else []
                if not np.array_equal(places, wanted):
                    raise _failing("SparseTensor is not right-ragged")
            return result

    # What they are made of.

    @property
    def dtype(self) -> dtypes.DType:
        """The type of the elements."""
        return self._values.dtype

    @property
    def values(self) -> Any:
        """The rows one after the other."""
        return self._values

    @property
    def row_splits(self) -> Tensor:
        """Where each row begins in the values, and the end of the last one."""
        return self._row_splits

    @property
    def flat_values(self) -> Tensor:
        """The values of the innermost ragged dimension."""
        inner = self._values
        return inner.flat_values if isinstance(inner, RaggedTensor) else inner

    @property
    def nested_row_splits(self) -> tuple[Tensor, ...]:
        """The splits of each ragged dimension, the outermost first."""
        inner = self._values
        more = inner.nested_row_splits if isinstance(inner, RaggedTensor) else ()
        return (self._row_splits, *more)

    @property
    def ragged_rank(self) -> int:
        """How many dimensions are ragged."""
        return len(self.nested_row_splits)

    @property
    def uniform_row_length(self) -> Tensor | None:
        """The length of all rows, where they were made of one length."""
        return self._uniform_row_length

    @property
    def shape(self) -> TensorShape:
        """What is known of the shape: None for the ragged dimensions."""
        splits = self._row_splits.shape.as_list() if self._row_splits.shape.ndims else [None]
        rows = None if splits[0] is None else splits[0] - 1
        row: Any = None
        if self._uniform_row_length is not None:
            known = constant_value(self._uniform_row_length)
            row = None if known is None else int(known)
        inner = self._values.shape
        if inner.ndims is None:
            return TensorShape(None)
        return TensorShape([rows, row, *inner.as_list()[1:]])

    def get_shape(self) -> TensorShape:
        """As `shape`."""
        return self.shape

    @property
    def name(self) -> str:
        """The name of the values."""
        return self._values.name

    @property
    def op(self) -> Any:
        """The operation that makes the values."""
        return self.flat_values.op

    @property
    def graph(self) -> Any:
        """The graph of the values."""
        return self.flat_values.graph

    def value_rowids(self, name: str | None = None) -> Tensor:
        """The row of each value."""
        with name_scope(name, "RaggedValueRowIds"):
            count = cast(_rows(self._values), self._row_splits.dtype)
            # Each split but the outer ones is the beginning of one more row.
            ends = self._row_splits[1:-1]
            ones = gen_ops.unsorted_segment_sum(array.ones_like(ends), ends, count + 1)
            return cumsum(ones)[:-1]

    def nested_value_rowids(self, name: str | None = None) -> tuple[Tensor, ...]:
        """The rows of the values of each ragged dimension, the outermost first."""
        inner = self._values
        more = inner.nested_value_rowids(name) if isinstance(inner, RaggedTensor) else ()
        return (self.value_rowids(name), *more)

    def nrows(self, out_type: Any = None, name: str | None = None) -> Tensor:
        """How many rows there are."""
        with name_scope(name, "RaggedNRows"):
            kind = self._row_splits.dtype if out_type is None else dtypes.as_dtype(out_type)
            return array.shape(self._row_splits, out_type=kind)[0] - 1

    def row_starts(self, name: str | None = None) -> Tensor:
        """Where each row begins."""
        with name_scope(name, "RaggedRowStarts"):
            return self._row_splits[:-1]

    def row_limits(self, name: str | None = None) -> Tensor:
        """Where each row ends."""
        with name_scope(name, "RaggedRowLimits"):
            return self._row_splits[1:]

    def row_lengths(self, axis: int = 1, name: str | None = None) -> Any:
        """How long the rows are; along an inner dimension, ragged."""
        with name_scope(name, "RaggedRowLengths"):
            axis = positive_axis(axis, self.shape.ndims)
            if axis == 0:
                return self.nrows()
            if axis == 1:
                return self._row_splits[1:] - self._row_splits[:-1]
            if isinstance(self._values, RaggedTensor):
                return self.with_values(self._values.row_lengths(axis - 1))
            sizes = array.shape(self._values, out_type=self._row_splits.dtype)
            return self.with_values(
                gen_ops.fill(sizes[: axis - 1], cast(sizes[axis - 1], self._row_splits.dtype))
            )

    def nested_row_lengths(self, name: str | None = None) -> tuple[Tensor, ...]:
        """The lengths of the rows of each ragged dimension, the outermost first."""
        inner = self._values
        more = inner.nested_row_lengths(name) if isinstance(inner, RaggedTensor) else ()
        return (self.row_lengths(), *more)

    def bounding_shape(
        self, axis: Any = None, name: str | None = None, out_type: Any = None
    ) -> Tensor:
        """The smallest shape that all rows fit into; along one axis, its size."""
        with name_scope(name, "RaggedBoundingBox"):
            kind = self._row_splits.dtype if out_type is None else dtypes.as_dtype(out_type)
            sizes = [self.nrows()]
            part: Any = self
            while isinstance(part, RaggedTensor):
                lengths = part.row_lengths()
                zero = array.zeros([1], lengths.dtype)
                sizes.append(reduce_max(array.concat([zero, lengths], 0)))
                part = part.values
            inner = array.shape(part, out_type=self._row_splits.dtype)[1:]
            whole = cast(array.concat([array.stack(sizes), inner], 0), kind)
            return whole if axis is None else gather.gather(whole, axis)

    # Others like it.

    def with_values(self, new_values: Any) -> "RaggedTensor":
        """The same rows of other values."""
        values = _values(new_values)
        self.values.shape[:1].assert_is_compatible_with(values.shape[:1])
        return RaggedTensor(values, self._row_splits, True, self._uniform_row_length)

    def with_flat_values(self, new_values: Any) -> "RaggedTensor":
        """The same rows, of each ragged dimension, of other values."""
        inner = self._values
        if isinstance(inner, RaggedTensor):
            return self.with_values(inner.with_flat_values(new_values))
        return self.with_values(new_values)

    def with_row_splits_dtype(self, dtype: Any) -> "RaggedTensor":
        """With splits of another type: int32 or int64."""
        dtype = dtypes.as_dtype(dtype)
        if dtype not in (dtypes.int32, dtypes.int64):
            raise ValueError(f"Argument `row_splits` dtype must be int32 or int64. Got {dtype!r}")
        inner = self._values
        if isinstance(inner, RaggedTensor):
            inner = inner.with_row_splits_dtype(dtype)
        length = self._uniform_row_length
        if length is not None:
            length = cast(length, dtype)
        return RaggedTensor(inner, cast(self._row_splits, dtype), True, length)

    def merge_dims(self, outer_axis: int, inner_axis: int) -> Any:
        """With the dimensions from `outer_axis` to `inner_axis` made one."""
        rank = self.shape.ndims
        outer, inner = positive_axis(outer_axis, rank), positive_axis(inner_axis, rank)
        if outer > inner:
            raise ValueError(
                f"Expected outer_axis ({outer_axis}) to be less than or equal to inner_axis "
                f"({inner_axis})"
            )
        return _merged(self, outer, inner)

    # What they become.

    def to_tensor(
        self, default_value: Any = None, name: str | None = None, shape: Any = None
    ) -> Tensor:
        """A dense tensor: rows filled up with `default_value`, zeros unless it is given.

        Args:
          shape: of the result; longer rows are cut. None for sizes that are not given.
        """
        with name_scope(name, "RaggedToTensor", [default_value, shape]):
            flat = self.flat_values
            inner = array.shape(flat, out_type=dtypes.int64)[1:]
            if default_value is None:
                default_value = array.zeros([], flat.dtype)
            default = convert_to_tensor(default_value, dtype=flat.dtype, name="default_value")
            _check_default(default, flat)
            default = gen_ops.broadcast_to(default, inner)
            ragged = self.with_row_splits_dtype(dtypes.int64)
            sizes = ragged.bounding_shape()
            wanted: Any = None
            if shape is not None:
                sizes, wanted = _wanted_sizes(self, sizes, shape)
            count = ragged.ragged_rank + 1
            places = flat_indices(ragged)
            outer = sizes[:count]
            inside = gen_ops.all(gen_ops.less(places, outer), 1)
            if shape is not None:
                places = partition.boolean_mask(places, inside)
                flat = partition.boolean_mask(flat, inside)
            whole = array.concat([outer, inner], 0)
            filled = gen_ops.broadcast_to(default, whole)
            made = gen_ops.tensor_scatter_update(filled, places, flat)
            if wanted is not None:
                made.set_shape(wanted)
            elif shape is None:
                made.set_shape(self.shape)
            return made

    def to_sparse(self, name: str | None = None) -> SparseTensor:
        """A sparse tensor of the elements there are."""
        with name_scope(name, "RaggedToSparse"):
            ragged = self.with_row_splits_dtype(dtypes.int64)
            flat = ragged.flat_values
            shape = ragged.bounding_shape()
            indices = flat_indices(ragged)
            rank = flat.shape.ndims
            if rank is None:
                raise ValueError("to_sparse needs values of known rank")
            if rank > 1:
                sizes = array.shape(flat, out_type=dtypes.int64)
                inner = gen_ops.where(gen_ops.fill(sizes, True))
                indices = array.concat([gather.gather(indices, inner[:, 0]), inner[:, 1:]], 1)
                flat = array.reshape(flat, [-1])
            return SparseTensor(indices, flat, shape)

    def to_list(self) -> list[Any]:
        """The elements as nested lists. ValueError for a tensor of a graph."""
        if not hasattr(self.flat_values, "numpy"):
            raise ValueError("RaggedTensor.to_list() is only supported in eager mode.")
        return self._value().to_list()

    def _value(self) -> RaggedTensorValue:
        inner = self._values
        values = inner._value() if isinstance(inner, RaggedTensor) else np.asarray(inner.numpy())
        return RaggedTensorValue(values, self._row_splits.numpy())

    def numpy(self) -> Any:
        """An array of the rows: of arrays where they differ in length."""
        splits = self._row_splits.numpy()
        inner = self._values.numpy()
        parts = [inner[a:b] for a, b in pairwise(splits)]
        if not parts:
            return np.zeros((0, 0, *inner.shape[1:]), inner.dtype)
        if len({len(part) for part in parts}) == 1:
            return np.stack(parts)
        made = np.empty(len(parts), dtype=object)
        for i, part in enumerate(parts):
            made[i] = part
        return made

    def consumers(self) -> list[Any]:
        """The operations of a graph that take its parts."""
        if hasattr(self.flat_values, "numpy"):
            return []
        return [
            op for part in (self.flat_values, *self.nested_row_splits) for op in part.consumers()
        ]

    # Composites travel in parts: see graph/tracing.py.

    def _parts(self) -> list[Tensor]:
        return [self.flat_values, *self.nested_row_splits]

    def _from_parts(self, parts: list[Any]) -> "RaggedTensor":
        inner = parts[0]
        if isinstance(self._values, RaggedTensor):
            inner = self._values._from_parts([inner, *parts[2:]])
        length = self._uniform_row_length
        known = None if length is None else constant_value(length)
        if known is not None:  # a length of another graph would be of no use
            length = convert_to_tensor(int(known), dtype=length.dtype)
        return RaggedTensor(inner, parts[1], True, None if known is None else length)

    def __len__(self) -> int:
        if not hasattr(self._row_splits, "numpy"):
            raise TypeError("the number of rows of a RaggedTensor of a graph is not known")
        return int(self.nrows())

    def __iter__(self) -> Any:
        return iter([self[i] for i in range(len(self))])

    def __repr__(self) -> str:
        if not hasattr(self.flat_values, "numpy"):
            return f"tf.RaggedTensor(values={self._values}, row_splits={self._row_splits})"
        with np.printoptions(formatter={"all": _text_of}):
            return f"<tf.RaggedTensor {_text_of(self.numpy())}>"

    __str__ = __repr__

    def __bool__(self) -> bool:
        raise TypeError("RaggedTensor may not be used as a boolean.")

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise ValueError("a RaggedTensor is no array: use to_tensor(), to_list() or numpy()")


def _operator(name: str) -> Any:
    def method(*operands: Any) -> Any:
        from millrace.ops.ragged import operators  # late: they are made of ragged tensors

        return getattr(operators, name)(*operands)

    return method


for _name in (*OPERATORS, "__eq__", "__ne__"):
    setattr(RaggedTensor, _name, _operator(_name))


def _no_tensor(value: Any, dtype: Any = None, name: Any = None, as_ref: bool = False) -> Any:
    raise TypeError("a RaggedTensor is no Tensor: use to_tensor()")


register_tensor_conversion_function((RaggedTensor, RaggedTensorValue), _no_tensor)


# ---- Helpers.


def _text_of(value: Any) -> str:
    """An array, or an element of one, with commas."""
    if not isinstance(value, np.ndarray):
        return str(value)
    if value.size == 0:
        return repr(value.tolist())
    return np.array2string(value, separator=", ", formatter={"all": _text_of})


def _values(values: Any) -> Any:
    if isinstance(values, RaggedTensor):
        return values
    if isinstance(values, RaggedTensorValue):
        return from_value(values)
    tensor = convert_to_tensor(values, name="values")
    tensor.shape.with_rank_at_least(1)
    return tensor


def from_value(value: RaggedTensorValue) -> RaggedTensor:
    """The RaggedTensor of arrays."""
    return RaggedTensor.from_row_splits(value.values, value.row_splits, validate=False)


def _partition(value: Any, name: str) -> Tensor:
    """Splits, lengths ... as a tensor of int32 or int64."""
    if isinstance(value, Tensor):
        tensor = value
    else:
        given = np.asarray(value) if not hasattr(value, "_as_graph_element") else value
        if isinstance(given, np.ndarray) and given.dtype != np.int32:
            if given.size and given.dtype.kind not in "iu":
                raise ValueError(f"{name} must have dtype int32 or int64, got {given.dtype}")
            given = given.astype(np.int64)
        tensor = convert_to_tensor(given, name=name)
    if tensor.dtype not in (dtypes.int32, dtypes.int64):
        raise ValueError(f"{name} must have dtype int32 or int64")
    return tensor


def is_ragged(value: Any) -> bool:
    """Whether a value is ragged: a RaggedTensor or a RaggedTensorValue."""
    return isinstance(value, (RaggedTensor, RaggedTensorValue))


def as_ragged_or_tensor(value: Any, name: str = "input") -> Any:
    """A RaggedTensor as it is, anything else as a tensor."""
    if isinstance(value, RaggedTensorValue):
        return from_value(value)
    return value if isinstance(value, RaggedTensor) else convert_to_tensor(value, name=name)


def checked(tensor: Tensor, conditions: list[tuple[Tensor, str]]) -> Tensor:
    """The tensor, once the conditions hold: InvalidArgumentError with the message of one that does
    not."""
    if _core.executing_eagerly():
        for condition, message in conditions:
            if not condition.numpy():
                raise _failing(message)
        return tensor
    checks = [check.assert_equal(condition, True, message=m) for condition, m in conditions]
    with control_dependencies([c for c in checks if c is not None]):
        return gen_ops.identity(tensor)


def _check_default(default: Tensor, flat: Tensor) -> None:
    """ValueError for a default value that is not broadcast to the elements."""
    given, sizes = default.shape, flat.shape
    if given.ndims is None or sizes.ndims is None:
        return
    which = (
        f"default_value.shape={_sizes_text(given.as_list())} and "
        f"rt_input.flat_values.shape={_sizes_text(sizes.as_list())} are incompatible: "
    )
    if given.ndims >= sizes.ndims and given.ndims > 0:
        raise ValueError(
            f"{which}default_value.rank = {given.ndims}  must be less than "
            f"rt_input.flat_values.rank = {sizes.ndims}"
        )
    for i in range(1, given.ndims + 1):
        a, b = given.as_list()[-i], sizes.as_list()[-i]
        if a is not None and b is not None and a not in (1, b):
            raise ValueError(
                f"{which}default_value.shape[{-i}] = {a} but rt_input.flat_values.shape[{-i}] = {b}"
            )


def _sizes_text(sizes: list[int | None]) -> str:
    return "[" + ",".join("?" if s is None else str(s) for s in sizes) + "]"


def _wanted_sizes(ragged: RaggedTensor, sizes: Tensor, shape: Any) -> tuple[Tensor, Any]:
    """(sizes, what is known of them): of a dense tensor, where `shape` says some of them."""
    known = constant_value(shape) if isinstance(shape, Tensor) else None
    if known is not None:
        shape = known.tolist()
        if shape == -1:
            return sizes, None
        if not isinstance(shape, list):
            raise ValueError(f"shape must be a vector, or -1 for an unknown rank; got {shape}")
    if isinstance(shape, Tensor):
        given = cast(shape, dtypes.int64)
        return gather.where_v2(gen_ops.less(given, 0), sizes, given), None
    if isinstance(shape, TensorShape):
        if shape.ndims is None:
            return sizes, None
        shape = shape.as_list()
    parts = [None if isinstance(s, (int, np.integer)) and s < 0 else s for s in shape]
    wanted = [None if isinstance(s, Tensor) else s for s in parts]
    which = f"rt_input.shape and shape={_sizes_text(wanted)} are incompatible: "
    own = ragged.shape
    if own.ndims is not None and own.ndims != len(parts):
        raise ValueError(f"{which}rt_input.rank = {own.ndims} but shape.rank = {len(parts)}")
    for i in range(ragged.ragged_rank + 1, len(parts)):
        size = own.as_list()[i] if own.ndims is not None else None
        if size is not None and wanted[i] is not None and size != wanted[i]:
            raise ValueError(f"{which}rt_input.shape[{i}] = {size} but shape[{i}] = {wanted[i]}")
    made = [
        sizes[i] if part is None else cast(convert_to_tensor(part), dtypes.int64)
        for i, part in enumerate(parts)
    ]
    return array.stack(made), wanted


def after(value: Any, needed: Tensor) -> Any:
    """A value, ragged or not, that waits for a tensor where a graph is run."""
    if _core.executing_eagerly():
        return value
    with control_dependencies([needed]):
        if isinstance(value, RaggedTensor):
            return value.with_flat_values(gen_ops.identity(value.flat_values))
        return gen_ops.identity(value)


def same_splits(splits: Tensor, other: Tensor, message: str) -> Tensor:
    """Splits, once it is known that others are equal to them: InvalidArgumentError otherwise."""
    if splits is other:
        return splits
    sizes = gen_ops.equal(array.size(splits), array.size(other))
    splits = checked(splits, [(sizes, message)])
    return checked(splits, [(gen_ops.all(gen_ops.equal(splits, other), [0]), message)])


def frame_of(lengths: Tensor) -> RaggedTensor:
    """Rows of these lengths; their values are zeros."""
    total = array.reshape(gen_ops.sum(lengths, 0), [1])
    zeros = gen_ops.fill(total, cast(0, lengths.dtype))
    return RaggedTensor.from_row_lengths(zeros, lengths, validate=False)


def _rows(values: Any) -> Tensor:
    if isinstance(values, RaggedTensor):
        return values.nrows(dtypes.int64)
    return array.shape(values, out_type=dtypes.int64)[0]


def _count(values: Any) -> int:
    return int(_rows(values))


def _checked_rowids(ids: Tensor, values: Any, nrows: Tensor) -> Tensor:
    known, rows = constant_value(ids), constant_value(nrows)
    if rows is not None and rows < 0:
        raise ValueError(f"Expected nrows >= 0; got {rows}")
    if rows is not None and known is not None and known.size and known[-1] >= rows:
        raise ValueError(
            f"Expected nrows >= value_rowids[-1] + 1; got nrows={rows}, "
            f"value_rowids[-1]={known[-1]}"
        )
    message = "Arguments to from_value_rowids do not form a valid RaggedTensor"
    size = gen_ops.equal(array.size(ids, out_type=dtypes.int64), _rows(values))
    begins = gen_ops.all(gen_ops.greater_equal(ids[:1], 0), [0])
    rising = gen_ops.all(gen_ops.less_equal(ids[:-1], ids[1:]), [0])
    fits = gen_ops.all(gen_ops.less(ids[-1:], nrows), [0])
    return checked(
        ids,
        [
            (size, f"{message}: as many value_rowids as values are needed"),
            (begins, f"{message}: value_rowids must not be negative"),
            (rising, f"{message}: value_rowids must not fall"),
            (fits, f"{message}: nrows must be greater than value_rowids[-1]"),
        ],
    )


def _checked_splits(splits: Tensor, values: Any) -> Tensor:
    what = "Arguments to from_row_splits do not form a valid RaggedTensor"
    if _core.executing_eagerly():
        known = splits.numpy()
        if known[0] != 0 or (np.diff(known) < 0).any() or known[-1] != _count(values):
            raise _failing(f"{what}: row_splits {known.tolist()[:10]} for {_count(values)} values")
        return splits
    checks = [
        check.assert_equal(splits[0], cast(0, splits.dtype), message=what),
        check.assert_less_equal(splits[:-1], splits[1:], message=what),
        check.assert_equal(splits[-1], cast(_rows(values), splits.dtype), message=what),
    ]
    with control_dependencies(checks):
        return gen_ops.identity(splits)


def positive_axis(axis: int, rank: int | None) -> int:
    if not isinstance(axis, int):
        raise TypeError(f"axis must be an int, got {type(axis).__name__}")
    if rank is None:
        if axis < 0:
            raise ValueError(f"axis={axis} may only be negative if the rank is statically known.")
        return axis
    if not -rank <= axis < rank:
        raise ValueError(f"axis={axis} out of bounds: expected {-rank}<=axis<{rank}")
    return axis % rank


def _places_in_rows(ragged: RaggedTensor) -> Tensor:
    """Where in its row each value stands."""
    ids = ragged.value_rowids()
    count = cast(_rows(ragged.values), ids.dtype)
    return range_of(count) - gather.gather(ragged.row_starts(), ids)


def flat_indices(ragged: RaggedTensor) -> Tensor:
    """[values, ragged_rank + 1]: the index of each of the flat values. Splits are int64."""
    columns = [ragged.value_rowids(), _places_in_rows(ragged)]
    inner = ragged.values
    while isinstance(inner, RaggedTensor):
        ids = inner.value_rowids()
        columns = [gather.gather(column, ids) for column in columns]
        columns.append(_places_in_rows(inner))
        inner = inner.values
    return array.stack(columns, axis=1)


def _merged(value: Any, outer: int, inner: int) -> Any:
    if outer == inner:
        return value
    if isinstance(value, Tensor):
        sizes = array.shape(value)
        joined = array.reshape(gen_ops.prod(sizes[outer : inner + 1], [0]), [1])
        return array.reshape(value, array.concat([sizes[:outer], joined, sizes[inner + 1 :]], 0))
    if outer == 0:
        return _merged(value.values, 0, inner - 1)
    if outer > 1:
        return value.with_values(_merged(value.values, outer - 1, inner - 1))
    # Rows of rows become rows: each ends where the last of its rows does.
    values, splits = value.values, value.row_splits
    if isinstance(values, RaggedTensor):
        splits, within = gather.gather(values.row_splits, splits), values.values
    else:
        splits = splits * array.shape(values, out_type=splits.dtype)[1]
        within = _merged(values, 0, 1)
    return _merged(RaggedTensor(within, splits, True), 1, inner - 1)


def _lengths_without(flat: Tensor, padding: Any, rows: Tensor, row: Tensor, kind: Any) -> Tensor:
    """How long rows are without the padding at their ends."""
    padding = convert_to_tensor(padding, dtype=flat.dtype, name="padding")
    padding.shape.assert_is_compatible_with(flat.shape[1:])
    differs = gen_ops.not_equal(flat, padding)
    rank = flat.shape.ndims or 1
    if rank > 1:
        differs = gen_ops.any(differs, list(range(1, rank)))
    matrix = array.reshape(differs, array.stack([rows, row]))
    ends = cast(matrix, kind) * (range_of(row) + 1)
    zero = array.zeros(array.stack([rows, cast(1, kind)]), kind)
    return reduce_max(array.concat([zero, ends], 1), axis=1)


def _cut_nested(ragged: RaggedTensor, lengths: list[Tensor]) -> RaggedTensor:
    """Rows of each ragged dimension cut to lengths, the outermost first."""
    kind = ragged.row_splits.dtype
    own = cast(array.reshape(lengths[0], [-1]), kind)
    full = ragged.row_lengths()
    mask = gen_ops.less(_places_in_rows(ragged), gather.gather(own, ragged.value_rowids()))
    kept = gen_ops.minimum(own, full)
    values = ragged.values
    if isinstance(values, RaggedTensor):
        inner_lengths = cast(array.reshape(lengths[1], [-1]), kind)
        rows = partition.boolean_mask(range_of(values.nrows()), mask)
        picked = _picked_rows(values, rows)
        inner = _cut_nested(picked, [inner_lengths, *lengths[2:]])
        return RaggedTensor.from_row_lengths(inner, kept)
    return RaggedTensor.from_row_lengths(partition.boolean_mask(values, mask), kept)


def _picked_rows(ragged: RaggedTensor, rows: Tensor) -> RaggedTensor:
    """Rows of a ragged tensor, by number."""
    lengths = gather.gather(ragged.row_lengths(), rows)
    starts = gather.gather(ragged.row_starts(), rows)
    frame = frame_of(lengths)
    places = _places_in_rows(frame) + gather.gather(starts, frame.value_rowids())
    values = ragged.values
    picked = (
        _picked_rows(values, places)
        if isinstance(values, RaggedTensor)
        else gather.gather(values, places)
    )
    return RaggedTensor(picked, frame.row_splits, True, ragged.uniform_row_length)


picked_rows = _picked_rows
places_in_rows = _places_in_rows
