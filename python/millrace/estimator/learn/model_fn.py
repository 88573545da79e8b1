"""What model functions of `tf.contrib.learn` get and give."""

import inspect
from collections import namedtuple
from typing import Any, Callable

from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.estimator.estimator_spec import EstimatorSpec
from millrace.ops.array import placeholder


@export(v1=("contrib.learn.ModeKeys", "contrib.learn.estimators.ModeKeys"))
class ModeKeys:
    """TRAIN, EVAL and INFER."""

    TRAIN = "train"
    EVAL = "eval"
    INFER = "infer"


@export(v1=("contrib.learn.ModelFnOps", "contrib.learn.estimators.model_fn.ModelFnOps"))
class ModelFnOps(
    namedtuple(
        "ModelFnOps",
        [
            "mode", "predictions", "loss", "train_op", "eval_metric_ops", "output_alternatives",
            "training_chief_hooks", "training_hooks", "scaffold",
        ],
    )
):  # fmt: skip
    """The operations of a model in one mode; see `tf.estimator.EstimatorSpec`."""

    __slots__ = ()

    def __new__(
        cls, mode: str, predictions: Any = None, loss: Any = None, train_op: Any = None,
        eval_metric_ops: Any = None, output_alternatives: Any = None,
        training_chief_hooks: Any = None, training_hooks: Any = None, scaffold: Any = None,
    ) -> "ModelFnOps":  # fmt: skip
        return super().__new__(
            cls, mode, predictions, loss, train_op, eval_metric_ops, output_alternatives,
            training_chief_hooks, training_hooks, scaffold,
        )  # fmt: skip


@export(v1=("contrib.learn.MetricSpec", "contrib.learn.metric_spec.MetricSpec"))
class MetricSpec:
    """A metric, and which prediction, label and weight feature it takes."""

    def __init__(
        self, metric_fn: Callable[..., Any], prediction_key: str | None = None,
        label_key: str | None = None, weight_key: str | None = None,
    ):  # fmt: skip
        self.metric_fn = metric_fn
        self.prediction_key = prediction_key
        self.label_key = label_key
        self.weight_key = weight_key

    def create_metric_ops(self, inputs: Any, labels: Any, predictions: Any) -> Any:
        """(value, update). ValueError where a key is missing."""
        names = inspect.signature(self.metric_fn).parameters
        known = {
            "predictions": _chosen(predictions, self.prediction_key, "prediction"),
            "labels": _chosen(labels, self.label_key, "label"),
        }
        if "targets" in names and "labels" not in names:
            known["targets"] = known.pop("labels")
        if self.weight_key is not None:
            known["weights"] = inputs[self.weight_key]
        return self.metric_fn(**known)


def _chosen(values: Any, key: str | None, what: str) -> Any:
    if not isinstance(values, dict):
        return values
    if key is None and len(values) == 1:
        return next(iter(values.values()))
    if key not in values:
        raise ValueError(f"MetricSpec without a {what}_key of {sorted(values)}: {key}")
    return values[key]


def adapted(
    model_fn: Callable[..., Any], params: Any, feature_engineering_fn: Any,
    metrics: Callable[[], Any],
) -> Callable[..., EstimatorSpec]:  # fmt: skip
    """A model function of `tf.estimator` from one of `tf.contrib.learn`, which takes features and
    labels by position and gives ModelFnOps, or (predictions, loss, train_op). `metrics` gives
    {name: MetricSpec} for an evaluation."""
    names = list(inspect.signature(model_fn).parameters)
    known_labels: list[Any] = []

    def estimator_fn(features: Any, labels: Any, mode: str, config: Any) -> EstimatorSpec:
        if labels is not None:
            known_labels[:] = [labels]
        elif known_labels:
            labels = _placeholders(known_labels[0])
        if feature_engineering_fn is not None:
            features, labels = feature_engineering_fn(features, labels)
        known = {"mode": mode, "params": params, "config": config}
        made = model_fn(
            features, labels, **{name: known[name] for name in names[2:] if name in known}
        )
        if isinstance(made, EstimatorSpec):
            spec = made
        else:
            if not isinstance(made, ModelFnOps):
                if not isinstance(made, (tuple, list)) or len(made) != 3:
                    raise ValueError(
                        f"Unrecognized value returned by model_fn, please return ModelFnOps: {made}"
                    )
                made = ModelFnOps(mode, *made)
            spec = _spec(made, mode)
        if mode == ModeKeys.EVAL and metrics():
            more = {
                name: each.create_metric_ops(features, labels, spec.predictions)
                for name, each in metrics().items()
            }
            spec = spec._replace(eval_metric_ops={**spec.eval_metric_ops, **more})
        return spec

    return estimator_fn


def _placeholders(labels: Any) -> Any:
    """Placeholders like labels: a model may use them where it predicts, to no effect."""
    if isinstance(labels, dict):
        return {key: _placeholders(value) for key, value in labels.items()}
    return placeholder(labels.dtype.base_dtype, labels.shape)


def _spec(made: ModelFnOps, mode: str) -> EstimatorSpec:
    loss = made.loss
    if mode == ModeKeys.INFER or not isinstance(loss, Tensor):
        loss = None
    return EstimatorSpec(
        mode, predictions=made.predictions, loss=loss,
        train_op=made.train_op if mode == ModeKeys.TRAIN else None,
        eval_metric_ops=made.eval_metric_ops, training_chief_hooks=made.training_chief_hooks,
        training_hooks=made.training_hooks, scaffold=made.scaffold,
    )  # fmt: skip
