"""Which task of which cluster this process is, from what its scheduler says in the environment."""

import json
import os
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from millrace.distributed.addresses import checked_job, checked_number, parse_cluster
from millrace.distributed.cluster import ClusterSpec
from millrace.distributed.mpi import mpi_ranks, started_by_mpi
from millrace.distributed.slurm import slurm_hosts
from millrace.distributed.tf_config import CHIEF_JOBS, EVALUATOR, parse_tf_config

# Ports below those that systems hand out by themselves, so that few are taken.
_FIRST_PORT, _END_PORT = 12_000, 32_000
_STEPS_OF_A_JOB = 64  # steps of one Slurm job that begin at ports of their own


class ClusterTask(NamedTuple):
    """A task's place in a cluster.

    `cluster`: a ClusterSpec, empty where the process is alone. `job`, `index`: which task it is;
    an evaluator is not in the cluster, for nobody waits for it. `source`: what said so, "" if
    nothing did.
    """

    cluster: ClusterSpec
    job: str
    index: int
    source: str

    @property
    def is_chief(self) -> bool:
        """Whether this task initialises the model and saves it: the chief or master, or the first
        worker where there is neither. A process alone does."""
        if self.job in CHIEF_JOBS:
            return True
        chiefs = any(job in self.cluster.jobs for job in CHIEF_JOBS)
        return self.job == "worker" and self.index == 0 and not chiefs

    @property
    def address(self) -> str | None:
        """Where this task is to listen; None for an evaluator, and where there is no cluster."""
        listed = self.job in self.cluster.jobs
        return self.cluster.task_address(self.job, self.index) if listed else None

    def tf_config(self) -> str:
        """The same as a value of TF_CONFIG."""
        task = {"type": self.job, "index": self.index}
        return json.dumps({"cluster": self.cluster.as_dict(), "task": task})


def cluster_from_environment(
    environ: Mapping[str, str] | None = None, num_ps: int | None = None
) -> ClusterTask:
    """The cluster that this process is part of, and its place there.

    The first of these that the environment has:

    * MILLRACE_CLUSTER, "ps=host:port,host:port;worker=host:port", with MILLRACE_JOB and
      MILLRACE_TASK;
    * TF_CONFIG, as TensorFlow, Kubeflow's TFJob and `millrace launch` write it;
    * Open MPI, MPICH and others that set PMI_RANK;
    * a Slurm step, which srun starts.

    With the last two the first tasks are parameter servers, as many as MILLRACE_PS says (none by
    default), and the others workers. A task listens at a port of its own, counted from
    MILLRACE_PORT or from one that follows from the number of the scheduler's job.

    Args:
      environ: the variables; those of the process if None.
      num_ps: in place of MILLRACE_PS.

    Without any of these the process is worker 0 of an empty cluster. ValueError for values that
    cannot be right: it names the variable, what was expected and what came.
    """
    environ = os.environ if environ is None else environ
    if environ.get("MILLRACE_CLUSTER"):
        return _from_list(environ)
    if environ.get("TF_CONFIG"):
        return _from_tf_config(environ["TF_CONFIG"])
    if started_by_mpi(environ):
        ranks = mpi_ranks(environ)
        seed = zlib.crc32(ranks.job.encode()) if ranks.job else 0
        return _of_ranks("mpirun", ranks.rank, ranks.hosts, seed, environ, num_ps)
    if environ.get("SLURM_PROCID") and environ.get("SLURM_STEP_ID"):
        hosts = slurm_hosts(environ)
        # An id of the step may be larger than any number of tasks: srun has some for its own use.
        step = checked_number(environ["SLURM_STEP_ID"], "SLURM_STEP_ID", 2**33)
        job = checked_number(environ.get("SLURM_JOB_ID"), "SLURM_JOB_ID", 2**33)
        seed = job * _STEPS_OF_A_JOB + step % _STEPS_OF_A_JOB
        return _of_ranks("Slurm", int(environ["SLURM_PROCID"]), hosts, seed, environ, num_ps)
    return ClusterTask(ClusterSpec({}), "worker", 0, "")


def _from_list(environ: Mapping[str, str]) -> ClusterTask:
    job = checked_job(environ.get("MILLRACE_JOB", ""), "MILLRACE_JOB")
    index = checked_number(environ.get("MILLRACE_TASK", ""), "MILLRACE_TASK")
    cluster = ClusterSpec(parse_cluster(environ["MILLRACE_CLUSTER"], job, "MILLRACE_CLUSTER"))
    return checked_task(cluster, job, index, "MILLRACE_CLUSTER")


def _from_tf_config(text: str) -> ClusterTask:
    config = parse_tf_config(text)
    config.cluster.pop(EVALUATOR, None)
    if not config.cluster and config.job != EVALUATOR:
        return ClusterTask(ClusterSpec({}), "worker", 0, "TF_CONFIG")
    if config.job is None or config.index is None:
        raise ValueError(
            'TF_CONFIG, task: expected {"type": JOB, "index": NUMBER}, as there is a cluster, got '
            f"{config.fields.get('task')!r}"
        )
    return checked_task(ClusterSpec(config.cluster), config.job, config.index, "TF_CONFIG")


def checked_task(cluster: ClusterSpec, job: str, index: int, source: str) -> ClusterTask:
    """A task that the cluster has, or an evaluator. ValueError otherwise."""
    if job != EVALUATOR and (job not in cluster.jobs or index not in cluster.task_indices(job)):
        known = ", ".join(f"{name} {cluster.task_indices(name)}" for name in cluster.jobs)
        raise ValueError(f"{source}: there is no task {index} of job {job}; there are: {known}")
    return ClusterTask(cluster, job, index, source)


def _of_ranks(
    source: str, rank: int, hosts: list[str], seed: int, environ: Mapping[str, str],
    num_ps: int | None,
) -> ClusterTask:  # fmt: skip
    """The first `num_ps` ranks are parameter servers, the others workers."""
    size = len(hosts)
    if num_ps is None:
        ps = checked_number(environ.get("MILLRACE_PS") or 0, "MILLRACE_PS", size)
    else:
        ps = checked_number(num_ps, "the number of parameter servers", size)
    if len(set(hosts)) == 1:
        hosts = ["localhost"] * size
    first = _first_port(seed, size, environ)
    addresses = [f"{host}:{first + i}" for i, host in enumerate(hosts)]
    jobs: dict[str, Any] = {"ps": addresses[:ps], "worker": addresses[ps:]}
    cluster = ClusterSpec({job: tasks for job, tasks in jobs.items() if tasks})
    if rank < ps:
        return ClusterTask(cluster, "ps", rank, source)
    return ClusterTask(cluster, "worker", rank - ps, source)


def _first_port(seed: int, size: int, environ: Mapping[str, str]) -> int:
    """Every task has a port that no other has: nodes may share a machine."""
    if environ.get("MILLRACE_PORT"):
        return checked_number(environ["MILLRACE_PORT"], "MILLRACE_PORT", 65_537 - size, 1)
    room = _END_PORT - _FIRST_PORT - size
    if room < 1:
        raise ValueError(
            f"expected at most {_END_PORT - _FIRST_PORT - 1} tasks, got {size}: name them in "
            "MILLRACE_CLUSTER"
        )
    # A large odd factor keeps jobs with neighbouring numbers apart.
    return _FIRST_PORT + seed * 7919 % room
