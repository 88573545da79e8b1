"""Heads: what a model makes of its logits, by the kind of task."""

from typing import Any, Callable

from millrace.compat.v1.losses.losses import Reduction, compute_weighted_loss
from millrace.compat.v1.metrics import counts, means, thresholds
from millrace.core import dtypes
from millrace.core.tensor import Tensor
from millrace.estimator.estimator_spec import EstimatorSpec
from millrace.estimator.export_outputs import (
    DEFAULT_KEY,
    ClassificationOutput,
    ExportOutput,
    PredictOutput,
    RegressionOutput,
)
from millrace.estimator.mode_keys import ModeKeys
from millrace.feature_column.column import FeatureTransforms
from millrace.feature_column.numeric import NumericColumn
from millrace.feature_column.vocabulary import ids_of_words
from millrace.graph.convert import constant, convert_to_tensor
from millrace.graph.default_graph import control_dependencies, name_scope
from millrace.ops import along, array, check, gather, math
from millrace.ops.nn import activations, cross_entropy
from millrace.ops.strings import as_string
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
    if logits.shape.ndims is not None and logits.shape[-1].value not in (None, columns):
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
        if labels.shape.ndims is not None and labels.shape[-1].value not in (
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
            "prediction/mean": _mean_of(predictions["predictions"], weights),
            "label/mean": _mean_of(labels, weights),
        }


def _mean_of(values: Tensor, weights: Any) -> Any:
    return means.mean(values, weights=math.multiply(array.ones_like(values), weights))


class _ClassHead(Head):
    """What both heads for classes share: the names of classes."""

    def __init__(
        self, n_classes: int, weight_column: Any, label_vocabulary: Any, loss_reduction: str,
        loss_fn: Any,
    ):  # fmt: skip
        super().__init__(weight_column, loss_reduction, loss_fn)
        if label_vocabulary is not None and not isinstance(label_vocabulary, (list, tuple)):
            raise ValueError(
                f"label_vocabulary should be a list or a tuple. Given type: "
                f"{type(label_vocabulary).__name__}"
            )
        if label_vocabulary is not None and len(label_vocabulary) != n_classes:
            raise ValueError(
                f"Length of `label_vocabulary` must be n_classes ({n_classes}). Given: "
                f"{len(label_vocabulary)}"
            )
        self._n_classes = n_classes
        self._vocabulary = label_vocabulary

    def _ids(self, labels: Tensor) -> Tensor:
        """Labels as ids of classes, which the run checks. ValueError for labels of another type."""
        if self._vocabulary is not None:
            if labels.dtype.base_dtype != dtypes.string:
                raise ValueError(
                    f"Labels dtype should be string since there is a vocabulary. Instead got "
                    f"{labels.dtype.base_dtype.name}."
                )
            return ids_of_words(labels, tuple(self._vocabulary), dtypes.string, -1, 0)
        if not labels.dtype.base_dtype.is_integer and self.logits_dimension > 1:
            raise ValueError(
                f"Labels dtype should be integer. Instead got {labels.dtype.base_dtype.name}."
            )
        return labels

    def _checked(self, labels: Tensor) -> Tensor:
        """Labels below the number of classes: InvalidArgumentError when the model runs else."""
        top = math.cast(self._n_classes - 1, labels.dtype.base_dtype)
        checks = [
            check.assert_less_equal(labels, top, message="Labels must be <= n_classes - 1"),
            check.assert_non_negative(labels, message="Labels must be >= 0"),
        ]
        with control_dependencies(checks):
            return array.identity(labels)

    def _names(self, ids: Tensor) -> Tensor:
        if self._vocabulary is None:
            return as_string(ids, name="str_classes")
        return gather.gather(constant(list(self._vocabulary)), ids)

    def _scores(self, predictions: dict[str, Tensor]) -> ExportOutput:
        scores = predictions["probabilities"]
        names = constant(
            [str(i) for i in range(self._n_classes)]
            if self._vocabulary is None
            else list(self._vocabulary)
        )
        batch = array.shape(scores)[0]
        classes = array.tile(array.expand_dims(names, 0), array.stack([batch, 1]))
        return ClassificationOutput(scores=scores, classes=classes)


