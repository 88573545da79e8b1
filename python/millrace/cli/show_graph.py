"""Shows graphs: their scopes as indented text, and what MetaGraphs and SavedModels say of them."""

from __future__ import annotations

import math
import os
from collections import Counter
from typing import Any

from millrace import protos
from millrace.cli import draw_graph, show_tensors
from millrace.cli.command import CommandError, count, matches, write_json
from millrace.cli.kinds import CHECKPOINT, SAVED_MODEL, Found
from millrace.cli.messages import read_message, variables_prefix
from millrace.cli.show_tensors import shape_text
from millrace.cli.tensors import Tensors
from millrace.core import dtypes
from millrace.core.suggest import nearest
from millrace.core.text import printable
from millrace.graph.tensor_util import make_ndarray

_LINES = 200  # a tree is shown as deep as fits into so many
_DEEPEST = 32  # scopes below are one
_MOST_ELEMENTS = 1 << 26  # of a constant: one element in a message can stand for any number


def show(found: Found, options: Any) -> int:
    """Prints what `millrace inspect` was asked about a graph."""
    message = read_message(found.path)
    graphs = list(_graphs(message))
    variables = _variables(found)
    if options.svg:
        if len(graphs) > 1:
            raise CommandError(f"{found.path}: has {len(graphs)} graphs, and a drawing shows one")
        draw_graph.write(graphs[0][1], options.svg)
        return 0
    if options.values:
        return _show_values([graph for _, graph in graphs], variables, options)
    kind = type(message).__name__
    if options.json:
        graphs_json = [_describe(meta, graph, options) for meta, graph in graphs]
        out: dict[str, Any] = {"kind": kind, "path": found.path, "graphs": graphs_json}
        if variables is not None:
            out["variables"] = show_tensors.describe(variables, options)
        write_json(out)
        return 0
    print(f"{kind} {printable(found.path)}")
    for meta, graph in graphs:
        if meta is not None:
            _show_meta(meta)
        _show_nodes(graph, options)
    if variables is not None:
        print()
        show_tensors.show_entries(CHECKPOINT, variables, options)
    return 0


def _variables(found: Found) -> Tensors | None:
    """The variables of a SavedModel."""
    prefix = variables_prefix(found.path)
    has_some = found.kind == SAVED_MODEL and os.path.exists(prefix + ".index")
    return Tensors(prefix) if has_some else None


def _graphs(message: Any) -> list[tuple[Any, Any]]:
    """(MetaGraphDef or None, GraphDef) for each graph."""
    if isinstance(message, protos.GraphDef):
        return [(None, message)]
    metas = message.meta_graphs if isinstance(message, protos.SavedModel) else [message]
    return [(meta, meta.graph_def) for meta in metas]


def _show_meta(meta: Any) -> None:
    info = meta.meta_info_def
    if info.tags:
        print(f"tags: {', '.join(map(printable, info.tags))}")
    if info.tensorflow_version:
        print(f"written by: TensorFlow {printable(info.tensorflow_version)}")
    for key in sorted(meta.collection_def):
        collection = meta.collection_def[key]
        kind = collection.WhichOneof("kind")
        number = len(getattr(collection, kind).value) if kind else 0
        print(f"collection {printable(key)}: {count(number, 'entry', 'entries')}")
    for key in sorted(meta.signature_def):
        signature = meta.signature_def[key]
        print(f"signature {printable(key)}: {printable(signature.method_name)}")
        for direction, infos in (("input", signature.inputs), ("output", signature.outputs)):
            for name in sorted(infos):
                tensor = infos[name]
                text = f"{_type_name(tensor.dtype)} {_shape_of(tensor.tensor_shape)}"
                print(f"  {direction} {printable(name)}: {printable(tensor.name)} {text}")
    for asset in meta.asset_file_def:
        print(f"asset {printable(asset.filename)}: {printable(asset.tensor_info.name)}")


def _show_nodes(graph: Any, options: Any) -> None:
    nodes = [node for node in graph.node if matches(options.grep, node.name, node.op)]
    functions = graph.library.function
    parts = [count(len(nodes), "node")]
    if functions:
        parts.append(count(len(functions), "function"))
    if graph.versions.producer:
        parts.append(f"version {graph.versions.producer}")
    print(", ".join(parts))
    ops = Counter(node.op for node in nodes)
    if ops:
        listed = sorted(ops.items(), key=lambda item: (-item[1], item[0]))
        print("ops: " + ", ".join(f"{number} {printable(op)}" for op, number in listed))
    _show_tree(nodes, options.depth)
    for function in functions:
        if matches(options.grep, function.signature.name):
            name = printable(function.signature.name)
            print(f"function {name}: {count(len(function.node_def), 'node')}")


