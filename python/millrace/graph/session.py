"""Sessions: what runs graphs.

`Session.run` is short: what the fetches and feeds of a run mean is worked out here once, by
`_compile`, and kept by the extension module under the objects that were fetched and fed.
"""

import atexit
import sys
import time
import weakref
from typing import Any, Callable

from millrace import _core, protos
from millrace.core import errors, nest
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.core.tracebacks import install_for_threads
from millrace.graph.cost_model import CostModel, cost_graph
from millrace.graph.default_graph import get_default_graph
from millrace.graph.default_session import AsDefaultSession, default_sessions
from millrace.graph.fetches import Fetches, build_result, expansion_of
from millrace.graph.graph import Graph, root_graph
from millrace.graph.graph_util import extract_sub_graph
from millrace.graph.mixed_precision import session_config

install_for_threads()


_open_sessions: "weakref.WeakSet[BaseSession]" = weakref.WeakSet()


class WaitReport:
    """When to tell of a wait for other tasks that begins now: every ten seconds, the first time
    after as many milliseconds as MILLRACE_REPORT_AFTER_MS has where these are fewer; not at all
    where that is 0."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        first = _core.report_after_ms() / 1000
        self._next = self._began + min(first, 10.0) if first > 0 else float("inf")

    def waited(self) -> float:
        """For how many seconds it has lasted."""
        return time.monotonic() - self._began

    def due(self) -> bool:
        """Whether it is time to tell. True once for each time."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + 10.0
        return True


def _when_reached(target: str, config: Any, call: Callable[[], Any]) -> Any:
    """What `call` gives once the tasks of the target's cluster answer. Waits for them, as long as
    the config's operation_timeout_in_ms says or else for ever, and says so every ten seconds."""
    limit = config.operation_timeout_in_ms / 1000 if config is not None else 0
    report = WaitReport()
    while True:
        try:
            return call()
        except errors.UnimplementedError as error:
            if limit > 0:  # TensorFlow would have waited until the time was over
                raise errors.DeadlineExceededError(None, None, error.message) from None
            raise
        except errors.UnavailableError as error:
            if 0 < limit <= report.waited():
                raise errors.DeadlineExceededError(
                    None, None, f"not reached within {limit:g} s: {error.message}"
                ) from None
            if report.due():
                print(
                    f"millrace: {target} is waited for since {report.waited():.0f} s: "
                    f"{error.message}",
                    file=sys.stderr,
                )
        time.sleep(0.05)


def _connect(owner: Any, graph: Graph, target: str, config: Any) -> Any:
    """The session of the extension module. Errors for targets that there are none of."""
    serialized = config.SerializeToString() if config is not None else b""
    try:
        return _when_reached(
            target, config, lambda: _core.Session(owner, graph, target, serialized)
        )
    except errors.NotFoundError as error:
        raise errors.NotFoundError(
            None, None,
            f"No session factory registered for the given session options: {error.message}",
        ) from None  # fmt: skip


