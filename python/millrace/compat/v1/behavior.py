"""Switches between TensorFlow 1's behaviour and 2's. `millrace.compat.v1` is TensorFlow 1's."""

from typing import Any

from millrace.core import errors
from millrace.core.export import export


@export(v1="disable_v2_behavior")
def disable_v2_behavior() -> None:
    """Nothing: this is TensorFlow 1's behaviour."""


@export(v1="disable_eager_execution")
def disable_eager_execution() -> None:
    """Nothing: operations go into graphs."""


@export(v1="disable_v2_tensorshape")
def disable_v2_tensorshape() -> None:
    """Nothing: sizes of shapes are Dimension objects."""


@export(v1="disable_tensor_equality")
def disable_tensor_equality() -> None:
    """Nothing: tensors are equal when they are the same one."""


@export(v1="disable_control_flow_v2")
def disable_control_flow_v2() -> None:
    """Nothing: branches and loops behave as they do."""


@export(v1="enable_control_flow_v2")
def enable_control_flow_v2() -> None:
    """Nothing: branches and loops are functions of graphs already."""


@export(v1="control_flow_v2_enabled")
def control_flow_v2_enabled() -> bool:
    """Whether branches and loops are functions of graphs."""
    return True


@export(v1=("executing_eagerly", "executing_eagerly_outside_functions"))
def executing_eagerly() -> bool:
    """Whether operations run at once: no, they go into graphs."""
    return False


def _not_yet(what: str) -> errors.UnimplementedError:
    return errors.UnimplementedError(
        None, None,
        f"{what}: this version of Millrace has TensorFlow 1's behaviour, with graphs and sessions. "
        "Eager execution comes in a later one.",
    )  # fmt: skip


@export(v1="enable_eager_execution")
def enable_eager_execution(
    config: Any = None, device_policy: Any = None, execution_mode: Any = None
) -> None:
    """UnimplementedError in this version."""
    raise _not_yet("Cannot run operations eagerly")


@export(v1="enable_v2_behavior")
def enable_v2_behavior() -> None:
    """UnimplementedError in this version."""
    raise _not_yet("Cannot switch to TensorFlow 2's behaviour")


@export(v1="enable_v2_tensorshape")
def enable_v2_tensorshape() -> None:
    """UnimplementedError in this version."""
    raise _not_yet("Cannot switch to TensorFlow 2's shapes")


@export(v1="enable_tensor_equality")
def enable_tensor_equality() -> None:
    """UnimplementedError in this version."""
    raise _not_yet("Cannot compare tensors by their elements with ==")
