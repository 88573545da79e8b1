"""A trace of what runs at once, in a file for Perfetto."""

import gzip
import os
import socket
import threading
import time
from typing import Any

from millrace import _core
from millrace.core import errors
from millrace.core.export import export
from millrace.io import gfile

_lock = threading.Lock()
_folder: list[str] = []  # of the trace that is being made


@export(v2="profiler.experimental.start")
def start(logdir: str, options: Any = None) -> None:
    """Begins to record the operations of all threads, and those of the functions they call.

    `options` of TensorFlow's profiler are taken and mean nothing here.
    """
    folder = os.fspath(logdir)
    with _lock:
        if _folder:
            raise errors.AlreadyExistsError(
                None, None, f"a trace is being made already, for {_folder[0]}: stop() ends it"
            )
        _core.start_eager_trace()
        _folder.append(folder)


@export(v2="profiler.experimental.stop")
def stop(save: bool = True) -> None:
    """Ends the recording; with `save`, writes LOGDIR/plugins/profile/TIME/HOST.trace.json.gz, which
    ui.perfetto.dev opens."""
    with _lock:
        if not _folder:
            raise errors.UnavailableError(
                None, None, "Cannot export profiling results. No profiler is running."
            )
        folder = _folder.pop()
        text = _core.stop_eager_trace()
    if not save:
        return
    below = runs = os.path.join(folder, "plugins", "profile", time.strftime("%Y_%m_%d_%H_%M_%S"))
    another = 0
    while gfile.Exists(below):
        another += 1
        below = f"{runs}_{another}"
    gfile.MakeDirs(below)
    with gfile.GFile(os.path.join(below, f"{socket.gethostname()}.trace.json.gz"), "wb") as file:
        file.write(gzip.compress(text))


@export(v2="profiler.experimental.Profile")
class Profile:
    """`with Profile(logdir):` traces what is inside."""

    def __init__(self, logdir: str, options: Any = None):
        self._logdir, self._options = logdir, options

    def __enter__(self) -> None:
        start(self._logdir, self._options)

    def __exit__(self, *_: Any) -> None:
        stop()
