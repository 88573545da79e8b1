"""Estimators that look at no features: what any model has to beat."""

from typing import Any

from millrace.compat.v1.losses.losses import Reduction
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.estimator.canned import check_features, spec_of
from millrace.estimator.class_heads import class_head
from millrace.estimator.estimator import Estimator
from millrace.estimator.estimator_spec import EstimatorSpec
from millrace.estimator.heads import Head, RegressionHead
from millrace.graph.convert import convert_to_tensor
from millrace.ops import array
from millrace.state.initializers import Zeros
from millrace.state.variable_scope import get_variable, variable_scope


def _logits(features: Any, units: int) -> Tensor:
    """The bias, which is all there is, for each example."""
    with variable_scope("baseline"):
        bias = get_variable("bias", shape=[units], initializer=Zeros())
    first = next(iter(features.values()))
    shape = first.dense_shape if hasattr(first, "dense_shape") else array.shape(
        convert_to_tensor(first)
    )  # fmt: skip
    return array.tile(array.expand_dims(bias, 0), array.stack([shape[0], 1]))


def _model_fn(head: Head, optimizer: Any) -> Any:
    def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        check_features(features)
        logits = _logits(features, head.logits_dimension)
        return spec_of(head, features, labels, mode, logits, [(optimizer, 0.3, "baseline")])

    return model_fn


@export(v1="estimator.BaselineClassifier")
class BaselineClassifier(Estimator):
    """Learns how frequent the classes are; see LinearClassifier."""

    def __init__(
        self, model_dir: Any = None, n_classes: int = 2, weight_column: Any = None,
        label_vocabulary: Any = None, optimizer: Any = "Ftrl", config: Any = None,
        loss_reduction: str = Reduction.SUM,
    ):  # fmt: skip
        head = class_head(
            n_classes, weight_column=weight_column, label_vocabulary=label_vocabulary,
            loss_reduction=loss_reduction,
        )  # fmt: skip
        super().__init__(_model_fn(head, optimizer), model_dir, config)


@export(v1="estimator.BaselineRegressor")
class BaselineRegressor(Estimator):
    """Learns the mean of the labels; see LinearRegressor."""

    def __init__(
        self, model_dir: Any = None, label_dimension: int = 1, weight_column: Any = None,
        optimizer: Any = "Ftrl", config: Any = None, loss_reduction: str = Reduction.SUM,
    ):  # fmt: skip
        head = RegressionHead(label_dimension, weight_column, loss_reduction)
        super().__init__(_model_fn(head, optimizer), model_dir, config)
