"""Linear models, deep networks, and both together."""

import math
from typing import Any, Callable

from millrace.compat.v1.layers.core import dense
from millrace.compat.v1.layers.core import dropout as dropped
from millrace.compat.v1.layers.normalization import batch_normalization
from millrace.core.tensor import Tensor
from millrace.estimator.estimator_spec import EstimatorSpec
from millrace.estimator.heads import Head
from millrace.estimator.mode_keys import ModeKeys
from millrace.estimator.optimizers import optimizer_of
from millrace.feature_column.models import input_layer, linear_model
from millrace.graph.default_graph import control_dependencies, get_default_graph
from millrace.graph.keys import GraphKeys
from millrace.ops.array import concat, reshape
from millrace.ops.clip import clip_by_global_norm
from millrace.ops.nn.activations import relu, zero_fraction
from millrace.state.assign import assign_add
from millrace.state.initializers import GlorotUniform
from millrace.state.partitioners import min_max_variable_partitioner
from millrace.state.variable_lists import trainable_variables
from millrace.state.variable_scope import variable_scope
from millrace.summary.ops import histogram, scalar
from millrace.train.global_step import get_global_step

LINEAR, DNN = "linear", "dnn"


def check_features(features: Any) -> None:
    """ValueError unless they are a dictionary."""
    if not isinstance(features, dict):
        raise ValueError(
            f"features should be a dictionary of `Tensor`s. Given type: {type(features)}"
        )


def linear_learning_rate(columns: int, most: float) -> float:
    """The more columns the smaller."""
    return min(most, 1.0 / math.sqrt(columns))


def model_scope(name: str, features: Any, partitioner: Any = None) -> Any:
    """The scope of a model's variables. They are parts, one each where `partitioner` is None: so
    slots that optimisers make within the scope have TensorFlow's names in checkpoints."""
    partitioner = partitioner or min_max_variable_partitioner()
    return variable_scope(name, values=list(features.values()), partitioner=partitioner)


def linear_logits(features: Any, columns: Any, units: int, sparse_combiner: str) -> Tensor:
    """The logits of a linear model, within the scope LINEAR."""
    logits = linear_model(features, columns, units=units, sparse_combiner=sparse_combiner)
    scalar("fraction_of_zero_weights", zero_fraction(_all_weights(LINEAR)))
    return logits


def _all_weights(scope: str) -> Tensor:
    weights = [
        reshape(v, [-1])
        for v in get_default_graph().get_collection(GraphKeys.TRAINABLE_VARIABLES, scope)
    ]
    return concat(weights, 0)


def dnn_logits(
    features: Any, mode: str, columns: Any, hidden_units: Any, units: int, activation_fn: Any,
    dropout: float | None, batch_norm: bool, partitioner: Any = None,
) -> Tensor:  # fmt: skip
    """The logits of a network of dense layers, within the scope DNN; `partitioner`: of the columns'
    variables."""
    training = mode == ModeKeys.TRAIN
    with variable_scope("input_from_feature_columns", partitioner=partitioner):
        net = input_layer(features, columns)
    for number, size in enumerate(hidden_units):
        net = dense(
            net, size, activation=activation_fn, kernel_initializer=GlorotUniform(),
            name=f"hiddenlayer_{number}",
        )  # fmt: skip
        if dropout is not None and training:
            net = dropped(net, rate=dropout, training=True)
        if batch_norm:
            with variable_scope(f"hiddenlayer_{number}"):
                net = batch_normalization(
                    net, momentum=0.999, training=training, name=f"batchnorm_{number}"
                )
        _summarize(net, f"dnn/hiddenlayer_{number}")
    logits = dense(net, units, kernel_initializer=GlorotUniform(), name="logits")
    _summarize(logits, "dnn/logits")
    return logits


def _summarize(value: Tensor, tag: str) -> None:
    scalar(f"{tag}/fraction_of_zero_values", zero_fraction(value))
    histogram(f"{tag}/activation", value)


