"""Specs of values: what a value is like."""

from typing import Any

import numpy as np

from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.specs import TensorSpec, TypeSpec
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor, make_array
from millrace.graph.sparse import IndexedSlices, SparseTensor
from millrace.graph.sparse_spec import SparseTensorSpec


@export(v1="IndexedSlicesSpec", v2="IndexedSlicesSpec")
class IndexedSlicesSpec(TypeSpec):
    """The types and shapes of IndexedSlices.

    Args:
      shape: of the whole; `dtype`: of the values.
      indices_dtype, indices_shape: of the indices.
      dense_shape_dtype: of the shape of the whole, None where there is none.
    """

    __slots__ = ("_dense_shape_dtype", "_dtype", "_indices_dtype", "_indices_shape", "_shape")
    value_type = IndexedSlices

    def __init__(
        self, shape: Any = None, dtype: Any = dtypes.float32, indices_dtype: Any = dtypes.int64,
        dense_shape_dtype: Any = None, indices_shape: Any = None,
    ):  # fmt: skip
        self._shape = TensorShape(shape)
        self._dtype = dtypes.as_dtype(dtype)
        self._indices_dtype = dtypes.as_dtype(indices_dtype)
        self._dense_shape_dtype = (
            None if dense_shape_dtype is None else dtypes.as_dtype(dense_shape_dtype)
        )
        self._indices_shape = TensorShape(indices_shape).with_rank(1)

    @property
    def shape(self) -> TensorShape:
        """What is known of the shape of the whole."""
        return self._shape

    @property
    def dtype(self) -> dtypes.DType:
        """The type of the values."""
        return self._dtype

    def is_compatible_with(self, spec_or_value: Any) -> bool:
        """Whether slices, or another spec, are of these types and may have these shapes."""
        if isinstance(spec_or_value, IndexedSlices):
            spec_or_value = type_spec_from_value(spec_or_value)
        if not isinstance(spec_or_value, IndexedSlicesSpec):
            return False
        other = spec_or_value
        return (
            self._types() == other._types()
            and self._shape.is_compatible_with(other._shape)
            and self._indices_shape.is_compatible_with(other._indices_shape)
        )

    def _types(self) -> tuple[Any, ...]:
        return self._dtype, self._indices_dtype, self._dense_shape_dtype

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IndexedSlicesSpec) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        return (
            f"IndexedSlicesSpec({self._shape!r}, {self._dtype!r}, {self._indices_dtype!r}, "
            f"{self._dense_shape_dtype!r}, {self._indices_shape!r})"
        )


@export(v1="type_spec_from_value", v2="type_spec_from_value")
def type_spec_from_value(value: Any) -> Any:
    """The spec of a tensor, of a value made of tensors, or of the tensor that a value becomes.
    TypeError for other values."""
    if isinstance(value, SparseTensor):
        return SparseTensorSpec(value.shape, value.dtype)
    if isinstance(value, IndexedSlices):
        whole = None if value.dense_shape is None else value.dense_shape.dtype
        indices = value.indices
        shape = TensorShape([None]).concatenate(value.values.shape[1:])
        if value.dense_shape is not None:
            shape = shape.merge_with(value.shape)
        return IndexedSlicesSpec(shape, value.dtype, indices.dtype, whole, indices.shape)
    own = getattr(value, "_type_spec", None)
    if own is not None:
        return own
    if isinstance(value, Tensor) or hasattr(value, "_as_tensor"):
        return TensorSpec(value.shape, value.dtype)
    try:
        array = make_array(value, None)
    except (TypeError, ValueError):
        array = None
    if array is None or (array.dtype == np.dtype(object) and not isinstance(value, (str, bytes))):
        raise TypeError(f"Could not build a TypeSpec for {value!r} of type {type(value)}.")
    return TensorSpec(array.shape, convert_to_tensor(value).dtype)
