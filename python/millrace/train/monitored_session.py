"""Sessions with hooks around each run, which end and recover as training should."""

import inspect
import time
from typing import Any, Callable

from millrace import gen_ops, protos
from millrace.core import errors, logging
from millrace.core.export import export
from millrace.graph.graph import get_default_graph
from millrace.graph.keys import GraphKeys
from millrace.graph.session import Session
from millrace.ops.control_flow import group
from millrace.state.variable_lists import (
    global_variables,
    global_variables_initializer,
    local_variables_initializer,
    report_uninitialized_variables,
)
from millrace.train import hooks as hook_kinds
from millrace.train.coordinator import Coordinator
from millrace.train.hooks import SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues
from millrace.train.queue_runner import start_queue_runners
from millrace.train.session_manager import SessionManager

# Errors of a lost worker or server: a session that is made anew may go on.
_PREEMPTION_ERRORS = (errors.AbortedError, errors.UnavailableError)

USE_DEFAULT = object()


def tables_initializer_of(graph: Any) -> list[Any]:
    """The operations that fill the lookup tables of a graph."""
    return graph.get_collection(GraphKeys.TABLE_INITIALIZERS)


def default_local_init_op() -> Any:
    """An operation that initialises local variables and tables."""
    return group(local_variables_initializer(), *tables_initializer_of(get_default_graph()))


@export("train.Scaffold")
class Scaffold:
    """The operations that make a model ready, taken from collections or made where none is given.

    Args:
      init_op, init_feed_dict: initialise the model; all global variables by default.
      init_fn: a function (scaffold, session), called after `init_op`.
      ready_op: gives the names of what is missing; of all variables by default.
      ready_for_local_init_op: the same, before `local_init_op`.
      local_init_op, local_init_feed_dict: run in every new session; local variables by default.
      summary_op: all summaries as one.
      saver: saves and restores the model.
      copy_from_scaffold: another one, whose values are taken where none is given here.
    """

    def __init__(
        self, init_op: Any = None, init_feed_dict: Any = None, init_fn: Any = None,
        ready_op: Any = None, ready_for_local_init_op: Any = None, local_init_op: Any = None,
        summary_op: Any = None, saver: Any = None, copy_from_scaffold: "Scaffold | None" = None,
        local_init_feed_dict: Any = None,
    ):  # fmt: skip
        if copy_from_scaffold is not None:
            if not isinstance(copy_from_scaffold, Scaffold):
                raise TypeError(
                    f"copy_from_scaffold is not a Scaffold instance: {copy_from_scaffold}"
                )
            other = copy_from_scaffold
            init_op = other.init_op if init_op is None else init_op
            init_feed_dict = other.init_feed_dict if init_feed_dict is None else init_feed_dict
            if init_fn is None:
                init_fn = other._user_init_fn
            ready_op = other.ready_op if ready_op is None else ready_op
            if ready_for_local_init_op is None:
                ready_for_local_init_op = other.ready_for_local_init_op
            local_init_op = other.local_init_op if local_init_op is None else local_init_op
            if local_init_feed_dict is None:
                local_init_feed_dict = other.local_init_feed_dict
            summary_op = other.summary_op if summary_op is None else summary_op
            saver = other.saver if saver is None else saver
        self._init_op = init_op
        self._init_feed_dict = init_feed_dict
        self._user_init_fn = init_fn
        self._init_fn = (lambda sess: init_fn(self, sess)) if init_fn is not None else None
        self._ready_op = ready_op
        self._ready_for_local_init_op = ready_for_local_init_op
        self._local_init_op = local_init_op
        self._local_init_feed_dict = local_init_feed_dict
        self._summary_op = summary_op
        self._saver = saver

    def finalize(self) -> "Scaffold":
        """Makes what is missing, and finalises the graph."""
        keys, take = GraphKeys, Scaffold.get_or_default
        if self._init_op is None:
            self._init_op = take(
                "init_op", keys.INIT_OP, lambda: group(global_variables_initializer())
            )
        if self._ready_op is None:
            self._ready_op = take("ready_op", keys.READY_OP, report_uninitialized_variables)
        if self._ready_for_local_init_op is None:
            self._ready_for_local_init_op = take(
                "ready_for_local_init_op", keys.READY_FOR_LOCAL_INIT_OP,
                lambda: report_uninitialized_variables(global_variables()),
            )  # fmt: skip
        if self._local_init_op is None:
            self._local_init_op = take("local_init_op", keys.LOCAL_INIT_OP, default_local_init_op)
        if self._summary_op is None:
            self._summary_op = take("summary_op", keys.SUMMARY_OP, merged_summaries)
        if self._saver is None:
            self._saver = take("saver", keys.SAVERS, lambda: None)
        if self._saver is not None:
            self._saver.build()
        get_default_graph().finalize()
        logging.info("Graph was finalized.")
        return self

    @staticmethod
    def get_or_default(
        arg_name: str, collection_key: str, default_constructor: Callable[[], Any]
    ) -> Any:
        """The one element of a collection, made and added where there is none.

        RuntimeError for several.
        """
        graph = get_default_graph()
        elements = graph.get_collection(collection_key)
        if len(elements) > 1:
            raise RuntimeError(
                f'More than one item in the collection "{collection_key}". Please indicate which '
                "one to use by passing it to the tf.Scaffold constructor as:  "
                f"tf.Scaffold({arg_name}=item to use)"
            )
        if elements:
            return elements[0]
        made = default_constructor()
        if made is not None:
            graph.add_to_collection(collection_key, made)
        return made

    @property
    def init_fn(self) -> Any:
        """A function of the session, or None."""
        return self._init_fn

    @property
    def init_op(self) -> Any:
        """What initialises the model."""
        return self._init_op

    @property
    def ready_op(self) -> Any:
        """What tells whether the model is ready."""
        return self._ready_op

    @property
    def ready_for_local_init_op(self) -> Any:
        """What tells whether `local_init_op` may run."""
        return self._ready_for_local_init_op

    @property
    def local_init_op(self) -> Any:
        """What runs in every new session."""
        return self._local_init_op

    @property
    def local_init_feed_dict(self) -> Any:
        """What is fed to it."""
        return self._local_init_feed_dict

    @property
    def summary_op(self) -> Any:
        """All summaries."""
        return self._summary_op

    @property
    def saver(self) -> Any:
        """What saves and restores the model, or None."""
        return self._saver

    @property
    def init_feed_dict(self) -> Any:
        """What is fed to `init_op`."""
        return self._init_feed_dict


