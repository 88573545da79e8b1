"""Processes that end when their standard input does: what ssh leaves of one that it started."""

import contextlib
import os
import signal
import sys
import threading
import time

# A variable that, where it is set, asks for it.
END_WITH_INPUT = "MILLRACE_END_WITH_INPUT"
_GRACE_SECONDS = 10
_REMINDER_SECONDS = 0.1


def hold_lifeline() -> None:
    """Where MILLRACE_END_WITH_INPUT is set, gives this process SIGTERM when its input has ended,
    and ends it if that has not after ten seconds. Processes that it starts have other inputs.
    For the main thread to call."""
    if os.environ.pop(END_WITH_INPUT, "") and sys.stdin is not None:
        own = os.dup(sys.stdin.fileno())
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, sys.stdin.fileno())
        os.close(null)
        if signal.getsignal(signal.SIGURG) == signal.SIG_DFL:
            signal.signal(signal.SIGURG, lambda *_: None)
        threading.Thread(target=_wait, args=(own, threading.get_ident()), daemon=True).start()


def _wait(lifeline: int, main: int) -> None:
    with contextlib.suppress(OSError):
        while os.read(lifeline, 4096):
            pass
    os.kill(os.getpid(), signal.SIGTERM)
    # Python runs handlers in its main thread, once that is back from a system call. Where it was
    # just about to begin one, or the signal went to another thread, nothing has interrupted it:
    # SIGURG does, and says nothing else.
    end = time.monotonic() + _GRACE_SECONDS
    while time.monotonic() < end:
        time.sleep(_REMINDER_SECONDS)
        if callable(signal.getsignal(signal.SIGURG)):
            signal.pthread_kill(main, signal.SIGURG)
    os._exit(128 + signal.SIGTERM)
