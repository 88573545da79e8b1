"""What saved_model_fuzz.cc calls with any bytes."""

import millrace.compat.v1 as tf
from millrace.core import logging
from millrace.saved_model.assets import asset_feeds
from millrace.saved_model.loader import SavedModelLoader, init_op_name, parse_saved_model

FOLDER = "memory://saved_model_fuzz"
# What a model that cannot be loaded ends with.
ERRORS = (OSError, ValueError, TypeError, RuntimeError, tf.errors.OpError)

logging.set_verbosity(logging.FATAL)


def run(data: bytes) -> None:
    """Loads the model that these bytes are, as far as that goes without running anything."""
    name = "saved_model.pbtxt" if data[:1] == b"t" else "saved_model.pb"
    tf.gfile.MakeDirs(FOLDER)
    with tf.gfile.GFile(f"{FOLDER}/{name}", "wb") as file:
        file.write(data[1:])
    try:
        model = parse_saved_model(FOLDER)
        for meta_graph in model.meta_graphs:
            load(SavedModelLoader(FOLDER), meta_graph)
    except ERRORS:
        pass
    except KeyError as error:
        # A name that the graph does not have; nothing else is looked up by what the file says.
        if "not in the graph" not in str(error) and "does not exist" not in str(error):
            raise
    finally:
        tf.gfile.DeleteRecursively(FOLDER)
        tf.reset_default_graph()


def load(loader: SavedModelLoader, meta_graph: tf.MetaGraphDef) -> None:
    """Adds one of the graphs to a new one, and looks its signatures up in it."""
    graph = tf.Graph()
    loader.load_graph(graph, set(meta_graph.meta_info_def.tags))
    asset_feeds(FOLDER, meta_graph, None)
    init_op_name(meta_graph)
    for signature in meta_graph.signature_def.values():
        for info in (*signature.inputs.values(), *signature.outputs.values()):
            tf.saved_model.get_tensor_from_tensor_info(info, graph)
