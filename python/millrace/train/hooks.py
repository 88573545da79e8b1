"""Hooks: what happens around the runs of a monitored session."""

import time
from typing import Any, Callable

import numpy as np

from millrace.core import errors, logging
from millrace.core.export import export
from millrace.graph.default_graph import get_default_graph
from millrace.train.session_run_hook import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from millrace.train.timers import SecondOrStepTimer, step_for


def _graph_element(obj: Any) -> Any:
    """A tensor or operation of the default graph, given as itself or as a name."""
    graph = get_default_graph()
    if not isinstance(obj, str):
        if getattr(obj, "graph", None) is not graph:
            raise ValueError(
                f"Passed {obj} should have graph attribute that is equal to current graph {graph}."
            )
        return obj
    if ":" in obj:
        return graph.as_graph_element(obj)
    element = graph.as_graph_element(obj + ":0")
    if len(element.op.outputs) > 1:
        raise ValueError(
            f"Name {obj} is ambiguous, as this operation has {len(element.op.outputs)} outputs: "
            f'write "{obj}:0" for the first.'
        )
    return element


@export(v1=("train.LoggingTensorHook", "estimator.LoggingTensorHook"))
class LoggingTensorHook(SessionRunHook):
    """Logs the values of tensors.

    Args:
      tensors: {tag: tensor or name}, or a list of tensors or names.
      every_n_iter, every_n_secs: how often; one of them.
      at_end: whether to log at the end; alone, or besides the above.
      formatter: a function from {tag: value} to a text.
    """

    def __init__(
        self, tensors: Any, every_n_iter: int | None = None, every_n_secs: float | None = None,
        at_end: bool = False, formatter: Callable[[Any], str] | None = None,
    ):  # fmt: skip
        only_at_end = at_end and every_n_iter is None and every_n_secs is None
        if not only_at_end and (every_n_iter is None) == (every_n_secs is None):
            raise ValueError(
                "either at_end and/or exactly one of every_n_iter and every_n_secs must be "
                "provided."
            )
        if every_n_iter is not None and every_n_iter <= 0:
            raise ValueError(f"invalid every_n_iter={every_n_iter}.")
        if isinstance(tensors, dict):
            self._tags = list(tensors)
        else:
            self._tags = list(tensors)
            tensors = {item: item for item in self._tags}
        self._tensors = tensors
        self._formatter = formatter
        self._timer = None if only_at_end else SecondOrStepTimer(every_n_secs, every_n_iter)
        self._log_at_end = at_end

    def begin(self) -> None:
        """Finds the tensors in the graph."""
        if self._timer is not None:
            self._timer.reset()
        self._iter_count = 0
        self._current_tensors = {tag: _graph_element(t) for tag, t in self._tensors.items()}

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Fetches them when it is time."""
        self._should_trigger = self._timer is not None and self._timer.should_trigger_for_step(
            self._iter_count
        )
        return SessionRunArgs(self._current_tensors) if self._should_trigger else None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Logs them when it is time."""
        if self._should_trigger:
            self._log_tensors(run_values.results)
        self._iter_count += 1

    def end(self, session: Any) -> None:
        """Logs them, if that was asked for."""
        if self._log_at_end:
            self._log_tensors(session.run(self._current_tensors))

    def _log_tensors(self, values: dict[Any, Any]) -> None:
        elapsed = None
        if self._timer is not None:
            elapsed, _ = self._timer.update_last_triggered_step(self._iter_count)
        if self._formatter is not None:
            logging.info(self._formatter(values))
            return
        with np.printoptions(suppress=True):
            text = ", ".join(f"{tag} = {values[tag]}" for tag in self._tags)
        logging.info(text if elapsed is None else f"{text} ({elapsed:.3f} sec)")


