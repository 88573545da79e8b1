"""Checkpoints that are written while the program goes on."""

import os
import random
import resource
import subprocess
import sys

import numpy as np
import pytest
from ports import free_ports
from tensorflow_twin import needs_tensorflow, run_tensorflow

import millrace.compat.v1 as tf

SIZE = 4_000_000


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default():
        yield
    tf.summary.FileWriterCache.clear()


@pytest.fixture
def no_room():
    """A call makes files of more than 1 MB impossible from there on."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_steps_go_on_while_a_checkpoint_is_written(tmp_path):
    v = tf.get_variable("v", [SIZE], initializer=tf.zeros_initializer())
    step = tf.assign_add(v, tf.ones([SIZE]))
    saver = tf.train.Saver(asynchronous=True, max_to_keep=None)
    with tf.Session() as session:
        session.run(v.initializer)
        beside = 0
        for count in range(30):
            path = saver.save(session, str(tmp_path / "model"), count, write_meta_graph=False)
            session.run(step.op)
            # The file names it when it is whole, and not before.
            beside += tf.train.latest_checkpoint(str(tmp_path)) != path
            saver.wait()
            assert tf.train.latest_checkpoint(str(tmp_path)) == path
            assert (tf.train.load_variable(path, "v") == count).all()
            if beside == 3:
                return
    pytest.fail("no step ended before the checkpoint")


def test_one_after_the_other_and_old_ones_go(tmp_path):
    v = tf.get_variable("v", [], initializer=tf.zeros_initializer())
    saver = tf.train.Saver(asynchronous=True, max_to_keep=2, random_state=True)
    with tf.Session() as session:
        session.run(v.initializer)
        for step in range(5):
            saver.save(session, str(tmp_path / "model"), step)
            session.run(tf.assign_add(v, 1.0))
        saver.restore(session, str(tmp_path / "model-4"))
        assert session.run(v) == 4
        assert [path[-1] for path in saver.last_checkpoints] == ["3", "4"]
        assert not tf.train.checkpoint_exists(str(tmp_path / "model-2"))
        saver.save(session, str(tmp_path / "model"), 9)
    assert tf.train.latest_checkpoint(str(tmp_path)).endswith("model-9")  # the session waited

    with tf.Graph().as_default():  # a graph from a file saves as it did
        saver = tf.train.import_meta_graph(str(tmp_path / "model-9.meta"))
        with tf.Session() as session:
            saver.restore(session, str(tmp_path / "model-9"))
            path = saver.save(session, str(tmp_path / "again"))
        assert tf.train.latest_checkpoint(str(tmp_path)) == path


def test_errors_are_told_by_the_next_call(tmp_path, no_room):
    v = tf.get_variable("v", [SIZE], initializer=tf.zeros_initializer())
    saver = tf.train.Saver(asynchronous=True)

    def fail(session):
        saver.save(session, str(tmp_path / "bad"), write_meta_graph=False)
        return pytest.raises(tf.errors.OpError, match=r"The checkpoint '.*bad' was not saved: ")

    with tf.Session() as session:
        session.run(v.initializer)
        good = saver.save(session, str(tmp_path / "good"), write_meta_graph=False)
        saver.wait()
        no_room()
        with fail(session):
            saver.save(session, str(tmp_path / "other"))
        with fail(session):
            saver.restore(session, good)
        with fail(session):
            saver.wait()
        saver.restore(session, good)  # it is told once
        with fail(session):
            session.close()
    assert saver.last_checkpoints == [good] and tf.train.latest_checkpoint(tmp_path) == good


@pytest.fixture
def cluster():
    """Two parameter servers and a worker, each a process; addresses and processes by job."""
    first = free_ports(3)
    jobs = {
        "ps": [f"localhost:{first + i}" for i in range(2)],
        "worker": [f"localhost:{first + 2}"],
    }
    program = (
        "import resource, sys\n"
        "import millrace.compat.v1 as tf\n"
        "tf.train.Server(%r, *%r)\n"
        "print('up', flush=True)\n"
        "for line in sys.stdin:  # makes larger files impossible\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, -1))\n"
        "    print('limited', flush=True)\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program % (jobs, task)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        for task in (("ps", 0), ("ps", 1), ("worker", 0))
    ]
    for process in processes:
        assert process.stdout.readline() == "up\n"
    yield "grpc://" + jobs["worker"][0], processes
    for process in processes:
        process.kill()
        process.communicate()


def on_two_servers(size):
    made = []
    for task in range(2):
        with tf.device(f"/job:ps/task:{task}"):
            made.append(tf.get_variable(f"v{task}", [size], initializer=tf.zeros_initializer()))
    return made, tf.group(*[tf.assign_add(v, tf.ones([size])) for v in made])


def test_parameter_servers_write_their_parts_beside_training(tmp_path, cluster):
    variables, step = on_two_servers(1000)
    saver = tf.train.Saver(asynchronous=True, max_to_keep=2)
    with tf.Session(cluster[0]) as session:
        session.run(tf.global_variables_initializer())
        for count in range(4):
            path = saver.save(session, str(tmp_path / "model"), count)
            session.run(step)
        saver.wait()
        assert path == tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model-3")
        assert all((tf.train.load_variable(path, f"v{i}") == 3).all() for i in range(2))
        assert len(list(tmp_path.glob("model-3.data-*-of-00002"))) == 2
        assert not tf.train.checkpoint_exists(str(tmp_path / "model-1"))
        assert not list(tmp_path.glob("*_temp*"))
        saver.restore(session, path)
        assert all((session.run(v) == 3).all() for v in variables)
        # A graph from a file saves as this one does.
        with tf.Graph().as_default() as graph:
            again = tf.train.import_meta_graph(path + ".meta")
            with tf.Session(cluster[0], graph=graph) as other:
                newest = again.save(other, str(tmp_path / "again"))
        assert tf.train.latest_checkpoint(str(tmp_path)) == newest


def test_a_task_that_cannot_write_its_part_is_told_of(tmp_path, cluster):
    target, processes = cluster
    variables, step = on_two_servers(SIZE)
    saver = tf.train.Saver(asynchronous=True)
    with tf.Session(target) as session:
        session.run([v.initializer for v in variables])
        good = saver.save(session, str(tmp_path / "good"), write_meta_graph=False)
        saver.wait()
        processes[1].stdin.write("\n")
        processes[1].stdin.flush()
        assert processes[1].stdout.readline() == "limited\n"
        session.run(step)
        bad = saver.save(session, str(tmp_path / "bad"), write_meta_graph=False)
        with pytest.raises(tf.errors.OpError, match=r"'.*bad' was not saved: [^$]*part-00001"):
            saver.wait()
        assert not tf.train.checkpoint_exists(bad) and not list(tmp_path.glob("*_temp"))
        assert tf.train.latest_checkpoint(str(tmp_path)) == good
        saver.restore(session, good)
        assert (session.run(variables[0]) == 0).all()


def test_a_task_that_dies_leaves_the_checkpoint_before(tmp_path, cluster):
    target, processes = cluster
    variables, step = on_two_servers(SIZE)
    saver = tf.train.Saver(asynchronous=True)
    with tf.Session(target) as session:
        session.run([v.initializer for v in variables])
        good = saver.save(session, str(tmp_path / "good"), write_meta_graph=False)
        saver.wait()
        session.run(step)
        newer = saver.save(session, str(tmp_path / "newer"), write_meta_graph=False)
        processes[1].kill()
        try:
            saver.wait()
            good = newer  # it was quick
        except tf.errors.OpError as error:
            assert "/job:ps/replica:0/task:1" in error.message
            assert not tf.train.checkpoint_exists(newer)
    newest = tf.train.latest_checkpoint(str(tmp_path))
    assert newest == good
    for i in range(2):
        assert (tf.train.load_variable(newest, f"v{i}") == (newest == newer)).all()


PROGRAM = f"""
import sys
import millrace.compat.v1 as tf
v = tf.get_variable("v", [{SIZE}], initializer=tf.zeros_initializer())
step = tf.assign_add(v, tf.ones([{SIZE}])).op
saver = tf.train.Saver(asynchronous=True, max_to_keep=2)
with tf.Session() as session:
    session.run(v.initializer)
    for count in range(1000):
        saver.save(session, sys.argv[1] + "/model", count, write_meta_graph=False)
        print(count, flush=True)
        session.run(step)
