"""Contexts that a graph opens: names, devices, order, places, attributes.

They are classes rather than generators, because they are entered for every layer of a model.
"""

from typing import TYPE_CHECKING, Any, Callable

from millrace import _core
from millrace.core.device import device_text, merge_device
from millrace.graph.operation import Operation
from millrace.graph.other_graph import other_graph_message_for_op
from millrace.graph.tensor import SymbolicTensor

if TYPE_CHECKING:
    from millrace.graph.graph import Graph


class AsDefault:
    def __init__(self, graph: "Graph"):
        self._graph = graph
        self._depth: list[int] = []

    def __enter__(self) -> "Graph":
        _core.open_graph(self._graph)
        self._depth.append(_core.open_graph_count())
        return self._graph

    def __exit__(self, *_: Any) -> None:
        if _core.open_graph_count() != self._depth.pop():
            raise AssertionError(
                "Nesting violated for default stack of graphs: a graph was closed before one that "
                "was opened inside it"
            )
        _core.close_graph()


class NameScope:
    def __init__(self, graph: "Graph", name: str | None):
        self._graph = graph
        self._name = name

    def __enter__(self) -> str:
        self._opened = self._graph._open_scope(self._name)
        return self._opened.name

    def __exit__(self, *_: Any) -> None:
        self._opened.close()


class DeviceScope:
    def __init__(self, graph: "Graph", device: Any):
        self._graph = graph
        self._given = device

    def __enter__(self) -> None:
        graph, device = self._graph, self._given
        self._before = (graph._device, graph._device_functions_open)
        if device is not None and not callable(device):
            device = device_text(device)
            merge_device(device, "")  # is it a device at all?
        graph._device_stack.append(device)
        stack = graph._device_stack
        last_none = max((i for i, d in enumerate(stack) if d is None), default=-1)
        if any(callable(d) for d in stack[last_none + 1 :]):
            graph._device_functions_open = True
        else:
            merged = ""
            for entry in stack[last_none + 1 :]:
                merged = merge_device(merged, entry)
            graph._device = merged
            graph._device_functions_open = False

    def __exit__(self, *_: Any) -> None:
        self._graph._device_stack.pop()
        self._graph._device, self._graph._device_functions_open = self._before


class ControlDependencies:
    def __init__(self, graph: "Graph", control_inputs: Any):
        self._graph = graph
        self._clear = control_inputs is None
        self._ops: list[Operation] = []
        if control_inputs is None:
            return
        if isinstance(control_inputs, (SymbolicTensor, Operation)):
            control_inputs = [control_inputs]
        for item in control_inputs:
            if hasattr(item, "values") and hasattr(item, "indices"):
                item = item.values  # IndexedSlices, SparseTensor
            convert = getattr(item, "_as_graph_element", None)
            element = convert() if convert is not None else graph.as_graph_element(item)
            op = element.op if isinstance(element, SymbolicTensor) else element
            if not isinstance(op, Operation):
                raise TypeError(
                    f"Control input must be Operation, Tensor or Variable, got "
                    f"{type(item).__name__}"
                )
            if op not in self._ops:
                self._ops.append(op)

    def __enter__(self) -> "ControlDependencies":
        graph = self._graph
        if self._clear:
            self._saved = graph._swap_controllers(None)
            return self
        own, outer = [], []
        for op in self._ops:
            if op.graph is graph:
                own.append(op._id)
                continue
            inner = graph  # the body, among those that are open, that stands in the graph of op
            while inner._is_function and inner.outer_graph is not op.graph:
                inner = inner.outer_graph
            if not inner._is_function:
                raise ValueError(other_graph_message_for_op(op))
            if inner is graph:
                outer.append(op._id)
            else:
                inner._add_outer_control(op._id)
        graph._open_controller(own, outer)
        return self

    def __exit__(self, *_: Any) -> None:
        if self._clear:
            self._graph._swap_controllers(self._saved)
        else:
            self._graph._close_controller()


class ColocateWith:
    def __init__(self, graph: "Graph", op: Any, ignore_existing: bool):
        self._graph = graph
        if op is not None:
            element = op._as_graph_element() if hasattr(op, "_as_graph_element") else op
            op = element.op if isinstance(element, SymbolicTensor) else element
            if not isinstance(op, Operation):
                raise TypeError(f"Tried to colocate with {op!r}, which is no operation or tensor")
        elif not ignore_existing:
            raise ValueError(
                "Trying to reset colocation (op is None) but ignore_existing is not True"
            )
        self._op = op
        self._ignore = ignore_existing

    def __enter__(self) -> None:
        graph, op = self._graph, self._op
        self._before = (
            graph._colocation, graph._device, graph._device_functions_open, graph._device_stack
        )  # fmt: skip
        groups = [] if self._ignore else graph._colocation
        if op is not None and op.graph is graph:
            names = [group[5:].decode() for group in op.colocation_groups()]
            graph._colocation = groups + [n for n in names if n not in groups]
            # What is colocated goes where its partner does, whatever devices are open.
            graph._device = op.device
            graph._device_stack = [op.device] if op.device else []
            graph._device_functions_open = False
        elif op is None:
            graph._colocation = groups

    def __exit__(self, *_: Any) -> None:
        graph = self._graph
        (graph._colocation, graph._device, graph._device_functions_open, graph._device_stack) = (
            self._before
        )


class OriginalOp:
    def __init__(self, graph: "Graph", op: Any):
        self._graph = graph
        self._op = op

    def __enter__(self) -> None:
        self._first = self._graph._num_nodes

    def __exit__(self, *_: Any) -> None:
        for i in range(self._first, self._graph._num_nodes):
            self._graph._originals.setdefault(i, self._op)


class ContainerScope:
    def __init__(self, graph: "Graph", name: str):
        self._graph = graph
        self._name = name

    def __enter__(self) -> str:
        self._before = self._graph._container
        self._graph._container = self._name
        return self._name

    def __exit__(self, *_: Any) -> None:
        self._graph._container = self._before


class Overrides:
    """A context that sets some values by name and puts back what there was."""

    def __init__(self, values: dict[str, Any], get: Callable[[str], Any], put: Callable[..., None]):
        self._values, self._get, self._put = values, get, put

    def __enter__(self) -> None:
        self._before = {key: self._get(key) for key in self._values}
        for key, value in self._values.items():
            self._put(key, value)

    def __exit__(self, *_: Any) -> None:
        for key, value in self._before.items():
            self._put(key, value)
