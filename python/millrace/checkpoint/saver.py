"""The saver: writes checkpoints of variables, and reads them."""

import math
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from millrace import _core, protos
from millrace.checkpoint import values_by_name
from millrace.checkpoint.background import BackgroundSave, SaveWaiter
from millrace.checkpoint.checkpoint_state import (
    checkpoint_exists,
    get_checkpoint_mtimes,
    meta_graph_filename,
    remove_checkpoint,
    write_checkpoint_state,
)
from millrace.checkpoint.collection_defs import add_collection_def
from millrace.checkpoint.meta_graph import export_scoped_meta_graph
from millrace.checkpoint.object_checkpoints import names_to_keys_of
from millrace.checkpoint.restore_errors import NoCheckpointError, explained
from millrace.checkpoint.saveable import validate_and_slice_inputs
from millrace.checkpoint.saver_builder import ASYNCHRONOUS_ATTR, BulkSaverBuilder
from millrace.checkpoint.values_by_name import named_variables
from millrace.core import errors, logging
from millrace.core.export import export
from millrace.core.text import as_str, path_to_str
from millrace.graph.default_graph import get_default_graph
from millrace.graph.keys import GraphKeys, prepend_name_scope, strip_name_scope
from millrace.graph.proto_functions import register_proto_function
from millrace.io import gfile
from millrace.state.variable_lists import _all_saveable_objects

_NAMES = ("filename_tensor_name", "save_tensor_name", "restore_op_name")


