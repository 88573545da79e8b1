"""The devices and threads that operations outside of graphs run on."""

from typing import Any, NamedTuple

from millrace import _core
from millrace.core.export import export


@export(v2="config.PhysicalDevice")
class PhysicalDevice(NamedTuple):
    """A device of this machine: "/physical_device:CPU:0"."""

    name: str
    device_type: str


@export(v2="config.LogicalDevice")
class LogicalDevice(NamedTuple):
    """A device that operations are placed on: "/device:CPU:0"."""

    name: str
    device_type: str


@export(v2=("config.LogicalDeviceConfiguration", "config.experimental.VirtualDeviceConfiguration"))
class LogicalDeviceConfiguration(NamedTuple):
    """One of the logical devices that stand for a physical one."""

    memory_limit: int | None = None
    experimental_priority: int | None = None
    experimental_device_ordinal: int | None = None


_CPU = PhysicalDevice("/physical_device:CPU:0", "CPU")


class _Options:
    """What the runtime is to be made with."""

    def __init__(self) -> None:
        self.intra_op_threads = 0
        self.inter_op_threads = 0
        self.soft_placement = True
        self.cpu_devices: list[LogicalDeviceConfiguration] | None = None
        self.visible = [_CPU]
        self.jit: Any = ""

    def apply(self, what: str) -> None:
        """Hands them to the runtime. RuntimeError when that is there already."""
        count = 1 if self.cpu_devices is None else len(self.cpu_devices)
        if not _core.set_eager_options(self.intra_op_threads, count, self.soft_placement):
            raise RuntimeError(f"{what} cannot be modified after initialization.")


_options = _Options()


def _check_started(what: str) -> None:
    if _core.eager_started():
        raise RuntimeError(f"{what} cannot be modified after initialization.")


def _of_type(devices: list[Any], device_type: str | None) -> list[Any]:
    return [d for d in devices if device_type is None or d.device_type == device_type]


@export(v2=("config.list_physical_devices", "config.experimental.list_physical_devices"))
def list_physical_devices(device_type: str | None = None) -> list[PhysicalDevice]:
    """The devices of this machine, or those of a type: "CPU", "GPU"."""
    return _of_type([_CPU], device_type)


@export(v2=("config.list_logical_devices", "config.experimental.list_logical_devices"))
def list_logical_devices(device_type: str | None = None) -> list[LogicalDevice]:
    """The devices that operations run on, or those of a type. Starts the runtime."""
    devices = []
    for name in _core.eager_devices():
        short = name[name.index("/device:") :]
        devices.append(LogicalDevice(short, short.split(":")[1]))
    return _of_type(devices, device_type)


@export(v2=("config.get_visible_devices", "config.experimental.get_visible_devices"))
def get_visible_devices(device_type: str | None = None) -> list[PhysicalDevice]:
    """The physical devices that are used."""
    return _of_type(_options.visible, device_type)


@export(v2=("config.set_visible_devices", "config.experimental.set_visible_devices"))
def set_visible_devices(devices: Any, device_type: str | None = None) -> None:
    """Which physical devices are used; the processor always is.

    ValueError for a device that there is not, RuntimeError once operations have run.
    """
    given = list(devices) if isinstance(devices, (list, set)) else [devices]
    given = [d for d in given if d is not None]
    for device in given:
        if device not in list_physical_devices():
            raise ValueError(f"Unrecognized device: {device!r}")
        if device_type is not None and device.device_type != device_type:
            raise ValueError(f"Unrecognized device: {device!r}")
    if device_type in (None, "CPU") and _CPU not in given:
        raise ValueError("the processor cannot be hidden")
    if given != _options.visible and device_type in (None, "CPU"):
        _check_started("Visible devices")


def _physical(device: Any) -> PhysicalDevice:
    if device not in list_physical_devices():
        raise ValueError(f"Unrecognized device: {device!r}")
    return device


@export(
    v2=(
        "config.get_logical_device_configuration",
        "config.experimental.get_virtual_device_configuration",
    )
)
def get_logical_device_configuration(device: Any) -> list[LogicalDeviceConfiguration] | None:
    """The logical devices that a physical one was divided into; None: it was not."""
    _physical(device)
    return _options.cpu_devices


