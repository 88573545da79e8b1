"""Reading checkpoints without a graph."""

from typing import Any

from millrace import _core, protos
from millrace.checkpoint.checkpoint_state import latest_checkpoint
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.text import as_str, path_to_str
from millrace.io import gfile


class CheckpointReader:
    """The tensors of a checkpoint, by name. Reads a tensor when it is asked for.

    Errors are those of `tf.errors`: NotFoundError, DataLossError for a damaged file.
    """

    def __init__(self, filename: str):
        self._reader = _core.CheckpointReader(filename)

    def has_tensor(self, tensor_str: str) -> bool:
        """Whether it has a tensor of that name."""
        return self._reader.has_tensor(as_str(tensor_str))

    def get_tensor(self, tensor_str: str) -> Any:
        """The value of a tensor, put together where it was saved in parts."""
        return self._reader.get_tensor(as_str(tensor_str))

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """The shapes of all tensors, by name."""
        return self._reader.shapes()

    def get_variable_to_dtype_map(self) -> dict[str, dtypes.DType]:
        """The types of all tensors, by name."""
        return {name: dtypes.as_dtype(number) for name, number in self._reader.types().items()}

    def debug_string(self) -> bytes:
        """A line for each tensor: "name (DT_FLOAT) [2,3]"."""
        types = self._reader.types()
        lines = [
            f"{name} ({protos.DataType.Name(types[name])}) [{','.join(map(str, shape))}]"
            for name, shape in self._reader.shapes().items()
        ]
        return "".join(line + "\n" for line in lines).encode()


@export(v1="train.NewCheckpointReader")
def NewCheckpointReader(filepattern: Any) -> CheckpointReader:
    """A reader of the checkpoint of that prefix. NotFoundError where there is none."""
    return CheckpointReader(as_str(path_to_str(filepattern)))


def checkpoint_prefix(ckpt_dir_or_file: Any) -> str:
    """The prefix itself, or that of the newest checkpoint of a folder. ValueError without one."""
    path = as_str(path_to_str(ckpt_dir_or_file))
    if not gfile.IsDirectory(path):
        return path
    latest = latest_checkpoint(path)
    if latest is None:
        raise ValueError(
            f"Couldn't find 'checkpoint' file or checkpoints in given directory {path}"
        )
    return latest


@export(
    v1=("train.load_checkpoint", "contrib.framework.load_checkpoint"), v2="train.load_checkpoint"
)
def load_checkpoint(ckpt_dir_or_file: Any) -> CheckpointReader:
    """A reader of a checkpoint: of a prefix, or the newest of a folder."""
    return NewCheckpointReader(checkpoint_prefix(ckpt_dir_or_file))


@export(v1=("train.load_variable", "contrib.framework.load_variable"), v2="train.load_variable")
def load_variable(ckpt_dir_or_file: Any, name: str) -> Any:
    """The value of a variable in a checkpoint, as an array."""
    return load_checkpoint(ckpt_dir_or_file).get_tensor(name.removesuffix(":0"))


@export(v1=("train.list_variables", "contrib.framework.list_variables"), v2="train.list_variables")
def list_variables(ckpt_dir_or_file: Any) -> list[tuple[str, list[int]]]:
    """[(name, shape)] of all variables in a checkpoint, sorted."""
    return sorted(load_checkpoint(ckpt_dir_or_file).get_variable_to_shape_map().items())