def merged_summaries() -> Any:
    """The summaries of the graph as one tensor; None where there are none."""
    summaries = get_default_graph().get_collection(GraphKeys.SUMMARIES)
    if not summaries:
        return None
    merge = getattr(gen_ops, "merge_summary", None)
    return merge(summaries) if merge is not None else None


@export("train.SessionCreator")
class SessionCreator:
    """Makes sessions: `create_session()`."""

    def create_session(self) -> Any:
        """A new session."""
        raise NotImplementedError(f"create_session is not implemented for {self}.")


@export("train.ChiefSessionCreator")
class ChiefSessionCreator(SessionCreator):
    """Makes the session of the chief, which initialises or restores the model."""

    def __init__(
        self, scaffold: Scaffold | None = None, master: str = "", config: Any = None,
        checkpoint_dir: str | None = None, checkpoint_filename_with_path: str | None = None,
    ):  # fmt: skip
        self._checkpoint_dir = checkpoint_dir
        self._checkpoint_filename_with_path = checkpoint_filename_with_path
        self._scaffold = scaffold or Scaffold()
        self._session_manager: SessionManager | None = None
        self._master = master
        self._config = config

    def create_session(self) -> Session:
        """A session with the model ready."""
        self._scaffold.finalize()
        return _manager(self).prepare_session(
            self._master,
            saver=self._scaffold.saver,
            checkpoint_dir=self._checkpoint_dir,
            checkpoint_filename_with_path=self._checkpoint_filename_with_path,
            config=self._config,
            init_op=self._scaffold.init_op,
            init_feed_dict=self._scaffold.init_feed_dict,
            init_fn=self._scaffold.init_fn,
        )


