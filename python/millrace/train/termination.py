"""SIGTERM: a request to end soon, which training answers with a checkpoint."""

import os
import signal
import threading
from typing import Any

from millrace.core import logging

# What a shell gives for a process that ended by SIGTERM.
EXIT_STATUS = 128 + signal.SIGTERM


class TerminationWatch:
    """Notices SIGTERM between `start()` and `stop()`: the first sets `requested`, a second ends the
    process at once.

    Does nothing outside the main thread, and where the program has a handler of its own.
    """

    def __init__(self) -> None:
        self.requested = False
        self._watching = False

    def start(self) -> None:
        """Starts to watch."""
        if (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        ):
            signal.signal(signal.SIGTERM, self._notice)
            self._watching = True
            _watches.append(self)

    def stop(self) -> None:
        """Gives the signal back, unless the program took it meanwhile."""
        if self._watching and signal.getsignal(signal.SIGTERM) == self._notice:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if self._watching:
            _watches.remove(self)
        self._watching = False

    def _notice(self, number: int, frame: Any) -> None:
        if self.requested:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
        self.requested = True
        logging.info("SIGTERM: the training ends after this step, with a checkpoint.")


# Those that watch now.
_watches: list[TerminationWatch] = []


def is_terminating() -> bool:
    """Whether training ends since SIGTERM came: what takes long is left out then."""
    return any(watch.requested for watch in _watches)
