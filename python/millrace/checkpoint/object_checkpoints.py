"""Checkpoints that are written by objects, as TensorFlow 2's are."""

from millrace import protos
from millrace.checkpoint.reader import NewCheckpointReader
from millrace.core import errors

_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"


def names_to_keys_of(save_path: str) -> dict[str, str] | None:
    """{name of a variable when it was written: its name in the checkpoint}; None for a checkpoint
    that is not by objects, or cannot be read as one."""
    try:
        data = NewCheckpointReader(save_path).get_tensor(_OBJECT_GRAPH)
        graph = protos.TrackableObjectGraph.FromString(data)
    except (errors.OpError, protos.DecodeError, TypeError):
        return None
    return {a.full_name: a.checkpoint_key for node in graph.nodes for a in node.attributes}
