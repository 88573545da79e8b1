"""Evaluating and exporting checkpoints of a training."""

import os
import time
from typing import Any

from millrace.core import errors, logging
from millrace.estimator.estimator import Estimator
from millrace.estimator.training_specs import EvalSpec, TrainSpec
from millrace.graph.keys import GraphKeys
from millrace.train.checkpoint_hook import CheckpointSaverListener
from millrace.train.termination import is_terminating

# An evaluator without a throttle looks for checkpoints that often.
_LEAST_SECONDS_BETWEEN_LOOKS = 0.5


class EvaluateAfterSaving(CheckpointSaverListener):
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


def evaluate_continuously(estimator: Estimator, train_spec: TrainSpec, spec: EvalSpec) -> None:
    """What an evaluator does: evaluates and exports the newest checkpoint whenever there is
    another, until one is of the step `train_spec.max_steps`; for ever without that."""
    time.sleep(spec.start_delay_secs)
    evaluated, waits = None, False
    while True:
        began = time.monotonic()
        path = estimator.latest_checkpoint()
        if path and path != evaluated:
            try:
                metrics = evaluate_checkpoint(estimator, spec, path)
                step = metrics[GraphKeys.GLOBAL_STEP]
                final = bool(train_spec.max_steps) and step >= train_spec.max_steps
                export_checkpoint(estimator, spec, path, metrics, final)
            except errors.NotFoundError:
                if estimator.latest_checkpoint() == path:
                    raise
                continue  # the training has written others meanwhile, and deleted this one
            evaluated, waits = path, False
            if final:
                logging.info("The evaluation ends with step %s of %s.", step, train_spec.max_steps)
                return
        elif not waits:
            waits = True
            logging.info("The evaluator waits for a checkpoint in %s.", estimator.model_dir)
        pause = max(spec.throttle_secs, _LEAST_SECONDS_BETWEEN_LOOKS)
        time.sleep(max(0.0, began + pause - time.monotonic()))
