"""The supervisor: an older way to keep a training program going."""

import contextlib
import os
from typing import Any, Callable, Iterator

from millrace import protos
from millrace.checkpoint.meta_graph import create_meta_graph_def
from millrace.checkpoint.saver import Saver
from millrace.core import logging
from millrace.core.export import export
from millrace.graph.default_graph import get_default_graph
from millrace.graph.graph import Graph
from millrace.graph.keys import GraphKeys
from millrace.io.graph_io import write_graph
from millrace.state.variable_lists import (
    _all_saveable_objects,
    global_variables,
    global_variables_initializer,
    report_uninitialized_variables,
)
from millrace.summary.ops import merge_all
from millrace.summary.writer import FileWriter
from millrace.train.coordinator import Coordinator, LooperThread
from millrace.train.global_step import get_global_step
from millrace.train.scaffold import default_local_init_op
from millrace.train.services import CheckpointThread, StepCounterThread, SummaryThread
from millrace.train.session_manager import SessionManager


@export(v1="train.Supervisor")
class Supervisor:
    """Prepares sessions, runs services in threads, and stops them together.

    Args:
      graph: the graph to run; the default one if None.
      ready_op, ready_for_local_init_op: give the names of what is missing.
      is_chief: whether this process initialises the model and runs the services.
      init_op, init_feed_dict, init_fn: initialise the model.
      local_init_op: run in every new session.
      logdir: the folder for checkpoints and summaries.
      summary_op, saver, global_step, summary_writer: taken from the graph by default.
      save_summaries_secs, save_model_secs: how often; 0 for never.
      recovery_wait_secs: how long to wait between looks at a model that is not ready.
      stop_grace_secs: how long threads have to end.
      checkpoint_basename: the name of checkpoints in `logdir`.
      session_manager: makes the sessions.
    """

    USE_DEFAULT = 0

    def __init__(
        self, graph: Graph | None = None, ready_op: Any = USE_DEFAULT,
        ready_for_local_init_op: Any = USE_DEFAULT, is_chief: bool = True,
        init_op: Any = USE_DEFAULT, init_feed_dict: Any = None, local_init_op: Any = USE_DEFAULT,
        logdir: str | None = None, summary_op: Any = USE_DEFAULT, saver: Any = USE_DEFAULT,
        global_step: Any = USE_DEFAULT, save_summaries_secs: float = 120,
        save_model_secs: float = 600, recovery_wait_secs: float = 30, stop_grace_secs: float = 120,
        checkpoint_basename: str = "model.ckpt", session_manager: SessionManager | None = None,
        summary_writer: Any = USE_DEFAULT, init_fn: Any = None, local_init_run_options: Any = None,
    ):  # fmt: skip
        self._graph = get_default_graph() if graph is None else graph
        self._is_chief = is_chief
        self._init_fn = init_fn
        self._init_feed_dict = init_feed_dict
        self._recovery_wait_secs = recovery_wait_secs
        self._stop_grace_secs = stop_grace_secs
        self._logdir = logdir
        self._save_summaries_secs = save_summaries_secs
        self._save_model_secs = save_model_secs
        self._save_path = os.path.join(logdir, checkpoint_basename) if logdir else None
        self._coord = Coordinator()
        self._started_threads: list[Any] = []
        self._graph_added_to_summary = False
        with self._graph.as_default():
            take = self._default
            keys = GraphKeys
            self._ready_op = take(ready_op, keys.READY_OP, report_uninitialized_variables)
            self._ready_for_local_init_op = take(
                ready_for_local_init_op, keys.READY_FOR_LOCAL_INIT_OP,
                lambda: report_uninitialized_variables(global_variables()),
            )  # fmt: skip
            self._init_op = take(init_op, keys.INIT_OP, global_variables_initializer)
            self._local_init_op = take(local_init_op, keys.LOCAL_INIT_OP, default_local_init_op)
            self._saver = take(saver, keys.SAVERS, _new_saver)
            self._summary_op = take(summary_op, keys.SUMMARY_OP, merge_all)
            if global_step is Supervisor.USE_DEFAULT:
                global_step = _found_step()
            self._global_step = global_step
        if summary_writer is Supervisor.USE_DEFAULT:
            # The chief's alone: one writer per folder.
            summary_writer = FileWriter(logdir) if logdir and is_chief else None
        self._summary_writer = summary_writer
        if session_manager is None:
            ready_for_local = (
                self._ready_for_local_init_op if self._local_init_op is not None else None
            )
            session_manager = SessionManager(
                local_init_op=self._local_init_op,
                ready_op=self._ready_op,
                ready_for_local_init_op=ready_for_local,
                graph=self._graph,
                recovery_wait_secs=recovery_wait_secs,
                local_init_run_options=local_init_run_options,
            )
        self._session_manager = session_manager
        if not is_chief:
            self._check_devices()

    def _check_devices(self) -> None:
        for op in self._graph.get_operations():
            if op.type in ("Variable", "VariableV2") and not op.device:
                raise ValueError(
                    f"When using replicas, all Variables must have their device set: {op.name}"
                )

    def _default(self, given: Any, key: str, make: Callable[[], Any]) -> Any:
        """What was given, or the first of a collection, or something new that is added to it."""
        if given is not Supervisor.USE_DEFAULT:
            return given
        found = self._graph.get_collection(key)
        if found:
            if len(found) > 1:
                logging.info("Found %d %s operations. Returning the first one.", len(found), key)
            return found[0]
        made = make()
        if made is not None:
            self._graph.add_to_collection(key, made)
        return made

    # What it was made with.

    @property
    def is_chief(self) -> bool:
        """Whether this process initialises the model."""
        return self._is_chief

    @property
    def session_manager(self) -> SessionManager:
        """What makes sessions."""
        return self._session_manager

    @property
    def coord(self) -> Coordinator:
        """The coordinator of the threads."""
        return self._coord

    @property
    def init_op(self) -> Any:
        """What initialises the model."""
        return self._init_op

    @property
    def init_feed_dict(self) -> Any:
        """What is fed to it."""
        return self._init_feed_dict

    @property
    def ready_op(self) -> Any:
        """What tells whether the model is ready."""
        return self._ready_op

    @property
    def ready_for_local_init_op(self) -> Any:
        """What tells whether the local initialisation may run."""
        return self._ready_for_local_init_op

    @property
    def summary_writer(self) -> Any:
        """What writes summaries, or None."""
        return self._summary_writer

    @property
    def summary_op(self) -> Any:
        """All summaries, or None."""
        return self._summary_op

    @property
    def save_summaries_secs(self) -> float:
        """How often summaries are written."""
        return self._save_summaries_secs

    @property
    def global_step(self) -> Any:
        """The count of steps, or None."""
        return self._global_step

    @property
    def saver(self) -> Any:
        """What saves and restores the model, or None."""
        return self._saver

    @property
    def save_model_secs(self) -> float:
        """How often checkpoints are written."""
        return self._save_model_secs

    @property
    def save_path(self) -> str | None:
        """The path of checkpoints, or None."""
        return self._save_path

    # Services.

    def start_standard_services(self, sess: Any) -> list[Any]:
        """Starts the threads of the chief that save the model and write summaries; gives them.

        RuntimeError on other processes.
        """
        if not self._is_chief:
            raise RuntimeError("Only chief supervisor can start standard services. Because only "
                               "chief supervisors can write events.")  # fmt: skip
        if not self._logdir:
            logging.warning("Standard services need a 'logdir' passed to the SessionManager")
            return []
        threads: list[Any] = []
        if self._summary_writer is not None and self._global_step is not None:
            # TensorBoard forgets what an earlier session wrote of later steps.
            self._log_session(protos.SessionLog.START, int(sess.run(self._global_step)))
        if self._summary_writer is not None and self._save_summaries_secs:
            if self._global_step is not None:
                threads.append(StepCounterThread(self, sess))
            if self._summary_op is not None:
                threads.append(SummaryThread(self, sess))
        if self._save_model_secs and self._saver is not None:
            threads.append(CheckpointThread(self, sess))
        for thread in threads:
            thread.start()
        self._started_threads += threads
        return threads

    def prepare_or_wait_for_session(
        self, master: str = "", config: Any = None, wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200, start_standard_services: bool = True,
    ) -> Any:  # fmt: skip
        """A session with the model ready: made so by the chief, waited for by others."""
        self._coord.clear_stop()
        if self._summary_writer is not None:
            self._summary_writer.reopen()
        if self._is_chief:
            sess = self._session_manager.prepare_session(
                master, init_op=self._init_op, saver=self._saver, checkpoint_dir=self._logdir,
                wait_for_checkpoint=wait_for_checkpoint, max_wait_secs=max_wait_secs, config=config,
                init_feed_dict=self._init_feed_dict, init_fn=self._init_fn,
            )  # fmt: skip
            self._write_graph()
            if start_standard_services:
                logging.info("Starting standard services.")
                self.start_standard_services(sess)
        else:
            sess = self._session_manager.wait_for_session(
                master, config=config, max_wait_secs=max_wait_secs
            )
        if start_standard_services:
            logging.info("Starting queue runners.")
            self.start_queue_runners(sess)
        return sess

    def _log_session(self, status: int, step: int | None = None) -> None:
        self._summary_writer.add_session_log(protos.SessionLog(status=status), step)

    def _write_graph(self) -> None:
        if not self._logdir:
            return
        write_graph(self._graph, self._logdir, "graph.pbtxt")
        if self._summary_writer is not None and not self._graph_added_to_summary:
            self._summary_writer.add_graph(self._graph)
            self._summary_writer.add_meta_graph(create_meta_graph_def(graph=self._graph))
            self._graph_added_to_summary = True

    def start_queue_runners(self, sess: Any, queue_runners: Any = None) -> list[Any]:
        """Starts the threads of queue runners: those given, or all of the graph. Gives them."""
        if queue_runners is None:
            queue_runners = self._graph.get_collection(GraphKeys.QUEUE_RUNNERS)
        threads = []
        for runner in queue_runners:
            threads += runner.create_threads(sess, coord=self._coord, daemon=True, start=True)
        self._started_threads += threads
        return threads

    def loop(
        self, timer_interval_secs: float | None, target: Callable[..., Any], args: Any = None,
        kwargs: Any = None,
    ) -> LooperThread:  # fmt: skip
        """Starts a thread that calls a function over and over; see LooperThread."""
        looper = LooperThread(
            self._coord, timer_interval_secs, target=target, args=args, kwargs=kwargs
        )
        looper.start()
        return looper

    Loop = loop
    StartQueueRunners = start_queue_runners
    StartStandardServices = start_standard_services
    PrepareSession = prepare_or_wait_for_session

    # The end.

    def stop(
        self, threads: Any = None, close_summary_writer: bool = True,
        ignore_live_threads: bool = False,
    ) -> None:  # fmt: skip
        """Stops the threads and waits for them; raises what one of them reported."""
        self._coord.request_stop()
        try:
            self._coord.join(
                threads,
                stop_grace_period_secs=self._stop_grace_secs,
                ignore_live_threads=ignore_live_threads,
            )
        finally:
            if close_summary_writer and self._summary_writer is not None:
                self._log_session(protos.SessionLog.STOP)
                self._summary_writer.close()
                self._graph_added_to_summary = False

    def request_stop(self, ex: Any = None) -> None:
        """Asks the threads to stop; see Coordinator."""
        self._coord.request_stop(ex=ex)

    def should_stop(self) -> bool:
        """Whether somebody asked to stop."""
        return self._coord.should_stop()

    def stop_on_exception(self) -> Any:
        """A context that stops on what is raised in it; see Coordinator."""
        return self._coord.stop_on_exception()

    def wait_for_stop(self) -> None:
        """Waits until somebody asks to stop."""
        self._coord.wait_for_stop()

    Stop = stop
    RequestStop = request_stop
    ShouldStop = should_stop
    StopOnException = stop_on_exception
    WaitForStop = wait_for_stop

    def summary_computed(self, sess: Any, summary: Any, global_step: Any = None) -> None:
        """Writes a summary that was computed. RuntimeError without a writer."""
        if self._summary_writer is None:
            raise RuntimeError("Writing a summary requires a summary writer.")
        if global_step is None and self._global_step is not None:
            global_step = int(sess.run(self._global_step))
        self._summary_writer.add_summary(summary, global_step)

    SummaryComputed = summary_computed

    @contextlib.contextmanager
    def managed_session(
        self, master: str = "", config: Any = None, start_standard_services: bool = True,
        close_summary_writer: bool = True,
    ) -> Iterator[Any]:  # fmt: skip
        """A context with a session; at its end the threads are stopped and the session is closed.

        An error inside, or in a thread, is raised; the ordinary end of the data is none.
        """
        try:
            sess = self.prepare_or_wait_for_session(
                master=master, config=config, start_standard_services=start_standard_services
            )
            yield sess
        except Exception as error:
            self.request_stop(error)
        finally:
            try:
                # Threads that wait in the session end only when it is closed: see below.
                self.stop(close_summary_writer=close_summary_writer, ignore_live_threads=True)
            finally:
                try:
                    sess.close()
                except Exception as error:
                    logging.info("Closing the session failed: %s", error)


def _new_saver() -> Saver | None:
    """A saver of all variables and the state of random ops; None where there are no variables."""
    return Saver(random_state=True) if _all_saveable_objects() else None


def _found_step() -> Any:
    try:
        return get_global_step()
    except TypeError:
        return None
