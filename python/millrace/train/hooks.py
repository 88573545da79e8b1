"""Hooks: what happens around the runs of a monitored session."""

import os
import time
from typing import Any, Callable

import numpy as np

from millrace import protos
from millrace.checkpoint.saver import saver_or_default
from millrace.core import logging
from millrace.core.export import export
from millrace.graph.default_graph import get_default_graph
from millrace.graph.timeline import Timeline
from millrace.io import gfile
from millrace.io.graph_io import write_graph
from millrace.summary.writer import FileWriterCache
from millrace.train.global_step import get_global_step, global_step_read
from millrace.train.session_run_hook import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)


@export(v1=("train.SecondOrStepTimer", "estimator.SecondOrStepTimer"))
class SecondOrStepTimer:
    """Tells when to do something: every so many seconds, or every so many steps."""

    def __init__(self, every_secs: float | None = None, every_steps: int | None = None):
        if every_secs is None and every_steps is None:
            raise ValueError("Either every_secs or every_steps should be provided.")
        if every_secs is not None and every_steps is not None:
            raise ValueError("Can not provide both every_secs and every_steps.")
        self._every_secs = every_secs
        self._every_steps = every_steps
        self.reset()

    def reset(self) -> None:
        """Starts anew."""
        self._last_triggered_step: int | None = None
        self._last_triggered_time: float | None = None

    def should_trigger_for_step(self, step: int) -> bool:
        """Whether it is time, at that step."""
        if self._last_triggered_step is None:
            return True
        if self._last_triggered_step == step:
            return False
        if self._every_secs is not None:
            return time.time() >= self._last_triggered_time + self._every_secs
        return step >= self._last_triggered_step + self._every_steps

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """Notes that it was done; gives the seconds and the steps since the last time."""
        now = time.time()
        elapsed: tuple[float | None, int | None] = (None, None)
        if self._last_triggered_step is not None:
            elapsed = (now - self._last_triggered_time, step - self._last_triggered_step)
        self._last_triggered_time = now
        self._last_triggered_step = step
        return elapsed

    def last_triggered_step(self) -> int | None:
        """The step of the last time, or None."""
        return self._last_triggered_step


def _step_for(hook: Any) -> Any:
    """The tensor that counts the steps. RuntimeError where there is none."""
    step = global_step_read()
    if step is None:
        raise RuntimeError(f"Global step should be created to use {type(hook).__name__}.")
    return step


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

    def begin(self) -> None:
        """Finds the count of steps. RuntimeError when there is none."""
        self._global_step_tensor = _step_for(self)

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


@export(v1=("train.CheckpointSaverListener", "estimator.CheckpointSaverListener"))
class CheckpointSaverListener:
    """What is told of checkpoints before and after they are written."""

    def begin(self) -> None:
        """Called before the session."""

    def before_save(self, session: Any, global_step_value: int) -> None:
        """Called before a checkpoint."""

    def after_save(self, session: Any, global_step_value: int) -> bool | None:
        """Called after a checkpoint; True asks for the end."""

    def end(self, session: Any, global_step_value: int) -> None:
        """Called at the end."""


