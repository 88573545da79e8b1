"""The graph that a thread adds to, and the contexts of it."""

from contextlib import nullcontext
from typing import Any

from millrace import _core
from millrace.core.export import export
from millrace.graph.graph import FunctionGraph, Graph
from millrace.graph.operation import Operation
from millrace.graph.scopes import (
    ContainerScope,
    DeviceScope,
)
from millrace.graph.tensor import SymbolicTensor

_global: Graph | None = None


def global_graph() -> Graph:
    """The graph that operations go into when none is open."""
    global _global
    if _global is None:
        _global = Graph()
    return _global


def global_graph_is_used() -> bool:
    """Whether somebody has added to the graph that operations go into when none is open."""
    return _global is not None and _global._num_nodes > 0


@export(v1="get_default_graph")
def get_default_graph() -> Graph:
    """The graph that operations go into now."""
    graph = _core.innermost_graph()
    return global_graph() if graph is None else graph


@export(v1="reset_default_graph")
def reset_default_graph() -> None:
    """Starts anew with an empty global graph. Not inside `with graph.as_default():`."""
    global _global
    if _core.open_graph_count():
        raise AssertionError(
            "Do not use tf.reset_default_graph() to clear nested graphs. If you need a cleared "
            "graph, exit the nesting and create a new graph."
        )
    _global = None


@export(v1="device")
def device(device_name_or_function: Any) -> DeviceScope:
    """As `Graph.device`, for the default graph."""
    return get_default_graph().device(device_name_or_function)


@export(v1="container")
def container(container_name: str) -> ContainerScope:
    """As `Graph.container`, for the default graph."""
    return get_default_graph().container(container_name)


@export(v1="control_dependencies", v2="control_dependencies")
def control_dependencies(control_inputs: Any) -> Any:
    """As `Graph.control_dependencies`, for the default graph. Where operations run at once, they
    have run already: nothing waits."""
    if _core.executing_eagerly():
        return nullcontext()
    return get_default_graph().control_dependencies(control_inputs)


@export(v1="colocate_with")
def colocate_with(op: Any, ignore_existing: bool = False) -> Any:
    """As `Graph.colocate_with`, for the default graph. Values are where they are."""
    if _core.executing_eagerly() or _core.is_eager_tensor(op):
        return nullcontext()
    return get_default_graph().colocate_with(op, ignore_existing)


@export(v1=("name_scope", "keras.backend.name_scope"), v2="name_scope")
class name_scope:
    """A context for the names of an operation made of others.

    `with name_scope(name, "my_op", [a, b]) as scope:` opens the scope `name`, or `my_op` where name
    is None, in the graph of the values (the default one when none is a tensor).
    """

    def __init__(self, name: str | None, default_name: str | None = None, values: Any = None):
        if values is None and default_name is not None and not isinstance(default_name, str):
            # The arguments of an older order: (values, name, default_name).
            name, default_name, values = default_name, values, name
        self._name = default_name if name is None else name
        if self._name is None and values is not None:
            raise ValueError(
                "At least one of name (None) and default_name (None) must be provided."
            )
        self._values = values

    @property
    def name(self) -> str | None:
        """The name asked for."""
        return self._name

    def __enter__(self) -> str:
        self._opened = _core.open_scope(self._name, self._values)
        return self._opened.name

    def __exit__(self, *_: Any) -> None:
        self._opened.close()


@export(v1="op_scope")
def op_scope(values: Any, name: str | None, default_name: str | None = None) -> name_scope:
    """As `name_scope`, with the arguments in an older order."""
    return name_scope(name, default_name, values)


def graph_of_values(values: Any) -> Graph:
    """The graph in which operations on these values belong. ValueError when they are of several."""
    current = get_default_graph()
    chosen: Graph | None = None
    first: Any = None
    for value in values:
        if isinstance(value, (list, tuple)):
            element = next((v for v in value if isinstance(v, (SymbolicTensor, Operation))), None)
        elif isinstance(value, (SymbolicTensor, Operation)):
            element = value
        else:
            convert = getattr(value, "_as_graph_element", None)
            element = convert() if convert is not None else None
        graph = getattr(element, "graph", None)
        # A finished body cannot be added to: whether its tensor may be used here shows later.
        if graph is None or isinstance(graph, FunctionGraph) or _is_around(graph, current):
            continue
        if chosen is None:
            chosen, first = graph, element
        elif chosen is not graph:
            raise ValueError(f"{element} must be from the same graph as {first}.")
    return current if chosen is None else chosen


def _is_around(graph: Graph, inner: Graph) -> bool:
    while inner is not graph:
        if not isinstance(inner, FunctionGraph):
            return False
        inner = inner.outer_graph
    return True