"""


def test_a_killed_save_leaves_the_checkpoint_before(tmp_path):
    seed = int(os.environ.get("MILLRACE_SEED", random.randrange(10**6)))
    print("seed", seed)
    chance = random.Random(seed)
    for kill in range(int(os.environ.get("MILLRACE_KILLS", 1))):
        folder = tmp_path / str(kill)
        began, last = -1, chance.randrange(1, 8)
        command = [sys.executable, "-c", PROGRAM, folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
            while began < last:
                began = int(program.stdout.readline())
            program.kill()
        newest = tf.train.latest_checkpoint(folder)
        count = int(newest.rpartition("-")[2])
        assert count >= last - 1
        assert (tf.train.load_variable(newest, "v") == count).all()


def test_watched_sessions(tmp_path):
    told = []

    class Listener(tf.train.CheckpointSaverListener):
        def after_save(self, session, step):
            told.append(tf.train.latest_checkpoint(str(tmp_path))[-1] == str(step))

    step = tf.train.get_or_create_global_step()
    train = tf.assign_add(step, 1)
    with tf.train.MonitoredTrainingSession(
        checkpoint_dir=str(tmp_path), save_checkpoint_steps=2, asynchronous_checkpoints=True
    ) as session:
        for _ in range(5):
            session.run(train)
    state = tf.train.get_checkpoint_state(str(tmp_path))
    assert [path[-1] for path in state.all_model_checkpoint_paths] == ["0", "2", "4", "5"]

    hook = tf.train.CheckpointSaverHook(str(tmp_path), save_steps=1, listeners=[Listener()])
    with tf.train.MonitoredSession(hooks=[hook]) as session:  # the saver is the graph's
        session.run(train)
    assert told == [True, True]
    with pytest.raises(ValueError, match="not asynchronous"):
        tf.train.MonitoredTrainingSession(
            scaffold=tf.train.Scaffold(saver=tf.train.Saver()), asynchronous_checkpoints=True
        )


@needs_tensorflow
def test_tensorflow_reads_graph_and_checkpoint(tmp_path):
    v = tf.get_variable("v", initializer=np.float32(3))
    with tf.Session() as session:
        session.run(v.initializer)
        path = tf.train.Saver(asynchronous=True).save(session, str(tmp_path / "model"))
    told = run_tensorflow(
        """
        tf.disable_v2_behavior()
        saver = tf.train.import_meta_graph(args[0] + ".meta")
        with tf.Session() as session:
            saver.restore(session, args[0])
            print(session.run("v:0"))
        """,
        path,
    )
    assert told.strip() == "3.0"
