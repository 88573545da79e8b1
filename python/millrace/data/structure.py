"""What elements of datasets are made of: structures of tensors, sparse tensors, datasets and such.

Tuples, named tuples and dictionaries are structures; everything else, lists included, is a leaf. In
the graph an element is a flat list of tensors, one for each leaf.
"""

from collections.abc import Mapping
from typing import Any

from millrace import gen_ops
from millrace.core import dtypes, nest
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.sparse import SparseTensor, SparseTensorValue
from millrace.ops.ragged.tensor import RaggedTensor
from millrace.ops.ragged.tensor import from_value as from_ragged_value
from millrace.ops.ragged.value import RaggedTensorValue
from millrace.ops.tensor_array import TensorArray


class TensorLeaf:
    """A leaf that is a tensor."""

    cls: Any = Tensor

    def __init__(self, dtype: Any, shape: Any):
        self.dtype = dtypes.as_dtype(dtype).base_dtype
        self.shape = shape if isinstance(shape, TensorShape) else TensorShape(shape)

    @property
    def component(self) -> tuple[dtypes.DType, TensorShape]:
        """The type and shape of the tensor that stands for it in the graph."""
        return self.dtype, self.shape

    def to_tensor(self, value: Any) -> Tensor:
        """The tensor that stands for a value."""
        return convert_to_tensor(value)

    def to_rows(self, value: Any) -> Tensor:
        """The tensor whose rows stand for the rows of a value."""
        return convert_to_tensor(value)

    def from_tensor(self, tensor: Tensor) -> Any:
        """The value that a tensor stands for."""
        tensor.set_shape(self.shape)
        return tensor

    # What Python hands over, a generator for instance: arrays of known types.

    @property
    def parts(self) -> list[tuple[dtypes.DType, TensorShape]]:
        """The types and shapes of the tensors that a value is made of."""
        return [self.component]

    def to_parts(self, value: Any) -> list[Tensor]:
        """The tensors that a value is made of."""
        return [self.to_tensor(value)]

    def from_parts(self, parts: list[Tensor]) -> Any:
        """The value that is made of tensors."""
        return self.from_tensor(parts[0])

    def batched(self, size: int | None) -> Any:
        """What it is in a batch of so many elements."""
        return type(self)(self.dtype, TensorShape([size]).concatenate(self.shape))

    def in_rows(self) -> Any:
        """The same leaf where `to_rows` has made a tensor with rows of it."""
        return self

    def unbatched(self) -> Any:
        """What a row of it is."""
        if self.shape.rank == 0:
            raise ValueError("Cannot take rows of a scalar: elements must have a first dimension.")
        return type(self)(self.dtype, self.shape[1:] if self.shape.rank else None)

    def common(self, other: Any) -> Any:
        """What holds for both."""
        return type(self)(self.dtype, self.shape.most_specific_compatible_shape(other.shape))


class SparseLeaf(TensorLeaf):
    """A leaf that is a sparse tensor: three strings (or variants) in the graph, or as many for each
    row of a batch."""

    cls: Any = SparseTensor

    def __init__(self, dtype: Any, shape: Any, batches: int = 0, form: Any = dtypes.string):
        super().__init__(dtype, shape)
        self.batches = batches  # how many of its first dimensions come from batches
        self.form = form

    @property
    def component(self) -> tuple[dtypes.DType, TensorShape]:
        return self.form, TensorShape([*[None] * self.batches, 3])

    @property
    def parts(self) -> list[tuple[dtypes.DType, TensorShape]]:
        rank, count = TensorShape([self.shape.rank]), TensorShape([None])
        indices = count.concatenate(rank)
        return [(dtypes.int64, indices), (self.dtype, count), (dtypes.int64, rank)]

    def to_parts(self, value: Any) -> list[Tensor]:
        return [value.indices, value.values, value.dense_shape]

    def from_parts(self, parts: list[Tensor]) -> Any:
        made = SparseTensor(*parts)
        made._declared_shape = self.shape
        return made

    def to_tensor(self, value: Any) -> Tensor:
        parts = (value.indices, value.values, value.dense_shape)
        return gen_ops.serialize_sparse(*parts, out_type=self.form)

    def to_rows(self, value: Any) -> Tensor:
        parts = (value.indices, value.values, value.dense_shape)
        return gen_ops.serialize_many_sparse(*parts, out_type=self.form)

    def from_tensor(self, tensor: Tensor) -> Any:
        parts = list(gen_ops.deserialize_sparse(tensor, dtype=self.dtype))
        if self.shape.rank is not None:
            parts[0].set_shape([None, self.shape.rank])
            parts[2].set_shape([self.shape.rank])
        return self.from_parts(parts)

    def batched(self, size: int | None) -> Any:
        shape = TensorShape([size]).concatenate(self.shape)
        return SparseLeaf(self.dtype, shape, self.batches + 1, self.form)

    def in_rows(self) -> Any:
        return SparseLeaf(self.dtype, self.shape, max(self.batches, 1), self.form)

    def unbatched(self) -> Any:
        shape = self.shape[1:] if self.shape.rank else None
        return SparseLeaf(self.dtype, shape, max(self.batches - 1, 0), self.form)

    def common(self, other: Any) -> Any:
        shape = self.shape.most_specific_compatible_shape(other.shape)
        return SparseLeaf(self.dtype, shape, self.batches, self.form)


