"""Who may reach the tasks of a cluster."""

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile

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


# What a client tries as another user (argument 2) against a server (argument 1): how each ended.
STRANGER = """
import json, os, sys
import millrace.compat.v1 as tf
from millrace import _core
config = tf.ConfigProto(isolate_session_state=True, operation_timeout_in_ms=20000)
path = sys.argv[3]
# Loads what others may not read.
tf.data.TextLineDataset, tf.raw_ops.SaveV2, tf.get_variable, tf.py_func
with tf.Session() as session: session.run(tf.constant(1))
os.setuid(int(sys.argv[2]))

def attempt(make, config=None):
    try:
        with tf.Graph().as_default():
            values = make()
            with tf.Session(sys.argv[1], config=config) as session:
                for value in values[:-1]: session.run(value)
                return str(session.run(values[-1]))
    except tf.errors.OpError as error:
        said = [w for w in ("ALLOW=files", "ALLOW=py_func", "ALLOW=state") if w in error.message]
        return " ".join([type(error).__name__, *said])

def variable():
    v = tf.get_variable("v", initializer=1.0)
    return [v.initializer, v]

def saver():
    v = tf.get_variable("v", initializer=1.0)
    return [v.initializer, tf.raw_ops.SaveV2(prefix=path + "/saved", tensor_names=["v"],
                                             shape_and_slices=[""], tensors=[v])]

def lines():
    dataset = tf.data.TextLineDataset(path + "/secret")
    return [tf.data.make_one_shot_iterator(dataset).get_next()]

def cached():
    dataset = tf.data.Dataset.range(3).cache(path + "/cached")
    return [tf.data.make_one_shot_iterator(dataset).get_next()]

def reset():
    try:
        tf.Session.reset(sys.argv[1])
        return "done"
    except tf.errors.OpError as error:
        return type(error).__name__

print(json.dumps({
    "sum": attempt(lambda: [tf.constant(3) + 4]),
    "read": attempt(lambda: [tf.io.read_file(path + "/secret")]),
    "write": attempt(lambda: [tf.io.write_file(path + "/written", "x")]),
    "match": attempt(lambda: [tf.io.matching_files(path + "/*")]),
    "save": attempt(saver, config),
    "lines": attempt(lines),
    "cached": attempt(cached),
    "py_func": attempt(lambda: [tf.py_func(lambda: 5, [], tf.int64)]),
    "shared": attempt(variable),
    "own": attempt(variable, config),
    "reset": reset(),
}))
"""


def stranger_gets(target, folder, **environment):
    """What another user of this machine gets of a server."""
    done = subprocess.run(
        [sys.executable, "-c", STRANGER, target, "65534", str(folder)],
        stdout=subprocess.PIPE, text=True,
        env={**os.environ, "MILLRACE_SAME_HOST": "0", **environment},
    )  # fmt: skip
    assert done.returncode == 0
    return json.loads(done.stdout)


@needs_grpc
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_strangers_let_in_by_plain_text_reach_nothing(server, tmp_path):
    (tmp_path / "secret").write_text("seven\n")
    (tmp_path / "secret").chmod(0o600)
    target = server(f"{socket.gethostname()}:0", MILLRACE_CLUSTER_PLAIN_TEXT="1")
    got = stranger_gets(target, tmp_path)
    files = "PermissionDeniedError ALLOW=files"
    assert got == {
        "sum": "7", "read": files, "write": files, "match": files, "save": files, "lines": files,
        "cached": files, "py_func": "PermissionDeniedError ALLOW=py_func",
        "shared": "PermissionDeniedError ALLOW=state", "own": "1.0",
        "reset": "PermissionDeniedError",
    }  # fmt: skip
    assert os.listdir(tmp_path) == ["secret"]
    assert read_variable(target) == 7, "the server's own user reaches its state"


@needs_grpc
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_switch_says_what_others_may_reach(server, tmp_path):
    (tmp_path / "secret").write_text("seven\n")
    host = f"{socket.gethostname()}:0"
    opened = server(host, MILLRACE_CLUSTER_PLAIN_TEXT="1", MILLRACE_CLUSTER_ALLOW="files,state")
    got = stranger_gets(opened, tmp_path)
    assert got["read"] == str(b"seven\n") and got["lines"] == str(b"seven")
    assert got["shared"] == "1.0" and got["reset"] == "done"
    assert got["py_func"] == "PermissionDeniedError ALLOW=py_func"
    # With the secret all is allowed, unless the switch says less.
    with tempfile.NamedTemporaryFile("w") as token:
        token.write("sesame")
        token.flush()
        os.chmod(token.name, 0o644)
        known = {"MILLRACE_CLUSTER_TOKEN_FILE": token.name, "MILLRACE_CLUSTER_PLAIN_TEXT": "1"}
        assert stranger_gets(server(host, **known), tmp_path, **known)["read"] == str(b"seven\n")
        narrowed = server(host, MILLRACE_CLUSTER_ALLOW="none", **known)
        assert stranger_gets(narrowed, tmp_path, **known)["read"].startswith("PermissionDenied")


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
