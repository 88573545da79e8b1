"""GradientTape: gradients of what ran at once."""

import importlib
import itertools
import threading
import weakref
from typing import Any

import numpy as np

from millrace import _core, gen_ops
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
_ages = itertools.count()
# The same by their handles.
_by_handle: "weakref.WeakValueDictionary[int, Any]" = weakref.WeakValueDictionary()


def add_variable(variable: Any) -> None:
    """Makes a variable known to tapes."""
    _variables[next(_ages)] = variable
    _by_handle[id(variable._gradient_source())] = variable


def variable_of(handle: Any) -> Any:
    """The variable of a handle, or None where there is none any more."""
    found = _by_handle.get(id(handle))
    return found if found is not None and found._gradient_source() is handle else None


class _Thread(threading.local):
    def __init__(self) -> None:
        # Lists into which the handles of trainable variables go that are read: of functions being
        # traced, and of the tapes in them.
        self.accessed: list[list[Any]] = []


_here = _Thread()


class Accesses:
    """A context that collects the handles of trainable variables that its thread reads inside."""

    def __init__(self, into: list[Any]):
        self._into = into

    def __enter__(self) -> None:
        _here.accessed.append(self._into)

    def __exit__(self, *_: Any) -> None:
        _leave(self._into)


def _leave(into: list[Any]) -> None:
    _here.accessed = [other for other in _here.accessed if other is not into]


