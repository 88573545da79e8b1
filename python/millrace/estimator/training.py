"""Training and evaluating in turn."""

import os
import time
from collections import namedtuple
from typing import Any

from millrace import protos
from millrace.core import logging
from millrace.core.export import export
from millrace.distributed.cluster import Server
from millrace.distributed.tf_config import EVALUATOR
from millrace.estimator.cluster_settings import CHIEF, MASTER, PS, WORKER
from millrace.estimator.estimator import Estimator
from millrace.estimator.exporters import Exporter
from millrace.graph.keys import GraphKeys
from millrace.train.checkpoint_hook import CheckpointSaverListener
from millrace.train.session_run_hook import SessionRunHook
from millrace.train.termination import is_terminating

# As far apart as TensorFlow starts them, where a delay is asked for.
_SECONDS_BETWEEN_WORKERS = 5
# An evaluator without a throttle looks for checkpoints that often.
_LEAST_SECONDS_BETWEEN_LOOKS = 0.5


def _check_input_fn(input_fn: Any) -> None:
    if not callable(input_fn):
        raise TypeError(f"`input_fn` must be callable, given: {input_fn}")


def _checked_hooks(hooks: Any) -> tuple[Any, ...]:
    hooks = tuple(hooks or ())
    for hook in hooks:
        if not isinstance(hook, SessionRunHook):
            raise TypeError(f"All hooks must be `SessionRunHook` instances, given: {hook}")
    return hooks


@export(v1="estimator.TrainSpec")
class TrainSpec(namedtuple("TrainSpec", ["input_fn", "max_steps", "hooks", "saving_listeners"])):
    """What to train on: an input function, the step to stop at (None: where the input ends), hooks
    and CheckpointSaverListeners."""

    __slots__ = ()

    def __new__(
        cls, input_fn: Any, max_steps: int | None = None, hooks: Any = None,
        saving_listeners: Any = None,
    ) -> "TrainSpec":  # fmt: skip
        _check_input_fn(input_fn)
        if max_steps is not None and max_steps <= 0:
            raise ValueError(f"Must specify max_steps > 0, given: {max_steps}")
        return super().__new__(
            cls, input_fn, max_steps, _checked_hooks(hooks), tuple(saving_listeners or ())
        )


@export(v1="estimator.EvalSpec")
class EvalSpec(
    namedtuple(
        "EvalSpec",
        [
            "input_fn", "steps", "name", "hooks", "exporters", "start_delay_secs", "throttle_secs",
        ],
    )
):  # fmt: skip
    """What to evaluate on: an input function, how many batches (None: all), the name of the
    evaluation, hooks, what exports the model after it, and the least seconds between two."""

    __slots__ = ()

    def __new__(
        cls, input_fn: Any, steps: int | None = 100, name: str | None = None, hooks: Any = None,
        exporters: Any = None, start_delay_secs: float = 120, throttle_secs: float = 600,
    ) -> "EvalSpec":  # fmt: skip
        _check_input_fn(input_fn)
        if steps is not None and steps <= 0:
            raise ValueError(f"Must specify steps > 0, given: {steps}")
        if name is not None and not isinstance(name, str):
            raise TypeError(f"`name` must be string, given: {name}")
        if start_delay_secs < 0:
            raise ValueError(f"Must specify start_delay_secs >= 0, given: {start_delay_secs}")
        if throttle_secs < 0:
            raise ValueError(f"Must specify throttle_secs >= 0, given: {throttle_secs}")
        if isinstance(exporters, Exporter):
            exporters = [exporters]
        exporters = tuple(exporters or ())
        names = [exporter.name for exporter in exporters]
        for exporter in exporters:
            if not isinstance(exporter, Exporter):
                raise TypeError(f"`exporters` must be an Exporter or a list of them: {exporter}")
            if names.count(exporter.name) > 1:
                raise ValueError(f"Exporter names must be unique, given: {names}")
        return super().__new__(
            cls, input_fn, steps, name, _checked_hooks(hooks), exporters, start_delay_secs,
            throttle_secs,
        )  # fmt: skip


