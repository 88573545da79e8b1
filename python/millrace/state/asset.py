"""Files that belong to an object, and travel with it."""

import os
from typing import Any

from millrace import _core
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.trackable import Trackable
from millrace.graph.convert import convert_to_tensor


@export(v1="saved_model.Asset", v2="saved_model.Asset")
class Asset(Trackable):
    """A file, such as a vocabulary: `tf.saved_model.save` copies it into the model, and functions
    that use `asset_path` read that copy when the model is loaded."""

    def __init__(self, path: Any):
        if isinstance(path, os.PathLike):
            path = os.fspath(path)
        with _core.init_scope():
            self._path = convert_to_tensor(path, dtype=dtypes.string, name="asset_path")

    @property
    def asset_path(self) -> Any:
        """The path, a scalar string tensor."""
        return self._path
