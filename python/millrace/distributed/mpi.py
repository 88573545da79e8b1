"""The ranks of a program that mpirun started: which ones there are, and where."""

import importlib
import socket
from collections.abc import Mapping
from typing import Any, NamedTuple

from millrace.distributed.addresses import MAX_TASKS, checked_number


class _Starter(NamedTuple):
    """The variables of a program that starts ranks; `job`: the same for all ranks of a run."""

    rank: str
    size: str
    on_this_host: str
    job: str


# Open MPI's mpirun, then what MPICH, Intel MPI and other users of PMI set.
_STARTERS = (
    _Starter("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
             "OMPI_MCA_ess_base_jobid"),
    _Starter("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", ""),
)  # fmt: skip


class Ranks(NamedTuple):
    """This process's rank, the host of each rank, and what tells this run from others."""

    rank: int
    hosts: list[str]
    job: str


def started_by_mpi(environ: Mapping[str, str]) -> bool:
    """Whether mpirun or the like started this process."""
    return any(environ.get(starter.rank) for starter in _STARTERS)


def mpi_ranks(environ: Mapping[str, str]) -> Ranks:
    """The ranks that were started together. ValueError for variables that do not fit each other,
    and where the hosts of other ranks cannot be known.

    Ranks of one machine are at localhost. Those of several tell each other through mpi4py where it
    is installed; else MILLRACE_HOSTS has to name the host of each rank.
    """
    starter = next(starter for starter in _STARTERS if environ.get(starter.rank))
    if not environ.get(starter.size):
        raise ValueError(f"{starter.rank} is set, but {starter.size} is not: expected both")
    size = checked_number(environ[starter.size], starter.size, MAX_TASKS + 1, 1)
    rank = checked_number(environ[starter.rank], starter.rank, size)
    job = environ.get(starter.job, "") or environ.get("PMIX_NAMESPACE", "")
    here = environ.get(starter.on_this_host, "")
    if environ.get("MILLRACE_HOSTS"):
        hosts = [host.strip() for host in environ["MILLRACE_HOSTS"].split(",")]
        if len(hosts) != size or not all(hosts):
            raise ValueError(
                f"MILLRACE_HOSTS: expected the hosts of {size} ranks, between commas, got "
                f"{environ['MILLRACE_HOSTS']!r}"
            )
        return Ranks(rank, hosts, job)
    if size == 1 or (here and checked_number(here, starter.on_this_host, size + 1) == size):
        return Ranks(rank, ["localhost"] * size, job)
    return Ranks(rank, _exchanged_hosts(starter, size), job)


def _exchanged_hosts(starter: _Starter, size: int) -> list[str]:
    try:
        communicator: Any = importlib.import_module("mpi4py.MPI").COMM_WORLD
    except ImportError:
        raise ValueError(
            f"{starter.size}={size}, and not all ranks are on this machine: their hosts are not in "
            "the environment. Install mpi4py, by which ranks tell each other, or name the host of "
            "each rank in MILLRACE_HOSTS, between commas"
        ) from None
    if communicator.Get_size() != size:
        raise ValueError(
            f"mpi4py sees {communicator.Get_size()} ranks, expected {starter.size}={size}: it was "
            "built for another MPI than this mpirun's"
        )
    return list(communicator.allgather(socket.gethostname()))