@export(v1="train.Saver")
class Saver:
    """Saves variables to checkpoints and restores them. Adds its operations to the default graph.

    Args:
      var_list: variables (also partitioned ones, and objects that can be saved), or a dictionary
        from their names in checkpoints; all of the graph by default.
      reshape: restores a variable of another shape with as many elements.
      sharded: each device writes a part of its own.
      max_to_keep: how many checkpoints to keep; None or 0 for all.
      keep_checkpoint_every_n_hours: besides those, one for every so many hours is kept.
      name: of the scope of the operations, "save" by default.
      restore_sequentially: restores one variable after the other, to need less memory.
      saver_def: a SaverDef that names operations which are in the graph already.
      builder: adds the operations; a BulkSaverBuilder by default.
      defer_build: adds nothing before `build()` is called.
      allow_empty: with no variables at all, save and restore do nothing. ValueError otherwise.
      write_version: the format, SaverDef.V2 or the old SaverDef.V1. Both are read.
      pad_step_number: writes the number of a step with eight digits.
      save_relative_paths: lets the `checkpoint` file name checkpoints relative to its folder.
      filename: the default of the tensor that takes the path.
      random_state: saves and restores where random ops stand, too, dropout's among them, under the
        name "_RANDOM_STATE". Not in TensorFlow. Checkpoints without it are restored as well.
      asynchronous: `save` returns when it has taken hold of the values; they are written while the
        program goes on: by one device, or, where variables are on tasks of a cluster or the saver
        is sharded, a part by each. When all is written the `checkpoint` file names it, and old
        checkpoints are deleted. An error is raised by the next `save`, by `wait`, or where the
        session is closed. Not in TensorFlow.
    """

    def __init__(
        self, var_list: Any = None, reshape: bool = False, sharded: bool = False,
        max_to_keep: int | None = 5, keep_checkpoint_every_n_hours: float = 10000.0,
        name: str | None = None, restore_sequentially: bool = False, saver_def: Any = None,
        builder: Any = None, defer_build: bool = False, allow_empty: bool = False,
        write_version: int = protos.SaverDef.V2, pad_step_number: bool = False,
        save_relative_paths: bool = False, filename: str | None = None,
        random_state: bool = False, asynchronous: bool = False,
    ):  # fmt: skip
        if defer_build and var_list:
            raise ValueError(
                "If `var_list` is provided then build cannot be deferred. Either set "
                "defer_build=False or var_list=None."
            )
        self._var_list = var_list
        self._reshape = reshape
        self._sharded = sharded
        self._max_to_keep = max_to_keep
        self._keep_checkpoint_every_n_hours = keep_checkpoint_every_n_hours
        self._name = name
        self._restore_sequentially = restore_sequentially
        self.saver_def = saver_def
        self._builder = builder
        self._allow_empty = allow_empty
        self._write_version = write_version
        self._pad_step_number = pad_step_number
        self._save_relative_paths = save_relative_paths
        self._filename = filename
        self._random_state = random_state
        self._asynchronous = asynchronous
        self._background: BackgroundSave | None = None
        self._is_built = False
        self._is_empty = False
        self._last_checkpoints: list[tuple[str, float]] = []
        self._checkpoints_to_be_deleted: list[tuple[str, float]] = []
        self._next_checkpoint_time = math.inf
        self._object_restore_saver: Saver | None = None
        self._variables: dict[str, Any] | None = None  # outside of graphs
        if not defer_build:
            self.build()

    def build(self) -> None:
        """Adds the operations to the default graph, if they are not there yet."""
        if self._is_built:
            return
        self._is_built = True
        if self.saver_def is not None:
            self._check_saver_def()
            if self._name:
                for field in _NAMES:
                    name = prepend_name_scope(getattr(self.saver_def, field), self._name)
                    setattr(self.saver_def, field, name)
            self._asynchronous = any(
                ASYNCHRONOUS_ATTR in op.graph._node_attr_names(op._id)
                for op in self._writers(get_default_graph())[0]
            )
        else:
            self._build()
            if self._is_empty:
                return
        self._check_saver_def()
        self._write_version = self.saver_def.version
        hours = self.saver_def.keep_checkpoint_every_n_hours
        self._next_checkpoint_time = time.time() + hours * 3600

    def _build(self) -> None:
        if self._builder is None:
            self._builder = BulkSaverBuilder(self._write_version)
        if _core.executing_eagerly():
            self._variables = named_variables(self._var_list)
            self.saver_def = protos.SaverDef(
                filename_tensor_name="none", save_tensor_name="none", restore_op_name="none",
                max_to_keep=self._max_to_keep, version=protos.SaverDef.V2,
                keep_checkpoint_every_n_hours=self._keep_checkpoint_every_n_hours,
            )  # fmt: skip
            return
        if self._write_version != protos.SaverDef.V2:
            self._asynchronous = False
        if self._var_list is None:
            self._var_list = _all_saveable_objects()
        if not self._var_list:
            if not self._allow_empty:
                raise ValueError("No variables to save")
            self._is_empty = True
            return
        # Builders of programs need not know it.
        more = {"random_state": True} if self._random_state else {}
        self.saver_def = self._builder.build(
            self._var_list, reshape=self._reshape,
            sharded=self._sharded or (self._asynchronous and self._on_tasks()),
            max_to_keep=self._max_to_keep,
            keep_checkpoint_every_n_hours=self._keep_checkpoint_every_n_hours, name=self._name,
            restore_sequentially=self._restore_sequentially, filename=self._filename, **more,
        )  # fmt: skip
        if self._asynchronous:
            for op in self._writers(get_default_graph())[0]:
                op._set_attr(ASYNCHRONOUS_ATTR, True)

    def _on_tasks(self) -> bool:
        """Whether what it saves says on which tasks of a cluster it is."""
        saveables = validate_and_slice_inputs(self._var_list)
        return any("/job:" in (spec.device or "") for s in saveables for spec in s.specs)

    def _writers(self, graph: Any) -> tuple[list[Any], Any]:
        """The SaveV2s that its tensor waits for, and what merges their parts, or None; no SaveV2
        where the graph is another one."""
        found = graph._find(self.saver_def.save_tensor_name.partition(":")[0])
        todo = [] if found < 0 else [graph._operation(found)]
        writers, merge = [], None
        while todo:
            op = todo.pop()
            if op.type == "SaveV2":
                writers.append(op)
                continue
            if op.type == "MergeV2Checkpoints":
                merge = op
            todo += op.control_inputs
        return writers, merge

    def _check_saver_def(self) -> None:
        if not isinstance(self.saver_def, protos.SaverDef):
            raise ValueError(f"saver_def must be a saver_pb2.SaverDef: {self.saver_def}")
        for field in ("save_tensor_name", "restore_op_name"):
            if not getattr(self.saver_def, field):
                raise ValueError(f"saver_def must specify the {field}: {self.saver_def}")

    # Which checkpoints there are.

    @property
    def last_checkpoints(self) -> list[str]:
        """The checkpoints that are kept, the oldest first."""
        return [path for path, _ in self._last_checkpoints]

    def set_last_checkpoints(self, last_checkpoints: list[str]) -> None:
        """Sets which checkpoints there are, the oldest first."""
        if not isinstance(last_checkpoints, list):
            raise AssertionError(f"last_checkpoints must be a list, got {last_checkpoints!r}")
        self._last_checkpoints = [(path, math.inf) for path in last_checkpoints]

    def set_last_checkpoints_with_time(
        self, last_checkpoints_with_time: list[tuple[str, float]]
    ) -> None:
        """Sets which checkpoints there are, each with the second in which it was written."""
        if not isinstance(last_checkpoints_with_time, list):
            raise AssertionError(
                f"last_checkpoints_with_time must be a list, got {last_checkpoints_with_time!r}"
            )
        self._last_checkpoints = last_checkpoints_with_time

    def recover_last_checkpoints(self, checkpoint_paths: Any) -> None:
        """Sets which checkpoints there are: those of the paths that exist."""
        there = [path for path in checkpoint_paths if checkpoint_exists(path)]
        times = get_checkpoint_mtimes(there)
        self.set_last_checkpoints_with_time(list(zip(there, times, strict=True)))

    def _record(self, path: str) -> None:
        """Notes a new checkpoint; those that are too many are to be deleted."""
        if not self.saver_def.max_to_keep:
            return
        self._last_checkpoints = [p for p in self._last_checkpoints if p[0] != path]
        self._last_checkpoints.append((path, time.time()))
        if len(self._last_checkpoints) > self.saver_def.max_to_keep:
            self._checkpoints_to_be_deleted.append(self._last_checkpoints.pop(0))

    def _delete_old(self, meta_graph_suffix: str) -> None:
        if not self._checkpoints_to_be_deleted:
            return
        path, written = self._checkpoints_to_be_deleted.pop(0)
        if written > self._next_checkpoint_time:  # one of those that are kept every few hours
            self._next_checkpoint_time += self.saver_def.keep_checkpoint_every_n_hours * 3600
            return
        try:
            remove_checkpoint(path, self.saver_def.version, meta_graph_suffix)
        except errors.OpError as error:
            logging.warning("Ignoring: %s", error)

    # Saving and restoring.

    def save(
        self, sess: Any, save_path: Any, global_step: Any = None,
        latest_filename: str | None = None, meta_graph_suffix: str = "meta",
        write_meta_graph: bool = True, write_state: bool = True, strip_default_attrs: bool = False,
        save_debug_info: bool = False,
    ) -> str | None:  # fmt: skip
        """Writes a checkpoint, and the graph beside it. Gives the checkpoint's path, for `restore`;
        None where there is nothing to save. A saver that is asynchronous waits for the checkpoint
        before, and raises its error.

        Args:
          sess: the session whose variables are saved; None outside of graphs.
          save_path: where to, the beginning of the names of the files.
          global_step: a number, or a tensor of it, to append to the path.
          latest_filename: of the file that names a folder's checkpoints; "checkpoint" by default.
          meta_graph_suffix, write_meta_graph, strip_default_attrs: of the graph's file.
          write_state: whether to name the new checkpoint in that file, and delete old ones.

        ValueError for paths that cannot be, RuntimeError before `build()`.
        """
        del save_debug_info
        if not self._is_built:
            raise RuntimeError("`build()` should be called before save if defer_build==True")
        latest_filename = latest_filename or "checkpoint"
        if os.path.dirname(latest_filename):
            raise ValueError("'latest_filename' must not contain path components")
        save_path = as_str(path_to_str(save_path))
        if self._variables is not None:
            path = self._path(None, save_path, global_step, latest_filename)
            values_by_name.write(path, self._variables)
            if write_state:
                self._record(path)
                values_by_name.note(self, save_path, path, latest_filename)
                self._delete_old(meta_graph_suffix)
            return path
        if not hasattr(sess, "run") or not hasattr(sess, "graph"):
            raise TypeError(f"'sess' must be a Session; {sess}")
        path = self._path(sess, save_path, global_step, latest_filename)
        self.wait()
        saved = None
        if not self._is_empty:

            def finish() -> None:
                if write_state:
                    self._record(saved)
                    write_checkpoint_state(
                        os.path.dirname(save_path), saved, self.last_checkpoints, latest_filename,
                        self._save_relative_paths,
                    )  # fmt: skip
                    self._delete_old(meta_graph_suffix)

            if self._asynchronous:
                saved = path
                self._begin(sess, save_path, path, finish)
            else:
                saved = as_str(self._write(sess, save_path, path, self.saver_def.save_tensor_name))
                finish()
        if write_meta_graph:
            filename = meta_graph_filename(path, meta_graph_suffix)
            with sess.graph.as_default():
                self.export_meta_graph(filename, strip_default_attrs=strip_default_attrs)
        return saved

    def _path(self, sess: Any, save_path: str, global_step: Any, latest_filename: str) -> str:
        if global_step is None:
            if os.path.basename(save_path) == latest_filename and not self._sharded:
                raise ValueError(
                    f"'latest_filename' collides with 'save_path': '{latest_filename}' and "
                    f"'{save_path}'"
                )
            return save_path
        if not isinstance(global_step, (int, np.integer)):
            global_step = int(global_step if sess is None else sess.run(global_step))
        return f"{save_path}-{global_step:08d}" if self._pad_step_number else (
            f"{save_path}-{global_step}"
        )  # fmt: skip

    def _begin(self, sess: Any, save_path: str, path: str, finish: Callable[[], None]) -> None:
        """Writes a checkpoint beside the program; calls `finish` when it is whole."""
        session = sess.raw_session() if hasattr(sess, "raw_session") else sess
        writers, merge = self._writers(sess.graph)
        waiter = SaveWaiter(session, writers, merge)
        try:
            parts = [writer.inputs[0] for writer in writers]
            names, _ = self._write(sess, save_path, path, (parts, writers))
        except BaseException:
            waiter.close()
            raise
        self._background = BackgroundSave(
            path, lambda: waiter.wait(path, [as_str(name) for name in names]), finish
        )
        session._call_before_close(self.wait)

    def _write(self, sess: Any, save_path: str, path: str, fetches: Any) -> Any:
        try:
            return sess.run(fetches, {self.saver_def.filename_tensor_name: path})
        except (errors.FailedPreconditionError, errors.NotFoundError):
            if not gfile.IsDirectory(os.path.dirname(save_path) or "."):
                raise ValueError(
                    f"Parent directory of {save_path} doesn't exist, can't save."
                ) from None
            raise

    def wait(self) -> None:
        """Returns when the checkpoint that an asynchronous `save` began is whole; raises why it is
        not. Not in TensorFlow."""
        background, self._background = self._background, None
        if background is not None:
            background.wait()

    def restore(self, sess: Any, save_path: Any) -> None:
        """Sets the variables of a session to what a checkpoint has for them.

        ValueError where there is no checkpoint; an error that lists names and shapes where the
        checkpoint is of another graph.
        """
        self.wait()
        if self._is_empty:
            return
        if save_path is None:
            raise ValueError("Can't load save_path when it is None.")
        if not self._is_built:
            raise RuntimeError("`build()` should be called before restore if defer_build==True")
        save_path = as_str(path_to_str(save_path))
        if not checkpoint_exists(save_path):
            raise NoCheckpointError(save_path)
        logging.info("Restoring parameters from %s", save_path)
        if self._variables is not None:
            return values_by_name.read(save_path, self._variables)
        feed = {self.saver_def.filename_tensor_name: save_path}
        try:
            sess.run(self.saver_def.restore_op_name, feed)
        except errors.NotFoundError as error:
            keys = names_to_keys_of(save_path)
            if keys is None:
                raise explained(error, sess.graph, self.saver_def, save_path) from None
            self._restore_objects(sess, save_path, keys)
        except errors.InvalidArgumentError as error:
            raise explained(error, sess.graph, self.saver_def, save_path) from None

    def _restore_objects(self, sess: Any, save_path: str, keys: dict[str, str]) -> None:
        """Restores from a checkpoint whose names are paths of objects, as TensorFlow 2 writes it,
        by the names that the variables had when it was written."""
        if self._object_restore_saver is None:
            with sess.graph.as_default():
                saveables = validate_and_slice_inputs(self._var_list or _all_saveable_objects())
                missing = [s.name for s in saveables for p in s.specs if p.name not in keys]
                if missing:
                    raise errors.NotFoundError(
                        None, None,
                        f"The checkpoint '{save_path}' was written by objects, and these "
                        f"variables were not among them: {', '.join(missing)}. It has: "
                        f"{', '.join(sorted(keys))}",
                    )  # fmt: skip
                for saveable in saveables:
                    for spec in saveable.specs:
                        spec.name = keys[spec.name]
                self._object_restore_saver = Saver(saveables)
        self._object_restore_saver.restore(sess, save_path)

    # As messages.

    def as_saver_def(self) -> Any:
        """The SaverDef that names the operations."""
        return self.saver_def

    def to_proto(self, export_scope: str | None = None) -> Any:
        """The SaverDef as it is in a graph that has only what is below a scope; None when the saver
        is not below it."""
        if export_scope is None:
            return self.saver_def
        if not all(getattr(self.saver_def, f).startswith(export_scope) for f in _NAMES):
            return None
        out = protos.SaverDef()
        out.CopyFrom(self.saver_def)
        for field in _NAMES:
            setattr(out, field, strip_name_scope(getattr(out, field), export_scope))
        return out

    @staticmethod
    def from_proto(saver_def: Any, import_scope: str | None = None) -> "Saver":
        """The saver whose operations, below `import_scope` of the default graph, a SaverDef
        names."""
        return Saver(saver_def=saver_def, name=import_scope)

    def export_meta_graph(
        self, filename: str | None = None, collection_list: Any = None, as_text: bool = False,
        export_scope: str | None = None, clear_devices: bool = False,
        clear_extraneous_savers: bool = False, strip_default_attrs: bool = False,
        save_debug_info: bool = False,
    ) -> Any:  # fmt: skip
        """The default graph with this saver as a MetaGraphDef: `tf.train.export_meta_graph`."""
        return export_meta_graph(
            filename=filename, graph_def=None, saver_def=self.saver_def,
            collection_list=collection_list, as_text=as_text, export_scope=export_scope,
            clear_devices=clear_devices, clear_extraneous_savers=clear_extraneous_savers,
            strip_default_attrs=strip_default_attrs, save_debug_info=save_debug_info,
        )  # fmt: skip

    def _add_collection_def(
        self, meta_graph_def: Any, key: Any, export_scope: str | None = None
    ) -> None:
        add_collection_def(meta_graph_def, key, get_default_graph(), export_scope)


