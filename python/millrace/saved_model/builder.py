"""Writing SavedModels."""

import os
from typing import Any

from millrace import _core, protos
from millrace.checkpoint.saver import Saver
from millrace.core import logging
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.core.text import as_str, path_to_str
from millrace.graph.default_graph import get_default_graph
from millrace.graph.keys import GraphKeys
from millrace.graph.operation import Operation
from millrace.io import gfile
from millrace.saved_model import constants
from millrace.saved_model.assets import collect_assets, copy_assets
from millrace.saved_model.signatures import predict_signature_def
from millrace.state.variable_lists import _all_saveable_objects


@export(v1=("saved_model.Builder", "saved_model.builder.SavedModelBuilder"))
class SavedModelBuilder:
    """Writes a SavedModel to a folder: the variables with a first graph, then other graphs of the
    same variables, then `save()`.

    AssertionError when the folder is there and not empty.
    """

    def __init__(self, export_dir: Any):
        self._export_dir = as_str(path_to_str(export_dir))
        self._saved_model = protos.SavedModel(
            saved_model_schema_version=constants.SAVED_MODEL_SCHEMA_VERSION
        )
        self._has_saved_variables = False
        self._saved_assets: set[str] = set()
        if not gfile.Exists(self._export_dir):
            gfile.MakeDirs(self._export_dir)
        elif gfile.ListDirectory(self._export_dir):
            raise AssertionError(
                f"Export directory {self._export_dir} already exists, and isn't empty. Please "
                "choose a different export directory, or delete all the contents of the specified "
                "directory."
            )

    def add_meta_graph_and_variables(
        self, sess: Any, tags: Any, signature_def_map: Any = None, assets_collection: Any = None,
        legacy_init_op: Any = None, clear_devices: bool = False, main_op: Any = None,
        strip_default_attrs: bool = False, saver: Saver | None = None,
    ) -> None:  # fmt: skip
        """Adds the default graph, and saves the variables of a session.

        Args:
          sess: the session.
          tags: by which the graph is found when the model is loaded.
          signature_def_map: {name: SignatureDef}.
          assets_collection: tensors that hold paths of files, which are copied into the model.
          main_op (or legacy_init_op): runs when the model is loaded, after the variables are there.
          clear_devices, strip_default_attrs: as `tf.train.export_meta_graph`.
          saver: saves the variables; one of all variables by default.
        """
        if self._has_saved_variables:
            raise AssertionError(
                "Graph state including variables and assets has already been saved. Please invoke "
                "`add_meta_graph()` instead."
            )
        _check_signatures(signature_def_map or {})
        self._prepare(assets_collection, main_op if main_op is not None else legacy_init_op)
        folder = os.path.join(self._export_dir, constants.VARIABLES_DIRECTORY)
        gfile.MakeDirs(folder)
        saver = saver or _default_saver()
        path = os.path.join(folder, constants.VARIABLES_FILENAME)
        saver.save(sess, path, write_meta_graph=False, write_state=False)
        self._add(saver, tags, signature_def_map, clear_devices, strip_default_attrs)
        self._has_saved_variables = True

    def add_meta_graph(
        self, tags: Any, signature_def_map: Any = None, assets_collection: Any = None,
        legacy_init_op: Any = None, clear_devices: bool = False, main_op: Any = None,
        strip_default_attrs: bool = False, saver: Saver | None = None,
    ) -> None:  # fmt: skip
        """Adds the default graph, to use the variables that are saved already; see
        `add_meta_graph_and_variables`."""
        if not self._has_saved_variables:
            raise AssertionError(
                "Graph state including variables and assets has not been saved yet. Please invoke "
                "`add_meta_graph_and_variables()` first."
            )
        _check_signatures(signature_def_map or {})
        self._prepare(assets_collection, main_op if main_op is not None else legacy_init_op)
        saver = saver or _default_saver()
        self._add(saver, tags, signature_def_map, clear_devices, strip_default_attrs)

    def _prepare(self, assets_collection: Any, main_op: Any) -> None:
        copy_assets(collect_assets(assets_collection), self._export_dir, self._saved_assets)
        if main_op is None:
            return
        if not isinstance(main_op, Operation):
            raise TypeError(f"main_op needs to be an Operation: {main_op!r}")
        graph = get_default_graph()
        for key in (constants.MAIN_OP_KEY, constants.LEGACY_INIT_OP_KEY):
            if graph.get_collection(key):
                raise ValueError(
                    f"Graph already contains one or more main ops under the collection {key}."
                )
        graph.add_to_collection(constants.MAIN_OP_KEY, main_op)

    def _add(
        self, saver: Saver, tags: Any, signatures: Any, clear_devices: bool,
        strip_default_attrs: bool,
    ) -> None:  # fmt: skip
        graph_def = saver.export_meta_graph(
            clear_devices=clear_devices, strip_default_attrs=strip_default_attrs
        )
        graph_def.meta_info_def.tags.extend(tags)
        for key, signature in (signatures or {}).items():
            graph_def.signature_def[key].CopyFrom(signature)
        self._saved_model.meta_graphs.append(graph_def)

    def save(self, as_text: bool = False) -> bytes:
        """Writes the graphs, in the text format of messages or in binary. Gives the file's path."""
        if not gfile.Exists(self._export_dir):
            gfile.MakeDirs(self._export_dir)
        if as_text:
            name, data = constants.SAVED_MODEL_FILENAME_PBTXT, str(self._saved_model).encode()
        else:
            name = constants.SAVED_MODEL_FILENAME_PB
            data = self._saved_model.SerializeToString(deterministic=True)
        path = os.path.join(self._export_dir, name)
        _core.write_file_atomically(path, data)
        logging.info("SavedModel written to: %s", path)
        return path.encode()


