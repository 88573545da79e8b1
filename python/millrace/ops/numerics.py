"""Checks for values that are no numbers, and the time at which an operation runs."""

from typing import Any

from millrace import gen_ops
from millrace.core.arguments import reordered
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import colocate_with, get_default_graph, name_scope
from millrace.graph.operation import Operation
from millrace.ops.along import either

check_numerics = export(
    v1=("check_numerics", "debugging.check_numerics"), v2="debugging.check_numerics"
)(gen_ops.check_numerics)
timestamp = export(v1="timestamp", v2="timestamp")(gen_ops.timestamp)


@export(v1=("verify_tensor_all_finite", "debugging.assert_all_finite"))
def verify_tensor_all_finite(
    t: Any = None, msg: str | None = None, name: str | None = None, x: Any = None,
    message: str | None = None,
) -> Tensor:  # fmt: skip
    """The tensor itself; running it fails with `msg` when an element is nan or infinite."""
    x = either(t, x, "x", "t")
    message = either(msg, message, "message", "msg")
    with name_scope(name, "VerifyFinite", [x]):
        x = convert_to_tensor(x, name="t")
        with colocate_with(x):
            check = gen_ops.check_numerics(x, message=message)
            with get_default_graph().control_dependencies([check]):
                return gen_ops.identity(x, name="control_dependency")


verify_tensor_all_finite_v2 = export(v2="debugging.assert_all_finite")(
    reordered(verify_tensor_all_finite, "x message name")
)


@export(v1="add_check_numerics_ops")
def add_check_numerics_ops() -> Operation:
    """An operation that checks every float tensor of the default graph for nan and infinity.

    The checks run in the order in which the tensors were made, so the first bad one is named.
    ValueError for a graph with branches or loops, whose inner tensors cannot be checked.
    """
    graph = get_default_graph()
    checks: list[Any] = []
    for op in graph.get_operations():
        if op.type in ("If", "StatelessIf", "While", "StatelessWhile", "Case", "StatelessCase"):
            raise ValueError(
                "`tf.add_check_numerics_ops() is not compatible with TensorFlow control flow "
                f"operations such as `tf.cond()` or `tf.while_loop()`: '{op.name}' is a {op.type}"
            )
        for output in op.outputs:
            if output.dtype.base_dtype.name in ("float16", "bfloat16", "float32", "float64"):
                with graph.control_dependencies(checks):
                    checks = [gen_ops.check_numerics(output, message=output.name)]
    with graph.control_dependencies(checks):
        return gen_ops.no_op(name="group_deps")
