"""Why a tensor or operation of one graph cannot be used in another."""

from typing import TYPE_CHECKING, Any

from millrace.graph.operation import Operation
from millrace.graph.tensor import SymbolicTensor

if TYPE_CHECKING:
    from millrace.graph.graph import Graph


def other_graph_message(tensor: SymbolicTensor, graph: "Graph", arguments: Any = ()) -> str:
    """Why a tensor cannot be used in a graph, with the other tensors among `arguments`."""
    if tensor.graph._is_function:
        return (
            f"The tensor '{tensor.name}' was made inside a branch, loop body or function and "
            "cannot be used outside of it: return it from there. It is out of scope and cannot be "
            f"used here.{_where(tensor.op)}"
        )
    flat = [a for arg in arguments for a in (arg if isinstance(arg, (list, tuple)) else [arg])]
    other = next((a for a in flat if isinstance(a, SymbolicTensor) and a.graph is graph), None)
    rest = "" if other is None else f" as the tensor {_describe(other)}"
    return (
        f"The tensor {_describe(tensor)} must be from the same graph{rest}: they belong to "
        "different graphs. Make all of a computation under one `with graph.as_default():`."
        f"{_where(tensor.op)}"
    )


def _describe(tensor: SymbolicTensor) -> str:
    return f"'{tensor.name}' ({tensor.dtype.name}, shape {tensor.shape})"


def where_of(element: "SymbolicTensor | Operation") -> str:
    return _where(element.op if isinstance(element, SymbolicTensor) else element)


def other_graph_message_for_op(op: Operation) -> str:
    """Why an operation cannot be waited for."""
    return (
        f"The operation '{op.name}' ({op.type}) is not an element of this graph, so nothing here "
        f"can wait for it.{_where(op)}"
    )


def _where(op: Operation) -> str:
    origin = op.traceback
    if not origin:
        return ""
    file, line, _, text = origin[0]
    return f"\ndefined at {file}:{line}  {text}"
