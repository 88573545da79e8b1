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


def hold_lifeline() -> None:
    """Where MILLRACE_END_WITH_INPUT is set, gives this process SIGTERM when its input has ended,
    and ends it if that has not after ten seconds. Processes that it starts have other inputs."""
    if os.environ.pop(END_WITH_INPUT, "") and sys.stdin is not None:
        own = os.dup(sys.stdin.fileno())
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, sys.stdin.fileno())
        os.close(null)
        threading.Thread(target=_wait, args=(own,), daemon=True).start()


def _wait(lifeline: int) -> None:
    with contextlib.suppress(OSError):
        while os.read(lifeline, 4096):
            pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_SECONDS)
    os._exit(128 + signal.SIGTERM)
