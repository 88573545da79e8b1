"""Building outside of functions and branches."""

from typing import Any

from millrace.core.export import export
from millrace.graph.default_graph import control_dependencies, get_default_graph
from millrace.graph.graph import Graph, root_graph


class Lifted:
    """A context in the graph around all bodies, with no control dependencies: where variables go.

    Inside a body the open name scope is kept.
    """

    def __enter__(self) -> Graph:
        current = get_default_graph()
        root = root_graph(current)
        self._contexts: list[Any] = []
        if root is not current:
            scope = _scope_in(root, current)
            self._enter(root.as_default())
            self._enter(root.name_scope(scope))
            if current._device:
                self._enter(root.device(current._device))
        self._enter(control_dependencies(None))
        return root

    def _enter(self, context: Any) -> None:
        context.__enter__()
        self._contexts.append(context)

    def __exit__(self, *_: Any) -> None:
        for context in reversed(self._contexts):
            context.__exit__(None, None, None)


def _scope_in(root: Graph, inner: Any) -> str:
    """The name scope that is open in a body, as one of the graph around all bodies."""
    parts = []
    while inner is not root:
        parts.append(inner._scope)
        if inner._scope_is_absolute:
            break
        inner = inner.outer_graph
    if inner is root:
        parts.append(root._scope)
    return "".join(reversed(parts))


@export(v1="init_scope", v2="init_scope")
def init_scope() -> Lifted:
    """A context outside of control flow and control dependencies, for what happens once."""
    return Lifted()
