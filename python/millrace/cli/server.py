"""`millrace server`: a task of a cluster, which serves until it is told to end."""

from __future__ import annotations

import os
import select
import signal
import tempfile
import time
from typing import Any

from millrace import protos
from millrace.cli.command import CommandError, Parser, count, run
from millrace.distributed.addresses import checked_address, checked_job, parse_cluster
from millrace.distributed.cluster import ClusterSpec, Server
from millrace.distributed.environment import (
    ClusterTask,
    checked_task,
    cluster_from_environment,
)
from millrace.graph.graph import Graph
from millrace.graph.session import Session

_DESCRIPTION = """\
Run a task of a cluster until SIGTERM or SIGINT.

Which task it is say --job, --task and --cluster, or else the environment:
MILLRACE_CLUSTER, TF_CONFIG, or the variables of Slurm or mpirun. It says on
standard output where it listens, and where its metrics are, with --metrics-port
or MILLRACE_METRICS_PORT.

The first SIGTERM or SIGINT drains it: the ready file is removed, it serves on
for --drain seconds, and ends with exit code 0. A second one ends it at once.

With --check it starts nothing: exit code 0 says that the task at HOST:PORT
answers, 1 that it does not.
"""
# A job that no task is of: sessions that ask for it use the task they are connected to alone.
_NOBODY = "/job:nobody"


def main(arguments: list[str]) -> int:
    """Runs `millrace server`; returns the exit code."""
    parser = Parser("server", _DESCRIPTION)
    parser.add_argument("--job", metavar="J", help="the task's job, such as ps")
    parser.add_argument("--task", type=int, metavar="I", help="its number in the job")
    parser.add_argument(
        "--cluster", metavar="LIST",
        help='all tasks: "ps=host:port,host:port;worker=host:port", or those of one job without '
        "its name",
    )  # fmt: skip
    parser.add_argument(
        "--ready-file", metavar="PATH", help="a file that is there while the task serves"
    )
    parser.add_argument(
        "--drain", type=_seconds, default=0.0, metavar="SECONDS",
        help="how long it serves on after it was told to end; 0 by default",
    )  # fmt: skip
    parser.add_argument(
        "--allow", metavar="WORDS",
        help="what clients of others than its own user may reach: some of files, py_func, "
        "libraries and state between commas, all or none",
    )  # fmt: skip
    parser.add_argument(
        "--metrics-port", type=int, metavar="N",
        help="a port of this machine that tells Prometheus what the task does; 0: a free one",
    )  # fmt: skip
    parser.add_argument("--check", metavar="HOST:PORT", help="ask whether the task there answers")
    parser.add_argument(
        "--timeout", type=_seconds, default=5.0, metavar="SECONDS",
        help="how long --check waits for an answer; 5 by default",
    )  # fmt: skip
    return run(parser, _work, arguments)


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 <= number <= 86400:
        raise ValueError
    return number


_seconds.__name__ = "number of seconds from 0 to 86400"  # argparse names it in its message


def _work(options: Any) -> int:
    if options.check is not None:
        return _check(checked_address(options.check, "--check"), options.timeout)
    task = _task(options)
    if task.address is None:
        raise CommandError(
            f"{task.source}: an evaluator has no address to listen at"
            if task.cluster
            else "expected --job, --task and --cluster, or a cluster in the environment"
        )
    if options.allow is not None:
        os.environ["MILLRACE_CLUSTER_ALLOW"] = options.allow or "none"
    if options.metrics_port is not None:
        os.environ["MILLRACE_METRICS_PORT"] = str(options.metrics_port)
    return _serve(task, options.ready_file, options.drain)


def _task(options: Any) -> ClusterTask:
    if options.cluster is None:
        if options.job is not None or options.task is not None:
            raise CommandError("--job and --task need --cluster")
        return cluster_from_environment()
    job = None if options.job is None else checked_job(options.job, "--job")
    cluster = ClusterSpec(parse_cluster(options.cluster, job or "worker", "--cluster"))
    if job is None:
        if len(cluster.jobs) > 1:
            raise CommandError(f"expected --job, as there are {', '.join(cluster.jobs)}")
        job = cluster.jobs[0]
    if options.task is None and cluster.num_tasks(job) > 1:
        raise CommandError(f"expected --task, as {job} has {cluster.num_tasks(job)} tasks")
    return checked_task(cluster, job, options.task or 0, "--cluster")


def _serve(task: ClusterTask, ready_file: str | None, drain: float) -> int:
    signals: list[int] = []

    def note(number: int, _: Any) -> None:
        signals.append(number)
        if len(signals) > 1:
            os._exit(128 + number)

    # A lock, an event or a sleep would go on when the signal comes just before it, or to another
    # thread; this is written to by the signal itself.
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    wakeup_before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        if ready_file:
            _remove(ready_file)  # of one that was killed: it would be taken for this one's
        server = Server(task.cluster, job_name=task.job, task_index=task.index)
        name = f"{task.job} {task.index}"
        if ready_file:
            _write_whole(ready_file, server.target + "\n")
        print(f"{name} listens at {server.target}", flush=True)
        if server.metrics_url:
            print(f"{name} has metrics at {server.metrics_url}", flush=True)
        while not signals:
            select.select([reader], [], [])
            os.read(reader, 64)
        if ready_file:
            _remove(ready_file)
        word = signal.Signals(signals[0]).name
        rest = f"; serves on for {drain:g} s" if drain else ""
        print(f"{name} ends, for {word}{rest}", flush=True)
        _wait_until(time.monotonic() + drain, reader)
        for number in before:  # Python's would be called when the server has stopped
            signal.signal(number, signal.SIG_DFL)
        server.stop()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup_before)
        os.close(reader)
        os.close(writer)
    return 0


def _wait_until(end: float, reader: int) -> None:
    """Lets the handlers of signals, which write to `reader`, run at once, for whichever thread
    they came."""
    while (left := end - time.monotonic()) > 0:
        if select.select([reader], [], [], left)[0]:
            os.read(reader, 64)


def _write_whole(path: str, text: str) -> None:
    """A file that appears with all that is in it."""
    folder = os.path.dirname(os.path.abspath(path))
    handle, temporary = tempfile.mkstemp(prefix=".ready-", dir=folder)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None


def _check(address: str, timeout: float) -> int:
    config = protos.ConfigProto(
        operation_timeout_in_ms=max(1, round(1000 * timeout)), device_filters=[_NOBODY]
    )
    with Session(f"grpc://{address}", graph=Graph(), config=config) as session:
        devices = session.list_devices()
    task = devices[0].name.rpartition("/device:")[0]
    print(f"{address}: {task} answers, with {count(len(devices), 'device')}")
    return 0
