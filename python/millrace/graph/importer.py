"""Adding graphs that were written as messages."""

import re
from typing import Any

from millrace import _core, protos
from millrace.core.export import export
from millrace.core.suggest import nearest_names
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import get_default_graph, name_scope
from millrace.graph.graph import Graph
from millrace.graph.operation import Operation


@export(
    v1=("import_graph_def", "graph_util.import_graph_def"),
    v2=("import_graph_def", "graph_util.import_graph_def"),
)
def import_graph_def(
    graph_def: Any, input_map: Any = None, return_elements: Any = None, name: str | None = None,
    op_dict: Any = None, producer_op_list: Any = None,
) -> list[Any] | None:  # fmt: skip
    """Adds the operations of a GraphDef to the default graph, below the scope `name` ("import").

    Args:
      input_map: tensors of this graph, by the names of those of the GraphDef that they replace.
      return_elements: names of operations ("a") and tensors ("a:0") to return.
      producer_op_list: an OpList of the program that wrote the GraphDef: attributes that are not
        known here and have the default values of that program are left out.

    Returns: the elements asked for, or None. ValueError when the GraphDef is not a graph, or names
    nothing in it; TypeError for arguments of other types.
    """
    del op_dict
    graph_def = _check_graph_def(graph_def)
    input_map = _check_input_map(input_map)
    wanted = _check_return_elements(return_elements)
    graph_def = _without_shapes(graph_def)
    if producer_op_list is not None:
        graph_def = _without_defaults(graph_def, producer_op_list)
    graph = get_default_graph()
    with name_scope(name, "import", list(input_map.values())) as scope:
        mapped = _as_tensors(input_map, name)
        _check_names(graph_def, mapped)
        _check_ops(graph, graph_def)
        tensors = [n for n in wanted if ":" in n]
        taken = {n for n in wanted if ":" not in n and graph._find(scope + n) >= 0}
        _check_wanted(graph_def, wanted)
        before = graph._num_nodes
        controls = graph._open_control_inputs()
        made, _ = graph._import(
            graph_def.SerializeToString(), scope[:-1], mapped, controls, "", True, tensors
        )
        _apply_devices(graph, before)
    if return_elements is None:
        return None
    by_name = dict(zip(tensors, made, strict=True))
    out = []
    for element in wanted:
        if element in by_name:
            out.append(by_name[element])
        else:
            out.append(_operation(graph, scope + element, element in taken, before))
    return out


def _check_graph_def(graph_def: Any) -> Any:
    if isinstance(graph_def, protos.GraphDef):
        return graph_def
    try:
        copy = protos.GraphDef()
        copy.MergeFrom(graph_def)
    except TypeError:
        raise TypeError("graph_def must be a GraphDef proto.") from None
    return copy


def _check_input_map(input_map: Any) -> dict[str, Any]:
    if input_map is None:
        return {}
    if not isinstance(input_map, dict) or not all(isinstance(k, (str, bytes)) for k in input_map):
        raise TypeError("input_map must be a dictionary mapping strings to Tensor objects.")
    return {k.decode() if isinstance(k, bytes) else k: v for k, v in input_map.items()}


def _check_return_elements(elements: Any) -> list[str]:
    if elements is None:
        return []
    elements = list(elements)
    if not all(isinstance(e, (str, bytes)) for e in elements):
        raise TypeError("return_elements must be a list of strings.")
    return [e.decode() if isinstance(e, bytes) else e for e in elements]


def _as_tensors(input_map: dict[str, Any], name: str | None) -> list[tuple[str, Tensor]]:
    if all(isinstance(v, Tensor) for v in input_map.values()):
        return list(input_map.items())
    if name == "":
        raise ValueError(
            "tf.import_graph_def() requires a non-empty `name` if `input_map` contains non-Tensor "
            "values. Try calling tf.convert_to_tensor() on `input_map` values before calling "
            "tf.import_graph_def()."
        )
    with name_scope("_inputs"):
        return [(key, convert_to_tensor(value)) for key, value in input_map.items()]


