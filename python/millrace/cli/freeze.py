"""`millrace freeze`: a graph whose variables are constants."""

from __future__ import annotations

import os
from typing import Any

from millrace import _core, protos
from millrace.checkpoint.import_meta_graph import import_meta_graph
from millrace.cli import command, kinds
from millrace.cli.messages import read_message
from millrace.core.suggest import nearest
from millrace.core.text import printable
from millrace.graph.graph import Graph
from millrace.graph.graph_util import convert_variables_to_constants
from millrace.graph.importer import import_graph_def
from millrace.graph.session import Session
from millrace.saved_model.loader import SavedModelLoader

_ABOUT = """\
Writes the part of a graph that its outputs need, with variables as constants, to
OUT.pb, a GraphDef. FROM is a checkpoint with its MetaGraph (PREFIX.meta), or a
SavedModel.
"""


def main(arguments: list[str]) -> int:
    """Runs the command; gives its exit code."""
    parser = command.Parser("freeze", _ABOUT)
    parser.add_argument("source", metavar="FROM")
    parser.add_argument("target", metavar="OUT.pb")
    parser.add_argument(
        "--output", metavar="NAMES",
        help="operations to keep, with commas between; of a SavedModel, those of its signature",
    )  # fmt: skip
    parser.add_argument(
        "--tags", default="serve", help="of the SavedModel's graph, with commas between"
    )
    parser.add_argument(
        "--signature", default="serving_default", help="of the SavedModel, whose outputs to keep"
    )
    return command.run(parser, _freeze, arguments)


def _freeze(options: Any) -> int:
    found = kinds.find(options.source)
    outputs = [name.partition(":")[0] for name in (options.output or "").split(",") if name]
    graph = Graph()
    with graph.as_default(), Session(graph=graph) as session:
        if found.kind == kinds.SAVED_MODEL:
            tags = [tag for tag in options.tags.split(",") if tag]
            meta = SavedModelLoader(found.path).load(session, tags)
            outputs = outputs or _signature_outputs(meta, options.signature)
        elif found.kind == kinds.CHECKPOINT:
            _load_checkpoint(session, found.path)
        else:
            raise command.CommandError(f"{options.source}: is no checkpoint and no SavedModel")
        if not outputs:
            raise command.CommandError("--output has to say which operations to keep")
        definition = graph.as_graph_def()
        _check_names(definition, outputs)
        frozen = _frozen(session, definition, outputs)
    _core.write_file_atomically(options.target, frozen.SerializeToString())
    nodes = command.count(len(frozen.node), "node")
    constants = command.count(sum(node.op == "Const" for node in frozen.node), "constant")
    target = printable(options.target)
    print(f"{target}: {nodes}, {constants}, {command.size(frozen.ByteSize())}")
    return 0


def _load_checkpoint(session: Any, prefix: str) -> None:
    path = prefix + ".meta"
    if not os.path.exists(path):
        raise command.CommandError(f"{path}: there is no such file, and a checkpoint has no graph")
    meta = read_message(path)
    if not isinstance(meta, protos.MetaGraphDef):
        raise command.CommandError(f"{path}: is a {type(meta).__name__}, not a MetaGraph")
    saver = import_meta_graph(meta, clear_devices=True)
    if saver is not None:
        saver.restore(session, prefix)


def _signature_outputs(meta: Any, key: str) -> list[str]:
    if key not in meta.signature_def:
        known = ", ".join(sorted(meta.signature_def)) or "none"
        raise command.CommandError(f"there is no signature '{key}', the model has: {known}")
    infos = meta.signature_def[key].outputs
    return sorted({infos[name].name.partition(":")[0] for name in infos})


def _check_names(definition: Any, outputs: list[str]) -> None:
    names = {node.name for node in definition.node}
    for name in outputs:
        if name not in names:
            near = ", ".join(nearest(name, names))
            hint = f"; the nearest are {near}" if near else ""
            raise command.CommandError(f"there is no operation '{name}'{hint}")


def _frozen(session: Any, definition: Any, outputs: list[str]) -> Any:
    """The graph, after a look at whether it can be used: one that writes variables cannot."""
    try:
        frozen = convert_variables_to_constants(session, definition, outputs)
        with Graph().as_default():
            import_graph_def(frozen, name="")
    except ValueError as error:
        raise command.CommandError(f"the graph cannot be frozen: {command.reason(error)}") from None
    return frozen
