"""Functions of graphs that TensorFlow 2 wrote, made fit for a graph here."""

from typing import Any

from millrace import _core, protos
from millrace.graph.graph import Graph

_COLOCATED = "loc:@"


def with_fit_functions(graph: Graph, graph_def: Any) -> Any:
    """A copy of a GraphDef without what its functions have for others: functions with ops that are
    not known and that no node leads to (twins of layers for other devices), and the wish to be with
    a node that is in neither function nor graph (a variable, by the name it had where the function
    was traced). The message itself where there is none of this.
    """
    graph_def = _without_idle_functions(graph, graph_def)
    outside = {node.name for node in graph_def.node}
    if not any(strange_places(f, outside) for f in graph_def.library.function):
        return graph_def
    copy = protos.GraphDef()
    copy.CopyFrom(graph_def)
    for function in copy.library.function:
        for node, kept in strange_places(function, outside):
            del node.attr["_class"].list.s[:]
            node.attr["_class"].list.s.extend(kept)
    return copy


def strange_places(function: Any, outside: set[str]) -> list[tuple[Any, list[bytes]]]:
    """[(node, the entries of _class to keep)] of the nodes of a FunctionDef that are to be with one
    that is neither in it nor among the names `outside`."""
    asking = [node for node in function.node_def if "_class" in node.attr]
    if not asking:
        return []
    inside = {node.name for node in function.node_def}
    inside.update(argument.name for argument in function.signature.input_arg)
    out = []
    for node in asking:
        entries = list(node.attr["_class"].list.s)
        names = [e.decode(errors="replace").removeprefix(_COLOCATED) for e in entries]
        kept = [e for e, n in zip(entries, names, strict=True) if n in inside or n in outside]
        if len(kept) < len(entries):
            out.append((node, kept))
    return out


def _without_idle_functions(graph: Graph, graph_def: Any) -> Any:
    functions = {f.signature.name: f for f in graph_def.library.function}
    known = {*_core.op_names(), *graph._function_names(), *functions}
    strange = {n for n, f in functions.items() if any(d.op not in known for d in f.node_def)}
    if not strange:
        return graph_def
    used = called_functions(graph_def.node)
    todo = [functions[name] for name in used if name in functions]
    while todo:
        more = called_functions(todo.pop().node_def) - used
        used |= more
        todo += [functions[name] for name in more if name in functions]
    if strange <= used:
        return graph_def
    copy = protos.GraphDef()
    copy.CopyFrom(graph_def)
    del copy.library.function[:]
    del copy.library.gradient[:]
    copy.library.function.extend([f for n, f in functions.items() if n in used])
    copy.library.gradient.extend(
        [g for g in graph_def.library.gradient if {g.function_name, g.gradient_func} <= used]
    )
    return copy


def called_functions(nodes: Any) -> set[str]:
    """The names of the functions that nodes may call."""
    out = set()
    for node in nodes:
        out.add(node.op)
        for value in node.attr.values():
            if value.HasField("func"):
                out.add(value.func.name)
            elif value.HasField("list"):
                out.update(func.name for func in value.list.func)
    return out


def rename_functions(nodes: Any, names: dict[str, str]) -> None:
    """Makes nodes call functions by other names, where `names` has them."""
    for node in nodes:
        node.op = names.get(node.op, node.op)
        for value in node.attr.values():
            _rename(value, names)


def _rename(value: Any, names: dict[str, str]) -> None:
    found = []
    if value.HasField("func"):
        found.append(value.func)
    elif value.HasField("list"):
        found += value.list.func
    for function in found:
        function.name = names.get(function.name, function.name)
        for inner in function.attr.values():
            _rename(inner, names)
