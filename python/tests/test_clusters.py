"""Clusters of processes on this machine."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest

import millrace.compat.v1 as tf
from millrace import _core


@pytest.fixture(params=["shared memory", "grpc"], autouse=True)
def transport(request, monkeypatch):
    if request.param == "grpc":
        if not _core.grpc_available():
            pytest.skip("built without gRPC")
        monkeypatch.setenv("MILLRACE_SAME_HOST", "0")


def free_address():
    with socket.socket() as holder:
        holder.bind(("", 0))
        return f"localhost:{holder.getsockname()[1]}"


class Tasks:
    """Processes, each with a server of one task. They end with the test."""

    def __init__(self, **jobs):
        self.cluster = {job: [free_address() for _ in range(n)] for job, n in jobs.items()}
        self.processes = []

    def target(self, job, index=0):
        return "grpc://" + self.cluster[job][index]

    def start(self, job, index=0, program="server.join()"):
        program = (
            "import millrace.compat.v1 as tf\n"
            f"server = tf.train.Server({self.cluster!r}, {job!r}, {index})\n"
            "print('up', flush=True)\n" + textwrap.dedent(program)
        )
        process = subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
        )
        self.processes.append(process)
        assert process.stdout.readline() == "up\n"
        return process

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()
            process.stdout.close()


@pytest.fixture
def tasks():
    made = []

    def make(**jobs):
        made.append(Tasks(**jobs))
        return made[-1]

    with tf.Graph().as_default():
        yield make
    for each in made:
        each.end()


def test_workers_of_two_processes_train_what_a_third_one_has(tasks):
    cluster = tasks(ps=1, worker=2)
    ps = cluster.start("ps")
    program = """
        with tf.device("/job:ps/task:0"):
            w = tf.get_variable("w", [3, 1], initializer=tf.zeros_initializer())
            steps = tf.get_variable("steps", [], tf.int64, tf.zeros_initializer())
        with tf.device(f"/job:worker/task:{index}"):
            x = tf.random.normal([16, 3])
            y = tf.matmul(x, [[1.0], [-2.0], [0.5]])
            loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - y))
        train = tf.train.GradientDescentOptimizer(0.05).minimize(loss)
        done = tf.group(train, tf.assign_add(steps, 1, use_locking=True))
        filters = ["/job:ps", f"/job:worker/task:{index}"]
        config = tf.ConfigProto(device_filters=filters)
        with tf.Session(server.target, config=config) as sess:
            if index == 0:
                sess.run(tf.global_variables_initializer())
                print("ready", flush=True)
            for _ in range(60):
                sess.run(done)
        print("trained", flush=True)
        server.join()
    """
    program = textwrap.dedent(program)
    chief = cluster.start("worker", 0, "index = 0\n" + program)
    assert chief.stdout.readline() == "ready\n"
    other = cluster.start("worker", 1, "index = 1\n" + program)
    assert chief.stdout.readline() == other.stdout.readline() == "trained\n"
    assert ps.poll() is None

    with tf.device("/job:ps/task:0"):
        w, steps = tf.get_variable("w", [3, 1]), tf.get_variable("steps", [], tf.int64)
    # From a process that is no task of the cluster.
    config = tf.ConfigProto(device_filters=["/job:ps"])
    with tf.Session(cluster.target("ps"), config=config) as session:
        assert session.run(steps) == 120
        np.testing.assert_allclose(session.run(w), [[1.0], [-2.0], [0.5]], atol=0.05)


def test_large_tensors_cross_unchanged(tasks):
    cluster = tasks(worker=2)
    cluster.start("worker", 1)
    server = tf.train.Server(cluster.cluster, "worker", 0)
    value = np.random.default_rng(1).standard_normal((1500, 1000)).astype(np.float32)
    x = tf.placeholder(tf.float32, value.shape)
    with tf.device("/job:worker/task:1"):
        doubled = x * 2.0
        words = tf.strings.join([tf.constant(["a", "b"]), tf.constant("ü")])
    with tf.device("/job:worker/task:0"):
        back = doubled / 2.0
    with tf.Session(server.target) as session:
        got, text = session.run([back, words], {x: value})
    np.testing.assert_array_equal(got, value)
    assert list(text) == ["aü".encode(), "bü".encode()]


def test_a_killed_task_is_named_and_may_come_back(tasks):
    cluster = tasks(ps=1, worker=1)
    ps = cluster.start("ps")
    server = tf.train.Server(cluster.cluster, "worker", 0)
    with tf.device("/job:ps/task:0"):
        v = tf.Variable(1.0)
        never = tf.FIFOQueue(1, tf.float32).dequeue()
    session = tf.Session(server.target)
    session.run(v.initializer)
    with tf.Session(server.target) as waiting:
        thread = threading.Thread(target=lambda: (session.run(v), ps.kill()))
        thread.start()
        with pytest.raises(tf.errors.UnavailableError, match="/job:ps/replica:0/task:0"):
            waiting.run(never)
        thread.join()
    with pytest.raises(tf.errors.UnavailableError, match="/job:ps/replica:0/task:0"):
        session.run(v)
    cluster.start("ps")
    with pytest.raises(tf.errors.AbortedError):  # its state is gone: sessions notice
        session.run(v)
    with tf.Session(server.target) as again:
        with pytest.raises(tf.errors.FailedPreconditionError):
            again.run(v)
        again.run(v.initializer)
        assert again.run(v) == 1.0


def test_a_stopped_task_is_lost_within_seconds(tasks):
    cluster = tasks(ps=1, worker=1)
    ps = cluster.start("ps")
    server = tf.train.Server(cluster.cluster, "worker", 0)
    with tf.device("/job:ps/task:0"):
        v = tf.Variable(1.0)
    with tf.Session(server.target) as session:
        session.run(v.initializer)
        os.kill(ps.pid, signal.SIGSTOP)
        os.waitpid(ps.pid, os.WUNTRACED)  # the last of its threads has stopped
        with pytest.raises(tf.errors.UnavailableError, match="has said nothing for"):
            session.run(v)


def test_a_session_waits_for_its_tasks(tasks):
    cluster = tasks(ps=1, worker=1)
    server = tf.train.Server(cluster.cluster, "worker", 0)
    soon = tf.ConfigProto(operation_timeout_in_ms=100)
    with pytest.raises(tf.errors.DeadlineExceededError, match="/job:ps/replica:0/task:0"):
        tf.Session(server.target, config=soon)
    with pytest.raises(tf.errors.DeadlineExceededError, match="the server at localhost"):
        tf.Session(cluster.target("ps"), config=soon)
    cluster.start("ps")
    with tf.Session(server.target) as session:
        assert len(session.list_devices()) == 2


def test_datasets_run_on_their_task(tasks):
    cluster = tasks(worker=2)
    cluster.start("worker", 1)
    server = tf.train.Server(cluster.cluster, "worker", 0)
    with tf.device("/job:worker/task:1"):
        dataset = tf.data.Dataset.range(10).filter(lambda i: tf.equal(i % 2, 0))
        dataset = dataset.map(lambda i: tf.while_loop(lambda k: k < 20, lambda k: k + i + 1, [i]))
        one_shot = tf.data.make_one_shot_iterator(dataset).get_next()
        again = tf.data.make_initializable_iterator(dataset.batch(5))
        batch = again.get_next()
    expected = []
    for i in range(0, 10, 2):
        k = i
        while k < 20:
            k += i + 1
        expected.append(k)
    with tf.Session(server.target) as session:
        assert [session.run(one_shot) for _ in range(5)] == expected
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(one_shot)
        for _ in range(2):
            session.run(again.initializer)
            assert list(session.run(batch)) == expected


def test_training_goes_on_when_a_parameter_server_comes_back(tasks, tmp_path):
    cluster = tasks(ps=1, worker=2)
    ps = cluster.start("ps")
    program = textwrap.dedent(f"""
        class Announce(tf.train.SessionRunHook):
            def after_create_session(self, session, coord):
                print("session", flush=True)

        setter = tf.train.replica_device_setter(
            cluster=server.server_def.cluster, worker_device=f"/job:worker/task:{{index}}")
        with tf.device(setter):
            step = tf.train.get_or_create_global_step()
            w = tf.get_variable("w", [4, 1], initializer=tf.zeros_initializer())
            loss = tf.reduce_mean(tf.square(tf.matmul(tf.random.normal([8, 4]), w) - 1.0))
            train = tf.train.AdamOptimizer(0.01).minimize(loss, global_step=step)
        with tf.train.MonitoredTrainingSession(
            master=server.target, is_chief=index == 0, checkpoint_dir={str(tmp_path)!r},
            config=tf.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{{index}}"]),
            save_checkpoint_steps=20, save_checkpoint_secs=None, save_summaries_steps=None,
            hooks=[Announce()],
        ) as session:
            while not tf.gfile.Exists({str(tmp_path / "stop")!r}):
                print(session.run([step, train])[0], flush=True)
    """)
    workers = [cluster.start("worker", i, f"index = {i}\n" + program) for i in range(2)]
    for worker in workers:
        assert worker.stdout.readline() == "session\n"
    while int(workers[0].stdout.readline()) < 60:
        pass
    ps.kill()
    ps.wait()
    cluster.start("ps")
    for worker in workers:
        while worker.stdout.readline() != "session\n":
            pass
        assert int(worker.stdout.readline()) >= 40  # from the checkpoint on
    (tmp_path / "stop").touch()
    for worker in workers:
        worker.communicate()
        assert worker.returncode == 0


def test_runs_in_pieces_over_processes(tasks):
    cluster = tasks(ps=1, worker=1)
    ps = cluster.start("ps")
    cluster.start("worker")
    a, b = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
    with tf.device("/job:ps/task:0"):
        v = tf.Variable([1.0, 2.0])
        first = a * v
    with tf.device("/job:worker/task:0"):
        second = first + b
    with tf.Session(cluster.target("worker")) as session:
        session.run(v.initializer)
        handle = session.partial_run_setup([first, second], [a, b])
        with pytest.raises(tf.errors.InvalidArgumentError, match="depends on feed"):
            session.partial_run(handle, second, {a: 3.0})
        np.testing.assert_equal(session.partial_run(handle, first, {a: 3.0}), [3, 6])
        session.run(v.assign([0.0, 0.0]))  # other runs go on between the pieces
        np.testing.assert_equal(session.partial_run(handle, second, {b: [1.0, 1.0]}), [4, 7])
        handle = session.partial_run_setup([first, second], [a, b])
        ps.kill()
        with pytest.raises(tf.errors.UnavailableError, match="/job:ps/replica:0/task:0"):
            session.partial_run(handle, first, {a: 3.0})


def activity_of(target):
    """Sessions, graphs and what steps wait for, on a task."""
    activity = _core.server_activity(target)
    sessions, steps = activity["sessions"], activity["steps"]
    waits = [[wait["for"] for wait in step["waits"]] for step in steps]
    return len(sessions), sum(session["graphs"] for session in sessions), waits


def test_a_killed_client_leaves_nothing_on_the_tasks(tasks):
    cluster = tasks(ps=1, worker=1)
    cluster.start("ps")
    cluster.start("worker")
    program = f"""
        import millrace.compat.v1 as tf
        with tf.device("/job:ps/task:0"):
            v = tf.Variable(1.0, name="v")
            never = tf.FIFOQueue(1, tf.float32).dequeue(name="never")
        with tf.device("/job:worker/task:0"):
            total = v + never
        session = tf.Session({cluster.target("worker")!r})
        session.run(v.initializer)
        x = tf.placeholder(tf.float32)
        session.partial_run_setup([total * x], [x])  # and never a piece of it
        print("ready", flush=True)
        session.run(total)
    """
    client = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE, text=True
    )
    cluster.processes.append(client)
    assert client.stdout.readline() == "ready\n"
    targets = [cluster.target("ps"), cluster.target("worker")]
    while not any("never" in wait for waits in activity_of(targets[0])[2] for wait in waits):
        time.sleep(0.01)
    assert all(activity_of(target)[0] == 1 for target in targets)
    client.send_signal(signal.SIGKILL)
    killed = time.monotonic()
    while not all(activity_of(target) == (0, 0, []) for target in targets):
        assert time.monotonic() - killed < 60  # its lease is 6 s
        time.sleep(0.05)
    # What is shared is as it was.
    with tf.device("/job:ps/task:0"):
        v = tf.Variable(2.0, name="v")
    with tf.Session(targets[0]) as session:
        assert session.run(v) == 1.0
