"""The session that a thread uses where none is named."""

import threading
from typing import Any

from millrace.core.export import export


class _DefaultSessions(threading.local):
    def __init__(self) -> None:
        self.stack: list[Any] = []


default_sessions = _DefaultSessions()


@export(v1="get_default_session")
def get_default_session() -> Any:
    """The session that `eval()` and `run()` use on this thread, or None."""
    return default_sessions.stack[-1] if default_sessions.stack else None


class AsDefaultSession:
    """A context that makes a session the default one."""

    def __init__(self, session: Any):
        self._session = session

    def __enter__(self) -> Any:
        default_sessions.stack.append(self._session)
        return self._session

    def __exit__(self, *_: Any) -> None:
        if self._session not in default_sessions.stack:
            raise AssertionError("Nesting violated for default stack of sessions")
        if default_sessions.stack[-1] is not self._session:
            raise AssertionError("Nesting violated for default stack of sessions")
        default_sessions.stack.pop()


def session_for(session: Any, graph: Any, purpose: str) -> Any:
    """`session`, or where it is None the default one. ValueError when there is none, or when it is
    another graph's."""
    if session is not None:
        if session.graph is not graph:
            raise ValueError(
                f"Cannot use the given session to {purpose}: it belongs to another graph."
            )
        return session
    session = get_default_session()
    if session is None:
        raise ValueError(
            f"Cannot {purpose}: No default session is registered. Use `with sess.as_default()` or "
            "pass an explicit session to `eval(session=sess)` or `run(session=sess)`."
        )
    if session.graph is not graph:
        raise ValueError(
            f"Cannot use the default session to {purpose}: it belongs to another graph. Pass an "
            "explicit session."
        )
    return session