def variable_read(handle: Any) -> None:
    """A trainable variable is read: tapes that watch such want to know."""
    for into in _here.accessed:
        if not any(known is handle for known in into):
            into.append(handle)
    if _core.is_eager_tensor(handle):
        _core.variable_accessed(handle)


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
            if not isinstance(part, Tensor) and not hasattr(part, "_gradient_source"):
                raise ValueError(
                    f"Passed in object {part} of type {type(part).__name__!r}, not tf.Tensor or "
                    "tf.Variable or ExtensionType."
                )
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
        unconnected = self._check_use("gradient", sources, unconnected_gradients)
        if target is None:
            raise TypeError(
                "Argument `target` should be a list or nested structure of Tensors, Variables or "
                "CompositeTensors to be differentiated, but received None."
            )
        ys = [source_of(t) for t in _parts(target)]
        flat = nest.flatten(sources)
        xs = [source_of(x) for x in _parts(sources)]
        incoming = []
        if output_gradients is not None:
            for y, given in zip(ys, nest.flatten(output_gradients), strict=True):
                incoming.append(None if given is None else convert_to_tensor(given, dtype=y.dtype))
        try:
            found = self._tape.gradient(ys, xs, incoming, unconnected == UnconnectedGradients.ZERO)
        finally:
            self._end_use()
        out = [_wrapped(x, gradient) for x, gradient in zip(flat, found, strict=True)]
        return nest.pack_sequence_as(sources, out)

    def _check_use(self, what: str, sources: Any, unconnected_gradients: Any) -> str:
        if self._tape is None:
            raise RuntimeError(
                "A non-persistent GradientTape can only be used to compute one set of gradients "
                "(or jacobians)"
            )
        if sources is None:
            raise TypeError("Argument `sources` cannot be None")
        unconnected = getattr(unconnected_gradients, "value", unconnected_gradients)
        if unconnected not in (UnconnectedGradients.NONE, UnconnectedGradients.ZERO):
            raise ValueError(f"Unknown value for unconnected_gradients: {unconnected_gradients!r}")
        if self._recording:
            if not self._persistent:
                self._pop()
            else:
                warn(
                    f"Calling GradientTape.{what} on a persistent tape inside its context is "
                    "significantly less efficient than calling it outside the context (it causes "
                    "the gradient ops to be recorded on the tape, leading to increased CPU and "
                    f"memory usage). Only call GradientTape.{what} inside the context if you "
                    "actually want to trace the gradient in order to compute higher order "
                    "derivatives."
                )
        return unconnected

    def _end_use(self) -> None:
        if not self._persistent:
            self._watched = self.watched_variables()
            self._tape = None

    def jacobian(
        self, target: Any, sources: Any,
        unconnected_gradients: Any = UnconnectedGradients.NONE,
        parallel_iterations: Any = None, experimental_use_pfor: bool = True,
    ) -> Any:  # fmt: skip
        """The derivatives of each element of `target` by `sources`, in their structure.

        That of a source has the shape of the target and behind it that of the source. Errors are
        those of `gradient()`; ValueError where the number of elements is not known.
        """
        self._check_loop("jacobian", parallel_iterations, experimental_use_pfor)
        unconnected = self._check_use("jacobian", sources, unconnected_gradients)
        y = convert_to_tensor(target)
        xs = [source_of(x) for x in nest.flatten(sources)]
        try:
            count = y.shape.num_elements()
            if count is None:
                return self._jacobian_of_unknown_size(y, xs, sources, unconnected)
            rows = self._rows(y, xs, [gen_ops.reshape(row, gen_ops.shape(y)) for row in
                                      _one_hot_rows(count, y.dtype)], unconnected)  # fmt: skip
        finally:
            self._end_use()
        out = []
        for x, parts in zip(nest.flatten(sources), rows, strict=True):
            if parts is None:
                out.append(None)
                continue
            shape = gen_ops.concat_v2([gen_ops.shape(y), _shape_of(x)], 0)
            stacked = gen_ops.pack(parts) if parts else _nothing(y, x)
            out.append(gen_ops.reshape(stacked, shape))
        return nest.pack_sequence_as(sources, out)

    def _jacobian_of_unknown_size(
        self, y: Any, xs: list[Any], sources: Any, unconnected: str
    ) -> Any:
        zeros = unconnected == UnconnectedGradients.ZERO
        # Which there are is known before the loop is built.
        there = self._tape.gradient([y], xs, [gen_ops.ones_like(y)], zeros, True)
        wanted = [i for i, g in enumerate(there) if g is not None]
        shape = gen_ops.shape(y)
        count = gen_ops.size(y)
        one = convert_to_tensor(1, dtype=y.dtype)
        zero = convert_to_tensor(0, dtype=y.dtype)

        def row(i: Any) -> list[Any]:
            dy = gen_ops.reshape(gen_ops.one_hot(i, count, one, zero), shape)
            found = self._tape.gradient([y], [xs[k] for k in wanted], [dy], zeros, True)
            return [convert_to_tensor(_wrapped(None, g)) for g in found]

        flat = nest.flatten(sources)
        types = [flat[k].dtype.base_dtype for k in wanted]
        # Stands on the functions of `ops`.
        loops = importlib.import_module("millrace.ops.functional")
        rows = loops.map_fn(row, gen_ops.range(0, count, 1), types) if wanted else []
        out: list[Any] = [None] * len(xs)
        for k, found in zip(wanted, rows, strict=True):
            whole = gen_ops.concat_v2([shape, _shape_of(flat[k])], 0)
            out[k] = gen_ops.reshape(found, whole)
            out[k].set_shape(y.shape.concatenate(flat[k].shape))
        return nest.pack_sequence_as(sources, out)

    def batch_jacobian(
        self, target: Any, source: Any,
        unconnected_gradients: Any = UnconnectedGradients.NONE,
        parallel_iterations: Any = None, experimental_use_pfor: bool = True,
    ) -> Any:  # fmt: skip
        """The derivatives of row i of `target` with respect to row i of `source`, for each i.

        Of shape [rows, the rest of the target's shape, the rest of the source's]: rows are taken to
        depend on their own row alone. ValueError where the numbers of rows differ, or sizes of the
        target's rows are not known.
        """
        self._check_loop("batch_jacobian", parallel_iterations, experimental_use_pfor)
        unconnected = self._check_use("batch_jacobian", source, unconnected_gradients)
        y = convert_to_tensor(target)
        x = source_of(source)
        try:
            mine, own = y.shape, source.shape if hasattr(source, "shape") else x.shape
            if not mine.rank or not own.rank:
                raise ValueError(
                    f"batch_jacobian: target and source must have rows, got shapes {mine} and {own}"
                )
            if not mine[:1].is_compatible_with(own[:1]):
                raise ValueError(
                    f"Need first dimension of target shape {mine} and source shape {own} to "
                    "match."
                )
            count = mine[1:].num_elements()
            if count is None:
                raise ValueError(
                    f"batch_jacobian: the size of a row of the target must be known, got {mine}"
                )
            one = gen_ops.ones_like(y)
            flat = gen_ops.reshape(one, [-1, count]) if count else None
            incoming = [gen_ops.reshape(flat * row, gen_ops.shape(y)) for row in
                        _one_hot_rows(count, y.dtype)]  # fmt: skip
            columns = self._rows(y, [x], incoming, unconnected)[0]
        finally:
            self._end_use()
        if columns is None:
            return None
        rest = gen_ops.strided_slice(_shape_of(source), [1], [0], [1], end_mask=1)
        shape = gen_ops.concat_v2([gen_ops.shape(y), rest], 0)
        stacked = gen_ops.pack(columns, axis=1) if columns else _nothing(y, source)
        return gen_ops.reshape(stacked, shape)

    def _check_loop(self, what: str, parallel_iterations: Any, pfor: bool) -> None:
        del parallel_iterations
        if not pfor and not self._persistent and _core.executing_eagerly():
            raise RuntimeError(
                f"GradientTape must be created with persistent=True to compute the {what} with "
                "eager execution enabled and with experimental_use_pfor set to False."
            )

    def _rows(self, y: Any, xs: list[Any], incoming: list[Any], unconnected: str) -> list[Any]:
        """By source: its gradients for each of the gradients that come in, or None."""
        zeros = unconnected == UnconnectedGradients.ZERO
        out: list[Any] = [[] for _ in xs]
        for dy in incoming:
            found = self._tape.gradient([y], xs, [dy], zeros, True)
            for i, g in enumerate(found):
                if g is None:
                    out[i] = None
                elif out[i] is not None:
                    out[i].append(
                        convert_to_tensor(IndexedSlices(*g)) if isinstance(g, tuple) else g
                    )
        return out