class RaggedLeaf(TensorLeaf):
    """A leaf that is a ragged tensor: a variant in the graph, or one for each element of a batch.
    Of ragged rank 0 it is a tensor whose size differs from element to element."""

    cls: Any = RaggedTensor

    def __init__(
        self, dtype: Any, shape: Any, ragged_rank: int, splits_dtype: Any = dtypes.int64,
        batches: int = 0,
    ):  # fmt: skip
        super().__init__(dtype, shape)
        self.ragged_rank = ragged_rank
        self.splits_dtype = dtypes.as_dtype(splits_dtype)
        self.batches = batches  # how many of its first dimensions come from batches

    def _like(self, shape: TensorShape, ragged_rank: int, batches: int) -> "RaggedLeaf":
        return RaggedLeaf(self.dtype, shape, ragged_rank, self.splits_dtype, batches)

    @property
    def component(self) -> tuple[dtypes.DType, TensorShape]:
        return dtypes.variant, TensorShape([None] * self.batches)

    @property
    def parts(self) -> list[tuple[dtypes.DType, TensorShape]]:
        if self.shape.rank is None:
            flat = TensorShape(None)
        elif self.ragged_rank == 0:
            flat = self.shape
        else:
            flat = TensorShape([None]).concatenate(self.shape[self.ragged_rank + 1 :])
        return [(self.dtype, flat)] + [
            (self.splits_dtype, TensorShape([None])) for _ in range(self.ragged_rank)
        ]

    def to_parts(self, value: Any) -> list[Tensor]:
        if not isinstance(value, RaggedTensor):
            return [convert_to_tensor(value)]
        splits = [gen_ops.cast(s, DstT=self.splits_dtype) for s in value.nested_row_splits]
        return [value.flat_values, *splits]

    def from_parts(self, parts: list[Tensor]) -> Any:
        flat, *splits = parts
        if not splits:
            return flat
        rows = self.shape.as_list()[0] if self.shape.rank else None
        splits[0].set_shape([None if rows is None else rows + 1])
        return RaggedTensor.from_nested_row_splits(flat, splits, validate=False)

    def to_tensor(self, value: Any) -> Tensor:
        flat, *splits = self.to_parts(value)
        return gen_ops.ragged_tensor_to_variant(splits, flat, False)

    def to_rows(self, value: Any) -> Tensor:
        flat, *splits = self.to_parts(value)
        return gen_ops.ragged_tensor_to_variant(splits, flat, True)

    def from_tensor(self, tensor: Tensor) -> Any:
        splits, flat = gen_ops.ragged_tensor_from_variant(
            tensor, input_ragged_rank=self.ragged_rank - self.batches,
            output_ragged_rank=self.ragged_rank, Tvalues=self.dtype, Tsplits=self.splits_dtype,
        )  # fmt: skip
        flat.set_shape(self.parts[0][1])
        return self.from_parts([flat, *splits])

    def batched(self, size: int | None) -> Any:
        shape = TensorShape([size]).concatenate(self.shape)
        return self._like(shape, self.ragged_rank + 1, self.batches + 1)

    def in_rows(self) -> Any:
        return self._like(self.shape, self.ragged_rank, max(self.batches, 1))

    def unbatched(self) -> Any:
        if self.ragged_rank == 0:
            raise ValueError("Cannot take rows of a tensor whose size differs: use from_tensor.")
        shape = self.shape[1:] if self.shape.rank else TensorShape(None)
        return self._like(shape, self.ragged_rank - 1, max(self.batches - 1, 0))

    def common(self, other: Any) -> Any:
        shape = self.shape.most_specific_compatible_shape(other.shape)
        return self._like(shape, self.ragged_rank, self.batches)


