"""GradientTape: gradients of what ran at once."""

import threading
import weakref
from typing import Any

from millrace import _core
from millrace.core import nest
from millrace.core.export import export
from millrace.core.logging import warn
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import get_default_graph
from millrace.graph.gradients import UnconnectedGradients, gradients
from millrace.graph.graph import root_graph
from millrace.graph.sparse import IndexedSlices

# All variables that there are, by age: a tape asks which of them it watches.
_variables: "weakref.WeakValueDictionary[int, Any]" = weakref.WeakValueDictionary()
_counter = [0]


def add_variable(variable: Any) -> None:
    """Makes a variable known to tapes."""
    _counter[0] += 1
    _variables[_counter[0]] = variable


# Lists into which the handles of trainable variables go that are read: of functions being traced.
accessed: list[list[Any]] = []


def variable_read(handle: Any) -> None:
    """A trainable variable is read: tapes that watch such want to know."""
    if accessed:
        for into in accessed:
            if not any(known is handle for known in into):
                into.append(handle)
    _core.variable_accessed(handle)


class _Thread(threading.local):
    def __init__(self) -> None:
        self.tapes: list[GradientTape] = []


_here = _Thread()


def source_of(x: Any) -> Any:
    """The tensor whose gradient is that of `x`: a variable's handle."""
    source = getattr(x, "_gradient_source", None)
    if source is not None:
        return source()
    return x if isinstance(x, Tensor) else convert_to_tensor(x)


def _parts(values: Any) -> list[Any]:
    """The tensors that composite values are made of."""
    out = []
    for value in nest.flatten(values):
        out.append(value.values if isinstance(value, IndexedSlices) else value)
    return out


@export(v2=("GradientTape", "autodiff.GradientTape"), v1="GradientTape")
class GradientTape:
    """Records what runs inside, and computes gradients of it.

    `with GradientTape() as tape:` watches the trainable variables that are read, and whatever
    `tape.watch()` is given. `persistent`: gradients may be asked for more than once.
    """

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True):
        self._persistent = persistent
        self._watch_accessed = watch_accessed_variables
        self._tape: Any = None
        self._recording = False
        self._watched: tuple[Any, ...] = ()

    def __enter__(self) -> "GradientTape":
        self._push()
        return self

    def __exit__(self, *_: Any) -> None:
        if self._recording:
            self._pop()

    def _push(self, existing: bool = False) -> None:
        if self._recording:
            raise ValueError(
                "Tape is still recording, This can happen if you try to re-enter an "
                "already-active tape."
            )
        if self._tape is None:
            eager = _core.executing_eagerly()
            kind = _core.Tape if eager else _GraphTape
            self._tape = kind(self._persistent, self._watch_accessed)
        self._tape.start()
        self._recording = True

    def _pop(self) -> None:
        if not self._recording:
            raise ValueError("Tape is not recording.")
        self._tape.stop()
        self._recording = False

    def _ensure_recording(self) -> Any:
        return _Recording(self)

    def watch(self, tensor: Any) -> None:
        """Follows the tensors (or variables) of a structure from now on."""
        for part in _parts(tensor):
            source = source_of(part)
            dtype = part.dtype if hasattr(part, "dtype") else source.dtype
            if not (dtype.is_floating or dtype.is_complex):
                warn(
                    "The dtype of the watched tensor must be floating (e.g. tf.float32), got "
                    f"{dtype!r}"
                )
            if self._tape is None:
                raise AttributeError("the tape has not begun to record: use it in a `with`")
            self._tape.watch(source)

    def stop_recording(self) -> "_Paused":
        """A context in which this tape records nothing."""
        if self._tape is None:
            raise RuntimeError("Trying to stop recording a tape which is not recording.")
        return _Paused(self)

    def reset(self) -> None:
        """Forgets all that it recorded."""
        self._pop()
        self._tape = None
        self._push()

    def watched_variables(self) -> tuple[Any, ...]:
        """The variables that it watches, in the order in which they were made."""
        if self._tape is None:
            return self._watched
        alive = sorted(_variables.items())
        return tuple(v for _, v in alive if self._tape.watched(v._gradient_source()))

    def gradient(
        self, target: Any, sources: Any, output_gradients: Any = None,
        unconnected_gradients: Any = UnconnectedGradients.NONE,
    ) -> Any:  # fmt: skip
        """The gradients of the sum of `target` with respect to `sources`, in their structure.

        None where no target depends on a source, or zeros with UnconnectedGradients.ZERO.
        RuntimeError for a second call, unless the tape is persistent; LookupError for an operation
        on the way that has no gradient.
        """
        if self._tape is None:
            raise RuntimeError(
                "A non-persistent GradientTape can only be used to compute one set of gradients "
                "(or jacobians)"
            )
        if not nest.flatten(sources) and sources is None:
            raise TypeError("Argument `sources` cannot be None")
        unconnected = getattr(unconnected_gradients, "value", unconnected_gradients)
        if unconnected not in (UnconnectedGradients.NONE, UnconnectedGradients.ZERO):
            raise ValueError(f"Unknown value for unconnected_gradients: {unconnected_gradients!r}")
        if self._recording:
            if not self._persistent:
                self._pop()
            else:
                warn(
                    "Calling GradientTape.gradient on a persistent tape inside its context is "
                    "significantly less efficient than calling it outside the context (it causes "
                    "the gradient ops to be recorded on the tape, leading to increased CPU and "
                    "memory usage). Only call GradientTape.gradient inside the context if you "
                    "actually want to trace the gradient in order to compute higher order "
                    "derivatives."
                )
        if target is None:
            raise TypeError(
                "Argument `target` should be a list or nested structure of Tensors, Variables or "
                "CompositeTensors to be differentiated, but received None."
            )
        ys = [_target(t) for t in _parts(target)]
        flat = nest.flatten(sources)
        xs = [source_of(x) for x in _parts(sources)]
        incoming = []
        if output_gradients is not None:
            for y, given in zip(ys, nest.flatten(output_gradients), strict=True):
                incoming.append(None if given is None else convert_to_tensor(given, dtype=y.dtype))
        try:
            found = self._tape.gradient(ys, xs, incoming, unconnected == UnconnectedGradients.ZERO)
        finally:
            if not self._persistent:
                self._watched = self.watched_variables()
                self._tape = None
        out = [_wrapped(x, gradient) for x, gradient in zip(flat, found, strict=True)]
        return nest.pack_sequence_as(sources, out)


