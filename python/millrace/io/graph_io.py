"""Graphs as files."""

import os
from typing import Any

from millrace import _core
from millrace.core.export import export
from millrace.graph.graph import Graph
from millrace.io import gfile


@export(v1=("train.write_graph", "io.write_graph"), v2="io.write_graph")
def write_graph(graph_or_graph_def: Any, logdir: str, name: str, as_text: bool = True) -> str:
    """Writes a Graph or a GraphDef (or another message) to the file `name` in the folder `logdir`,
    whole or not at all. Gives its path.

    `as_text`: in the text format of messages, else in binary.
    """
    definition = graph_or_graph_def
    if isinstance(definition, Graph):
        definition = definition.as_graph_def()
    if logdir and not gfile.IsDirectory(logdir):
        gfile.MakeDirs(logdir)
    path = os.path.join(logdir, name)
    data = str(definition).encode() if as_text else definition.SerializeToString()
    _core.write_file_atomically(path, data)
    return path
