"""Clusters: which jobs and tasks there are, and where they listen."""

import os
import time
from typing import Any

from millrace import _core, protos
from millrace.core.export import export
from millrace.distributed.ending import ends_with_workers, wait_for_workers


@export(v1="train.ClusterSpec", v2="train.ClusterSpec")
class ClusterSpec:
    """The jobs of a cluster, their tasks, and the addresses of these.

    `cluster`: {job: [address]} or {job: {task: address}}, a ClusterDef, or another ClusterSpec.
    TypeError for anything else.
    """

    def __init__(self, cluster: Any):
        if isinstance(cluster, ClusterSpec):
            cluster = cluster._cluster_spec
        elif isinstance(cluster, protos.ClusterDef):
            cluster = {job.name: dict(job.tasks.items()) for job in cluster.job}
        elif not isinstance(cluster, dict):
            raise TypeError(
                "`cluster` must be a dictionary mapping one or more job names to lists of network "
                f"addresses, or a `ClusterDef` protocol buffer: got {cluster!r}"
            )
        self._cluster_spec: dict[str, dict[int, str]] = {}
        for job, tasks in cluster.items():
            self._cluster_spec[_text(job, "The job name")] = _tasks(job, tasks)

    def __bool__(self) -> bool:
        return bool(self._cluster_spec)

    __nonzero__ = __bool__

    def __eq__(self, other: object) -> bool:
        return (
            self._cluster_spec == ClusterSpec(other)._cluster_spec
            if isinstance(other, (dict, ClusterSpec, protos.ClusterDef))
            else NotImplemented
        )

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def __repr__(self) -> str:
        jobs = ", ".join(f"{job!r}: {tasks!r}" for job, tasks in self.as_dict().items())
        return f"ClusterSpec({{{jobs}}})"

    def as_dict(self) -> dict[str, Any]:
        """{job: [address]}, or {job: {task: address}} where a task from zero on is missing."""
        out: dict[str, Any] = {}
        for job, tasks in self._cluster_spec.items():
            if sorted(tasks) == list(range(len(tasks))):
                out[job] = [tasks[i] for i in range(len(tasks))]
            else:
                out[job] = dict(tasks)
        return out

    def as_cluster_def(self) -> Any:
        """The cluster as a ClusterDef."""
        out = protos.ClusterDef()
        for job, tasks in sorted(self._cluster_spec.items()):
            job_def = out.job.add()
            job_def.name = job
            for index, address in sorted(tasks.items()):
                job_def.tasks[index] = address
        return out

    @property
    def jobs(self) -> list[str]:
        """The names of the jobs."""
        return list(self._cluster_spec)

    def _tasks_of(self, job_name: str) -> dict[int, str]:
        try:
            return self._cluster_spec[job_name]
        except KeyError:
            raise ValueError(
                f"No such job in cluster: {job_name!r}. There are: {', '.join(self.jobs)}"
            ) from None

    def num_tasks(self, job_name: str) -> int:
        """The number of tasks of a job. ValueError when there is no such job."""
        return len(self._tasks_of(job_name))

    def task_indices(self, job_name: str) -> list[int]:
        """The numbers of the tasks of a job. ValueError when there is no such job."""
        return sorted(self._tasks_of(job_name))

    def task_address(self, job_name: str, task_index: int) -> str:
        """The address of a task. ValueError when there is no such task."""
        tasks = self._tasks_of(job_name)
        if task_index not in tasks:
            raise ValueError(f"No task with index {task_index!r} in job {job_name!r}")
        return tasks[task_index]

    def job_tasks(self, job_name: str) -> list[str | None]:
        """The addresses of a job's tasks by number, None where one is missing."""
        tasks = self._tasks_of(job_name)
        return [tasks.get(i) for i in range(max(tasks) + 1)] if tasks else []


def _text(value: Any, what: str) -> str:
    if isinstance(value, bytes):
        return value.decode()
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a string, got {value!r}")
    return value


def _tasks(job: Any, tasks: Any) -> dict[int, str]:
    if isinstance(tasks, (list, tuple)):
        tasks = dict(enumerate(tasks))
    elif not isinstance(tasks, dict):
        raise TypeError(
            f"The tasks for job {job!r} must be a list, or a dictionary from integers to "
            f"addresses, got {tasks!r}"
        )
    out = {}
    for index, address in tasks.items():
        if isinstance(index, bool) or not isinstance(index, int):
            raise TypeError(f"The task index {index!r} of job {job!r} must be an integer")
        out[index] = _text(address, f"The address of task {index} of job {job!r}")
    return out


def _server_def(given: Any, job_name: Any, task_index: Any, protocol: Any, config: Any) -> Any:
    out = protos.ServerDef()
    if isinstance(given, protos.ServerDef):
        out.CopyFrom(given)
        for name, value in (
            ("job_name", job_name),
            ("task_index", task_index),
            ("protocol", protocol),
        ):
            if value is not None:
                setattr(out, name, value)
    else:
        try:
            cluster = ClusterSpec(given)
        except TypeError:
            raise TypeError(
                "Could not convert `server_or_cluster_def` to a ServerDef or ClusterSpec: got "
                f"{given!r}"
            ) from None
        if job_name is None:
            if len(cluster.jobs) != 1:
                raise ValueError(
                    "Must specify an explicit job_name: the cluster has the jobs "
                    f"{', '.join(cluster.jobs)}"
                )
            job_name = cluster.jobs[0]
        if task_index is None:
            indices = cluster.task_indices(job_name)
            if len(indices) != 1:
                raise ValueError(
                    f"Must specify an explicit task_index: the job {job_name!r} has the tasks "
                    f"{indices}"
                )
            task_index = indices[0]
        out.cluster.CopyFrom(cluster.as_cluster_def())
        out.job_name = job_name
        out.task_index = task_index
        out.protocol = "grpc" if protocol is None else protocol
    if config is not None:
        out.default_session_config.MergeFrom(config)
    return out