def _default_saver() -> Saver:
    return Saver(_all_saveable_objects(), sharded=True, allow_empty=True)


def _check_signatures(signatures: dict[str, Any]) -> None:
    for key, signature in signatures.items():
        if key in (constants.INIT_OP_SIGNATURE_KEY, constants.TRAIN_OP_SIGNATURE_KEY):
            raise KeyError(f'SignatureDef map key "{key}" is reserved. Please use a different key.')
        for infos in (signature.inputs, signature.outputs):
            for name in infos:
                _check_tensor_info(infos[name])


def _check_tensor_info(info: Any) -> None:
    if info is None:
        raise AssertionError(
            "All TensorInfo protos used in the SignatureDefs must have the name and dtype fields "
            "set."
        )
    encoding = info.WhichOneof("encoding")
    if encoding is None:
        raise AssertionError(
            f"All TensorInfo protos used in the SignatureDefs must have one of the 'encoding' "
            f"fields (e.g., name or coo_sparse) set: {info}"
        )
    if encoding == "composite_tensor":
        for component in info.composite_tensor.components:
            _check_tensor_info(component)
    elif info.dtype == protos.DT_INVALID:
        raise AssertionError(
            f"All TensorInfo protos used in the SignatureDefs must have the dtype field set: {info}"
        )


@export(v1="saved_model.simple_save")
def simple_save(
    session: Any, export_dir: Any, inputs: dict[str, Tensor], outputs: dict[str, Tensor],
    legacy_init_op: Any = None,
) -> None:  # fmt: skip
    """Writes a SavedModel with one graph, tagged for serving, and one signature from inputs to
    outputs, which are tensors by name."""
    signature = predict_signature_def(inputs, outputs)
    builder = SavedModelBuilder(export_dir)
    with session.graph.as_default():
        builder.add_meta_graph_and_variables(
            session, tags=[constants.SERVING],
            signature_def_map={constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY: signature},
            assets_collection=session.graph.get_collection(GraphKeys.ASSET_FILEPATHS),
            main_op=legacy_init_op, clear_devices=True,
        )  # fmt: skip
    builder.save()
