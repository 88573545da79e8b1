"""Hooks that write what TensorBoard shows: summaries, rates, traces."""

import os
from typing import Any

from millrace import protos
from millrace.core import logging
from millrace.core.export import export
from millrace.graph.timeline import Timeline
from millrace.io import gfile
from millrace.summary.writer import FileWriterCache
from millrace.train.global_step import get_global_step
from millrace.train.session_run_hook import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from millrace.train.timers import SecondOrStepTimer, step_for


class _SummaryWriting(SessionRunHook):
    """A hook that gives summaries to a writer: the one given, or one for a folder."""

    def __init__(self, output_dir: str | None, summary_writer: Any):
        self._output_dir = output_dir
        self._summary_writer = summary_writer

    def _open_writer(self) -> None:
        if self._summary_writer is None and self._output_dir is not None:
            self._summary_writer = FileWriterCache.get(self._output_dir)


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
        """Finds the count of steps. RuntimeError when there is none."""
        self._open_writer()
        self._global_step_tensor = step_for(self)
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
        """Finds the count of steps. RuntimeError when there is none."""
        self._next_step: int | None = None
        self._open_writer()
        self._global_step_tensor = step_for(self)

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
        # Read somewhere during the step: where it matters, it is read again.
        step = run_values.results["global_step"] + 1
        if (
            self._next_step is None
            or self._request_summary
            or self._timer.should_trigger_for_step(step + 1)
        ):
            step = run_context.session.run(self._global_step_tensor)
        if self._next_step is None:
            self._summary_writer.add_session_log(
                protos.SessionLog(status=protos.SessionLog.START), step
            )
        if self._request_summary:
            self._timer.update_last_triggered_step(step)
            for summary in run_values.results.get("summary", ()):
                self._summary_writer.add_summary(summary, step)
        self._next_step = step + 1

    def end(self, session: Any) -> None:
        """Lets the writer write what it has."""
        if self._summary_writer is not None:
            self._summary_writer.flush()


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
        self._global_step_tensor = step_for(self)

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
