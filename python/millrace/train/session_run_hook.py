"""What a hook is: something that looks at the runs of a monitored session."""

from collections import namedtuple
from typing import Any

from millrace.core.export import export


@export(v1=("train.SessionRunArgs", "estimator.SessionRunArgs"))
class SessionRunArgs(namedtuple("SessionRunArgs", ["fetches", "feed_dict", "options"])):
    """What a hook adds to a run: things to fetch and feed, and RunOptions."""

    __slots__ = ()

    def __new__(cls, fetches: Any, feed_dict: Any = None, options: Any = None) -> "SessionRunArgs":
        return super().__new__(cls, fetches, feed_dict, options)


@export(v1=("train.SessionRunValues", "estimator.SessionRunValues"))
class SessionRunValues(namedtuple("SessionRunValues", ["results", "options", "run_metadata"])):
    """What came of a run: the values of what a hook fetched, the options, and the RunMetadata."""

    __slots__ = ()


@export(v1=("train.SessionRunContext", "estimator.SessionRunContext"))
class SessionRunContext:
    """A run that hooks look at: what the caller asked for, and a way to ask for the end."""

    def __init__(self, original_args: SessionRunArgs, session: Any):
        self._original_args = original_args
        self._session = session
        self._stop_requested = False

    @property
    def original_args(self) -> SessionRunArgs:
        """The arguments of the caller's `run`."""
        return self._original_args

    @property
    def session(self) -> Any:
        """The session that runs."""
        return self._session

    @property
    def stop_requested(self) -> bool:
        """Whether a hook asked to stop."""
        return self._stop_requested

    def request_stop(self) -> None:
        """Asks for the end: `should_stop()` of the session is true from now on."""
        self._stop_requested = True


@export(v1=("train.SessionRunHook", "estimator.SessionRunHook"))
class SessionRunHook:
    """The base of hooks: each method is called at its time, and does nothing here."""

    def begin(self) -> None:
        """Called once, before the session; the last time to add to the graph."""

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Called when there is a new session, also after one was lost."""

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """Called before each run; gives what to add to it."""
        return None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Called after each run that did not fail, with what came of it."""

    def end(self, session: Any) -> None:
        """Called at the end, unless that is an error."""