class DatasetLeaf(TensorLeaf):
    """A leaf that is a dataset."""

    def __init__(self, make: Any, spec: Any):
        super().__init__(dtypes.variant, [])
        self.make = make  # makes a dataset of a tensor and a structure
        self.spec = spec

    @property
    def cls(self) -> Any:  # type: ignore[override]
        return self.make

    def to_tensor(self, value: Any) -> Tensor:
        return value._variant_tensor

    def from_tensor(self, tensor: Tensor) -> Any:
        return self.make(tensor, self.spec)

    def batched(self, size: int | None) -> Any:
        raise TypeError("Datasets cannot be joined to batches: use flat_map to read them.")

    def common(self, other: Any) -> Any:
        return self


class OptionalLeaf(TensorLeaf):
    """A leaf that is an element that may be missing."""

    def __init__(self, make: Any, spec: Any, shape: Any = ()):
        super().__init__(dtypes.variant, shape)
        self.make = make  # makes an optional of a tensor and a structure
        self.spec = spec

    @property
    def cls(self) -> Any:  # type: ignore[override]
        return self.make

    def to_tensor(self, value: Any) -> Tensor:
        return value._variant_tensor

    to_rows = to_tensor

    def from_tensor(self, tensor: Tensor) -> Any:
        return self.make(tensor, self.spec)

    def batched(self, size: int | None) -> Any:
        shape = TensorShape([size]).concatenate(self.shape)
        return OptionalLeaf(self.make, self.spec, shape)

    def unbatched(self) -> Any:
        return OptionalLeaf(self.make, self.spec, self.shape[1:])

    def common(self, other: Any) -> Any:
        return self


class ArrayLeaf(TensorLeaf):
    """A leaf that is a TensorArray: a tensor list in the graph."""

    cls: Any = TensorArray

    def __init__(self, dtype: Any, shape: Any, dynamic_size: bool, infer_shape: bool):
        super().__init__(dtype, shape)
        self.dynamic_size = dynamic_size
        self.infer_shape = infer_shape

    @property
    def component(self) -> tuple[dtypes.DType, TensorShape]:
        return dtypes.variant, TensorShape([])

    def to_tensor(self, value: Any) -> Tensor:
        return value._as_list()

    def to_rows(self, value: Any) -> Tensor:
        raise TypeError("A TensorArray has no rows: use its stack().")

    def from_tensor(self, tensor: Tensor) -> Any:
        return TensorArray._of_list(
            tensor, self.dtype, self.shape, self.dynamic_size, self.infer_shape
        )

    def batched(self, size: int | None) -> Any:
        raise TypeError("TensorArrays cannot be joined to batches: use their stack().")

    def unbatched(self) -> Any:
        raise TypeError("A TensorArray has no rows: use its stack().")

    def common(self, other: Any) -> Any:
        shape = self.shape.most_specific_compatible_shape(other.shape)
        return ArrayLeaf(self.dtype, shape, self.dynamic_size, self.infer_shape)


class NoneLeaf(TensorLeaf):
    """A leaf that is None in every element: a bool that nobody reads."""

    cls: Any = type(None)

    def __init__(self, dtype: Any = dtypes.bool_, shape: Any = ()):
        super().__init__(dtype, shape)

    def to_tensor(self, value: Any) -> Tensor:
        if value is not None:
            raise TypeError(f"expected None, as other elements have, got {value!r}")
        return convert_to_tensor(False)

    def to_rows(self, value: Any) -> Tensor:
        raise ValueError("None has no rows.")

    def from_tensor(self, tensor: Tensor) -> Any:
        return None


# How to recognise a dataset and an optional; set by the modules that define them.
dataset_class: list[Any] = []
optional_class: list[Any] = []


def _is_structure(value: Any) -> bool:
    values = (SparseTensorValue, RaggedTensorValue)
    return isinstance(value, (tuple, Mapping)) and not isinstance(value, values)


def flatten(value: Any) -> list[Any]:
    """The leaves of a structure, in which lists are leaves."""
    if not _is_structure(value):
        return [value]
    items = value if isinstance(value, tuple) else [value[k] for k in sorted(value)]
    return [leaf for item in items for leaf in flatten(item)]


