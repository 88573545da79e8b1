"""What orders operations: group, tuple, assertions."""

from typing import Any

from millrace import _core, gen_ops
from millrace.core import nest
from millrace.core.arguments import reordered
from millrace.core.errors import InvalidArgumentError
from millrace.core.export import export
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import control_dependencies, get_default_graph, name_scope
from millrace.graph.operation import Operation
from millrace.graph.sparse import IndexedSlices, SparseTensor
from millrace.graph.tracing import is_composite, tensors_of

no_op = export(v1="no_op", v2="no_op")(gen_ops.no_op)


@export(v1="group", v2="group")
def group(*inputs: Any, **kwargs: Any) -> Any:
    """An operation that is done when all of `inputs` (tensors, operations, structures of them) are.

    TypeError for an input that is neither. `name`: its name.
    """
    name = kwargs.pop("name", None)
    if kwargs:
        raise ValueError(f"Unknown keyword arguments: {', '.join(sorted(kwargs))}")
    if _core.executing_eagerly():
        return None  # all of it has run
    ops: list[Operation] = []
    for item in nest.flatten(list(inputs)):
        op = _operation_of(item)
        if op is None:
            raise TypeError(
                "'inputs' should be zero or more (nested) Tensors. Expected tf.group() expected "
                f"Tensor objects not '{item}' with type '{type(item)}'."
            )
        ops.append(op)
    by_device: dict[str, list[Operation]] = {}
    for op in ops:
        by_device.setdefault(op.device, []).append(op)
    if len(by_device) <= 1:
        return _group_on(ops, name or "group_deps", next(iter(by_device), ""))
    with name_scope(name, "group_deps") as scope:
        each = [_group_on(by_device[d], "NoOp", d) for d in sorted(by_device)]
    return _group_on(each, scope, "")


def _group_on(ops: list[Operation], name: str, device: str) -> Operation:
    graph = get_default_graph()
    with control_dependencies(ops):
        if not device:
            return gen_ops.no_op(name=name)
        with graph.device(device):
            return gen_ops.no_op(name=name)


def _operation_of(value: Any) -> Operation | None:
    """The operation that makes a value; None where there is none."""
    if isinstance(value, Operation):
        return value
    if not hasattr(value, "device"):
        return None
    convert = getattr(value, "_as_graph_element", None)
    element = convert() if convert is not None else value
    if isinstance(element, Operation):
        return element
    op = getattr(element, "op", None)
    return op if isinstance(op, Operation) else None


def with_dependencies(dependencies: Any, output_tensor: Any, name: str | None = None) -> Any:
    """`output_tensor`, a Tensor or IndexedSlices, ready only after `dependencies` have run."""
    with name_scope(name, "control_dependency", [*dependencies, output_tensor]) as scope:
        if isinstance(output_tensor, IndexedSlices):
            with control_dependencies(dependencies):
                parts = [gen_ops.identity(part) for part in tensors_of(output_tensor)]
            return IndexedSlices(*parts)
        output = convert_to_tensor(output_tensor)
        with get_default_graph().colocate_with(output), control_dependencies(dependencies):
            return gen_ops.identity(output, name=scope)


@export(v1="tuple")
def tuple_(tensors: Any, name: str | None = None, control_inputs: Any = None) -> list[Any]:
    """The tensors (None, IndexedSlices and operations too), each ready only when all are.

    `control_inputs`: tensors or operations to wait for besides. ValueError when there is no tensor
    at all, TypeError for control inputs that are neither.
    """
    if _core.executing_eagerly():
        return tensors
    with name_scope(name, "tuple", [t for t in tensors if t is not None]):
        tensors = [
            t if t is None or isinstance(t, Operation) or is_composite(t) else convert_to_tensor(t)
            for t in tensors
        ]
        if _core.executing_eagerly():
            return tensors
        gates = [t if isinstance(t, Operation) else t.op for t in tensors if t is not None]
        if not gates:
            raise ValueError(f"'tensors' must have at least one Tensor. Received: {tensors}.")
        for item in control_inputs or []:
            op = _operation_of(item)
            if op is None:
                raise TypeError(
                    "'control_inputs' must only contain Operation or Tensor. Received: "
                    f"{type(item)}. Control input must be Operation or Tensor: {item}"
                )
            gates.append(op)
        gate = group(*sorted(set(gates), key=lambda op: op._id))
        return [
            None
            if t is None
            else group(gate, t)
            if isinstance(t, Operation)
            else with_dependencies([gate], t)
            for t in tensors
        ]


tuple_v2 = export(v2="tuple")(reordered(tuple_, "tensors control_inputs name"))


def _assert_now(condition: Any, data: list[Any]) -> None:
    if not bool(condition):
        text = "\n".join(str(convert_to_tensor(item).numpy()) for item in data)
        raise InvalidArgumentError(
            None, None,
            f"Expected '{condition!s}' to be true. Summarized data: {text}{_core.user_line()}",
        )  # fmt: skip


@export(v1=("Assert", "debugging.Assert"), v2=("Assert", "debugging.Assert"))
def Assert(
    condition: Any, data: Any, summarize: int | None = None, name: str | None = None
) -> Operation:
    """An operation that fails with the values of `data` in its message unless `condition` holds.

    Make other operations wait for it: `with tf.control_dependencies([assert_op]):`.
    """
    if not isinstance(data, (list, tuple)):
        raise TypeError(f"values must be a sequence: the data of Assert is a list, got {data!r}")
    flat = []
    for item in data:
        flat += tensors_of(item) if isinstance(item, SparseTensor) else [item]
    if _core.executing_eagerly():
        return _assert_now(convert_to_tensor(condition), flat)
    return gen_ops.assert_(condition, flat, 3 if summarize is None else summarize, name or "Assert")
