"""Who takes part in collective operations: the processes that run the same program."""

from typing import NamedTuple

from millrace.distributed.cluster import Server
from millrace.distributed.environment import ClusterTask, cluster_from_environment

# Tasks that serve others instead of running the program.
_SERVING = ("ps", "evaluator")


class _World(NamedTuple):
    task: ClusterTask
    members: list[tuple[str, int]]  # by rank: job and number
    min_size: int
    server: Server | None  # None: alone

    @property
    def rank(self) -> int:
        return self.members.index((self.task.job, self.task.index))


_world: _World | None = None


def init(min_size: int = 0) -> None:
    """Makes this process a member of the group of all that run this program.

    Which they are is read from the environment, as `cluster_from_environment` does: all tasks but
    parameter servers and evaluators. A server is started for this task; nothing else of the program
    changes, its sessions stay in this process. A parameter server serves, and does not return.
    Alone, where the environment says nothing, it is a group of one. Twice is fine.

    Args:
      min_size: as few members go on when others are lost and do not come back for a while; all are
        needed by default. ValueError when there are not as many.
    """
    global _world
    if _world is not None:
        return
    task = cluster_from_environment()
    members = sorted(
        (job, index)
        for job in task.cluster.jobs
        if job not in _SERVING
        for index in task.cluster.task_indices(job)
    )
    if not 0 <= min_size <= max(len(members), 1):
        raise ValueError(f"min_size: expected at most {max(len(members), 1)}, got {min_size}")
    if not members or task.job == "evaluator":
        _world = _World(task, [(task.job, task.index)], 0, None)
        return
    server = Server(task.cluster, task.job, task.index)
    if task.job in _SERVING:
        server.join()
    _world = _World(task, members, min_size, server)


def _current() -> _World:
    if _world is None:
        raise RuntimeError("call millrace.distributed.init() first")
    return _world


def rank() -> int:
    """The number of this process in its group, from 0 on. RuntimeError before `init`."""
    return _current().rank


def size() -> int:
    """How many processes the group has. RuntimeError before `init`."""
    return len(_current().members)


def min_size() -> int:
    """As few of them form a group; 0: all are needed. RuntimeError before `init`."""
    return _current().min_size