def spec_of(
    head: Head, features: Any, labels: Any, mode: str, logits: Tensor,
    optimizers: list[tuple[Any, float, str]], clip_norm: float | None = None,
) -> EstimatorSpec:  # fmt: skip
    """The spec of a model whose variables below each scope have an optimiser: [(optimiser, learning
    rate, scope)]. Gradients are scaled down to a norm of `clip_norm`."""

    def minimized(loss: Tensor, given: Any, rate: float, scope: str) -> Any:
        optimizer = optimizer_of(given, rate)
        pairs = optimizer.compute_gradients(loss, trainable_variables(scope))
        if clip_norm is not None:
            gradients, variables = zip(*pairs, strict=True)
            pairs = list(zip(clip_by_global_norm(gradients, clip_norm)[0], variables, strict=True))
        return optimizer.apply_gradients(pairs)

    def train_op(loss: Tensor) -> Any:
        updates = get_default_graph().get_collection(GraphKeys.UPDATE_OPS)
        with control_dependencies(updates):
            steps = [minimized(loss, *each) for each in optimizers]
        with control_dependencies(steps):
            return assign_add(get_global_step(), 1).op

    return head.create_estimator_spec(features, mode, logits, labels, train_op)


ModelFn = Callable[..., EstimatorSpec]


def linear_model_fn(
    head: Head, columns: Any, optimizer: Any, sparse_combiner: str = "sum",
    partitioner: Any = None, clip_norm: float | None = None,
) -> ModelFn:  # fmt: skip
    """A model function for a linear model."""
    columns = tuple(columns or ())

    def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        check_features(features)
        rate = linear_learning_rate(len(columns), 0.2)
        optimizers = [(optimizer, rate, LINEAR)]
        with model_scope(LINEAR, features, partitioner):
            logits = linear_logits(features, columns, head.logits_dimension, sparse_combiner)
            return spec_of(head, features, labels, mode, logits, optimizers, clip_norm)

    return model_fn


def dnn_model_fn(
    head: Head, hidden_units: Any, columns: Any, optimizer: Any, activation_fn: Any,
    dropout: float | None, batch_norm: bool, partitioner: Any = None,
    clip_norm: float | None = None,
) -> ModelFn:  # fmt: skip
    """A model function for a deep network."""
    columns = tuple(columns or ())

    def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        check_features(features)
        optimizers = [(optimizer, 0.05, DNN)]
        with model_scope(DNN, features):
            logits = dnn_logits(
                features, mode, columns, hidden_units, head.logits_dimension,
                activation_fn or relu, dropout, batch_norm, partitioner,
            )  # fmt: skip
            return spec_of(head, features, labels, mode, logits, optimizers, clip_norm)

    return model_fn


def combined_model_fn(
    head: Head, linear_columns: Any, linear_optimizer: Any, dnn_columns: Any, dnn_optimizer: Any,
    hidden_units: Any, activation_fn: Any, dropout: float | None, batch_norm: bool,
    sparse_combiner: str = "sum", partitioner: Any = None, clip_norm: float | None = None,
) -> ModelFn:  # fmt: skip
    """A model function for the sum of both. ValueError for no columns, or a network without
    layers."""
    linear_columns, dnn_columns = tuple(linear_columns or ()), tuple(dnn_columns or ())
    if not linear_columns and not dnn_columns:
        raise ValueError("Either linear_feature_columns or dnn_feature_columns must be defined.")
    if dnn_columns and not hidden_units:
        raise ValueError("dnn_hidden_units must be defined when dnn_feature_columns is specified.")

    def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        check_features(features)
        parts, optimizers = [], []
        if dnn_columns:
            with model_scope(DNN, features):
                logits = dnn_logits(
                    features, mode, dnn_columns, hidden_units, head.logits_dimension,
                    activation_fn or relu, dropout, batch_norm, partitioner,
                )  # fmt: skip
            parts.append(logits)
            optimizers.append((dnn_optimizer, 0.001, DNN))
        if linear_columns:
            with model_scope(LINEAR, features, partitioner):
                parts.append(
                    linear_logits(features, linear_columns, head.logits_dimension, sparse_combiner)
                )
            rate = linear_learning_rate(len(linear_columns), 0.005)
            optimizers.append((linear_optimizer, rate, LINEAR))
        logits = parts[0] if len(parts) == 1 else parts[0] + parts[1]
        return spec_of(head, features, labels, mode, logits, optimizers, clip_norm)

    return model_fn
