"""Switches between TensorFlow 1's behaviour and 2's. `millrace.compat.v1` begins with 1's."""

from typing import Any

from millrace import _core
from millrace.core import errors
from millrace.core.export import export
from millrace.core.shapes import plain_sizes
from millrace.graph import default_graph


@export(v1="disable_v2_behavior")
def disable_v2_behavior() -> None:
    """TensorFlow 1's behaviour: operations go into graphs, and sizes of shapes are Dimension
    objects, until somebody asks for another."""
    disable_eager_execution()
    disable_v2_tensorshape()


@export(v1="disable_eager_execution")
def disable_eager_execution() -> None:
    """Operations go into graphs, those of `import millrace` too."""
    _core.choose_eager(False)


@export(v1="disable_v2_tensorshape")
def disable_v2_tensorshape() -> None:
    """Sizes of shapes are Dimension objects."""
    plain_sizes.choose(False)


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


def _not_yet(what: str) -> errors.UnimplementedError:
    return errors.UnimplementedError(
        None, None,
        f"{what}: millrace.compat.v1 has TensorFlow 1's; `import millrace` has TensorFlow 2's.",
    )  # fmt: skip


@export(v1="enable_eager_execution")
def enable_eager_execution(
    config: Any = None, device_policy: Any = None, execution_mode: Any = None
) -> None:
    """Operations run at once where no graph is open. To be called before the first operation:
    ValueError once the default graph has some."""
    del config, device_policy, execution_mode
    if not _core.eager_enabled() and default_graph.global_graph_is_used():
        raise ValueError("tf.enable_eager_execution must be called at program startup.")
    _core.choose_eager(True)


@export(v1="enable_v2_behavior")
def enable_v2_behavior() -> None:
    """Operations run at once (`enable_eager_execution`), and sizes of shapes are numbers."""
    enable_eager_execution()
    enable_v2_tensorshape()


@export(v1="enable_v2_tensorshape")
def enable_v2_tensorshape() -> None:
    """Sizes of shapes are int and None."""
    plain_sizes.choose(True)


@export(v1="enable_tensor_equality")
def enable_tensor_equality() -> None:
    """UnimplementedError in this version."""
    raise _not_yet("Cannot compare tensors by their elements with ==")
