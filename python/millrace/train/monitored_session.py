"""Sessions with hooks around each run, which end and recover as training should."""

import inspect
from typing import Any, Callable

from millrace.core import errors
from millrace.core.export import export
from millrace.graph.default_graph import get_default_graph
from millrace.train.checkpoint_hook import CheckpointSaverHook
from millrace.train.global_step import get_global_step
from millrace.train.progress import ProgressHook, shows_progress
from millrace.train.scaffold import ChiefSessionCreator, Scaffold, WorkerSessionCreator
from millrace.train.summary_hooks import StepCounterHook, SummarySaverHook
from millrace.train.termination import EXIT_STATUS, TerminationWatch
from millrace.train.wrapped_sessions import (
    CoordinatedSessionCreator,
    RecoverableSession,
    StepContext,
)

USE_DEFAULT = object()


class _MonitoredSession:
    """What MonitoredSession and SingularMonitoredSession share."""

    def __init__(
        self, session_creator: Any, hooks: Any, should_recover: bool,
        stop_grace_period_secs: float = 120,
    ):  # fmt: skip
        self._graph_was_finalized = get_default_graph().finalized
        self._hooks = list(hooks or [])
        for hook in self._hooks:
            hook.begin()
        self._session_creator = session_creator or ChiefSessionCreator()
        self._coordinated_creator = CoordinatedSessionCreator(
            self._session_creator, self._hooks, stop_grace_period_secs
        )
        if should_recover:
            self._sess: Any = RecoverableSession(self._coordinated_creator)
        else:
            self._sess = self._coordinated_creator.create_session()

    @property
    def graph(self) -> Any:
        """The graph that it runs, or None when it is closed."""
        session = self._tf_sess()
        return None if session is None else session.graph

    def run(
        self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None
    ) -> Any:
        """As `Session.run`, with hooks around it. RuntimeError when it is closed."""
        if self._sess is None:
            raise RuntimeError("Session is already closed: run() cannot be called any more.")
        return self._sess.run(
            fetches, feed_dict=feed_dict, options=options, run_metadata=run_metadata
        )

    def run_step_fn(self, step_fn: Callable[..., Any]) -> Any:
        """Calls `step_fn(step_context)`, which may run things without hooks, and once with them.

        ValueError when the function takes other parameters; what it raises passes through,
        StopIteration from `step_context.request_stop()` too.
        """
        parameters = list(inspect.signature(step_fn).parameters)
        if parameters != ["step_context"] and not (
            inspect.ismethod(step_fn) and parameters == ["step_context"]
        ):
            raise ValueError(
                "`step_fn` may either have one `step_context` argument, or `self` and "
                f"`step_context` arguments if it's an instance method. Got {parameters} instead."
            )
        if self._sess is None:
            raise RuntimeError(
                "Session is already closed: run_step_fn() cannot be called any more."
            )
        return self._sess.run_step_fn(step_fn, self._tf_sess(), run_with_hooks=None)

    def should_stop(self) -> bool:
        """Whether to end the loop: a hook or a thread asked for it, or it is closed."""
        return self._sess is None or self._sess.should_stop()

    def close(self) -> None:
        """Calls the hooks' `end` and closes. RuntimeError when it is closed already."""
        self._close_internal()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, exception_type: Any, exception_value: Any, traceback: Any) -> bool:
        if exception_type in (errors.OutOfRangeError, StopIteration):
            exception_type = None
        self._close_internal(exception_type)
        # These two are the ordinary end of the data.
        return exception_type is None

    def _close_internal(self, exception_type: Any = None) -> None:
        try:
            if exception_type is None:
                for hook in self._hooks:
                    hook.end(self._coordinated_creator.tf_sess)
                self._end_run()
        finally:
            try:
                if self._sess is None:
                    raise RuntimeError("Session is already closed.")
                self._sess.close()
            finally:
                self._sess = None
                self._coordinated_creator.tf_sess = None
                self._coordinated_creator.coord = None
                if not self._graph_was_finalized:
                    get_default_graph()._unsafe_unfinalize()

    def _end_run(self) -> None:
        """Called where it is closed because the training is over."""
        if isinstance(self._session_creator, ChiefSessionCreator):
            self._session_creator.end_run()

    def _is_closed(self) -> bool:
        return self._coordinated_creator.tf_sess is None

    def _tf_sess(self) -> Any:
        return self._coordinated_creator.tf_sess


