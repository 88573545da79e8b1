"""tf.function: Python functions that are traced and run as graphs."""

import functools
import importlib
import operator
import threading
import weakref
from typing import Any, Callable

import numpy as np

from millrace import _core
from millrace.core import nest
from millrace.core.export import export
from millrace.core.logging import warn
from millrace.core.trackable import Trackable
from millrace.eager.arguments import Call, Same, Signature, Sizes, check_specs
from millrace.eager.concrete import ConcreteFunction
from millrace.graph import structured
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import get_default_graph
from millrace.graph.graph import root_graph
from millrace.graph.keys import GraphKeys

# After so many shapes of arguments that are alike in all else, sizes that differ are left open.
_FIXED_SHAPES = 3
# So many traces of one function are worth a word.
_MANY_TRACES = 5


@export(v2="function")
def function(
    func: Callable[..., Any] | None = None, input_signature: Any = None, autograph: bool = True,
    jit_compile: Any = None, reduce_retracing: bool = False, experimental_implements: Any = None,
    experimental_autograph_options: Any = None, experimental_attributes: Any = None,
    experimental_relax_shapes: Any = None, experimental_compile: Any = None,
    experimental_follow_type_hints: Any = None,
) -> Any:  # fmt: skip
    """Makes a Python function of tensors one that runs as a graph.

    It is traced once for each structure of arguments, types and shapes of tensors, and values that
    are none; a call of a traced function runs no Python. Python code in it runs while it is traced.
    Variables and tensors from outside are used as they are at each call, and what changes state
    runs in the order of the program.

    Args:
      input_signature: TensorSpecs (or structures of them) of the arguments: it is traced once, for
        these, and arguments are made what they say.
      reduce_retracing: from the second shape of an argument on, trace for all shapes that agree in
        what the ones so far have in common. Otherwise that is done from the fourth on, for sizes of
        dimensions alone, and given up where the function cannot be traced so.
      autograph: control flow over tensors, `if`, `while` and so on, becomes a part of the graph
        (docs/eager.md).
      experimental_autograph_options: features of AutoGraph, see tf.autograph.experimental.Feature.

    A variable may be created when it is first called, and not again. ValueError where it is, and
    where the function changes the lists that it is given.
    """
    del jit_compile, experimental_implements, experimental_attributes, experimental_compile
    del experimental_follow_type_hints
    relax = bool(reduce_retracing or experimental_relax_shapes)

    def convert(code: Callable[..., Any]) -> Callable[..., Any]:
        # Loaded once something is traced. AutoGraph stands on the functions of `ops`.
        api = importlib.import_module("millrace.autograph.api")
        return api.for_tracing(code, autograph, experimental_autograph_options)

    def decorate(python_function: Callable[..., Any]) -> "Function":
        made = Function(python_function, input_signature, relax, convert)
        return functools.update_wrapper(made, python_function)

    return decorate if func is None else decorate(func)


_run_eagerly = [False]


@export(v2=("config.run_functions_eagerly", "config.experimental_run_functions_eagerly"))
def run_functions_eagerly(run_eagerly: bool) -> None:
    """Whether calls of a `tf.function` run its Python code at once, for debuggers, instead of what
    was traced. Holds for all threads."""
    _run_eagerly[0] = bool(run_eagerly)


@export(v2=("config.functions_run_eagerly", "config.experimental_functions_run_eagerly"))
def functions_run_eagerly() -> bool:
    """What `run_functions_eagerly` has set."""
    return _run_eagerly[0]


