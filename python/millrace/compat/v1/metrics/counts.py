"""Counts of what was predicted right and wrong."""

from typing import Any

from millrace.compat.v1.metrics.streaming import collected, metric_variable
from millrace.compat.v1.weighting import broadcast_weights, safe_div, squeezed
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.ops import array, math, reduce
from millrace.state import assign as state
from millrace.state.variable_scope import variable_scope


def _bools(labels: Any, predictions: Any, weights: Any) -> tuple[Tensor, Tensor, Any]:
    return squeezed(
        math.cast(convert_to_tensor(labels), dtypes.bool_),
        math.cast(convert_to_tensor(predictions), dtypes.bool_), weights,
    )  # fmt: skip


def _count(values: Tensor, weights: Any = None) -> tuple[Tensor, Tensor]:
    """How often a condition held, each time counting as much as its weight."""
    count = metric_variable([], dtypes.float32, name="count")
    values = math.cast(values, dtypes.float32)
    if weights is not None:
        weights = math.cast(weights, dtypes.float32)
        values = math.multiply(values, broadcast_weights(weights, values))
    value = array.identity(count)
    return value, state.assign_add(count, reduce.reduce_sum(values))


def _outcome(
    label: bool, prediction: bool, labels: Any, predictions: Any, weights: Any,
    metrics_collections: Any, updates_collections: Any, name: str | None, default: str,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    with variable_scope(name, default, [predictions, labels, weights]):
        labels, predictions, weights = _bools(labels, predictions, weights)
        hit = math.logical_and(math.equal(labels, label), math.equal(predictions, prediction))
        value, update = _count(hit, weights)
        return collected(value, update, metrics_collections, updates_collections)


@export(v1="metrics.true_positives")
def true_positives(
    labels: Any, predictions: Any, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The sum of weights where label and prediction are true; arguments as for `mean`."""
    return _outcome(True, True, labels, predictions, weights, metrics_collections,
                    updates_collections, name, "true_positives")  # fmt: skip


@export(v1="metrics.true_negatives")
def true_negatives(
    labels: Any, predictions: Any, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The sum of weights where label and prediction are false; arguments as for `mean`."""
    return _outcome(False, False, labels, predictions, weights, metrics_collections,
                    updates_collections, name, "true_negatives")  # fmt: skip


@export(v1="metrics.false_positives")
def false_positives(
    labels: Any, predictions: Any, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The sum of weights where only the prediction is true; arguments as for `mean`."""
    return _outcome(False, True, labels, predictions, weights, metrics_collections,
                    updates_collections, name, "false_positives")  # fmt: skip


@export(v1="metrics.false_negatives")
def false_negatives(
    labels: Any, predictions: Any, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The sum of weights where only the label is true; arguments as for `mean`."""
    return _outcome(True, False, labels, predictions, weights, metrics_collections,
                    updates_collections, name, "false_negatives")  # fmt: skip


def _share(part: Any, rest: Any, name: str) -> Tensor:
    """part / (part + rest), 0 where both are 0."""
    return safe_div(part, math.add(part, rest), name=name)


@export(v1="metrics.precision")
def precision(
    labels: Any, predictions: Any, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The share of true predictions that are right; arguments as for `mean`."""
    with variable_scope(name, "precision", [predictions, labels, weights]):
        labels, predictions, weights = _bools(labels, predictions, weights)
        right, right_update = true_positives(labels, predictions, weights)
        wrong, wrong_update = false_positives(labels, predictions, weights)
        value = _share(right, wrong, "value")
        update = _share(right_update, wrong_update, "update_op")
        return collected(value, update, metrics_collections, updates_collections)


@export(v1="metrics.recall")
def recall(
    labels: Any, predictions: Any, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The share of true labels that were predicted; arguments as for `mean`."""
    with variable_scope(name, "recall", [predictions, labels, weights]):
        labels, predictions, weights = _bools(labels, predictions, weights)
        found, found_update = true_positives(labels, predictions, weights)
        missed, missed_update = false_negatives(labels, predictions, weights)
        value = _share(found, missed, "value")
        update = _share(found_update, missed_update, "update_op")
        return collected(value, update, metrics_collections, updates_collections)
