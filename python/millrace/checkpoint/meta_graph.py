"""MetaGraphs: a graph with its collections and its saver, as one message or file."""

import os
from typing import Any, Callable

from millrace import _core, protos
from millrace.checkpoint.collection_defs import add_collection_def, belongs, restore_collections
from millrace.checkpoint.foreign_functions import with_fit_functions
from millrace.checkpoint.scoped_graph import (
    graph_def_of_scope,
    saver_nodes_besides,
    with_known_names,
)
from millrace.core.versions import GIT_VERSION, VERSION
from millrace.graph.default_graph import get_default_graph
from millrace.graph.graph import Graph
from millrace.graph.graph_util import stripped_op_list_for_graph
from millrace.graph.importer import import_graph_def
from millrace.graph.keys import GraphKeys, strip_name_scope
from millrace.io import gfile
from millrace.io.graph_io import write_graph


def create_meta_graph_def(
    meta_info_def: Any = None, graph_def: Any = None, saver_def: Any = None,
    collection_list: Any = None, graph: Graph | None = None, export_scope: str | None = None,
    exclude_nodes: Any = None, clear_extraneous_savers: bool = False,
    strip_default_attrs: bool = False,
) -> Any:  # fmt: skip
    """A MetaGraphDef of what is given, and of the graph's own where nothing is.

    TypeError for arguments that are no messages of their kind.
    """
    for name, value, kind in (
        ("graph", graph, Graph),
        ("meta_info_def", meta_info_def, protos.MetaGraphDef.MetaInfoDef),
        ("graph_def", graph_def, protos.GraphDef),
        ("saver_def", saver_def, protos.SaverDef),
    ):
        if value is not None and not isinstance(value, kind):
            raise TypeError(f"{name} must be of type {kind.__name__}, got {type(value)}.")
    graph = get_default_graph() if graph is None else graph
    out = protos.MetaGraphDef()
    out.graph_def.CopyFrom(graph.as_graph_def(add_shapes=True) if graph_def is None else graph_def)
    for node in out.graph_def.node:  # where a program made it is no part of a graph
        if "_mr_origin" in node.attr:
            del node.attr["_mr_origin"]
    if meta_info_def is not None:
        out.meta_info_def.CopyFrom(meta_info_def)
    out.meta_info_def.tensorflow_version = VERSION
    out.meta_info_def.tensorflow_git_version = GIT_VERSION
    if not out.meta_info_def.HasField("stripped_op_list"):
        out.meta_info_def.stripped_op_list.MergeFrom(stripped_op_list_for_graph(out.graph_def))
    if strip_default_attrs:
        strip_default_valued_attrs(out)
    if saver_def is not None:
        out.saver_def.CopyFrom(saver_def)
    keys = graph.get_all_collection_keys() if collection_list is None else collection_list
    for key in keys:
        savers = None
        if key == GraphKeys.SAVERS and clear_extraneous_savers:
            savers = [s for s in graph.get_collection(key) if s.saver_def == saver_def]
            if not savers:
                continue
        add_collection_def(out, key, graph, export_scope, exclude_nodes, savers)
    return out


def strip_default_valued_attrs(meta_graph_def: Any) -> None:
    """Leaves out the attributes that have the defaults of their ops, and says so in the message."""
    known: dict[str, dict[str, Any]] = {}
    names = set(_core.op_names())
    library = meta_graph_def.graph_def.library.function
    for nodes in (meta_graph_def.graph_def.node, *(f.node_def for f in library)):
        for node in nodes:
            if node.op not in names:
                continue
            if node.op not in known:
                op = protos.OpDef.FromString(_core.op_def(node.op))
                known[node.op] = {
                    a.name: a.default_value for a in op.attr if a.HasField("default_value")
                }
            for name, default in known[node.op].items():
                if name in node.attr and node.attr[name] == default:
                    del node.attr[name]
    meta_graph_def.meta_info_def.stripped_default_attrs = True


def export_scoped_meta_graph(
    filename: str | None = None, graph_def: Any = None, graph: Graph | None = None,
    export_scope: str | None = None, as_text: bool = False,
    unbound_inputs_col_name: str | None = "unbound_inputs", clear_devices: bool = False,
    saver_def: Any = None, clear_extraneous_savers: bool = False,
    strip_default_attrs: bool = False, save_debug_info: bool = False, **kwargs: Any,
) -> tuple[Any, dict[str, Any]]:  # fmt: skip
    """A MetaGraphDef of what is below a scope (of all, without one), and its variables by name.

    What nodes take from outside of the scope are inputs with the prefix "$unbound_inputs_", named
    in the collection `unbound_inputs_col_name`; who imports the graph maps them.
    """
    del save_debug_info
    graph = get_default_graph() if graph is None else graph
    exclude = None
    if export_scope or clear_extraneous_savers or clear_devices:
        whole = graph.as_graph_def(add_shapes=True) if graph_def is None else graph_def
        if clear_extraneous_savers:
            exclude = saver_nodes_besides(whole, saver_def)
        graph_def, unbound = graph_def_of_scope(whole, export_scope, exclude, clear_devices)
        if unbound_inputs_col_name:
            graph.clear_collection(unbound_inputs_col_name)
            graph.get_collection_ref(unbound_inputs_col_name).extend(unbound)
    variables = graph.get_collection(GraphKeys.GLOBAL_VARIABLES, scope=export_scope)
    var_list = {
        strip_name_scope(v.name, export_scope): v
        for v in variables
        if belongs(v, export_scope, exclude)
    }
    out = create_meta_graph_def(
        graph_def=graph_def, graph=graph, export_scope=export_scope, exclude_nodes=exclude,
        clear_extraneous_savers=clear_extraneous_savers, saver_def=saver_def,
        strip_default_attrs=strip_default_attrs, **kwargs,
    )  # fmt: skip
    if filename:
        write_graph(out, os.path.dirname(filename), os.path.basename(filename), as_text=as_text)
    return out, var_list