@export(v1=("train.StopAtStepHook", "estimator.StopAtStepHook"))
class StopAtStepHook(SessionRunHook):
    """Asks for the end after a number of steps from now on, or at a step counted from the first."""

    def __init__(self, num_steps: int | None = None, last_step: int | None = None):
        if num_steps is None and last_step is None:
            raise ValueError("One of num_steps or last_step must be specified.")
        if num_steps is not None and last_step is not None:
            raise ValueError("Only one of num_steps or last_step can be specified.")
        self._num_steps = num_steps
        self._last_step = last_step

    @property
    def last_step(self) -> int | None:
        """The step at which it stops; None while it is not known."""
        return self._last_step

    def begin(self) -> None:
        """Finds the count of steps. RuntimeError when there is none."""
        self._global_step_tensor = step_for(self)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Takes the number of the step at which to stop."""
        if self._last_step is None:
            self._last_step = int(session.run(self._global_step_tensor)) + self._num_steps

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Fetches the count."""
        return SessionRunArgs(self._global_step_tensor)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Asks for the end when it is reached."""
        # The count was read somewhere during the step: where it may be reached, it is read again.
        if run_values.results + 1 >= self._last_step:
            step = run_context.session.run(self._global_step_tensor)
            if step >= self._last_step:
                run_context.request_stop()


@export(v1=("train.NanLossDuringTrainingError", "estimator.NanLossDuringTrainingError"))
class NanLossDuringTrainingError(RuntimeError):
    """The loss is not a number any more."""

    def __str__(self) -> str:
        return "NaN loss during training."


@export(v1=("train.NanTensorHook", "estimator.NanTensorHook"))
class NanTensorHook(SessionRunHook):
    """Ends the training when the loss is not a number: by an error, or by asking for the end."""

    def __init__(self, loss_tensor: Any, fail_on_nan_loss: bool = True):
        self._loss_tensor = loss_tensor
        self._fail_on_nan_loss = fail_on_nan_loss

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Fetches the loss."""
        return SessionRunArgs(self._loss_tensor)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Looks at it."""
        if not np.isnan(run_values.results).any():
            return
        if self._fail_on_nan_loss:
            logging.error("Model diverged with loss = NaN.")
            raise NanLossDuringTrainingError
        logging.warning("Model diverged with loss = NaN.")
        run_context.request_stop()


@export(v1=("train.GlobalStepWaiterHook", "estimator.GlobalStepWaiterHook"))
class GlobalStepWaiterHook(SessionRunHook):
    """Makes a worker wait until others made a number of steps."""

    def __init__(self, wait_until_step: int):
        self._wait_until_step = wait_until_step

    def begin(self) -> None:
        """Finds the count of steps. RuntimeError when there is none."""
        self._worker_is_started = False
        self._global_step_tensor = step_for(self)

    def before_run(self, run_context: SessionRunContext) -> None:
        """Waits, before the first run."""
        if self._worker_is_started:
            return
        if self._wait_until_step > 0:
            logging.info(
                "Waiting for global step %d before starting training.", self._wait_until_step
            )
            told = 0.0
            while (
                step := run_context.session.run(self._global_step_tensor)
            ) < self._wait_until_step:
                if time.monotonic() - told > 30:
                    told = time.monotonic()
                    logging.info("Current global step is %d.", step)
                time.sleep(0.5)
        self._worker_is_started = True


@export(v1=("train.FinalOpsHook", "estimator.FinalOpsHook"))
class FinalOpsHook(SessionRunHook):
    """Runs something at the end, and keeps the values."""

    def __init__(self, final_ops: Any, final_ops_feed_dict: Any = None):
        self._final_ops = final_ops
        self._final_ops_feed_dict = final_ops_feed_dict
        self._final_ops_values: Any = None

    @property
    def final_ops_values(self) -> Any:
        """The values, after the end."""
        return self._final_ops_values

    def end(self, session: Any) -> None:
        """Runs it."""
        if self._final_ops is None:
            return
        try:
            self._final_ops_values = session.run(self._final_ops, self._final_ops_feed_dict)
        except (errors.OutOfRangeError, StopIteration):
            logging.warning(
                "The final operations came to the end of the input: it is read once more for them "
                "than in the loop."
            )
            raise


@export(v1=("train.FeedFnHook", "estimator.FeedFnHook"))
class FeedFnHook(SessionRunHook):
    """Feeds what a function gives: {tensor: value}, at every run."""

    def __init__(self, feed_fn: Callable[[], Any]):
        self.feed_fn = feed_fn

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Asks the function."""
        return SessionRunArgs(fetches=None, feed_dict=self.feed_fn())
