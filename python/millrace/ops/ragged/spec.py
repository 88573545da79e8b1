"""What a ragged tensor must be like."""

from typing import Any

from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.specs import TensorSpec
from millrace.core.tensor import Tensor
from millrace.ops.ragged.tensor import RaggedTensor


@export(v1="RaggedTensorSpec", v2="RaggedTensorSpec")
class RaggedTensorSpec:
    """The type and shape of ragged tensors, and how many of their dimensions are ragged. Of rank 0
    it is the spec of a tensor.

    Args:
      shape: None for dimensions that are ragged, or not known.
      ragged_rank: all dimensions after the first by default.
    """

    __slots__ = ("_dtype", "_ragged_rank", "_row_splits_dtype", "_shape")

    def __init__(
        self, shape: Any = None, dtype: Any = dtypes.float32, ragged_rank: int | None = None,
        row_splits_dtype: Any = dtypes.int64, flat_values_spec: Any = None,
    ):  # fmt: skip
        self._shape = TensorShape(shape)
        self._row_splits_dtype = dtypes.as_dtype(row_splits_dtype)
        if flat_values_spec is not None:
            dtype = flat_values_spec.dtype
        self._dtype = dtypes.as_dtype(dtype)
        rank = self._shape.ndims
        if ragged_rank is None:
            if rank is None:
                raise ValueError("Must specify ragged_rank or a shape with a known rank.")
            ragged_rank = rank - 1
        if not isinstance(ragged_rank, int):
            raise TypeError(f"Argument `ragged_rank` must be an int. Received {ragged_rank}.")
        if ragged_rank < 0 and rank != 0:
            raise ValueError(
                f"Argument `ragged_rank` must not be negative. Received {ragged_rank}."
            )
        if rank is not None and ragged_rank >= rank and rank > 0:
            raise ValueError(
                f"Argument `ragged_rank` ({ragged_rank}) must be less than rank ({rank})."
            )
        self._ragged_rank = max(ragged_rank, 0)

    @property
    def dtype(self) -> dtypes.DType:
        """The type of the elements."""
        return self._dtype

    @property
    def shape(self) -> TensorShape:
        """What is known of the shape."""
        return self._shape

    @property
    def ragged_rank(self) -> int:
        """How many dimensions are ragged."""
        return self._ragged_rank

    @property
    def row_splits_dtype(self) -> dtypes.DType:
        """The type of the row splits."""
        return self._row_splits_dtype

    @property
    def flat_values_spec(self) -> TensorSpec:
        """The spec of the elements one after the other."""
        return self._parts()[0]

    @property
    def value_type(self) -> type:
        """The class of the values."""
        return RaggedTensor if self._ragged_rank > 0 else Tensor

    @classmethod
    def from_value(cls, value: Any) -> "RaggedTensorSpec":
        """The type and shape of a ragged tensor, or of a tensor."""
        if isinstance(value, RaggedTensor):
            return cls(value.shape, value.dtype, value.ragged_rank, value.row_splits.dtype)
        return cls(value.shape, value.dtype, 0)

    def is_compatible_with(self, spec_or_value: Any) -> bool:
        """Whether a ragged tensor, or another spec, is of the type and may have the shape."""
        other = spec_or_value
        if isinstance(other, (RaggedTensor, Tensor)):
            other = RaggedTensorSpec.from_value(other)
        return (
            isinstance(other, RaggedTensorSpec)
            and self._dtype is other._dtype
            and self._ragged_rank == other._ragged_rank
            and (self._ragged_rank == 0 or self._row_splits_dtype is other._row_splits_dtype)
            and self._shape.is_compatible_with(other._shape)
        )

    # A spec stands for a value where functions are traced: see eager/arguments.py.

    def _parts(self) -> list[TensorSpec]:
        """The specs of the tensors that such values are made of."""
        sizes = self._shape.as_list() if self._shape.ndims is not None else None
        if self._ragged_rank == 0:
            return [TensorSpec(self._shape, self._dtype)]
        inner = None if sizes is None else [None, *sizes[self._ragged_rank + 1 :]]
        rows = None if sizes is None or sizes[0] is None else sizes[0] + 1
        splits = [TensorSpec([rows], self._row_splits_dtype)]
        splits += [TensorSpec([None], self._row_splits_dtype)] * (self._ragged_rank - 1)
        return [TensorSpec(inner, self._dtype), *splits]

    def _from_parts(self, parts: list[Any]) -> Any:
        if self._ragged_rank == 0:
            return parts[0]
        return RaggedTensor.from_nested_row_splits(parts[0], parts[1:], validate=False)

    def _key(self) -> Any:
        return str(self._shape), self._dtype, self._ragged_rank, self._row_splits_dtype

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RaggedTensorSpec) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        sizes = self._shape.as_list() if self._shape.ndims is not None else None
        return (
            f"RaggedTensorSpec(TensorShape({sizes}), {self._dtype!r}, {self._ragged_rank}, "
            f"{self._row_splits_dtype!r})"
        )

    def __reduce__(self) -> Any:
        sizes = None if self._shape.ndims is None else self._shape.as_list()
        return RaggedTensorSpec, (
            sizes, self._dtype.name, self._ragged_rank, self._row_splits_dtype.name,
        )  # fmt: skip
