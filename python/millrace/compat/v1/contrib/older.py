"""Losses and metrics with the arguments in an older order."""

from typing import Any

from millrace.compat.v1.losses import losses
from millrace.compat.v1.metrics import counts, means, thresholds
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.default_graph import name_scope
from millrace.ops import math, reduce
from millrace.ops.nn import activations, cross_entropy


@export(v1=("contrib.losses.softmax_cross_entropy", "contrib.slim.losses.softmax_cross_entropy"))
def softmax_cross_entropy(
    logits: Any, onehot_labels: Any, weights: Any = 1.0, label_smoothing: float = 0,
    scope: str | None = None,
) -> Tensor:  # fmt: skip
    """`losses.softmax_cross_entropy` with the logits first."""
    return losses.softmax_cross_entropy(onehot_labels, logits, weights, label_smoothing, scope)


@export(
    v1=(
        "contrib.losses.sparse_softmax_cross_entropy",
        "contrib.slim.losses.sparse_softmax_cross_entropy",
    )
)
def sparse_softmax_cross_entropy(
    logits: Any, labels: Any, weights: Any = 1.0, scope: str | None = None
) -> Tensor:
    """`losses.sparse_softmax_cross_entropy` with the logits first."""
    return losses.sparse_softmax_cross_entropy(labels, logits, weights, scope)


@export(v1=("contrib.losses.sigmoid_cross_entropy", "contrib.slim.losses.sigmoid_cross_entropy"))
def sigmoid_cross_entropy(
    logits: Any, multi_class_labels: Any, weights: Any = 1.0, label_smoothing: float = 0,
    scope: str | None = None,
) -> Tensor:  # fmt: skip
    """`losses.sigmoid_cross_entropy` with the logits first."""
    return losses.sigmoid_cross_entropy(multi_class_labels, logits, weights, label_smoothing, scope)


@export(v1=("contrib.losses.mean_squared_error", "contrib.slim.losses.mean_squared_error"))
def mean_squared_error(
    predictions: Any, labels: Any = None, weights: Any = 1.0, scope: str | None = None
) -> Tensor:
    """`losses.mean_squared_error` with the predictions first."""
    return losses.mean_squared_error(labels, predictions, weights, scope)


@export(v1=("contrib.losses.log_loss", "contrib.slim.losses.log_loss"))
def log_loss(
    predictions: Any, labels: Any = None, weights: Any = 1.0, epsilon: float = 1e-7,
    scope: str | None = None,
) -> Tensor:  # fmt: skip
    """`losses.log_loss` with the predictions first."""
    return losses.log_loss(labels, predictions, weights, epsilon, scope)


add_loss = export(v1=("contrib.losses.add_loss", "contrib.slim.losses.add_loss"))(losses.add_loss)
get_losses = export(v1=("contrib.losses.get_losses", "contrib.slim.losses.get_losses"))(
    losses.get_losses
)
get_total_loss = export(v1=("contrib.losses.get_total_loss", "contrib.slim.losses.get_total_loss"))(
    losses.get_total_loss
)
get_regularization_losses = export(
    v1=("contrib.losses.get_regularization_losses", "contrib.slim.losses.get_regularization_losses")
)(losses.get_regularization_losses)


