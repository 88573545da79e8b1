"""tf.train.Checkpoint: objects with their variables, saved and restored by structure."""

import os
from typing import Any

from millrace import _core, gen_ops
from millrace.checkpoint import object_graph
from millrace.checkpoint.checkpoint_state import write_checkpoint_state
from millrace.checkpoint.reader import NewCheckpointReader
from millrace.checkpoint.restoration import (
    CheckpointLoadStatus,
    InitializationOnlyStatus,
    LoadStatus,
    NameBasedStatus,
    Restoration,
)
from millrace.core import dtypes, errors
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.core.text import as_str, path_to_str
from millrace.core.trackable import Trackable
from millrace.core.tracked_data import AutoTrackable, wrap
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import control_dependencies
from millrace.io import gfile
from millrace.state.eager_variable import Variable


@export(v1="train.CheckpointOptions", v2="train.CheckpointOptions")
class CheckpointOptions:
    """Options of a save or restore. Those that TensorFlow has are taken; files are written by the
    process that saves."""

    def __init__(
        self, experimental_io_device: Any = None,
        experimental_enable_async_checkpoint: bool = False,
        experimental_write_callbacks: Any = None, enable_async: bool = False,
        experimental_sharding_callback: Any = None, experimental_skip_slot_variables: bool = False,
    ):  # fmt: skip
        self.experimental_io_device = experimental_io_device
        self.experimental_enable_async_checkpoint = experimental_enable_async_checkpoint
        self.enable_async = enable_async
        self.experimental_write_callbacks = experimental_write_callbacks
        self.experimental_sharding_callback = experimental_sharding_callback
        self.experimental_skip_slot_variables = experimental_skip_slot_variables


