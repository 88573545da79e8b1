"""tf.train.CheckpointManager: keeps the newest checkpoints of a folder."""

import os
import time
from typing import Any

from millrace.checkpoint.checkpoint_state import (
    get_checkpoint_mtimes,
    get_checkpoint_state,
    remove_checkpoint,
    write_checkpoint_state,
)
from millrace.core import logging
from millrace.core.export import export
from millrace.core.text import as_str, path_to_str
from millrace.state.eager_variable import Variable


@export(v1="train.CheckpointManager", v2="train.CheckpointManager")
class CheckpointManager:
    """Saves a Checkpoint under numbers, and removes old ones.

    Args:
      checkpoint: the `tf.train.Checkpoint`.
      directory: where checkpoints lie. Those there are known from its file `checkpoint`.
      max_to_keep: how many are kept; None for all.
      keep_checkpoint_every_n_hours: one of so much time is kept besides.
      checkpoint_name: the beginning of names.
      step_counter: a variable with the number of steps.
      checkpoint_interval: how many steps lie between two checkpoints at least.
      init_fn: called by `restore_or_initialize` where there is nothing to restore.
    """

    def __init__(
        self, checkpoint: Any, directory: Any, max_to_keep: int | None,
        keep_checkpoint_every_n_hours: float | None = None, checkpoint_name: str = "ckpt",
        step_counter: Any = None, checkpoint_interval: int | None = None, init_fn: Any = None,
    ):  # fmt: skip
        self._checkpoint = checkpoint
        self._directory = as_str(path_to_str(directory))
        if max_to_keep is not None and max_to_keep <= 0:
            raise ValueError(
                "Expected a positive integer or `None` for `max_to_keep`, got " f"{max_to_keep}."
            )
        self._max_to_keep = max_to_keep
        self._keep_every = keep_checkpoint_every_n_hours
        self._checkpoint_name = checkpoint_name
        if checkpoint_interval is not None and step_counter is None:
            raise ValueError(
                "`step_counter` should be passed if `checkpoint_interval` is not None."
            )
        self._step_counter = step_counter
        self._checkpoint_interval = checkpoint_interval
        self._last_step: int | None = None
        self._init_fn = init_fn
        self._prefix = os.path.join(self._directory, checkpoint_name)
        # Those that may be removed, the oldest first, with the time of each.
        self._kept: dict[str, float] = {}
        self._latest: str | None = None
        self._read_state()

    def _read_state(self) -> None:
        state = get_checkpoint_state(self._directory)
        now = time.time()
        if state is None:
            self._last_preserved = now
            return
        self._latest = state.model_checkpoint_path or None
        paths = list(state.all_model_checkpoint_paths)
        times = list(state.all_model_checkpoint_timestamps)
        self._last_preserved = state.last_preserved_timestamp or now
        if len(times) != len(paths):
            # Times from files may be those of a copy: nothing is removed for its age.
            found = get_checkpoint_mtimes(paths)
            times = found if len(found) == len(paths) else [now] * len(paths)
            if self._keep_every is None:
                self._last_preserved = now
        self._kept = dict(zip(paths, times, strict=True))

    @property
    def directory(self) -> str:
        """Where checkpoints lie."""
        return self._directory

    @property
    def checkpoint_interval(self) -> int | None:
        """How many steps lie between two checkpoints at least."""
        return self._checkpoint_interval

    @property
    def checkpoint(self) -> Any:
        """What is saved."""
        return self._checkpoint

    @property
    def latest_checkpoint(self) -> str | None:
        """The prefix of the newest checkpoint, or None."""
        return self._latest

    @property
    def checkpoints(self) -> list[str]:
        """The prefixes of those that are kept, the oldest first."""
        return list(self._kept)

    def _sweep(self) -> None:
        if self._max_to_keep is None:
            return
        while len(self._kept) > self._max_to_keep:
            path, written = next(iter(self._kept.items()))
            del self._kept[path]
            age = written - self._last_preserved
            if self._keep_every is not None and age >= self._keep_every * 3600:
                self._last_preserved = written
                continue
            remove_checkpoint(path)

    def _write_state(self) -> None:
        paths, times = list(self._kept), list(self._kept.values())
        assert self._latest is not None
        write_checkpoint_state(
            self._directory, self._latest, paths, None, True, times, self._last_preserved
        )

    def save(
        self, checkpoint_number: Any = None, check_interval: bool = True, options: Any = None
    ) -> str | None:
        """Saves, and removes what is too old. Gives the prefix, or None where the last checkpoint
        is less than `checkpoint_interval` steps old.

        `checkpoint_number`: the number in the name; the save counter's by default.
        """
        if self._checkpoint_interval is not None:
            step = _number(self._step_counter)
            last = self._last_step if check_interval else None
            if last is not None and step - last < self._checkpoint_interval:
                return None
            self._last_step = step
        if checkpoint_number is None:
            number = _number(self._checkpoint.save_counter.assign_add(1))
        else:
            number = _number(checkpoint_number)
        path = self._checkpoint.write(f"{self._prefix}-{number}", options)
        self._latest = path
        self._kept.pop(path, None)
        self._kept[path] = time.time()
        # What the file names is there: it is written before and after files go.
        self._write_state()
        self._sweep()
        self._write_state()
        return path

    def restore_or_initialize(self) -> str | None:
        """Restores the newest checkpoint and gives its prefix; else calls `init_fn` and gives
        None."""
        if self._latest is not None:
            self._checkpoint.restore(self._latest)
            if self._checkpoint_interval is not None:
                self._last_step = _number(self._step_counter)
            return self._latest
        if self._init_fn is not None:
            self._init_fn()
            logging.info("Customized initialization is done through the passed `init_fn`.")
        return None

    def sync(self) -> None:
        """Nothing: saves are done when they return."""
        self._checkpoint.sync()


def _number(value: Any) -> int:
    if isinstance(value, Variable):
        value = value.numpy()
    return int(value)