@export(
    v2=(
        "config.set_logical_device_configuration",
        "config.experimental.set_virtual_device_configuration",
    )
)
def set_logical_device_configuration(device: Any, logical_devices: Any) -> None:
    """Divides a physical device into logical ones, a configuration for each.

    RuntimeError once operations have run.
    """
    _physical(device)
    configurations = list(logical_devices)
    if not configurations:
        raise ValueError("a device is divided into one logical device at least")
    if any(c.memory_limit is not None for c in configurations):
        raise ValueError("Setting memory limit on CPU virtual devices is currently not supported")
    if configurations == _options.cpu_devices:
        return
    _check_started("Virtual devices")
    _options.cpu_devices = configurations
    _options.apply("Virtual devices")


@export(v2="config.get_soft_device_placement")
def get_soft_device_placement() -> bool:
    """Whether an operation may run elsewhere than asked when the device cannot run it."""
    return _options.soft_placement


@export(v2="config.set_soft_device_placement")
def set_soft_device_placement(enabled: bool) -> None:
    """Says whether an operation may run elsewhere than asked. RuntimeError once operations have
    run, unless nothing changes."""
    enabled = bool(enabled)
    if enabled != _options.soft_placement:
        _check_started("Soft device placement")
        _options.soft_placement = enabled
        _options.apply("Soft device placement")


@export(v2="config.threading.get_intra_op_parallelism_threads")
def get_intra_op_parallelism_threads() -> int:
    """How many threads one operation may use; 0: as many as there are processors."""
    return _options.intra_op_threads


@export(v2="config.threading.set_intra_op_parallelism_threads")
def set_intra_op_parallelism_threads(num_threads: int) -> None:
    """Says how many threads one operation may use. RuntimeError once operations have run."""
    num_threads = _thread_count(num_threads)
    if num_threads != _options.intra_op_threads:
        _check_started("Intra op parallelism")
        _options.intra_op_threads = num_threads
        _options.apply("Intra op parallelism")


@export(v2="config.threading.get_inter_op_parallelism_threads")
def get_inter_op_parallelism_threads() -> int:
    """What `set_inter_op_parallelism_threads` has set."""
    return _options.inter_op_threads


@export(v2="config.threading.set_inter_op_parallelism_threads")
def set_inter_op_parallelism_threads(num_threads: int) -> None:
    """How many operations may run at once. Kept for programs that set it: operations outside of
    graphs run one after the other. RuntimeError once operations have run."""
    num_threads = _thread_count(num_threads)
    if num_threads != _options.inter_op_threads:
        _check_started("Inter op parallelism")
        _options.inter_op_threads = num_threads


def _thread_count(num_threads: Any) -> int:
    number = int(num_threads)
    if number < 0:
        raise ValueError(f"a number of threads is not negative, got {number}")
    return number


@export(v2="config.experimental.get_memory_growth")
def get_memory_growth(device: Any) -> bool:
    """Whether memory of a GPU is taken as it is needed. ValueError for other devices."""
    raise ValueError(f"Cannot get memory growth on device {_physical(device)}: it is no GPU")


@export(v2="config.experimental.set_memory_growth")
def set_memory_growth(device: Any, enable: bool) -> None:
    """Says whether memory of a GPU is taken as it is needed. ValueError for other devices."""
    del enable
    raise ValueError(f"Cannot set memory growth on device {_physical(device)}: it is no GPU")


@export(v2="config.experimental.get_device_details")
def get_device_details(device: Any) -> dict[str, Any]:
    """What is known of a physical device: nothing of processors."""
    _physical(device)
    return {}


@export(v2="config.optimizer.get_jit")
def get_jit() -> str:
    """What `set_jit` has set: "autoclustering" or "" (nothing)."""
    return _options.jit


@export(v2="config.optimizer.set_jit")
def set_jit(enabled: Any) -> None:
    """Kept for programs that set it: functions are always compiled to plans of the runtime."""
    _options.jit = "autoclustering" if enabled in (True, "autoclustering") else ""