@export(v1=("train.CheckpointSaverHook", "estimator.CheckpointSaverHook"))
class CheckpointSaverHook(SessionRunHook):
    """Writes checkpoints every so many seconds or steps, with the first and the last step.

    Args:
      checkpoint_dir, checkpoint_basename: the folder, and the beginning of the names.
      save_secs, save_steps: how often.
      saver, scaffold: what writes them, or who has it; the graph's own by default.
      listeners: are told before and after.
      save_graph_def: whether to write the graph beside them.
    """

    def __init__(
        self, checkpoint_dir: str, save_secs: float | None = None, save_steps: int | None = None,
        saver: Any = None, checkpoint_basename: str = "model.ckpt", scaffold: Any = None,
        listeners: Any = None, save_graph_def: bool = True,
    ):  # fmt: skip
        if saver is not None and scaffold is not None:
            raise ValueError("You cannot provide both saver and scaffold.")
        self._saver = saver
        self._checkpoint_dir = checkpoint_dir
        self._save_path = os.path.join(checkpoint_dir, checkpoint_basename)
        self._scaffold = scaffold
        self._timer = SecondOrStepTimer(every_secs=save_secs, every_steps=save_steps)
        self._listeners = list(listeners or [])
        self._save_graph_def = save_graph_def

    def begin(self) -> None:
        """Finds the count of steps. RuntimeError when there is none."""
        self._summary_writer = FileWriterCache.get(self._checkpoint_dir)
        self._global_step_tensor = _step_for(self)
        for listener in self._listeners:
            listener.begin()

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Writes the first checkpoint."""
        step = session.run(self._global_step_tensor)
        if self._save_graph_def:
            write_graph(
                get_default_graph().as_graph_def(add_shapes=True), self._checkpoint_dir,
                "graph.pbtxt",
            )  # fmt: skip
        self._save(session, step)
        self._timer.update_last_triggered_step(step)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Fetches the count."""
        return SessionRunArgs(self._global_step_tensor)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Writes a checkpoint when it is time."""
        if self._timer.should_trigger_for_step(run_values.results + 1):
            step = run_context.session.run(self._global_step_tensor)
            if self._timer.should_trigger_for_step(step):
                self._timer.update_last_triggered_step(step)
                if self._save(run_context.session, step):
                    run_context.request_stop()

    def end(self, session: Any) -> None:
        """Writes the last checkpoint."""
        step = session.run(self._global_step_tensor)
        if step != self._timer.last_triggered_step():
            self._save(session, step)
        for listener in self._listeners:
            listener.end(session, step)

    def _save(self, session: Any, step: int) -> bool:
        """Writes a checkpoint; gives whether a listener asks for the end."""
        logging.info("Saving checkpoints for %d into %s.", step, self._save_path)
        for listener in self._listeners:
            listener.before_save(session, step)
        self._saver_to_use().save(
            session, self._save_path, global_step=step, write_meta_graph=self._save_graph_def
        )
        log = protos.SessionLog(
            status=protos.SessionLog.CHECKPOINT, checkpoint_path=self._save_path
        )
        self._summary_writer.add_session_log(log, step)
        stops = [listener.after_save(session, step) for listener in self._listeners]
        return any(stops)

    def _saver_to_use(self) -> Any:
        if self._saver is not None:
            return self._saver
        return saver_or_default() if self._scaffold is None else self._scaffold.saver


class _SummaryWriting(SessionRunHook):
    """A hook that gives summaries to a writer: the one given, or one for a folder."""

    def __init__(self, output_dir: str | None, summary_writer: Any):
        self._output_dir = output_dir
        self._summary_writer = summary_writer

    def begin(self) -> None:
        """Finds the writer of the folder, and the count of steps. RuntimeError without one."""
        if self._summary_writer is None and self._output_dir:
            self._summary_writer = FileWriterCache.get(self._output_dir)
        self._global_step_tensor = _step_for(self)


@export(v1=("train.StepCounterHook", "estimator.StepCounterHook"))
class StepCounterHook(_SummaryWriting):
    """Logs how many steps a second are made.

    Args:
      every_n_steps, every_n_secs: how often; one of them.
      output_dir, summary_writer: where to write it as a summary, if at all.
    """

    def __init__(
        self, every_n_steps: int | None = 100, every_n_secs: float | None = None,
        output_dir: str | None = None, summary_writer: Any = None,
    ):  # fmt: skip
        if (every_n_steps is None) == (every_n_secs is None):
            raise ValueError("exactly one of every_n_steps and every_n_secs should be provided.")
        super().__init__(output_dir, summary_writer)
        self._timer = SecondOrStepTimer(every_steps=every_n_steps, every_secs=every_n_secs)

    def begin(self) -> None:
        """Finds the writer, and the count of steps. RuntimeError when there is none."""
        super().begin()
        self._summary_tag = get_global_step().op.name + "/sec"

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Fetches the count."""
        return SessionRunArgs(self._global_step_tensor)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Logs when it is time."""
        if self._timer.should_trigger_for_step(run_values.results + 1):
            step = run_context.session.run(self._global_step_tensor)
            if self._timer.should_trigger_for_step(step):
                seconds, steps = self._timer.update_last_triggered_step(step)
                if seconds is not None:
                    self._log_and_record(steps, seconds, step)

    def _log_and_record(self, elapsed_steps: int, elapsed_time: float, global_step: int) -> None:
        rate = elapsed_steps / max(elapsed_time, 1e-9)
        if self._summary_writer is not None:
            summary = protos.Summary()
            value = summary.value.add()
            value.tag, value.simple_value = self._summary_tag, rate
            self._summary_writer.add_summary(summary, global_step)
        logging.info("%s: %g", self._summary_tag, rate)


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


@export(v1=("train.SummarySaverHook", "estimator.SummarySaverHook"))
class SummarySaverHook(_SummaryWriting):
    """Writes summaries every so many steps or seconds.

    Args:
      save_steps, save_secs: how often; one of them.
      output_dir, summary_writer: where to; an object with `add_summary(summary, step)`.
      scaffold, summary_op: where the summaries come from; one of them.
    """

    def __init__(
        self, save_steps: int | None = None, save_secs: float | None = None,
        output_dir: str | None = None, summary_writer: Any = None, scaffold: Any = None,
        summary_op: Any = None,
    ):  # fmt: skip
        if (scaffold is None) == (summary_op is None):
            raise ValueError("Exactly one of scaffold or summary_op must be provided.")
        super().__init__(output_dir, summary_writer)
        self._summary_op = summary_op
        self._scaffold = scaffold
        self._timer = SecondOrStepTimer(every_secs=save_secs, every_steps=save_steps)

    def begin(self) -> None:
        """Finds the writer, and the count of steps. RuntimeError when there is none."""
        super().begin()
        self._next_step: int | None = None

    def _summaries(self) -> list[Any]:
        summaries = self._summary_op
        if summaries is None:
            summaries = self._scaffold.summary_op
        if summaries is None:
            return []
        return summaries if isinstance(summaries, list) else [summaries]

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Fetches the count, and summaries when it is time."""
        self._request_summary = self._next_step is None or self._timer.should_trigger_for_step(
            self._next_step
        )
        fetches = {"global_step": self._global_step_tensor}
        if self._request_summary and self._summaries():
            fetches["summary"] = self._summaries()
        return SessionRunArgs(fetches)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Writes them."""
        if self._summary_writer is None:
            return
        stale = run_values.results["global_step"]
        step = stale + 1
        if self._next_step is None or self._request_summary:
            step = run_context.session.run(self._global_step_tensor)
        if self._next_step is None:
            log = protos.SessionLog(status=protos.SessionLog.START)
            self._summary_writer.add_session_log(log, step)
        if self._request_summary:
            self._timer.update_last_triggered_step(step)
            for summary in run_values.results.get("summary", ()):
                self._summary_writer.add_summary(summary, step)
        self._next_step = step + 1

    def end(self, session: Any) -> None:
        """Lets the writer write what it has."""
        if self._summary_writer is not None:
            self._summary_writer.flush()


@export(v1=("train.GlobalStepWaiterHook", "estimator.GlobalStepWaiterHook"))
class GlobalStepWaiterHook(SessionRunHook):
    """Makes a worker wait until others made a number of steps."""

    def __init__(self, wait_until_step: int):
        self._wait_until_step = wait_until_step

    def begin(self) -> None:
        """Finds the count of steps. RuntimeError when there is none."""
        self._worker_is_started = False
        self._global_step_tensor = _step_for(self)

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
        if self._final_ops is not None:
            self._final_ops_values = session.run(self._final_ops, self._final_ops_feed_dict)


@export(v1=("train.FeedFnHook", "estimator.FeedFnHook"))
class FeedFnHook(SessionRunHook):
    """Feeds what a function gives: {tensor: value}, at every run."""

    def __init__(self, feed_fn: Callable[[], Any]):
        self.feed_fn = feed_fn

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Asks the function."""
        return SessionRunArgs(fetches=None, feed_dict=self.feed_fn())


