"""Tensors in parts: IndexedSlices (rows of a tensor) and SparseTensor."""

from collections import namedtuple
from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor, register_tensor_conversion_function
from millrace.graph.default_graph import name_scope
from millrace.graph.default_session import session_for
from millrace.graph.fetches import register_session_run_conversion_functions
from millrace.graph.graph import Graph
from millrace.graph.operation import Operation
from millrace.graph.static_value import constant_value, constant_value_as_shape

IndexedSlicesValue = export(v1="IndexedSlicesValue")(
    namedtuple("IndexedSlicesValue", ["values", "indices", "dense_shape"])
)
SparseTensorValue = export(v1="SparseTensorValue")(
    namedtuple("SparseTensorValue", ["indices", "values", "dense_shape"])
)


@export(v1="IndexedSlices", v2="IndexedSlices")
class IndexedSlices:
    """Rows of a tensor: `values[i]` stands at `indices[i]` of dimension 0, zeros elsewhere.

    The form of gradients of gathered rows. Where it is used as a tensor it becomes dense.
    """

    _parts_never_change = True  # a run may be kept by the object

    def __init__(self, values: Tensor, indices: Tensor, dense_shape: Tensor | None = None):
        self._values = values
        self._indices = indices
        self._dense_shape = dense_shape

    @property
    def values(self) -> Tensor:
        """The rows."""
        return self._values

    @property
    def indices(self) -> Tensor:
        """Where the rows stand."""
        return self._indices

    @property
    def dense_shape(self) -> Tensor | None:
        """The shape of the whole, where it is known."""
        return self._dense_shape

    @property
    def name(self) -> str:
        """The name of the values."""
        return self._values.name

    @property
    def device(self) -> str:
        """The device of the values."""
        return self._values.device

    @property
    def op(self) -> Operation:
        """The operation that makes the values."""
        return self._values.op

    @property
    def dtype(self) -> dtypes.DType:
        """The type of the elements."""
        return self._values.dtype

    @property
    def graph(self) -> Graph:
        """The graph of the values."""
        return self._values.graph

    @property
    def shape(self) -> TensorShape:
        """What is known of the shape of the whole."""
        if self._dense_shape is None:
            return TensorShape(None)
        return constant_value_as_shape(self._dense_shape)

    def _parts(self) -> list[Any]:
        parts = [self._values, self._indices]
        return parts if self._dense_shape is None else [*parts, self._dense_shape]

    def _from_parts(self, parts: list[Any]) -> "IndexedSlices":
        return IndexedSlices(*parts)

    def __neg__(self) -> "IndexedSlices":
        return IndexedSlices(-self.values, self.indices, self.dense_shape)

    def __str__(self) -> str:
        shape = "" if self._dense_shape is None else f", dense_shape={self._dense_shape!s}"
        return f"IndexedSlices(indices={self._indices!s}, values={self._values!s}{shape})"

    __repr__ = __str__


@export(v1=("SparseTensor", "sparse.SparseTensor"), v2=("SparseTensor", "sparse.SparseTensor"))
class SparseTensor:
    """A tensor of which only some elements are given: `values[i]` at `indices[i]`.

    Args:
      indices: [N, rank] int64.
      values: [N].
      dense_shape: [rank] int64, the shape of the whole.
    """

    _parts_never_change = True  # a run may be kept by the object
    _operators_first = True  # of `tensor * sparse`, this one decides

    def __init__(self, indices: Any, values: Any, dense_shape: Any):
        with name_scope(None, "SparseTensor", [indices, values, dense_shape]):
            self._indices = convert_to_tensor(indices, name="indices", dtype=dtypes.int64)
            self._values = convert_to_tensor(values, name="values")
            self._dense_shape = convert_to_tensor(
                dense_shape, name="dense_shape", dtype=dtypes.int64
            )
        indices_shape = self._indices.shape.with_rank(2)
        values_shape = self._values.shape.with_rank(1)
        dense_shape_shape = self._dense_shape.shape.with_rank(1)
        indices_shape[:1].merge_with(values_shape)
        indices_shape[1:].merge_with(dense_shape_shape)

    @classmethod
    def from_value(cls, sparse_tensor_value: Any) -> "SparseTensor":
        """From a SparseTensor (itself) or a SparseTensorValue. TypeError for anything else."""
        if isinstance(sparse_tensor_value, SparseTensor):
            return sparse_tensor_value
        if isinstance(sparse_tensor_value, SparseTensorValue):
            return cls(*sparse_tensor_value)
        raise TypeError(
            "Neither a SparseTensor nor SparseTensorValue: "
            f"{sparse_tensor_value} of type {type(sparse_tensor_value).__name__}."
        )

    @property
    def indices(self) -> Tensor:
        """Where the values stand."""
        return self._indices

    @property
    def values(self) -> Tensor:
        """The elements that are given."""
        return self._values

    @property
    def dense_shape(self) -> Tensor:
        """The shape of the whole."""
        return self._dense_shape

    @property
    def op(self) -> Operation:
        """The operation that makes the values."""
        return self._values.op

    @property
    def dtype(self) -> dtypes.DType:
        """The type of the elements."""
        return self._values.dtype

    @property
    def graph(self) -> Graph:
        """The graph of the values."""
        return self._values.graph

    @property
    def shape(self) -> TensorShape:
        """What is known of the shape of the whole."""
        known = constant_value_as_shape(self._dense_shape)
        return known if known.is_fully_defined() else known.merge_with(self._declared_shape)

    # What is known beside what the dense shape says.
    _declared_shape = TensorShape(None)

    def get_shape(self) -> TensorShape:
        """As `shape`."""
        return self.shape

    def eval(self, feed_dict: Any = None, session: Any = None) -> Any:
        """Its SparseTensorValue, computed in the session given or in the default one."""
        indices, values, dense_shape = self._run(
            (self._indices, self._values, self._dense_shape), feed_dict, session
        )
        return SparseTensorValue(indices, values, dense_shape)

    def _parts(self) -> list[Any]:
        return [self._indices, self._values, self._dense_shape]

    def _from_parts(self, parts: list[Any]) -> "SparseTensor":
        if all(isinstance(part, Tensor) for part in parts):
            return SparseTensor(*parts)
        made = SparseTensor.__new__(SparseTensor)  # of what stands for tensors
        made._indices, made._values, made._dense_shape = parts
        return made

    def _run(self, fetches: Any, feed_dict: Any, session: Any) -> Any:
        return session_for(session, self.graph, "evaluate this tensor").run(fetches, feed_dict)

    def with_values(self, new_values: Any) -> "SparseTensor":
        """Another one with these values, at the same indices."""
        return SparseTensor(self._indices, new_values, self._dense_shape)

    def __str__(self) -> str:
        return (
            f"SparseTensor(indices={self._indices!s}, values={self._values!s}, "
            f"dense_shape={self._dense_shape!s})"
        )

    __repr__ = __str__


