"""`millrace launch`: a cluster of processes, each running one program."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

from millrace.cli.command import INTERRUPTED, CommandError, Parser, count, run
from millrace.cli.ssh_tasks import addresses_on, parse_hosts, ssh_command
from millrace.cli.task_display import TaskDisplay

_DESCRIPTION = """\
Run a program as the tasks of a cluster, on this machine or on others.

Starts SCRIPT once for each task, as `millrace run` does, with TF_CONFIG in its
environment: the addresses of all tasks, and which one it is. What tasks print
comes with their names before it; on a terminal a table of the tasks is kept
below it. The first worker is the chief, unless there is --chief. Colours are for terminals, and not
where NO_COLOR is set.

Ends when all tasks but parameter servers have ended, and stops those. A task
that fails is started again as often as --restart says; after that all are
stopped, and its exit code is the command's. Ctrl-C and SIGTERM are passed on.

With --hosts the tasks go to these machines in turn, by ssh. They need Millrace,
at the place it has here, the script, and a folder like this one.
"""
# How long tasks have to end after they were asked to, before they are killed.
_GRACE_SECONDS = 10
_REST_SECONDS = 2


def main(arguments: list[str]) -> int:
    """Runs `millrace launch`; returns the exit code."""
    parser = Parser("launch", _DESCRIPTION)
    parser.add_argument(
        "-n", "--workers", type=_number, default=1, metavar="N", help="workers; 1 by default"
    )
    parser.add_argument(
        "--ps", type=_number, default=0, metavar="N", help="parameter servers; 0 by default"
    )
    parser.add_argument("--chief", action="store_true", help="a chief beside the workers")
    parser.add_argument(
        "--evaluator", action="store_true", help="an evaluator, for estimators; not in the cluster"
    )
    parser.add_argument(
        "--restart", type=_number, default=0, metavar="TIMES",
        help="how often each task is started again when it fails; 0 by default",
    )  # fmt: skip
    parser.add_argument(
        "--hosts", metavar="A,B", help="the machines to run on; this one by default"
    )
    parser.add_argument(
        "--port", type=_port, default=2222, metavar="PORT",
        help="with --hosts: the first task's port, the others follow; 2222 by default",
    )  # fmt: skip
    parser.add_argument(
        "--ssh", default="ssh", metavar="COMMAND", help='with --hosts: such as "ssh -p 2200"'
    )
    parser.add_argument("script", metavar="SCRIPT")
    # All that follows is the script's.
    parser.add_argument("arguments", nargs="...", metavar="ARGUMENT")
    return run(parser, _work, arguments)


def _number(text: str) -> int:
    number = int(text)
    if not 0 <= number <= 1000:
        raise ValueError
    return number


def _port(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 65535:
        raise ValueError
    return number


_port.__name__ = "port"
_number.__name__ = "number from 0 to 1000"  # argparse names it in its message


def _work(options: Any) -> int:
    if options.workers == 0 and not options.chief:
        raise CommandError("expected at least one worker or --chief, got neither")
    hosts = None if options.hosts is None else parse_hosts(options.hosts)
    if not os.path.isfile(options.script):
        raise CommandError(f"there is no file {options.script}")
    command = [sys.executable, "-m", "millrace", "run", options.script, *options.arguments]
    jobs = {
        "ps": options.ps,
        "chief": int(options.chief),
        "worker": options.workers,
        "evaluator": int(options.evaluator),
    }
    if hosts is None:
        places = [(None, address) for address in _free_addresses(sum(jobs.values()))]
    else:
        places = addresses_on(hosts, sum(jobs.values()), options.port)
    return _Launch(command, jobs, places, options.ssh, options.restart).run()


def _free_addresses(number: int) -> list[str]:
    holders = []
    for _ in range(number):
        holder = socket.socket()
        holder.bind(("localhost", 0))
        holders.append(holder)
    addresses = [f"localhost:{holder.getsockname()[1]}" for holder in holders]
    for holder in holders:
        holder.close()
    return addresses


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # one of those that have no name
        return f"signal {number}"


def _is_free(address: str) -> bool:
    """Whether nobody listens at an address of this machine."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_server((host, int(port))).close()
    except OSError:
        return False
    return True


class _Moves:
    """A file that tells all tasks of this machine which of them are not at their addresses any
    more: MILLRACE_CLUSTER_MOVED."""

    def __init__(self) -> None:
        handle, self.path = tempfile.mkstemp(prefix="millrace-moved-")
        os.close(handle)
        self._now: dict[str, str] = {}

    def settle(self, address: str) -> str | None:
        """Finds a new address for the task that was at this one of the cluster, where somebody else
        has taken its port; None where it can go back there."""
        if _is_free(self._now.get(address, address)):
            return None
        self._now[address] = _free_addresses(1)[0]
        with open(self.path, "a") as file:
            file.write(f"{address} {self._now[address]}\n")
        return self._now[address]

    def remove(self) -> None:
        os.unlink(self.path)


