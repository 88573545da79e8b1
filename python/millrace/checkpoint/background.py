"""Checkpoints that are written while the program goes on."""

import threading
from typing import Any, Callable

from millrace import _core
from millrace.core import errors, logging


class BackgroundSave:
    """A checkpoint that is being written, and what is to be done when it is whole.

    Its thread is no daemon: the interpreter ends when it has.

    Args:
      path: of the checkpoint.
      finish: called on the thread once all files are there.
    """

    def __init__(self, path: str, finish: Callable[[], None]):
        self._path = path
        self._finish = finish
        self._pending = _core.PendingSave(path)
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="millrace-save")
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return not self._thread.is_alive()

    def wait(self) -> None:
        """Returns when it has ended; raises, once, why it failed."""
        self._thread.join()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self) -> None:
        try:
            self._pending.wait()
            self._finish()
        except errors.OpError as error:
            self._fail(type(error)(None, None, self._told(error.message)))
        except Exception as error:
            self._fail(RuntimeError(self._told(error)))

    def _told(self, cause: Any) -> str:
        return f"The checkpoint '{self._path}' was not saved: {cause}"

    def _fail(self, error: Exception) -> None:
        self._error = error
        logging.error("%s", error)  # the program may never ask
