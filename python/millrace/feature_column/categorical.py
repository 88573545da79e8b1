"""Columns of ids."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.feature_column.column import (
    CategoricalColumn,
    FeatureTransforms,
    IdWeightPair,
    check_key,
    to_sparse,
)
from millrace.feature_column.vocabulary import count_lines, ids_of_lines, ids_of_words
from millrace.graph.default_graph import control_dependencies
from millrace.graph.sparse import SparseTensor
from millrace.io.parsing import VarLenFeature
from millrace.ops import array, check, math
from millrace.ops.gather import where
from millrace.ops.strings import as_string, string_to_hash_bucket_fast


def _with_values(ids: SparseTensor, values: Tensor) -> SparseTensor:
    return SparseTensor(ids.indices, values, ids.dense_shape)


def _check_kind(key: str, tensor: Any, wanted: dtypes.DType) -> None:
    """ValueError where a feature has strings and the column integers, or the other way round."""
    if (tensor.dtype.base_dtype == dtypes.string) != (wanted == dtypes.string):
        raise ValueError(
            f"Column dtype and SparseTensors dtype must be compatible. key: {key}, column dtype: "
            f"{wanted.name}, tensor dtype: {tensor.dtype.base_dtype.name}"
        )
    if wanted != dtypes.string and not tensor.dtype.base_dtype.is_integer:
        raise ValueError(
            f"SparseTensors must be a string or integer. key: {key}, tensor dtype: "
            f"{tensor.dtype.base_dtype.name}"
        )


class _OfFeature(CategoricalColumn):
    """A column made of one feature, `key`, of type `dtype`."""

    key: str
    dtype: dtypes.DType

    @property
    def name(self) -> str:
        """The feature's name."""
        return self.key

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        """Reads the feature."""
        return {self.key: VarLenFeature(self.dtype)}

    def transform(self, inputs: FeatureTransforms) -> SparseTensor:
        """The ids."""
        values = to_sparse(inputs.get(self.key))
        _check_kind(self.key, values, self.dtype)
        return _with_values(values, self.ids(values.values))

    def ids(self, values: Tensor) -> Tensor:
        """The ids of values."""
        raise NotImplementedError


def _check_integer_or_string(dtype: Any, key: str) -> dtypes.DType:
    dtype = dtypes.as_dtype(dtype)
    if dtype != dtypes.string and not dtype.is_integer:
        raise ValueError(
            f"dtype must be string or integer. dtype: {dtype.name}, column_name: {key}"
        )
    return dtype


@dataclass(frozen=True)
class HashedColumn(_OfFeature):
    """See `categorical_column_with_hash_bucket`."""

    key: str
    hash_bucket_size: int
    dtype: dtypes.DType

    @property
    def num_buckets(self) -> int:
        """The number of ids."""
        return self.hash_bucket_size

    def ids(self, values: Tensor) -> Tensor:
        """The hashes of the values' texts."""
        text = values if self.dtype == dtypes.string else as_string(values)
        return string_to_hash_bucket_fast(text, self.hash_bucket_size)


@export(
    v1="feature_column.categorical_column_with_hash_bucket",
    v2="feature_column.categorical_column_with_hash_bucket",
)
def categorical_column_with_hash_bucket(
    key: str, hash_bucket_size: int, dtype: Any = dtypes.string
) -> HashedColumn:
    """A column whose ids are hashes of a feature, strings or integers, below
    `hash_bucket_size`."""
    check_key(key)
    if hash_bucket_size is None:
        raise ValueError(f"hash_bucket_size must be set. key: {key}")
    if hash_bucket_size < 1:
        raise ValueError(
            f"hash_bucket_size must be at least 1. hash_bucket_size: {hash_bucket_size}, key: {key}"
        )
    return HashedColumn(key, hash_bucket_size, _check_integer_or_string(dtype, key))


