"""Collections of graphs as messages, and back."""

from typing import Any, Callable

import numpy as np

import millrace.checkpoint.control_flow_contexts
import millrace.state.queue_runner
import millrace.state.variables  # noqa: F401 (registers their collections)
from millrace import protos
from millrace.core import logging
from millrace.graph.graph import Graph
from millrace.graph.keys import GraphKeys, prepend_name_scope, strip_name_scope
from millrace.graph.proto_functions import proto_functions

UNBOUND = "$unbound_inputs_"


def belongs(element: Any, export_scope: str | None, exclude_nodes: Any = None) -> bool:
    """Whether something with a name (or a name) is part of what is exported; what has none is."""
    name = element if isinstance(element, str) else getattr(element, "name", None)
    if name is None:
        return True
    if exclude_nodes and name.partition(":")[0] in exclude_nodes:
        return False
    return name.startswith(UNBOUND) or not export_scope or name.startswith(export_scope)


def _kind(value: Any) -> str:
    if isinstance(value, (str, bytes)):
        return "bytes_list"
    if isinstance(value, (int, np.integer)):
        return "int64_list"
    if isinstance(value, (float, np.floating)):
        return "float_list"
    return "any_list" if isinstance(value, protos.Any) else "node_list"


def add_collection_def(
    meta_graph_def: Any, key: Any, graph: Graph, export_scope: str | None = None,
    exclude_nodes: Any = None, override_contents: Any = None,
) -> None:  # fmt: skip
    """Adds the collection `key` of a graph to a MetaGraphDef; `override_contents` in its place.

    A collection that cannot be a message (its key is no string, its values are of several kinds) is
    left out, with a warning.
    """
    if not isinstance(key, (str, bytes)):
        logging.warning(
            "Only collections with string type keys will be serialized. This key has %s", type(key)
        )
        return
    values = override_contents or graph.get_collection(key)
    values = [v for v in values if belongs(v, export_scope, exclude_nodes)]
    if not values:
        return
    collection = protos.CollectionDef()
    try:
        _fill(collection, key, values, export_scope)
    except (AttributeError, TypeError, ValueError) as error:
        logging.warning(
            "Issue encountered when serializing %s.\nType is unsupported, or the types of the "
            "items don't match field type in CollectionDef. Note this is a warning and probably "
            "safe to ignore.\n%s", key, error,
        )  # fmt: skip
        return
    meta_graph_def.collection_def[key].CopyFrom(collection)


def _fill(collection: Any, key: Any, values: list[Any], export_scope: str | None) -> None:
    functions = proto_functions(key)
    if functions is not None:
        collection.bytes_list.SetInParent()
        for value in values:
            message = functions.to_proto(value, export_scope=export_scope)
            if message is not None:
                collection.bytes_list.value.append(message.SerializeToString())
        return
    kind = _kind(values[0])
    field = getattr(collection, kind)
    if kind == "node_list":
        names = [v.name for v in values]
        field.value.extend([strip_name_scope(name, export_scope) for name in names])
    elif kind == "bytes_list":
        field.value.extend([v.encode() if isinstance(v, str) else v for v in values])
    else:
        field.value.extend(values)


def restore_collections(
    graph: Graph, meta_graph_def: Any, scope: str, wanted: Callable[[str], bool]
) -> None:
    """Adds the collections of a MetaGraphDef to the default graph, into which its nodes were
    imported below `scope`.

    ValueError for a member that is not what its collection holds, KeyError for a node that is not
    in the graph.
    """
    made: dict[bytes, Any] = {}  # one variable is one object, in however many collections
    trainable = _variables_know_trainable(meta_graph_def.meta_info_def.tensorflow_version)
    first = GraphKeys.TRAINABLE_VARIABLES
    for key in sorted(meta_graph_def.collection_def, key=lambda k: (k != first, k)):
        if not wanted(key):
            continue
        collection = meta_graph_def.collection_def[key]
        kind = collection.WhichOneof("kind")
        functions = proto_functions(key)
        if kind is None:
            logging.error("Cannot identify data type for collection %s. Skipping.", key)
        elif functions is None or kind != "bytes_list":
            _restore_values(graph, key, kind, getattr(collection, kind).value, scope)
        else:
            for data in collection.bytes_list.value:
                member = made.get(data) if functions.proto_type is protos.VariableDef else None
                if member is None:
                    message = _parsed(functions.proto_type, data, key)
                    if not trainable and key in GraphKeys._VARIABLE_COLLECTIONS:
                        message.trainable = key == first
                    member = made[data] = functions.from_proto(message, import_scope=scope)
                graph.add_to_collection(key, member)


def _variables_know_trainable(version: str) -> bool:
    """Whether messages of variables say if these are trainable: from TensorFlow 1.9 on."""
    numbers = [part for part in version.split(".")[:2] if part.isdigit()]
    return len(numbers) < 2 or (int(numbers[0]), int(numbers[1])) >= (1, 9)


def _parsed(proto_type: Any, data: bytes, key: str) -> Any:
    try:
        return proto_type.FromString(data)
    except protos.DecodeError as error:
        raise ValueError(
            f"The collection {key!r} of the MetaGraph holds something else than "
            f"{proto_type.DESCRIPTOR.name} messages: {error}"
        ) from None


def _restore_values(graph: Graph, key: str, kind: str, values: Any, scope: str) -> None:
    for value in values:
        if kind == "node_list":
            value = graph.as_graph_element(prepend_name_scope(value, scope))
        elif kind == "int64_list":
            value = int(value)
        elif kind == "bytes_list" and scope:
            try:
                value = prepend_name_scope(value.decode(), scope)
            except UnicodeDecodeError:  # no name, then
                pass
        graph.add_to_collection(key, value)