@export(v1="train.MonitoredSession")
class MonitoredSession(_MonitoredSession):
    """A session for training: initialises, starts queue runners, calls hooks, recovers, closes.

    `with MonitoredSession(hooks=[...]) as sess:` and inside
    `while not sess.should_stop(): sess.run(train_op)`.

    Args:
      session_creator: makes the session; a ChiefSessionCreator by default.
      hooks: a list of SessionRunHook.
      stop_grace_period_secs: how long threads have to end.
    """

    StepContext = StepContext

    def __init__(
        self, session_creator: Any = None, hooks: Any = None, stop_grace_period_secs: float = 120
    ):
        super().__init__(session_creator, hooks, True, stop_grace_period_secs)


class _TrainingSession(MonitoredSession):
    """A MonitoredSession that answers SIGTERM: after the run, or before the next, it is closed,
    which writes the last checkpoint, and SystemExit is raised."""

    def __init__(self, session_creator: Any, hooks: Any, stop_grace_period_secs: float):
        self._watch = TerminationWatch()
        self._watch.start()
        try:
            super().__init__(session_creator, hooks, stop_grace_period_secs)
        except BaseException:
            self._watch.stop()
            raise

    def run(
        self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None
    ) -> Any:
        self._exit_if_asked()
        values = super().run(fetches, feed_dict, options, run_metadata)
        self._exit_if_asked()
        return values

    def run_step_fn(self, step_fn: Callable[..., Any]) -> Any:
        self._exit_if_asked()
        values = super().run_step_fn(step_fn)
        self._exit_if_asked()
        return values

    def _exit_if_asked(self) -> None:
        if self._watch.requested and self._sess is not None:
            self.close()
            raise SystemExit(EXIT_STATUS)

    def __exit__(self, exception_type: Any, exception_value: Any, traceback: Any) -> bool:
        if self._watch.requested and self._sess is None:
            return False
        return super().__exit__(exception_type, exception_value, traceback)

    def _end_run(self) -> None:
        # One that was told to go is started again, and the others go on meanwhile.
        if not self._watch.requested:
            super()._end_run()

    def _close_internal(self, exception_type: Any = None) -> None:
        try:
            super()._close_internal(exception_type)
        finally:
            self._watch.stop()


@export(v1="train.SingularMonitoredSession")
class SingularMonitoredSession(_MonitoredSession):
    """A session with hooks that does not recover when a worker is lost.

    Unlike a MonitoredSession it can be passed to Saver.save and the like.
    """

    def __init__(
        self, hooks: Any = None, scaffold: Scaffold | None = None, master: str = "",
        config: Any = None, checkpoint_dir: str | None = None, stop_grace_period_secs: float = 120,
        checkpoint_filename_with_path: str | None = None,
    ):  # fmt: skip
        creator = ChiefSessionCreator(
            scaffold=scaffold,
            master=master,
            config=config,
            checkpoint_dir=checkpoint_dir,
            checkpoint_filename_with_path=checkpoint_filename_with_path,
        )
        super().__init__(creator, hooks, False, stop_grace_period_secs)

    def raw_session(self) -> Any:
        """The session inside, without hooks."""
        return self._tf_sess()