@dataclass(frozen=True)
class IdentityColumn(_OfFeature):
    """See `categorical_column_with_identity`."""

    key: str
    num_buckets: int
    default_value: int | None

    @property
    def dtype(self) -> dtypes.DType:  # type: ignore[override]
        """The type of the feature."""
        return dtypes.int64

    def ids(self, values: Tensor) -> Tensor:
        """The values, those out of range as the default."""
        values = math.cast(values, dtypes.int64)
        size = math.cast(self.num_buckets, dtypes.int64)
        if self.default_value is None:
            name = f"feature column '{self.key}'"
            inside = [
                check.assert_less(values, size, message=f"{name}: ids must be below num_buckets"),
                check.assert_greater_equal(
                    values, math.cast(0, dtypes.int64), message=f"{name}: ids must not be negative"
                ),
            ]
            with control_dependencies(inside):
                return array.identity(values)
        outside = math.logical_or(values < 0, values >= size)
        default = array.fill(array.shape(values), math.cast(self.default_value, dtypes.int64))
        return where(outside, default, values)


@export(
    v1="feature_column.categorical_column_with_identity",
    v2="feature_column.categorical_column_with_identity",
)
def categorical_column_with_identity(
    key: str, num_buckets: int, default_value: int | None = None
) -> IdentityColumn:
    """A column whose ids are the integers of a feature.

    Those not in [0, num_buckets) become `default_value`; without one, running the model is an
    InvalidArgumentError.
    """
    check_key(key)
    if num_buckets < 1:
        raise ValueError(f"num_buckets {num_buckets} < 1, column_name {key}")
    if default_value is not None and not 0 <= default_value < num_buckets:
        raise ValueError(
            f"default_value {default_value} not in range [0, {num_buckets}), column_name {key}"
        )
    return IdentityColumn(key, num_buckets, default_value)


@dataclass(frozen=True)
class VocabularyColumn(_OfFeature):
    """See `categorical_column_with_vocabulary_list`."""

    key: str
    vocabulary_list: tuple[Any, ...]
    dtype: dtypes.DType
    default_value: int
    num_oov_buckets: int

    @property
    def num_buckets(self) -> int:
        """The number of ids."""
        return len(self.vocabulary_list) + self.num_oov_buckets

    def ids(self, values: Tensor) -> Tensor:
        """The places of the values in the vocabulary."""
        return ids_of_words(
            values, self.vocabulary_list, self.dtype, self.default_value, self.num_oov_buckets
        )


@dataclass(frozen=True)
class VocabularyFileColumn(_OfFeature):
    """See `categorical_column_with_vocabulary_file`."""

    key: str
    vocabulary_file: str
    vocabulary_size: int
    dtype: dtypes.DType
    default_value: int
    num_oov_buckets: int

    @property
    def num_buckets(self) -> int:
        """The number of ids."""
        return self.vocabulary_size + self.num_oov_buckets

    def ids(self, values: Tensor) -> Tensor:
        """The lines of the values in the file."""
        return ids_of_lines(
            values, self.vocabulary_file, self.vocabulary_size, self.dtype, self.default_value,
            self.num_oov_buckets,
        )  # fmt: skip


def _check_oov(key: str, default_value: int | None, num_oov_buckets: int | None) -> int:
    if default_value not in (None, -1) and num_oov_buckets:
        raise ValueError(f"Can't specify both num_oov_buckets and default_value in {key}.")
    if num_oov_buckets is not None and num_oov_buckets < 0:
        raise ValueError(f"Invalid num_oov_buckets {num_oov_buckets} in {key}.")
    return num_oov_buckets or 0


@export(
    v1="feature_column.categorical_column_with_vocabulary_list",
    v2="feature_column.categorical_column_with_vocabulary_list",
)
def categorical_column_with_vocabulary_list(
    key: str, vocabulary_list: Any, dtype: Any = None, default_value: int = -1,
    num_oov_buckets: int = 0,
) -> VocabularyColumn:  # fmt: skip
    """A column whose ids are the places of a feature's values in a list.

    Values that are not in it have the id `default_value`, where -1 leaves them out, or one of
    `num_oov_buckets` ids after the list, chosen by a hash.
    """
    check_key(key)
    if vocabulary_list is None or len(vocabulary_list) < 1:
        raise ValueError(f"vocabulary_list {vocabulary_list} must be non-empty, column_name: {key}")
    words = np.array(vocabulary_list)
    if len(set(vocabulary_list)) != len(vocabulary_list):
        raise ValueError(f"Duplicate keys in vocabulary_list {vocabulary_list}, column_name: {key}")
    found = dtypes.string if words.dtype.kind in "USO" else dtypes.as_dtype(words.dtype)
    oov = _check_oov(key, default_value, num_oov_buckets)
    if dtype is None:
        dtype = found
    dtype = dtypes.as_dtype(dtype)
    if (dtype == dtypes.string) != (found == dtypes.string):
        raise ValueError(
            f"dtype {dtype.name} and vocabulary dtype {found.name} do not match, column_name: {key}"
        )
    dtype = _check_integer_or_string(dtype, key)
    return VocabularyColumn(key, tuple(vocabulary_list), dtype, default_value, oov)