_started: list["Server"] = []


def metrics_port_from_environment() -> int:
    """MILLRACE_METRICS_PORT, -1 where it is not set. ValueError for what is no port."""
    text = os.environ.get("MILLRACE_METRICS_PORT", "")
    if not text:
        return -1
    if not text.isdecimal() or len(text) > 5 or int(text) > 0xFFFF:
        raise ValueError(f"MILLRACE_METRICS_PORT: expected a port from 0 to 65535, got {text!r}")
    return int(text)


def stop_cluster(target: str) -> None:
    """Tells every task of a cluster to end.

    The process of each task gets SIGTERM, as from a scheduler: `millrace server` drains, a training
    session with a checkpoint_dir saves, others end. Returns when all have been told, which is
    before they end.

    Args:
      target: "grpc://host:port" of any of its servers.

    Raises UnavailableError naming tasks that could not be told, after the others were, and
    PermissionDeniedError where this client may not do everything (docs/clusters.md).
    """
    _core.stop_cluster(target)


@export(v1="train.Server")
class Server:
    """A task of a cluster: devices whose state outlives sessions.

    Once started it serves until `stop()` or the end of the process. `Session(server.target)` runs
    on the devices of all tasks of the cluster. Processes of this machine and user reach it through
    shared memory where its address is of this machine, such as "localhost:2222", others over gRPC:
    from this machine, and from other machines where there are certificates (docs/distributed.md,
    "Who may come in").

    Args:
      server_or_cluster_def: a ServerDef, or a cluster as ClusterSpec takes it.
      job_name, task_index: which task this is; not needed where there is only one.
      protocol: "grpc" by default.
      config: a ConfigProto for the sessions of this server.
      start: whether to start at once.
    """

    def __init__(
        self, server_or_cluster_def: Any, job_name: str | None = None,
        task_index: int | None = None, protocol: str | None = None, config: Any = None,
        start: bool = True,
    ):  # fmt: skip
        self._core: Any = None
        self._server_def = _server_def(
            server_or_cluster_def, job_name, task_index, protocol, config
        )
        definition = self._server_def
        cluster = ClusterSpec(definition.cluster)
        self._address = cluster.task_address(definition.job_name, definition.task_index)
        if start:
            self.start()

    def start(self) -> None:
        """Makes its devices, for sessions to find. Twice is fine.

        A port of 0 becomes a free one. InvalidArgumentError for an address without a port,
        UnknownError for a port that somebody has, also that of MILLRACE_METRICS_PORT.
        """
        if self._core is not None:
            return
        definition = self._server_def
        own = (definition.job_name, definition.task_index)
        tasks = [
            (job.name, index, address)
            for job in definition.cluster.job
            for index, address in job.tasks.items()
        ]
        cpus = definition.default_session_config.device_count.get("CPU", 1)
        config = definition.default_session_config.SerializeToString()
        self._core = _core.Server(tasks, *own, cpus, config, metrics_port_from_environment())
        self._address = self._core.address
        _started.append(self)  # it serves though nobody holds it

    def stop(self) -> None:
        """Ends it: its state is dropped, and what others run on it ends with UnavailableError.
        Twice is fine; it can be started again."""
        if self._core is None:
            return
        _started.remove(self)
        self._core = None

    def join(self) -> None:
        """Waits for ever: what a parameter server does. Signals end it, as Ctrl-C does.

        In a program that `millrace run` started as one task of a Slurm step, an mpirun or a
        MILLRACE_CLUSTER, a parameter server's SystemExit ends the wait when all others have ended.
        """
        if self._core is None:
            raise RuntimeError("the server has not been started: call start() first")
        definition = self._server_def
        if ends_with_workers(definition.job_name):
            cluster = ClusterSpec(definition.cluster)
            wait_for_workers(self.target, cluster, definition.task_index)
            raise SystemExit(0)
        while True:
            time.sleep(3600)

    @property
    def server_def(self) -> Any:
        """The definition, as a ServerDef."""
        return self._server_def

    @property
    def target(self) -> str:
        """What a Session connects to: "grpc://host:port"."""
        return f"{self._server_def.protocol}://{self._address}"

    @property
    def metrics_url(self) -> str:
        """Where Prometheus finds what the task does, with MILLRACE_METRICS_PORT; "" otherwise."""
        return "" if self._core is None else self._core.metrics_url

    @staticmethod
    def create_local_server(config: Any = None, start: bool = True) -> "Server":
        """A server alone in its cluster, on a free port of this machine."""
        return Server({"local": ["localhost:0"]}, protocol="grpc", config=config, start=start)