class _Traces:
    """What is known of one function, or of one object's method."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.by_key: dict[Any, ConcreteFunction] = {}
        # The same by types and shapes, of calls with tensors alone.
        self.of_tensors = _core.FunctionTable()
        # By kind of call: the shapes that were traced, and functions for more than one shape.
        self.shapes: dict[Any, list[list[Sizes]]] = {}
        self.open: dict[Any, list[ConcreteFunction]] = {}
        self.never_open: set[Any] = set()
        self.count = 0
        self.created_variables = False
        # What the arguments of the last trace were, by name.
        self.last: dict[str, str] = {}
        self.warned = False

    def forget_dead(self) -> None:
        """Drops what was traced for objects that are gone."""
        for table in (self.by_key, self.shapes, self.open):
            for key in [k for k in table if not _alive(k)]:
                del table[key]  # type: ignore[attr-defined]


def _alive(key: Any) -> bool:
    if isinstance(key, Same):
        return key.alive
    return not isinstance(key, tuple) or all(map(_alive, key))


class Function(Trackable):
    """What `tf.function` makes of a Python function."""

    _is_function = True

    def __init__(
        self, python_function: Callable[..., Any], signature: Any, reduce_retracing: bool,
        convert: Callable[[Callable[..., Any]], Callable[..., Any]],
        traces: _Traces | None = None,
    ):  # fmt: skip
        if not callable(python_function):
            raise TypeError(
                f"tf.function takes a function, got {python_function!r} of type "
                f"{type(python_function).__name__}"
            )
        check_specs(signature)
        self._python_function = python_function
        self._convert = convert  # from the Python function to what is traced
        name = getattr(python_function, "__name__", None)
        if name is None:
            inner = getattr(python_function, "func", python_function)
            name = getattr(inner, "__name__", type(python_function).__name__)
        self._given_signature = signature
        self._bound_signature: Signature | None = None
        self._name = name
        self._reduce_retracing = reduce_retracing
        self._traces = traces if traces is not None else _Traces()
        # Of the objects whose method it is.
        self._methods: dict[int, tuple[Any, _Traces]] = {}

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        known = self._methods.get(id(instance))
        if known is None:
            known = self._methods[id(instance)] = (_watch(instance, self._methods), _Traces())
        bound = self._python_function.__get__(instance, owner)
        made = Function(
            bound, self._given_signature, self._reduce_retracing, self._convert, known[1]
        )
        made.__doc__ = self.__doc__
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Function) and other._traces is self._traces

    def __hash__(self) -> int:
        return id(self._traces)

    def __repr__(self) -> str:
        return f"<tf.function {self._signature.described()}>"

    @property
    def name(self) -> str:
        """The name of the Python function."""
        return self._name

    @property
    def python_function(self) -> Callable[..., Any]:
        """The Python function."""
        return self._python_function

    @property
    def input_signature(self) -> Any:
        """The TensorSpecs of its arguments, or None."""
        return self._signature.specs

    @property
    def function_spec(self) -> Signature:
        """Its parameters."""
        return self._signature

    @property
    def _signature(self) -> Signature:
        known = self._bound_signature
        if known is None:
            known = self._bound_signature = Signature(
                self._python_function, self._given_signature, self._name
            )
        return known

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The result for these arguments, of what is traced for such when it is not there."""
        if not kwargs and not _run_eagerly[0]:
            # Most calls: tensors alone, as before.
            result = self._traces.of_tensors.call(args)
            if result is not NotImplemented:
                return result
        if not _core.executing_eagerly():
            return self._call_in_graph(args, kwargs)
        if _run_eagerly[0]:
            return self._python_function(*args, **kwargs)
        known, tensors = self._find(args, kwargs)
        if not kwargs and all(map(operator.is_, tensors, args)) and len(tensors) == len(args):
            known.answer(self._traces.of_tensors, args)
        return known.run(tensors)

    def _call_in_graph(self, args: Any, kwargs: Any) -> Any:
        graph = get_default_graph()
        if not root_graph(graph)._captures_values:
            if self._given_signature is not None:
                args, kwargs = self._signature.specified(args, kwargs)
            # A part of what is being built.
            with _Collections(root_graph(graph)):
                result = self._convert(self._python_function)(*args, **kwargs)
            return nest.map_structure(_as_tensor, result)
        known, tensors = self._find(args, kwargs)
        return known.run_in(graph, tensors)

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> ConcreteFunction:
        """The traced function for arguments like these, which may be TensorSpecs."""
        signature = self._signature
        if signature.specs is not None and not args and not kwargs:
            args = signature.specs
        return self._find(args, kwargs)[0]

    def experimental_get_tracing_count(self) -> int:
        """How often it was traced."""
        return self._traces.count

    def _list_all_concrete_functions(self) -> list[ConcreteFunction]:
        return list(dict.fromkeys(self._traces.by_key.values()))

    def _list_all_concrete_functions_for_serialization(self) -> list[ConcreteFunction]:
        """What a SavedModel has of it: what was traced for tensors and plain values. With an
        input_signature it is traced for that now, if it was not yet."""
        if self._signature.specs is not None:
            self.get_concrete_function()
        return [
            known for known in self._list_all_concrete_functions()
            if not known.has_objects
            and structured.is_encodable((known.structured_input_signature, known.result_specs))
        ]  # fmt: skip

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> dict[str, Any]:
        if save_type != "savedmodel":
            return {}
        traced = self._list_all_concrete_functions_for_serialization()
        return {f"trace_{i}": known for i, known in enumerate(traced)}

    def pretty_printed_concrete_signatures(self, verbose: bool = True) -> str:
        """The arguments and results of all that is traced, as text."""
        found = self._list_all_concrete_functions()
        return "\n\n".join(f.pretty_printed_signature(verbose) for f in found)

    # Finding and tracing.

    def _find(self, args: Any, kwargs: Any) -> tuple[ConcreteFunction, list[Any]]:
        signature, traces = self._signature, self._traces
        if signature.specs is not None:
            args, kwargs = signature.specified(args, kwargs)
        else:
            args, kwargs = signature.bind(args, kwargs)
        call = Call(signature, args, kwargs)
        if signature.specs is not None:
            call.fix_shapes(signature.specs)
        key = call.key()
        with traces.lock:
            found = self._known(call, key)
            if found is None:
                found = self._made(call, key)
            return found, call.tensors

    def _known(self, call: Call, key: Any) -> ConcreteFunction | None:
        traces = self._traces
        found = traces.by_key.get(key)
        if found is not None:
            return found
        if not _core.executing_eagerly():
            local = root_graph(get_default_graph())._local
            found = local.get("traced", {}).get((traces, key))
            if found is not None:
                return found
        for known in traces.open.get(call.kind, ()) if not any(call.spec_names) else ():
            if all(map(_covers, known._shapes, call.shapes)):
                return known
        return None

    def _made(self, call: Call, key: Any) -> ConcreteFunction:
        traces = self._traces
        traces.forget_dead()
        self._say_retracing(call)
        shapes = self._shapes_for(call)
        known: ConcreteFunction | None = None
        if shapes != call.shapes and not self._reduce_retracing:
            # Nobody has asked for it: where it does not work, all stays as it was.
            try:
                known = self._traced(call, shapes)
            except Exception:
                traces.never_open.add(call.kind)
                shapes = call.shapes
        if known is None:
            known = self._traced(call, shapes)
        if not known.is_free:
            root_graph(get_default_graph())._local.setdefault("traced", {})[(traces, key)] = known
            return known
        traces.shapes.setdefault(call.kind, []).append(call.shapes)
        if any(s is None or None in s for s in known._shapes):
            traces.open.setdefault(call.kind, []).insert(0, known)
        own = call.kind, tuple(shapes), ()
        traces.by_key.setdefault(own, known)
        if shapes == call.shapes:
            traces.by_key[key] = known
        return known

    def _traced(self, call: Call, shapes: list[Sizes]) -> ConcreteFunction:
        traces = self._traces
        traces.count += 1
        code = self._convert(self._python_function)
        made = ConcreteFunction(code, call, self._signature, shapes, not traces.created_variables)
        if not made.trace.created:
            return made
        # What was made will not be made again: what is kept is traced without.
        traces.created_variables = True
        if made.trace.sets_values and not _core.executing_eagerly():
            return made
        if made.trace.sets_values:
            made.run(call.tensors)
        traces.count += 1
        return ConcreteFunction(code, call, self._signature, shapes, False)

    def _shapes_for(self, call: Call) -> list[Sizes]:
        """The shapes to trace a call for: its own, or what they have in common with others."""
        traces = self._traces
        before = traces.shapes.get(call.kind, [])
        enough = 1 if self._reduce_retracing else _FIXED_SHAPES
        if (
            len(before) < enough
            or not all(call.free)
            or self._signature.specs is not None
            or call.kind in traces.never_open
        ):
            return call.shapes
        out = list(call.shapes)
        for shapes in before:
            out = [
                _common(a, b) if free else a
                for a, b, free in zip(out, shapes, call.free, strict=True)
            ]
        if not self._reduce_retracing and any(
            s is None and own is not None for s, own in zip(out, call.shapes, strict=True)
        ):
            return call.shapes
        return out

    def _say_retracing(self, call: Call) -> None:
        traces = self._traces
        if traces.warned:
            return
        last, traces.last = traces.last, dict(zip(call.names, call.described(), strict=True))
        if traces.count + 1 < _MANY_TRACES:
            return
        traces.warned = True
        warn(
            f"{traces.count + 1} calls of {self._signature.described()} traced it anew, which is "
            f"slow. The last two differ in {_difference(last, traces.last)}. It is traced for each "
            "type and shape of tensors, and for each value of what is no tensor: pass tensors "
            "instead of numbers, use reduce_retracing=True or an input_signature for shapes, and "
            "do not make the tf.function anew in a loop."
        )


