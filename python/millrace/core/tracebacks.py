"""Tracebacks that show the user's frames only."""

from __future__ import annotations

import sys
import threading
from types import TracebackType

from millrace.core.origin import PACKAGE, is_library_file


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


def _passed_through(error: BaseException) -> bool:
    """Whether Millrace was on the way of the error."""
    entry = error.__traceback__
    while entry is not None:
        if entry.tb_frame.f_code.co_filename.startswith(PACKAGE):
            return True
        entry = entry.tb_next
    return False


def install() -> None:
    """What an uncaught error of Millrace prints shows the user's frames only.

    Other errors print as before, and a hook that somebody else has set stays.
    """
    if sys.excepthook is not sys.__excepthook__:
        return

    def hook(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        if _passed_through(error):
            hide_library_frames(error)
            traceback = error.__traceback__
        sys.__excepthook__(kind, error, traceback)

    sys.excepthook = hook


def install_for_threads() -> None:
    """The same for errors that end a thread."""
    if threading.excepthook is not threading.__excepthook__:
        return

    def hook(args: threading.ExceptHookArgs) -> None:
        error = args.exc_value
        if error is not None and _passed_through(error):
            hide_library_frames(error)
            args = threading.ExceptHookArgs(
                (args.exc_type, error, error.__traceback__, args.thread)
            )
        threading.__excepthook__(args)

    threading.excepthook = hook
