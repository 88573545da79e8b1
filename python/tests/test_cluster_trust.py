"""Who may reach the tasks of a cluster."""

import os
import shutil
import socket
import stat
import subprocess
import sys

import pytest

import millrace.compat.v1 as tf
from millrace import _core
from millrace.cli import certs

needs_openssl = pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not there")
needs_grpc = pytest.mark.skipif(not _core.grpc_available(), reason="built without gRPC")


def start_server(address, **environment):
    """A process with a server of one task; it has a variable of value 7."""
    program = (
        "import millrace.compat.v1 as tf\n"
        f"server = tf.train.Server({{'w': [{address!r}]}})\n"
        "v = tf.get_variable('v', initializer=7.0)\n"
        "with tf.Session(server.target) as session: session.run(v.initializer)\n"
        "print(server.target, flush=True)\n"
        "server.join()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True,
        env={**os.environ, **environment},
    )  # fmt: skip
    return process, process.stdout.readline().strip()


@pytest.fixture
def server(request):
    started = []

    def start(address="localhost:0", **environment):
        process, target = start_server(address, **environment)
        started.append(process)
        assert target
        return target

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def read_variable(target):
    """What a client with the environment of this process gets, within a few seconds."""
    config = tf.ConfigProto(operation_timeout_in_ms=3000)
    with tf.Graph().as_default():
        v = tf.get_variable("v", initializer=0.0)
        with tf.Session(target, config=config) as session:
            return session.run(v)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two authorities, each with a certificate for localhost."""
    made = []
    for name in ("ours", "theirs"):
        folder = tmp_path_factory.mktemp(name)
        assert certs.main([str(folder), "localhost"]) == 0
        made.append(str(folder / "localhost"))
    return made


@needs_openssl
@needs_grpc
def test_certificates_tell_friends_from_strangers(server, folders, monkeypatch):
    ours, theirs = folders
    monkeypatch.setenv("MILLRACE_SAME_HOST", "0")
    target = server(MILLRACE_CLUSTER_CERTS=ours)
    monkeypatch.setenv("MILLRACE_CLUSTER_CERTS", ours)
    assert read_variable(target) == 7
    monkeypatch.setenv("MILLRACE_CLUSTER_CERTS", theirs)
    with pytest.raises((tf.errors.UnavailableError, tf.errors.DeadlineExceededError)):
        read_variable(target)
    monkeypatch.delenv("MILLRACE_CLUSTER_CERTS")
    with pytest.raises((tf.errors.UnavailableError, tf.errors.DeadlineExceededError)):
        read_variable(target)


@needs_grpc
def test_a_token_tells_friends_from_strangers(server, tmp_path, monkeypatch):
    token = tmp_path / "token"
    token.write_text("open-sesame\n")
    monkeypatch.setenv("MILLRACE_SAME_HOST", "0")
    target = server(MILLRACE_CLUSTER_TOKEN_FILE=str(token))
    with pytest.raises(tf.errors.UnauthenticatedError, match="token"):
        read_variable(target)
    with pytest.raises(tf.errors.UnauthenticatedError, match="token"):
        tf.Session.reset(target)
    monkeypatch.setenv("MILLRACE_CLUSTER_TOKEN_FILE", str(token))
    assert read_variable(target) == 7
    token.write_text("open-barley\n")
    with pytest.raises(tf.errors.UnauthenticatedError, match="token"):
        read_variable(target)


@needs_grpc
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_other_users_of_the_machine_are_strangers(server):
    target = server()
    # First as root, which also loads what another user may not be able to read.
    program = (
        "import os, sys\n"
        "import millrace.compat.v1 as tf\n"
        "for user in (0, 65534):\n"
        "    os.setuid(user)\n"
        "    try:\n"
        "        with tf.Session(sys.argv[1]) as session: print(session.run(tf.constant(3)))\n"
        "    except tf.errors.OpError as error:\n"
        "        print(type(error).__name__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, target], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "MILLRACE_SAME_HOST": "0"},
    )  # fmt: skip
    assert done.stdout.split() == ["3", "PermissionDeniedError"]


@needs_grpc
def test_a_server_listens_to_its_own_machine_alone(server):
    target = server(f"{socket.gethostname()}:0")
    port = int(target.rpartition(":")[2])
    with open("/proc/net/tcp") as tcp, open("/proc/net/tcp6") as tcp6:
        listening = [line.split()[1] for line in (*tcp, *tcp6) if line.split()[3] == "0A"]
    hosts = {host for host, _, at in (a.partition(":") for a in listening) if int(at, 16) == port}
    loopback = "0100007F"  # 127.0.0.1, as the kernel writes it
    assert hosts and hosts <= {loopback, "0000000000000000FFFF0000" + loopback}


@needs_openssl
def test_certificates_are_made_once_and_keys_are_for_their_owner(tmp_path, capsys):
    folder = tmp_path / "certs"
    assert certs.main([str(folder), "node1", "10.0.0.7"]) == 0
    before = (folder / "node1" / "cert.pem").read_bytes()
    assert certs.main([str(folder), "node1", "node2"]) == 0
    assert (folder / "node1" / "cert.pem").read_bytes() == before
    assert sorted(os.listdir(folder)) == ["10.0.0.7", "authority", "node1", "node2"]
    for host in ("10.0.0.7", "node1", "node2"):
        assert sorted(os.listdir(folder / host)) == ["ca.pem", "cert.pem", "key.pem"]
        assert stat.S_IMODE(os.stat(folder / host).st_mode) == 0o700
        done = subprocess.run(
            ["openssl", "verify", "-CAfile", folder / host / "ca.pem", folder / host / "cert.pem"],
            capture_output=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    for bad in ("../etc", "a/b", "", "-x", "authority", "x" * 300, "a b"):
        assert certs.main([str(folder), "--", bad]) == 1
        assert "expected the name or the address of a host" in capsys.readouterr().err
    assert certs.main([str(folder), "node9", "--days", "0"]) == 1
