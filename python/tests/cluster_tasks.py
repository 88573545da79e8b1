"""Tasks of a cluster as processes, and a client that keeps them busy."""

import contextlib
import os
import subprocess
import sys

from ports import free_ports


def start(*command, **environment):
    """A process of Python; its output can be read line by line."""
    return subprocess.Popen(
        [sys.executable, *map(str, command)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "TF_CONFIG": "", "PYTHONUNBUFFERED": "1", **environment},
    )  # fmt: skip


def end(process):
    process.kill()
    process.communicate()


@contextlib.contextmanager
def cluster_of(ps=1, workers=1, absent=0, arguments=(), **environment):
    """Servers in processes of their own, `absent` parameter servers more that are not there; gives
    ({job: addresses}, {(job, task): process})."""
    first = free_ports(ps + absent + workers)
    ports = [f"localhost:{first + i}" for i in range(ps + absent + workers)]
    jobs = {"ps": ports[: ps + absent], "worker": ports[ps + absent :]}
    text = ";".join(f"{job}={','.join(addresses)}" for job, addresses in jobs.items() if addresses)
    tasks = {}
    try:
        for job, number in (("ps", ps), ("worker", workers)):
            for task in range(number):
                tasks[job, task] = start(
                    "-m", "millrace", "server", "--cluster", text, "--job", job, "--task", task,
                    *arguments, **environment,
                )  # fmt: skip
        for process in tasks.values():
            assert "listens" in process.stdout.readline()
        yield jobs, tasks
    finally:
        for process in tasks.values():
            end(process)