class _Task:
    """One task. `ssh`: the host that it is on and how to get there; None: this machine. `number`:
    among all tasks of the launch."""

    def __init__(
        self, job: str, index: int, command: list[str], cluster: dict[str, list[str]],
        ssh: tuple[str, str] | None, moved: str, number: int,
    ):  # fmt: skip
        self.job, self.name = job, f"{job} {index}"
        # None: it is in no cluster, or on another machine.
        self.address = cluster[job][index] if job in cluster and ssh is None else None
        task = {"type": job, "index": index}
        self._environment = {
            **os.environ,
            "TF_CONFIG": json.dumps({"cluster": cluster, "task": task}),
            "PYTHONUNBUFFERED": "1",
        }
        if ssh is None:
            self._environment["MILLRACE_CLUSTER_MOVED"] = moved
        metrics = os.environ.get("MILLRACE_METRICS_PORT", "")
        if metrics.isdecimal() and int(metrics) > 0:  # the first one's; they may share a machine
            self._environment["MILLRACE_METRICS_PORT"] = str(int(metrics) + number)
        self._remote = ssh is not None
        if ssh is not None:
            command = ssh_command(ssh[1], ssh[0], command, self._environment)
        self._command = command
        self.restarts = 0
        self.process: Any = None
        self.began: float | None = None
        self.ended: float | None = None
        self._reader: Any = None

    @property
    def pid(self) -> int | None:
        return None if self.process is None else self.process.pid

    @property
    def state(self) -> str:
        if self.process is None:
            return "waits"
        code = self.process.returncode
        if code is None:
            return "runs"
        if code == 0:
            return "ended"
        return f"failed ({code})" if code > 0 else _signal_name(-code)

    def start(self, show: Any) -> None:
        self.began, self.ended = time.monotonic(), None
        self.process = subprocess.Popen(
            self._command, env=self._environment,
            stdin=subprocess.PIPE if self._remote else subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        self._reader = threading.Thread(
            target=self._read, args=(self.process.stdout, show), daemon=True
        )
        self._reader.start()

    def _read(self, lines: Any, show: Any) -> None:
        with lines:
            for line in lines:
                show(self, line.decode(errors="replace").rstrip("\r\n"))

    def running(self) -> bool:
        if self.process.poll() is None:
            return True
        self.ended = self.ended or time.monotonic()
        return False

    def signal(self, number: int) -> None:
        """To the task and what it has started. A task on another machine gets SIGTERM."""
        if not self.running():
            return
        if self._remote and number != signal.SIGKILL:
            self.process.stdin.close()  # it ends with its input
        else:
            os.killpg(self.process.pid, number)

    def finish(self) -> None:
        """After its end: until all it printed is shown. What the task left running may hold its
        output open, and is not waited for long."""
        self._reader.join(_REST_SECONDS)
        self.ended = self.ended or time.monotonic()


class _Launch:
    def __init__(
        self, command: list[str], jobs: dict[str, int], places: list[tuple[str | None, str]],
        ssh: str, restarts: int,
    ):  # fmt: skip
        addresses = iter(address for _, address in places)
        cluster = {job: [next(addresses) for _ in range(n)] for job, n in jobs.items() if n}
        cluster.pop("evaluator", None)
        names = [(job, index) for job, n in jobs.items() for index in range(n)]
        self._moves = _Moves()
        self._tasks = [
            _Task(
                job,
                index,
                command,
                cluster,
                None if host is None else (host, ssh),
                self._moves.path,
                number,
            )  # fmt: skip
            for number, ((job, index), (host, _)) in enumerate(zip(names, places, strict=True))
        ]
        self._restarts = restarts
        self._display = TaskDisplay(self._tasks)
        self._signals: list[int] = []
        self._code = 0

    def run(self) -> int:
        before = {
            number: signal.signal(number, lambda got, _: self._signals.append(got))
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            for task in self._tasks:
                task.start(self._display.line)
            self._watch()
        finally:
            self._stop(signal.SIGTERM)
            self._display.close()
            self._moves.remove()
            for number, handler in before.items():
                signal.signal(number, handler)
        return self._code

    def _watch(self) -> None:
        """Until nothing is left to wait for."""
        while True:
            if self._signals:
                number = self._signals[0]
                self._display.say(f"stops, for {signal.Signals(number).name}")
                self._code = INTERRUPTED if number == signal.SIGINT else 128 + number
                return self._stop(number)
            for task in self._tasks:
                if not task.running() and task.process.returncode != 0 and not self._again(task):
                    return
            if not any(task.running() for task in self._tasks if task.job != "ps"):
                return
            self._display.refresh()
            time.sleep(0.05)

    def _again(self, task: _Task) -> bool:
        """Starts a task that failed once more, or says that it was the last time."""
        task.finish()
        code = task.process.returncode
        ended = f"was ended by {_signal_name(-code)}" if code < 0 else f"ended with {code}"
        if task.restarts == self._restarts:
            self._code = 128 - code if code < 0 else code
            self._display.say(f"{task.name} {ended}; all tasks are stopped")
            return False
        task.restarts += 1
        self._display.say(
            f"{task.name} {ended}; started again, {task.restarts} of {self._restarts}"
        )
        if task.address is not None and (moved := self._moves.settle(task.address)):
            self._display.say(f"{task.name} moves to {moved}: another program has {task.address}")
        task.start(self._display.line)
        return True

    def _stop(self, number: int) -> None:
        """Asks all that run to end, and kills what has not after a while."""
        for task in self._tasks:
            if task.process is not None:
                task.signal(number)
        end = time.monotonic() + _GRACE_SECONDS
        for task in self._tasks:
            if task.process is None:
                continue
            try:
                task.process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                self._display.say(
                    f"{task.name} has not ended within {count(_GRACE_SECONDS, 'second')}"
                )
                task.signal(signal.SIGKILL)
                task.process.wait()
            task.finish()
