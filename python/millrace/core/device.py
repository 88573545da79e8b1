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


@export(v1="DeviceSpec", v2="DeviceSpec")
class DeviceSpec:
    """A device, or what is known of one: job, replica, task, device type and number."""

    def __init__(
        self, job: str | None = None, replica: int | None = None, task: int | None = None,
        device_type: str | None = None, device_index: int | None = None,
    ):  # fmt: skip
        self.job = job
        self.replica = replica
        self.task = task
        self.device_type = None if device_type is None else _type_name(device_type)
        self.device_index = device_index

    def parse_from_string(self, spec: str) -> "DeviceSpec":
        """Takes over what a name says. ValueError for a name that is none."""
        self.__init__()
        for part in spec.split("/"):
            if not part or part in ("", "job:localhost:"):
                continue
            for field, pattern in _PARTS:
                match = pattern.match(part)
                if match:
                    text = match.group(1)
                    value = text if field == "job" else None if text == "*" else int(text)
                    setattr(self, field, value)
                    break
            else:
                match = _DEVICE.match(part) or _SHORT.match(part)
                if not match:
                    raise ValueError(
                        f"Unknown attribute {part!r} in the device {spec!r}: expected a name "
                        "such as "
                        "'/cpu:0', '/gpu:0' or '/job:worker/replica:0/task:0/device:CPU:0'"
                    )
                kind, index = match.groups()
                self.device_type = None if kind == "*" else _type_name(kind)
                self.device_index = None if index in (None, "*") else int(index)
        return self

    def merge_from(self, dev: "DeviceSpec") -> None:
        """Takes over what `dev` says."""
        for field in ("job", "replica", "task"):
            value = getattr(dev, field)
            if value is not None:
                setattr(self, field, value)
        if dev.device_type is not None:
            if dev.device_type != self.device_type:
                self.device_index = None
            self.device_type = dev.device_type
        if dev.device_index is not None:
            self.device_index = dev.device_index

    def to_string(self) -> str:
        """The name that says this."""
        out = ""
        if self.job is not None:
            out += f"/job:{self.job}"
        if self.replica is not None:
            out += f"/replica:{self.replica}"
        if self.task is not None:
            out += f"/task:{self.task}"
        if self.device_type is not None:
            index = "*" if self.device_index is None else self.device_index
            out += f"/device:{self.device_type}:{index}"
        return out

    @staticmethod
    def from_string(spec: str) -> "DeviceSpec":
        """The device that a name stands for. ValueError for a name that is none."""
        return DeviceSpec().parse_from_string(spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceSpec) and self.to_string() == other.to_string()

    def __hash__(self) -> int:
        return hash(self.to_string())

    def __repr__(self) -> str:
        return f"DeviceSpec({self.to_string()!r})"


def _type_name(kind: str) -> str:
    return kind.upper() if kind.lower() in ("cpu", "gpu") else kind


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
    if isinstance(device, DeviceSpec):
        return device.to_string()
    return DeviceSpec.from_string(device).to_string()


def device_text(device: Any) -> str:
    """A device's name, given it or a DeviceSpec; empty for None."""
    if device is None:
        return ""
    return device if isinstance(device, str) else device.to_string()
