"""Columns of numbers."""

import itertools
from dataclasses import dataclass
from typing import Any, Callable

import numpy as np

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.feature_column.column import (
    CategoricalColumn,
    DenseColumn,
    FeatureTransforms,
    IdWeightPair,
    check_key,
)
from millrace.graph.sparse import SparseTensor
from millrace.io.parsing import FixedLenFeature
from millrace.ops import along, array, math
from millrace.ops.gather import one_hot


@dataclass(frozen=True)
class NumericColumn(DenseColumn):
    """The numbers of one feature; see `numeric_column`."""

    key: str
    shape: tuple[int, ...]
    default_value: tuple[Any, ...] | None
    dtype: dtypes.DType
    normalizer_fn: Callable[[Tensor], Tensor] | None

    @property
    def name(self) -> str:
        """The feature's name."""
        return self.key

    @property
    def variable_shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        return self.shape

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        """Reads the feature."""
        return {self.key: FixedLenFeature(self.shape, self.dtype, self.default_value)}

    def transform(self, inputs: FeatureTransforms) -> Tensor:
        """The numbers, normalised, as float32."""
        value = inputs.get(self.key)
        if isinstance(value, SparseTensor):
            raise ValueError(
                "The corresponding Tensor of numerical column must be a Tensor. SparseTensor is "
                f"not supported. key: {self.key}"
            )
        if self.normalizer_fn is not None:
            value = self.normalizer_fn(value)
        return math.cast(value, dtypes.float32)

    def get_dense_tensor(
        self, inputs: FeatureTransforms, weight_collections: Any = None, trainable: bool = True
    ) -> Tensor:
        """The numbers of a batch."""
        return inputs.get(self)


@export(v1="feature_column.numeric_column", v2="feature_column.numeric_column")
def numeric_column(
    key: str, shape: Any = (1,), default_value: Any = None, dtype: Any = dtypes.float32,
    normalizer_fn: Callable[[Tensor], Tensor] | None = None,
) -> NumericColumn:  # fmt: skip
    """A column of real numbers.

    Args:
      key: the feature.
      shape: the shape of the feature in one example.
      default_value: for examples that have none: one number, or one per element.
      dtype: the type of the numbers as they are read.
      normalizer_fn: applied to the tensor.
    """
    check_key(key)
    sizes = tuple(shape) if isinstance(shape, (list, tuple)) else (shape,)
    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, (int, np.integer)):
            raise TypeError(f"shape dimensions must be integer. shape: {shape}, key: {key}")
        if size < 1:
            raise ValueError(f"shape dimensions must be greater than 0. shape: {shape}, key: {key}")
    dtype = dtypes.as_dtype(dtype)
    if not (dtype.is_integer or dtype.is_floating):
        raise ValueError(f"dtype must be convertible to float. dtype: {dtype.name}, key: {key}")
    if normalizer_fn is not None and not callable(normalizer_fn):
        raise TypeError(f"normalizer_fn must be a callable. Given: {normalizer_fn}")
    sizes = tuple(int(size) for size in sizes)
    return NumericColumn(key, sizes, _defaults(default_value, sizes, key), dtype, normalizer_fn)


def _defaults(value: Any, shape: tuple[int, ...], key: str) -> tuple[Any, ...] | None:
    """The default of each element, flat."""
    if value is None:
        return None
    values = np.asarray(value)
    if values.dtype.kind not in "iuf":
        raise TypeError(f"default_value must be compatible with numbers: {value}, key: {key}")
    if values.ndim == 0:
        values = np.broadcast_to(values, shape)
    if values.shape != shape:
        raise ValueError(
            f"The shape of default_value must be equal to given shape. default_value: {value}, "
            f"shape: {shape}, key: {key}"
        )
    return tuple(values.ravel().tolist())


@dataclass(frozen=True)
class BucketizedColumn(DenseColumn, CategoricalColumn):
    """Which range a number is in; see `bucketized_column`."""

    source_column: NumericColumn
    boundaries: tuple[float, ...]

    @property
    def name(self) -> str:
        """Made of the source's name."""
        return f"{self.source_column.name}_bucketized"

    @property
    def _buckets(self) -> int:
        return len(self.boundaries) + 1

    @property
    def variable_shape(self) -> tuple[int, ...]:
        """The shape of one example: one-hot."""
        return (*self.source_column.shape, self._buckets)

    @property
    def num_buckets(self) -> int:
        """The number of ids: each element has ranges of its own."""
        return self._buckets * self.source_column.shape[0]

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        """Reads the source's feature."""
        return self.source_column.parse_example_spec

    def transform(self, inputs: FeatureTransforms) -> Tensor:
        """The number of the range of each element."""
        return gen_ops.bucketize(inputs.get(self.source_column), boundaries=list(self.boundaries))

    def get_dense_tensor(
        self, inputs: FeatureTransforms, weight_collections: Any = None, trainable: bool = True
    ) -> Tensor:
        """One-hot vectors."""
        return one_hot(inputs.get(self), self._buckets, 1.0, 0.0)

    def get_sparse_tensors(self, inputs: FeatureTransforms) -> Any:
        """The ranges as ids, the second element's after those of the first."""
        ranges = inputs.get(self)
        batch = array.shape(ranges)[0]
        width = self.source_column.shape[0]
        rows = array.reshape(
            array.tile(array.expand_dims(along.range(0, batch), 1), [1, width]), [-1]
        )
        columns = array.tile(along.range(0, width), [batch])
        ids = array.reshape(ranges, [-1]) + self._buckets * columns
        indices = math.cast(array.transpose(array.stack([rows, columns])), dtypes.int64)
        shape = math.cast(array.stack([batch, width]), dtypes.int64)
        return IdWeightPair(SparseTensor(indices, math.cast(ids, dtypes.int64), shape), None)


@export(v1="feature_column.bucketized_column", v2="feature_column.bucketized_column")
def bucketized_column(source_column: Any, boundaries: Any) -> BucketizedColumn:
    """A column that says in which range a number of `source_column`, a numeric column of rank 1,
    is. `boundaries`, in ascending order, belong to the range above them."""
    if not isinstance(source_column, NumericColumn):
        raise ValueError(
            f"source_column must be a column generated with numeric_column(). Given: "
            f"{source_column}"
        )
    if len(source_column.shape) > 1:
        raise ValueError(f"source_column must be one-dimensional column. Given: {source_column}")
    if not boundaries:
        raise ValueError("boundaries must not be empty.")
    if not isinstance(boundaries, (list, tuple)):
        raise ValueError("boundaries must be a sorted list.")
    if any(high <= low for low, high in itertools.pairwise(boundaries)):
        raise ValueError("boundaries must be a sorted list.")
    return BucketizedColumn(source_column, tuple(boundaries))
