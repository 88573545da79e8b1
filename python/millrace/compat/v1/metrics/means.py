"""Means of values and of errors."""

from typing import Any

from millrace.compat.v1.metrics.streaming import as_float, collected, metric_variable
from millrace.compat.v1.weighting import broadcast_weights, safe_div, squeezed
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.default_graph import control_dependencies
from millrace.ops import array, confusion, gather, math, reduce
from millrace.state import assign as state
from millrace.state.variable_scope import variable_scope


@export(v1="metrics.mean")
def mean(
    values: Any, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The mean of all values seen.

    Args:
      weights: one number, or of the rank of the values, each size theirs or 1.
      metrics_collections, updates_collections: where to add the value and the update to.

    Returns: the value so far, and the operation that takes a batch in and gives the value then.
    Initialise local variables first.
    """
    with variable_scope(name, "mean", [values, weights]):
        values = as_float(values)
        total = metric_variable([], dtypes.float32, name="total")
        count = metric_variable([], dtypes.float32, name="count")
        if weights is None:
            number = math.cast(array.size(values), dtypes.float32)
        else:
            _, values, weights = squeezed(None, values, weights)
            weights = broadcast_weights(math.cast(weights, dtypes.float32), values)
            values = math.multiply(values, weights)
            number = reduce.reduce_sum(weights)
        update_total = state.assign_add(total, reduce.reduce_sum(values))
        with control_dependencies([values]):
            update_count = state.assign_add(count, number)
        value = safe_div(total, count, name="value")
        update = safe_div(update_total, update_count, name="update_op")
        return collected(value, update, metrics_collections, updates_collections)


@export(v1="metrics.mean_tensor")
def mean_tensor(
    values: Any, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The mean of each element over all batches seen; all have one shape."""
    with variable_scope(name, "mean", [values, weights]):
        values = as_float(values)
        total = metric_variable(values.shape, dtypes.float32, name="total_tensor")
        count = metric_variable(values.shape, dtypes.float32, name="count_tensor")
        number = array.ones_like(values)
        if weights is not None:
            _, values, weights = squeezed(None, values, weights)
            weights = broadcast_weights(math.cast(weights, dtypes.float32), values)
            values = math.multiply(values, weights)
            number = math.multiply(number, weights)
        update_total = state.assign_add(total, values)
        with control_dependencies([values]):
            update_count = state.assign_add(count, number)
        value = safe_div(total, count, name="value")
        update = safe_div(update_total, update_count, name="update_op")
        return collected(value, update, metrics_collections, updates_collections)


@export(v1="metrics.accuracy")
def accuracy(
    labels: Any, predictions: Any, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """How often predictions equal labels; arguments as for `mean`."""
    labels, predictions, weights = squeezed(labels, predictions, weights)
    if labels.dtype != predictions.dtype:
        predictions = math.cast(predictions, labels.dtype)
    correct = math.cast(math.equal(predictions, labels), dtypes.float32)
    return mean(correct, weights, metrics_collections, updates_collections, name or "accuracy")


@export(v1="metrics.mean_absolute_error")
def mean_absolute_error(
    labels: Any, predictions: Any, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The mean of |predictions - labels|; arguments as for `mean`."""
    labels, predictions, weights = squeezed(labels, predictions, weights)
    errors = math.abs(as_float(predictions) - as_float(labels))
    name = name or "mean_absolute_error"
    return mean(errors, weights, metrics_collections, updates_collections, name)


@export(v1="metrics.mean_squared_error")
def mean_squared_error(
    labels: Any, predictions: Any, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The mean of (predictions - labels)^2; arguments as for `mean`."""
    labels, predictions, weights = squeezed(labels, predictions, weights)
    errors = math.squared_difference(as_float(labels), as_float(predictions))
    name = name or "mean_squared_error"
    return mean(errors, weights, metrics_collections, updates_collections, name)


@export(v1="metrics.root_mean_squared_error")
def root_mean_squared_error(
    labels: Any, predictions: Any, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The root of `mean_squared_error`."""
    value, update = mean_squared_error(
        labels, predictions, weights, None, None, name or "root_mean_squared_error"
    )
    return collected(math.sqrt(value), math.sqrt(update), metrics_collections, updates_collections)


@export(v1="metrics.mean_cosine_distance")
def mean_cosine_distance(
    labels: Any, predictions: Any, dim: int, weights: Any = None,
    metrics_collections: Any = None, updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The mean of 1 - labels * predictions along `dim`, of vectors that have length one."""
    labels, predictions, weights = squeezed(labels, predictions, weights)
    products = math.multiply(as_float(predictions), as_float(labels))
    radial = reduce.reduce_sum(products, axis=[dim], keepdims=True)
    value, update = mean(radial, weights, None, None, name or "mean_cosine_distance")
    return collected(
        math.subtract(1.0, value), math.subtract(1.0, update), metrics_collections,
        updates_collections,
    )  # fmt: skip


@export(v1="metrics.mean_relative_error")
def mean_relative_error(
    labels: Any, predictions: Any, normalizer: Any, weights: Any = None,
    metrics_collections: Any = None, updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The mean of |predictions - labels| / normalizer, 0 where the normalizer is 0."""
    labels, predictions, weights = squeezed(labels, predictions, weights)
    predictions, normalizer = confusion.remove_squeezable_dimensions(predictions, normalizer)
    predictions.shape.assert_is_compatible_with(normalizer.shape)
    kind = predictions.dtype.base_dtype
    labels, normalizer = math.cast(labels, kind), math.cast(normalizer, kind)
    errors = gather.where(
        math.equal(normalizer, array.zeros_like(normalizer)), array.zeros_like(labels),
        math.divide(math.abs(labels - predictions), normalizer),
    )  # fmt: skip
    name = name or "mean_relative_error"
    return mean(errors, weights, metrics_collections, updates_collections, name)


@export(v1="metrics.percentage_below")
def percentage_below(
    values: Any, threshold: Any, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The share of values below the threshold; arguments as for `mean`."""
    below = math.cast(math.less(values, threshold), dtypes.float32)
    name = name or "percentage_below_threshold"
    return mean(below, weights, metrics_collections, updates_collections, name)