@export("train.WorkerSessionCreator")
class WorkerSessionCreator(SessionCreator):
    """Makes the session of a worker, which waits for the chief."""

    def __init__(
        self, scaffold: Scaffold | None = None, master: str = "", config: Any = None,
        max_wait_secs: float = 30 * 60,
    ):  # fmt: skip
        self._scaffold = scaffold or Scaffold()
        self._session_manager: SessionManager | None = None
        self._master = master
        self._config = config
        self._max_wait_secs = max_wait_secs

    def create_session(self) -> Session:
        """A session with the model ready."""
        self._scaffold.finalize()
        return _manager(self).wait_for_session(
            self._master, config=self._config, max_wait_secs=self._max_wait_secs
        )


def _manager(creator: Any) -> SessionManager:
    """The session manager of a creator, made on first use."""
    if creator._session_manager is None:
        scaffold = creator._scaffold
        creator._session_manager = SessionManager(
            local_init_op=scaffold.local_init_op,
            local_init_feed_dict=scaffold.local_init_feed_dict,
            ready_op=scaffold.ready_op,
            ready_for_local_init_op=scaffold.ready_for_local_init_op,
            graph=get_default_graph(),
        )
    return creator._session_manager


class _WrappedSession:
    """A session around another, which may say that it is time to stop."""

    def __init__(self, sess: Any):
        self._sess = sess
        self._wrapped_is_stoppable = isinstance(sess, _WrappedSession)

    @property
    def graph(self) -> Any:
        return self._sess.graph

    @property
    def sess_str(self) -> Any:
        return self._sess.sess_str

    def should_stop(self) -> bool:
        """Whether this session, or one inside, is to stop; or is closed."""
        if self._check_stop():
            return True
        if self._sess is not None:
            return self._wrapped_is_stoppable and self._sess.should_stop()
        return True

    def _check_stop(self) -> bool:
        return False

    def close(self) -> None:
        """Closes the session inside."""
        if self._sess is not None:
            try:
                self._sess.close()
            except _PREEMPTION_ERRORS as error:
                logging.error("A lost worker or server was noticed while closing: %s", error)
            finally:
                self._sess = None

    def run(self, *args: Any, **kwargs: Any) -> Any:
        return self._sess.run(*args, **kwargs)

    def run_step_fn(self, step_fn: Any, raw_session: Any, run_with_hooks: Any) -> Any:
        run_with_hooks = run_with_hooks or self.run
        return step_fn(StepContext(raw_session, run_with_hooks))


class _RecoverableSession(_WrappedSession):
    """Makes the session anew when a worker or server is lost, and runs again."""

    def __init__(self, sess_creator: Any):
        self._sess_creator = sess_creator
        super().__init__(self._create_session())

    def _create_session(self) -> Any:
        while True:
            try:
                return self._sess_creator.create_session()
            except _PREEMPTION_ERRORS as error:
                logging.info("A session could not be created and will be tried again: %s", error)
                time.sleep(0.1)

    def _check_stop(self) -> bool:
        try:
            return self._sess is None or self._sess._check_stop()
        except _PREEMPTION_ERRORS as error:
            logging.info("The session is made anew, for: %s", error)
            self.close()
            self._sess = self._create_session()
            return False
        except Exception:
            return True

    def _again(self, call: Callable[[], Any]) -> Any:
        while True:
            try:
                if self._sess is None:
                    self._sess = self._create_session()
                return call()
            except _PREEMPTION_ERRORS as error:
                logging.info("The session is made anew, for: %s", error)
                self.close()

    def run(
        self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None
    ) -> Any:
        return self._again(
            lambda: self._sess.run(
                fetches, feed_dict=feed_dict, options=options, run_metadata=run_metadata
            )
        )

    def run_step_fn(self, step_fn: Any, raw_session: Any, run_with_hooks: Any) -> Any:
        return self._again(lambda: self._sess.run_step_fn(step_fn, raw_session, run_with_hooks))


