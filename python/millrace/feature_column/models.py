"""Models made of columns: a layer of inputs, and a linear model."""

from typing import Any

from millrace.core import nest
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.feature_column.column import (
    CategoricalColumn,
    DenseColumn,
    FeatureColumn,
    FeatureTransforms,
)
from millrace.graph.default_graph import get_default_graph
from millrace.graph.keys import GraphKeys
from millrace.ops import array, linalg, math
from millrace.ops.nn.activations import bias_add
from millrace.ops.nn.embedding import safe_embedding_lookup_sparse
from millrace.state.initializers import Zeros
from millrace.state.variable_scope import get_variable, variable_scope


def normalized_columns(feature_columns: Any) -> list[FeatureColumn]:
    """The columns as a list, sorted by name. ValueError for none, for things that are no columns,
    and for names that are there twice."""
    if isinstance(feature_columns, FeatureColumn):
        feature_columns = [feature_columns]
    if isinstance(feature_columns, dict):
        raise ValueError("Expected feature_columns to be iterable, found dict.")
    columns = list(feature_columns)
    if not columns:
        raise ValueError("feature_columns must not be empty.")
    for column in columns:
        if not isinstance(column, FeatureColumn):
            raise ValueError(
                f"Items of feature_columns must be a FeatureColumn. Given "
                f"(type {type(column).__name__}): {column}."
            )
    by_name: dict[str, FeatureColumn] = {}
    for column in columns:
        if column.name in by_name:
            raise ValueError(
                f"Duplicate feature column name found for columns: {column} and "
                f"{by_name[column.name]}. This usually means that these columns refer to the same "
                "base feature. Either one must be discarded or a duplicated but renamed item must "
                "be inserted in features dict."
            )
        by_name[column.name] = column
    return [by_name[name] for name in sorted(by_name)]


def _flat_values(features: dict[str, Any]) -> list[Any]:
    return list(nest.flatten(list(features.values())))


def _new_variables(before: int) -> list[Any]:
    return get_default_graph().get_collection(GraphKeys.GLOBAL_VARIABLES)[before:]


def _count() -> int:
    return len(get_default_graph().get_collection(GraphKeys.GLOBAL_VARIABLES))


@export(v1="feature_column.input_layer")
def input_layer(
    features: Any, feature_columns: Any, weight_collections: Any = None, trainable: bool = True,
    cols_to_vars: dict[Any, Any] | None = None, cols_to_output_tensors: Any = None,
) -> Tensor:  # fmt: skip
    """The numbers of dense columns side by side, a matrix [batch, width], in the order of the
    columns' names.

    Args:
      features: {name: tensor or SparseTensor}.
      feature_columns: dense columns.
      weight_collections: collections to add the variables to.
      trainable: whether the variables are learned.
      cols_to_vars, cols_to_output_tensors: dictionaries to fill, from columns to lists of their
        variables and to their parts of the result.
    """
    columns = normalized_columns(feature_columns)
    for column in columns:
        if not isinstance(column, DenseColumn):
            raise ValueError(
                "Items of feature_columns must be a DenseColumn. You can wrap a categorical column "
                f"with an embedding_column or indicator_column. Given: {column}"
            )
    inputs = FeatureTransforms(features)
    parts = []
    with variable_scope(None, default_name="input_layer", values=_flat_values(features)):
        for column in columns:
            before = _count()
            with variable_scope(None, default_name=column.var_scope_name):
                tensor = column.get_dense_tensor(inputs, weight_collections, trainable)
                part = _flattened(tensor, column)
            parts.append(part)
            if cols_to_vars is not None:
                cols_to_vars[column] = _new_variables(before)
            if cols_to_output_tensors is not None:
                cols_to_output_tensors[column] = part
        return array.concat(parts, 1)


def _flattened(tensor: Tensor, column: DenseColumn) -> Tensor:
    """As a matrix [batch, width]."""
    width = 1
    for size in column.variable_shape:
        width *= size
    return array.reshape(tensor, array.stack([array.shape(tensor)[0], width]))


@export(v1="feature_column.linear_model")
def linear_model(
    features: Any, feature_columns: Any, units: int = 1, sparse_combiner: str = "sum",
    weight_collections: Any = None, trainable: bool = True,
    cols_to_vars: dict[Any, Any] | None = None,
) -> Tensor:  # fmt: skip
    """The sum of all columns times weights, plus a bias: [batch, units].

    Categorical columns have a weight per id, combined by `sparse_combiner`, "sum", "mean" or
    "sqrtn", where an example has several. Weights start at zero. See `input_layer`.
    """
    columns = normalized_columns(feature_columns)
    for column in columns:
        if not isinstance(column, (DenseColumn, CategoricalColumn)):
            raise ValueError(
                f"Items of feature_columns must be a DenseColumn or CategoricalColumn. Given: "
                f"{column}"
            )
    inputs = FeatureTransforms(features)
    collections = [*(weight_collections or []), GraphKeys.GLOBAL_VARIABLES]
    parts = []
    with variable_scope(None, default_name="linear_model", values=_flat_values(features)):
        for column in columns:
            before = _count()
            with variable_scope(None, default_name=column.var_scope_name):
                parts.append(
                    _weighted_sum(column, inputs, units, sparse_combiner, collections, trainable)
                )
            if cols_to_vars is not None:
                cols_to_vars[column] = _new_variables(before)
        bias = get_variable(
            "bias_weights", shape=[units], initializer=Zeros(), trainable=trainable,
            collections=collections,
        )  # fmt: skip
        if cols_to_vars is not None:
            cols_to_vars["bias"] = [bias]
        return bias_add(math.add_n(parts), bias, name="weighted_sum")


def _weighted_sum(
    column: Any, inputs: FeatureTransforms, units: int, combiner: str, collections: list[str],
    trainable: bool,
) -> Tensor:  # fmt: skip
    def weights(rows: int) -> Any:
        return get_variable(
            "weights", shape=[rows, units], initializer=Zeros(), trainable=trainable,
            collections=collections,
        )  # fmt: skip

    if isinstance(column, CategoricalColumn):
        ids, of_ids = column.get_sparse_tensors(inputs)
        table = weights(column.num_buckets)
        return safe_embedding_lookup_sparse(table, ids, of_ids, combiner, name="weighted_sum")
    tensor = _flattened(column.get_dense_tensor(inputs, collections[:-1], trainable), column)
    return linalg.matmul(tensor, weights(tensor.shape._size_at(1)), name="weighted_sum")


@export(v1="feature_column.make_parse_example_spec", v2="feature_column.make_parse_example_spec")
def make_parse_example_spec(feature_columns: Any) -> dict[str, Any]:
    """What `tf.parse_example` needs to read the features of columns. ValueError where two columns
    read a feature in different ways."""
    spec: dict[str, Any] = {}
    for column in feature_columns:
        if not isinstance(column, FeatureColumn):
            raise ValueError(
                f"All feature_columns must be FeatureColumn instances. Given: {column}"
            )
        for key, value in column.parse_example_spec.items():
            if key in spec and spec[key] != value:
                raise ValueError(
                    f"feature_columns contain different parse_spec for key {key}. Given: {value} "
                    f"and {spec[key]}"
                )
            spec[key] = value
    return spec
