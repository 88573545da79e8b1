"""Metrics of the best k classes."""

from typing import Any

from millrace import gen_ops
from millrace.compat.v1.metrics.streaming import collected, metric_variable
from millrace.compat.v1.weighting import broadcast_weights, safe_div
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.sparse import SparseTensor, convert_to_tensor_or_sparse_tensor
from millrace.ops import along, array, math, reduce
from millrace.state import assign as state


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
        rank = ids.dense_shape.shape._size_at(0)
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
    earlier = along.range(count) < array.expand_dims(along.range(count), -1)
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
        return collected(value, update, metrics, updates)


def _check_k(k: int) -> None:
    if k < 1:
        raise ValueError(f"Invalid k={k}: expected 1 or more")


@export(v1="metrics.recall_at_top_k")
def recall_at_top_k(
    labels: Any, predictions_idx: Any, k: int | None = None, class_id: Any = None,
    weights: Any = None, metrics_collections: Any = None, updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """As `recall_at_k`, of the best classes themselves."""
    return _at_top_k("recall", labels, predictions_idx, k, class_id, weights, metrics_collections,
                     updates_collections, name)  # fmt: skip


@export(v1="metrics.recall_at_k")
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


@export(v1="metrics.precision_at_top_k")
def precision_at_top_k(
    labels: Any, predictions_idx: Any, k: int | None = None, class_id: Any = None,
    weights: Any = None, metrics_collections: Any = None, updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """As `precision_at_k`, of the best classes themselves."""
    return _at_top_k("precision", labels, predictions_idx, k, class_id, weights,
                     metrics_collections, updates_collections, name)  # fmt: skip


@export(v1=("metrics.precision_at_k", "metrics.sparse_precision_at_k"))
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


@export(v1=("metrics.average_precision_at_k", "metrics.sparse_average_precision_at_k"))
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
        retrieved = math.cast(along.range(1, k + 1), dtypes.float64)
        precisions = along.cumsum(right, axis=-1) / retrieved * right
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
        return collected(value, update, metrics_collections, updates_collections)
