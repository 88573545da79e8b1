"""Functions of the program over elements, as functions of the graph."""

import functools
import importlib
import threading
from contextlib import nullcontext
from typing import Any, Callable

from millrace import _core
from millrace.core.shapes import as_dims
from millrace.core.tensor import Tensor
from millrace.data import structure
from millrace.graph.default_graph import get_default_graph
from millrace.graph.graph import Graph, root_graph

_WITHOUT_STATE = ("NoOp", "Assert", "PrintV2", "_Arg", "_Retval", "Placeholder", "PlaceholderV2")


@functools.cache
def _is_stateful(op_type: str) -> bool:
    """Whether an op has state that the place of an iterator does not say. Datasets have none."""
    if "Dataset" in op_type or op_type in _WITHOUT_STATE:
        return False
    return op_type in _core.op_names() and bool(_core.describe_op(op_type)["stateful"])


def _holds_state(graph: Any) -> bool:
    return any(_is_stateful(op.type) for op in graph.get_operations())


class _Thread(threading.local):
    def __init__(self) -> None:
        self.made: list[Any] = []
        self.stateful = False  # whether a function within the one that is traced has state


_here = _Thread()


def take_made() -> list[Any]:
    """The functions that this thread has made since it was last asked."""
    made, _here.made = _here.made, []
    return made


class ElementFunction:
    """A function of elements, traced once: its name in the graph, what it captures, and what it
    gives.

    Args:
      function: called with the parts of an element that is a tuple, else with the element.
      spec: what elements are.
      what: for messages and names, "map".
    """

    def __init__(self, function: Callable[..., Any], spec: Any, what: str):
        if not callable(function):
            raise TypeError(f"the function of {what} must be callable, got {function!r}")
        leaves = structure.flatten(spec)
        types = [leaf.component[0] for leaf in leaves]
        shapes = [as_dims(leaf.component[1]) for leaf in leaves]
        self.result: Any = None
        eager = _core.executing_eagerly()
        self.stateful = False
        self._function = function  # with what it uses: variables and tables go with their objects

        if eager or root_graph(get_default_graph())._captures_values:
            # Loaded where TensorFlow 2's functions are. AutoGraph stands on the functions of `ops`.
            function = importlib.import_module("millrace.autograph.api").for_tracing(
                function, True, None
            )

        def code(parameters: list[Tensor]) -> list[Tensor]:
            around, _here.stateful = _here.stateful, False
            element = structure.from_tensors(spec, parameters)
            value = function(*element) if _is_plain_tuple(element) else function(element)
            if isinstance(value, list):  # of tensors that need not fit together
                value = tuple(value)
            try:
                value = structure.leaf_values(value)
            except TypeError as error:
                raise TypeError(
                    f"Unsupported return value from function passed to Dataset.{what}(). Return "
                    f"value: {value!r:.200}. {error}"
                ) from error
            self.result = structure.map_leaves(structure.leaf_of, value)
            tensors = structure.to_tensors(self.result, value)
            self.stateful = _holds_state(get_default_graph()) or _here.stateful
            _here.stateful = around or self.stateful
            return tensors

        before = take_made()
        # Outside of graphs a function has a graph of its own, which it captures values through.
        graph = Graph(True) if eager else get_default_graph()
        names = [f"arg{i}" for i in range(len(types))]
        with graph.as_default() if eager else nullcontext():
            name, captured, _, _, _ = _core.add_function(
                graph, f"Dataset_{what}_{_name_of(function)}", types, shapes, names, code, False
            )
        self.name: str = name
        # Functions of Python in it live as long as the graph: a dataset keeps what was made.
        _here.made = [*before, self]
        if eager:
            self._graph = graph
            values = {placeholder: value for value, placeholder in graph._captured_values()}
            captured = [values[capture] for capture in captured]
        self.captured: list[Tensor] = captured


def state_function(function: Any, state: Any, element: Any, what: str) -> ElementFunction:
    """A function of a state and an element that gives a state, whose shapes stay what they are or
    become less known until they do."""
    for _ in range(16):
        made = ElementFunction(function, (state, element), what)
        if what != "reduce" and not (isinstance(made.result, tuple) and len(made.result) == 2):
            raise TypeError(
                f"the function of {what} must return a pair: new state and output value"
            )
        new = made.result if what == "reduce" else made.result[0]
        old_leaves, new_leaves = structure.flatten(state), structure.flatten(new)
        if [leaf.dtype for leaf in old_leaves] != [leaf.dtype for leaf in new_leaves]:
            raise TypeError(
                "The element types for the new state must match the initial state. "
                f"({what}) Expected {[leaf.dtype.name for leaf in old_leaves]}; got "
                f"{[leaf.dtype.name for leaf in new_leaves]}."
            )
        wider = [a.common(b) for a, b in zip(old_leaves, new_leaves, strict=True)]
        if all(str(a.shape) == str(b.shape) for a, b in zip(wider, old_leaves, strict=True)):
            return made
        state = structure.pack(state, wider)
    raise ValueError(f"the shapes of the state of {what} change with every call")


def _is_plain_tuple(value: Any) -> bool:
    return type(value) is tuple


def _name_of(function: Any) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    return "".join(c if c.isalnum() else "_" for c in name).strip("_") or "function"
