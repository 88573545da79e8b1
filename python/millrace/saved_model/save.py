"""tf.saved_model.save: objects with their functions and variables as a folder."""

import os
from typing import Any

from millrace import _core, protos
from millrace.checkpoint import object_graph
from millrace.checkpoint.object_graph import ObjectGraph
from millrace.core import logging
from millrace.core.export import export
from millrace.core.text import as_str, path_to_str
from millrace.core.trackable import Trackable
from millrace.core.versions import GIT_VERSION, VERSION
from millrace.eager.function import Function
from millrace.io import gfile
from millrace.saved_model import constants
from millrace.saved_model.assets import copy_assets, unused_name
from millrace.saved_model.object_messages import SavedObjects
from millrace.saved_model.options import SaveOptions
from millrace.saved_model.served_graph import ServedGraph
from millrace.saved_model.signature_functions import (
    ATTRIBUTE,
    SignatureMap,
    default_signature,
    signature_map,
)
from millrace.state.asset import Asset

_SHOWN = 5


@export(v1="saved_model.experimental.save", v2="saved_model.save")
def save(
    obj: Any, export_dir: Any, signatures: Any = None, options: SaveOptions | None = None
) -> None:
    """Writes an object with its variables and functions as a SavedModel: a folder that
    `tf.saved_model.load`, TensorFlow and servers of its models read.

    Args:
      obj: a `tf.Module` or another tracked object. What its attributes lead to is saved: modules,
        variables, lists and dictionaries of them, files, and what was traced so far of each
        `tf.function`; those with an input_signature are traced for it.
      export_dir: the folder. A model that is there already is replaced.
      signatures: functions to call by name where the object is not known: a `tf.function` with an
        input_signature or a ConcreteFunction, or a dictionary of them. By default the object's one
        function that can be one.
      options: SaveOptions.

    ValueError for what cannot be saved; AssertionError for a function that uses a variable which
    the object does not lead to, and in a `tf.function`.
    """
    if not _core.executing_eagerly():
        raise AssertionError(
            "tf.saved_model.save is not supported inside a traced @tf.function. Move the call to "
            "the outer eagerly-executed context."
        )
    if not isinstance(obj, Trackable):
        raise ValueError(
            "Expected an object of type `Trackable`, such as `tf.Module` or a subclass of the "
            f"`Trackable` class, for export. Got {obj} with type {type(obj)}."
        )
    options = options or SaveOptions()
    folder = as_str(path_to_str(export_dir))
    chosen: list[SignatureMap] = []

    def attached(children: dict[str, Any]) -> dict[str, Any]:
        _check_no_other_signatures(obj, children)
        chosen.append(signature_map(signatures if signatures is not None
                                    else default_signature(children)))  # fmt: skip
        return {ATTRIBUTE: chosen[0]}

    objects = ObjectGraph(obj, attached, "savedmodel")
    _say_untraced(objects)
    saved = SavedObjects(objects)
    gfile.MakeDirs(os.path.join(folder, constants.VARIABLES_DIRECTORY))
    prefix = os.path.join(folder, constants.VARIABLES_DIRECTORY, constants.VARIABLES_FILENAME)
    object_graph.write(prefix, objects)
    model = protos.SavedModel(saved_model_schema_version=constants.SAVED_MODEL_SCHEMA_VERSION)
    model.meta_graphs.append(_meta_graph(saved, chosen[0], folder, options))
    path = os.path.join(folder, constants.SAVED_MODEL_FILENAME_PB)
    _core.write_file_atomically(path, model.SerializeToString(deterministic=True))
    text = os.path.join(folder, constants.SAVED_MODEL_FILENAME_PBTXT)
    if gfile.Exists(text):
        gfile.Remove(text)


def _check_no_other_signatures(obj: Any, children: dict[str, Any]) -> None:
    known = children.get(ATTRIBUTE)
    if known is not None and not isinstance(known, SignatureMap):
        raise ValueError(
            f"Exporting an object {obj!r} which has an attribute named '{ATTRIBUTE}'. This is a "
            "reserved attribute used to store SavedModel signatures in objects which come from "
            f"`tf.saved_model.load`. Delete this attribute (e.g. `del obj.{ATTRIBUTE}`) before "
            "saving if this shadowing is acceptable."
        )


def _say_untraced(objects: ObjectGraph) -> None:
    names = [
        target._name for node, target in enumerate(objects.objects)
        if isinstance(target, Function) and not objects.children[node]
    ]  # fmt: skip
    if names:
        logging.warning(
            "Found untraced functions such as %s while saving (showing %d of %d). These functions "
            "will not be directly callable after loading.",
            ", ".join(names[:_SHOWN]), min(_SHOWN, len(names)), len(names),
        )  # fmt: skip


def _meta_graph(
    saved: SavedObjects, signatures: SignatureMap, folder: str, options: SaveOptions
) -> Any:
    checkpoint, _ = saved.objects.message()
    served = ServedGraph(saved, checkpoint)
    out = served.meta_graph(signatures)
    info = out.meta_info_def
    info.tags.extend([constants.SERVING, *_texts(options.extra_tags)])
    info.tensorflow_version, info.tensorflow_git_version = VERSION, GIT_VERSION
    for alias, function in options.function_aliases.items():
        for known in function._list_all_concrete_functions():
            info.function_aliases[known.name] = alias
    files = _copy_assets(saved, folder)
    numbers = {}
    for node, name in files.items():
        numbers[node] = len(out.asset_file_def)
        asset = out.asset_file_def.add(filename=name)
        asset.tensor_info.name = served.asset_feeds[node]
    policy = options.experimental_variable_policy
    out.object_graph_def.CopyFrom(saved.message(numbers, served.operations, policy))
    return out


def _texts(tags: Any) -> list[str]:
    if tags is None:
        return []
    return [tags] if isinstance(tags, str) else sorted(tags)


def _copy_assets(saved: SavedObjects, folder: str) -> dict[int, str]:
    """Copies the files into the model. Gives their names there, by node."""
    paths: dict[str, str] = {}
    names = {}
    for node, target in enumerate(saved.objects.objects):
        if isinstance(target, Asset):
            path = as_str(target.asset_path.numpy())
            names[node] = unused_name(path, paths)
            paths[names[node]] = path
    copy_assets(paths, folder, set())
    return names