def _one_hot_rows(count: int, dtype: Any) -> list[Any]:
    rows = np.eye(count, dtype=dtype.as_numpy_dtype)
    return [convert_to_tensor(row, dtype=dtype) for row in rows]


def _shape_of(x: Any) -> Any:
    return gen_ops.shape(convert_to_tensor(x))


def _nothing(y: Any, x: Any) -> Any:
    del x
    return gen_ops.reshape(gen_ops.zeros_like(y), [0])


def _wrapped(source: Any, gradient: Any) -> Any:
    if isinstance(gradient, tuple):
        gradient = IndexedSlices(*gradient)
    if isinstance(source, IndexedSlices) and gradient is not None:
        return IndexedSlices(gradient, source.indices, source.dense_shape)
    return gradient


def graph_tape() -> Any:
    """What stands for a tape in a graph: it watches what it is told to."""
    return _GraphTape(True, False)


class _GraphTape:
    """The tape of a function that is traced: the graph remembers what was computed, so this has to
    know only what is watched."""

    def __init__(self, persistent: bool, watch_accessed: bool):
        del persistent
        self._watch_accessed = watch_accessed
        self._watched: list[Any] = []

    def start(self) -> None:
        if self._watch_accessed:
            _here.accessed.append(self._watched)

    def stop(self) -> None:
        if self._watch_accessed:
            _leave(self._watched)

    def watch(self, source: Any) -> None:
        if not self.watched(source):
            self._watched.append(source)

    def watched(self, source: Any) -> bool:
        return any(known is source for known in self._watched)

    def gradient(
        self, ys: list[Any], xs: list[Any], incoming: list[Any], zeros: bool, again: bool = False
    ) -> list[Any]:
        """As the tape of what runs at once."""
        del again
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
        for i, x in enumerate(xs):
            if out[i] is None and zeros and x.dtype.name != "resource":
                out[i] = gen_ops.zeros_like(symbolic(x))
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
