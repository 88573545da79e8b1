"""Writing a model as a SavedModel."""

import os
import time
from typing import Any, Callable

from millrace.checkpoint.saver import Saver
from millrace.core import logging
from millrace.estimator.estimator_spec import EstimatorSpec
from millrace.estimator.export_outputs import DEFAULT_KEY
from millrace.graph.default_graph import get_default_graph
from millrace.graph.keys import GraphKeys
from millrace.graph.session import Session
from millrace.io import gfile
from millrace.ops.ordering import group
from millrace.saved_model.builder import SavedModelBuilder
from millrace.saved_model.constants import SERVING
from millrace.state.variable_lists import local_variables_initializer, tables_initializer


def timestamped_folder(base: str) -> str:
    """A folder below `base`, named by the time in seconds, that is not there yet."""
    for _ in range(10):
        folder = os.path.join(base, str(int(time.time())))
        if not gfile.Exists(folder):
            return folder
        time.sleep(1)
    raise RuntimeError(f"Failed to obtain a unique export directory name below '{base}'.")


def _signatures(spec: EstimatorSpec, receiver: Any) -> dict[str, Any]:
    """The SignatureDefs of all outputs. Those that need Examples are left out where the model
    receives something else; ValueError where that is the default."""
    receivers = {None: receiver.receiver_tensors, **(receiver.receiver_tensors_alternatives or {})}
    out = {}
    for receiver_name, tensors in receivers.items():
        for name, output in spec.export_outputs.items():
            key = name if receiver_name is None else f"{receiver_name}:{name}"
            try:
                out[key] = output.as_signature_def(tensors)
            except ValueError as error:
                if receiver_name is None and name == DEFAULT_KEY and len(spec.export_outputs) == 1:
                    raise
                logging.info("The signature '%s' is left out: %s", key, error)
    if not out:
        raise ValueError("No output of the model fits what it receives: there is no signature.")
    return out


def _copy_extra(assets_extra: Any, folder: str) -> None:
    for name, source in (assets_extra or {}).items():
        target = os.path.join(folder, "assets.extra", name)
        gfile.MakeDirs(os.path.dirname(target))
        gfile.Copy(source, target)


def export_model(
    model: Callable[[Any], EstimatorSpec], base: str, serving_input_receiver_fn: Any,
    assets_extra: Any, as_text: bool, checkpoint_path: str, session_config: Any,
) -> bytes:  # fmt: skip
    """Builds the model in the default graph, restores it and writes it to a new folder below
    `base`, whose path is given."""
    receiver = serving_input_receiver_fn()
    spec = model(receiver.features)
    folder = timestamped_folder(base)
    # Written aside first: who watches `base` sees whole models only.
    aside = os.path.join(base, f"temp-{os.path.basename(folder)}")
    graph = get_default_graph()
    saver = spec.scaffold.saver or Saver(sharded=True, allow_empty=True)
    with Session(config=session_config) as session:
        main_op = spec.scaffold.local_init_op
        if main_op is None:
            main_op = group(local_variables_initializer(), tables_initializer())
        saver.restore(session, checkpoint_path)
        builder = SavedModelBuilder(aside)
        builder.add_meta_graph_and_variables(
            session, tags=[SERVING], signature_def_map=_signatures(spec, receiver),
            assets_collection=graph.get_collection(GraphKeys.ASSET_FILEPATHS), main_op=main_op,
            strip_default_attrs=True, saver=saver,
        )  # fmt: skip
        builder.save(as_text)
    _copy_extra(assets_extra, aside)
    gfile.Rename(aside, folder)
    return folder.encode()
