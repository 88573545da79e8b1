"""Working on graphs as messages."""

from collections import deque
from typing import Any

from millrace import _core, gen_ops, protos
from millrace.core import dtypes
from millrace.core.export import export
from millrace.graph.frozen_calls import pass_values_to_calls
from millrace.graph.operation import Operation
from millrace.graph.tensor_util import make_tensor_proto

_VARIABLE_OPS = frozenset(
    {"Variable", "VariableV2", "AutoReloadVariable", "VarHandleOp", "ReadVariableOp"}
)


def _node_name(name: str) -> str:
    """The node of an input: "a" for "^a" and "a:1"."""
    return name.lstrip("^").partition(":")[0]


def _check_graph_def(graph_def: Any) -> None:
    if not isinstance(graph_def, protos.GraphDef):
        raise TypeError(f"graph_def must be a graph_pb2.GraphDef proto, got {type(graph_def)}.")


@export(v1="graph_util.must_run_on_cpu")
def must_run_on_cpu(node: Any, pin_variables_on_cpu: bool = False) -> bool:
    """Whether a node (an Operation or a NodeDef) has to run on a CPU: strings, small integers."""
    node_def = node.node_def if isinstance(node, Operation) else node
    if not isinstance(node_def, protos.NodeDef):
        raise TypeError(f"node must be an Operation or a NodeDef, got {type(node).__name__}")
    if pin_variables_on_cpu and node_def.op in _VARIABLE_OPS:
        return True
    host = (dtypes.string, dtypes.int32)
    if node_def.op == "Const":
        return dtypes.as_dtype(node_def.attr["dtype"].type) in host
    if node_def.op in ("DynamicStitch", "ParallelDynamicStitch"):
        return dtypes.as_dtype(node_def.attr["T"].type) is dtypes.int32
    if node_def.op == "Cast":
        return dtypes.as_dtype(node_def.attr["SrcT"].type) is dtypes.int32
    return False


@export(v1="graph_util.extract_sub_graph")
def extract_sub_graph(graph_def: Any, dest_nodes: Any) -> Any:
    """The part of a GraphDef that is needed for the nodes named.

    TypeError for other arguments, AssertionError for a name that is not in the graph.
    """
    _check_graph_def(graph_def)
    if isinstance(dest_nodes, str):
        raise TypeError("dest_nodes must be an iterable of strings, got a string.")
    place = {node.name: i for i, node in enumerate(graph_def.node)}
    inputs = {node.name: [_node_name(i) for i in node.input] for node in graph_def.node}
    for name in dest_nodes:
        if name not in place:
            raise AssertionError(f"{name} is not in graph")
    reached = set(dest_nodes)
    todo = deque(dest_nodes)
    while todo:
        for name in inputs.get(todo.popleft(), ()):
            if name not in reached:
                reached.add(name)
                todo.append(name)
    out = protos.GraphDef()
    out.node.extend([n for n in graph_def.node if n.name in reached])
    out.library.CopyFrom(graph_def.library)
    out.versions.CopyFrom(graph_def.versions)
    return out


@export(v1="graph_util.tensor_shape_from_node_def_name")
def tensor_shape_from_node_def_name(graph: Any, input_name: str) -> Any:
    """The shape of a tensor by the name that nodes have for their inputs: "a" or "a:1"."""
    name = input_name if ":" in input_name else input_name + ":0"
    return graph.get_tensor_by_name(name).shape