@export(v1="feature_column.categorical_column_with_vocabulary_file")
def categorical_column_with_vocabulary_file(
    key: str, vocabulary_file: str, vocabulary_size: int | None = None,
    num_oov_buckets: int = 0, default_value: int | None = None, dtype: Any = dtypes.string,
) -> VocabularyFileColumn:  # fmt: skip
    """As `categorical_column_with_vocabulary_list`, with the lines of a file, or the first
    `vocabulary_size` of them. The file is read when tables are initialised, and is part of an
    exported model."""
    check_key(key)
    if not vocabulary_file:
        raise ValueError(f"Missing vocabulary_file in {key}.")
    if vocabulary_size is not None and vocabulary_size < 1:
        raise ValueError(f"Invalid vocabulary_size in {key}.")
    oov = _check_oov(key, default_value, num_oov_buckets)
    dtype = _check_integer_or_string(dtype, key)
    size = count_lines(vocabulary_file, vocabulary_size)
    default = -1 if default_value is None else default_value
    return VocabularyFileColumn(key, vocabulary_file, size, dtype, default, oov)


@dataclass(frozen=True)
class WeightedColumn(CategoricalColumn):
    """See `weighted_categorical_column`."""

    categorical_column: CategoricalColumn
    weight_feature_key: str
    dtype: dtypes.DType

    @property
    def name(self) -> str:
        """Made of both names."""
        return f"{self.categorical_column.name}_weighted_by_{self.weight_feature_key}"

    @property
    def num_buckets(self) -> int:
        """The number of ids."""
        return self.categorical_column.num_buckets

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        """Reads both features."""
        spec = dict(self.categorical_column.parse_example_spec)
        if self.weight_feature_key in spec:
            raise ValueError(
                f"Parse config {spec[self.weight_feature_key]} already exists for "
                f"{self.weight_feature_key}."
            )
        return {**spec, self.weight_feature_key: VarLenFeature(self.dtype)}

    def transform(self, inputs: FeatureTransforms) -> tuple[Any, SparseTensor]:
        """The ids and their weights."""
        weights = inputs.get(self.weight_feature_key)
        if weights.dtype.base_dtype != self.dtype:
            raise ValueError(
                f"Bad dtype, expected {self.dtype.name}, but got {weights.dtype.base_dtype.name}."
            )
        weights = to_sparse(weights, ignored=0)
        if not weights.dtype.base_dtype.is_floating:
            weights = _with_values(weights, math.cast(weights.values, dtypes.float32))
        return inputs.get(self.categorical_column), weights

    def get_sparse_tensors(self, inputs: FeatureTransforms) -> IdWeightPair:
        """The ids and their weights."""
        ids, weights = inputs.get(self)
        return IdWeightPair(ids, weights)


@export(
    v1="feature_column.weighted_categorical_column", v2="feature_column.weighted_categorical_column"
)
def weighted_categorical_column(
    categorical_column: Any, weight_feature_key: str, dtype: Any = dtypes.float32
) -> WeightedColumn:
    """A column of ids with weights, from another feature of the same shape."""
    dtype = dtypes.as_dtype(dtype)
    if not (dtype.is_integer or dtype.is_floating):
        raise ValueError(f"dtype {dtype.name} is not convertible to float.")
    return WeightedColumn(categorical_column, weight_feature_key, dtype)