@export(v1=("contrib.metrics.streaming_accuracy", "contrib.slim.metrics.streaming_accuracy"))
def streaming_accuracy(
    predictions: Any, labels: Any, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`metrics.accuracy` with the predictions first."""
    return means.accuracy(
        labels, predictions, weights, metrics_collections, updates_collections, name
    )


@export(v1=("contrib.metrics.streaming_precision", "contrib.slim.metrics.streaming_precision"))
def streaming_precision(
    predictions: Any, labels: Any, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`metrics.precision` with the predictions first."""
    return counts.precision(
        labels, predictions, weights, metrics_collections, updates_collections, name
    )


@export(v1=("contrib.metrics.streaming_recall", "contrib.slim.metrics.streaming_recall"))
def streaming_recall(
    predictions: Any, labels: Any, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`metrics.recall` with the predictions first."""
    return counts.recall(
        labels, predictions, weights, metrics_collections, updates_collections, name
    )


@export(v1=("contrib.metrics.streaming_auc", "contrib.slim.metrics.streaming_auc"))
def streaming_auc(
    predictions: Any, labels: Any, weights: Any = None, num_thresholds: int = 200,
    metrics_collections: Any = None, updates_collections: Any = None, curve: str = "ROC",
    name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`metrics.auc` with the predictions first."""
    return thresholds.auc(labels, predictions, weights, num_thresholds, metrics_collections,
                       updates_collections, curve, name)  # fmt: skip


@export(v1=("contrib.metrics.streaming_mean", "contrib.slim.metrics.streaming_mean"))
def streaming_mean(
    values: Any, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """As `metrics.mean`."""
    return means.mean(values, weights, metrics_collections, updates_collections, name)


@export(
    v1=(
        "contrib.metrics.streaming_mean_squared_error",
        "contrib.slim.metrics.streaming_mean_squared_error",
    )
)
def streaming_mean_squared_error(
    predictions: Any, labels: Any, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`metrics.mean_squared_error` with the predictions first."""
    return means.mean_squared_error(
        labels, predictions, weights, metrics_collections, updates_collections, name
    )


@export(v1=("contrib.metrics.streaming_recall_at_k", "contrib.slim.metrics.streaming_recall_at_k"))
def streaming_recall_at_k(
    predictions: Any, labels: Any, k: int, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """How often the label of an example is among its k best predictions."""
    found = math.cast(activations.in_top_k(predictions, labels, k), "float32")
    return means.mean(
        found, weights, metrics_collections, updates_collections, name or f"recall_at_{k}"
    )


@export(v1="contrib.metrics.accuracy")
def accuracy(predictions: Any, labels: Any, weights: Any = None, name: str | None = None) -> Tensor:
    """The share of predictions that equal their labels, of one batch."""
    with name_scope(name, "accuracy", [predictions, labels]):
        right = math.cast(math.equal(predictions, labels), "float32")
        if weights is None:
            return reduce.reduce_mean(right)
        right = math.multiply(right, weights)
        return math.divide(reduce.reduce_sum(right), reduce.reduce_sum(weights + 0 * right))


@export(v1=("contrib.metrics.aggregate_metrics", "contrib.slim.metrics.aggregate_metrics"))
def aggregate_metrics(*value_update_tuples: Any) -> tuple[list[Any], list[Any]]:
    """The values and the updates of several metrics."""
    if not value_update_tuples:
        raise ValueError("Expected at least one value_tensor/update_op pair")
    values, updates = zip(*value_update_tuples, strict=True)
    return list(values), list(updates)


@export(v1=("contrib.metrics.aggregate_metric_map", "contrib.slim.metrics.aggregate_metric_map"))
def aggregate_metric_map(names_to_tuples: dict[str, Any]) -> tuple[dict, dict]:
    """({name: value}, {name: update}) of {name: (value, update)}."""
    values = {name: pair[0] for name, pair in names_to_tuples.items()}
    return values, {name: pair[1] for name, pair in names_to_tuples.items()}


@export(v1="contrib.nn.deprecated_flipped_softmax_cross_entropy_with_logits")
def flipped_softmax_cross_entropy_with_logits(
    logits: Any, labels: Any, dim: int = -1, name: str | None = None
) -> Tensor:
    """`nn.softmax_cross_entropy_with_logits` with the logits first."""
    return cross_entropy.softmax_cross_entropy_with_logits(
        labels=labels, logits=logits, dim=dim, name=name
    )


@export(v1="contrib.nn.deprecated_flipped_sparse_softmax_cross_entropy_with_logits")
def flipped_sparse_softmax_cross_entropy_with_logits(
    logits: Any, labels: Any, name: str | None = None
) -> Tensor:
    """`nn.sparse_softmax_cross_entropy_with_logits` with the logits first."""
    return cross_entropy.sparse_softmax_cross_entropy_with_logits(
        labels=labels, logits=logits, name=name
    )


@export(v1="contrib.nn.deprecated_flipped_sigmoid_cross_entropy_with_logits")
def flipped_sigmoid_cross_entropy_with_logits(
    logits: Any, targets: Any, name: str | None = None
) -> Tensor:
    """`nn.sigmoid_cross_entropy_with_logits` with the logits first."""
    return cross_entropy.sigmoid_cross_entropy_with_logits(labels=targets, logits=logits, name=name)
