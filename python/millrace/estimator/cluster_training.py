"""The parts that the tasks of a cluster have in training and evaluating."""

import time
from typing import Any

from millrace import protos
from millrace.core import logging
from millrace.distributed.cluster import Server
from millrace.distributed.tf_config import EVALUATOR
from millrace.estimator.cluster_settings import CHIEF, MASTER, PS, WORKER
from millrace.estimator.estimator import Estimator
from millrace.estimator.evaluate_checkpoints import EvaluateAfterSaving, evaluate_continuously
from millrace.estimator.training_specs import EvalSpec, TrainSpec

# As far apart as TensorFlow starts them, where a delay is asked for.
_SECONDS_BETWEEN_WORKERS = 5


def train_model(estimator: Estimator, spec: TrainSpec, listeners: Any) -> None:
    """Trains as a TrainSpec says, with these CheckpointSaverListeners."""
    estimator.train(
        spec.input_fn, hooks=list(spec.hooks), max_steps=spec.max_steps,
        saving_listeners=list(listeners),
    )  # fmt: skip


def run_task(estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec) -> None:
    """The part of this task of a cluster. ValueError for a job that has none."""
    config = estimator.config
    if config.task_type == EVALUATOR:
        if config.task_id > 0:
            raise ValueError(
                "For distributed training, there can only be one `evaluator` task (with task id "
                f"0). Given task id {config.task_id}"
            )
        return evaluate_continuously(estimator, train_spec, eval_spec)
    if config.task_type not in (CHIEF, MASTER, WORKER, PS):
        raise ValueError(
            f"Task type {config.task_type} is not supported. Supported task types are "
            f"{[CHIEF, EVALUATOR, MASTER, PS, WORKER]}"
        )
    server = _start_server(config)
    if config.task_type == PS:
        server.join()
    listeners: list[Any] = []
    if config.is_chief:
        listeners += train_spec.saving_listeners
    if config.task_type == MASTER:
        listeners.append(EvaluateAfterSaving(estimator, eval_spec))
    delay = config.experimental_max_worker_delay_secs
    if config.task_type == WORKER and delay:
        time.sleep(min(delay, (config.task_id + 1) * _SECONDS_BETWEEN_WORKERS))
    train_model(estimator, train_spec, listeners)


def _start_server(config: Any) -> Any:
    """The server of this task; None where it is alone in its cluster. RuntimeError without a
    target for its sessions."""
    if not config.master:
        if config.num_ps_replicas == 0 and config.num_worker_replicas == 1:
            logging.info("There is only one task in the cluster: it has no server.")
            return None
        raise RuntimeError(
            "Could not start server; be sure to specify master in RunConfig or set the TF_CONFIG "
            "environment variable."
        )
    # Nobody waits for an evaluator, which has no server.
    jobs = {job: tasks for job, tasks in config.cluster_spec.as_dict().items() if job != EVALUATOR}
    session_config = protos.ConfigProto()
    if config.session_config is not None:
        session_config.gpu_options.CopyFrom(config.session_config.gpu_options)
    return Server(
        jobs, job_name=config.task_type, task_index=config.task_id, protocol=config.protocol,
        config=session_config,
    )  # fmt: skip
