"""Loading SavedModels into sessions."""

import os
from typing import Any

from millrace import protos
from millrace.checkpoint.import_meta_graph import import_meta_graph_with_return_elements
from millrace.checkpoint.saver import Saver
from millrace.core import logging
from millrace.core.export import export
from millrace.core.text import as_str, path_to_str
from millrace.graph.graph import Graph
from millrace.graph.keys import prepend_name_scope
from millrace.io import gfile
from millrace.saved_model import constants
from millrace.saved_model.assets import asset_feeds
from millrace.state.variable_lists import _all_saveable_objects


@export(
    v1=("saved_model.contains_saved_model", "saved_model.maybe_saved_model_directory",
        "saved_model.loader.maybe_saved_model_directory"),
    v2="saved_model.contains_saved_model",
)  # fmt: skip
def maybe_saved_model_directory(export_dir: Any) -> bool:
    """Whether a folder has the file of a SavedModel."""
    return _files(export_dir) != (None, None)


def _files(export_dir: Any) -> tuple[str | None, str | None]:
    """The binary and the text file of a model; None for one that is not there."""
    folder = as_str(path_to_str(export_dir))
    names = (constants.SAVED_MODEL_FILENAME_PB, constants.SAVED_MODEL_FILENAME_PBTXT)
    paths = [os.path.join(folder, name) for name in names]
    binary, text = (path if gfile.Exists(path) else None for path in paths)
    return binary, text


def parse_saved_model(export_dir: Any) -> Any:
    """The SavedModel message of a folder. OSError when there is none, or it cannot be read."""
    binary, text = _files(export_dir)
    path = binary or text
    if path is None:
        raise OSError(
            f"SavedModel file does not exist at: {export_dir}/"
            f"{{{constants.SAVED_MODEL_FILENAME_PBTXT}|{constants.SAVED_MODEL_FILENAME_PB}}}"
        )
    with gfile.GFile(path, "rb") as file:
        data = file.read()
    try:
        if binary:
            return protos.SavedModel.FromString(data)
        return protos.text_format.Parse(data.decode(), protos.SavedModel())
    except (protos.DecodeError, UnicodeDecodeError) as error:
        raise OSError(f"Cannot parse file {path}: {error}.") from None


@export(v1=("saved_model.load", "saved_model.loader.load"))
def load(
    sess: Any, tags: Any, export_dir: Any, import_scope: str | None = None, **saver_kwargs: Any
) -> Any:
    """Loads a SavedModel into a session: adds the graph, restores the variables, runs what makes it
    ready.

    Args:
      tags: those of the graph to load, exactly.
      import_scope: the scope to add the graph below. The message that is returned is as it is in
        the file.
      saver_kwargs: for `tf.train.import_meta_graph`.

    Returns: the MetaGraphDef, with the signatures. RuntimeError for tags that no graph has, OSError
    for a folder without a model.
    """
    return SavedModelLoader(export_dir).load(sess, tags, import_scope, **saver_kwargs)


class SavedModelLoader:
    """Loads a SavedModel step by step, in the order in which `load` does."""

    def __init__(self, export_dir: Any):
        self._export_dir = as_str(path_to_str(export_dir))
        self._saved_model = parse_saved_model(self._export_dir)

    @property
    def export_dir(self) -> str:
        """The folder."""
        return self._export_dir

    @property
    def variables_path(self) -> str:
        """The prefix of the checkpoint in it."""
        return os.path.join(
            self._export_dir, constants.VARIABLES_DIRECTORY, constants.VARIABLES_FILENAME
        )

    @property
    def saved_model(self) -> Any:
        """The SavedModel message."""
        return self._saved_model

    def get_meta_graph_def_from_tags(self, tags: Any) -> Any:
        """The graph that has exactly these tags. RuntimeError when there is none."""
        wanted = {tags} if isinstance(tags, str) else set(tags)
        available = [set(g.meta_info_def.tags) for g in self._saved_model.meta_graphs]
        if wanted not in available:
            raise RuntimeError(
                f"MetaGraphDef associated with tags {str(tags).strip('[]')} could not be found in "
                f"SavedModel, with available tags '{available}'."
            )
        return self._saved_model.meta_graphs[available.index(wanted)]

    def load_graph(
        self, graph: Graph, tags: Any, import_scope: str | None = None, **saver_kwargs: Any
    ) -> tuple[Saver | None, Any]:
        """Adds the graph. Gives its saver, or None, and the elements asked for."""
        with graph.as_default():
            return import_meta_graph_with_return_elements(
                self.get_meta_graph_def_from_tags(tags), import_scope=import_scope, **saver_kwargs
            )

    def restore_variables(
        self, sess: Any, saver: Saver | None, import_scope: str | None = None
    ) -> None:
        """Restores the variables. ValueError where there are some, but no saver."""
        with sess.graph.as_default():
            if saver is not None:
                # A graph without variables may have a saver, and no checkpoint.
                if gfile.Exists(self.variables_path + ".index") or _all_saveable_objects():
                    saver.restore(sess, self.variables_path)
            elif _all_saveable_objects(scope=import_scope):
                raise ValueError("The graph has variables, but no saver to restore them with.")
            else:
                logging.info(
                    "The specified SavedModel has no variables; no checkpoints were restored."
                )

    def run_init_ops(self, sess: Any, tags: Any, import_scope: str | None = None) -> None:
        """Runs what makes the model ready."""
        meta_graph_def = self.get_meta_graph_def_from_tags(tags)
        feeds = asset_feeds(self._export_dir, meta_graph_def, import_scope)
        name = init_op_name(meta_graph_def)
        if name is not None:
            sess.run(prepend_name_scope(name, import_scope), feed_dict=feeds)

    def load(
        self, sess: Any, tags: Any, import_scope: str | None = None, **saver_kwargs: Any
    ) -> Any:
        """Loads the model; see `tf.saved_model.loader.load`."""
        saver, _ = self.load_graph(sess.graph, tags, import_scope, **saver_kwargs)
        self.restore_variables(sess, saver, import_scope)
        self.run_init_ops(sess, tags, import_scope)
        return self.get_meta_graph_def_from_tags(tags)


def init_op_name(meta_graph_def: Any) -> str | None:
    """The name of the operation that makes a model ready, or None. RuntimeError for several."""
    key = constants.INIT_OP_SIGNATURE_KEY
    if key in meta_graph_def.signature_def:
        outputs = meta_graph_def.signature_def[key].outputs
        if key not in outputs:
            raise RuntimeError(f"The signature {key!r} of the model has no output {key!r}.")
        return outputs[key].name
    for key in (constants.MAIN_OP_KEY, constants.LEGACY_INIT_OP_KEY):
        if key in meta_graph_def.collection_def:
            names = meta_graph_def.collection_def[key].node_list.value
            if len(names) != 1:
                raise RuntimeError(
                    f"Expected exactly one SavedModel init op. Found {len(names)}: {list(names)}."
                )
            return names[0]
    return None
