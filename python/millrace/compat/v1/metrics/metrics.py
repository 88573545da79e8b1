"""Metrics over a stream of batches: (value, update_op), with their counts in local variables."""

from typing import Any, Callable

import numpy as np

from millrace import gen_ops
from millrace.compat.v1.weighting import broadcast_weights, safe_div, squeezed
from millrace.core import dtypes
from millrace.core.export import export
from millrace.graph.convert import constant, convert_to_tensor
from millrace.graph.graph import Tensor, control_dependencies, get_default_graph, name_scope
from millrace.graph.keys import GraphKeys
from millrace.graph.sparse import SparseTensor, convert_to_tensor_or_sparse_tensor
from millrace.ops import array, check, confusion, math, reduce
from millrace.state import assign as state
from millrace.state.variable_scope import variable_scope
from millrace.state.variables import Variable


def metric_variable(
    shape: Any, dtype: Any, validate_shape: bool = True, name: str | None = None
) -> Variable:
    """A local variable of zeros, in the collection of metrics too."""
    return Variable(
        lambda: array.zeros(shape, dtype), trainable=False, validate_shape=validate_shape,
        collections=[GraphKeys.LOCAL_VARIABLES, GraphKeys.METRIC_VARIABLES], name=name,
    )  # fmt: skip


def _collected(value: Any, update: Any, metrics: Any, updates: Any) -> tuple[Any, Any]:
    graph = get_default_graph()
    if metrics:
        graph.add_to_collections(metrics, value)
    if updates:
        graph.add_to_collections(updates, update)
    return value, update


def _float(x: Any) -> Tensor:
    return math.cast(convert_to_tensor(x), dtypes.float32)


# Means.


@export("metrics.mean")
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
        values = _float(values)
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
        return _collected(value, update, metrics_collections, updates_collections)


