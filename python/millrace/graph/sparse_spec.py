"""What sparse tensors and IndexedSlices must be like."""

from typing import Any

from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.specs import TensorSpec, TypeSpec
from millrace.graph.sparse import IndexedSlices, SparseTensor


@export(v1="SparseTensorSpec", v2="SparseTensorSpec")
class SparseTensorSpec(TypeSpec):
    """The type and shape of sparse tensors."""

    __slots__ = ("_dtype", "_shape")

    def __init__(self, shape: Any = None, dtype: Any = dtypes.float32):
        self._shape = TensorShape(shape)
        self._dtype = dtypes.as_dtype(dtype)

    @property
    def dtype(self) -> dtypes.DType:
        """The type of the elements."""
        return self._dtype

    @property
    def shape(self) -> TensorShape:
        """What is known of the shape."""
        return self._shape

    @classmethod
    def from_value(cls, value: Any) -> "SparseTensorSpec":
        """The type and shape of a sparse tensor."""
        return cls(value.shape, value.dtype)

    @property
    def value_type(self) -> type:
        """The class of the values."""
        return SparseTensor

    # A spec stands for a value where functions are traced: see eager/arguments.py.

    def _parts(self) -> list[TensorSpec]:
        """The specs of the tensors that such values are made of."""
        rank = self._shape.ndims
        return [
            TensorSpec([None, rank], dtypes.int64), TensorSpec([None], self._dtype),
            TensorSpec([rank], dtypes.int64),
        ]  # fmt: skip

    def _from_parts(self, parts: list[Any]) -> SparseTensor:
        return SparseTensor(*parts)

    def is_compatible_with(self, spec_or_value: Any) -> bool:
        """Whether a sparse tensor, or another spec, is of the type and may have the shape."""
        if not hasattr(spec_or_value, "dense_shape") and not isinstance(
            spec_or_value, SparseTensorSpec
        ):
            return False
        return self._dtype.is_compatible_with(
            spec_or_value.dtype
        ) and self._shape.is_compatible_with(spec_or_value.shape)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, SparseTensorSpec)
            and self._dtype is other._dtype
            and str(self._shape) == str(other._shape)
        )

    def __hash__(self) -> int:
        return hash((str(self._shape), self._dtype))

    def __repr__(self) -> str:
        return f"SparseTensorSpec({self._shape!r}, {self._dtype!r})"


@export(v1="IndexedSlicesSpec", v2="IndexedSlicesSpec")
class IndexedSlicesSpec(TypeSpec):
    """The type and shape of IndexedSlices.

    Args:
      shape: of the whole.
      dense_shape_dtype: the type of `dense_shape`; None where there is none.
      indices_shape: how many rows are given, a vector of one size.
    """

    __slots__ = ("_dense_shape_dtype", "_dtype", "_indices_dtype", "_indices_shape", "_shape")

    def __init__(
        self, shape: Any = None, dtype: Any = dtypes.float32, indices_dtype: Any = dtypes.int64,
        dense_shape_dtype: Any = None, indices_shape: Any = None,
    ):  # fmt: skip
        self._shape = TensorShape(shape)
        self._dtype = dtypes.as_dtype(dtype)
        self._indices_dtype = dtypes.as_dtype(indices_dtype)
        self._dense_shape_dtype = None
        if dense_shape_dtype is not None:
            self._dense_shape_dtype = dtypes.as_dtype(dense_shape_dtype)
        self._indices_shape = TensorShape(indices_shape).with_rank(1)

    @property
    def dtype(self) -> dtypes.DType:
        """The type of the elements."""
        return self._dtype

    @property
    def shape(self) -> TensorShape:
        """What is known of the shape of the whole."""
        return self._shape

    @property
    def value_type(self) -> type:
        """The class of the values."""
        return IndexedSlices

    @classmethod
    def from_value(cls, value: IndexedSlices) -> "IndexedSlicesSpec":
        """The type and shape of IndexedSlices."""
        rows = value.values.shape
        shape = TensorShape([None]).concatenate(rows[1:]) if rows.ndims else TensorShape(None)
        whole = value.dense_shape
        if whole is not None:
            shape = shape.merge_with(value.shape)
        return cls(
            shape, value.dtype, value.indices.dtype, None if whole is None else whole.dtype,
            value.indices.shape,
        )  # fmt: skip

    def is_compatible_with(self, spec_or_value: Any) -> bool:
        """Whether IndexedSlices, or another spec, are of the type and may have the shape."""
        other = spec_or_value
        if isinstance(other, IndexedSlices):
            other = IndexedSlicesSpec.from_value(other)
        return (
            isinstance(other, IndexedSlicesSpec)
            and self._types() == other._types()
            and self._shape.is_compatible_with(other._shape)
            and self._indices_shape.is_compatible_with(other._indices_shape)
        )

    # A spec stands for a value where functions are traced: see eager/arguments.py.

    def _parts(self) -> list[TensorSpec]:
        """The specs of the tensors that such values are made of."""
        rest = self._shape[1:] if self._shape.ndims else TensorShape(None)
        parts = [
            TensorSpec(self._indices_shape.concatenate(rest), self._dtype),
            TensorSpec(self._indices_shape, self._indices_dtype),
        ]
        if self._dense_shape_dtype is not None:
            parts.append(TensorSpec([self._shape.ndims], self._dense_shape_dtype))
        return parts

    def _from_parts(self, parts: list[Any]) -> IndexedSlices:
        return IndexedSlices(*parts)

    def _types(self) -> Any:
        return self._dtype, self._indices_dtype, self._dense_shape_dtype

    def _key(self) -> Any:
        return str(self._shape), self._types(), str(self._indices_shape)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IndexedSlicesSpec) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return (
            f"IndexedSlicesSpec({self._shape!r}, {self._dtype!r}, {self._indices_dtype!r}, "
            f"{self._dense_shape_dtype!r}, {self._indices_shape!r})"
        )