register_proto_function(GraphKeys.SAVERS, protos.SaverDef, Saver.to_proto, Saver.from_proto)


def saver_or_default() -> Saver:
    """The saver of the collection SAVERS; one of all variables and the state of random ops, added
    to it, where it has none.

    RuntimeError when it has several.
    """
    savers = get_default_graph().get_collection(GraphKeys.SAVERS)
    if len(savers) > 1:
        raise RuntimeError(
            f"More than one item in collection {GraphKeys.SAVERS}. Please indicate which one to "
            "use by passing it to the constructor."
        )
    if savers:
        return savers[0]
    saver = Saver(sharded=True, allow_empty=True, random_state=True)
    get_default_graph().add_to_collection(GraphKeys.SAVERS, saver)
    return saver


@export(v1="train.export_meta_graph")
def export_meta_graph(
    filename: str | None = None, meta_info_def: Any = None, graph_def: Any = None,
    saver_def: Any = None, collection_list: Any = None, as_text: bool = False, graph: Any = None,
    export_scope: str | None = None, clear_devices: bool = False,
    clear_extraneous_savers: bool = False, strip_default_attrs: bool = False,
    save_debug_info: bool = False, **kwargs: Any,
) -> Any:  # fmt: skip
    """A graph (the default one) with its collections as a MetaGraphDef, also written to a file.

    Args:
      filename: where to write it; nowhere by default.
      meta_info_def, graph_def, saver_def: parts, instead of those of the graph.
      collection_list: the names of the collections; all by default.
      as_text: writes the file in the text format of messages.
      export_scope: only what is below this scope, with names as if the scope were the root.
      clear_devices: leaves out where operations run.
      clear_extraneous_savers: leaves out the savers that are not that of `saver_def`.
      strip_default_attrs: leaves out attributes that have their default values.
    """
    return export_scoped_meta_graph(
        filename=filename, meta_info_def=meta_info_def, graph_def=graph_def, saver_def=saver_def,
        collection_list=collection_list, as_text=as_text, graph=graph, export_scope=export_scope,
        clear_devices=clear_devices, clear_extraneous_savers=clear_extraneous_savers,
        strip_default_attrs=strip_default_attrs, save_debug_info=save_debug_info, **kwargs,
    )[0]  # fmt: skip
