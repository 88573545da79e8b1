"""Counts of how classes are taken for each other."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.arguments import reordered
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import get_default_graph, name_scope
from millrace.ops import check
from millrace.ops.control_flow import cond
from millrace.ops.math import cast
from millrace.ops.reduce import reduce_max


@export(v1="contrib.framework.remove_squeezable_dimensions")
def remove_squeezable_dimensions(
    labels: Any, predictions: Any, expected_rank_diff: int = 0, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """Labels and predictions without a last dimension of size 1 that only one of them has.

    `expected_rank_diff`: the rank of the predictions minus that of the labels that is right.
    """
    with name_scope(name, "remove_squeezable_dimensions", [labels, predictions]):
        labels = convert_to_tensor(labels)
        predictions = convert_to_tensor(predictions)
        predicted_rank, label_rank = predictions.shape.ndims, labels.shape.ndims
        if predicted_rank is not None and label_rank is not None:
            difference = predicted_rank - label_rank
            if difference == expected_rank_diff + 1 and _may_squeeze(predictions):
                predictions = gen_ops.squeeze(predictions, [-1])
            elif difference == expected_rank_diff - 1 and _may_squeeze(labels):
                labels = gen_ops.squeeze(labels, [-1])
            return labels, predictions
        difference = gen_ops.rank(predictions) - gen_ops.rank(labels)
        if predicted_rank is None or _may_squeeze(predictions):
            before = predictions
            predictions = cond(
                gen_ops.equal(difference, expected_rank_diff + 1),
                lambda: gen_ops.squeeze(before, [-1]),
                lambda: gen_ops.identity(before),
            )
        if label_rank is None or _may_squeeze(labels):
            given = labels
            labels = cond(
                gen_ops.equal(difference, expected_rank_diff - 1),
                lambda: gen_ops.squeeze(given, [-1]),
                lambda: gen_ops.identity(given),
            )
        return labels, predictions


def _may_squeeze(x: Tensor) -> bool:
    return x.shape.ndims != 0 and x.shape._size_at(-1) in (None, 1)


def _after(checks: list[Any], value: Tensor) -> Tensor:
    with get_default_graph().control_dependencies(checks):
        return gen_ops.identity(value, name="control_dependency")


@export(v1=("confusion_matrix", "math.confusion_matrix", "contrib.metrics.confusion_matrix"))
def confusion_matrix(
    labels: Any, predictions: Any, num_classes: Any = None, dtype: Any = dtypes.int32,
    name: str | None = None, weights: Any = None,
) -> Tensor:  # fmt: skip
    """A matrix that counts how often the class of a row was predicted as that of a column.

    Args:
      labels, predictions: vectors of classes, from 0.
      num_classes: how many there are; one more than the greatest by default.
      weights: what each prediction counts for; 1 by default.
    """
    with name_scope(name, "confusion_matrix", [predictions, labels, num_classes, weights]):
        labels, predictions = remove_squeezable_dimensions(
            convert_to_tensor(labels, name="labels"),
            convert_to_tensor(predictions, name="predictions"),
        )
        predictions = cast(predictions, dtypes.int64)
        labels = cast(labels, dtypes.int64)
        negative = "contains negative values"
        labels = _after([check.assert_non_negative(labels, message=f"`labels` {negative}")], labels)
        predictions = _after(
            [check.assert_non_negative(predictions, message=f"`predictions` {negative}")],
            predictions,
        )
        if num_classes is None:
            num_classes = gen_ops.maximum(reduce_max(predictions), reduce_max(labels)) + 1
        else:
            num_classes = cast(convert_to_tensor(num_classes), dtypes.int64)
            label_check = check.assert_less(labels, num_classes, message="`labels` out of bound")
            prediction_check = check.assert_less(
                predictions, num_classes, message="`predictions` out of bound"
            )
            labels = _after([label_check], labels)
            predictions = _after([prediction_check], predictions)
        if weights is not None:
            weights = convert_to_tensor(weights, name="weights")
            predictions.shape.assert_is_compatible_with(weights.shape)
            weights = cast(weights, dtype)
        else:
            one = cast(convert_to_tensor(1), dtype)
            weights = gen_ops.fill(gen_ops.shape(predictions), one)
        shape = gen_ops.pack([num_classes, num_classes])
        places = gen_ops.pack([labels, predictions], axis=1)
        return gen_ops.scatter_nd(places, weights, shape)


confusion_matrix_v2 = export(v2="math.confusion_matrix")(
    reordered(confusion_matrix, "labels predictions num_classes weights dtype name")
)
