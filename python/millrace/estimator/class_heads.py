"""Heads for classes."""

from typing import Any

from millrace.compat.v1.losses.losses import Reduction
from millrace.compat.v1.metrics import counts, means, thresholds
from millrace.core import dtypes
from millrace.core.tensor import Tensor
from millrace.estimator.export_outputs import (
    ClassificationOutput,
    ExportOutput,
    RegressionOutput,
)
from millrace.estimator.heads import Head, mean_of
from millrace.feature_column.vocabulary import ids_of_words
from millrace.graph.convert import constant
from millrace.graph.default_graph import control_dependencies
from millrace.ops import along, array, check, gather, math
from millrace.ops.nn import activations, cross_entropy
from millrace.ops.strings import as_string


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
        label_mean = mean_of(labels, weights)
        ones = math.multiply(array.ones_like(labels), weights)
        out = {
            "accuracy": means.accuracy(labels, ids, weights=ones),
            "precision": counts.precision(labels, ids, weights=ones),
            "recall": counts.recall(labels, ids, weights=ones),
            "prediction/mean": mean_of(logistic, weights),
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
