"""The devices of this process."""

from typing import Any

from millrace import protos
from millrace.graph.graph import Graph
from millrace.graph.session import Session


def list_local_devices(session_config: Any = None) -> list[Any]:
    """The devices that sessions of this process can use, as DeviceAttributes messages."""
    out = []
    with Session(graph=Graph(), config=session_config) as session:
        for device in session.list_devices():
            attributes = protos.DeviceAttributes()
            attributes.name = device.name.removeprefix("/job:localhost/replica:0/task:0")
            attributes.device_type = device.device_type
            attributes.memory_limit = max(device.memory_limit_bytes, 0)
            attributes.incarnation = hash(device.name) & 0x7FFFFFFFFFFFFFFF
            out.append(attributes)
    return out