class BaseSession:
    """What Session and InteractiveSession share."""

    def __init__(self, target: Any = "", graph: Graph | None = None, config: Any = None):
        if isinstance(target, str):
            target = target.encode()
        if not isinstance(target, bytes):
            raise TypeError(f"target must be a string, but got {type(target)}")
        if graph is not None and not isinstance(graph, Graph):
            raise TypeError(f"graph must be a tf.Graph, but got {type(graph)}")
        if config is not None and not isinstance(config, protos.ConfigProto):
            raise TypeError(f"config must be a tf.ConfigProto, but got {type(config)}")
        config = session_config(config)
        self._target = target
        self._graph = root_graph(graph if graph is not None else get_default_graph())
        self._config = config
        self._cost_model = CostModel(config)
        self._closed = False
        self._aborted = False
        self._era: Any = None  # see living_tasks.Era
        self._contexts: list[Any] = []
        self._partial_runs: dict[str, tuple[dict[Any, Any], Any]] = {}
        self._dead_handles: list[str] = []
        self._before_close: list[Callable[[], None]] = []
        self._core: Any = None
        self._core = _connect(self, self._graph, target.decode(), config)
        _open_sessions.add(self)

    @property
    def graph(self) -> Graph:
        """The graph that it runs."""
        return self._graph

    @property
    def graph_def(self) -> Any:
        """The graph as a GraphDef."""
        config = self._config
        shapes = config is not None and config.graph_options.infer_shapes
        return self._graph.as_graph_def(add_shapes=shapes)

    @property
    def sess_str(self) -> bytes:
        """The target."""
        return self._target

    def list_devices(self) -> list[Any]:
        """The devices that it can use."""
        return [_DeviceAttributes(*info) for info in self._core.list_devices()]

    def close(self) -> None:
        """Stops what runs and frees the session's state. Twice is fine. Raises why a checkpoint
        could not be written beside the program."""
        if not self._closed and self._core is not None:
            self._closed = True
            try:
                for call in self._before_close:
                    call()
            finally:
                self._core.close()

    def _call_before_close(self, call: Callable[[], None]) -> None:
        """Calls it, once however often it is given, when the session is closed."""
        if call not in self._before_close:
            self._before_close.append(call)

    def _abort(self) -> None:
        """Ends it because of what others did to its state."""
        self._aborted = True
        self.close()

    def _over(self) -> Exception:
        """What it says to those who use it after its end."""
        if self._aborted:
            return errors.AbortedError(
                None, None, f"The state at {self._target.decode()} was reset: make a new session."
            )
        return RuntimeError("Attempted to use a closed Session.")

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:
            pass

    def as_default(self) -> AsDefaultSession:
        """A context in which this is the default session. It does not close the session."""
        return AsDefaultSession(self)

    def run(
        self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None
    ) -> Any:
        """Runs what the fetches need, and gives their values in the structure of `fetches`.

        Args:
          fetches: tensors, operations, names of them, or lists, tuples, dicts of these.
          feed_dict: values (numbers, lists, arrays) in place of tensors.
          options: a RunOptions.
          run_metadata: a RunMetadata that is filled in.

        Raises RuntimeError when the session is closed, ValueError or TypeError when fetches or
        feeds make no sense, and a class of `errors` when an operation fails.
        """
        if self._closed:
            raise self._over()
        try:
            if options is None and run_metadata is None:
                return self._core.run(fetches, feed_dict)
            return self._run_with_options(fetches, feed_dict, options, run_metadata)
        except errors.OpError as error:
            if error.message.startswith("nothing to run") and not nest.flatten(fetches):
                return nest.pack_sequence_as(fetches, [])
            raise self._with_op(error) from None

    def _run_update(
        self,
        fetches: Any,
        feed_dict: Any,
        options: Any,
        run_metadata: Any,
        stream: int,
        number: int,
    ) -> Any:
        """As run(), for a run that is tried again, perhaps by another session, when a task of a
        cluster was lost: what it has changed on tasks that live is not changed again. It has the
        same two numbers then; `number` grows from run to run of a stream, which is above 0."""
        if self._closed:
            raise self._over()
        try:
            if options is None and run_metadata is None:
                return self._core.run(fetches, feed_dict, stream, number)
            return self._run_with_options(
                fetches, feed_dict, options, run_metadata, update=(stream, number)
            )
        except errors.OpError as error:
            raise self._with_op(error) from None

    def _run_checking_numerics(self, fetches: Any, feed_dict: Any) -> Any:
        """As run(), ended where numbers that are not finite would be fetched or kept."""
        try:
            return self._run_with_options(fetches, feed_dict, None, None, check_numerics=True)
        except errors.OpError as error:
            raise self._with_op(error) from None

    def _with_op(self, error: errors.OpError) -> errors.OpError:
        if self._closed and isinstance(error, errors.CancelledError):
            error._message += "\nStep was cancelled by an explicit call to `Session::Close()`."
        if error._op is None:
            name = errors.failed_node(error.message)
            found = self._graph._find(name) if name else -1
            if found >= 0:
                error._op = self._graph._operation(found)
        return error

    def _run_with_options(
        self,
        fetches: Any,
        feed_dict: Any,
        options: Any,
        metadata: Any,
        check_numerics: bool = False,
        update: tuple[int, int] = (0, 0),
    ) -> Any:
        if options is not None and not isinstance(options, protos.RunOptions):
            raise TypeError(f"options must be a RunOptions, got {type(options)}")
        if metadata is not None and not isinstance(metadata, protos.RunMetadata):
            raise TypeError(f"run_metadata must be a RunMetadata, got {type(metadata)}")
        feeds = feed_dict or {}
        if not isinstance(feeds, dict):
            raise TypeError(f"feed_dict must be a dictionary, got {type(feeds)}")
        asked = options if options is not None else protos.RunOptions()
        costs = metadata is not None and self._cost_model.is_due()
        given = protos.RunOptions.FromString(asked.SerializeToString())
        if costs:
            given.trace_level = protos.RunOptions.FULL_TRACE
        value, told = self._core.run_with_options(
            fetches, list(feeds.keys()), list(feeds.values()), given.SerializeToString(),
            metadata is not None, check_numerics, *update,
        )  # fmt: skip
        if metadata is not None:
            metadata.ParseFromString(told)
            if costs:
                metadata.cost_graph.CopyFrom(cost_graph(self._graph, metadata.step_stats))
                if asked.trace_level == protos.RunOptions.NO_TRACE:
                    metadata.ClearField("step_stats")
            if asked.output_partition_graphs:
                metadata.partition_graphs.add().CopyFrom(self._part_that_runs(fetches))
        return value

    def _part_that_runs(self, fetches: Any) -> Any:
        """The nodes that the fetches need, as a GraphDef: the one partition of this process."""
        handler = Fetches(self)
        handler.read(fetches)
        names = [t.op.name for t in handler.tensors] + [op.name for op in handler.targets]
        return extract_sub_graph(self._graph.as_graph_def(), names)

    def _compile(self, fetches: Any, feed_keys: list[Any]) -> tuple[Any, ...]:
        """What a run comes to: fed tensors, fetched tensors, targets, the form of the result, and a
        function from the values given to those of the fed tensors (None: the same)."""
        if self._graph._num_nodes == 0:
            raise RuntimeError(
                "The Session graph is empty. Add operations to the graph before calling run()."
            )
        handler = Fetches(self)
        form = handler.read(fetches)
        fed: list[Tensor] = []
        makers: list[tuple[int, Any, Any]] = []
        plain = True
        for key in feed_keys:
            tensors, maker = self._fed_tensors(key)
            plain = plain and maker is None
            makers.append((len(tensors), key, maker))
            fed += tensors
        seen = set()
        for tensor in fed:
            if tensor in seen:
                raise ValueError(f"The tensor '{tensor.name}' is fed twice")
            seen.add(tensor)
        expand = None
        if not plain:

            def expand(values: list[Any]) -> list[Any]:
                out: list[Any] = []
                for (_, key, maker), value in zip(makers, values, strict=True):
                    out += [value] if maker is None else maker(key, value)
                return out

        return fed, handler.tensors, handler.targets, form, expand

    def _fed_tensors(self, key: Any) -> tuple[list[Tensor], Any]:
        if isinstance(key, tuple):
            parts = [self._fed_tensors(part) for part in nest.flatten(key)]

            def spread(_: Any, value: Any) -> list[Any]:
                out: list[Any] = []
                for part, (_, maker), v in zip(
                    nest.flatten(key),
                    parts,
                    nest.flatten_up_to(key, value, check_types=False),
                    strict=True,
                ):
                    out += [v] if maker is None else maker(part, v)
                return out

            return [tensor for tensors, _ in parts for tensor in tensors], spread
        expansion = expansion_of(key)
        if expansion is not None and expansion[1] is not None:
            tensors = [t for t in expansion[0](key)[0]]
            feed = expansion[1]
            return tensors, lambda k, value: [v for _, v in feed(k, value)]
        try:
            tensor = self._graph.as_graph_element(key, allow_operation=False)
        except Exception as error:
            raise TypeError(
                f"Cannot interpret feed_dict key as Tensor: "
                f"{error.args[0] if error.args else error}"
            ) from None
        if not self._graph.is_feedable(tensor):
            raise ValueError(f"Tensor {tensor.name} may not be fed.")
        return [tensor], None

    def make_callable(
        self, fetches: Any, feed_list: Any = None, accept_options: bool = False
    ) -> Callable[..., Any]:
        """A function that runs the fetches, with a parameter for each tensor of `feed_list`.

        Quicker than `run` where the same is run often.
        """
        if self._closed:
            raise self._over()
        if feed_list is not None and not isinstance(feed_list, (list, tuple)):
            raise TypeError("feed_list must be a list or tuple.")
        keys = list(feed_list or [])
        call = self._core.make_callable(fetches, keys)
        if accept_options:

            def with_options(*args: Any, options: Any = None, run_metadata: Any = None) -> Any:
                feeds = dict(zip(keys, args, strict=True))
                return self.run(fetches, feeds, options, run_metadata)

            return with_options
        return call

    # Runs in pieces.

    def partial_run_setup(self, fetches: Any, feeds: Any = None) -> str:
        """Declares what a run in pieces will fetch and feed; gives the handle of that run."""
        handler = Fetches(self)
        handler.read(fetches)
        fed = [t for key in (feeds or []) for t in self._fed_tensors(key)[0]]
        handle = self._core.partial_run_setup(
            [t.name for t in fed],
            [t.name for t in handler.tensors],
            [op.name for op in handler.targets],
        )
        return handle

    def partial_run(self, handle: str, fetches: Any, feed_dict: Any = None) -> Any:
        """Goes on with a run in pieces: feeds some of what was declared and fetches some."""
        if self._closed:
            raise self._over()
        handler = Fetches(self)
        form = handler.read(fetches)
        fed, values = [], []
        for key, value in (feed_dict or {}).items():
            tensors, maker = self._fed_tensors(key)
            fed += tensors
            values += [value] if maker is None else maker(key, value)
        try:
            arrays = self._core.partial_run(handle, fed, values, [t.name for t in handler.tensors])
        except errors.OpError as error:
            raise self._with_op(error) from None
        return build_result(form, arrays)

    def explain(self, fetches: Any, feeds: Any = None) -> str:
        """The plan that a run of these goes by, for people."""
        handler = Fetches(self)
        handler.read(fetches)
        fed = [t for key in (feeds or []) for t in self._fed_tensors(key)[0]]
        return self._core.explain(
            [t.name for t in fed],
            [t.name for t in handler.tensors],
            [op.name for op in handler.targets],
        )


