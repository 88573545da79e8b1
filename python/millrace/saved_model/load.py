"""tf.saved_model.load: objects with their functions and variables from a folder."""

from typing import Any

from millrace import _core
from millrace.core.export import export
from millrace.core.text import as_str, path_to_str
from millrace.core.tracked_data import AutoTrackable
from millrace.graph.default_graph import get_default_graph
from millrace.graph.graph import root_graph
from millrace.saved_model.load_graphs import load_graph
from millrace.saved_model.load_into_graph import GraphLoader
from millrace.saved_model.loader import parse_saved_model
from millrace.saved_model.object_loader import ObjectLoader
from millrace.saved_model.options import LoadOptions


@export(v1="saved_model.load_v2", v2="saved_model.load")
def load(export_dir: Any, tags: Any = None, options: LoadOptions | None = None) -> Any:
    """Loads a SavedModel: what `tf.saved_model.save` wrote, here or in TensorFlow.

    Args:
      export_dir: the folder.
      tags: those of the model; need not be given where it has one graph.
      options: LoadOptions.

    Returns: an object with the attributes of the one that was saved: variables, lists,
    dictionaries, and functions, which take what they were traced for. `signatures` are functions by
    name. A model of TensorFlow 1 gives an object with `signatures`, `variables`, `graph` and
    `prune(feeds, fetches)`. In a graph for sessions variables and tables are those of the graph,
    filled by their initialisers. OSError for a folder without a model, ValueError for tags that it
    does not have and for a damaged one.
    """
    folder = as_str(path_to_str(export_dir))
    model = parse_saved_model(folder)
    meta_graph = _meta_graph(folder, model.meta_graphs, tags)
    options = options or LoadOptions()
    in_session = (
        not _core.executing_eagerly() and not root_graph(get_default_graph())._captures_values
    )
    if in_session and meta_graph.HasField("object_graph_def"):
        root = GraphLoader(folder, meta_graph, options).load()
    else:
        with _core.init_scope():
            if meta_graph.HasField("object_graph_def"):
                root = ObjectLoader(folder, meta_graph, options).load()
            else:
                root = load_graph(folder, meta_graph, options)
    if isinstance(root, AutoTrackable):
        root.tensorflow_version = meta_graph.meta_info_def.tensorflow_version
        root.tensorflow_git_version = meta_graph.meta_info_def.tensorflow_git_version
    return root


def _meta_graph(folder: str, meta_graphs: Any, tags: Any) -> Any:
    """The one that has exactly the tags. ValueError where there is none, or several for no tags."""
    wanted = {tags} if isinstance(tags, str) else tags if tags is None else set(tags)
    available = [sorted(g.meta_info_def.tags) for g in meta_graphs]
    found = [g for g, has in zip(meta_graphs, available, strict=True) if wanted in (None, set(has))]
    if len(found) != 1:
        raise ValueError(
            f"Got an incompatible argument to `tags`: {tags}. The SavedModel at {folder} has "
            f"{len(available)} MetaGraphs with the tags {available}: pass those of one of them."
        )
    return found[0]