@export("metrics.mean_tensor")
def mean_tensor(
    values: Any, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The mean of each element over all batches seen; all have one shape."""
    with variable_scope(name, "mean", [values, weights]):
        values = _float(values)
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
        return _collected(value, update, metrics_collections, updates_collections)


@export("metrics.accuracy")
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


@export("metrics.mean_absolute_error")
def mean_absolute_error(
    labels: Any, predictions: Any, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The mean of |predictions - labels|; arguments as for `mean`."""
    labels, predictions, weights = squeezed(labels, predictions, weights)
    errors = math.abs(_float(predictions) - _float(labels))
    name = name or "mean_absolute_error"
    return mean(errors, weights, metrics_collections, updates_collections, name)


@export("metrics.mean_squared_error")
def mean_squared_error(
    labels: Any, predictions: Any, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The mean of (predictions - labels)^2; arguments as for `mean`."""
    labels, predictions, weights = squeezed(labels, predictions, weights)
    errors = math.squared_difference(_float(labels), _float(predictions))
    name = name or "mean_squared_error"
    return mean(errors, weights, metrics_collections, updates_collections, name)


@export("metrics.root_mean_squared_error")
def root_mean_squared_error(
    labels: Any, predictions: Any, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The root of `mean_squared_error`."""
    value, update = mean_squared_error(
        labels, predictions, weights, None, None, name or "root_mean_squared_error"
    )
    return _collected(math.sqrt(value), math.sqrt(update), metrics_collections, updates_collections)


@export("metrics.mean_cosine_distance")
def mean_cosine_distance(
    labels: Any, predictions: Any, dim: int, weights: Any = None,
    metrics_collections: Any = None, updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The mean of 1 - labels * predictions along `dim`, of vectors that have length one."""
    labels, predictions, weights = squeezed(labels, predictions, weights)
    products = math.multiply(_float(predictions), _float(labels))
    radial = reduce.reduce_sum(products, axis=[dim], keepdims=True)
    value, update = mean(radial, weights, None, None, name or "mean_cosine_distance")
    return _collected(
        math.subtract(1.0, value), math.subtract(1.0, update), metrics_collections,
        updates_collections,
    )  # fmt: skip


@export("metrics.mean_relative_error")
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
    errors = array.where(
        math.equal(normalizer, array.zeros_like(normalizer)), array.zeros_like(labels),
        math.divide(math.abs(labels - predictions), normalizer),
    )  # fmt: skip
    name = name or "mean_relative_error"
    return mean(errors, weights, metrics_collections, updates_collections, name)


@export("metrics.percentage_below")
def percentage_below(
    values: Any, threshold: Any, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The share of values below the threshold; arguments as for `mean`."""
    below = math.cast(math.less(values, threshold), dtypes.float32)
    name = name or "percentage_below_threshold"
    return mean(below, weights, metrics_collections, updates_collections, name)


# Counts of what was predicted right and wrong.


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
        return _collected(value, update, metrics_collections, updates_collections)


@export("metrics.true_positives")
def true_positives(
    labels: Any, predictions: Any, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The sum of weights where label and prediction are true; arguments as for `mean`."""
    return _outcome(True, True, labels, predictions, weights, metrics_collections,
                    updates_collections, name, "true_positives")  # fmt: skip


@export("metrics.true_negatives")
def true_negatives(
    labels: Any, predictions: Any, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The sum of weights where label and prediction are false; arguments as for `mean`."""
    return _outcome(False, False, labels, predictions, weights, metrics_collections,
                    updates_collections, name, "true_negatives")  # fmt: skip


@export("metrics.false_positives")
def false_positives(
    labels: Any, predictions: Any, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The sum of weights where only the prediction is true; arguments as for `mean`."""
    return _outcome(False, True, labels, predictions, weights, metrics_collections,
                    updates_collections, name, "false_positives")  # fmt: skip


@export("metrics.false_negatives")
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


@export("metrics.precision")
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
        return _collected(value, update, metrics_collections, updates_collections)


@export("metrics.recall")
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
        return _collected(value, update, metrics_collections, updates_collections)


# Counts at several thresholds.

_SMALL = 1e-7


def _at_thresholds(
    labels: Any, predictions: Any, thresholds: Any, weights: Any, includes: Any
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Counts per threshold, and their updates: of "tp", "fn", "tn", "fp" as asked for."""
    labels, predictions, weights = squeezed(
        math.cast(convert_to_tensor(labels), dtypes.bool_), _float(predictions), weights
    )
    count = len(thresholds)
    flat = array.reshape(predictions, [1, -1])
    truth = array.reshape(labels, [1, -1])
    limits = array.expand_dims(constant(list(thresholds), dtypes.float32), 1)
    predicted = math.greater(flat, limits)
    actual = math.logical_and(truth, array.ones_like(predicted))
    if weights is not None:
        weights = broadcast_weights(math.cast(weights, dtypes.float32), predictions)
        weights = array.reshape(weights, [1, -1])
    cases = {
        "tp": lambda: math.logical_and(actual, predicted),
        "fn": lambda: math.logical_and(actual, math.logical_not(predicted)),
        "tn": lambda: math.logical_not(math.logical_or(actual, predicted)),
        "fp": lambda: math.logical_and(math.logical_not(actual), predicted),
    }
    names = {"tp": "true_positives", "fn": "false_negatives", "tn": "true_negatives",
             "fp": "false_positives"}  # fmt: skip
    values, updates = {}, {}
    for case in includes:
        variable = metric_variable([count], dtypes.float32, name=names[case])
        hits = math.cast(cases[case](), dtypes.float32)
        if weights is not None:
            hits = hits * weights
        values[case] = convert_to_tensor(variable)
        updates[case] = state.assign_add(variable, reduce.reduce_sum(hits, 1))
    return values, updates


def _spread(count: int, last: float) -> list[float]:
    """`count` thresholds from just below 0 to `last`."""
    inner = [(i + 1) / (count - 1) for i in range(count - 2)]
    return [-_SMALL, *inner, last]


def _ratio(
    labels: Any, predictions: Any, thresholds: Any, weights: Any, other: str, name: str | None,
    default: str, compute: Callable[..., Tensor], metrics: Any, updates: Any,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    with variable_scope(name, default, [predictions, labels, weights]):
        values, changes = _at_thresholds(labels, predictions, thresholds, weights, ("tp", other))
        value = compute(values["tp"], values[other], "value")
        update = compute(changes["tp"], changes[other], "update_op")
        return _collected(value, update, metrics, updates)


def _small_share(part: Tensor, rest: Tensor, name: str) -> Tensor:
    return math.divide(part, _SMALL + part + rest, name=name)


@export("metrics.precision_at_thresholds")
def precision_at_thresholds(
    labels: Any, predictions: Any, thresholds: Any, weights: Any = None,
    metrics_collections: Any = None, updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`precision`, predictions above each of the thresholds being true."""
    return _ratio(labels, predictions, thresholds, weights, "fp", name,
                  "precision_at_thresholds", _small_share, metrics_collections,
                  updates_collections)  # fmt: skip


@export("metrics.recall_at_thresholds")
def recall_at_thresholds(
    labels: Any, predictions: Any, thresholds: Any, weights: Any = None,
    metrics_collections: Any = None, updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`recall`, predictions above each of the thresholds being true."""
    return _ratio(labels, predictions, thresholds, weights, "fn", name, "recall_at_thresholds",
                  _small_share, metrics_collections, updates_collections)  # fmt: skip


def _one_case(
    case: str, default: str, labels: Any, predictions: Any, thresholds: Any, weights: Any,
    metrics: Any, updates: Any, name: str | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    with variable_scope(name, default, [predictions, labels, weights]):
        values, changes = _at_thresholds(labels, predictions, thresholds, weights, (case,))
        return _collected(values[case], changes[case], metrics, updates)


@export("metrics.true_positives_at_thresholds")
def true_positives_at_thresholds(
    labels: Any, predictions: Any, thresholds: Any, weights: Any = None,
    metrics_collections: Any = None, updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`true_positives`, predictions above each of the thresholds being true."""
    return _one_case("tp", "true_positives", labels, predictions, thresholds, weights,
                     metrics_collections, updates_collections, name)  # fmt: skip


@export("metrics.true_negatives_at_thresholds")
def true_negatives_at_thresholds(
    labels: Any, predictions: Any, thresholds: Any, weights: Any = None,
    metrics_collections: Any = None, updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`true_negatives`, predictions above each of the thresholds being true."""
    return _one_case("tn", "true_negatives", labels, predictions, thresholds, weights,
                     metrics_collections, updates_collections, name)  # fmt: skip


@export("metrics.false_positives_at_thresholds")
def false_positives_at_thresholds(
    labels: Any, predictions: Any, thresholds: Any, weights: Any = None,
    metrics_collections: Any = None, updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`false_positives`, predictions above each of the thresholds being true."""
    return _one_case("fp", "false_positives", labels, predictions, thresholds, weights,
                     metrics_collections, updates_collections, name)  # fmt: skip


@export("metrics.false_negatives_at_thresholds")
def false_negatives_at_thresholds(
    labels: Any, predictions: Any, thresholds: Any, weights: Any = None,
    metrics_collections: Any = None, updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`false_negatives`, predictions above each of the thresholds being true."""
    return _one_case("fn", "false_negatives", labels, predictions, thresholds, weights,
                     metrics_collections, updates_collections, name)  # fmt: skip


@export("metrics.auc")
def auc(
    labels: Any, predictions: Any, weights: Any = None, num_thresholds: int = 200,
    metrics_collections: Any = None, updates_collections: Any = None, curve: str = "ROC",
    name: str | None = None, summation_method: str = "trapezoidal", thresholds: Any = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The area under a curve, approximated at thresholds between 0 and 1.

    Args:
      predictions: within [0, 1].
      curve: "ROC", or "PR" for precision over recall.
      summation_method: "trapezoidal", "minoring", "majoring", or "careful_interpolation" for PR.
      thresholds: those between 0 and 1; evenly spread ones by default.
    """
    if curve not in ("ROC", "PR"):
        raise ValueError(f"curve must be either ROC or PR, {curve} unknown")
    methods = ("trapezoidal", "minoring", "majoring", "careful_interpolation")
    if summation_method not in methods:
        raise ValueError(f"Invalid summation_method: {summation_method}, expected one of {methods}")
    if summation_method == "careful_interpolation" and curve != "PR":
        raise ValueError("careful_interpolation is for curve PR only")
    with variable_scope(name, "auc", [labels, predictions, weights]):
        if thresholds is not None:
            limits = [-_SMALL, *sorted(thresholds), 1 + _SMALL]
        else:
            limits = _spread(num_thresholds, 1 + _SMALL)
        predictions = _float(predictions)
        within = "predictions must be in [0, 1]"
        with control_dependencies(
            [
                check.assert_greater_equal(predictions, 0.0, message=within),
                check.assert_less_equal(predictions, 1.0, message=within),
            ]
        ):
            predictions = array.identity(predictions)
        values, changes = _at_thresholds(
            labels, predictions, limits, weights, ("tp", "fn", "tn", "fp")
        )
        value = _area(values, curve, summation_method, "value")
        update = _area(changes, curve, summation_method, "update_op")
        return _collected(value, update, metrics_collections, updates_collections)


def _area(counts: dict[str, Tensor], curve: str, method: str, name: str) -> Tensor:
    tp, fn, tn, fp = (counts[case] for case in ("tp", "fn", "tn", "fp"))
    small = 1e-6
    if method == "careful_interpolation":
        return _interpolated_area(tp, fp, fn, name)
    found = math.divide(tp + small, tp + fn + small)
    if curve == "ROC":
        x, y = math.divide(fp, fp + tn + small), found
    else:
        x, y = found, math.divide(tp + small, tp + fp + small)
    widths = x[:-1] - x[1:]
    if method == "trapezoidal":
        heights = (y[:-1] + y[1:]) / 2.0
    elif method == "minoring":
        heights = math.minimum(y[:-1], y[1:])
    else:
        heights = math.maximum(y[:-1], y[1:])
    return reduce.reduce_sum(math.multiply(widths, heights), name=name)


def _interpolated_area(tp: Tensor, fp: Tensor, fn: Tensor, name: str) -> Tensor:
    """The area under precision over recall, true and false positives taken as linear between
    thresholds."""
    more_tp = tp[:-1] - tp[1:]
    positives = tp + fp
    slope = safe_div(more_tp, math.maximum(positives[:-1] - positives[1:], 0))
    intercept = tp[1:] - math.multiply(slope, positives[1:])
    both = math.logical_and(positives[:-1] > 0, positives[1:] > 0)
    ratio = array.where(
        both, safe_div(positives[:-1], math.maximum(positives[1:], 0)),
        array.ones_like(positives[1:]),
    )  # fmt: skip
    parts = safe_div(
        slope * (more_tp + intercept * math.log(ratio)), math.maximum(tp[1:] + fn[1:], 0)
    )
    return reduce.reduce_sum(parts, name=name)


@export("metrics.specificity_at_sensitivity")
def specificity_at_sensitivity(
    labels: Any, predictions: Any, sensitivity: float, weights: Any = None,
    num_thresholds: int = 200, metrics_collections: Any = None, updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The share of false labels that are predicted false, at the threshold where the share of true
    labels that are found is nearest `sensitivity`."""
    if not 0 <= sensitivity <= 1:
        raise ValueError(f"`sensitivity` must be in the range [0, 1], got {sensitivity}")

    def compute(counts: dict[str, Tensor], name: str) -> Tensor:
        tp, fn, tn, fp = (counts[case] for case in ("tp", "fn", "tn", "fp"))
        distance = math.abs(math.divide(tp, tp + fn + _SMALL) - sensitivity)
        nearest = math.cast(math.equal(distance, reduce.reduce_min(distance)), dtypes.int64)
        # The last of equally near thresholds has the greatest specificity.
        at = math.cast(math.argmax(math.cumsum(nearest), 0), dtypes.int32)
        return math.divide(tn[at], tn[at] + fp[at] + _SMALL, name=name)

    return _at_best(compute, "specificity_at_sensitivity", labels, predictions, weights,
                    num_thresholds, metrics_collections, updates_collections, name)  # fmt: skip


@export("metrics.sensitivity_at_specificity")
def sensitivity_at_specificity(
    labels: Any, predictions: Any, specificity: float, weights: Any = None,
    num_thresholds: int = 200, metrics_collections: Any = None, updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The share of true labels that are found, at the threshold where the share of false labels
    that are predicted false is nearest `specificity`."""
    if not 0 <= specificity <= 1:
        raise ValueError(f"`specificity` must be in the range [0, 1], got {specificity}")

    def compute(counts: dict[str, Tensor], name: str) -> Tensor:
        tp, fn, tn, fp = (counts[case] for case in ("tp", "fn", "tn", "fp"))
        distance = math.abs(math.divide(tn, tn + fp + _SMALL) - specificity)
        at = math.cast(math.argmin(distance, 0), dtypes.int32)
        return math.divide(tp[at], tp[at] + fn[at] + _SMALL, name=name)

    return _at_best(compute, "sensitivity_at_specificity", labels, predictions, weights,
                    num_thresholds, metrics_collections, updates_collections, name)  # fmt: skip


def _at_best(
    compute: Callable[..., Tensor], default: str, labels: Any, predictions: Any, weights: Any,
    count: int, metrics: Any, updates: Any, name: str | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    with variable_scope(name, default, [labels, predictions, weights]):
        values, changes = _at_thresholds(
            labels, predictions, _spread(count, 1.0 - _SMALL), weights, ("tp", "fn", "tn", "fp")
        )
        value, update = compute(values, "value"), compute(changes, "update_op")
        return _collected(value, update, metrics, updates)


# Classes.


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


@export("metrics.mean_iou")
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
        return _collected(value, update, metrics_collections, updates_collections)


@export("metrics.mean_per_class_accuracy")
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
        return _collected(value, update, metrics_collections, updates_collections)


# The best k classes.


def _label_rows(labels: Any, predictions_rank: int | None) -> tuple[Tensor, Tensor]:
    """Labels as [..., count] and which of them are there: sparse ones leave places empty."""
    labels = convert_to_tensor_or_sparse_tensor(labels)
    if isinstance(labels, SparseTensor):
        ids = SparseTensor(
            labels.indices, math.cast(labels.values, dtypes.int64), labels.dense_shape
        )
        there = gen_ops.sparse_to_dense(
            ids.indices, ids.dense_shape, array.ones_like(ids.values),
            convert_to_tensor(0, dtype=dtypes.int64), validate_indices=False,
        )  # fmt: skip
        rows = gen_ops.sparse_to_dense(
            ids.indices, ids.dense_shape, ids.values, convert_to_tensor(0, dtype=dtypes.int64),
            validate_indices=False,
        )  # fmt: skip
        rank = ids.dense_shape.shape[0].value
        there = math.cast(there, dtypes.bool_)
    else:
        rows = math.cast(labels, dtypes.int64)
        rank = rows.shape.ndims
        there = array.ones_like(rows, dtype=dtypes.bool_)
    if rank is not None and predictions_rank is not None:
        if rank == predictions_rank - 1:
            return array.expand_dims(rows, -1), array.expand_dims(there, -1)
        if rank != predictions_rank:
            raise ValueError(
                f"Unexpected rank {rank} of labels for predictions of rank {predictions_rank}: "
                "expected the same, or one less"
            )
    return rows, there


def _distinct(ids: Tensor, there: Tensor) -> Tensor:
    """Which of the ids are there and have no equal before them in their row."""
    same = math.equal(array.expand_dims(ids, -1), array.expand_dims(ids, -2))
    same = math.logical_and(same, array.expand_dims(there, -2))
    count = array.shape(ids)[-1]
    earlier = math.range(count) < array.expand_dims(math.range(count), -1)
    seen = reduce.reduce_any(math.logical_and(same, earlier), -1)
    return math.logical_and(there, math.logical_not(seen))


def _contains(rows: Tensor, there: Tensor, ids: Tensor) -> Tensor:
    """For each id, whether its row of `rows` has it among those that are there."""
    same = math.equal(array.expand_dims(ids, -1), array.expand_dims(rows, -2))
    return reduce.reduce_any(math.logical_and(same, array.expand_dims(there, -2)), -1)


class _TopK:
    """Labels and predicted classes of each example, as sets."""

    def __init__(self, labels: Any, predictions_idx: Any, class_id: Any):
        ids = math.cast(convert_to_tensor(predictions_idx), dtypes.int64)
        rows, there = _label_rows(labels, ids.shape.ndims)
        every = array.ones_like(ids, dtype=dtypes.bool_)
        predicted, labelled = _distinct(ids, every), _distinct(rows, there)
        right = _contains(rows, there, ids)
        found = _contains(ids, every, rows)
        if class_id is not None:
            wanted = convert_to_tensor(class_id, dtype=dtypes.int64)
            predicted = math.logical_and(predicted, math.equal(ids, wanted))
            labelled = math.logical_and(labelled, math.equal(rows, wanted))
        self.ids = ids
        self.rows = rows
        self.right = math.logical_and(predicted, right)
        self.tp = _number(self.right)
        self.fp = _number(math.logical_and(predicted, math.logical_not(right)))
        self.fn = _number(math.logical_and(labelled, math.logical_not(found)))
        self.labelled = _number(labelled)
        self.is_sparse = isinstance(labels, SparseTensor)


def _number(flags: Tensor) -> Tensor:
    return reduce.reduce_sum(math.cast(flags, dtypes.float64), -1)


def _streamed(counts: Tensor, weights: Any, name: str) -> tuple[Tensor, Tensor]:
    if weights is not None:
        weights = broadcast_weights(math.cast(weights, dtypes.float64), counts)
        counts = math.multiply(counts, weights)
    variable = metric_variable([], dtypes.float64, name=name)
    return convert_to_tensor(variable), state.assign_add(variable, reduce.reduce_sum(counts))


def _at_top_k(
    kind: str, labels: Any, predictions_idx: Any, k: Any, class_id: Any, weights: Any,
    metrics: Any, updates: Any, name: str | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    suffix = "" if k is None else f"_{k}"
    default = f"{kind}_at{suffix}" + ("" if class_id is None else f"_class{class_id}")
    if isinstance(class_id, Tensor):
        default = f"{kind}_at{suffix}_class"
    with name_scope(name, default, [predictions_idx, weights]) as scope:
        sets = _TopK(labels, predictions_idx, class_id)
        other = "false_negative" if kind == "recall" else "false_positive"
        wrong = sets.fn if kind == "recall" else sets.fp
        tp, tp_update = _streamed(sets.tp, weights, f"true_positive_at{suffix}")
        rest, rest_update = _streamed(wrong, weights, f"{other}_at{suffix}")
        value = math.divide(tp, math.add(tp, rest), name=scope)
        update = math.divide(tp_update, math.add(tp_update, rest_update), name="update")
        return _collected(value, update, metrics, updates)


def _check_k(k: int) -> None:
    if k < 1:
        raise ValueError(f"Invalid k={k}: expected 1 or more")


@export("metrics.recall_at_top_k")
def recall_at_top_k(
    labels: Any, predictions_idx: Any, k: int | None = None, class_id: Any = None,
    weights: Any = None, metrics_collections: Any = None, updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """As `recall_at_k`, of the best classes themselves."""
    return _at_top_k("recall", labels, predictions_idx, k, class_id, weights, metrics_collections,
                     updates_collections, name)  # fmt: skip


@export("metrics.recall_at_k")
def recall_at_k(
    labels: Any, predictions: Any, k: int, class_id: Any = None, weights: Any = None,
    metrics_collections: Any = None, updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The share of labels that are among the k best predictions of their example.

    Args:
      labels: [D1, ... DN, labels] classes, sparse or dense; or [D1, ... DN].
      predictions: [D1, ... DN, classes] scores.
      class_id: counts only this class.
    """
    _check_k(k)
    with name_scope(name, f"recall_at_{k}", [predictions, weights]) as scope:
        _, best = gen_ops.top_kv2(predictions, k)
        return recall_at_top_k(labels, best, k, class_id, weights, metrics_collections,
                               updates_collections, scope)  # fmt: skip


@export("metrics.precision_at_top_k")
def precision_at_top_k(
    labels: Any, predictions_idx: Any, k: int | None = None, class_id: Any = None,
    weights: Any = None, metrics_collections: Any = None, updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """As `precision_at_k`, of the best classes themselves."""
    return _at_top_k("precision", labels, predictions_idx, k, class_id, weights,
                     metrics_collections, updates_collections, name)  # fmt: skip


@export("metrics.precision_at_k", "metrics.sparse_precision_at_k")
def precision_at_k(
    labels: Any, predictions: Any, k: int, class_id: Any = None, weights: Any = None,
    metrics_collections: Any = None, updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The share of the k best predictions that are labels; arguments as for `recall_at_k`."""
    _check_k(k)
    with name_scope(name, f"precision_at_{k}", [predictions, weights]) as scope:
        _, best = gen_ops.top_kv2(predictions, k)
        return precision_at_top_k(labels, best, k, class_id, weights, metrics_collections,
                                  updates_collections, scope)  # fmt: skip


@export("metrics.average_precision_at_k", "metrics.sparse_average_precision_at_k")
def average_precision_at_k(
    labels: Any, predictions: Any, k: int, weights: Any = None, metrics_collections: Any = None,
    updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The mean over examples of the average precision of the k best predictions."""
    _check_k(k)
    with name_scope(name, f"average_precision_at_{k}", [predictions, weights]) as scope:
        _, best = gen_ops.top_kv2(predictions, k)
        sets = _TopK(labels, best, None)
        right = math.cast(sets.right, dtypes.float64)
        retrieved = math.cast(math.range(1, k + 1), dtypes.float64)
        precisions = math.cumsum(right, axis=-1) / retrieved * right
        if sets.is_sparse:
            relevant = math.minimum(sets.labelled, float(k))
        else:
            count = math.cast(array.shape(sets.rows)[-1], dtypes.float64)
            relevant = math.minimum(count, float(k)) + array.zeros_like(sets.labelled)
        each = math.divide(reduce.reduce_sum(precisions, -1), relevant)
        if weights is None:
            most = math.cast(array.size(each), dtypes.float64)
        else:
            weights = broadcast_weights(math.cast(weights, dtypes.float64), each)
            each = math.multiply(each, weights)
            most = reduce.reduce_sum(weights)
        max_variable = metric_variable([], dtypes.float64, name="max")
        total_variable = metric_variable([], dtypes.float64, name="total")
        max_update = state.assign_add(max_variable, most, name="update")
        total_update = state.assign_add(total_variable, reduce.reduce_sum(each), name="update")
        value = safe_div(total_variable, max_variable, name="mean")
        update = safe_div(total_update, max_update, name=scope)
        return _collected(value, update, metrics_collections, updates_collections)
