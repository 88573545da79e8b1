"""Functions of the program over elements, as functions of the graph."""

from typing import Any, Callable

from millrace import _core
from millrace.core.shapes import as_dims
from millrace.core.tensor import Tensor
from millrace.data import structure
from millrace.graph.default_graph import get_default_graph


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

        def code(parameters: list[Tensor]) -> list[Tensor]:
            element = structure.from_tensors(spec, parameters)
            value = function(*element) if _is_plain_tuple(element) else function(element)
            if value is None:
                raise TypeError(f"the function of {what} returned None, expected an element")
            if isinstance(value, list):  # of tensors that need not fit together
                value = tuple(value)
            value = structure.leaf_values(value)
            self.result = structure.map_leaves(structure.leaf_of, value)
            return structure.to_tensors(self.result, value)

        graph = get_default_graph()
        names = [f"arg{i}" for i in range(len(types))]
        name, captured, _, _, _ = _core.add_function(
            graph, f"Dataset_{what}_{_name_of(function)}", types, shapes, names, code, False
        )
        self.name: str = name
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
                f"The element types for the new state of {what} must match the initial state. "
                f"Expected {[leaf.dtype.name for leaf in old_leaves]}; got "
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
