"""What elements of datasets are, as `element_spec` says it."""

from typing import Any

from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.specs import TensorSpec
from millrace.core.tensor import Tensor
from millrace.data import structure
from millrace.data.structure import (
    ArrayLeaf,
    DatasetLeaf,
    NoneLeaf,
    OptionalLeaf,
    RaggedLeaf,
    SparseLeaf,
    TensorLeaf,
    map_leaves,
)
from millrace.graph.convert import convert_to_tensor, make_array
from millrace.graph.sparse import IndexedSlices, SparseTensor
from millrace.graph.sparse_spec import IndexedSlicesSpec, SparseTensorSpec
from millrace.ops.ragged.spec import RaggedTensorSpec
from millrace.ops.tensor_array import TensorArraySpec


class NoneTensorSpec:
    """What None is."""

    def is_compatible_with(self, spec_or_value: Any) -> bool:
        """Whether it is None, or the spec of it."""
        return spec_or_value is None or isinstance(spec_or_value, NoneTensorSpec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NoneTensorSpec)

    def __hash__(self) -> int:
        return hash(NoneTensorSpec)

    def __repr__(self) -> str:
        return "NoneTensorSpec()"


class _OfElements:
    """A spec of something that has elements."""

    def __init__(self, element_spec: Any):
        self._element_spec = element_spec

    def is_compatible_with(self, spec_or_value: Any) -> bool:
        """Whether another spec, or a value, is of the kind and has such elements."""
        other = spec_or_value
        if not isinstance(other, type(self)):
            element = getattr(other, "element_spec", None)
            if element is None:
                return False
            other = type(self)(element)
        mine, given = structure.flatten(self._element_spec), structure.flatten(other._element_spec)
        return len(mine) == len(given) and all(
            a.is_compatible_with(b) for a, b in zip(mine, given, strict=True)
        )

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._element_spec == other._element_spec  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash((type(self), repr(self._element_spec)))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._element_spec!r})"


@export(v1=("data.DatasetSpec", "data.experimental.DatasetStructure"), v2="data.DatasetSpec")
class DatasetSpec(_OfElements):
    """What a dataset is: the spec of its elements."""

    def __init__(self, element_spec: Any, dataset_shape: Any = ()):
        super().__init__(element_spec)
        self._dataset_shape = TensorShape(dataset_shape)

    @property
    def element_spec(self) -> Any:
        """The spec of its elements."""
        return self._element_spec


@export(v2="data.IteratorSpec")
class IteratorSpec(_OfElements):
    """What an iterator is: the spec of its elements."""

    @property
    def element_spec(self) -> Any:
        """The spec of its elements."""
        return self._element_spec


@export(v1="OptionalSpec", v2="OptionalSpec")
class OptionalSpec(_OfElements):
    """What an element that may be missing is."""

    @property
    def element_spec(self) -> Any:
        """The spec of the element."""
        return self._element_spec


def spec_of_leaves(leaves: Any) -> Any:
    """The spec of elements whose leaves are known."""
    return map_leaves(_spec_of, leaves)


def _spec_of(leaf: Any) -> Any:
    if isinstance(leaf, DatasetLeaf):
        return DatasetSpec(spec_of_leaves(leaf.spec))
    if isinstance(leaf, OptionalLeaf):
        return OptionalSpec(spec_of_leaves(leaf.spec))
    if isinstance(leaf, SparseLeaf):
        return SparseTensorSpec(leaf.shape, leaf.dtype)
    if isinstance(leaf, RaggedLeaf):
        return RaggedTensorSpec(leaf.shape, leaf.dtype, leaf.ragged_rank, leaf.splits_dtype)
    if isinstance(leaf, ArrayLeaf):
        return TensorArraySpec(leaf.shape, leaf.dtype, leaf.dynamic_size, leaf.infer_shape)
    if isinstance(leaf, NoneLeaf):
        return NoneTensorSpec()
    return TensorSpec(leaf.shape, leaf.dtype)


def leaves_of_spec(spec: Any) -> Any:
    """The leaves of elements that a spec describes. TypeError for what is no spec."""

    def leaf(part: Any) -> Any:
        if isinstance(part, TensorSpec):
            return TensorLeaf(part.dtype, part.shape)
        if isinstance(part, SparseTensorSpec):
            return SparseLeaf(part.dtype, part.shape)
        if isinstance(part, RaggedTensorSpec):
            return RaggedLeaf(part.dtype, part.shape, part.ragged_rank, part.row_splits_dtype)
        if isinstance(part, DatasetSpec):
            return DatasetLeaf(structure.dataset_class[0], leaves_of_spec(part.element_spec))
        if isinstance(part, OptionalSpec):
            return OptionalLeaf(structure.optional_class[0], leaves_of_spec(part.element_spec))
        if isinstance(part, TensorArraySpec):
            return ArrayLeaf(part.dtype, part.element_shape, part.dynamic_size, part.infer_shape)
        if part is None or isinstance(part, NoneTensorSpec):
            return NoneLeaf()
        if isinstance(part, TensorLeaf):
            return part
        raise TypeError(
            f"expected a structure of `tf.TypeSpec` objects, got {part!r}: "
            "TensorSpec(shape, dtype), SparseTensorSpec, RaggedTensorSpec, DatasetSpec ..."
        )

    return map_leaves(leaf, spec)


@export(v1="data.experimental.get_structure", v2="data.experimental.get_structure")
def get_structure(dataset_or_iterator: Any) -> Any:
    """The spec of the elements of a dataset or an iterator."""
    try:
        return dataset_or_iterator.element_spec
    except AttributeError:
        raise TypeError(
            "`dataset_or_iterator` must be a `tf.data.Dataset` or tf.data.Iterator object, but "
            f"got {type(dataset_or_iterator)}."
        ) from None


def value_spec(value: Any) -> Any:
    """The spec of a value of a program: what a dataset of it would have."""
    converted = structure.leaf_values(value)
    return spec_of_leaves(map_leaves(structure.leaf_of, converted))


@export(v1="type_spec_from_value", v2="type_spec_from_value")
def type_spec_from_value(value: Any) -> Any:
    """The spec of a value: of a tensor, sparse or ragged tensor, IndexedSlices, a dataset or what
    becomes a tensor. TypeError for anything else."""
    if isinstance(value, SparseTensor):
        return SparseTensorSpec.from_value(value)
    if isinstance(value, IndexedSlices):
        return IndexedSlicesSpec.from_value(value)
    if hasattr(value, "nested_row_splits"):
        return RaggedTensorSpec.from_value(value)
    if hasattr(value, "element_spec"):
        return DatasetSpec(value.element_spec)
    if isinstance(value, Tensor) or hasattr(value, "_as_tensor"):
        return TensorSpec(value.shape, value.dtype)
    try:
        array = make_array(value, None)
    except (TypeError, ValueError):
        array = None
    if array is None or (array.dtype == object and not isinstance(value, (str, bytes))):
        raise TypeError(f"Could not build a TypeSpec for {value!r} of type {type(value)}.")
    return TensorSpec(array.shape, convert_to_tensor(value).dtype)