def pack(structure: Any, leaves: Any) -> Any:
    """A structure like another, with other leaves."""
    rest = iter(leaves)

    def build(part: Any) -> Any:
        if not _is_structure(part):
            return next(rest)
        if isinstance(part, tuple):
            items = [build(item) for item in part]
            return type(part)(*items) if nest.is_namedtuple(part) else tuple(items)
        made = {key: build(part[key]) for key in sorted(part)}
        return type(part)((key, made[key]) for key in part)

    return build(structure)


def map_leaves(function: Any, spec: Any) -> Any:
    """The structure of function(leaf)."""
    return pack(spec, [function(leaf) for leaf in flatten(spec)])


def leaf_values(value: Any) -> Any:
    """A structure whose leaves are tensors, sparse tensors, datasets and such, of any values."""

    def convert(leaf: Any) -> Any:
        if isinstance(leaf, SparseTensorValue):
            return SparseTensor.from_value(leaf)
        if isinstance(leaf, RaggedTensorValue):
            return from_ragged_value(leaf)
        known = (SparseTensor, RaggedTensor, TensorArray, *dataset_class, *optional_class)
        if leaf is None or isinstance(leaf, known):
            return leaf
        return convert_to_tensor(leaf)

    return map_leaves(convert, value)


def leaf_of(value: Any) -> TensorLeaf:
    """What a value, as leaf_values gives them, is."""
    if isinstance(value, SparseTensor):
        return SparseLeaf(value.dtype, value.shape)
    if isinstance(value, RaggedTensor):
        splits = value.row_splits.dtype
        return RaggedLeaf(value.dtype, value.shape, value.ragged_rank, splits)
    if isinstance(value, (*dataset_class, *optional_class)):
        return value._as_leaf()
    if isinstance(value, TensorArray):
        dynamic = bool(value.dynamic_size)
        return ArrayLeaf(value.dtype, value.element_shape, dynamic, value._infer_shape)
    if value is None:
        return NoneLeaf()
    return TensorLeaf(value.dtype, value.shape)


def to_tensors(spec: Any, value: Any) -> list[Tensor]:
    """The tensors that stand for an element."""
    return [leaf.to_tensor(v) for leaf, v in zip(flatten(spec), flatten(value), strict=True)]


def from_tensors(spec: Any, tensors: Any) -> Any:
    """The element that tensors stand for."""
    return pack(spec, [leaf.from_tensor(t) for leaf, t in zip(flatten(spec), tensors, strict=True)])


def attrs_of(spec: Any) -> dict[str, Any]:
    """The attributes of an op that makes a dataset of such elements."""
    components = [leaf.component for leaf in flatten(spec)]
    return {
        "output_types": [dtype for dtype, _ in components],
        "output_shapes": [shape for _, shape in components],
    }


def spec_of(output_types: Any, output_shapes: Any = None, output_classes: Any = None) -> Any:
    """A structure from types, shapes and classes, as programs give them. A shape is anything that
    TensorShape takes, so the types say what the structure is."""
    types = flatten(output_types)
    shapes = leaves_like(output_types, output_shapes, None, "output_shapes")
    classes = leaves_like(output_types, output_classes, Tensor, "output_classes")
    leaves = []
    for dtype, shape, cls in zip(types, shapes, classes, strict=True):
        sparse = isinstance(cls, type) and issubclass(cls, SparseTensor)
        leaves.append((SparseLeaf if sparse else TensorLeaf)(dtype, shape))
    return pack(output_types, leaves)


def leaves_like(structure: Any, other: Any, default: Any, what: str) -> list[Any]:
    """The leaves of `other`, which has the structure of another; `default` for all where it is
    None. TypeError, naming `what`, where it has not."""
    if other is None:
        return [default] * len(flatten(structure))
    if not _is_structure(structure):
        return [other]
    if isinstance(structure, Mapping):
        if not isinstance(other, Mapping) or sorted(structure) != sorted(other):
            raise TypeError(f"{what} must have the structure of output_types, got {other!r}")
        pairs = [(structure[k], other[k]) for k in sorted(structure)]
    else:
        if not isinstance(other, tuple) or len(structure) != len(other):
            raise TypeError(f"{what} must have the structure of output_types, got {other!r}")
        pairs = list(zip(structure, other, strict=True))
    return [leaf for s, o in pairs for leaf in leaves_like(s, o, default, what)]