def read_meta_graph_file(filename: str) -> Any:
    """The MetaGraphDef in a file, binary or text.

    OSError when there is no file of that name, or it holds something else.
    """
    if not gfile.Exists(filename):
        raise OSError(f"File {filename} does not exist.")
    with gfile.GFile(filename, "rb") as file:
        data = file.read()
    return parsed(protos.MetaGraphDef, data, filename)


def parsed(message_type: Any, data: bytes, filename: str) -> Any:
    """A message from a file's bytes, binary or text. OSError when they are neither."""
    try:
        return message_type.FromString(data)
    except protos.DecodeError:
        pass
    try:
        return protos.text_format.Parse(data.decode(), message_type())
    except (protos.DecodeError, UnicodeDecodeError) as error:
        raise OSError(f"Cannot parse file {filename}: {error}.") from None


def _every_collection(key: str) -> bool:
    del key
    return True


def import_scoped_meta_graph(*args: Any, **kwargs: Any) -> dict[str, Any]:
    """As `import_scoped_meta_graph_with_return_elements`, for the variables alone."""
    return import_scoped_meta_graph_with_return_elements(*args, **kwargs)[0]


def import_scoped_meta_graph_with_return_elements(
    meta_graph_or_file: Any, clear_devices: bool = False, graph: Graph | None = None,
    import_scope: str | None = None, input_map: Any = None,
    unbound_inputs_col_name: str | None = "unbound_inputs",
    restore_collections_predicate: Callable[[str], bool] = _every_collection,
    return_elements: Any = None,
) -> tuple[dict[str, Any], list[Any] | None]:  # fmt: skip
    """Adds a MetaGraph to a graph (the default one), below a scope.

    Args:
      restore_collections_predicate: says of the name of a collection whether to restore it.
      return_elements: names of operations and tensors to return.

    Returns: the variables by their names in the MetaGraph, and the elements asked for. ValueError
    for a graph with unbound inputs that are not in `input_map`, and for what is no graph.
    """
    meta_graph_def = meta_graph_or_file
    if not isinstance(meta_graph_def, protos.MetaGraphDef):
        meta_graph_def = read_meta_graph_file(meta_graph_or_file)
    _check_unbound(meta_graph_def, unbound_inputs_col_name, input_map)
    graph = get_default_graph() if graph is None else graph
    with graph.as_default():
        producer = None
        if meta_graph_def.meta_info_def.HasField("stripped_op_list"):
            producer = meta_graph_def.meta_info_def.stripped_op_list
        if clear_devices:
            for node in meta_graph_def.graph_def.node:
                node.device = ""
        scope = graph.unique_name(import_scope, False) if import_scope else graph._scope
        graph_def = with_fit_functions(graph, meta_graph_def.graph_def)
        graph_def, input_map = with_known_names(graph_def, input_map)
        elements = import_graph_def(
            graph_def, name=import_scope or scope, input_map=input_map,
            producer_op_list=producer, return_elements=return_elements,
        )  # fmt: skip
        restore_collections(
            graph, meta_graph_def, scope,
            lambda key: key != unbound_inputs_col_name and restore_collections_predicate(key),
        )  # fmt: skip
    variables = graph.get_collection(GraphKeys.GLOBAL_VARIABLES, scope=scope)
    return {strip_name_scope(v.name, scope): v for v in variables}, elements


def _check_unbound(meta_graph_def: Any, collection: str | None, input_map: Any) -> None:
    if not collection or collection not in meta_graph_def.collection_def:
        return
    names = [n.decode() for n in meta_graph_def.collection_def[collection].bytes_list.value]
    given = list(input_map or ())
    if names and sorted(names) != sorted(given):
        missing = ",".join(name for name in names if name not in given)
        raise ValueError(
            f"Graph contains unbound inputs: {missing}. Must provide these inputs through "
            "input_map."
        )


def copy_scoped_meta_graph(
    from_scope: str, to_scope: str, from_graph: Graph | None = None, to_graph: Graph | None = None
) -> dict[str, Any]:
    """Copies what is below a scope to another scope or graph. Gives the variables of the copy."""
    from_graph = get_default_graph() if from_graph is None else from_graph
    to_graph = get_default_graph() if to_graph is None else to_graph
    if from_graph is to_graph and from_scope == to_scope:
        raise ValueError(
            "'from_scope' and 'to_scope' need to be different when performing copy in the same "
            f"graph. Both are {from_scope!r}."
        )
    exported, _ = export_scoped_meta_graph(export_scope=from_scope, graph=from_graph)
    return import_scoped_meta_graph(exported, graph=to_graph, import_scope=to_scope)