@export(v1="train.Checkpoint", v2="train.Checkpoint")
class Checkpoint(AutoTrackable):
    """A group of objects that is saved and restored: variables, modules, optimizers, iterators.

    `Checkpoint(model=model, step=step)` names what it is given; `Checkpoint(model)` begins names at
    the object itself. What is attached later gets its values then.
    """

    def __init__(self, root: Any = None, **kwargs: Any):
        self._setattr_tracking = False
        self._root: Any = None
        self._attached: dict[str, Any] = {}
        self._save_counter: Any = None
        self._setattr_tracking = True
        if root is not None and not isinstance(root, Trackable):
            raise ValueError(
                f"Expected a Trackable TensorFlow object to checkpoint as root, got {root!r}"
            )
        for name, value in sorted(kwargs.items()):
            value = wrap(value() if _is_reference(value) else value)
            if not isinstance(value, (Trackable, type(None))) and not hasattr(value, "_serialize"):
                raise ValueError(
                    f"`Checkpoint` was expecting {name} to be a trackable object (an object "
                    f"derived from `Trackable`), got {value!r}. If you believe this object should "
                    "be trackable (i.e. it is part of the TensorFlow Python API and manages "
                    "state), please open an issue."
                )
            if root is None:
                setattr(self, name, value)
                continue
            known = root._lookup_dependency(name)
            if known is not None and known is not value:
                raise ValueError(
                    f"Cannot create a Checkpoint with keyword argument {name} if root.{name} "
                    "already exists."
                )
            self._attached[name] = value
            object.__setattr__(self, name, value)
        if root is not None:
            object.__setattr__(self, "_root", root)

    @property
    def _saved_root(self) -> Any:
        return self if self._root is None else self._root

    def _objects(self) -> object_graph.ObjectGraph:
        return object_graph.ObjectGraph(self._saved_root, self._attached)

    def _make_save_counter(self) -> None:
        if self._save_counter is not None:
            return
        with _core.init_scope():
            counter = Variable(0, trainable=False, dtype=dtypes.int64, name="save_counter")
        object.__setattr__(self, "_save_counter", counter)
        if self._root is None:
            self._track_trackable(counter, "save_counter")
        else:
            self._attached["save_counter"] = counter
            self._root._handle_deferred_dependencies("save_counter", counter)

    @property
    def save_counter(self) -> Variable:
        """How often it was saved; part of what is saved."""
        self._make_save_counter()
        return self._save_counter

    def write(self, file_prefix: Any, options: Any = None) -> Any:
        """Writes a checkpoint of that prefix, without a number and without the file `checkpoint`.
        Gives the prefix."""
        del options
        prefix = file_prefix if isinstance(file_prefix, Tensor) else _text(file_prefix)
        if _core.executing_eagerly():
            if isinstance(prefix, Tensor):
                prefix = as_str(prefix.numpy())
            folder = os.path.dirname(prefix)
            if folder and not gfile.IsDirectory(folder):
                gfile.MakeDirs(folder)
            object_graph.write(prefix, self._objects())
            return prefix
        path = convert_to_tensor(prefix)
        with control_dependencies([object_graph.write(path, self._objects())]):
            return gen_ops.identity(path)

    def save(self, file_prefix: Any, options: Any = None) -> Any:
        """Writes a checkpoint "PREFIX-N", N being the save counter, and names it in the folder's
        file `checkpoint`. Gives its prefix."""
        if not _core.executing_eagerly():
            raise NotImplementedError(
                "Calling tf.train.Checkpoint.save() from a function is not supported, as save() "
                "modifies saving metadata in ways not supported by TensorFlow Operations. Consider "
                "using tf.train.Checkpoint.write(), a lower-level API which does not update "
                "metadata. tf.train.latest_checkpoint and related APIs will not see this "
                "checkpoint."
            )
        prefix = _text(file_prefix)
        number = int(self.save_counter.assign_add(1).numpy())
        path = self.write(f"{prefix}-{number}", options)
        write_checkpoint_state(os.path.dirname(prefix), path, [path], save_relative_paths=True)
        return path

    def read(self, save_path: Any, options: Any = None) -> LoadStatus:
        """Restores what `write` wrote. The save counter is not made for it."""
        del options
        if save_path is None:
            return InitializationOnlyStatus()
        path = _text(save_path)
        with _core.init_scope():
            if not _core.executing_eagerly():
                raise RuntimeError(
                    "tf.train.Checkpoint restores variables of eager execution; graphs have "
                    "tf.compat.v1.train.Saver."
                )
            reader = NewCheckpointReader(path)
            graph = object_graph.read_graph(reader, path)
            root = self._saved_root
            if graph is None:
                return NameBasedStatus(path, reader, root, self._attached)
            restoration = Restoration(path, reader, graph)
            restoration.bind(0, root, self._attached)
        return CheckpointLoadStatus(restoration, root, self._attached)

    def restore(self, save_path: Any, options: Any = None) -> LoadStatus:
        """Restores a checkpoint that `save` wrote, or the variables of a SavedModel.

        Objects that are not there yet get their values when they are attached. The status says
        what was found: `assert_consumed()`, `expect_partial()`. NotFoundError without a checkpoint.
        """
        if save_path is None:
            status: LoadStatus = InitializationOnlyStatus()
        else:
            path = _text(save_path)
            try:
                status = self.read(_in_saved_model(path), options)
            except errors.NotFoundError as error:
                raise errors.NotFoundError(
                    None, None,
                    f"Error when restoring from checkpoint or SavedModel at {path}: "
                    f"{error.message}\nPlease double-check that the path is correct. You may be "
                    "missing the checkpoint suffix (e.g. the '-1' in 'path/to/ckpt-1').",
                ) from None  # fmt: skip
        self._make_save_counter()
        return status

    def sync(self) -> None:
        """Nothing: saves are done when they return."""


def _is_reference(value: Any) -> bool:
    return type(value).__name__ == "ReferenceType"


def _text(path: Any) -> str:
    if isinstance(path, Tensor) and hasattr(path, "numpy"):
        path = path.numpy()
    return as_str(path_to_str(path))


def _in_saved_model(path: str) -> str:
    """The checkpoint of a SavedModel's folder; other paths as they are."""
    if gfile.IsDirectory(path) and any(
        gfile.Exists(os.path.join(path, "saved_model" + end)) for end in (".pb", ".pbtxt")
    ):
        return os.path.join(path, "variables", "variables")
    return path
