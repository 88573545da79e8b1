"""What TensorBoard's embedding projector shows: `tf.contrib.tensorboard.plugins.projector`."""

import os
from typing import Any

from millrace import protos
from millrace.core.export import export
from millrace.io import gfile
from millrace.protos import text_format

PROJECTOR_FILENAME = export(v1="contrib.tensorboard.plugins.projector.PROJECTOR_FILENAME")(
    "projector_config.pbtxt"
)
ProjectorConfig = export(v1="contrib.tensorboard.plugins.projector.ProjectorConfig")(
    protos.ProjectorConfig
)
EmbeddingInfo = export(v1="contrib.tensorboard.plugins.projector.EmbeddingInfo")(
    protos.EmbeddingInfo
)
SpriteMetadata = export(v1="contrib.tensorboard.plugins.projector.SpriteMetadata")(
    protos.SpriteMetadata
)


@export(v1="contrib.tensorboard.plugins.projector.visualize_embeddings")
def visualize_embeddings(summary_writer: Any, config: Any) -> None:
    """Writes a `ProjectorConfig` to the folder of a `FileWriter`, where TensorBoard finds it.

    The points are the rows of variables in the newest checkpoint of that folder.
    """
    logdir = summary_writer.get_logdir()
    if not logdir:
        raise ValueError("Summary writer must have a logdir")
    with gfile.GFile(os.path.join(logdir, PROJECTOR_FILENAME), "w") as file:
        file.write(text_format.MessageToString(config))
