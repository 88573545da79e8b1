"""Threads that fill queues."""

import threading
import weakref
from typing import Any

from millrace import protos
from millrace.core import errors, logging
from millrace.core.export import export
from millrace.graph.default_graph import get_default_graph
from millrace.graph.default_session import get_default_session
from millrace.graph.keys import GraphKeys, prepend_name_scope, strip_name_scope
from millrace.graph.proto_functions import register_proto_function
from millrace.graph.session import BaseSession


@export(v1=("train.QueueRunner", "train.queue_runner.QueueRunner"))
class QueueRunner:
    """A list of enqueue operations for a queue, each to be run by a thread of its own.

    Args:
      queue: the queue.
      enqueue_ops: operations that add to it; a thread for each of them.
      close_op: closes the queue when all threads ended; `queue.close()` by default.
      cancel_op: closes it at once; `queue.close(cancel_pending_enqueues=True)` by default.
      queue_closed_exception_types: errors that say that there is nothing more to add;
        OutOfRangeError by default.
      queue_runner_def: a QueueRunnerDef to make it from, with `import_scope`; nothing else then.
    """

    def __init__(
        self, queue: Any = None, enqueue_ops: Any = None, close_op: Any = None,
        cancel_op: Any = None, queue_closed_exception_types: Any = None,
        queue_runner_def: Any = None, import_scope: str | None = None,
    ):  # fmt: skip
        if queue_runner_def is not None:
            if queue or enqueue_ops:
                raise ValueError("queue_runner_def and queue are mutually exclusive.")
            self._init_from_proto(queue_runner_def, import_scope)
        else:
            self._init(queue, enqueue_ops, close_op, cancel_op, queue_closed_exception_types)
        self._lock = threading.Lock()
        self._exceptions_raised: list[BaseException] = []
        # How many threads add to the queue, for each session.
        self._runs: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def _init(
        self, queue: Any, enqueue_ops: Any, close_op: Any, cancel_op: Any, closed_types: Any
    ) -> None:
        if not queue or not enqueue_ops:
            raise ValueError("Must provide queue and enqueue_ops.")
        self._queue = queue
        self._enqueue_ops = enqueue_ops
        self._close_op = queue.close() if close_op is None else close_op
        self._cancel_op = (
            queue.close(cancel_pending_enqueues=True) if cancel_op is None else cancel_op
        )
        if closed_types is None:
            closed_types = (errors.OutOfRangeError,)
        if (
            not isinstance(closed_types, tuple)
            or not closed_types
            or not all(isinstance(t, type) and issubclass(t, Exception) for t in closed_types)
        ):
            raise TypeError(
                "queue_closed_exception_types, when provided, must be a tuple of exception types, "
                f"but saw: {closed_types}"
            )
        self._queue_closed_exception_types = closed_types

    def _init_from_proto(self, queue_runner_def: Any, import_scope: str | None) -> None:
        graph = get_default_graph()

        def find(name: str) -> Any:
            return graph.as_graph_element(prepend_name_scope(name, import_scope))

        self._queue = find(queue_runner_def.queue_name)
        self._enqueue_ops = [find(op) for op in queue_runner_def.enqueue_op_name]
        close, cancel = queue_runner_def.close_op_name, queue_runner_def.cancel_op_name
        self._close_op = find(close) if close else None
        self._cancel_op = find(cancel) if cancel else None
        self._queue_closed_exception_types = tuple(
            errors.exception_type_from_error_code(code)
            for code in queue_runner_def.queue_closed_exception_types
        ) or (errors.OutOfRangeError,)

    @property
    def queue(self) -> Any:
        """The queue."""
        return self._queue

    @property
    def enqueue_ops(self) -> Any:
        """The operations that add to it."""
        return self._enqueue_ops

    @property
    def close_op(self) -> Any:
        """The operation that closes it."""
        return self._close_op

    @property
    def cancel_op(self) -> Any:
        """The operation that closes it at once."""
        return self._cancel_op

    @property
    def queue_closed_exception_types(self) -> tuple[type, ...]:
        """The errors that say that there is nothing more to add."""
        return self._queue_closed_exception_types

    @property
    def exceptions_raised(self) -> list[BaseException]:
        """What threads raised that had no coordinator to report it to."""
        return self._exceptions_raised

    @property
    def name(self) -> str:
        """The name of the queue."""
        return self._queue.name

    def _callable(self, sess: Any, enqueue_op: Any) -> Any:
        """A function that runs the operation once. To be overridden."""
        return sess.make_callable(enqueue_op)

    def _run(self, sess: Any, enqueue_op: Any, coord: Any = None) -> None:
        """What each thread does: runs the operation until the coordinator stops or there is nothing
        more to add; the last one closes the queue."""
        counted = True
        try:
            enqueue = self._callable(sess, enqueue_op)
            while coord is None or not coord.should_stop():
                try:
                    enqueue()
                except self._queue_closed_exception_types:
                    counted = False
                    self._end_run(sess, close=True)
                    return
        except Exception as error:
            if coord is not None:
                # What the end of the session cancels after the stop is an end like others; whoever
                # joined the coordinator is gone, too.
                if not (isinstance(error, errors.CancelledError) and coord.should_stop()):
                    coord.request_stop(error)
            else:
                if not getattr(sess, "_closed", False):  # an end like others
                    logging.error("Exception in QueueRunner: %s", error)
                with self._lock:
                    self._exceptions_raised.append(error)
        finally:
            if counted:
                self._end_run(sess, close=False)

    def _end_run(self, sess: Any, close: bool) -> None:
        with self._lock:
            self._runs[sess] -= 1
            last = self._runs[sess] == 0
        if close and last:
            try:
                sess.run(self._close_op)
            except Exception as error:
                logging.vlog(1, "Ignored exception: %s", error)

    def _close_on_stop(self, sess: Any, cancel_op: Any, coord: Any) -> None:
        """Closes the queue when the coordinator stops, so that nobody waits in it."""
        coord.wait_for_stop()
        try:
            sess.run(cancel_op)
        except Exception as error:
            logging.vlog(1, "Ignored exception: %s", error)

    def create_threads(
        self, sess: Any, coord: Any = None, daemon: bool = False, start: bool = False
    ) -> list[threading.Thread]:
        """Makes the threads, one for each operation, and one that watches the coordinator.

        Args:
          sess: the session to run in.
          coord: a coordinator that stops them, and that they report errors to.
          daemon: whether the program may end while they run.
          start: whether to start them.

        None are made while those of an earlier call for the session run.
        """
        with self._lock:
            if self._runs.get(sess, 0) > 0:
                return []
            self._runs[sess] = len(self._enqueue_ops)
            self._exceptions_raised = []
        threads = [
            threading.Thread(
                target=self._run, args=(sess, op, coord), name=f"QueueRunnerThread-{self.name}-{i}"
            )
            for i, op in enumerate(self._enqueue_ops)
        ]
        if coord is not None:
            threads.append(
                threading.Thread(
                    target=self._close_on_stop,
                    args=(sess, self._cancel_op, coord),
                    name=f"QueueRunnerThread-{self.name}-close_on_stop",
                )
            )
        for thread in threads:
            thread.daemon = daemon
            thread.waits_in_session = True  # its end is no loss: MonitoredSession looks at this
            if coord is not None:
                coord.register_thread(thread)
            if start:
                thread.start()
        return threads

    def to_proto(self, export_scope: str | None = None) -> Any:
        """This as a QueueRunnerDef; None when the queue is not below `export_scope`."""
        if export_scope is not None and not self.name.startswith(export_scope):
            return None
        out = protos.QueueRunnerDef()
        out.queue_name = strip_name_scope(self.name, export_scope)
        for op in self._enqueue_ops:
            out.enqueue_op_name.append(strip_name_scope(op.name, export_scope))
        out.close_op_name = strip_name_scope(self._close_op.name, export_scope)
        out.cancel_op_name = strip_name_scope(self._cancel_op.name, export_scope)
        out.queue_closed_exception_types.extend(
            errors.error_code_from_exception_type(t) for t in self._queue_closed_exception_types
        )
        return out

    @staticmethod
    def from_proto(queue_runner_def: Any, import_scope: str | None = None) -> "QueueRunner":
        """The QueueRunner that a QueueRunnerDef describes, of nodes in the default graph."""
        return QueueRunner(queue_runner_def=queue_runner_def, import_scope=import_scope)


