"""Writes event files."""

import atexit
import os
import threading
import time
import weakref
from typing import Any

from millrace import _core, protos
from millrace.checkpoint.meta_graph import create_meta_graph_def
from millrace.core import logging
from millrace.core.export import export
from millrace.core.text import as_text
from millrace.graph.default_graph import get_default_graph
from millrace.graph.graph import Graph

_open_writers: "weakref.WeakSet[FileWriter]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Programs end without closing: what they added is written all the same."""
    for writer in list(_open_writers):
        try:
            writer.close()
        except Exception as error:
            logging.warning("Closing an event file in %s failed: %s", writer.get_logdir(), error)


@export(v1=("summary.FileWriter", "train.SummaryWriter"))
class FileWriter:
    """Writes summaries, graphs and more to an event file, which TensorBoard shows.

    Each writer has a file of its own in its folder. A thread writes; what goes wrong there is
    raised by the next call. Threads may share a writer.

    Args:
      logdir: the folder; made where there is none.
      graph: a Graph that is written at once.
      max_queue: how many events may wait; who adds another waits.
      flush_secs: how many seconds events may stay in memory.
      graph_def: a GraphDef, instead of `graph`.
      filename_suffix: the end of the file's name.
      session: taken for programs that give it; events do not go through it.
    """

    def __init__(
        self, logdir: Any, graph: Any = None, max_queue: int = 10, flush_secs: float = 120,
        graph_def: Any = None, filename_suffix: str | None = None, session: Any = None,
    ):  # fmt: skip
        del session
        self._logdir = as_text(os.fspath(logdir))
        self._options = (filename_suffix or "", max_queue, flush_secs)
        self._run_tags: set[str] = set()
        self._seen_tags: set[str] = set()
        self._lock = threading.Lock()
        self._open()
        if graph is not None or graph_def is not None:
            definition = self._add_graph(graph, None, graph_def)
            self.add_meta_graph(create_meta_graph_def(graph_def=definition))

    def _open(self) -> None:
        self._writer = _core.EventWriter(os.path.join(self._logdir, "events"), *self._options)
        self._closed = False
        _open_writers.add(self)

    def __enter__(self) -> "FileWriter":
        """The writer, opened again where it is closed."""
        self.reopen()
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def get_logdir(self) -> str:
        """The folder."""
        return self._logdir

    def add_summary(self, summary: Any, global_step: Any = None) -> None:
        """Writes a `Summary` message, or the bytes of one, as a run of a summary op gives them."""
        event = protos.Event()
        if isinstance(summary, bytes):
            event.summary.ParseFromString(summary)
        else:
            event.summary.CopyFrom(summary)
        with self._lock:
            # How to show a tag is told once.
            for value in event.summary.value:
                if value.HasField("metadata"):
                    if value.tag in self._seen_tags:
                        value.ClearField("metadata")
                    self._seen_tags.add(value.tag)
        self._add(event, global_step)

    def add_session_log(self, session_log: Any, global_step: Any = None) -> None:
        """Writes a `SessionLog` message: that a session began, say."""
        event = protos.Event()
        event.session_log.CopyFrom(session_log)
        self._add(event, global_step)

    def add_graph(self, graph: Any, global_step: Any = None, graph_def: Any = None) -> None:
        """Writes a Graph, or a GraphDef."""
        self._add_graph(graph, global_step, graph_def)

    def _add_graph(self, graph: Any, global_step: Any, graph_def: Any) -> Any:
        if graph is not None and graph_def is not None:
            raise ValueError("Please pass only graph, or graph_def (deprecated), but not both.")
        given = graph_def if graph is None else graph
        if isinstance(given, Graph):
            definition = given.as_graph_def(add_shapes=True)
        elif isinstance(given, protos.GraphDef):
            definition = given
        else:
            raise TypeError(
                "The passed graph must be an instance of `Graph` or the deprecated `GraphDef`, "
                f"got {given!r}"
            )
        event = protos.Event()
        event.graph_def = definition.SerializeToString()
        self._add(event, global_step)
        return definition

    def add_meta_graph(self, meta_graph_def: Any, global_step: Any = None) -> None:
        """Writes a `MetaGraphDef`."""
        if not isinstance(meta_graph_def, protos.MetaGraphDef):
            raise TypeError(
                f"meta_graph_def must be type MetaGraphDef, saw type: {type(meta_graph_def)}"
            )
        event = protos.Event()
        event.meta_graph_def = meta_graph_def.SerializeToString()
        self._add(event, global_step)

    def add_run_metadata(self, run_metadata: Any, tag: str, global_step: Any = None) -> None:
        """Writes the `RunMetadata` of a run: TensorBoard shows times and memory in the graph.

        ValueError when the tag was used before.
        """
        with self._lock:
            if tag in self._run_tags:
                raise ValueError("The provided tag was already used for this event type")
            self._run_tags.add(tag)
        event = protos.Event()
        event.tagged_run_metadata.tag = tag
        event.tagged_run_metadata.run_metadata = run_metadata.SerializeToString()
        self._add(event, global_step)

    def _add(self, event: Any, global_step: Any) -> None:
        event.wall_time = time.time()
        if global_step is not None:
            event.step = int(global_step)
        self.add_event(event)

    def add_event(self, event: Any) -> None:
        """Writes an `Event` as it is."""
        if self._closed:
            logging.warning(
                "Attempting to use a closed FileWriter. The operation will be a noop unless the "
                "FileWriter is explicitly reopened."
            )
            return
        self._writer.add(event.SerializeToString())

    def flush(self) -> None:
        """Waits until all that was added can be read from the file."""
        if not self._closed:
            self._writer.flush()

    def close(self) -> None:
        """Writes what there is and closes the file."""
        if not self._closed:
            self._closed = True
            self._writer.close()

    def reopen(self) -> None:
        """Goes on in a new file, after `close`; does nothing before."""
        if self._closed:
            self._seen_tags.clear()
            self._open()


@export(v1="summary.FileWriterCache")
class FileWriterCache:
    """One writer for each folder, for all who ask."""

    _writers: dict[str, FileWriter] = {}
    _lock = threading.RLock()

    @staticmethod
    def clear() -> None:
        """Closes and forgets all of them."""
        with FileWriterCache._lock:
            for writer in FileWriterCache._writers.values():
                writer.close()
            FileWriterCache._writers.clear()

    @staticmethod
    def get(logdir: Any) -> FileWriter:
        """The writer for a folder; the first time with the default graph in it."""
        key = as_text(os.fspath(logdir))
        with FileWriterCache._lock:
            if key not in FileWriterCache._writers:
                FileWriterCache._writers[key] = FileWriter(key, graph=get_default_graph())
            return FileWriterCache._writers[key]
