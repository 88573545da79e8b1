"""Metrics of several classes."""

from typing import Any

import numpy as np

from millrace.compat.v1.metrics.streaming import collected, metric_variable
from millrace.compat.v1.weighting import safe_div
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import constant, convert_to_tensor
from millrace.graph.default_graph import control_dependencies
from millrace.ops import array, check, confusion, math, reduce
from millrace.state import assign as state
from millrace.state.variable_scope import variable_scope
from millrace.state.variables import Variable


def _confusion(
    labels: Any, predictions: Any, num_classes: int, weights: Any
) -> tuple[Variable, Tensor]:
    total = metric_variable(
        [num_classes, num_classes], dtypes.float64, name="total_confusion_matrix"
    )
    predictions = math.cast(convert_to_tensor(predictions), dtypes.int64)
    labels = math.cast(convert_to_tensor(labels), dtypes.int64)
    if predictions.shape.ndims != 1:
        predictions = array.reshape(predictions, [-1])
    if labels.shape.ndims != 1:
        labels = array.reshape(labels, [-1])
    if weights is not None:
        weights = convert_to_tensor(weights)
        if weights.shape.ndims != 1:
            weights = array.reshape(weights, [-1])
    current = confusion.confusion_matrix(
        labels, predictions, num_classes, weights=weights, dtype=dtypes.float64
    )
    return total, state.assign_add(total, current)


def _diagonal(matrix: Tensor) -> Tensor:
    size = matrix.shape.as_list()[0]
    return reduce.reduce_sum(matrix * constant(np.eye(size), dtypes.float32), 0)


@export(v1="metrics.mean_iou")
def mean_iou(
    labels: Any, predictions: Any, num_classes: int, weights: Any = None,
    metrics_collections: Any = None, updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The mean over classes of intersection over union; the update is of the confusion matrix."""
    with variable_scope(name, "mean_iou", [predictions, labels, weights]):
        predictions, labels = convert_to_tensor(predictions), convert_to_tensor(labels)
        predictions.shape.assert_is_compatible_with(labels.shape)
        total, update = _confusion(labels, predictions, num_classes, weights)
        matrix = math.cast(total, dtypes.float32)
        rows, columns = reduce.reduce_sum(matrix, 0), reduce.reduce_sum(matrix, 1)
        common = _diagonal(matrix)
        union = rows + columns - common
        valid = reduce.reduce_sum(
            math.cast(math.not_equal(union, array.zeros_like(union)), dtypes.float32)
        )
        value = safe_div(reduce.reduce_sum(safe_div(common, union)), valid, name="mean_iou")
        return collected(value, update, metrics_collections, updates_collections)


@export(v1="metrics.mean_per_class_accuracy")
def mean_per_class_accuracy(
    labels: Any, predictions: Any, num_classes: int, weights: Any = None,
    metrics_collections: Any = None, updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The mean over classes of the accuracy within each."""
    with variable_scope(name, "mean_accuracy", [predictions, labels, weights]):
        labels = math.cast(convert_to_tensor(labels), dtypes.int64)
        predictions = convert_to_tensor(predictions)
        predictions.shape.assert_is_compatible_with(labels.shape)
        total = metric_variable([num_classes], dtypes.float32, name="total")
        count = metric_variable([num_classes], dtypes.float32, name="count")
        labels = array.reshape(labels, [-1])
        predictions = array.reshape(math.cast(predictions, dtypes.int64), [-1])
        ones = array.ones([array.size(labels)], dtypes.float32)
        with control_dependencies(
            [
                check.assert_less(
                    labels, convert_to_tensor(num_classes, dtype=dtypes.int64),
                    message="`labels` out of bound",
                )
            ]
        ):  # fmt: skip
            correct = math.cast(math.equal(predictions, labels), dtypes.float32)
        if weights is not None:
            weights = array.reshape(math.cast(convert_to_tensor(weights), dtypes.float32), [-1])
            correct, ones = correct * weights, ones * weights
        update_total = state.scatter_add(total, labels, ones)
        update_count = state.scatter_add(count, labels, correct)
        value = reduce.reduce_mean(safe_div(count, total), name="mean_accuracy")
        update = safe_div(update_count, update_total, name="update_op")
        return collected(value, update, metrics_collections, updates_collections)