@export(v1="graph_util.remove_training_nodes")
def remove_training_nodes(input_graph: Any, protected_nodes: Any = None) -> Any:
    """A copy of a GraphDef without nodes that serve only training: Identity and CheckNumerics.

    `protected_nodes`: names of nodes to keep.
    """
    keep = set(protected_nodes or ())
    spliced = {
        node.name: node.input[0]
        for node in input_graph.node
        if node.op == "CheckNumerics" and node.name not in keep
    }
    checks = set(spliced)

    def waits(node: Any) -> list[str]:
        """The names of what a node waits for, checks aside."""
        return [i[1:] for i in node.input if i.startswith("^") and i[1:] not in checks]

    waited_for = {name for node in input_graph.node for name in waits(node)}
    for node in input_graph.node:
        removable = node.name not in keep and node.name not in waited_for
        if node.op == "Identity" and removable and not waits(node):
            spliced[node.name] = node.input[0]

    def source(name: str) -> str:
        while _node_name(name) in spliced and not name.startswith("^"):
            name = spliced[_node_name(name)]
        return name

    out = protos.GraphDef()
    for node in input_graph.node:
        if node.name in spliced:
            continue
        copy = protos.NodeDef()
        copy.CopyFrom(node)
        del copy.input[:]
        copy.input.extend([source(i) for i in node.input if i[1:] not in checks or i[0] != "^"])
        out.node.append(copy)
    for field in ("library", "versions"):
        if input_graph.HasField(field):
            getattr(out, field).CopyFrom(getattr(input_graph, field))
    return out


@export(v1="graph_util.convert_variables_to_constants")
def convert_variables_to_constants(
    sess: Any, input_graph_def: Any, output_node_names: Any,
    variable_names_whitelist: Any = None, variable_names_blacklist: Any = None,
) -> Any:  # fmt: skip
    """The part of a GraphDef that the nodes named need, with variables as constants of the values
    that they have in the session.

    `variable_names_whitelist`: only these variables; `variable_names_blacklist`: all but these.
    """
    inference = extract_sub_graph(input_graph_def, output_node_names)
    names, tensors = [], []
    for node in inference.node:
        if node.op not in ("Variable", "VariableV2", "VarHandleOp"):
            continue
        if variable_names_whitelist is not None and node.name not in variable_names_whitelist:
            continue
        if variable_names_blacklist is not None and node.name in variable_names_blacklist:
            continue
        names.append(node.name)
        tensors.append(_value_tensor(sess.graph, node))
    values = dict(zip(names, sess.run(tensors), strict=True)) if names else {}
    out = protos.GraphDef()
    for node in inference.node:
        made = protos.NodeDef()
        if node.name in values:
            dtype = node.attr["dtype"]
            made.op, made.name = "Const", node.name
            made.attr["dtype"].CopyFrom(dtype)
            made.attr["value"].tensor.CopyFrom(make_tensor_proto(values[node.name], dtype.type))
        elif node.op == "ReadVariableOp" and _node_name(node.input[0]) in values:
            made.op, made.name = "Identity", node.name
            made.attr["T"].CopyFrom(node.attr["dtype"])
            made.input.append(node.input[0])
        else:
            made.CopyFrom(node)
        out.node.append(made)
    out.library.CopyFrom(inference.library)
    out.versions.CopyFrom(inference.versions)
    handles = {
        node.name: node.attr["dtype"].type
        for node in inference.node
        if node.op == "VarHandleOp" and node.name in values
    }
    if handles:
        pass_values_to_calls(out, handles)
    return out


def _value_tensor(graph: Any, node: Any) -> Any:
    if node.op != "VarHandleOp":
        return graph.get_tensor_by_name(node.name + ":0")
    handle = graph.get_tensor_by_name(node.name + ":0")
    for op in handle.consumers():
        if op.type == "ReadVariableOp":
            return op.outputs[0]
    with graph.as_default():
        return gen_ops.read_variable_op(handle, dtypes.as_dtype(node.attr["dtype"].type))


@export(v1="contrib.util.stripped_op_list_for_graph")
def stripped_op_list_for_graph(graph_def: Any) -> Any:
    """The definitions of the ops that a GraphDef uses, by name, as an OpList.

    Ops that are not known here are left out.
    """
    used = {node.op for node in graph_def.node}
    for function in graph_def.library.function:
        used.update(node.op for node in function.node_def)
    known = used.intersection(_core.op_names())
    out = protos.OpList()
    out.op.extend([protos.OpDef.FromString(_core.op_def(name)) for name in sorted(known)])
    return out
