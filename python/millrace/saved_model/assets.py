"""Files that a model needs, such as vocabularies: they travel with it."""

import os
from typing import Any

from millrace import protos
from millrace.core import logging
from millrace.core.text import as_str
from millrace.graph.default_graph import get_default_graph
from millrace.graph.keys import prepend_name_scope
from millrace.graph.static_value import constant_value
from millrace.graph.tensor import SymbolicTensor
from millrace.io import gfile
from millrace.saved_model import constants
from millrace.saved_model.signatures import build_tensor_info


def collect_assets(asset_tensors: Any) -> dict[str, str]:
    """Adds the tensors that hold paths of assets to the graph's collection of them.

    Returns: {name in the model: path of the file}. ValueError for a tensor that is no constant
    string.
    """
    paths: dict[str, str] = {}
    graph = get_default_graph()
    for tensor in asset_tensors or ():
        path = _asset_path(tensor)
        if not path:
            raise ValueError(f"Invalid asset filepath tensor {tensor}")
        name = unused_name(path, paths)
        paths[name] = path
        asset = protos.AssetFileDef(filename=name)
        asset.tensor_info.name = build_tensor_info(tensor).name
        packed = protos.Any()
        packed.Pack(asset)
        graph.add_to_collection(constants.ASSETS_KEY, packed)
    return paths


def _asset_path(tensor: Any) -> str:
    if not isinstance(tensor, SymbolicTensor):
        raise TypeError(f"Asset path tensor {tensor} must be a Tensor.")
    if tensor.op.type != "Const":
        raise TypeError(f"Only constants are supported for asset paths, got {tensor.op.type}.")
    value = constant_value(tensor)
    if value is None or value.size != 1 or not isinstance(value.item(), bytes):
        raise ValueError(f"Asset path tensor {tensor} must hold one string.")
    return as_str(value.item())


def unused_name(path: str, taken: dict[str, str]) -> str:
    """The name of a file in a model: its own, numbered where that is another file's."""
    base = os.path.basename(path)
    name, number = base, 1
    while taken.get(name, path) != path:
        name = f"{base}_{number}"
        number += 1
    return name


def copy_assets(paths: dict[str, str], export_dir: str, done: set[str]) -> None:
    """Copies assets into a model; those whose names are in `done` are there already."""
    folder = os.path.join(export_dir, constants.ASSETS_DIRECTORY)
    for name, path in paths.items():
        if name in done:
            continue
        if not gfile.IsDirectory(folder):
            gfile.MakeDirs(folder)
        gfile.Copy(path, os.path.join(folder, name), overwrite=True)
        done.add(name)
    if paths:
        logging.info("Assets written to: %s", folder)


def asset_feeds(export_dir: str, meta_graph_def: Any, scope: str | None) -> dict[str, str]:
    """{name of a tensor: path of the asset that it is to hold} for a model that is loaded."""
    assets = list(meta_graph_def.asset_file_def)
    if not assets and constants.ASSETS_KEY in meta_graph_def.collection_def:
        for packed in meta_graph_def.collection_def[constants.ASSETS_KEY].any_list.value:
            asset = protos.AssetFileDef()
            if not packed.Unpack(asset):
                raise ValueError(f"The model's list of assets holds a {packed.type_url!r}")
            assets.append(asset)
    out = {}
    for asset in assets:
        path = asset_path(export_dir, asset.filename)
        out[prepend_name_scope(asset.tensor_info.name, scope)] = path
    return out


def asset_path(export_dir: str, filename: str) -> str:
    """The path of an asset of a model. ValueError for one that would be elsewhere."""
    if os.path.isabs(filename) or ".." in filename.split("/"):
        raise ValueError(f"The asset {filename!r} is not in the model's own folder")
    return os.path.join(export_dir, constants.ASSETS_DIRECTORY, filename)
