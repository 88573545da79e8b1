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


def _is_plain_tuple(value: Any) -> bool:
    return type(value) is tuple


def _name_of(function: Any) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    return "".join(c if c.isalnum() else "_" for c in name).strip("_") or "function"