class _DeviceAttributes:
    def __init__(self, name: str, device_type: str, memory_limit_bytes: int, incarnation: int):
        self.name = name
        self.device_type = device_type
        self.memory_limit_bytes = memory_limit_bytes
        self.incarnation = incarnation  # another one after each start of the device's process

    def __repr__(self) -> str:
        return (
            f"_DeviceAttributes({self.name}, {self.device_type}, {self.memory_limit_bytes}, "
            f"{self.incarnation})"
        )


@export(v1="Session")
class Session(BaseSession):
    """Runs a graph. `with Session() as sess:` closes it at the end.

    Args:
      target: where it runs: empty for this process, or the target of a `tf.train.Server`.
      graph: what it runs; the default graph otherwise.
      config: a ConfigProto.
    """

    def __enter__(self) -> "Session":
        if self._contexts:
            raise RuntimeError(
                "Session context managers are not re-entrant. Use `Session.as_default()` to "
                "enter a "
                "session several times."
            )
        graph = self._graph.as_default()
        session = self.as_default()
        graph.__enter__()
        session.__enter__()
        self._contexts.append((graph, session))
        return self

    def __exit__(self, exc_type: Any, exc_value: Any, exc_tb: Any) -> None:
        graph, session = self._contexts.pop()
        session.__exit__(exc_type, exc_value, exc_tb)
        graph.__exit__(exc_type, exc_value, exc_tb)
        self.close()

    @staticmethod
    def reset(target: str, containers: Any = None, config: Any = None) -> None:
        """Drops the state that the servers at `target` keep, and ends the sessions there.

        Args:
          containers: which state: of these containers, or of the default one.
          config: a ConfigProto; its device_filters leave tasks alone.
        """
        if target.startswith("grpc://"):
            names = list(containers or [])
            filters = [] if config is None else list(config.device_filters)
            _when_reached(target, config, lambda: _core.reset_servers(target, names, filters))
            for session in list(_open_sessions):
                if session._target == target.encode():
                    session._abort()
        else:
            Session(target, Graph(), config)._core.reset(list(containers or []))


@export(v1="InteractiveSession")
class InteractiveSession(BaseSession):
    """A session that is the default one from the start until it is closed: for shells."""

    def __init__(self, target: Any = "", graph: Graph | None = None, config: Any = None):
        super().__init__(target, graph, config)
        self._default = self.as_default()
        self._default.__enter__()
        self._default_graph = None
        if graph is not None:
            self._default_graph = graph.as_default()
            self._default_graph.__enter__()

    def close(self) -> None:
        """Closes it; the default session is the one before it."""
        default, self._default = getattr(self, "_default", None), None
        super().close()
        if default is None:
            return
        if getattr(self, "_default_graph", None) is not None:
            self._default_graph.__exit__(None, None, None)
            self._default_graph = None
        if self in default_sessions.stack:
            default_sessions.stack.remove(self)


@atexit.register
def _close_all() -> None:
    """Ends what runs before the interpreter goes, without waiting for what does not end."""
    sessions = [session for session in _open_sessions if not session._closed]
    for session in sessions:
        session._closed = True
    _core.close_sessions([session._core for session in sessions if session._core], 0.3)
