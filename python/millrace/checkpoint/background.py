"""Checkpoints that are written while the program goes on."""

import threading
from typing import Any, Callable

from millrace import gen_ops
from millrace.core import dtypes, errors, logging
from millrace.graph.default_graph import control_dependencies, device
from millrace.graph.graph import Graph
from millrace.graph.operation import Operation
from millrace.graph.session import Session
from millrace.io import gfile
from millrace.ops.ordering import group


class SaveWaiter:
    """Waits for what SaveV2s began, on the tasks where they run, and merges it.

    A session of its own asks the tasks: a graph with these operations would be one that TensorFlow
    cannot read. Made before the SaveV2s run, so that a task which restarts meanwhile is noticed.

    Args:
      session: the one that saves.
      writers: the SaveV2s.
      merge: the operation that merges their parts where they run one by one; None for a single one.
    """

    def __init__(self, session: Session, writers: list[Operation], merge: Operation | None):
        graph = Graph()
        with graph.as_default():
            self._to = gen_ops.placeholder(dtypes.string, [])
            self._parts, waits = [], []
            for writer in writers:
                with device(writer.device or None):
                    self._parts.append(gen_ops.placeholder(dtypes.string, []))
                    waits.append(gen_ops.save_v2_wait(self._parts[-1]))
            with control_dependencies(waits), device(merge.device if merge else None):
                self._done = (
                    gen_ops.merge_v2_checkpoints(
                        gen_ops.pack(self._parts), self._to, delete_old_dirs=True
                    )
                    if merge
                    else group(*waits)
                )
        self._merges = merge is not None
        self._session = Session(session.sess_str, graph, session._config)

    def wait(self, path: str, parts: list[str]) -> None:
        """Returns when the checkpoint is whole. What a failed one has left is deleted."""
        try:
            with self._session as session:
                feed = dict(zip(self._parts, parts, strict=True))
                session.run(self._done, {**feed, self._to: path})
        except errors.OpError:
            if self._merges:
                _remove_parts(path + "_temp")
            raise

    def close(self) -> None:
        """Ends it where it is not to wait."""
        self._session.close()


def _remove_parts(folder: str) -> None:
    try:
        gfile.DeleteRecursively(folder)
    except errors.OpError as error:
        logging.warning("Ignoring: %s", error)


class BackgroundSave:
    """A checkpoint that is being written, and what is to be done when it is whole.

    Its thread is no daemon: the interpreter ends when it has.

    Args:
      path: of the checkpoint.
      wait: returns when all files are there; called on the thread.
      finish: called on the thread after that.
    """

    def __init__(self, path: str, wait: Callable[[], None], finish: Callable[[], None]):
        self._path = path
        self._wait = wait
        self._finish = finish
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
            self._wait()
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