class _EvaluateAfterSaving(CheckpointSaverListener):
    """Evaluates a checkpoint when it is written, at most every so many seconds, and at the end."""

    def __init__(self, estimator: Estimator, eval_spec: EvalSpec):
        self._estimator = estimator
        self._eval_spec = eval_spec
        self._started = False
        self._last_time = 0.0
        self._evaluated: str | None = None
        self.results: tuple[Any, Any] = (None, None)

    def begin(self) -> None:
        """Starts the clock."""
        self._last_time = time.monotonic()

    def after_save(self, session: Any, global_step_value: int) -> bool | None:
        """Evaluates, unless that was done a moment ago."""
        if not self._started:  # the checkpoint from which the training starts
            self._started = True
            return None
        if time.monotonic() - self._last_time >= self._eval_spec.throttle_secs:
            self._evaluate(final=False)
            self._last_time = time.monotonic()
        return None

    def end(self, session: Any, global_step_value: int) -> None:
        """Evaluates the last checkpoint, unless the training was ended before its time."""
        if not is_terminating():
            self._evaluate(final=True)

    def _evaluate(self, final: bool) -> None:
        path = self._estimator.latest_checkpoint()
        metrics = self.results[0]
        if path != self._evaluated:
            metrics = evaluate_checkpoint(self._estimator, self._eval_spec, path)
            self._evaluated = path
        exports = export_checkpoint(self._estimator, self._eval_spec, path, metrics, final)
        self.results = metrics, exports


def evaluate_checkpoint(estimator: Estimator, spec: EvalSpec, path: Any) -> dict[str, Any]:
    """The metrics of a checkpoint."""
    return estimator.evaluate(
        spec.input_fn, steps=spec.steps, hooks=list(spec.hooks), checkpoint_path=path,
        name=spec.name,
    )  # fmt: skip


def export_checkpoint(
    estimator: Estimator, spec: EvalSpec, path: Any, metrics: Any, final: bool
) -> list[Any]:
    """What the exporters give for an evaluated checkpoint; `final`: no other follows."""
    return [
        exporter.export(
            estimator, os.path.join(estimator.model_dir, "export", exporter.name), path, metrics,
            final,
        )
        for exporter in spec.exporters
    ]  # fmt: skip


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
        _run_task(estimator, train_spec, eval_spec)
        return None
    listener = _EvaluateAfterSaving(estimator, eval_spec)
    logging.info("Running training and evaluation locally (non-distributed).")
    _train(estimator, train_spec, [listener, *train_spec.saving_listeners])
    return listener.results


def _train(estimator: Estimator, spec: TrainSpec, listeners: Any) -> None:
    estimator.train(
        spec.input_fn, hooks=list(spec.hooks), max_steps=spec.max_steps,
        saving_listeners=list(listeners),
    )  # fmt: skip


def _run_task(estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec) -> None:
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
        listeners.append(_EvaluateAfterSaving(estimator, eval_spec))
    delay = config.experimental_max_worker_delay_secs
    if config.task_type == WORKER and delay:
        time.sleep(min(delay, (config.task_id + 1) * _SECONDS_BETWEEN_WORKERS))
    _train(estimator, train_spec, listeners)


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


def evaluate_continuously(estimator: Estimator, train_spec: TrainSpec, spec: EvalSpec) -> None:
    """What an evaluator does: evaluates and exports the newest checkpoint whenever there is
    another, until one is of the step `train_spec.max_steps`; for ever without that."""
    time.sleep(spec.start_delay_secs)
    evaluated, waits = None, False
    while True:
        began = time.monotonic()
        path = estimator.latest_checkpoint()
        if path and path != evaluated:
            metrics = evaluate_checkpoint(estimator, spec, path)
            step = metrics[GraphKeys.GLOBAL_STEP]
            final = bool(train_spec.max_steps) and step >= train_spec.max_steps
            export_checkpoint(estimator, spec, path, metrics, final)
            evaluated, waits = path, False
            if final:
                logging.info("The evaluation ends with step %s of %s.", step, train_spec.max_steps)
                return
        elif not waits:
            waits = True
            logging.info("The evaluator waits for a checkpoint in %s.", estimator.model_dir)
        pause = max(spec.throttle_secs, _LEAST_SECONDS_BETWEEN_LOOKS)
        time.sleep(max(0.0, began + pause - time.monotonic()))