class BinaryHead(_ClassHead):
    """Two classes, by the logistic loss."""

    def __init__(
        self, weight_column: Any = None, label_vocabulary: Any = None,
        loss_reduction: str = Reduction.SUM, loss_fn: Any = None, thresholds: Any = None,
    ):  # fmt: skip
        super().__init__(2, weight_column, label_vocabulary, loss_reduction, loss_fn)
        self._thresholds = tuple(thresholds or ())

    def predictions(self, logits: Tensor) -> dict[str, Tensor]:
        """Logits, probabilities and classes."""
        both = array.concat([array.zeros_like(logits), logits], -1, name="two_class_logits")
        ids = array.expand_dims(along.argmax(both, -1), -1)
        return {
            "logits": logits,
            "logistic": math.sigmoid(logits, name="logistic"),
            "probabilities": activations.softmax(both, name="probabilities"),
            "class_ids": ids,
            "classes": self._names(ids),
        }

    def outputs(self, predictions: dict[str, Tensor]) -> dict[str, ExportOutput]:
        """Classes with scores, and the probability of the second."""
        return {
            "classification": self._scores(predictions),
            "regression": RegressionOutput(predictions["logistic"]),
        }

    def labels(self, labels: Tensor, logits: Tensor) -> Tensor:
        """As floats between 0 and 1."""
        return self._checked(math.cast(self._ids(labels), dtypes.float32))

    def losses(self, labels: Tensor, logits: Tensor) -> Tensor:
        """The logistic loss."""
        return cross_entropy.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)

    def metrics(
        self, labels: Tensor, predictions: dict[str, Tensor], weights: Any
    ) -> dict[str, Any]:
        """Accuracy, areas under curves, precision, recall and means."""
        ids, logistic = predictions["class_ids"], predictions["logistic"]
        label_mean = _mean_of(labels, weights)
        ones = math.multiply(array.ones_like(labels), weights)
        out = {
            "accuracy": means.accuracy(labels, ids, weights=ones),
            "precision": counts.precision(labels, ids, weights=ones),
            "recall": counts.recall(labels, ids, weights=ones),
            "prediction/mean": _mean_of(logistic, weights),
            "label/mean": label_mean,
            "accuracy_baseline": tuple(math.maximum(part, 1 - part) for part in label_mean),
            "auc": thresholds.auc(labels, logistic, weights=ones),
            "auc_precision_recall": thresholds.auc(
                labels, logistic, weights=ones, curve="PR",
                summation_method="careful_interpolation",
            ),
        }  # fmt: skip
        for threshold in self._thresholds:
            above = math.cast(logistic > threshold, dtypes.float32)
            out[f"accuracy/positive_threshold_{threshold:g}"] = means.accuracy(
                labels, above, weights=ones
            )
            out[f"precision/positive_threshold_{threshold:g}"] = counts.precision(
                labels, above, weights=ones
            )
            out[f"recall/positive_threshold_{threshold:g}"] = counts.recall(
                labels, above, weights=ones
            )
        return out


class MultiClassHead(_ClassHead):
    """Three classes or more, by the cross entropy of the softmax."""

    def __init__(
        self, n_classes: int, weight_column: Any = None, label_vocabulary: Any = None,
        loss_reduction: str = Reduction.SUM, loss_fn: Any = None,
    ):  # fmt: skip
        if n_classes is None or n_classes <= 2:
            raise ValueError(f"n_classes must be > 2: {n_classes}.")
        super().__init__(n_classes, weight_column, label_vocabulary, loss_reduction, loss_fn)
        self.logits_dimension = n_classes

    def predictions(self, logits: Tensor) -> dict[str, Tensor]:
        """Logits, probabilities and classes."""
        ids = array.expand_dims(along.argmax(logits, -1), -1)
        return {
            "logits": logits,
            "probabilities": activations.softmax(logits, name="probabilities"),
            "class_ids": ids,
            "classes": self._names(ids),
        }

    def outputs(self, predictions: dict[str, Tensor]) -> dict[str, ExportOutput]:
        """Classes with scores."""
        return {"classification": self._scores(predictions)}

    def labels(self, labels: Tensor, logits: Tensor) -> Tensor:
        """As ids."""
        return self._checked(self._ids(labels))

    def losses(self, labels: Tensor, logits: Tensor) -> Tensor:
        """The cross entropies, [batch, 1]."""
        ids = array.squeeze(labels, axis=[-1])
        losses = cross_entropy.sparse_softmax_cross_entropy_with_logits(labels=ids, logits=logits)
        return array.expand_dims(losses, -1)

    def metrics(
        self, labels: Tensor, predictions: dict[str, Tensor], weights: Any
    ) -> dict[str, Any]:
        """Accuracy."""
        ones = math.multiply(array.ones_like(labels, dtype=dtypes.float32), weights)
        return {"accuracy": means.accuracy(labels, predictions["class_ids"], weights=ones)}


def class_head(n_classes: int, **kwargs: Any) -> Head:
    """The head for a number of classes."""
    if n_classes == 2:
        return BinaryHead(**kwargs)
    return MultiClassHead(n_classes, **kwargs)
