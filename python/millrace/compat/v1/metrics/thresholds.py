"""Counts at several thresholds, and the areas under their curves."""

from typing import Any, Callable

from millrace.compat.v1.metrics.streaming import as_float, collected, metric_variable
from millrace.compat.v1.weighting import broadcast_weights, safe_div, squeezed
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import constant, convert_to_tensor
from millrace.graph.default_graph import control_dependencies
from millrace.ops import along, array, check, gather, math, reduce
from millrace.state import assign as state
from millrace.state.variable_scope import variable_scope

_SMALL = 1e-7


def _at_thresholds(
    labels: Any, predictions: Any, thresholds: Any, weights: Any, includes: Any
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Counts per threshold, and their updates: of "tp", "fn", "tn", "fp" as asked for."""
    labels, predictions, weights = squeezed(
        math.cast(convert_to_tensor(labels), dtypes.bool_), as_float(predictions), weights
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
        return collected(value, update, metrics, updates)


def _small_share(part: Tensor, rest: Tensor, name: str) -> Tensor:
    return math.divide(part, _SMALL + part + rest, name=name)


@export(v1="metrics.precision_at_thresholds")
def precision_at_thresholds(
    labels: Any, predictions: Any, thresholds: Any, weights: Any = None,
    metrics_collections: Any = None, updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`precision`, predictions above each of the thresholds being true."""
    return _ratio(labels, predictions, thresholds, weights, "fp", name,
                  "precision_at_thresholds", _small_share, metrics_collections,
                  updates_collections)  # fmt: skip


@export(v1="metrics.recall_at_thresholds")
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
        return collected(values[case], changes[case], metrics, updates)


@export(v1="metrics.true_positives_at_thresholds")
def true_positives_at_thresholds(
    labels: Any, predictions: Any, thresholds: Any, weights: Any = None,
    metrics_collections: Any = None, updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`true_positives`, predictions above each of the thresholds being true."""
    return _one_case("tp", "true_positives", labels, predictions, thresholds, weights,
                     metrics_collections, updates_collections, name)  # fmt: skip


@export(v1="metrics.true_negatives_at_thresholds")
def true_negatives_at_thresholds(
    labels: Any, predictions: Any, thresholds: Any, weights: Any = None,
    metrics_collections: Any = None, updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`true_negatives`, predictions above each of the thresholds being true."""
    return _one_case("tn", "true_negatives", labels, predictions, thresholds, weights,
                     metrics_collections, updates_collections, name)  # fmt: skip


@export(v1="metrics.false_positives_at_thresholds")
def false_positives_at_thresholds(
    labels: Any, predictions: Any, thresholds: Any, weights: Any = None,
    metrics_collections: Any = None, updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`false_positives`, predictions above each of the thresholds being true."""
    return _one_case("fp", "false_positives", labels, predictions, thresholds, weights,
                     metrics_collections, updates_collections, name)  # fmt: skip


@export(v1="metrics.false_negatives_at_thresholds")
def false_negatives_at_thresholds(
    labels: Any, predictions: Any, thresholds: Any, weights: Any = None,
    metrics_collections: Any = None, updates_collections: Any = None, name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`false_negatives`, predictions above each of the thresholds being true."""
    return _one_case("fn", "false_negatives", labels, predictions, thresholds, weights,
                     metrics_collections, updates_collections, name)  # fmt: skip


@export(v1="metrics.auc")
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
        predictions = as_float(predictions)
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
        return collected(value, update, metrics_collections, updates_collections)


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
    ratio = gather.where(
        both, safe_div(positives[:-1], math.maximum(positives[1:], 0)),
        array.ones_like(positives[1:]),
    )  # fmt: skip
    parts = safe_div(
        slope * (more_tp + intercept * math.log(ratio)), math.maximum(tp[1:] + fn[1:], 0)
    )
    return reduce.reduce_sum(parts, name=name)


@export(v1="metrics.specificity_at_sensitivity")
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
        at = math.cast(along.argmax(along.cumsum(nearest), 0), dtypes.int32)
        return math.divide(tn[at], tn[at] + fp[at] + _SMALL, name=name)

    return _at_best(compute, "specificity_at_sensitivity", labels, predictions, weights,
                    num_thresholds, metrics_collections, updates_collections, name)  # fmt: skip


@export(v1="metrics.sensitivity_at_specificity")
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
        at = math.cast(along.argmin(distance, 0), dtypes.int32)
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
        return collected(value, update, metrics, updates)
