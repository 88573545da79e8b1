"""What the tasks of a cluster still have of a model, when a chief begins a session.

State on a task outlives sessions, and the chief. A chief that begins anew, because it was restarted
or because a parameter server was, must not set back what living tasks have: workers were told that
these updates are done. So it notes to which tasks it has given values, by their incarnations: in
memory, and in a file beside the checkpoints for a chief of another process. What other tasks have,
new ones or those of another run, does not count.
"""

import json
import os
from typing import Any

from millrace import _core
from millrace.core import errors
from millrace.core.device import DeviceSpec
from millrace.graph.graph import Graph
from millrace.graph.keys import GraphKeys
from millrace.io import gfile
from millrace.state.partitioned_variable import PartitionedVariable

_FILE = "cluster_tasks.json"


def global_variables_of(graph: Graph) -> list[Any]:
    """The global variables of a graph, those in parts one by one."""
    out: list[Any] = []
    for variable in graph.get_collection(GraphKeys.GLOBAL_VARIABLES):
        whole = isinstance(variable, PartitionedVariable)
        out += variable._get_variable_list() if whole else [variable]
    return out


def is_synchronous(graph: Graph) -> bool:
    """Whether steps of workers are gathered to one: then a model is of one step on all tasks."""
    # Dense and sparse, and the forms of handles.
    return any(op.type.endswith("ConditionalAccumulator") for op in graph.get_operations())


class LivingTasks:
    """The tasks that this run has given values to.

    Args:
      folder: where the chief's checkpoints are; None: only this process remembers.
    """

    def __init__(self, folder: str | None = None):
        self._path = os.path.join(folder, _FILE) if folder else None
        self._given: dict[str, int] = self._read()
        self._before: dict[str, int] = {}
        self._now: dict[str, int] = {}

    def look(self, session: Any) -> None:
        """Asks which tasks there are now. What `has` says is of this moment."""
        self._before, self._now = self._given, {}
        for device in session.list_devices():
            # Tasks have several devices; the first one's incarnation is the task's.
            self._now.setdefault(_task(device.name), device.incarnation)

    def has(self, device: str) -> bool:
        """Whether what is on this device was there before, and of this run. A device that names no
        task may be on any."""
        task = _task(device)
        tasks = [task] if task in self._now else list(self._now)
        return all(self._before.get(each) == self._now[each] for each in tasks)

    def note(self) -> None:
        """From now on all tasks that there are count as given values to."""
        self._given = dict(self._now)
        if self._path is not None:
            data = json.dumps({"incarnations": self._given}, indent=1)
            gfile.MakeDirs(os.path.dirname(self._path))
            _core.write_file_atomically(self._path, data.encode())

    def forget(self) -> None:
        """The run has come to its end: what tasks have does not count for the next one."""
        self._given = {}
        if self._path is not None and gfile.Exists(self._path):
            gfile.Remove(self._path)

    def _read(self) -> dict[str, int]:
        if self._path is None or not gfile.Exists(self._path):
            return {}
        # A file that cannot be read says nothing: then the checkpoint counts, as without one.
        try:
            with gfile.GFile(self._path, "r") as file:
                given = json.loads(file.read())["incarnations"]
            return {str(task): int(number) for task, number in given.items()}
        except (errors.OpError, ValueError, KeyError, TypeError, AttributeError):
            return {}


def _task(device: str) -> str:
    """The name of a device's task, "/job:ps/replica:0/task:0"; empty where it names none."""
    spec = DeviceSpec().parse_from_string(device or "")
    return "" if spec.job is None or spec.task is None else f"/job:{spec.job}/task:{spec.task}"
