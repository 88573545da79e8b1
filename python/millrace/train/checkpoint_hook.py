"""The hook that writes checkpoints."""

import os
from typing import Any

from millrace import protos
from millrace.checkpoint.meta_graph import create_meta_graph_def
from millrace.checkpoint.saver import Saver
from millrace.core import logging
from millrace.core.export import export
from millrace.graph.default_graph import get_default_graph
from millrace.graph.keys import GraphKeys
from millrace.io.graph_io import write_graph
from millrace.summary.writer import FileWriterCache
from millrace.train.living_tasks import Era
from millrace.train.session_run_hook import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from millrace.train.timers import SecondOrStepTimer, step_for


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
    """Writes a checkpoint at the start, every so many seconds or steps, and at the end.

    A chief of synchronous replicas that goes on with the model as it was, after it was cut off,
    writes none at the start.

    With a saver that is asynchronous steps go on meanwhile, unless there are listeners: they are
    told of whole checkpoints. The end waits.

    Args:
      checkpoint_dir: the folder; the graph is written there too.
      save_secs, save_steps: how often; one of them.
      saver, scaffold: where the saver comes from, one of them; else it is that of the graph.
      checkpoint_basename: the beginning of the checkpoints' names.
      listeners: a list of CheckpointSaverListener.
      save_graph_def: whether to write the graph, as a text and beside each checkpoint.
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
        self._global_step_tensor = step_for(self)
        for listener in self._listeners:
            listener.begin()

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Writes the graph and the first checkpoint."""
        step = session.run(self._global_step_tensor)
        graph = get_default_graph()
        graph_def = graph.as_graph_def(add_shapes=True)
        if self._save_graph_def:
            write_graph(graph_def, self._checkpoint_dir, "graph.pbtxt")
        self._summary_writer.add_graph(graph)
        self._summary_writer.add_meta_graph(
            create_meta_graph_def(graph_def=graph_def, saver_def=self._get_saver().saver_def)
        )
        # A session that goes on with a synchronous model may find it in the middle of a step.
        era = Era.of(session)
        if era is None or not era.goes_on:
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
        self._wait()
        for listener in self._listeners:
            listener.end(session, step)

    def _get_saver(self) -> Any:
        """The saver: the one given, the scaffold's, or the only one of the graph."""
        if self._saver is not None:
            return self._saver
        if self._scaffold is not None:
            return self._scaffold.saver
        savers = get_default_graph().get_collection(GraphKeys.SAVERS)
        if not savers:
            raise RuntimeError(
                f"No items in collection {GraphKeys.SAVERS}. Please add a saver to the collection "
                "or provide a saver or scaffold."
            )
        if len(savers) > 1:
            raise RuntimeError(
                f"More than one item in collection {GraphKeys.SAVERS}. Please indicate which one "
                "to use by passing it to the constructor."
            )
        self._saver = savers[0]
        return self._saver

    def _wait(self) -> None:
        saver = self._get_saver()
        if isinstance(saver, Saver):
            saver.wait()

    def _save(self, session: Any, step: int) -> bool:
        """Writes a checkpoint; gives whether a listener asks for the end."""
        logging.info("Saving checkpoints for %d into %s.", step, self._save_path)
        for listener in self._listeners:
            listener.before_save(session, step)
        self._get_saver().save(
            session, self._save_path, global_step=step, write_meta_graph=self._save_graph_def
        )
        if self._listeners:  # they are told of checkpoints that are whole
            self._wait()
        self._summary_writer.add_session_log(
            protos.SessionLog(status=protos.SessionLog.CHECKPOINT, checkpoint_path=self._save_path),
            step,
        )
        stops = [listener.after_save(session, step) for listener in self._listeners]
        if any(stops):
            logging.info("A listener asked to end the training at step %d.", step)
        return any(stops)
