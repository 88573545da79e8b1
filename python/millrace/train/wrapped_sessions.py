"""Sessions around sessions: each adds one thing to their runs."""

import random
import threading
import time
from typing import Any, Callable

from millrace import protos
from millrace.core import errors, logging
from millrace.graph.default_graph import get_default_graph
from millrace.graph.keys import GraphKeys
from millrace.graph.session import BaseSession
from millrace.state.queue_runner import start_queue_runners
from millrace.train.coordinator import Coordinator
from millrace.train.scaffold import SessionCreator
from millrace.train.session_run_hook import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)

# Errors of a lost worker or server: a session that is made anew may go on.
_MOMENT_SECS = 0.5
_PREEMPTION_ERRORS = (errors.AbortedError, errors.UnavailableError)


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


class _Updates(threading.local):
    """Numbers for the runs of one thread that are tried again: see `Session._run_update`."""

    def __init__(self) -> None:
        self.stream = random.SystemRandom().randrange(1, 1 << 62)
        self.number = 0

    def next(self) -> tuple[int, int]:
        self.number += 1
        return self.stream, self.number


class RecoverableSession(_WrappedSession):
    """Makes the session anew when a worker or server is lost, and runs again. What the run has
    changed by then on tasks that live is not changed again."""

    def __init__(self, sess_creator: Any):
        self._sess_creator = sess_creator
        self._updates = _Updates()
        super().__init__(self._create_session())

    def _create_session(self) -> Any:
        while True:
            try:
                return self._sess_creator.create_session()
            except _PREEMPTION_ERRORS as error:
                logging.warning("A session could not be created and will be tried again: %s", error)
                time.sleep(0.1)

    def _check_stop(self) -> bool:
        try:
            return self._sess is None or self._sess._check_stop()
        except _PREEMPTION_ERRORS as error:
            logging.warning("The session is made anew, for: %s", error)
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
                if self._sess is not None and self._sess_creator.mend_session(error):
                    continue
                logging.warning("The session is made anew, for: %s", error)
                self.close()

    def run(
        self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None
    ) -> Any:
        update = self._updates.next()
        return self._again(
            lambda: self._sess.run(
                fetches, feed_dict=feed_dict, options=options, run_metadata=run_metadata,
                update=update,
            )
        )  # fmt: skip

    def run_step_fn(self, step_fn: Any, raw_session: Any, run_with_hooks: Any) -> Any:
        update = self._updates.next()

        def run(*args: Any, **kwargs: Any) -> Any:
            return self._sess.run(*args, update=update, **kwargs)

        return self._again(
            lambda: self._sess.run_step_fn(step_fn, raw_session, run_with_hooks or run)
        )


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
            self._end_waits()
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

    def _end_waits(self) -> None:
        """Closes the session once only queue runners are left that wait in it, and have had a
        moment: nobody else would end what waits for values that no longer come."""
        end = time.monotonic() + self._stop_grace_period_secs
        since = None
        while time.monotonic() < end:
            live = self._coord._live_threads()
            if not live:
                return
            if not all(getattr(thread, "waits_in_session", False) for thread in live):
                since = None
            elif since is None:
                since = time.monotonic()
            elif time.monotonic() - since > _MOMENT_SECS:
                return super().close()
            time.sleep(0.02)


class _HookedSession(_WrappedSession):
    """Calls hooks around each run."""

    def __init__(self, sess: Any, hooks: list[SessionRunHook]):
        super().__init__(sess)
        self._hooks = hooks
        self._should_stop = False

    def _check_stop(self) -> bool:
        return self._should_stop

    def run(
        self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None,
        update: tuple[int, int] | None = None,
    ) -> Any:  # fmt: skip
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
        # Where all is in this process nothing of it is lost alone.
        if update is not None and isinstance(self._sess, BaseSession) and self._sess.sess_str:
            outputs = self._sess._run_update(all_fetches, feeds, options, run_metadata, *update)
        else:
            outputs = self._sess.run(
                all_fetches, feed_dict=feeds, options=options, run_metadata=run_metadata
            )
        options = protos.RunOptions() if options is None else options
        run_metadata = protos.RunMetadata() if run_metadata is None else run_metadata
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


class CoordinatedSessionCreator(SessionCreator):
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

    def mend_session(self, error: Exception) -> bool:
        """Has hooks bring a session in order whose state is in this process: those with a method
        `mend_session(session)`. False where there are none: it has to be made anew."""
        hooks = [hook for hook in self._hooks if hasattr(hook, "mend_session")]
        if not hooks or self.tf_sess is None or self.tf_sess.sess_str:
            return False
        logging.warning("The run is made again, for: %s", error)
        for hook in hooks:
            hook.mend_session(self.tf_sess)
        return True


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
