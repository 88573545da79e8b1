"""What a tensor must be like."""

from abc import ABC
from typing import Any, Iterable

from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.shapes import TensorShape


@export(v1="TypeSpec", v2="TypeSpec")
class TypeSpec(ABC):  # noqa: B024 (classes of other parts register with it)
    """What tensors, or values made of tensors, must be like: the base of all such classes."""

    __slots__ = ()


@export(v1="TensorSpec", v2="TensorSpec")
class TensorSpec(TypeSpec):
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

    @classmethod
    def from_spec(cls, spec: Any, name: str | None = None) -> "TensorSpec":
        """The same type and shape, by another name where one is given."""
        return cls(spec.shape, spec.dtype, name or spec.name)

    @property
    def value_type(self) -> Any:
        """The class of what it is a spec of."""
        from millrace.core.tensor import Tensor  # late: specs are made without tensors

        return Tensor

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

    def is_subtype_of(self, other: Any) -> bool:
        """Whether all that is like this is like `other` too."""
        return (
            isinstance(other, TensorSpec)
            and self._dtype is other._dtype
            and self._shape.is_subtype_of(other._shape)
            and other._name in (None, self._name)
        )

    def most_specific_common_supertype(self, others: Iterable[Any]) -> "TensorSpec | None":
        """The most that can be said of what is like this or like one of `others`; None where they
        have nothing in common."""
        others = list(others)
        if any(not isinstance(o, TensorSpec) or o._dtype is not self._dtype for o in others):
            return None
        shape = self._shape.most_specific_common_supertype([o._shape for o in others])
        name = self._name if all(o._name == self._name for o in others) else None
        return TensorSpec(shape, self._dtype, name)

    def most_specific_compatible_type(self, other: Any) -> "TensorSpec":
        """As `most_specific_common_supertype` with one other. ValueError where there is none."""
        found = self.most_specific_common_supertype([other])
        if found is None:
            raise ValueError(f"No TypeSpec is compatible with both {self} and {other}")
        return found

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