register_proto_function(
    GraphKeys.QUEUE_RUNNERS, protos.QueueRunnerDef, QueueRunner.to_proto, QueueRunner.from_proto
)


@export(v1=("train.add_queue_runner", "train.queue_runner.add_queue_runner"))
def add_queue_runner(qr: QueueRunner, collection: Any = GraphKeys.QUEUE_RUNNERS) -> None:
    """Adds a QueueRunner to a collection, from which `start_queue_runners` starts it."""
    get_default_graph().add_to_collection(collection, qr)


@export(v1=("train.start_queue_runners", "train.queue_runner.start_queue_runners"))
def start_queue_runners(
    sess: Any = None, coord: Any = None, daemon: bool = True, start: bool = True,
    collection: Any = GraphKeys.QUEUE_RUNNERS,
) -> list[threading.Thread]:  # fmt: skip
    """Starts the threads of all QueueRunners of a collection.

    `sess`: the default session by default. ValueError when there is none.
    """
    if sess is None:
        sess = get_default_session()
        if sess is None:
            raise ValueError(
                "Cannot start queue runners: No default session is registered. Use `with "
                "sess.as_default()` or pass an explicit session to "
                "tf.train.start_queue_runners(sess=sess)"
            )
    if not isinstance(sess, BaseSession):
        raise TypeError(f"sess must be a `tf.Session` object. Given class: {type(sess)}")
    threads = []
    with sess.graph.as_default():
        for runner in get_default_graph().get_collection(collection):
            threads += runner.create_threads(sess, coord=coord, daemon=daemon, start=start)
    return threads
