"""One call ends all tasks of a cluster."""

import os
import subprocess
import sys

import pytest
from cli_runs import run
from ports import free_ports

import millrace.compat.v1 as tf
from millrace.distributed import stop_cluster


def start(cluster, job, task, *arguments, **environment):
    process = subprocess.Popen(
        [sys.executable, "-m", "millrace", "server", "--cluster", cluster, "--job", job,
         "--task", str(task), *arguments],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "TF_CONFIG": "", **environment},
    )  # fmt: skip
    assert "listens" in process.stdout.readline()
    return process


def end_of(process):
    """What it says last, and its exit code."""
    try:
        out, _ = process.communicate(timeout=60)
        return out, process.returncode
    finally:
        process.kill()


@pytest.mark.parametrize("by_command", [True, False])
def test_all_tasks_drain(by_command):
    first = free_ports(3)
    addresses = [f"localhost:{first + i}" for i in range(3)]
    cluster = f"ps={addresses[0]};worker={addresses[1]},{addresses[2]}"
    tasks = [start(cluster, "ps", 0, "--drain", "0.2")]
    tasks += [start(cluster, "worker", i) for i in range(2)]
    if by_command:
        assert run("stop", addresses[1]) == (0, "", "")
    else:
        stop_cluster(f"grpc://{addresses[2]}")
    ends = [end_of(task) for task in tasks]
    assert [code for _, code in ends] == [0, 0, 0]
    assert ends[0][0] == "ps 0 ends, for SIGTERM; serves on for 0.2 s\n"


def test_those_that_could_not_be_told_are_named():
    first = free_ports(2)
    addresses = [f"localhost:{first + i}" for i in range(2)]
    task = start(f"w={','.join(addresses)}", "w", 0)
    with pytest.raises(tf.errors.UnavailableError, match="/job:w/replica:0/task:1"):
        stop_cluster(f"grpc://{addresses[0]}")
    assert end_of(task)[1] == 0, "the other one was told"
    assert run("stop", addresses[0])[0] == 1
    assert "expected an address" in run("stop", "nowhere")[2]
