"""Workers that train asynchronously and stay close to each other."""

import os
import subprocess
import sys
import textwrap
import threading

import pytest
from ports import free_ports

import millrace.compat.v1 as tf
from millrace.distributed import BoundedStaleness


def training(worker, staleness):
    """A graph of a worker: its step, and how many steps all have made."""
    graph = tf.Graph()
    with (
        graph.as_default(),
        tf.device(tf.train.replica_device_setter(1, worker_device=f"/job:worker/task:{worker}")),
    ):
        step = tf.train.get_or_create_global_step()
        w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
        opt = BoundedStaleness(tf.train.GradientDescentOptimizer(1.0), staleness)
        return graph, opt.minimize(w, global_step=step), step


@pytest.fixture
def servers():
    first = free_ports(3)
    cluster = {
        "ps": [f"localhost:{first}"],
        "worker": [f"localhost:{first + 1}", f"localhost:{first + 2}"],
    }
    made = [tf.train.Server(cluster, "ps", 0)]
    made += [tf.train.Server(cluster, "worker", i) for i in range(2)]
    return cluster, made


class Runner:
    """Steps of a worker on a thread of its own."""

    def __init__(self, session, train):
        self.done = threading.Semaphore(0)
        self._session, self._train = session, train
        self._thread = threading.Thread(target=self._run)
        self._wanted = threading.Semaphore(0)
        self._thread.start()

    def _run(self):
        while self._wanted.acquire() and self._session is not None:
            self._session.run(self._train)
            self.done.release()

    def begin(self, steps):
        self._wanted.release(steps)

    def ended(self, steps, within=60.0):
        return all(self.done.acquire(timeout=within) for _ in range(steps))

    def end(self):
        self._session = None
        self._wanted.release()
        self._thread.join()


def test_a_worker_runs_ahead_so_far_and_goes_on_when_another_leaves(servers):
    _, (_, *workers) = servers
    graphs = [training(i, staleness=2) for i in range(2)]
    fast, slow = (
        tf.Session(server.target, graph=graph)
        for server, (graph, _, _) in zip(workers, graphs, strict=True)
    )
    with graphs[0][0].as_default():
        fast.run(tf.global_variables_initializer())
    slow.run(graphs[1][1])  # both are there: what one has made alone, the other need not
    runner = Runner(fast, graphs[0][1])
    runner.begin(8)
    assert runner.ended(2)  # it joined where the slow one was, after one step
    assert not runner.ended(1, within=0.3)  # its third is one too many
    slow.run(graphs[1][1])
    assert runner.ended(1)
    assert not runner.ended(1, within=0.3)
    assert fast.run(graphs[0][2]) == 2 + 4  # its update is there, and it waits
    slow.close()
    assert runner.ended(5)
    runner.end()
    fast.close()


def test_nobody_waits_for_a_worker_that_is_lost(servers):
    cluster, (_, *workers) = servers
    graph, train, _ = training(0, staleness=0)
    program = f"""
        import sys
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        import millrace.compat.v1 as tf
        from test_bounded_staleness import training
        graph, train, _ = training(1, staleness=0)
        session = tf.Session({workers[1].target!r}, graph=graph)
        session.run(train)
        print("joined", flush=True)
        sys.stdin.read()
    """
    with tf.Session(workers[0].target, graph=graph) as session:
        with graph.as_default():
            session.run(tf.global_variables_initializer())
        other = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(program)],
            env={**os.environ, "MILLRACE_LOST_AFTER_MS": "300"},  # its lease: 0.9 s
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert other.stdout.readline() == "joined\n"
        runner = Runner(session, train)
        runner.begin(3)
        assert not runner.ended(1, within=0.3)  # the other is a step behind
        other.kill()
        other.communicate()
        assert runner.ended(3)
        runner.end()


def test_a_worker_needs_a_name():
    with tf.Graph().as_default():
        step = tf.train.get_or_create_global_step()
        w = tf.Variable(0.0)
        opt = BoundedStaleness(tf.train.GradientDescentOptimizer(1.0), 1)
        with pytest.raises(ValueError, match="worker's name"):
            opt.minimize(w, global_step=step)
        with pytest.raises(ValueError, match="global step"):
            opt.minimize(w)
        with pytest.raises(ValueError, match="negative"):
            BoundedStaleness(tf.train.GradientDescentOptimizer(1.0), -1)
