"""Every kind of wait in a cluster ends, or says for whom it waits; Ctrl-C ends all of them."""

import json
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from sanitizers import measures_time
from tcp_forwarder import Forwarder

from millrace import _core

pytestmark = measures_time

CLIENT = os.path.join(os.path.dirname(__file__), "waiting_client.py")
SERVE = """
import json, sys
import millrace.compat.v1 as tf
server = tf.train.Server(json.loads(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
print("ready", flush=True)
server.join()
"""
PS = "/job:ps/replica:0/task:0"
# Ctrl-C ends a wait within a second. A suite that shares its cores with others is given more,
# unless MILLRACE_CLUSTER_WAITS is set.
SOON = 1.0 if "MILLRACE_CLUSTER_WAITS" in os.environ else 10.0


def free_address():
    with socket.socket() as holder:
        holder.bind(("", 0))
        return f"localhost:{holder.getsockname()[1]}"


class Process:
    """A process with lines for its input and output; what it says on stderr goes to a file."""

    def __init__(self, folder, name, *command, **environment):
        self._errors = open(folder / f"{name}.err", "w+")  # noqa: SIM115: until end()
        self.process = subprocess.Popen(
            [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self._errors, text=True, env={**os.environ, **environment},
        )  # fmt: skip
        self.read = 0
        self._lines = queue.SimpleQueue()
        threading.Thread(target=self._read_lines, daemon=True).start()

    def _read_lines(self):
        for line in self.process.stdout:
            self._lines.put(line.strip())
        self._lines.put("")

    def line(self):
        """The next line, empty at the end. What does not come in two minutes never does."""
        try:
            return self._lines.get(timeout=120)
        except queue.Empty:
            pytest.fail("nothing came from the process, which said: " + self.said())

    def said(self):
        """What it has said on stderr since `forget()`."""
        with open(self._errors.name) as file:
            file.seek(self.read)
            return file.read()

    def forget(self):
        self.read = os.path.getsize(self._errors.name)

    def end(self):
        self.process.kill()
        self.process.wait()
        self._errors.close()


class Client(Process):
    """waiting_client.py."""

    def begin(self, way):
        self.forget()
        self.process.stdin.write(way + "\n")
        self.process.stdin.flush()

    def until_it_waits(self):
        """Until it has waited for a moment."""
        line = self.line()
        assert line == "waits", line + self.said()

    def until_it_says(self, *patterns, seconds=20):
        """Until all patterns are in what it says on stderr."""
        end = time.monotonic() + seconds
        while not all(re.search(pattern, self.said()) for pattern in patterns):
            assert "\nended: " not in "\n" + self.said(), self.said()
            assert time.monotonic() < end, f"expected {patterns}, got: {self.said()}"
            time.sleep(0.02)

    def ended(self):
        """How it ended: the type of the exception or "returned", its text, the seconds it took."""
        while (line := self.line()) == "waits":
            pass
        return json.loads(line)

    def interrupt(self):
        """Ctrl-C: gives the seconds until the wait has ended."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGINT)
        kind, text, _ = self.ended()
        assert kind == "KeyboardInterrupt", (kind, text)
        return time.monotonic() - began


class Cluster:
    """Two parameter servers, the first of them behind a forwarder, and two clients: one that loses
    patience soon, and one that never does."""

    def __init__(self, folder):
        self._folder = folder
        self._processes = []
        grpc = _core.grpc_available()
        real = {"ps": [free_address(), free_address()]}
        self.forwarder = Forwarder(int(real["ps"][0].rpartition(":")[2])) if grpc else None
        clients = [free_address(), free_address()]
        self.serving = {**real, "worker": clients}
        self.seen = {
            "ps": [self.forwarder.address if grpc else real["ps"][0], real["ps"][1]],
            "worker": clients,
            "absent": [free_address()],
            "wrong": [f"127.0.0.1:{real['ps'][1].rpartition(':')[2]}"],
        }
        # Through the forwarder all goes by gRPC.
        self._environment = {"MILLRACE_SAME_HOST": "0"} if grpc else {}
        self.ps = self.start_ps(0)
        self.start_ps(1)
        self.hasty = self._client(0, MILLRACE_LOST_AFTER_MS="500", MILLRACE_REPORT_AFTER_MS="200")
        self.patient = self._client(1, MILLRACE_LOST_AFTER_MS="600000")
        for process in self._processes:
            assert process.line() == "ready", process.said()

    def start_ps(self, index):
        process = Process(
            self._folder, f"ps{index}", "-c", SERVE, json.dumps(self.serving), "ps", str(index),
            **self._environment,
        )  # fmt: skip
        self._processes.append(process)
        return process

    def _client(self, index, **environment):
        client = Client(
            self._folder, f"client{index}", CLIENT, json.dumps(self.seen), "worker", str(index),
            str(self._folder), **{**self._environment, **environment},
        )  # fmt: skip
        self._processes.append(client)
        return client

    def signal(self, number):
        self.ps.process.send_signal(number)

    def restart(self):
        """The first parameter server, killed and started again."""
        self.ps.end()
        self.ps = self.start_ps(0)
        assert self.ps.line() == "ready", self.ps.said()

    def end(self):
        for process in self._processes:
            process.end()
        if self.forwarder is not None:
            self.forwarder.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.end()


def at(name):
    """The line of the client where a node is defined."""
    with open(CLIENT) as file:
        for number, line in enumerate(file, 1):
            if f'"{name}"' in line:
                return number
    raise AssertionError(f"{CLIENT} has no {name}")


# Nothing is wrong with a task: the wait lasts, and is told of with the task, the op, its node and
# the line of the program.
KERNELS = {
    "dequeue": "nothing_comes",
    "dequeue_many": "too_few_come",
    "enqueue": "no_room",
    "shuffle_queue": "none_to_shuffle",
    "priority_queue": "none_is_first",
    "take_grad": "no_gradients",
    "sparse_take_grad": "no_slices",
    "barrier": "no_one_meets",
    "unstage": "nothing_staged",
    "reader": "no_file",
    "other_tasks_value": "sent_never",
}


@pytest.mark.parametrize("way", KERNELS)
def test_kernels_that_wait_are_named(cluster, way):
    cluster.hasty.begin(way)
    node = KERNELS[way]
    cluster.hasty.until_it_says(
        rf"{PS} waits for [A-Za-z0-9]+ \"{node}\", .*waiting_client.py:{at(node)}\b"
    )
    assert cluster.hasty.interrupt() < SOON


# The same, for waits whose reports are others.
TOLD = {
    "two_tasks": [
        r"task:1 waits for QueueDequeue\w* \"first_of_two\"",
        rf"{PS} waits for .*task:1",
    ],
    "tokens": [r"/job:ps/replica:0/task:\d waits for"],
    "absent_task": ["is waited for since", "/job:absent/replica:0/task:0"],
    "absent_server": ["is waited for since", "the server at localhost"],
    "model": ["Waiting for model to be ready", "never_initialized"],
    "coordinator": [r"\"in_a_thread\""],
    "workers_end": ["millrace_tasks_that_ended|QueueDequeue"],
}


@pytest.mark.parametrize("way", TOLD)
def test_waits_are_told_of(cluster, way):
    cluster.hasty.begin(way)
    cluster.hasty.until_it_says(*TOLD[way])
    assert cluster.hasty.interrupt() < SOON


def test_a_server_waits_until_it_is_interrupted(cluster):
    cluster.hasty.begin("join")
    cluster.hasty.until_it_waits()
    assert cluster.hasty.interrupt() < SOON


# Waits that have an end of their own.
ENDS = {
    "deadline": ("DeadlineExceededError", f"300 ms.*{PS}"),
    "new_session_with_deadline": ("DeadlineExceededError", "/job:absent/replica:0/task:0"),
    "model_with_deadline": ("DeadlineExceededError", "never_initialized"),
    "wrong_address": ("InvalidArgumentError", "/job:wrong/replica:0/task:0.*/job:ps/.*task:1"),
}


@pytest.mark.parametrize("way", ENDS)
def test_waits_end_in_time(cluster, way):
    cluster.hasty.begin(way)
    kind, text, seconds = cluster.hasty.ended()
    expected, pattern = ENDS[way]
    assert kind == expected and re.search(pattern, text, re.DOTALL), (kind, text)
    assert seconds < 5 * SOON


# What is wrong with the task that is waited for, and what makes it right again.
def stopped(cluster):
    cluster.signal(signal.SIGSTOP)
    return lambda: cluster.signal(signal.SIGCONT)


def cut_off(cluster):
    if cluster.forwarder is None:
        pytest.skip("built without gRPC")
    cluster.forwarder.silence()
    return cluster.forwarder.heal


WAITING = ["other_tasks_value", "read_variable", "save", "activity"]


@pytest.mark.parametrize("harm", [stopped, cut_off])
@pytest.mark.parametrize("way", WAITING)
def test_a_task_that_falls_silent_is_lost(cluster, way, harm):
    for client in (cluster.hasty, cluster.patient):
        client.begin(way)
        client.until_it_waits()
    heal = harm(cluster)
    try:
        kind, text, _ = cluster.hasty.ended()
        assert kind == "UnavailableError", (kind, text)
        assert re.search("has said nothing for|cannot reach it", text), text
        assert PS in text or "the server at localhost" in text
        assert cluster.patient.interrupt() < SOON
    finally:
        heal()


@pytest.mark.parametrize("way", ["new_session", "reset"])
def test_beginning_with_a_task_that_is_silent(cluster, way):
    heal = stopped(cluster)
    try:
        cluster.patient.begin(way)
        cluster.patient.until_it_waits()
        assert cluster.patient.interrupt() < SOON
        cluster.hasty.begin("new_session")
        cluster.hasty.until_it_says("is waited for since", PS)
        assert cluster.hasty.interrupt() < SOON
    finally:
        heal()


@pytest.mark.parametrize("way", ["other_tasks_value", "read_variable"])
def test_a_task_that_is_killed_is_lost_at_once(cluster, way):
    cluster.hasty.begin(way)
    cluster.hasty.until_it_waits()
    cluster.restart()
    kind, text, _ = cluster.hasty.ended()
    # It may be back before the next run notices.
    assert kind in ("UnavailableError", "AbortedError") and PS in text, (kind, text)


def test_slow_networks_lose_nobody(cluster):
    if cluster.forwarder is None:
        pytest.skip("built without gRPC")
    cluster.forwarder.delay(0.02)
    try:
        cluster.hasty.begin("dequeue")
        cluster.hasty.until_it_says(f"{PS} waits for")
        cluster.hasty.until_it_says(r"has not ended after [\s\S]*has not ended after ")
        assert cluster.hasty.interrupt() < SOON
        # Connections that are cut are made again.
        cluster.forwarder.drop()
        cluster.hasty.begin("dequeue")
        cluster.hasty.until_it_says(f"{PS} waits for")
        assert cluster.hasty.interrupt() < SOON
    finally:
        cluster.forwarder.delay(0)
