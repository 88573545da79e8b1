"""Initial values that depend on other variables."""

from typing import Any

from millrace.core.tensor import Tensor
from millrace.graph.graph import Graph
from millrace.graph.keys import GraphKeys
from millrace.graph.operation import Operation
from millrace.state.variable import Variable


def guarded(initial_value: Tensor, given: Any) -> Tensor:
    """The initial value, with the variables that it reads replaced by their initialized values.

    So initializers may run in any order. What cannot be copied stays as it is. `given`: what the
    value was made from.
    """
    reads: dict[Operation, bool] = {}
    if not getattr(given, "reads_variables", True) or initial_value.op.type == "Const":
        return initial_value
    if not _reads_variables(initial_value.op, reads):
        return initial_value
    by_op = {v.op: v for v in _all_variables(initial_value.graph)}
    return _copied(initial_value, reads, by_op, {})


def _all_variables(graph: Graph) -> list[Variable]:
    return graph.get_collection(GraphKeys.GLOBAL_VARIABLES) + graph.get_collection(
        GraphKeys.LOCAL_VARIABLES
    )


VARIABLE_OPS = ("Variable", "VariableV2", "VarHandleOp")
# Already right, or never to be doubled.
_NOT_COPIED = (
    "If", "StatelessIf", "While", "StatelessWhile", "Case", "Placeholder", "PlaceholderV2",
    "PyFunc",
)  # fmt: skip


def _reads_variables(op: Operation, known: dict[Operation, bool]) -> bool:
    """Whether a variable is read on the way to an operation; fills `known` for all on the way."""
    todo = [op]
    while todo:
        at = todo[-1]
        if at in known:
            todo.pop()
            continue
        if at.type in VARIABLE_OPS:
            known[at] = True
            continue
        if at.type in _NOT_COPIED:
            known[at] = False
            continue
        parents = [t.op for t in at.inputs]
        missing = [p for p in parents if p not in known]
        if missing:
            todo += missing
            continue
        known[at] = any(known[p] for p in parents)
    return known[op]


def _copied(
    tensor: Tensor, reads: dict[Operation, bool], variables: dict[Operation, Variable],
    done: dict[Operation, Any],
) -> Tensor:  # fmt: skip
    op = tensor.op
    if not reads.get(op, False):
        return tensor
    if op.type in ("Identity", "ReadVariableOp") and op.inputs[0].op.type in VARIABLE_OPS:
        source = op.inputs[0].op
        if source not in variables:
            return tensor
        if source not in done:
            done[source] = variables[source].initialized_value()
        return done[source]
    if op.type in VARIABLE_OPS:
        if op not in variables or op.type == "VarHandleOp":
            return tensor
        if op not in done:
            done[op] = variables[op].initialized_value()
        return done[op]
    if any(t.dtype._is_ref_dtype and t.op.type not in VARIABLE_OPS for t in op.inputs):
        return tensor
    if op not in done:
        inputs = [_copied(t, reads, variables, done) for t in op.inputs]
        if all(a is b for a, b in zip(inputs, op.inputs, strict=True)):
            done[op] = op
        else:
            attrs = {name: op.get_attr(name) for name in op.graph._node_attr_names(op._id)}
            attrs.pop("_class", None)
            done[op] = op.graph.create_op(
                op.type, inputs, name=f"{op.name.rpartition('/')[2]}_initialized", attrs=attrs
            )
    return done[op].outputs[tensor.value_index]
