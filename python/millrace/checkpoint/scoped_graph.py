"""Parts of GraphDefs: what is below a scope, and what belongs to savers."""

from typing import Any

from millrace import protos
from millrace.checkpoint.collection_defs import UNBOUND, belongs
from millrace.graph.keys import strip_name_scope

_SAVER_OPS = frozenset(
    {"SaveV2", "Save", "SaveSlices", "RestoreV2", "Restore", "RestoreSlice",
     "MergeV2Checkpoints", "ShardedFilename", "ShardedFilespec"}
)  # fmt: skip


def graph_def_of_scope(
    graph_def: Any, export_scope: str | None, exclude: Any, clear_devices: bool
) -> tuple[Any, list[str]]:
    """A copy of what is below a scope, with names as if the scope were the root, and the inputs
    that come from outside of it."""
    out = protos.GraphDef()
    out.versions.CopyFrom(graph_def.versions)
    out.library.CopyFrom(graph_def.library)
    unbound: list[str] = []
    for node in graph_def.node:
        if belongs(node.name, export_scope, exclude):
            out.node.append(_node_of_scope(node, export_scope, unbound, clear_devices))
    return out, unbound


def _node_of_scope(node: Any, scope: str | None, unbound: list[str], clear_devices: bool) -> Any:
    out = protos.NodeDef()
    out.CopyFrom(node)
    if clear_devices:
        out.device = ""
    if not scope:
        return out
    del out.input[:]
    for name in node.input:
        mark, name = ("^", name[1:]) if name.startswith("^") else ("", name)
        if name.startswith(scope):
            out.input.append(mark + strip_name_scope(name, scope))
        else:
            out.input.append(mark + UNBOUND + name)
            unbound.append(out.input[-1])
    out.name = strip_name_scope(node.name, scope)
    if "_class" in node.attr:
        groups = [s.decode() for s in node.attr["_class"].list.s]
        kept = [strip_name_scope(g, scope) for g in groups if g.startswith("loc:@" + scope)]
        out.attr["_class"].Clear()
        out.attr["_class"].list.s.extend([g.encode() for g in kept])
    if node.op in ("Enter", "RefEnter") and "frame_name" in node.attr:
        frame = node.attr["frame_name"].s.decode()
        out.attr["frame_name"].s = strip_name_scope(frame, scope).encode()
    return out


def with_known_names(graph_def: Any, input_map: Any) -> tuple[Any, Any]:
    """A graph and a map of its inputs, in which inputs from outside have names as nodes have them:
    "$", with which theirs begin, is for files only."""
    if not any(UNBOUND in name for node in graph_def.node for name in node.input):
        return graph_def, input_map
    copy = protos.GraphDef()
    copy.CopyFrom(graph_def)
    known = "_" + UNBOUND[1:]
    for node in copy.node:
        for i, name in enumerate(node.input):
            node.input[i] = name.replace(UNBOUND, known, 1)
    return copy, {name.replace(UNBOUND, known, 1): t for name, t in (input_map or {}).items()}


def _scope_of(name: str) -> str:
    """The scope of a node or tensor, with its "/"; "/" for the root, which is no saver's."""
    return name.lstrip("^").rpartition("/")[0] + "/"


def saver_nodes_besides(graph_def: Any, saver_def: Any) -> set[str]:
    """The names of the nodes that belong to other savers than the one given: each saver is taken to
    have a scope of its own."""
    scopes = {_scope_of(node.name) for node in graph_def.node if node.op in _SAVER_OPS}
    if saver_def is not None:
        scopes -= {_scope_of(saver_def.save_tensor_name), _scope_of(saver_def.restore_op_name)}
    scopes -= {node.name + "/" for node in graph_def.node if node.op in _SAVER_OPS}
    begin = tuple(scopes)
    return {node.name for node in graph_def.node if begin and node.name.startswith(begin)}
