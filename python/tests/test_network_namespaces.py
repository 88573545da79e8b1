"""What can be reached of a server from another network namespace, as from another machine."""

import json
import os
import shutil
import socket
import subprocess
import sys

import pytest

from millrace import _core

pytestmark = [
    pytest.mark.skipif(not _core.grpc_available(), reason="built without gRPC"),
    pytest.mark.skipif(
        os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and the command ip"
    ),
]

SERVER = """
import sys
import millrace.compat.v1 as tf
server = tf.train.Server({"w": [sys.argv[1] + ":0"]})
v = tf.get_variable("v", initializer=7.0)
with tf.Session(server.target) as session: session.run(v.initializer)
print(server.target, flush=True)
server.join()
"""

# Connects to the host and the port over TCP, and by the name on the machine; says how that went.
KNOCK = """
import json, socket, sys
def attempt(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as s:
        s.settimeout(3)
        try:
            s.connect(address)
            return "reached"
        except OSError as error:
            return type(error).__name__
print(json.dumps([attempt(socket.AF_INET, (sys.argv[1], int(sys.argv[2]))),
                  attempt(socket.AF_UNIX, "\\0millrace-port-" + sys.argv[2])]))
"""

# What a client of Millrace gets: the value of the variable, of reset and of stop, or the error.
CLIENT = """
import json, sys
import millrace.compat.v1 as tf
from millrace.distributed import stop_cluster
target = sys.argv[1]
config = tf.ConfigProto(operation_timeout_in_ms=3000)

def attempt(act):
    try:
        return act()
    except tf.errors.OpError as error:
        return type(error).__name__

def read():
    v = tf.get_variable("v", initializer=0.0)
    with tf.Session(target, config=config) as session: return float(session.run(v))

got = [attempt(read), attempt(lambda: tf.Session.reset(target, config=config))]
print(json.dumps(got + ([attempt(lambda: stop_cluster(target))] if len(sys.argv) > 2 else [])))
"""


def ip(*arguments):
    return subprocess.run(["ip", *arguments], capture_output=True, text=True)


@pytest.fixture
def namespace():
    """A namespace with a cable to this one: its name and this end's address."""
    number = os.getpid() % 0x10000
    name, here, there = f"millrace{number}", f"mrh{number}", f"mrt{number}"
    net = f"10.{200 + number % 50}.{number // 256 % 256}"
    try:
        for command in (
            ["netns", "add", name],
            ["link", "add", here, "type", "veth", "peer", "name", there],
            ["link", "set", there, "netns", name],
            ["addr", "add", f"{net}.1/30", "dev", here],
            ["link", "set", here, "up"],
            ["-n", name, "addr", "add", f"{net}.2/30", "dev", there],
            ["-n", name, "link", "set", there, "up"],
            ["-n", name, "link", "set", "lo", "up"],
        ):
            done = ip(*command)
            if done.returncode != 0:
                pytest.skip(f"no network namespaces here: {done.stderr.strip()}")
        yield name, f"{net}.1"
    finally:
        ip("link", "del", here)
        ip("netns", "del", name)


@pytest.fixture
def start():
    started = []

    def begin(host, **environment):
        process = subprocess.Popen(
            [sys.executable, "-c", SERVER, host], stdout=subprocess.PIPE, text=True,
            env={**os.environ, **environment},
        )  # fmt: skip
        started.append(process)
        return process.stdout.readline().strip().rpartition(":")[2]

    yield begin
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def from_namespace(name, program, *arguments, **environment):
    done = subprocess.run(
        ["ip", "netns", "exec", name, sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0
    return json.loads(done.stdout)


def test_by_default_nothing_is_reached(namespace, start):
    name, address = namespace
    for host in ("localhost", socket.gethostname()):
        port = start(host)
        tcp, named = from_namespace(name, KNOCK, address, port)
        assert tcp in ("ConnectionRefusedError", "TimeoutError") and named != "reached"
    # The same questions from here are answered, so they are the right ones.
    here = subprocess.run(
        [sys.executable, "-c", KNOCK, "127.0.0.1", port], stdout=subprocess.PIPE, text=True
    )
    assert json.loads(here.stdout) == ["reached", "reached"]


def test_without_the_token_a_server_answers_nothing(namespace, start, tmp_path):
    name, address = namespace
    token = tmp_path / "token"
    token.write_text("open-sesame")
    known = {"MILLRACE_CLUSTER_TOKEN_FILE": str(token)}
    port = start(address, MILLRACE_CLUSTER_PLAIN_TEXT="1", **known)
    target = f"grpc://{address}:{port}"
    assert from_namespace(name, KNOCK, address, port)[0] == "reached"
    refused = ["UnauthenticatedError"] * 3
    assert from_namespace(name, CLIENT, target, "stop") == refused
    wrong = tmp_path / "wrong"
    wrong.write_text("open-barley")
    with_wrong = {"MILLRACE_CLUSTER_TOKEN_FILE": str(wrong)}
    assert from_namespace(name, CLIENT, target, "stop", **with_wrong) == refused
    # It is there still, with its state.
    assert from_namespace(name, CLIENT, target, **known) == [7.0, None]


def test_without_a_certificate_a_server_answers_nothing(namespace, start, tmp_path):
    if not shutil.which("openssl"):
        pytest.skip("openssl is not there")
    from millrace.cli import certs

    name, address = namespace
    for folder in ("ours", "theirs"):
        assert certs.main([str(tmp_path / folder), address]) == 0
    ours, theirs = (
        {"MILLRACE_CLUSTER_CERTS": str(tmp_path / folder / address)}
        for folder in ("ours", "theirs")
    )
    port = start(address, **ours)
    target = f"grpc://{address}:{port}"
    for environment in ({}, theirs):
        got = from_namespace(name, CLIENT, target, "stop", **environment)
        assert set(got) <= {"UnavailableError", "DeadlineExceededError"}
    assert from_namespace(name, CLIENT, target, **ours) == [7.0, None]
