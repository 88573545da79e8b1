"""What a saver saves: variables, and objects that say how they are saved and restored."""

from typing import Any, Iterator

from millrace import gen_ops
from millrace.core.device import DeviceSpec
from millrace.core.tensor import Tensor
from millrace.graph.convert import internal_convert
from millrace.graph.default_graph import device as device_scope
from millrace.state.partitioned_variable import PartitionedVariable
from millrace.state.tables import MutableTable
from millrace.state.variable import Variable

_REFERENCE_OPS = ("Variable", "VariableV2", "AutoReloadVariable")


class SaveSpec:
    """A tensor to save: `name` in the checkpoint, and the part `slice_spec` of it ("" for all).

    `tensor` may be a function that makes the tensor when the saver is built; `dtype` and `device`
    say what it will be then.
    """

    def __init__(
        self, tensor: Any, slice_spec: str, name: str, dtype: Any = None, device: Any = None
    ):
        self._tensor = tensor
        self.slice_spec = slice_spec
        self.name = name
        if callable(tensor) and (dtype is None or device is None):
            raise AssertionError(
                f"When passed a callable `tensor` ({name}), a SaveSpec needs an explicit dtype and "
                "device."
            )
        self.dtype = tensor.dtype if dtype is None else dtype
        self.device = tensor.device if device is None else device

    @property
    def tensor(self) -> Tensor:
        """The tensor."""
        return self._tensor() if callable(self._tensor) else self._tensor


class SaveableObject:
    """Something that is saved as tensors and restored from them.

    Args:
      op: what the user knows it as.
      specs: the tensors to save, a list of SaveSpec; all on one device.
      name: its name.
    """

    def __init__(self, op: Any, specs: Any, name: str):
        self.op = op
        self.specs = specs
        self.name = name

    @property
    def optional_restore(self) -> bool:
        """Whether a checkpoint may be without it."""
        return False

    @property
    def device(self) -> Any:
        """The device of its tensors."""
        return self.specs[0].device

    def restore(self, restored_tensors: list[Tensor], restored_shapes: Any) -> Any:
        """The operation that puts restored tensors back; their shapes, or None to take them as they
        are."""
        raise ValueError("Calling an abstract method.")


class ReferenceVariableSaveable(SaveableObject):
    """A variable that is a reference."""

    def __init__(self, var: Any, slice_spec: str, name: str):
        spec = SaveSpec(var, slice_spec, name, dtype=var.dtype.base_dtype)
        super().__init__(var, [spec], name)

    def restore(self, restored_tensors: list[Tensor], restored_shapes: Any) -> Any:
        value = restored_tensors[0]
        if restored_shapes is not None:
            value = gen_ops.reshape(value, restored_shapes[0])
        fixed = restored_shapes is None and self.op.shape.is_fully_defined()
        with self.op.graph.colocate_with(self.op.op):
            return gen_ops.assign(self.op, value, validate_shape=fixed)


class ResourceVariableSaveable(SaveableObject):
    """A variable that is a resource, or the tensor of one that is read."""

    def __init__(self, var: Any, slice_spec: str, name: str):
        self._var_device = var.device
        self._var_shape = var.shape
        read = var if isinstance(var, Tensor) else var._as_graph_element()
        self.handle_op = read.op.inputs[0]
        spec = SaveSpec(read, slice_spec, name, dtype=var.dtype.base_dtype, device=var.device)
        super().__init__(var, [spec], name)

    def restore(self, restored_tensors: list[Tensor], restored_shapes: Any) -> Any:
        value = restored_tensors[0]
        if restored_shapes is not None:
            value = gen_ops.reshape(value, restored_shapes[0])
        with device_scope(self._var_device or None):
            value = gen_ops.identity(value)
            if self._var_shape.is_compatible_with(value.shape):
                value.set_shape(self._var_shape)
            return gen_ops.assign_variable_op(
                self.handle_op, value, validate_shape=self._var_shape.is_fully_defined()
            )


class TableSaveable(SaveableObject):
    """A lookup table: its keys and its values."""

    def __init__(self, table: MutableTable, name: str):
        keys, values = table.export()
        specs = [SaveSpec(keys, "", f"{name}-keys"), SaveSpec(values, "", f"{name}-values")]
        super().__init__(table, specs, name)

    def restore(self, restored_tensors: list[Tensor], restored_shapes: Any) -> Any:
        keys, values = restored_tensors
        handle = self.op.table_ref
        with handle.graph.colocate_with(handle.op):
            return gen_ops.lookup_table_import_v2(handle, keys, values)


