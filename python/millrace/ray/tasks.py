"""The tasks of a cluster as actors of Ray, which starts them again when they die."""

import json
import os
import runpy
import socket
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from millrace.compat.tensorflow.imports import install


class _Task:
    """One task: runs a program in the process of its actor, so that they live and die together."""

    def free_address(self, host: str) -> str:
        """A port of this machine that nobody has now."""
        with socket.socket() as holder:
            holder.bind(("", 0))
            return f"{host}:{holder.getsockname()[1]}"

    def run(self, script: str, arguments: list[str], config: str) -> None:
        """Runs the program. Where it fails, the process ends, for Ray to start it again."""
        os.environ["TF_CONFIG"] = config
        sys.argv[:] = [script, *arguments]
        sys.path.insert(0, os.path.dirname(os.path.realpath(script)))
        install()
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as end:
            if end.code not in (None, 0):
                _end_process(f"the program ended with {end.code}")
        except BaseException:
            _end_process(traceback.format_exc())


def _end_process(reason: str) -> None:
    sys.stderr.write(reason + "\n")
    sys.stderr.flush()
    os._exit(1)


def run(
    script: str, arguments: Sequence[str] = (), workers: int = 1, ps: int = 0, restarts: int = 0,
    num_cpus: float = 1,
) -> None:  # fmt: skip
    """Runs a program as the tasks of a cluster, each an actor of Ray, until all workers have ended.

    The program finds the cluster and its own place there in TF_CONFIG, and may import `tensorflow`
    as in `millrace run`. Actors go to the nodes in turn and stay there, since addresses do: a task
    that dies or fails is started again at its place by Ray. Parameter servers are ended with the
    last worker.

    Args:
      script: the program's file, which every node has.
      arguments: its arguments.
      workers, ps: how many of each; the first worker is the chief.
      restarts: how often each task is started again.
      num_cpus: what Ray reserves for each task.

    `ray.init()` is called if it was not. ValueError for numbers that cannot be, RuntimeError naming
    the task that failed once too often; all are ended then.
    """
    for name, number, least in (("workers", workers, 1), ("ps", ps, 0), ("restarts", restarts, 0)):
        if isinstance(number, bool) or not isinstance(number, int) or number < least:
            raise ValueError(f"{name}: expected a whole number from {least}, got {number!r}")
    path = os.path.abspath(script)
    if not ray.is_initialized():
        ray.init()
    nodes = [node for node in ray.nodes() if node["Alive"]]
    names = [("ps", i) for i in range(ps)] + [("worker", i) for i in range(workers)]
    actors = [
        _actor(nodes[i % len(nodes)]["NodeID"], restarts, num_cpus) for i in range(len(names))
    ]
    try:
        hosts = ["localhost"] * len(names)
        if len(nodes) > 1:
            hosts = [nodes[i % len(nodes)]["NodeManagerAddress"] for i in range(len(names))]
        addresses = ray.get(
            [actor.free_address.remote(host) for actor, host in zip(actors, hosts, strict=True)]
        )
        cluster = {"ps": addresses[:ps], "worker": addresses[ps:]}
        if not ps:
            del cluster["ps"]
        calls = {
            actor.run.remote(
                path,
                list(arguments),
                json.dumps({"cluster": cluster, "task": {"type": job, "index": index}}),
            ): (job, index)
            for actor, (job, index) in zip(actors, names, strict=True)
        }
        _wait(calls)
    finally:
        for actor in actors:
            ray.kill(actor)


def _actor(node: str, restarts: int, num_cpus: float) -> Any:
    options = {
        "max_restarts": restarts, "max_task_retries": restarts, "num_cpus": num_cpus,
        "scheduling_strategy": NodeAffinitySchedulingStrategy(node_id=node, soft=False),
    }  # fmt: skip
    return ray.remote(_Task).options(**options).remote()


def _wait(calls: dict[Any, tuple[str, int]]) -> None:
    """Until all workers have ended. RuntimeError for a task that failed."""
    left = dict(calls)
    while any(job == "worker" for job, _ in left.values()):
        ended, _ = ray.wait(list(left), num_returns=1)
        for call in ended:
            job, index = left.pop(call)
            try:
                ray.get(call)
            except ray.exceptions.RayError as error:
                reason = str(error).strip().splitlines()[0]
                raise RuntimeError(f"{job} {index} failed: {reason}") from error
