"""Training and evaluating in turn."""

import os
import time
from collections import namedtuple
from typing import Any

from millrace.core import logging
from millrace.core.export import export
from millrace.estimator.estimator import Estimator
from millrace.estimator.exporters import Exporter
from millrace.train.checkpoint_hook import CheckpointSaverListener
from millrace.train.session_run_hook import SessionRunHook
from millrace.train.termination import is_terminating


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
        estimator, spec = self._estimator, self._eval_spec
        path = estimator.latest_checkpoint()
        metrics = self.results[0]
        if path != self._evaluated:
            metrics = estimator.evaluate(
                spec.input_fn, steps=spec.steps, hooks=list(spec.hooks), checkpoint_path=path,
                name=spec.name,
            )  # fmt: skip
            self._evaluated = path
        exports = [
            exporter.export(
                estimator, os.path.join(estimator.model_dir, "export", exporter.name), path,
                metrics, final,
            )
            for exporter in spec.exporters
        ]  # fmt: skip
        self.results = metrics, exports


@export(v1="estimator.train_and_evaluate")
def train_and_evaluate(
    estimator: Any, train_spec: TrainSpec, eval_spec: EvalSpec
) -> tuple[Any, Any]:
    """Trains, and evaluates checkpoints as they are written, at most every
    `eval_spec.throttle_secs` seconds, and the last one.

    Gives the metrics of the last evaluation, and what the exporters gave.
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
    listener = _EvaluateAfterSaving(estimator, eval_spec)
    logging.info("Running training and evaluation locally (non-distributed).")
    estimator.train(
        train_spec.input_fn, hooks=list(train_spec.hooks), max_steps=train_spec.max_steps,
        saving_listeners=[listener, *train_spec.saving_listeners],
    )  # fmt: skip
    return listener.results
