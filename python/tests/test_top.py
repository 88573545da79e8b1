"""`millrace top`: what the tasks of a cluster do."""

import io
import json
import os
import signal
import sys
import threading

import numpy as np
import pytest
from cli_runs import run
from cluster_tasks import cluster_of, end, start

import millrace.compat.v1 as tf
from millrace import _core
from millrace.cli import top


@pytest.fixture(scope="module")
def busy():
    """A cluster whose parameter server has a queue that a step waits for, and has counted a few
    steps; the second parameter server is not there."""
    with cluster_of(absent=1) as (jobs, tasks), tf.Graph().as_default():
        with tf.device("/job:ps/task:0"):
            v = tf.get_variable("v", [100], initializer=tf.zeros_initializer())
            jobs_queue = tf.FIFOQueue(10, tf.float32, shared_name="jobs")
            put = jobs_queue.enqueue(1.0)
            never = tf.FIFOQueue(5, tf.float32, shared_name="never").dequeue(name="take_it")
        with tf.device("/job:worker/task:0"):
            x = tf.placeholder(tf.float32, [100])
            total = tf.reduce_sum(tf.assign_add(v, x) * 2.0)
            waits = never + 1.0
        filters = tf.ConfigProto(device_filters=["/job:ps/task:0", "/job:worker"])
        session = tf.Session(f"grpc://{jobs['worker'][0]}", config=filters)
        session.run(v.initializer)
        for _ in range(3):
            session.run(put)
            session.run(total, {x: np.ones(100, np.float32)})

        def wait():
            with pytest.raises(tf.errors.OpError):
                session.run(waits)

        waiter = threading.Thread(target=wait)
        waiter.start()
        watch = _core.ClusterWatch(f"grpc://{jobs['ps'][0]}")

        def waiting(tasks):
            found = {t["name"]: t["activity"] for t in tasks if t["activity"]}
            return all(any(s["waits"] for s in a["steps"]) for a in found.values()) and found

        while not waiting(watch.look(2000)):
            pass
        yield jobs, tasks
        session.close()
        waiter.join()


def rows_of(text):
    lines = text.splitlines()
    assert lines[0].split()[:2] == ["task", "steps/s"]
    return {line[:8].strip(): line for line in lines[1:]}


def test_a_line_for_each_task(busy):
    jobs, _ = busy
    code, out, err = run("top", jobs["ps"][0], "--once", "--interval", 0.1)
    assert (code, err) == (0, "")
    rows = rows_of(out)
    assert set(rows) == {"ps 0", "ps 1", "worker 0"}
    assert "jobs 3/10, never 0/5" in rows["ps 0"]
    assert 'QueueDequeueV2 "take_it" (' in rows["ps 0"] and "test_top.py:" in rows["ps 0"]
    assert "take_it from ps 0 (" in rows["worker 0"] and "test_top.py:" in rows["worker 0"]
    assert f"does not answer at {jobs['ps'][1]}, since " in rows["ps 1"]


def test_all_of_it_for_machines(busy):
    jobs, _ = busy
    code, out, err = run("top", jobs["worker"][0], "--json", "--interval", 0.1)
    assert (code, err) == (0, "")
    ps, absent, worker = json.loads(out)
    assert [t["name"] for t in (ps, worker)] == [
        "/job:ps/replica:0/task:0",
        "/job:worker/replica:0/task:0",
    ]
    assert absent["activity"] is None and jobs["ps"][1] in absent["error"]
    assert absent["away_ms"] > 0 and absent["per_second"]["steps"] is None
    told = ps["activity"]
    assert (told["steps_failed"], told["steps_begun"] - told["steps_ended"]) == (0, 1)
    assert told["steps_ended"] >= 7
    assert ps["per_second"] == {"steps": 0, "failed": 0, "received_bytes": 0, "sent_bytes": 0}
    bytes_to = {row["peer"]: row["sent_bytes"] for row in told["transfers"] if row["sent_bytes"]}
    assert bytes_to == {"/job:worker/replica:0/task:0": 3 * 400}
    received = {
        (row["peer"], row["kind"]): row["received_bytes"] for row in worker["activity"]["transfers"]
    }
    assert received["/job:ps/replica:0/task:0", "tensor"] == 3 * 400


def test_ctrl_c_ends_it(busy):
    jobs, _ = busy
    watching = start("-m", "millrace", "top", jobs["ps"][0], "--interval", 0.05)
    try:
        seen = [watching.stdout.readline() for _ in range(9)]  # two tables
        assert seen[0].startswith("cluster of localhost:") and "steps/s" in seen[1]
        watching.send_signal(signal.SIGINT)
        rest, _ = watching.communicate(timeout=60)
        assert watching.returncode == 130 and "Traceback" not in rest
    finally:
        end(watching)


def test_it_ends_with_the_cluster():
    with cluster_of(ps=1, workers=0) as (jobs, tasks):
        watching = start("-m", "millrace", "top", jobs["ps"][0], "--interval", 0.05)
        try:
            watching.stdout.readline()
            tasks["ps", 0].terminate()
            out, _ = watching.communicate(timeout=60)
            assert watching.returncode == 0
            assert out.endswith("no task of the cluster answers any more\n")
        finally:
            end(watching)


def test_who_may_not_be_asked():
    code, out, err = run("top", "localhost:1", "--once")
    assert (code, out) == (1, "") and "localhost:1" in err and err.count("\n") == 1
    assert "expected an address" in run("top", "nowhere")[2]
    assert run("top", "localhost:1", "--interval", "0")[0] == 2
    with pytest.raises(tf.errors.InvalidArgumentError, match="grpc://"):
        _core.ClusterWatch("localhost:1")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_is_drawn_in_place(monkeypatch):
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setattr(
        top.shutil, "get_terminal_size", lambda: os.terminal_size((20, 5)), raising=True
    )
    monkeypatch.setenv("TERM", "xterm")
    screen = top._Screen("t")
    screen.show(["a" * 50, "b"])
    screen.show([str(i) for i in range(10)])
    screen.close()
    text = sys.stdout.getvalue()
    assert "a" * 19 in text and "a" * 20 not in text
    assert "\033[3A\r" in text, "the second is drawn over the three lines of the first"
    assert "1\033[K\nand 8 more" in text
    assert text.startswith("\033[?25l") and text.endswith("\033[?25h")


def test_names_and_rates():
    assert top.short_name("/job:ps/replica:0/task:3") == "ps 3"
    assert top.short_name("/job:ps/replica:0/task:3/device:CPU:1") == "ps 3 CPU:1"
    assert top.short_name("x\n") == "x\\n"
    restarted = {"up_ms": 1, "clock_ns": 9, "steps_ended": 1, "steps_failed": 0, "transfers": []}
    before = {**restarted, "up_ms": 100, "clock_ns": 5}
    figures = top._figures({"activity": restarted}, {"activity": before})
    assert figures["per_second"]["steps"] is None, "it is another process"
