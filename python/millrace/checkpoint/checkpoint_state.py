"""The file `checkpoint`, which names the checkpoints of a folder, and the files of a checkpoint."""

import os
import re
import time
from typing import Any, Callable, Iterator

from millrace import _core, protos
from millrace.core import errors, logging
from millrace.core.export import export
from millrace.core.text import as_str, path_to_str
from millrace.io import gfile


def state_filename(save_dir: Any, latest_filename: str | None) -> str:
    """The path of the file that names a folder's checkpoints."""
    return os.path.join(as_str(path_to_str(save_dir)), latest_filename or "checkpoint")


@export(v1="train.generate_checkpoint_state_proto")
def generate_checkpoint_state_proto(
    save_dir: Any, model_checkpoint_path: str, all_model_checkpoint_paths: Any = None,
    all_model_checkpoint_timestamps: Any = None, last_preserved_timestamp: float | None = None,
) -> Any:  # fmt: skip
    """A CheckpointState with the newest checkpoint and all of them, the oldest first.

    Paths are relative to `save_dir` where that is relative. ValueError for another number of
    timestamps than of paths.
    """
    # A list of the caller's is completed, as TensorFlow does: savers keep theirs so.
    given = all_model_checkpoint_paths
    paths = given if isinstance(given, list) else list(given or ())
    if not paths or paths[-1] != model_checkpoint_path:
        logging.info(
            "%s is not in all_model_checkpoint_paths. Manually adding it.", model_checkpoint_path
        )
        paths.append(model_checkpoint_path)
    times = list(all_model_checkpoint_timestamps or ())
    if times and len(times) != len(paths):
        raise ValueError(
            "Checkpoint timestamps, if provided, must match checkpoint paths (got paths "
            f"{paths} and timestamps {times})"
        )
    save_dir = as_str(path_to_str(save_dir))
    if not os.path.isabs(save_dir):
        paths = [p if os.path.isabs(p) else os.path.relpath(p, save_dir or ".") for p in paths]
        if not os.path.isabs(model_checkpoint_path):
            model_checkpoint_path = os.path.relpath(model_checkpoint_path, save_dir or ".")
    out = protos.CheckpointState(
        model_checkpoint_path=model_checkpoint_path, all_model_checkpoint_paths=paths,
        all_model_checkpoint_timestamps=times,
    )  # fmt: skip
    if last_preserved_timestamp is not None:
        out.last_preserved_timestamp = last_preserved_timestamp
    return out


@export(v1="train.update_checkpoint_state")
def update_checkpoint_state(
    save_dir: Any, model_checkpoint_path: str, all_model_checkpoint_paths: Any = None,
    latest_filename: str | None = None, all_model_checkpoint_timestamps: Any = None,
    last_preserved_timestamp: float | None = None,
) -> None:  # fmt: skip
    """Writes the file that names a folder's checkpoints, whole or not at all."""
    write_checkpoint_state(
        save_dir, model_checkpoint_path, all_model_checkpoint_paths, latest_filename, False,
        all_model_checkpoint_timestamps, last_preserved_timestamp,
    )  # fmt: skip


def write_checkpoint_state(
    save_dir: Any, model_checkpoint_path: str, all_model_checkpoint_paths: Any = None,
    latest_filename: str | None = None, save_relative_paths: bool = False,
    all_model_checkpoint_timestamps: Any = None, last_preserved_timestamp: float | None = None,
) -> None:  # fmt: skip
    """As `update_checkpoint_state`; `save_relative_paths`: with paths relative to the folder.

    RuntimeError when the checkpoint has the name of this file.
    """
    path = state_filename(save_dir, latest_filename)
    paths = list(all_model_checkpoint_paths or ())
    if save_relative_paths:
        save_dir = as_str(path_to_str(save_dir))
        paths = [os.path.relpath(p, save_dir or ".") for p in paths]
        state = generate_checkpoint_state_proto(
            "", os.path.relpath(model_checkpoint_path, save_dir or "."), paths,
            all_model_checkpoint_timestamps, last_preserved_timestamp,
        )  # fmt: skip
    else:
        state = generate_checkpoint_state_proto(
            save_dir, model_checkpoint_path, paths, all_model_checkpoint_timestamps,
            last_preserved_timestamp,
        )  # fmt: skip
    if path == state.model_checkpoint_path:
        raise RuntimeError(
            f"Save path '{model_checkpoint_path}' conflicts with path used for checkpoint state. "
            "Please use a different save path."
        )
    _core.write_file_atomically(path, protos.text_format.MessageToString(state).encode())


