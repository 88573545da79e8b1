"""The columns of `tf.contrib.layers`, which are those of `tf.feature_column` by other names."""

from typing import Any

import numpy as np

from millrace.core import dtypes
from millrace.core.export import export
from millrace.feature_column import categorical, crossed, embedded, numeric
from millrace.graph.graph import Graph


@export(v1="contrib.layers.real_valued_column")
def real_valued_column(
    column_name: str, dimension: int = 1, default_value: Any = None, dtype: Any = dtypes.float32,
    normalizer: Any = None,
) -> numeric.NumericColumn:  # fmt: skip
    """See `tf.feature_column.numeric_column`."""
    return numeric.numeric_column(column_name, (dimension,), default_value, dtype, normalizer)


@export(v1="contrib.layers.sparse_column_with_keys")
def sparse_column_with_keys(
    column_name: str, keys: Any, default_value: int = -1, combiner: str = "sum",
    dtype: Any = dtypes.string,
) -> categorical.VocabularyColumn:  # fmt: skip
    """See `tf.feature_column.categorical_column_with_vocabulary_list`."""
    del combiner
    return categorical.categorical_column_with_vocabulary_list(
        column_name, list(keys), dtype, default_value
    )


@export(v1="contrib.layers.sparse_column_with_hash_bucket")
def sparse_column_with_hash_bucket(
    column_name: str, hash_bucket_size: int, combiner: str = "sum", dtype: Any = dtypes.string
) -> categorical.HashedColumn:
    """See `tf.feature_column.categorical_column_with_hash_bucket`."""
    del combiner
    return categorical.categorical_column_with_hash_bucket(column_name, hash_bucket_size, dtype)


@export(v1="contrib.layers.sparse_column_with_integerized_feature")
def sparse_column_with_integerized_feature(
    column_name: str, bucket_size: int, combiner: str = "sum", dtype: Any = dtypes.int64
) -> categorical.IdentityColumn:
    """See `tf.feature_column.categorical_column_with_identity`."""
    del combiner, dtype
    return categorical.categorical_column_with_identity(column_name, bucket_size)


@export(v1="contrib.layers.bucketized_column")
def bucketized_column(source_column: Any, boundaries: Any) -> numeric.BucketizedColumn:
    """See `tf.feature_column.bucketized_column`."""
    return numeric.bucketized_column(source_column, boundaries)


@export(v1="contrib.layers.crossed_column")
def crossed_column(
    columns: Any, hash_bucket_size: int, combiner: str = "sum",
    ckpt_to_load_from: str | None = None, tensor_name_in_ckpt: str | None = None,
    hash_key: int | None = None,
) -> crossed.CrossedColumn:  # fmt: skip
    """See `tf.feature_column.crossed_column`. Columns of hashes are crossed by their features."""
    del combiner, ckpt_to_load_from, tensor_name_in_ckpt
    keys = [c.key if isinstance(c, categorical.HashedColumn) else c for c in columns]
    return crossed.crossed_column(keys, hash_bucket_size, hash_key)


@export(v1="contrib.layers.one_hot_column")
def one_hot_column(sparse_id_column: Any) -> embedded.IndicatorColumn:
    """See `tf.feature_column.indicator_column`."""
    return embedded.indicator_column(sparse_id_column)


@export(v1="contrib.layers.embedding_column")
def embedding_column(
    sparse_id_column: Any, dimension: int, combiner: str = "mean", initializer: Any = None,
    ckpt_to_load_from: str | None = None, tensor_name_in_ckpt: str | None = None,
    max_norm: float | None = None, trainable: bool = True,
) -> embedded.EmbeddingColumn:  # fmt: skip
    """See `tf.feature_column.embedding_column`."""
    return embedded.embedding_column(
        sparse_id_column, dimension, combiner, initializer, ckpt_to_load_from, tensor_name_in_ckpt,
        max_norm, trainable,
    )  # fmt: skip


@export(v1="contrib.learn.infer_real_valued_columns_from_input")
def infer_real_valued_columns_from_input(x: Any) -> list[numeric.NumericColumn]:
    """The column, without a name, for an array of numbers with a row per example."""
    x = np.asarray(x)
    if x.dtype.kind not in "iuf":
        raise ValueError(f"x must have numbers, not {x.dtype}.")
    width = x.shape[1] if x.ndim > 1 else 1
    return [numeric.numeric_column("", (width,))]


@export(v1="contrib.learn.infer_real_valued_columns_from_input_fn")
def infer_real_valued_columns_from_input_fn(input_fn: Any) -> list[numeric.NumericColumn]:
    """The columns for the features, tensors of numbers, that an input function gives."""
    with Graph().as_default():
        features, _ = input_fn()
        if not isinstance(features, dict):
            features = {"": features}
        return [
            numeric.numeric_column(name, tuple(features[name].shape.as_list()[1:]) or (1,))
            for name in sorted(features)
        ]
