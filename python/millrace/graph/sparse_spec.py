"""What a sparse tensor must be like."""

from typing import Any

from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.specs import TensorSpec, TypeSpec
from millrace.graph.sparse import SparseTensor


@export(v1="SparseTensorSpec", v2="SparseTensorSpec")
class SparseTensorSpec:
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
        return f"SparseTensorSpec({self._shape}, {self._dtype!r})"


TypeSpec.register(SparseTensorSpec)
