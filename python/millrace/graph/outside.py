"""Gradients in a body with respect to tensors around it, through what was computed around it.

A body sees a tensor of the graph around as a parameter, at which gradients end. Where that tensor
depends on an x further out, what lies between is computed again inside the body, and the gradient
goes on from there.
"""

from typing import Any

from millrace import _core
from millrace.graph.graph import FunctionGraph, Graph, Operation, Tensor


class Outside:
    """What a body uses of the graphs around it that depends on one of `xs`.

    `parameters` and `copies`: the tensors as the body has them, and computed again from the xs.
    """

    def __init__(self, graph: Graph, ys: list[Tensor], xs: list[Tensor], stops: list[Tensor]):
        self._graph = graph
        self._ends = {x for x in xs if x.graph is not graph}
        self._stops = set(stops)
        self._outer: dict[Tensor, Tensor] = {}  # parameters of bodies around, and what they are
        self._reaches: dict[Tensor, bool] = {}
        self._made: dict[Operation, Operation] = {}
        self.parameters: list[Tensor] = []
        self.copies: list[Tensor] = []
        if not isinstance(graph, FunctionGraph) or not self._ends:
            return
        around: Any = graph.outer_graph
        while isinstance(around, FunctionGraph):
            self._outer.update({inner: outer for outer, inner in around._captures()})
            around = around.outer_graph
        captured = {outer: inner for outer, inner in graph._captures()}
        for y in ys:
            if y.graph is not graph:
                captured.setdefault(y, y)
        for outer, inner in captured.items():
            differentiable = outer.dtype.is_floating or outer.dtype.is_complex
            if differentiable and self._resolve(outer) not in self._ends and self._depends(outer):
                self.parameters.append(inner)
                self.copies.append(self._copy(outer))

    def _sources(self, tensor: Tensor) -> list[Tensor]:
        if tensor in self._outer:
            return [self._outer[tensor]]
        return list(tensor.op.inputs)

    def _depends(self, tensor: Tensor) -> bool:
        """Whether an x lies behind the tensor."""
        todo = [tensor]
        while todo:
            top = todo[-1]
            if top in self._reaches:
                todo.pop()
            elif top in self._ends or top in self._stops:
                self._reaches[top] = top in self._ends
            else:
                sources = self._sources(top)
                unknown = [s for s in sources if s not in self._reaches]
                if unknown:
                    todo += unknown
                else:
                    self._reaches[top] = any(self._reaches[s] for s in sources)
        return self._reaches[tensor]

    def _copy(self, tensor: Tensor) -> Tensor:
        tensor = self._resolve(tensor)
        if tensor in self._ends or not self._reaches.get(tensor, False):
            return tensor
        todo = [tensor.op]
        while todo:
            op = todo[-1]
            missing = [
                source.op
                for source in map(self._resolve, op.inputs)
                if source not in self._ends
                and self._reaches.get(source, False)
                and source.op not in self._made
            ]
            if op in self._made:
                todo.pop()
            elif missing:
                todo += missing
            else:
                self._made[op] = self._again(op)
        return self._made[tensor.op].outputs[tensor.value_index]

    def _resolve(self, tensor: Tensor) -> Tensor:
        while tensor in self._outer and tensor not in self._ends:
            tensor = self._outer[tensor]
        return tensor

    def _again(self, op: Operation) -> Operation:
        inputs = []
        for source in map(self._resolve, op.inputs):
            made = self._made.get(source.op) if source not in self._ends else None
            inputs.append(source if made is None else made.outputs[source.value_index])
        names = op.graph._node_attr_names(op._id)
        attrs = {n: op.get_attr(n) for n in names if n[0] != "_" or n == "_gradient_op_type"}
        name = _core.full_name(self._graph, op.name.rsplit("/", 1)[-1])
        return _core.create_op(self._graph, op.type, inputs, name, attrs)
