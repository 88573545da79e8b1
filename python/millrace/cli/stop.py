"""`millrace stop`: tells all tasks of a cluster to end."""

from __future__ import annotations

from typing import Any

from millrace.cli.command import Parser, run
from millrace.distributed.addresses import checked_address
from millrace.distributed.cluster import stop_cluster

_DESCRIPTION = """\
Tell all tasks of a cluster to end, by way of any one of them.

The process of each task gets SIGTERM, as from a scheduler: servers drain, and a
chief saves where it has a folder for checkpoints. Exit code 0 says that all have
been told; 1 names those that have not. The cluster's token or certificates are
taken from the environment.
"""


def main(arguments: list[str]) -> int:
    """Runs `millrace stop`; returns the exit code."""
    parser = Parser("stop", _DESCRIPTION)
    parser.add_argument("address", metavar="HOST:PORT", help="of one of the tasks")
    return run(parser, _work, arguments)


def _work(options: Any) -> int:
    stop_cluster(f"grpc://{checked_address(options.address, 'HOST:PORT')}")
    return 0
