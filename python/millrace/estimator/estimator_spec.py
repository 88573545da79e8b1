"""What a model function gives to its estimator."""

from collections import namedtuple
from typing import Any

from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor
from millrace.estimator.export_outputs import DEFAULT_KEY, ExportOutput, PredictOutput
from millrace.estimator.mode_keys import ModeKeys
from millrace.graph.default_graph import get_default_graph
from millrace.graph.operation import Operation
from millrace.ops.array import reshape
from millrace.state.variable import Variable
from millrace.train.scaffold import Scaffold
from millrace.train.session_run_hook import SessionRunHook

_FIELDS = [
    "mode", "predictions", "loss", "train_op", "eval_metric_ops", "export_outputs",
    "training_chief_hooks", "training_hooks", "scaffold", "evaluation_hooks", "prediction_hooks",
]  # fmt: skip


@export(v1="estimator.EstimatorSpec")
class EstimatorSpec(namedtuple("EstimatorSpec", _FIELDS)):
    """The operations of a model in one mode.

    Args:
      mode: of ModeKeys.
      predictions: a tensor or {name: tensor}; needed to predict.
      loss: a scalar; needed to train and evaluate.
      train_op: makes a step; needed to train.
      eval_metric_ops: {name: (value, update)}, as functions of `tf.metrics` give them.
      export_outputs: {signature: ExportOutput}, for `export_saved_model`.
      training_chief_hooks, training_hooks, evaluation_hooks, prediction_hooks: hooks.
      scaffold: what makes the model ready.

    ValueError and TypeError for what is missing or cannot be.
    """

    __slots__ = ()

    def __new__(
        cls, mode: str, predictions: Any = None, loss: Any = None, train_op: Any = None,
        eval_metric_ops: Any = None, export_outputs: Any = None, training_chief_hooks: Any = None,
        training_hooks: Any = None, scaffold: Any = None, evaluation_hooks: Any = None,
        prediction_hooks: Any = None,
    ) -> "EstimatorSpec":  # fmt: skip
        _check_train_op(train_op, mode)
        predictions = _predictions(predictions, mode)
        scaffold = scaffold or Scaffold()
        if not isinstance(scaffold, Scaffold):
            raise TypeError(f"scaffold must be tf.train.Scaffold. Given: {scaffold}")
        loss = _loss(loss, mode)
        metrics = _metrics(eval_metric_ops)
        outputs = _export_outputs(export_outputs, predictions, mode)
        hooks = [
            _hooks(each)
            for each in (training_chief_hooks, training_hooks, evaluation_hooks, prediction_hooks)
        ]
        return super().__new__(
            cls, mode, predictions, loss, train_op, metrics, outputs, hooks[0], hooks[1], scaffold,
            hooks[2], hooks[3],
        )  # fmt: skip


def _check_place(value: Any, name: str) -> Any:
    """TypeError unless it is an operation, tensor or variable; ValueError unless of this graph."""
    if not isinstance(value, (Operation, Tensor, Variable)):
        raise TypeError(f"{name} must be Operation or Tensor, given: {value}")
    _check_graph(value, name)
    return value


def _check_tensor(value: Any, name: str) -> Any:
    if not isinstance(value, (Tensor, Variable)):
        raise TypeError(f"{name} must be Tensor, given: {value}")
    _check_graph(value, name)
    return value


def _check_graph(value: Any, name: str) -> None:
    if getattr(value, "graph", None) is not get_default_graph():
        raise ValueError(
            f"{name}: all operations and tensors must be of the default graph, given: {value}"
        )


def _predictions(predictions: Any, mode: str) -> Any:
    if predictions is None:
        if mode == ModeKeys.PREDICT:
            raise ValueError("Missing predictions.")
        return {}
    if isinstance(predictions, dict):
        return {
            key: _check_tensor(value, f"predictions[{key}]") for key, value in predictions.items()
        }
    return _check_tensor(predictions, "predictions")


def _loss(loss: Any, mode: str) -> Any:
    if loss is None:
        if mode in (ModeKeys.TRAIN, ModeKeys.EVAL):
            raise ValueError("Missing loss.")
        return None
    _check_tensor(loss, "loss")
    shape = loss.shape
    if not shape.is_compatible_with(TensorShape([])):
        if not shape.is_compatible_with(TensorShape([1])):
            raise ValueError(f"Loss must be scalar, given: {loss}")
        return reshape(loss, [])
    return loss


def _check_train_op(train_op: Any, mode: str) -> None:
    if train_op is None:
        if mode == ModeKeys.TRAIN:
            raise ValueError("Missing train_op.")
        return
    _check_place(train_op, "train_op")


def _metrics(eval_metric_ops: Any) -> dict[str, Any]:
    if eval_metric_ops is None:
        return {}
    if not isinstance(eval_metric_ops, dict):
        raise TypeError(f"eval_metric_ops must be a dict, given: {eval_metric_ops}")
    for key, pair in eval_metric_ops.items():
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError(
                "Values of eval_metric_ops must be (metric_value, update_op) tuples, given: "
                f"{pair} for key: {key}"
            )
        for each in pair:
            _check_place(each, f"eval_metric_ops[{key}]")
    return eval_metric_ops


def _export_outputs(outputs: Any, predictions: Any, mode: str) -> Any:
    if mode != ModeKeys.PREDICT:
        return outputs
    if outputs is None:
        return {DEFAULT_KEY: PredictOutput(predictions)}
    if not isinstance(outputs, dict):
        raise TypeError(f"export_outputs must be dict, given: {outputs}")
    for key, value in outputs.items():
        if not isinstance(value, ExportOutput):
            raise TypeError(
                f"Values in export_outputs must be ExportOutput objects. Given: {{{key}: {value}}}"
            )
    if DEFAULT_KEY not in outputs:
        if len(outputs) > 1:
            raise ValueError(
                "Multiple export_outputs were provided, but none of them is specified as the "
                f"default. Do this by naming one of them '{DEFAULT_KEY}'."
            )
        outputs = {**outputs, DEFAULT_KEY: next(iter(outputs.values()))} if outputs else outputs
    return outputs


def _hooks(hooks: Any) -> tuple[Any, ...]:
    hooks = tuple(hooks or ())
    for hook in hooks:
        if not isinstance(hook, SessionRunHook):
            raise TypeError(f"All hooks must be SessionRunHook instances, given: {hook}")
    return hooks
