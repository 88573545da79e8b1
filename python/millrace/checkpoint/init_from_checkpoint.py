"""Variables whose initial values come from a checkpoint."""

from typing import Any

from millrace import gen_ops
from millrace.checkpoint.reader import CheckpointReader, checkpoint_prefix, load_checkpoint
from millrace.checkpoint.saveable import saveables_of
from millrace.core import logging
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.suggest import nearest_names
from millrace.graph.default_graph import device
from millrace.state.init_scope import Lifted
from millrace.state.partitioned_variable import PartitionedVariable
from millrace.state.variable import Variable
from millrace.state.variable_scope import store_of


@export(v1=("train.init_from_checkpoint", "contrib.framework.init_from_checkpoint"))
def init_from_checkpoint(ckpt_dir_or_file: Any, assignment_map: Any) -> None:
    """Lets variables have their values in a checkpoint as initial values: their initializers read
    it.

    Args:
      ckpt_dir_or_file: a checkpoint's prefix, or a folder with a checkpoint.
      assignment_map: from what is in the checkpoint to what is in the graph. "scope/" to "other/":
        all variables of the one scope, from names in the other; "/" is the root. A name to a name
        that `get_variable` knows, to a variable, to the list of the parts of one.

    ValueError for names that either side does not have, and for shapes that differ.
    """
    with Lifted():
        prefix = checkpoint_prefix(ckpt_dir_or_file)
        reader = load_checkpoint(prefix)
        pairs = assignment_map.items() if hasattr(assignment_map, "items") else assignment_map
        for tensor_name, target in pairs:
            found = target if not isinstance(target, str) else _variable_named(target)
            if found is not None:
                _initialise(found, reader, prefix, tensor_name)
            else:
                _initialise_scope(target, reader, prefix, tensor_name)


def _variable_named(name: str) -> Any:
    store = store_of()
    return store.variables.get(name, store.partitioned.get(name))


def _initialise_scope(scope: str, reader: CheckpointReader, prefix: str, tensor_scope: str) -> None:
    if not tensor_scope.endswith("/"):
        raise ValueError(
            f"Assignment map with scope only name {scope} should map to scope only {tensor_scope}. "
            "Should be 'scope/': 'other_scope/'."
        )
    store = store_of()
    above = scope.rpartition("/")[0]
    names = {
        name.partition("/part_")[0] for name in store.variables
        if not above or name.startswith(above + "/")
    }  # fmt: skip
    for name in sorted(names):
        rest = name[len(above) + 1 :] if above else name
        tensor_name = rest if tensor_scope == "/" else tensor_scope + rest
        if not reader.has_tensor(tensor_name):
            raise ValueError(
                f"Tensor {tensor_name} ({name} in {tensor_scope}) is not found in {prefix} "
                f"checkpoint.{nearest_names(tensor_name, reader.get_variable_to_shape_map())}"
            )
        _initialise(_variable_named(name), reader, prefix, tensor_name)


def _parts(found: Any) -> list[Variable]:
    if isinstance(found, PartitionedVariable):
        return found._get_variable_list()
    parts = list(found) if isinstance(found, (list, tuple)) else [found]
    if not parts or not all(isinstance(part, Variable) for part in parts):
        raise TypeError(f"A variable, its name or the list of its parts is needed, got {found!r}")
    return parts


def _initialise(found: Any, reader: CheckpointReader, prefix: str, tensor_name: str) -> None:
    parts = _parts(found)
    shapes = reader.get_variable_to_shape_map()
    if tensor_name not in shapes:
        raise ValueError(
            f"Tensor {tensor_name} is not found in {prefix} checkpoint "
            f"{shapes}.{nearest_names(tensor_name, shapes)}"
        )
    info = parts[0]._get_save_slice_info()
    sliced = isinstance(found, (list, tuple, PartitionedVariable)) and info is not None
    shape = TensorShape(info.full_shape) if sliced else parts[0].shape
    name = info.full_name if sliced else parts[0].name
    if not shape.is_compatible_with(shapes[tensor_name]):
        raise ValueError(
            f"Shape of variable {name} ({shape}) doesn't match with shape of tensor {tensor_name} "
            f"({shapes[tensor_name]}) from checkpoint reader."
        )
    for part in parts:
        spec = part._get_save_slice_info().spec if sliced else ""
        _set_initializer(part, prefix, tensor_name, spec)
    logging.info("Initialize variable %s from checkpoint %s with %s", name, prefix, tensor_name)


def _set_initializer(variable: Variable, prefix: str, tensor_name: str, slice_spec: str) -> None:
    dtype = variable.dtype.base_dtype
    with device(variable.device or None), device("/cpu:0"):
        restored = gen_ops.restore_v2(
            prefix, [tensor_name], [slice_spec], [dtype], name="checkpoint_initializer"
        )[0]
    restored.set_shape(variable.shape)
    saveable = next(saveables_of(variable, tensor_name))
    assign = saveable.restore([restored], None)
    set_initializer(variable, restored, assign)


def set_initializer(variable: Variable, value: Any, assign: Any) -> None:
    """Gives a variable another initial value, and the operation that assigns it."""
    variable._initializer_op = getattr(assign, "op", assign)
    variable._initial_value = value
