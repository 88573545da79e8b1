"""Estimators for classes and numbers that need no model function."""

from typing import Any

from millrace.compat.v1.losses.losses import Reduction
from millrace.core.export import export
from millrace.estimator.canned import combined_model_fn, dnn_model_fn, linear_model_fn
from millrace.estimator.class_heads import class_head
from millrace.estimator.estimator import Estimator
from millrace.estimator.heads import RegressionHead


@export(v1="estimator.LinearClassifier")
class LinearClassifier(Estimator):
    """Classes by a linear model of columns.

    Args:
      feature_columns: columns of `tf.feature_column`.
      model_dir, config, warm_start_from: as for Estimator.
      n_classes: labels are integers below it, or strings of `label_vocabulary`.
      weight_column: a feature, or numeric column, of weights of examples.
      optimizer: an optimiser, a function that gives one, or its name.
      partitioner: of the variables.
      loss_reduction: of `tf.losses.Reduction`.
      sparse_combiner: of weights of several ids, "sum", "mean" or "sqrtn".
    """

    def __init__(
        self, feature_columns: Any, model_dir: Any = None, n_classes: int = 2,
        weight_column: Any = None, label_vocabulary: Any = None, optimizer: Any = "Ftrl",
        config: Any = None, partitioner: Any = None, warm_start_from: Any = None,
        loss_reduction: str = Reduction.SUM, sparse_combiner: str = "sum",
    ):  # fmt: skip
        head = class_head(
            n_classes, weight_column=weight_column, label_vocabulary=label_vocabulary,
            loss_reduction=loss_reduction,
        )  # fmt: skip
        super().__init__(
            linear_model_fn(head, feature_columns, optimizer, sparse_combiner, partitioner),
            model_dir, config, warm_start_from=warm_start_from,
        )  # fmt: skip


@export(v1="estimator.LinearRegressor")
class LinearRegressor(Estimator):
    """Numbers, `label_dimension` for an example, by a linear model; see LinearClassifier."""

    def __init__(
        self, feature_columns: Any, model_dir: Any = None, label_dimension: int = 1,
        weight_column: Any = None, optimizer: Any = "Ftrl", config: Any = None,
        partitioner: Any = None, warm_start_from: Any = None,
        loss_reduction: str = Reduction.SUM, sparse_combiner: str = "sum",
    ):  # fmt: skip
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        super().__init__(
            linear_model_fn(head, feature_columns, optimizer, sparse_combiner, partitioner),
            model_dir, config, warm_start_from=warm_start_from,
        )  # fmt: skip


@export(v1="estimator.DNNClassifier")
class DNNClassifier(Estimator):
    """Classes by a network of dense layers over columns; see LinearClassifier.

    Args:
      hidden_units: the sizes of the layers.
      activation_fn: after each layer; `tf.nn.relu` by default.
      dropout: the fraction of each layer's values that is dropped when training.
      input_layer_partitioner: of the variables.
      batch_norm: whether each layer is normalised.
    """

    def __init__(
        self, hidden_units: Any, feature_columns: Any, model_dir: Any = None, n_classes: int = 2,
        weight_column: Any = None, label_vocabulary: Any = None, optimizer: Any = "Adagrad",
        activation_fn: Any = None, dropout: float | None = None,
        input_layer_partitioner: Any = None, config: Any = None, warm_start_from: Any = None,
        loss_reduction: str = Reduction.SUM, batch_norm: bool = False,
    ):  # fmt: skip
        head = class_head(
            n_classes, weight_column=weight_column, label_vocabulary=label_vocabulary,
            loss_reduction=loss_reduction,
        )  # fmt: skip
        super().__init__(
            dnn_model_fn(
                head, hidden_units, feature_columns, optimizer, activation_fn, dropout, batch_norm,
                input_layer_partitioner,
            ),
            model_dir, config, warm_start_from=warm_start_from,
        )  # fmt: skip


@export(v1="estimator.DNNRegressor")
class DNNRegressor(Estimator):
    """Numbers by a network of dense layers; see DNNClassifier."""

    def __init__(
        self, hidden_units: Any, feature_columns: Any, model_dir: Any = None,
        label_dimension: int = 1, weight_column: Any = None, optimizer: Any = "Adagrad",
        activation_fn: Any = None, dropout: float | None = None,
        input_layer_partitioner: Any = None, config: Any = None, warm_start_from: Any = None,
        loss_reduction: str = Reduction.SUM, batch_norm: bool = False,
    ):  # fmt: skip
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        super().__init__(
            dnn_model_fn(
                head, hidden_units, feature_columns, optimizer, activation_fn, dropout, batch_norm,
                input_layer_partitioner,
            ),
            model_dir, config, warm_start_from=warm_start_from,
        )  # fmt: skip


@export(v1="estimator.DNNLinearCombinedClassifier")
class DNNLinearCombinedClassifier(Estimator):
    """Classes by the sum of a linear model and a network, each with columns and an optimiser of its
    own; see LinearClassifier and DNNClassifier."""

    def __init__(
        self, model_dir: Any = None, linear_feature_columns: Any = None,
        linear_optimizer: Any = "Ftrl", dnn_feature_columns: Any = None,
        dnn_optimizer: Any = "Adagrad", dnn_hidden_units: Any = None, dnn_activation_fn: Any = None,
        dnn_dropout: float | None = None, n_classes: int = 2, weight_column: Any = None,
        label_vocabulary: Any = None, input_layer_partitioner: Any = None, config: Any = None,
        warm_start_from: Any = None, loss_reduction: str = Reduction.SUM, batch_norm: bool = False,
        linear_sparse_combiner: str = "sum",
    ):  # fmt: skip
        head = class_head(
            n_classes, weight_column=weight_column, label_vocabulary=label_vocabulary,
            loss_reduction=loss_reduction,
        )  # fmt: skip
        super().__init__(
            combined_model_fn(
                head, linear_feature_columns, linear_optimizer, dnn_feature_columns, dnn_optimizer,
                dnn_hidden_units, dnn_activation_fn, dnn_dropout, batch_norm,
                linear_sparse_combiner, input_layer_partitioner,
            ),
            model_dir, config, warm_start_from=warm_start_from,
        )  # fmt: skip


@export(v1="estimator.DNNLinearCombinedRegressor")
class DNNLinearCombinedRegressor(Estimator):
    """Numbers by the sum of a linear model and a network; see DNNLinearCombinedClassifier."""

    def __init__(
        self, model_dir: Any = None, linear_feature_columns: Any = None,
        linear_optimizer: Any = "Ftrl", dnn_feature_columns: Any = None,
        dnn_optimizer: Any = "Adagrad", dnn_hidden_units: Any = None, dnn_activation_fn: Any = None,
        dnn_dropout: float | None = None, label_dimension: int = 1, weight_column: Any = None,
        input_layer_partitioner: Any = None, config: Any = None, warm_start_from: Any = None,
        loss_reduction: str = Reduction.SUM, batch_norm: bool = False,
        linear_sparse_combiner: str = "sum",
    ):  # fmt: skip
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        super().__init__(
            combined_model_fn(
                head, linear_feature_columns, linear_optimizer, dnn_feature_columns, dnn_optimizer,
                dnn_hidden_units, dnn_activation_fn, dnn_dropout, batch_norm,
                linear_sparse_combiner, input_layer_partitioner,
            ),
            model_dir, config, warm_start_from=warm_start_from,
        )  # fmt: skip