@export(v1="train.get_checkpoint_state", v2="train.get_checkpoint_state")
def get_checkpoint_state(checkpoint_dir: Any, latest_filename: str | None = None) -> Any:
    """The CheckpointState of a folder, with paths that begin with the folder where they were
    relative; None when there is none that can be read.

    ValueError for one that names no checkpoint.
    """
    checkpoint_dir = as_str(path_to_str(checkpoint_dir))
    path = state_filename(checkpoint_dir, latest_filename)
    try:
        if not gfile.Exists(path):
            return None
        with gfile.GFile(path, "rb") as file:
            state = protos.text_format.Parse(file.read().decode(), protos.CheckpointState())
    except (errors.OpError, protos.DecodeError, UnicodeDecodeError) as error:
        logging.warning("%s: %s", type(error).__name__, error)
        logging.warning("%s: Checkpoint ignored", path)
        return None
    if not state.model_checkpoint_path:
        raise ValueError("Invalid checkpoint state loaded from " + checkpoint_dir)
    if not os.path.isabs(state.model_checkpoint_path):
        state.model_checkpoint_path = os.path.join(checkpoint_dir, state.model_checkpoint_path)
    for i, each in enumerate(state.all_model_checkpoint_paths):
        if not os.path.isabs(each):
            state.all_model_checkpoint_paths[i] = os.path.join(checkpoint_dir, each)
    return state


@export(v1="train.latest_checkpoint", v2="train.latest_checkpoint")
def latest_checkpoint(checkpoint_dir: Any, latest_filename: str | None = None) -> str | None:
    """The prefix of the newest checkpoint of a folder, or None."""
    state = get_checkpoint_state(checkpoint_dir, latest_filename)
    if state is None or not state.model_checkpoint_path:
        return None
    if _first_file(state.model_checkpoint_path) is None:
        logging.error("Couldn't match files for checkpoint %s", state.model_checkpoint_path)
        return None
    return state.model_checkpoint_path


def _first_file(prefix: str) -> str | None:
    """A file that is there exactly when the checkpoint is, of either format; None without one."""
    if gfile.Exists(prefix + ".index"):
        return prefix + ".index"
    if gfile.Exists(prefix) and not gfile.IsDirectory(prefix):
        return prefix
    found = gfile.Glob(prefix) if "?" in prefix else []
    return found[0] if found else None


@export(v1="train.checkpoint_exists")
def checkpoint_exists(checkpoint_prefix: Any) -> bool:
    """Whether there is a checkpoint of that prefix, as `Saver.save` gives it."""
    return _first_file(as_str(path_to_str(checkpoint_prefix))) is not None


@export(v1="train.get_checkpoint_mtimes")
def get_checkpoint_mtimes(checkpoint_prefixes: Any) -> list[float]:
    """When checkpoints were written, in seconds since 1970; those that are not there are left
    out."""
    found = [_first_file(as_str(path_to_str(prefix))) for prefix in checkpoint_prefixes]
    return [gfile.Stat(path).mtime_nsec / 1e9 for path in found if path is not None]


@export(v1="train.remove_checkpoint")
def remove_checkpoint(
    checkpoint_prefix: Any, checkpoint_format_version: int = protos.SaverDef.V2,
    meta_graph_suffix: str = "meta",
) -> None:  # fmt: skip
    """Removes the files of a checkpoint, and its MetaGraph. Those that are not there are fine."""
    prefix = as_str(path_to_str(checkpoint_prefix))
    meta = meta_graph_filename(prefix, meta_graph_suffix)
    # The index first: without it there is no checkpoint, and half of one is never taken for one.
    doomed = [prefix + ".index", *_data_files(prefix), meta]
    if checkpoint_format_version != protos.SaverDef.V2:
        doomed += gfile.Glob(prefix)
    for path in doomed:
        if gfile.Exists(path):
            gfile.Remove(path)


def _data_files(prefix: str) -> list[str]:
    folder, base = os.path.split(prefix)
    part = re.compile(re.escape(base) + r"\.data-\d{5}-of-\d{5}")
    names = gfile.ListDirectory(folder or ".") if gfile.IsDirectory(folder or ".") else []
    return [os.path.join(folder, name) for name in names if part.fullmatch(name)]


def meta_graph_filename(checkpoint_filename: str, meta_graph_suffix: str = "meta") -> str:
    """The name of a checkpoint's MetaGraph: that of the checkpoint without the number of a part."""
    return re.sub(r"-[\d\?]+-of-\d+$", "", checkpoint_filename) + "." + meta_graph_suffix


@export(v1="train.checkpoints_iterator", v2="train.checkpoints_iterator")
def checkpoints_iterator(
    checkpoint_dir: Any, min_interval_secs: float = 0, timeout: float | None = None,
    timeout_fn: Callable[[], bool] | None = None,
) -> Iterator[str]:  # fmt: skip
    """The checkpoints of a folder as they appear: the newest that was not given yet, again and
    again.

    Args:
      min_interval_secs: how much time lies between two at least.
      timeout: how long to wait for the next one; None for ever.
      timeout_fn: called when none came in time; True ends the iteration, as having none does.
    """
    last: str | None = None
    while True:
        end = None if timeout is None else time.monotonic() + timeout
        newest = latest_checkpoint(checkpoint_dir)
        while newest is None or newest == last:
            if end is not None and time.monotonic() + 1 > end:
                newest = None
                break
            time.sleep(1)
            newest = latest_checkpoint(checkpoint_dir)
        if newest is None:
            if timeout_fn is None or timeout_fn():
                return
            continue
        started = time.monotonic()
        last = newest
        yield newest
        time.sleep(max(0.0, started + min_interval_secs - time.monotonic()))