@export(v1=("train.ProfilerHook", "estimator.ProfilerHook"))
class ProfilerHook(SessionRunHook):
    """Writes what a run did every so many steps or seconds: as "timeline-STEP.json", for
    chrome://tracing and Perfetto, and into an event file, for the graph that TensorBoard draws."""

    def __init__(
        self, save_steps: int | None = None, save_secs: float | None = None, output_dir: str = "",
        show_dataflow: bool = True, show_memory: bool = False,
    ):  # fmt: skip
        self._output_dir = output_dir
        self._output_file = os.path.join(output_dir, "timeline-{}.json")
        self._show_dataflow = show_dataflow
        self._show_memory = show_memory
        self._timer = SecondOrStepTimer(every_secs=save_secs, every_steps=save_steps)

    def begin(self) -> None:
        """Finds the count of steps. RuntimeError when there is none."""
        self._next_step: int | None = None
        self._file_writer = FileWriterCache.get(self._output_dir) if self._output_dir else None
        self._global_step_tensor = _step_for(self)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Asks for a trace when it is time."""
        self._request_trace = self._next_step is not None and self._timer.should_trigger_for_step(
            self._next_step
        )
        options = None
        if self._request_trace:
            options = protos.RunOptions(trace_level=protos.RunOptions.FULL_TRACE)
        return SessionRunArgs(self._global_step_tensor, options=options)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Writes it."""
        step = run_values.results
        if self._next_step is None:
            self._timer.update_last_triggered_step(step)
        if self._request_trace:
            step = run_context.session.run(self._global_step_tensor)
            self._timer.update_last_triggered_step(step)
            trace = Timeline(run_values.run_metadata.step_stats)
            with gfile.GFile(self._output_file.format(step), "w") as file:
                file.write(
                    trace.generate_chrome_trace_format(self._show_dataflow, self._show_memory)
                )
            if self._file_writer is not None:
                self._file_writer.add_run_metadata(run_values.run_metadata, f"step_{step}", step)
        self._next_step = step + 1