def _show_tree(nodes: list[Any], depth: int | None) -> None:
    """The nodes by scope, in the order of names; a scope that is too deep as one line."""
    paths = sorted((tuple(n.name.split("/", _DEEPEST)), i) for i, n in enumerate(nodes))
    below = Counter(path[:k] for path, _ in paths for k in range(1, len(path) + 1))
    if depth is None:
        levels = Counter(map(len, below))
        depth, lines = 1, levels[1]
        while depth <= _DEEPEST and lines + levels[depth + 1] <= _LINES:
            depth += 1
            lines += levels[depth]
    printed: set[tuple[str, ...]] = set()
    for path, i in paths:
        for k in range(1, min(len(path), depth + 1)):
            if path[:k] not in printed:
                printed.add(path[:k])
                print(f"{'  ' * k}{printable(path[k - 1])}/  ({count(below[path[:k]], 'node')})")
        if len(path) <= depth:
            printed.add(path)
            print(f"{'  ' * len(path)}{printable(path[-1])}  {_node_text(nodes[i])}")
    if any(len(path) > depth for path, _ in paths):
        print(f"  (scopes deeper than {depth} are closed; --depth shows more)")


def _node_text(node: Any) -> str:
    dtype, shape = _type_of(node), _shape_of_node(node)
    parts = [printable(node.op), *([dtype] if dtype else []), *([shape] if shape else [])]
    if node.input:
        names = list(node.input[:8]) + (["..."] if len(node.input) > 8 else [])
        parts.append("<- " + ", ".join(map(printable, names)))
    return "  ".join(parts)


def _type_of(node: Any) -> str:
    for key in ("dtype", "T", "DstT", "out_type"):
        if key in node.attr and node.attr[key].WhichOneof("value") == "type":
            return _type_name(node.attr[key].type)
    return ""


def _type_name(number: int) -> str:
    try:
        return dtypes.as_dtype(number).name
    except TypeError:
        return f"type {number}"


def _shape_of_node(node: Any) -> str:
    if "value" in node.attr and node.attr["value"].WhichOneof("value") == "tensor":
        return _shape_of(node.attr["value"].tensor.tensor_shape)
    if "shape" in node.attr and node.attr["shape"].WhichOneof("value") == "shape":
        return _shape_of(node.attr["shape"].shape)
    return ""


def _shape_of(shape: Any) -> str:
    return "unknown" if shape.unknown_rank else shape_text([dim.size for dim in shape.dim])


def _describe(meta: Any, graph: Any, options: Any) -> dict[str, Any]:
    nodes = [node for node in graph.node if matches(options.grep, node.name, node.op)]
    out: dict[str, Any] = {
        "ops": dict(Counter(node.op for node in nodes)),
        "nodes": [
            {"name": n.name, "op": n.op, "inputs": list(n.input), "device": n.device,
             "dtype": _type_of(n), "shape": _shape_of_node(n)}
            for n in nodes
        ],
        "functions": {f.signature.name: len(f.node_def) for f in graph.library.function},
    }  # fmt: skip
    if meta is not None:
        out["tags"] = list(meta.meta_info_def.tags)
        out["collections"] = sorted(meta.collection_def)
        out["signatures"] = {
            key: {
                "inputs": {name: info.name for name, info in signature.inputs.items()},
                "outputs": {name: info.name for name, info in signature.outputs.items()},
            }
            for key, signature in meta.signature_def.items()
        }
    return out


def _constant(node: Any) -> Any:
    tensor = node.attr["value"].tensor
    elements = math.prod(dim.size for dim in tensor.tensor_shape.dim)
    if not 0 <= elements <= _MOST_ELEMENTS:
        raise CommandError(f"the constant '{node.name}' has {elements} elements, too many to show")
    return make_ndarray(tensor)


def _show_values(graphs: list[Any], variables: Tensors | None, options: Any) -> int:
    """Prints variables of a model, and constants."""
    constants = {n.name: n for g in graphs for n in g.node if n.op == "Const"}
    entries = {each.name: each for each in variables.entries} if variables else {}
    values = {}
    for given in options.values:
        name = given.removesuffix(":0")
        if variables is not None and name in entries:
            text = show_tensors.entry_text(entries[name])
            values[name] = (text, variables.read(name))
        elif name in constants:
            text = f"{printable(name)}  {_node_text(constants[name])}"
            values[name] = (text, _constant(constants[name]))
        else:
            near = nearest(name, [*entries, *constants])
            hint = f"; the nearest are {', '.join(map(printable, near))}" if near else ""
            raise CommandError(f"there is no variable or constant '{name}'{hint}")
    show_tensors.print_values(values, options.json)
    return 0
