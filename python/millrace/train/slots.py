"""Slots: variables of an optimiser that stand beside the variables it trains."""

from contextlib import nullcontext
from typing import Any

from millrace import _core
from millrace.core.shapes import as_dims
from millrace.core.tensor import Tensor
from millrace.graph.default_graph import get_default_graph
from millrace.ops.array import shape as shape_of
from millrace.ops.array import zeros
from millrace.state.eager_variable import Variable as EagerVariable
from millrace.state.eager_variable import is_eager_variable
from millrace.state.initializers import Zeros
from millrace.state.resource_variable import ResourceVariable
from millrace.state.save_slice_info import SaveSliceInfo
from millrace.state.variable import Variable
from millrace.state.variable_scope import get_variable, get_variable_scope, variable_scope


def _slot(
    primary: Any, name: str, initial: Any, shape: Any, dtype: Any, colocate: bool,
    validate_shape: bool = True,
) -> Any:  # fmt: skip
    """A variable "primary/name", numbered where there is one. A slot for a part of a larger
    variable is itself a part."""
    if is_eager_variable(primary):
        return eager_slot(primary, name, initial, shape, dtype)
    place = get_default_graph().colocate_with(primary.op) if colocate else nullcontext()
    with variable_scope(None, primary.op.name + "/" + name), place:
        get_variable_scope().set_partitioner(None)
        slot = get_variable(
            "", initializer=initial, shape=shape, dtype=dtype, trainable=False,
            use_resource=isinstance(primary, ResourceVariable), validate_shape=validate_shape,
        )  # fmt: skip
    info = primary._get_save_slice_info() if isinstance(primary, Variable) else None
    rank = slot.shape.ndims
    if info is not None and rank != 0:
        own_name = slot.op.name[len(primary.op.name) + 1 :]
        slot._set_save_slice_info(
            SaveSliceInfo(
                f"{info.full_name}/{own_name}",
                list(info.full_shape)[:rank],
                list(info.var_offset)[:rank],
                list(info.var_shape)[:rank],
            )
        )
    return slot


def eager_slot(primary: EagerVariable, name: str, initial: Any, shape: Any, dtype: Any) -> Any:
    """A slot of a variable that has a value now."""
    with _core.init_scope():
        if callable(initial) and not isinstance(initial, (Tensor, EagerVariable)):
            initial = initial(as_dims(shape), dtype=dtype)
        whole = f"{primary._shared_name}/{name}"
        return EagerVariable(initial, trainable=False, name=whole, dtype=dtype)


def create_slot(primary: Any, val: Any, name: str, colocate_with_primary: bool = True) -> Any:
    """A slot with an initial value, named after the variable: "w/Adam"."""
    validate = val.shape.is_fully_defined() if hasattr(val, "shape") else True
    return _slot(primary, name, val, None, None, colocate_with_primary, validate)


def create_slot_with_initializer(
    primary: Any, initializer: Any, shape: Any, dtype: Any, name: str,
    colocate_with_primary: bool = True,
) -> Any:  # fmt: skip
    """A slot of a shape with values from an initialiser."""
    validate = shape.is_fully_defined() if hasattr(shape, "is_fully_defined") else True
    return _slot(primary, name, initializer, shape, dtype, colocate_with_primary, validate)


def create_zeros_slot(
    primary: Any, name: str, dtype: Any = None, colocate_with_primary: bool = True
) -> Any:
    """A slot of the variable's shape, filled with zeros."""
    if dtype is None:
        dtype = primary.dtype.base_dtype
    shape = primary.shape
    if shape.is_fully_defined():
        return _slot(primary, name, Zeros(), shape, dtype, colocate_with_primary)
    known = primary if isinstance(primary, Tensor) else primary.initialized_value()
    value = zeros(shape_of(known), dtype=dtype)
    return create_slot(primary, value, name, colocate_with_primary)
