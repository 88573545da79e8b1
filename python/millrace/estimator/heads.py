"""Heads: what a model makes of its logits, by the kind of task."""

from typing import Any, Callable

from millrace.compat.v1.losses.losses import Reduction, compute_weighted_loss
from millrace.compat.v1.metrics import means
from millrace.core import dtypes
from millrace.core.tensor import Tensor
from millrace.estimator.estimator_spec import EstimatorSpec
from millrace.estimator.export_outputs import (
    DEFAULT_KEY,
    ExportOutput,
    PredictOutput,
    RegressionOutput,
)
from millrace.estimator.mode_keys import ModeKeys
from millrace.feature_column.column import FeatureTransforms
from millrace.feature_column.numeric import NumericColumn
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.ops import array, math
from millrace.summary.ops import scalar


class Head:
    """The base: predictions, loss and metrics for logits of `logits_dimension` columns.

    Args:
      weight_column: a feature, or numeric column, of weights of examples.
      loss_reduction: how the losses of examples become one.
      loss_fn: (labels, logits) to losses of examples, instead of the usual one.
    """

    logits_dimension = 1

    def __init__(self, weight_column: Any, loss_reduction: str, loss_fn: Any = None):
        if loss_reduction == Reduction.NONE or loss_reduction not in Reduction.all():
            raise ValueError(f"Invalid loss_reduction: {loss_reduction}")
        self._weight_column = weight_column
        self._loss_reduction = loss_reduction
        self._loss_fn = loss_fn

    # What each kind has of its own.

    def predictions(self, logits: Tensor) -> dict[str, Tensor]:
        """{name: tensor}."""
        raise NotImplementedError

    def outputs(self, predictions: dict[str, Tensor]) -> dict[str, ExportOutput]:
        """What is exported, the first of it by default."""
        raise NotImplementedError

    def labels(self, labels: Tensor, logits: Tensor) -> Tensor:
        """The labels as the loss takes them: [batch, columns]."""
        raise NotImplementedError

    def losses(self, labels: Tensor, logits: Tensor) -> Tensor:
        """The losses of examples."""
        raise NotImplementedError

    def metrics(
        self, labels: Tensor, predictions: dict[str, Tensor], weights: Any
    ) -> dict[str, Any]:
        """{name: (value, update)}, besides those of the loss."""
        raise NotImplementedError

    # The whole.

    def create_estimator_spec(
        self, features: Any, mode: str, logits: Tensor, labels: Any,
        train_op_fn: Callable[[Tensor], Any],
    ) -> EstimatorSpec:  # fmt: skip
        """The spec of a model with these logits."""
        with name_scope("head"):
            logits = _checked_logits(logits, self.logits_dimension)
            predictions = self.predictions(logits)
            if mode == ModeKeys.PREDICT:
                outputs = self.outputs(predictions)
                first = next(iter(outputs.values()))
                outputs = {DEFAULT_KEY: first, **outputs, "predict": PredictOutput(predictions)}
                return EstimatorSpec(mode, predictions=predictions, export_outputs=outputs)
            if labels is None:
                raise ValueError(
                    "You must provide a labels Tensor. Given: None. Suggested troubleshooting "
                    "steps: Check that your data contains your label feature. Check that your "
                    "input_fn properly parses and returns labels."
                )
            labels = self.labels(_column(convert_to_tensor(labels)), logits)
            weights = self._weights(features, logits)
            if self._loss_fn is not None:
                losses = self._loss_fn(labels, logits)
            else:
                losses = self.losses(labels, logits)
            loss = compute_weighted_loss(losses, weights, reduction=self._loss_reduction)
            average = means.mean(losses, weights=weights)
            if mode == ModeKeys.EVAL:
                metrics = {"average_loss": average, **self.metrics(labels, predictions, weights)}
                return EstimatorSpec(
                    mode, predictions=predictions, loss=loss, eval_metric_ops=metrics
                )
            train_op = train_op_fn(loss)
        if self._loss_reduction == Reduction.SUM:
            scalar("average_loss", _mean_loss(losses, weights))
        return EstimatorSpec(mode, predictions=predictions, loss=loss, train_op=train_op)

    def _weights(self, features: Any, logits: Tensor) -> Any:
        """The weights of examples, [batch, 1]; 1 where there is no column of them."""
        column = self._weight_column
        if column is None:
            return 1.0
        if isinstance(column, str):
            column = NumericColumn(column, (1,), None, dtypes.float32, None)
        if not isinstance(column, NumericColumn):
            raise TypeError(
                f"Weight column must be either a string or NumericColumn. Given: {column}"
            )
        return column.get_dense_tensor(FeatureTransforms(features))


def _mean_loss(losses: Tensor, weights: Any) -> Tensor:
    return compute_weighted_loss(
        losses, weights, loss_collection=None, reduction=Reduction.SUM_BY_NONZERO_WEIGHTS
    )


def _checked_logits(logits: Any, columns: int) -> Tensor:
    logits = math.cast(convert_to_tensor(logits), dtypes.float32)
    if logits.shape.ndims is not None and logits.shape._size_at(-1) not in (None, columns):
        raise ValueError(f"logits must have {columns} columns, given: {logits.shape}")
    return logits


def _column(labels: Tensor) -> Tensor:
    """Labels of rank 1 as a matrix of one column. ValueError for those of rank 0."""
    if labels.shape.ndims == 1:
        labels = array.expand_dims(labels, -1)
    if labels.shape.ndims == 0:
        raise ValueError(f"labels must have the dimension of the batch, given: {labels.shape}")
    return labels


class RegressionHead(Head):
    """Numbers, by the squared error."""

    def __init__(
        self, label_dimension: int = 1, weight_column: Any = None,
        loss_reduction: str = Reduction.SUM, loss_fn: Any = None, inverse_link_fn: Any = None,
    ):  # fmt: skip
        super().__init__(weight_column, loss_reduction, loss_fn)
        if label_dimension < 1:
            raise ValueError(f"Invalid label_dimension {label_dimension}.")
        self.logits_dimension = label_dimension
        self._inverse_link_fn = inverse_link_fn

    def predictions(self, logits: Tensor) -> dict[str, Tensor]:
        """The logits themselves, or through the inverse link."""
        if self._inverse_link_fn is None:
            return {"predictions": logits}
        return {"predictions": self._inverse_link_fn(logits), "logits": logits}

    def outputs(self, predictions: dict[str, Tensor]) -> dict[str, ExportOutput]:
        """The numbers."""
        return {"regression": RegressionOutput(predictions["predictions"])}

    def labels(self, labels: Tensor, logits: Tensor) -> Tensor:
        """As floats."""
        if labels.shape.ndims is not None and labels.shape._size_at(-1) not in (
            None, self.logits_dimension,
        ):  # fmt: skip
            raise ValueError(
                f"labels must have {self.logits_dimension} columns, given: {labels.shape}"
            )
        return math.cast(labels, dtypes.float32)

    def losses(self, labels: Tensor, logits: Tensor) -> Tensor:
        """The squared differences."""
        return math.square(logits - labels)

    def metrics(
        self, labels: Tensor, predictions: dict[str, Tensor], weights: Any
    ) -> dict[str, Any]:
        """The means of both."""
        return {
            "prediction/mean": mean_of(predictions["predictions"], weights),
            "label/mean": mean_of(labels, weights),
        }


def mean_of(values: Tensor, weights: Any) -> Any:
    """The metric of a weighted mean."""
    return means.mean(values, weights=math.multiply(array.ones_like(values), weights))
