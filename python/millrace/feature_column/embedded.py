"""Columns that make numbers of ids."""

import math
from dataclasses import dataclass
from typing import Any

from millrace.checkpoint.init_from_checkpoint import init_from_checkpoint
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.feature_column.column import CategoricalColumn, DenseColumn, FeatureTransforms
from millrace.graph.default_graph import get_default_graph
from millrace.graph.keys import GraphKeys
from millrace.ops import array
from millrace.ops.gather import one_hot
from millrace.ops.nn.embedding import safe_embedding_lookup_sparse
from millrace.ops.reduce import reduce_sum
from millrace.ops.sparse.dense import sparse_tensor_to_dense
from millrace.state.initializers import TruncatedNormal
from millrace.state.variable_scope import get_variable


@dataclass(frozen=True)
class IndicatorColumn(DenseColumn):
    """See `indicator_column`."""

    categorical_column: CategoricalColumn

    @property
    def name(self) -> str:
        """Made of the categorical column's name."""
        return f"{self.categorical_column.name}_indicator"

    @property
    def variable_shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        return (self.categorical_column.num_buckets,)

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        """Reads what the categorical column reads."""
        return self.categorical_column.parse_example_spec

    def transform(self, inputs: FeatureTransforms) -> Tensor:
        """How often each id occurs, or the sum of its weights."""
        ids, weights = self.categorical_column.get_sparse_tensors(inputs)
        size = self.variable_shape[0]
        # -1 is an id that is left out: its row is zeros.
        hot = one_hot(sparse_tensor_to_dense(ids, default_value=-1), size, 1.0, 0.0)
        if weights is not None:
            hot = hot * array.expand_dims(sparse_tensor_to_dense(weights), -1)
        return reduce_sum(hot, axis=-2)

    def get_dense_tensor(
        self, inputs: FeatureTransforms, weight_collections: Any = None, trainable: bool = True
    ) -> Tensor:
        """The counts of a batch."""
        return inputs.get(self)


@export(v1="feature_column.indicator_column", v2="feature_column.indicator_column")
def indicator_column(categorical_column: Any) -> IndicatorColumn:
    """A dense column that says how often each id of a categorical column occurs."""
    _check_categorical(categorical_column)
    return IndicatorColumn(categorical_column)


@dataclass(frozen=True)
class EmbeddingColumn(DenseColumn):
    """See `embedding_column` and `shared_embedding_columns`; `shared_name` is of the latter."""

    categorical_column: CategoricalColumn
    dimension: int
    combiner: str
    initializer: Any
    ckpt_to_load_from: str | None
    tensor_name_in_ckpt: str | None
    max_norm: float | None
    trainable: bool
    shared_name: str | None = None

    @property
    def name(self) -> str:
        """Made of the categorical column's name."""
        kind = "embedding" if self.shared_name is None else "shared_embedding"
        return f"{self.categorical_column.name}_{kind}"

    @property
    def var_scope_name(self) -> str:
        """The scope of the table."""
        return self.name if self.shared_name is None else self.shared_name

    @property
    def variable_shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        return (self.dimension,)

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        """Reads what the categorical column reads."""
        return self.categorical_column.parse_example_spec

    def transform(self, inputs: FeatureTransforms) -> Any:
        """What the categorical column gives."""
        return self.categorical_column.get_sparse_tensors(inputs)

    def get_dense_tensor(
        self, inputs: FeatureTransforms, weight_collections: Any = None, trainable: bool = True
    ) -> Tensor:
        """The rows of the table for the ids of each example, combined."""
        ids, weights = inputs.get(self)
        table = self._table(weight_collections, trainable)
        return safe_embedding_lookup_sparse(
            table, ids, weights, combiner=self.combiner, max_norm=self.max_norm,
            name=f"{self.name}_weights",
        )  # fmt: skip

    def _table(self, weight_collections: Any, trainable: bool) -> Any:
        graph = get_default_graph()
        if self.shared_name is not None:
            shared = graph.get_collection(f"shared_embedding/{self.shared_name}")
            if shared:
                return shared[0]
        table = get_variable(
            "embedding_weights", shape=(self.categorical_column.num_buckets, self.dimension),
            initializer=self.initializer, trainable=self.trainable and trainable,
            collections=[*(weight_collections or []), GraphKeys.GLOBAL_VARIABLES],
        )  # fmt: skip
        if self.shared_name is not None:
            graph.add_to_collection(f"shared_embedding/{self.shared_name}", table)
        if self.ckpt_to_load_from is not None:
            init_from_checkpoint(self.ckpt_to_load_from, {self.tensor_name_in_ckpt: table})
        return table


