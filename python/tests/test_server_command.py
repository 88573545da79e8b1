"""`millrace server`."""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys

import pytest
from cli_runs import run

import millrace.compat.v1 as tf


def free_address():
    with socket.socket() as holder:
        holder.bind(("", 0))
        return f"localhost:{holder.getsockname()[1]}"


class Task:
    """A server in a process of its own, up when it says where it listens."""

    def __init__(self, *arguments, **variables):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "millrace", "server", *map(str, arguments)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **variables},
        )  # fmt: skip
        self.said = self.process.stdout.readline()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


def test_it_serves_until_it_is_told_to_end(tmp_path):
    address, ready = free_address(), tmp_path / "ready"
    ready.write_text("of an earlier one")
    arguments = ("--job", "ps", "--task", 0, "--cluster", address, "--ready-file", ready)
    with Task(*arguments) as task:
        assert task.said == f"ps 0 listens at grpc://{address}\n"
        assert ready.read_text() == f"grpc://{address}\n"
        with tf.Graph().as_default(), tf.Session(f"grpc://{address}") as session:
            v = tf.Variable(3.0)
            session.run(v.initializer)
            assert session.run(v * 2.0) == 6.0
        code, out, err = run("server", "--check", address)
        assert (code, err) == (0, "")
        assert out == f"{address}: /job:ps/replica:0/task:0 answers, with 1 device\n"
        assert task.end() == (0, "ps 0 ends, for SIGTERM\n", "")
        assert not ready.exists() and os.listdir(tmp_path) == []
    code, out, err = run("server", "--check", address, "--timeout", "0.1")
    assert (code, out) == (1, "") and err.startswith("millrace server: ") and address in err


def test_a_task_of_a_cluster_answers_though_others_do_not():
    own, other = free_address(), free_address()
    config = {"cluster": {"ps": [own], "worker": [other]}, "task": {"type": "ps", "index": 0}}
    with Task(TF_CONFIG=json.dumps(config)) as task:
        assert task.said == f"ps 0 listens at grpc://{own}\n"
        assert run("server", "--check", own)[0] == 0
        assert task.end(signal.SIGINT)[0] == 0


def test_draining_and_the_end_at_once():
    address = free_address()
    with Task("--cluster", address, "--drain", 600) as task:
        task.process.send_signal(signal.SIGTERM)
        assert task.process.stdout.readline() == "worker 0 ends, for SIGTERM; serves on for 600 s\n"
        assert run("server", "--check", address)[0] == 0
        assert task.end()[0] == 128 + signal.SIGTERM


def test_a_second_signal_ends_it_whichever_thread_hears_of_it():
    with Task("--cluster", free_address(), "--drain", 600) as task:
        task.process.send_signal(signal.SIGTERM)
        assert "serves on" in task.process.stdout.readline()
        pid = task.process.pid
        others = [int(thread) for thread in os.listdir(f"/proc/{pid}/task") if int(thread) != pid]
        tgkill = ctypes.CDLL(None, use_errno=True).tgkill
        assert tgkill(pid, max(others), signal.SIGTERM) == 0
        task.process.communicate(timeout=60)
        assert task.process.returncode == 128 + signal.SIGTERM


def test_a_scheduler_says_which_task_it_is():
    port = int(free_address().split(":")[1])
    variables = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "2", "TF_CONFIG": ""}
    with Task(**variables, MILLRACE_PORT=str(port - 1), MILLRACE_PS="1") as task:
        assert task.said == f"worker 0 listens at grpc://localhost:{port}\n"
        assert task.end()[0] == 0


@pytest.mark.parametrize(
    "arguments, said",
    [
        ([], "expected --job, --task and --cluster, or a cluster in the environment"),
        (["--job", "ps"], "--job and --task need --cluster"),
        (["--cluster", "a"], "--cluster: expected an address \"host:port\", got 'a'"),
        (["--cluster", "ps=a:1;worker=b:2"], "expected --job, as there are ps, worker"),
        (["--cluster", "a:1,b:2"], "expected --task, as worker has 2 tasks"),
        (["--cluster", "a:1", "--task", "4"], "there is no task 4 of job worker"),
        (["--cluster", "a:1", "--job", "?"], "--job: expected the name of a job"),
        (
            ["--cluster", "localhost:0", "--allow", "fire"],
            "MILLRACE_CLUSTER_ALLOW: expected all, none",
        ),
        (["--check", "nowhere"], '--check: expected an address "host:port"'),
    ],
)
def test_wrong_arguments(arguments, said, monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.setenv("MILLRACE_CLUSTER_ALLOW", "")  # --allow writes it
    code, out, err = run("server", *arguments)
    assert (code, out) == (1, "") and said in err and err.count("\n") == 1


def test_arguments_that_are_no_numbers():
    assert run("server", "--drain", "-1")[0] == 2
    assert run("server", "--timeout", "nan")[0] == 2
    assert run("server", "--task", "x")[0] == 2
    assert run("server", "--help")[0] == 0


def test_a_port_that_somebody_has(tmp_path):
    server = tf.train.Server.create_local_server()
    address = server.target.removeprefix("grpc://")
    ready = tmp_path / "ready"
    ready.write_text("of one that was killed")
    code, out, err = run("server", "--cluster", address, "--ready-file", ready)
    assert not ready.exists()
    assert code == 1 and out == "" and "could not start" in err and address in err
    server.stop()
    server.stop()
    again = tf.train.Server({"again": [address]})
    again.stop()
    with pytest.raises(RuntimeError, match="start"):
        again.join()
