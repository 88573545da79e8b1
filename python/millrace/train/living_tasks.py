"""What the tasks of a cluster still have of a model, when a chief begins a session.

State on a task outlives sessions, and the chief. A chief that begins anew, because it was restarted
or because a parameter server was, must not set back what living tasks have: workers were told that
these updates are done. So it notes to which tasks it has given values, by their incarnations: in
memory, and in a file beside the checkpoints for a chief of another process. What other tasks have,
new ones or those of another run, does not count.

A synchronous model is of one step on all tasks, so it is set back as a whole: an era of the
training ends, and another begins. The file has its number, too.
"""

import json
import os
import random
import time
from typing import Any

from millrace import _core
from millrace.core import errors, logging
from millrace.core.device import DeviceSpec
from millrace.graph.graph import Graph
from millrace.graph.keys import GraphKeys
from millrace.io import gfile
from millrace.state.partitioned_variable import PartitionedVariable

_FILE = "cluster_tasks.json"

# Numbers of a chief's runs in an era: below this for what prepares the model, from it on of steps.
_FIRST_STEP = 1000
_LAST = 1 << 62
_END_SECS = 30.0


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


class Era:
    """A synchronous training in a cluster, from one setting back of its model to the next.

    The chief's runs have ids in it (`Session._run_update`): a step that is tried again, by a chief
    of another session or process too, changes nothing twice; and once the era has ended, nothing of
    it can change what follows, however late it comes.

    Args:
      number: above 0, of this era alone.
      goes_on: whether the session found it, with the model as it is; else the session began it.

    Attributes:
      told: whether accumulators and the gate know of it; a program without a hook does not tell.
    """

    def __init__(self, number: int, goes_on: bool):
        self.number = number
        self.goes_on = goes_on
        self.told = False
        self._prepared = 0

    @staticmethod
    def of(session: Any) -> "Era | None":
        """The era that a chief's session is in; None where the training is none of these."""
        return getattr(session, "_era", None)

    @staticmethod
    def random_number() -> int:
        return random.SystemRandom().randrange(1, _LAST)

    def run_step(self, session: Any, fetches: Any, feeds: Any, step: int) -> Any:
        """Runs what makes a step, or what has to be over before it: once, however often."""
        return session._run_update(fetches, feeds, None, None, self.number, _FIRST_STEP + step)

    def prepare(self, session: Any, fetches: Any, feeds: Any) -> Any:
        """Runs what gives the model its values."""
        self._prepared += 1
        if self._prepared >= _FIRST_STEP:
            raise RuntimeError(f"a model was prepared by over {_FIRST_STEP} runs")
        return session._run_update(fetches, feeds, None, None, self.number, self._prepared)

    def end(self, session: Any, look: Any) -> None:
        """Ends what is under way of the era on all tasks that `look`, which changes nothing, runs
        on. What comes later is refused there."""
        end = time.monotonic() + _END_SECS
        while True:
            try:
                session._run_update(look, None, None, None, self.number, _LAST)
                return
            except errors.AbortedError as error:
                if "has not ended yet" not in error.message or time.monotonic() > end:
                    raise
                logging.vlog(1, "Waiting for steps before the model is set back: %s", error)
                time.sleep(0.02)


class PreparingSession:
    """A session whose runs give the model of an era its values: for savers."""

    def __init__(self, session: Any, era: Era):
        self._session, self._era = session, era

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def run(self, fetches: Any, feed_dict: Any = None) -> Any:
        return self._era.prepare(self._session, fetches, feed_dict)


class LivingTasks:
    """The tasks that this run has given values to.

    Args:
      folder: where the chief's checkpoints are; None: only this process remembers.
    """

    def __init__(self, folder: str | None = None):
        self._path = os.path.join(folder, _FILE) if folder else None
        self._given: dict[str, int] = {}
        self.era = 0  # of a synchronous model; 0: there was none
        self._read()
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
        self._write()

    def begin_era(self, number: int) -> None:
        """A synchronous model gets its values anew: until `note` none of them counts."""
        self.era, self._given = number, {}
        self._write()

    def forget(self) -> None:
        """The run has come to its end: what tasks have does not count for the next one."""
        self._given = {}
        if self.era:
            self._write()  # the next run ends the era
        elif self._path is not None and gfile.Exists(self._path):
            gfile.Remove(self._path)

    def _write(self) -> None:
        if self._path is None:
            return
        data = json.dumps({"incarnations": self._given, "era": self.era}, indent=1)
        gfile.MakeDirs(os.path.dirname(self._path))
        _core.write_file_atomically(self._path, data.encode())

    def _read(self) -> None:
        if self._path is None or not gfile.Exists(self._path):
            return
        # A file that cannot be read says nothing: then the checkpoint counts, as without one.
        try:
            with gfile.GFile(self._path, "r") as file:
                content = json.loads(file.read())
            given = {str(task): int(number) for task, number in content["incarnations"].items()}
            era = int(content.get("era", 0))
        except (errors.OpError, ValueError, KeyError, TypeError, AttributeError):
            return
        self._given, self.era = given, era if 0 < era < _LAST else 0


def _task(device: str) -> str:
    """The name of a device's task, "/job:ps/replica:0/task:0"; empty where it names none."""
    spec = DeviceSpec().parse_from_string(device or "")
    return "" if spec.job is None or spec.task is None else f"/job:{spec.job}/task:{spec.task}"