class _CoordinatedSession(_WrappedSession):
    """Stops with a coordinator, and passes on what its threads report."""

    def __init__(self, sess: Any, coord: Coordinator, stop_grace_period_secs: float = 120):
        super().__init__(sess)
        self._coord = coord
        self._stop_grace_period_secs = stop_grace_period_secs

    def _check_stop(self) -> bool:
        self._coord.raise_requested_exception()
        return self._coord.should_stop()

    def close(self) -> None:
        self._coord.request_stop()
        try:
            self._coord.join(
                stop_grace_period_secs=self._stop_grace_period_secs, ignore_live_threads=True
            )
        finally:
            try:
                super().close()
            except Exception as error:  # join() told the one that matters
                logging.info("Closing the session failed: %s", error)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._sess.run(*args, **kwargs)
        except _PREEMPTION_ERRORS:
            raise
        except Exception as error:
            # A thread may have met the loss of a worker first, which is what made this run fail.
            try:
                self._coord.raise_requested_exception()
            except _PREEMPTION_ERRORS:
                raise
            except Exception:
                raise error from None
            raise


class _HookedSession(_WrappedSession):
    """Calls hooks around each run."""

    def __init__(self, sess: Any, hooks: list[SessionRunHook]):
        super().__init__(sess)
        self._hooks = hooks
        self._should_stop = False

    def _check_stop(self) -> bool:
        return self._should_stop

    def run(
        self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None
    ) -> Any:
        if self.should_stop():
            raise RuntimeError("Run called even after should_stop requested.")
        all_fetches = [fetches]
        context = SessionRunContext(SessionRunArgs(fetches, feed_dict), self._sess)
        places: dict[Any, int] = {}
        hook_feeds: dict[Any, Any] = {}
        for hook in self._hooks:
            request = hook.before_run(context)
            if request is None:
                continue
            if request.fetches is not None:
                places[hook] = len(all_fetches)
                all_fetches.append(request.fetches)
            if request.feed_dict:
                _check_apart(hook_feeds, request.feed_dict, "Same tensor is fed by two hooks.")
                hook_feeds.update(request.feed_dict)
            if request.options is not None:
                options = _merged_options(options, request.options)
        if hook_feeds and feed_dict:
            _check_apart(feed_dict, hook_feeds, "Same tensor is fed by a SessionRunHook and user.")
        feeds = {**hook_feeds, **(feed_dict or {})} if hook_feeds else feed_dict
        if options is not None and run_metadata is None:
            run_metadata = protos.RunMetadata()
        outputs = self._sess.run(
            all_fetches, feed_dict=feeds, options=options, run_metadata=run_metadata
        )
        for hook in self._hooks:
            results = outputs[places[hook]] if hook in places else None
            hook.after_run(context, SessionRunValues(results, options, run_metadata))
        self._should_stop = self._should_stop or context.stop_requested
        return outputs[0]


def _check_apart(feeds: Any, others: Any, message: str) -> None:
    both = set(feeds) & set(others)
    if both:
        names = ", ".join(str(getattr(t, "name", t)) for t in both)
        raise RuntimeError(f"{message} Conflict(s): {names}")


def _merged_options(options: Any, more: Any) -> Any:
    """Both RunOptions as one: the higher trace level, the longer time, all that either asks for."""
    if options is None:
        return more
    options.trace_level = max(options.trace_level, more.trace_level)
    options.timeout_in_ms = max(options.timeout_in_ms, more.timeout_in_ms)
    options.inter_op_thread_pool = max(options.inter_op_thread_pool, more.inter_op_thread_pool)
    options.output_partition_graphs = max(
        options.output_partition_graphs, more.output_partition_graphs
    )
    if more.HasField("debug_options"):
        options.debug_options.debug_tensor_watch_opts.extend(
            list(more.debug_options.debug_tensor_watch_opts)
        )
    return options


