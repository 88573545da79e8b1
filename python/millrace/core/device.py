"""Names of devices: "/job:worker/replica:0/task:1/device:GPU:0", and parts of such names."""

import re
from typing import Any

from millrace.core.export import export

_PARTS = (
    ("job", re.compile(r"job:([A-Za-z_][A-Za-z0-9_-]*)$")),
    ("replica", re.compile(r"replica:(\d+|\*)$")),
    ("task", re.compile(r"task:(\d+|\*)$")),
)
_DEVICE = re.compile(r"device:([A-Za-z_][A-Za-z0-9_-]*|\*)(?::(\d+|\*))?$", re.IGNORECASE)
_SHORT = re.compile(r"(cpu|gpu)(?::(\d+|\*))?$", re.IGNORECASE)


@export(v2="DeviceSpec")
class DeviceSpecV2:
    """A device, or what is known of one: job, replica, task, device type and number."""

    def __init__(
        self, job: str | None = None, replica: int | None = None, task: int | None = None,
        device_type: str | None = None, device_index: int | None = None,
    ):  # fmt: skip
        self._said: dict[str, Any] = {
            "job": None if job is None else str(job),
            "replica": None if replica is None else int(replica),
            "task": None if task is None else int(task),
            "device_type": None if device_type is None else _type_name(str(device_type)),
            "device_index": None if device_index is None else int(device_index),
        }

    @property
    def job(self) -> str | None:
        """The name of the job."""
        return self._said["job"]

    @property
    def replica(self) -> int | None:
        """The number of the replica."""
        return self._said["replica"]

    @property
    def task(self) -> int | None:
        """The number of the task."""
        return self._said["task"]

    @property
    def device_type(self) -> str | None:
        """The kind of device: CPU, GPU."""
        return self._said["device_type"]

    @property
    def device_index(self) -> int | None:
        """The number of the device."""
        return self._said["device_index"]

    def parse_from_string(self, spec: str) -> Any:
        """The device that a name stands for. ValueError for a name that is none."""
        return type(self)(**_parsed(spec))

    @classmethod
    def from_string(cls, spec: str) -> Any:
        """The device that a name stands for. ValueError for a name that is none."""
        return cls(**_parsed(spec))

    def replace(self, **kwargs: Any) -> Any:
        """Another one with some of its parts changed."""
        return type(self)(**{**self._said, **kwargs})

    def make_merged_spec(self, dev: "DeviceSpecV2") -> Any:
        """Another one, which says what `dev` says and beyond that what this one does."""
        return type(self)(**self._merged(dev))

    def _merged(self, dev: "DeviceSpecV2") -> dict[str, Any]:
        out, given = dict(self._said), dev._said
        if given["device_type"] not in (None, out["device_type"]):
            out["device_index"] = None
        out.update({part: value for part, value in given.items() if value is not None})
        return out

    def to_string(self) -> str:
        """The name that says this."""
        parts = self._said
        out = "".join(
            f"/{part}:{parts[part]}"
            for part in ("job", "replica", "task")
            if parts[part] is not None
        )
        if parts["device_type"] is not None:
            index = "*" if parts["device_index"] is None else parts["device_index"]
            out += f"/device:{parts['device_type']}:{index}"
        return out

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceSpecV2) and self.to_string() == other.to_string()

    def __hash__(self) -> int:
        return hash(self.to_string())

    def __repr__(self) -> str:
        return f"DeviceSpec({self.to_string()!r})"


@export(v1="DeviceSpec")
class DeviceSpec(DeviceSpecV2):
    """A device, or what is known of one, whose parts may be set."""

    def parse_from_string(self, spec: str) -> "DeviceSpec":
        """Takes over what a name says. ValueError for a name that is none."""
        self.__init__(**_parsed(spec))
        return self

    def merge_from(self, dev: DeviceSpecV2) -> None:
        """Takes over what `dev` says."""
        self._said = self._merged(dev)


def _settable(part: str, clean: Any) -> property:
    def write(self: DeviceSpec, value: Any) -> None:
        self._said[part] = None if value is None else clean(value)

    read: property = getattr(DeviceSpecV2, part)
    return property(read.fget, write, doc=read.__doc__)


def _parsed(spec: str) -> dict[str, Any]:
    """The parts that a name says. ValueError for a name that is none."""
    out: dict[str, Any] = {}
    device = False
    for part in spec.split("/"):
        if not part or part in ("", "job:localhost:"):
            continue
        for field, pattern in _PARTS:
            match = pattern.match(part)
            if match:
                text = match.group(1)
                out[field] = text if field == "job" else None if text == "*" else int(text)
                break
        else:
            match = _DEVICE.match(part) or _SHORT.match(part)
            if not match:
                raise ValueError(
                    f"Unknown attribute {part!r} in the device {spec!r}: expected a name such as "
                    "'/cpu:0', '/gpu:0' or '/job:worker/replica:0/task:0/device:CPU:0'"
                )
            if device:
                raise ValueError(f"Cannot specify multiple device types: {spec!r}")
            device = True
            kind, index = match.groups()
            out["device_type"] = None if kind == "*" else _type_name(kind)
            out["device_index"] = None if index in (None, "*") else int(index)
    return out


def _type_name(kind: str) -> str:
    return kind.upper() if kind.lower() in ("cpu", "gpu") else kind


for _part, _clean in (
    ("job", str), ("replica", int), ("task", int), ("device_type", _type_name),
    ("device_index", int),
):  # fmt: skip
    setattr(DeviceSpec, _part, _settable(_part, _clean))


def merge_device(outer: str, inner: str) -> str:
    """The name that says what either says; `inner` where they differ. ValueError for a bad name."""
    if not inner and not outer:
        return ""
    spec = DeviceSpec.from_string(outer or "")
    spec.merge_from(DeviceSpec.from_string(inner or ""))
    return spec.to_string()


def canonical_name(device: Any) -> str:
    """The name of a device given as a name or a DeviceSpec."""
    if device is None:
        return ""
    if isinstance(device, DeviceSpecV2):
        return device.to_string()
    return DeviceSpec.from_string(device).to_string()


def device_text(device: Any) -> str:
    """A device's name, given it or a DeviceSpec; empty for None."""
    if device is None:
        return ""
    return device if isinstance(device, str) else device.to_string()
