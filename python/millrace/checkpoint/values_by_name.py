"""Checkpoints of variables outside of graphs, by their names: what Saver does without a session."""

import os
from typing import Any

from millrace import gen_ops
from millrace.checkpoint.checkpoint_state import write_checkpoint_state
from millrace.io import gfile
from millrace.state.eager_variable import is_eager_variable


def named_variables(var_list: Any) -> dict[str, Any]:
    """The variables by the names that they have in a checkpoint. RuntimeError where none are given,
    TypeError for what is no variable, ValueError for two of one name."""
    if var_list is None:
        raise RuntimeError(
            "When eager execution is enabled, `var_list` must specify a list or dict of variables "
            "to save"
        )
    pairs = (
        list(var_list.items())
        if isinstance(var_list, dict)
        else [(getattr(v, "_shared_name", ""), v) for v in var_list]
    )
    named: dict[str, Any] = {}
    for name, variable in pairs:
        if not is_eager_variable(variable):
            raise TypeError(f"Can only save Variables when eager execution is enabled: {variable}")
        if name in named and named[name] is not variable:
            raise ValueError(f"At least two variables have the same name: {name}")
        named[name] = variable
    return named


def write(path: str, variables: dict[str, Any]) -> None:
    """Writes the values. ValueError where the folder is not there."""
    folder = os.path.dirname(path) or "."
    if not gfile.IsDirectory(folder):
        raise ValueError(f"Parent directory of {path} doesn't exist, can't save.")
    names = list(variables)
    gen_ops.save_v2(path, names, [""] * len(names), [v.value() for v in variables.values()])


def read(path: str, variables: dict[str, Any]) -> None:
    """Assigns what the checkpoint has; NotFoundError, and nothing changed, where it lacks one."""
    names, kinds = list(variables), [v.dtype for v in variables.values()]
    values = gen_ops.restore_v2(path, names, [""] * len(names), kinds)
    for variable, value in zip(variables.values(), values, strict=True):
        variable.assign(value)


def note(saver: Any, save_path: str, path: str, latest_filename: str) -> None:
    """Names a new checkpoint in the file that lists those of its folder."""
    write_checkpoint_state(
        os.path.dirname(save_path), path, saver.last_checkpoints, latest_filename,
        saver._save_relative_paths,
    )  # fmt: skip