def _node_of(tensor_name: str) -> str:
    return tensor_name.lstrip("^").partition(":")[0]


def _check_names(graph_def: Any, mapped: list[tuple[str, Tensor]]) -> None:
    """ValueError for keys of the input map that are nothing in the graph."""
    if not mapped:
        return
    known = {node.name for node in graph_def.node}
    for node in graph_def.node:
        known.update(_node_of(i) for i in node.input)
    unknown = [key for key, _ in mapped if _node_of(key) not in known]
    if unknown:
        raise ValueError(
            "Attempted to map inputs that were not found in graph_def: [" + ", ".join(unknown) + "]"
        )


def _check_ops(graph: Graph, graph_def: Any) -> None:
    """ValueError for a node of an op that is not known, with ops of nearly that name."""
    ops = _core.op_names()
    known = {*ops, *graph._function_names()}
    known.update(function.signature.name for function in graph_def.library.function)
    for holder, nodes in [
        ("", graph_def.node),
        *((f.signature.name, f.node_def) for f in graph_def.library.function),
    ]:
        for node in nodes:
            if node.op not in known:
                of = f" of the function '{holder}'" if holder else ""
                raise ValueError(
                    f"Op type not registered '{node.op}': the node '{node.name}'{of} cannot be "
                    f"imported.{nearest_names(node.op, ops)}{_core.user_line()}"
                )


def _check_wanted(graph_def: Any, wanted: list[str]) -> None:
    if not wanted:
        return
    known = {node.name for node in graph_def.node}
    for element in wanted:
        node, colon, index = element.partition(":")
        if node not in known or (colon and not index.isdigit()):
            raise ValueError(f"Requested return_element {element!r} not found in graph_def.")


def _without_shapes(graph_def: Any) -> Any:
    """A copy without the shapes that a graph was written with: they are worked out here. The
    message itself where it has none."""
    if not any("_output_shapes" in node.attr for node in graph_def.node):
        return graph_def
    copy = protos.GraphDef()
    copy.CopyFrom(graph_def)
    for node in copy.node:
        if "_output_shapes" in node.attr:
            del node.attr["_output_shapes"]
    return copy


def _without_defaults(graph_def: Any, producer_op_list: Any) -> Any:
    """A copy without the attributes that are not known here and have their producer's default."""
    producers = {op.name: op for op in producer_op_list.op}
    known: dict[str, set[str] | None] = {}
    copy = protos.GraphDef()
    copy.CopyFrom(graph_def)
    names = set(_core.op_names())
    for node in copy.node:
        producer = producers.get(node.op)
        if producer is None or node.op not in names:
            continue
        attrs = known.get(node.op)
        if attrs is None:
            here = protos.OpDef.FromString(_core.op_def(node.op))
            attrs = known[node.op] = {attr.name for attr in here.attr}
        for attr in producer.attr:
            if (
                attr.name not in attrs
                and attr.HasField("default_value")
                and attr.name in node.attr
                and node.attr[attr.name] == attr.default_value
            ):
                del node.attr[attr.name]
    return copy


def _apply_devices(graph: Graph, first: int) -> None:
    """What was imported goes where the open `with device` says, where it does not say itself."""
    if not graph._device_stack:
        return
    stack = graph._device_stack
    for i in range(first, graph._num_nodes):
        op = graph._operation(i)
        graph._device_stack = [*stack, op.device] if op.device else stack
        graph._apply_device_functions(op)
    graph._device_stack = stack


def _operation(graph: Graph, name: str, renamed: bool, first: int) -> Operation:
    if not renamed:
        return graph.get_operation_by_name(name)
    pattern = re.compile(re.escape(name) + r"_\d+")
    for i in range(first, graph._num_nodes):
        op = graph._operation(i)
        if pattern.fullmatch(op.name):
            return op
    raise ValueError(f"Requested return_element {name!r} not found in graph_def.")
