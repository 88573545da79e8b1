"""What a tensor must be like."""

from typing import Any

from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.shapes import TensorShape


@export(v2="TensorSpec")
class TensorSpec:
    """The type and shape of tensors: what a function asks of an argument."""

    __slots__ = ("_dtype", "_name", "_shape")

    def __init__(self, shape: Any, dtype: Any = dtypes.float32, name: str | None = None):
        self._shape = TensorShape(shape)
        self._dtype = dtypes.as_dtype(dtype)
        self._name = name

    @classmethod
    def from_tensor(cls, tensor: Any, name: str | None = None) -> "TensorSpec":
        """The type and shape of a tensor."""
        return cls(tensor.shape, tensor.dtype, name)

    @property
    def shape(self) -> TensorShape:
        """What is known of the shape."""
        return self._shape

    @property
    def dtype(self) -> dtypes.DType:
        """The type of the elements."""
        return self._dtype

    @property
    def name(self) -> str | None:
        """A name for the argument, or None."""
        return self._name

    def is_compatible_with(self, spec_or_value: Any) -> bool:
        """Whether a tensor, or another spec, is of the type and may have the shape."""
        return self._dtype.is_compatible_with(
            spec_or_value.dtype
        ) and self._shape.is_compatible_with(spec_or_value.shape)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TensorSpec)
            and self._dtype is other._dtype
            and str(self._shape) == str(other._shape)
            and self._name == other._name
        )

    def __hash__(self) -> int:
        return hash((str(self._shape), self._dtype))

    def __repr__(self) -> str:
        return f"TensorSpec(shape={self._shape}, dtype={self._dtype!r}, name={self._name!r})"

    def __reduce__(self) -> Any:
        sizes = None if self._shape.ndims is None else self._shape.as_list()
        return TensorSpec, (sizes, self._dtype.name, self._name)