def _slices_to_tensor(value: Any, dtype: Any = None, name: Any = None, as_ref: bool = False) -> Any:
    del as_ref
    if dtype is not None and not dtypes.as_dtype(dtype).is_compatible_with(value.dtype):
        raise ValueError(
            f"Tensor conversion requested dtype {dtypes.as_dtype(dtype).name} for "
            "IndexedSlices with "
            f"dtype {value.dtype.name}"
        )
    if value.dense_shape is None:
        raise ValueError(
            f"Tensor conversion requested for IndexedSlices without dense_shape: {value}"
        )
    rows = value.dense_shape[0]
    return gen_ops.unsorted_segment_sum(value.values, value.indices, rows, name=name)


register_tensor_conversion_function(IndexedSlices, _slices_to_tensor)


def _no_sparse(value: Any, dtype: Any = None, name: Any = None, as_ref: bool = False) -> Any:
    raise TypeError(
        f"Failed to convert the SparseTensor {value} to a dense tensor: use "
        "tf.sparse_tensor_to_dense"
    )


register_tensor_conversion_function(SparseTensor, _no_sparse)


def _feed_sparse(t: SparseTensor, v: Any) -> Any:
    """The shape need not be fed where it is a constant."""
    parts = list(v)
    shape = constant_value(t.dense_shape) if len(parts) == 2 else None
    if shape is not None:
        parts.append(shape)
    if len(parts) != 3:
        raise ValueError(
            "A SparseTensor is fed a SparseTensorValue or a tuple (indices, values, dense_shape), "
            f"got {len(parts)} values"
        )
    return list(zip([t.indices, t.values, t.dense_shape], parts, strict=True))


register_session_run_conversion_functions(
    SparseTensor,
    lambda t: ([t.indices, t.values, t.dense_shape], lambda v: SparseTensorValue(*v)),
    _feed_sparse,
)


def _fetch_slices(t: IndexedSlices) -> Any:
    parts = [t.values, t.indices] + ([] if t.dense_shape is None else [t.dense_shape])
    return parts, lambda v: IndexedSlicesValue(*(list(v) + [None])[:3])


def _feed_slices(t: IndexedSlices, v: Any) -> Any:
    parts = [t.values, t.indices] + ([] if t.dense_shape is None else [t.dense_shape])
    return list(zip(parts, list(v)[: len(parts)], strict=True))


register_session_run_conversion_functions(IndexedSlices, _fetch_slices, _feed_slices)


@export(v1="convert_to_tensor_or_sparse_tensor")
def convert_to_tensor_or_sparse_tensor(
    value: Any, dtype: Any = None, name: str | None = None
) -> Any:
    """The value as a SparseTensor where it is one, else as a Tensor."""
    if dtype is not None:
        dtype = dtypes.as_dtype(dtype)
    if isinstance(value, SparseTensorValue):
        value = SparseTensor.from_value(value)
    if isinstance(value, SparseTensor):
        if dtype is not None and not dtype.is_compatible_with(value.dtype):
            raise RuntimeError(
                f"Sparse dtype: requested = {dtype.name}, actual = {value.dtype.name}"
            )
        return value
    return convert_to_tensor(value, dtype=dtype, name=name)


@export(v1="convert_to_tensor_or_indexed_slices")
def convert_to_tensor_or_indexed_slices(
    value: Any, dtype: Any = None, name: str | None = None
) -> Any:
    """As `convert_to_tensor`, but leaves IndexedSlices and sparse tensors as they are."""
    if isinstance(value, SparseTensorValue):
        return SparseTensor.from_value(value)
    if isinstance(value, (IndexedSlices, SparseTensor)):
        if dtype is not None and not dtypes.as_dtype(dtype).is_compatible_with(value.dtype):
            raise ValueError(
                f"Tensor conversion requested dtype {dtypes.as_dtype(dtype).name} for Tensor with "
                f"dtype {value.dtype.name}: {value}"
            )
        return value
    return convert_to_tensor(value, dtype, name)


@export(v1=("is_tensor", "contrib.framework.is_tensor"), v2="is_tensor")
def is_tensor(x: Any) -> bool:
    """Whether x is a Tensor, a variable, or made of tensors: sparse, ragged."""
    return (
        isinstance(x, (Tensor, SparseTensor, IndexedSlices))
        or hasattr(x, "_as_graph_element")
        or hasattr(x, "_parts")
    )
