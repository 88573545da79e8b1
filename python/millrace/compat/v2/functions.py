"""Functions that TensorFlow 2 has in a form of its own."""

from typing import Any

from millrace import _core
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor as _convert


@export(v2="convert_to_tensor")
def convert_to_tensor(
    value: Any, dtype: Any = None, dtype_hint: Any = None, name: str | None = None
) -> Tensor:
    """The value as a Tensor: itself, a constant, or what a registered conversion makes of it."""
    return _convert(value, dtype, name, dtype_hint=dtype_hint)


@export(v2="device")
class device:
    """A context in which operations are asked to run on a device: "/CPU:0"."""

    def __init__(self, device_name: Any):
        self._name = device_name

    def __enter__(self) -> None:
        if _core.executing_eagerly():
            self._before = _core.eager_device()
            _core.set_eager_device(_matching(self._name))
            self._scope = None
        else:
            from millrace.graph.default_graph import device as graph_device  # late: seldom

            self._scope = graph_device(self._name)
            self._scope.__enter__()

    def __exit__(self, *error: Any) -> None:
        if self._scope is not None:
            self._scope.__exit__(*error)
        else:
            _core.set_eager_device(self._before)


def _matching(name: Any) -> str | None:
    """The device that a name, perhaps a part of one, means."""
    if name is None:
        return None
    from millrace.core.device import merge_device  # late: seldom

    devices = _core.eager_devices()
    wanted = merge_device(devices[0].rpartition("/device:")[0], str(name))
    for known in devices:
        if known == wanted or known.startswith(wanted + ":"):
            return known
    from millrace.eager.devices import get_soft_device_placement  # late: seldom

    # A program for one GPU runs without it; a number that is not there is a mistake.
    task = devices[0].rpartition("/device:")[0]
    one = wanted in (f"{task}/device:GPU:0", f"{task}/device:GPU:*", f"{task}/device:GPU")
    if one and get_soft_device_placement():
        return None
    from millrace.core.errors import InvalidArgumentError  # late: only errors need it

    raise InvalidArgumentError(
        None, None, f"Could not satisfy device specification '{name}'. Known devices: {devices}"
    )