@export(v1="train.MonitoredTrainingSession")
def MonitoredTrainingSession(
    master: str = "", is_chief: bool = True, checkpoint_dir: str | None = None,
    scaffold: Scaffold | None = None, hooks: Any = None, chief_only_hooks: Any = None,
    save_checkpoint_secs: Any = USE_DEFAULT, save_summaries_steps: Any = USE_DEFAULT,
    save_summaries_secs: Any = USE_DEFAULT, config: Any = None, stop_grace_period_secs: float = 120,
    log_step_count_steps: int | None = 100, max_wait_secs: float = 7200,
    save_checkpoint_steps: Any = USE_DEFAULT, summary_dir: str | None = None,
    save_graph_def: bool = True, asynchronous_checkpoints: bool = False,
) -> MonitoredSession:  # fmt: skip
    """A MonitoredSession with the hooks that training usually has.

    Args:
      master: the target of the session.
      is_chief: whether this process initialises the model; else it waits for the one that does.
      checkpoint_dir: where to restore from and write checkpoints to.
      scaffold: what makes the model ready.
      hooks, chief_only_hooks: more hooks; the latter on the chief only.
      save_checkpoint_secs, save_checkpoint_steps: how often to write checkpoints; every 600 seconds
        by default, None for never.
      save_summaries_steps, save_summaries_secs: how often to write summaries; every 100 steps by
        default, None for never.
      log_step_count_steps: how often to log the number of steps a second.
      max_wait_secs: how long a worker waits for the chief.
      summary_dir: where to write summaries to; `checkpoint_dir` by default.
      save_graph_def: whether to write the graph beside checkpoints.
      asynchronous_checkpoints: writes checkpoints while steps go on: see `tf.train.Saver`. Not in
        TensorFlow. ValueError where the saver is given and does not.

    With a `checkpoint_dir`, SIGTERM ends the program after the step, with a checkpoint and status
    143, unless it has a handler of its own. On a terminal a line shows the progress.
    """
    if save_summaries_steps is USE_DEFAULT and save_summaries_secs is USE_DEFAULT:
        save_summaries_steps, save_summaries_secs = 100, None
    elif save_summaries_secs is USE_DEFAULT:
        save_summaries_secs = None
    elif save_summaries_steps is USE_DEFAULT:
        save_summaries_steps = None
    if save_checkpoint_steps is USE_DEFAULT and save_checkpoint_secs is USE_DEFAULT:
        save_checkpoint_steps, save_checkpoint_secs = None, 600
    elif save_checkpoint_secs is USE_DEFAULT:
        save_checkpoint_secs = None
    elif save_checkpoint_steps is USE_DEFAULT:
        save_checkpoint_steps = None
    scaffold = scaffold or Scaffold()
    if asynchronous_checkpoints:
        scaffold._make_asynchronous()
    all_hooks = list(hooks or [])
    if not is_chief:
        creator: Any = WorkerSessionCreator(
            scaffold=scaffold, master=master, config=config, max_wait_secs=max_wait_secs
        )
        return MonitoredSession(creator, all_hooks, stop_grace_period_secs)
    all_hooks += list(chief_only_hooks or [])
    creator = ChiefSessionCreator(
        scaffold=scaffold, checkpoint_dir=checkpoint_dir, master=master, config=config
    )
    summary_dir = summary_dir or checkpoint_dir
    if summary_dir:
        if log_step_count_steps and log_step_count_steps > 0:
            all_hooks.append(
                StepCounterHook(every_n_steps=log_step_count_steps, output_dir=summary_dir)
            )
        if (save_summaries_steps and save_summaries_steps > 0) or (
            save_summaries_secs and save_summaries_secs > 0
        ):
            all_hooks.append(
                SummarySaverHook(
                    scaffold=scaffold, save_steps=save_summaries_steps,
                    save_secs=save_summaries_secs, output_dir=summary_dir,
                )
            )  # fmt: skip
    if checkpoint_dir and (
        (save_checkpoint_secs and save_checkpoint_secs > 0)
        or (save_checkpoint_steps and save_checkpoint_steps > 0)
    ):
        all_hooks.append(
            CheckpointSaverHook(
                checkpoint_dir, save_steps=save_checkpoint_steps, save_secs=save_checkpoint_secs,
                scaffold=scaffold, save_graph_def=save_graph_def,
            )
        )  # fmt: skip
    if shows_progress() and get_global_step() is not None:
        all_hooks.append(ProgressHook(all_hooks))
    if checkpoint_dir:
        return _TrainingSession(creator, all_hooks, stop_grace_period_secs)
    return MonitoredSession(creator, all_hooks, stop_grace_period_secs)
