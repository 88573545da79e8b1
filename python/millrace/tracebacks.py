"""Tracebacks that show the user's frames only."""

from __future__ import annotations

from types import TracebackType

from millrace.graph.origin import is_library_file


def users_frames(traceback: TracebackType | None) -> TracebackType | None:
    """`traceback` without the frames of Millrace and of Python's library.

    The whole of it where no frame would be left.
    """
    kept = []
    entry = traceback
    while entry is not None:
        if not is_library_file(entry.tb_frame.f_code.co_filename):
            kept.append(entry)
        entry = entry.tb_next
    if not kept:
        return traceback
    shown = None
    for entry in reversed(kept):
        shown = TracebackType(shown, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return shown


def hide_library_frames(error: BaseException) -> None:
    """Cuts the traceback of `error`, and of the errors that led to it, with `users_frames`."""
    pending, seen = [error], set()
    while pending:
        each = pending.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        each.__traceback__ = users_frames(each.__traceback__)
        causes = (each.__cause__, each.__context__, *getattr(each, "exceptions", ()))
        pending += [cause for cause in causes if isinstance(cause, BaseException)]