class _Collections:
    """A context that leaves the collections of a graph as they are, but for variables: what a
    function adds to them is its own."""

    _KEPT = (GraphKeys.GLOBAL_VARIABLES, GraphKeys.LOCAL_VARIABLES, GraphKeys.TRAINABLE_VARIABLES)

    def __init__(self, graph: Any):
        self._graph = graph

    def __enter__(self) -> None:
        self._before = {key: list(values) for key, values in self._graph._collections.items()}

    def __exit__(self, *_: Any) -> None:
        for key, values in self._graph._collections.items():
            if key not in self._KEPT and isinstance(key, str) and not key.startswith("_"):
                values[:] = self._before.get(key, [])


def _as_tensor(leaf: Any) -> Any:
    """What a function returns of a number; anything else as it is."""
    return convert_to_tensor(leaf) if isinstance(leaf, (bool, int, float, np.generic)) else leaf


def _watch(instance: Any, methods: dict[int, Any]) -> Any:
    """What keeps the entry of an object as long as the object lives."""
    number = id(instance)
    try:
        return weakref.ref(instance, lambda _: methods.pop(number, None))
    except TypeError:
        return instance  # the number is not used again


def _covers(shape: Sizes, other: Sizes) -> bool:
    """Whether everything of the second shape has the first."""
    if shape is None:
        return True
    if other is None or len(shape) != len(other):
        return False
    return all(a is None or a == b for a, b in zip(shape, other, strict=True))


def _common(a: Sizes, b: Sizes) -> Sizes:
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple(x if x == y else None for x, y in zip(a, b, strict=True))


def _difference(before: dict[str, str], now: dict[str, str]) -> str:
    """Which arguments of two calls differ."""
    parts = []
    for name in dict.fromkeys([*before, *now]):
        a, b = before.get(name, "nothing"), now.get(name, "nothing")
        if a != b:
            parts.append(f"{name}: {a} before, {b} now")
    return "; ".join(parts) if parts else "an object that is another one"