def cpu_of(device: Any) -> Any:
    """The first processor of the task of a device; None for no device."""
    if not device:
        return None
    spec = DeviceSpec.from_string(device)
    spec.device_type, spec.device_index = "CPU", 0
    return spec.to_string()


def _saveable(variable: Any, slice_spec: str, name: str) -> SaveableObject:
    """The saveable of one variable, or of a tensor that is one."""
    if isinstance(variable, Variable):
        if variable._is_resource:
            return ResourceVariableSaveable(variable, slice_spec, name)
        return ReferenceVariableSaveable(variable._ref(), slice_spec, name)
    tensor = internal_convert(variable, as_ref=True)
    if tensor.op.type in _REFERENCE_OPS:
        return ReferenceVariableSaveable(tensor, slice_spec, name)
    if tensor.op.type == "ReadVariableOp":
        return ResourceVariableSaveable(tensor, slice_spec, name)
    raise TypeError(
        "names_to_saveables must be a dict mapping string names to Tensors/Variables. Not a "
        f"variable: {variable}"
    )


def saveables_of(op: Any, name: Any) -> Iterator[SaveableObject]:
    """The saveables of what a user gave under a name: a variable, a list of parts, a saveable."""
    if not isinstance(name, str):
        raise TypeError(
            "names_to_saveables must be a dict mapping string names to trackable operations. Name "
            f"is not a string: {name}"
        )
    if isinstance(op, SaveableObject):
        yield op
        return
    if isinstance(op, MutableTable):
        yield TableSaveable(op, name)
        return
    if not isinstance(op, (list, tuple, PartitionedVariable)):
        yield _saveable(op, "", name)
        return
    whole = None
    for part in op:
        if not isinstance(part, Variable):
            raise ValueError(f"Slices must all be Variables: {part}")
        info = part._get_save_slice_info()
        if info is None:
            raise ValueError(f"Slices must all be slices: {part}")
        if whole is None:
            whole = info.full_name
        elif whole != info.full_name:
            raise ValueError(
                f"Slices must all be from the same tensor: {whole} != {info.full_name}"
            )
        yield _saveable(part, info.spec, name)


def op_list_to_dict(op_list: Any, convert_variable_to_tensor: bool = True) -> dict[str, Any]:
    """{name in the checkpoint: what to save} for a list of variables, parts and saveables.

    TypeError for what is no list or holds other things, ValueError for names that are there twice.
    """
    del convert_variable_to_tensor
    if not isinstance(op_list, (list, tuple, set)):
        raise TypeError(f"Variables to save should be passed in a dict or a list: {op_list}")
    out: dict[str, Any] = {}
    for op in sorted(op_list, key=_name_of):
        info = op._get_save_slice_info() if isinstance(op, Variable) else None
        if info is not None:
            parts = out.setdefault(info.full_name, [])
            if not isinstance(parts, list):
                raise ValueError(
                    f"Mixing slices and non-slices with the same name: {info.full_name}"
                )
            parts.append(op)
            continue
        name = _checkpoint_name(op)
        if name in out:
            raise ValueError(f"At least two variables have the same name: {name}")
        out[name] = op
    return out


def _name_of(op: Any) -> str:
    name = getattr(op, "name", None)
    if not isinstance(name, str):
        raise TypeError(f"Variable to save is not a Variable: {op}")
    return name


def _checkpoint_name(op: Any) -> str:
    if isinstance(op, (SaveableObject, PartitionedVariable)):
        return op.name
    if isinstance(op, MutableTable):
        return op.table_ref.op.name
    if isinstance(op, Variable):
        return op._shared_name if op._is_resource else op.op.name
    tensor = internal_convert(op, as_ref=True)
    if tensor.op.type in _REFERENCE_OPS:
        return tensor.op.name
    if tensor.op.type == "ReadVariableOp":
        return tensor.op.inputs[0].op.name
    raise TypeError(f"Variable to save is not a Variable: {op}")


def validate_and_slice_inputs(names_to_saveables: Any) -> list[SaveableObject]:
    """The saveables of {name: what to save}, sorted by name.

    ValueError when one thing is there under two names.
    """
    if not isinstance(names_to_saveables, dict):
        names_to_saveables = op_list_to_dict(names_to_saveables)
    out: list[SaveableObject] = []
    seen: set[int] = set()
    for name in sorted(names_to_saveables, key=str):
        for saveable in saveables_of(names_to_saveables[name], name):
            if id(saveable.op) in seen:
                raise ValueError(
                    f"The same saveable will be restored with two names: {saveable.name}"
                )
            seen.add(id(saveable.op))
            out.append(saveable)
    return out