class _CoordinatedSessionCreator(SessionCreator):
    """Makes sessions with queue runners started and hooks told."""

    def __init__(self, session_creator: Any, hooks: list[Any], stop_grace_period_secs: float):
        self._session_creator = session_creator
        self._hooks = hooks
        self._stop_grace_period_secs = stop_grace_period_secs
        self.coord: Coordinator | None = None
        self.tf_sess: Any = None

    def create_session(self) -> _CoordinatedSession:
        self.tf_sess = self._session_creator.create_session()
        # An ordinary end of a thread is reported too: the caller decides.
        self.coord = Coordinator(clean_stop_exception_types=())
        if get_default_graph().get_collection(GraphKeys.QUEUE_RUNNERS):
            start_queue_runners(sess=self.tf_sess, coord=self.coord)
        for hook in self._hooks:
            hook.after_create_session(self.tf_sess, self.coord)
        return _CoordinatedSession(
            _HookedSession(self.tf_sess, self._hooks), self.coord, self._stop_grace_period_secs
        )


class StepContext:
    """What the function of `run_step_fn` gets."""

    def __init__(self, session: Any, run_with_hooks_fn: Callable[..., Any]):
        self._session = session
        self._run_with_hooks_fn = run_with_hooks_fn

    @property
    def session(self) -> Any:
        """The session, without hooks."""
        return self._session

    def run_with_hooks(self, *args: Any, **kwargs: Any) -> Any:
        """`run` with hooks; at most once in a step."""
        return self._run_with_hooks_fn(*args, **kwargs)

    def request_stop(self) -> None:
        """Ends the loop: raises StopIteration."""
        raise StopIteration("step_fn has requested the iterations to stop.")


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
        self._coordinated_creator = _CoordinatedSessionCreator(
            session_creator or ChiefSessionCreator(), self._hooks, stop_grace_period_secs
        )
        if should_recover:
            self._sess: Any = _RecoverableSession(self._coordinated_creator)
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

    def _is_closed(self) -> bool:
        return self._coordinated_creator.tf_sess is None

    def _tf_sess(self) -> Any:
        return self._coordinated_creator.tf_sess


@export("train.MonitoredSession")
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


@export("train.SingularMonitoredSession")
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


@export("train.MonitoredTrainingSession")
def MonitoredTrainingSession(
    master: str = "", is_chief: bool = True, checkpoint_dir: str | None = None,
    scaffold: Scaffold | None = None, hooks: Any = None, chief_only_hooks: Any = None,
    save_checkpoint_secs: Any = USE_DEFAULT, save_summaries_steps: Any = USE_DEFAULT,
    save_summaries_secs: Any = USE_DEFAULT, config: Any = None, stop_grace_period_secs: float = 120,
    log_step_count_steps: int | None = 100, max_wait_secs: float = 7200,
    save_checkpoint_steps: Any = USE_DEFAULT, summary_dir: str | None = None,
    save_graph_def: bool = True,
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
            all_hooks.append(hook_kinds.StepCounterHook(every_n_steps=log_step_count_steps))
        if (save_summaries_steps and save_summaries_steps > 0) or (
            save_summaries_secs and save_summaries_secs > 0
        ):
            all_hooks.append(
                hook_kinds.SummarySaverHook(
                    scaffold=scaffold, save_steps=save_summaries_steps,
                    save_secs=save_summaries_secs, output_dir=summary_dir,
                )
            )  # fmt: skip
    if checkpoint_dir and (
        (save_checkpoint_secs and save_checkpoint_secs > 0)
        or (save_checkpoint_steps and save_checkpoint_steps > 0)
    ):
        all_hooks.append(
            hook_kinds.CheckpointSaverHook(
                checkpoint_dir, save_steps=save_checkpoint_steps, save_secs=save_checkpoint_secs,
                scaffold=scaffold, save_graph_def=save_graph_def,
            )
        )  # fmt: skip
    return MonitoredSession(creator, all_hooks, stop_grace_period_secs)