def _target(value: Any) -> Any:
    """What gradients begin at: a tensor; a variable's value, which its handle stands for."""
    return source_of(value)


def _wrapped(source: Any, gradient: Any) -> Any:
    if isinstance(gradient, tuple):
        gradient = IndexedSlices(*gradient)
    if isinstance(source, IndexedSlices) and gradient is not None:
        return IndexedSlices(gradient, source.indices, source.dense_shape)
    return gradient


class _GraphTape:
    """The tape of a function that is traced: the graph remembers what was computed, so this has to
    know only what is watched."""

    def __init__(self, persistent: bool, watch_accessed: bool):
        del persistent
        self._watch_accessed = watch_accessed
        self._watched: list[Any] = []

    def start(self) -> None:
        if self._watch_accessed:
            accessed.append(self._watched)

    def stop(self) -> None:
        if self._watch_accessed:
            accessed[:] = [into for into in accessed if into is not self._watched]

    def watch(self, source: Any) -> None:
        if not self.watched(source):
            self._watched.append(source)

    def watched(self, source: Any) -> bool:
        return any(known is source for known in self._watched)

    def gradient(self, ys: list[Any], xs: list[Any], incoming: list[Any], zeros: bool) -> list[Any]:
        """As the tape of what runs at once."""
        root = root_graph(get_default_graph())

        def symbolic(x: Any) -> Any:
            return root._capture_value(x) if _core.is_eager_tensor(x) else x

        wanted = [i for i, x in enumerate(xs) if self.watched(x)]
        kind = UnconnectedGradients.ZERO if zeros else UnconnectedGradients.NONE
        found = gradients(
            [symbolic(y) for y in ys],
            [symbolic(xs[i]) for i in wanted],
            incoming or None,
            unconnected_gradients=kind,
        )
        out: list[Any] = [None] * len(xs)
        for i, gradient in zip(wanted, found, strict=True):
            out[i] = gradient
        return out


class _Paused:
    def __init__(self, tape: GradientTape):
        self._of = tape

    def __enter__(self) -> None:
        self._was_recording = self._of._recording
        if not self._was_recording:
            raise ValueError("Tape is not recording.")
        self._of._pop()

    def __exit__(self, *_: Any) -> None:
        if self._was_recording:
            self._of._push()


class _Recording:
    def __init__(self, tape: GradientTape):
        self._of = tape

    def __enter__(self) -> None:
        self._opened = not self._of._recording
        if self._opened:
            self._of._push()

    def __exit__(self, *_: Any) -> None:
        if self._opened:
            self._of._pop()
