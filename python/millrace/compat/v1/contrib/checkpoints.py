"""Variables from checkpoints, in the ways of contrib."""

from typing import Any, Callable

import numpy as np

from millrace import gen_ops
from millrace.checkpoint.reader import NewCheckpointReader
from millrace.checkpoint.saver import Saver
from millrace.compat.v1.contrib.variables import get_unique_variable
from millrace.core import logging
from millrace.core.export import export
from millrace.ops.ordering import group


@export(v1=("contrib.framework.assign_from_values", "contrib.slim.assign_from_values"))
def assign_from_values(var_names_to_values: dict[str, Any]) -> tuple[Any, dict[Any, Any]]:
    """An operation that assigns values to variables by name, and what to feed to it."""
    return _assignments(
        (get_unique_variable(name), value) for name, value in var_names_to_values.items()
    )


def _assignments(pairs: Any) -> tuple[Any, dict[Any, Any]]:
    assigned, feeds = [], {}
    for variable, value in pairs:
        value = np.asarray(value)
        if not variable.shape.is_compatible_with(value.shape):
            raise ValueError(
                f"Total size of new array must be unchanged for {variable.op.name}: its shape is "
                f"{variable.shape}, the value's {list(value.shape)}"
            )
        given = gen_ops.placeholder(variable.dtype.base_dtype, shape=variable.shape)
        assigned.append(variable.assign(given))
        feeds[given] = value
    return group(*assigned), feeds


@export(v1=("contrib.framework.assign_from_checkpoint", "contrib.slim.assign_from_checkpoint"))
def assign_from_checkpoint(
    model_path: str, var_list: Any, ignore_missing_vars: bool = False
) -> tuple[Any, dict[Any, Any]]:
    """An operation that assigns variables their values in a checkpoint, and what to feed to it.

    Args:
      model_path: the checkpoint's prefix.
      var_list: variables, or a dictionary from their names in the checkpoint.
      ignore_missing_vars: leaves out those that the checkpoint does not have. ValueError otherwise.
    """
    named = var_list if isinstance(var_list, dict) else {v.op.name: v for v in var_list}
    reader = NewCheckpointReader(model_path)
    pairs = []
    for name, variable in named.items():
        if reader.has_tensor(name):
            value = reader.get_tensor(name)
            for part in variable if isinstance(variable, (list, tuple)) else [variable]:
                pairs.append((part, _part_of(value, part)))
        elif ignore_missing_vars:
            logging.info("Skipping assignment of %s from %s", name, model_path)
        else:
            raise ValueError(
                f"Checkpoint is missing variable [{name}]. It has: "
                f"{', '.join(sorted(reader.get_variable_to_shape_map()))}"
            )
    return _assignments(pairs)


def _part_of(value: Any, variable: Any) -> Any:
    info = variable._get_save_slice_info()
    if info is None or list(np.shape(value)) != list(info.full_shape):
        return value
    ranges = zip(info.var_offset, info.var_shape, strict=True)
    return value[tuple(slice(offset, offset + size) for offset, size in ranges)]


@export(
    v1=("contrib.framework.assign_from_checkpoint_fn", "contrib.slim.assign_from_checkpoint_fn")
)
def assign_from_checkpoint_fn(
    model_path: str, var_list: Any, ignore_missing_vars: bool = False,
    reshape_variables: bool = False,
) -> Callable[[Any], None] | None:  # fmt: skip
    """A function of a session that restores variables from a checkpoint; None where there are none
    to restore. See `assign_from_checkpoint`."""
    if not var_list:
        raise ValueError("var_list cannot be empty")
    if ignore_missing_vars:
        named = var_list if isinstance(var_list, dict) else {v.op.name: v for v in var_list}
        reader = NewCheckpointReader(model_path)
        var_list = {name: v for name, v in named.items() if reader.has_tensor(name)}
        for name in named.keys() - var_list.keys():
            logging.warning("Variable %s missing in checkpoint %s", name, model_path)
    if not var_list:
        logging.warning("No Variables to restore")
        return None
    saver = Saver(var_list, reshape=reshape_variables)
    return lambda session: saver.restore(session, model_path)
