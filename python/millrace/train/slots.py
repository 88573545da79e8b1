"""Slots: variables of an optimiser that stand beside the variables it trains."""

from contextlib import nullcontext
from typing import Any

from millrace._export import export
from millrace.graph.convert import convert_to_tensor
from millrace.graph.graph import get_default_graph
from millrace.initializers import zeros_initializer
from millrace.variable_scope import VariableScope, get_variable, variable_scope
from millrace.variables import ResourceVariable, Variable


def _slot(primary: Any, name: str, initial: Any, shape: Any, dtype: Any, colocate: bool) -> Any:
    """A variable "primary/name". Of a part of a partitioned variable, under the name of the whole."""
    info = primary._get_save_slice_info() if isinstance(primary, Variable) else None
    base = info.full_name if info is not None else primary.op.name
    place = get_default_graph().colocate_with(primary.op) if colocate else nullcontext()
    with variable_scope(VariableScope(None), base + "/" + name), place:
        slot = get_variable(
            "", initializer=initial, shape=shape, dtype=dtype, trainable=False,
            use_resource=isinstance(primary, ResourceVariable),
        )  # fmt: skip
    if info is not None and slot.shape.is_compatible_with(primary.shape):
        kind = type(info)
        slot._set_save_slice_info(
            kind(
                f"{info.full_name}/{name}",
                list(info.full_shape),
                list(info.var_offset),
                list(info.var_shape),
            )
        )
    return slot


@export("train.slot_creator.create_slot")
def create_slot(primary: Any, val: Any, name: str, colocate_with_primary: bool = True) -> Any:
    """A slot with an initial value, named after the variable: "w/Adam"."""
    return _slot(primary, name, convert_to_tensor(val), None, None, colocate_with_primary)


@export("train.slot_creator.create_slot_with_initializer")
def create_slot_with_initializer(
    primary: Any, initializer: Any, shape: Any, dtype: Any, name: str,
    colocate_with_primary: bool = True,
) -> Any:  # fmt: skip
    """A slot of a shape with values from an initialiser."""
    return _slot(primary, name, initializer, shape, dtype, colocate_with_primary)


@export("train.slot_creator.create_zeros_slot")
def create_zeros_slot(
    primary: Any, name: str, dtype: Any = None, colocate_with_primary: bool = True
) -> Any:
    """A slot of the variable's shape, filled with zeros."""
    if dtype is None:
        dtype = primary.dtype.base_dtype
    if primary.shape.is_fully_defined():
        return _slot(
            primary, name, zeros_initializer(), primary.shape, dtype, colocate_with_primary
        )
    from millrace.ops.array import zeros_like

    value = zeros_like(primary.initialized_value(), dtype=dtype)
    return create_slot(primary, value, name, colocate_with_primary)
