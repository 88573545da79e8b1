"""Training and evaluating in turn."""

from typing import Any

from millrace.core import logging
from millrace.core.export import export
from millrace.distributed.tf_config import EVALUATOR
from millrace.estimator.cluster_training import run_task, train_model
from millrace.estimator.estimator import Estimator
from millrace.estimator.evaluate_checkpoints import EvaluateAfterSaving
from millrace.estimator.training_specs import EvalSpec, TrainSpec


@export(v1="estimator.train_and_evaluate")
def train_and_evaluate(
    estimator: Any, train_spec: TrainSpec, eval_spec: EvalSpec
) -> tuple[Any, Any] | None:
    """Trains, and evaluates checkpoints as they are written, at most every
    `eval_spec.throttle_secs` seconds, and the last one.

    Gives the metrics of the last evaluation, and what the exporters gave. In a cluster, see
    RunConfig, it does what is the part of this task, and gives None: the chief and workers train
    together, parameter servers serve until they are stopped, an evaluator evaluates checkpoints
    until one is of the step `train_spec.max_steps`. A `master` trains as chief, and evaluates.
    """
    if not isinstance(estimator, Estimator):
        raise TypeError(
            f"`estimator` must have type `tf.estimator.Estimator`, given {type(estimator)}"
        )
    if not isinstance(train_spec, TrainSpec):
        raise TypeError(
            f"`train_spec` must have type `tf.estimator.TrainSpec`, given {type(train_spec)}"
        )
    if not isinstance(eval_spec, EvalSpec):
        raise TypeError(
            f"`eval_spec` must have type `tf.estimator.EvalSpec`, given {type(eval_spec)}"
        )
    config = estimator.config
    if not (config.save_checkpoints_secs or config.save_checkpoints_steps):
        raise ValueError(
            "train_and_evaluate evaluates checkpoints: RunConfig must say how often to write them."
        )
    if config.cluster_spec or config.task_type == EVALUATOR:
        run_task(estimator, train_spec, eval_spec)
        return None
    listener = EvaluateAfterSaving(estimator, eval_spec)
    logging.info("Running training and evaluation locally (non-distributed).")
    train_model(estimator, train_spec, [listener, *train_spec.saving_listeners])
    return listener.results