def _check_categorical(column: Any) -> None:
    if not isinstance(column, CategoricalColumn):
        raise ValueError(f"A categorical column is needed. Given: {column}")


def _check_embedding(dimension: Any, initializer: Any, ckpt: Any, tensor_name: Any) -> Any:
    """The initialiser. ValueError for what cannot be."""
    if dimension is None or dimension < 1:
        raise ValueError(f"Invalid dimension {dimension}.")
    if (ckpt is None) != (tensor_name is None):
        raise ValueError(
            "Must specify both `ckpt_to_load_from` and `tensor_name_in_ckpt` or none of them."
        )
    if initializer is not None and not callable(initializer):
        raise ValueError("initializer must be callable if specified.")
    return initializer or TruncatedNormal(mean=0.0, stddev=1 / math.sqrt(dimension))


@export(v1="feature_column.embedding_column", v2="feature_column.embedding_column")
def embedding_column(
    categorical_column: Any, dimension: int, combiner: str = "mean", initializer: Any = None,
    ckpt_to_load_from: str | None = None, tensor_name_in_ckpt: str | None = None,
    max_norm: float | None = None, trainable: bool = True,
    use_safe_embedding_lookup: bool = True,
) -> EmbeddingColumn:  # fmt: skip
    """A dense column with a vector, that is learned, for each id.

    Args:
      categorical_column: the ids.
      dimension: the size of the vectors.
      combiner: "mean", "sqrtn" or "sum" of the vectors where an example has several ids.
      initializer: of the table; a truncated normal distribution by default.
      ckpt_to_load_from, tensor_name_in_ckpt: where to take the table from instead.
      max_norm: longer vectors are scaled to it.
      trainable: whether the table is learned.
    """
    del use_safe_embedding_lookup
    _check_categorical(categorical_column)
    initializer = _check_embedding(dimension, initializer, ckpt_to_load_from, tensor_name_in_ckpt)
    return EmbeddingColumn(
        categorical_column, dimension, combiner, initializer, ckpt_to_load_from,
        tensor_name_in_ckpt, max_norm, trainable,
    )  # fmt: skip


@export(v1="feature_column.shared_embedding_columns")
def shared_embedding_columns(
    categorical_columns: Any, dimension: int, combiner: str = "mean", initializer: Any = None,
    shared_embedding_collection_name: str | None = None, ckpt_to_load_from: str | None = None,
    tensor_name_in_ckpt: str | None = None, max_norm: float | None = None, trainable: bool = True,
    use_safe_embedding_lookup: bool = True,
) -> list[EmbeddingColumn]:  # fmt: skip
    """Dense columns as of `embedding_column` that have one table together; the categorical columns
    must have the same number of ids."""
    del use_safe_embedding_lookup
    initializer = _check_embedding(dimension, initializer, ckpt_to_load_from, tensor_name_in_ckpt)
    for column in categorical_columns:
        _check_categorical(column)
    if len({column.num_buckets for column in categorical_columns}) > 1:
        sizes = {column.name: column.num_buckets for column in categorical_columns}
        raise ValueError(
            f"To use shared_embedding_column, all categorical_columns must have the same number of "
            f"buckets. Given: {sizes}"
        )
    names = sorted(column.name for column in categorical_columns)
    shared = shared_embedding_collection_name or "_".join(names) + "_shared_embedding"
    return [
        EmbeddingColumn(
            column, dimension, combiner, initializer, ckpt_to_load_from, tensor_name_in_ckpt,
            max_norm, trainable, shared,
        )
        for column in categorical_columns
    ]  # fmt: skip
