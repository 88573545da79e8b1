"""Collective operations and data-parallel training by processes without parameter servers."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import millrace.compat.v1 as tf
import millrace.distributed as dist
from millrace import _core
from millrace.cli import certs
from millrace.distributed import world

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"

OPERATIONS = """
import json, sys
import numpy as np
import millrace.compat.v1 as tf
import millrace.distributed as dist

dist.init()
rank = dist.rank()
x = tf.constant(np.arange(4, dtype=np.float32) + rank)
y = tf.constant(2.0)
mean = dist.all_reduce(x * y)
fetches = {
    "sum": dist.all_reduce(x, "sum"), "mean": mean, "max": dist.all_reduce(x, "max"),
    "min": dist.all_reduce(rank, "min"), "product": dist.all_reduce(rank + 1, "product"),
    "half": dist.all_reduce(tf.cast(x, tf.float16)),
    "rows": dist.all_gather(tf.fill([rank, 2], rank)),  # none of the first process
    "sent": dist.broadcast(x, root=1), "flag": dist.broadcast(tf.equal(rank, 2), root=2),
    "gradient": tf.gradients(mean, y)[0],
}
with tf.Session() as session:
    got = {name: np.asarray(value).tolist() for name, value in session.run(fetches).items()}
    with open(f"{sys.argv[1]}/{rank}.json", "w") as file:
        json.dump({"size": dist.size(), **got}, file)
    session.run(dist.all_reduce(np.int32(0)))  # nobody leaves before all have their results
"""

DISAGREEMENT = """
import millrace.compat.v1 as tf
import millrace.distributed as dist

dist.init()
different = dist.all_reduce(tf.zeros([2 + dist.rank()]))
with tf.Session() as session:
    try:
        session.run(different)
    except tf.errors.InvalidArgumentError as error:
        print("got", error)
    try:
        session.run(dist.all_reduce(0))  # the group forms anew
        print("summed")
    except tf.errors.AbortedError:  # another has its sum, and has left
        print("summed")
"""

# Every process has a part of the data, which follows from the step, and all kinds of gradients.
TRAINING = """
import os, sys, time
import numpy as np
import millrace.compat.v1 as tf
import millrace.distributed as dist

folder, steps, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
dist.init()
rank = dist.rank()
with open(f"{folder}/new{rank}", "w") as file:
    file.write(str(os.getpid()))
os.rename(f"{folder}/new{rank}", f"{folder}/{rank}.pid")

step = tf.train.get_or_create_global_step()
tf.set_random_seed(1)
table = tf.get_variable("table", [10, 3], initializer=tf.zeros_initializer())
w = tf.get_variable("w", [3, 2], initializer=tf.glorot_uniform_initializer(seed=3 + rank))
bias = tf.get_variable("bias", [2], tf.float64, tf.zeros_initializer(), use_resource=True)
number = tf.cast(step, tf.int32)
rows = tf.nn.embedding_lookup(table, tf.stack([number % 10, (number * 3 + rank) % 10]))
out = tf.cast(tf.matmul(rows, w), tf.float64) + bias - tf.cast(rank + 1, tf.float64)
loss = tf.reduce_mean(tf.square(out))
optimizer = dist.DistributedOptimizer(tf.train.MomentumOptimizer(0.05, 0.9), bucket_bytes=20)
train = optimizer.minimize(loss, global_step=step)

class Progress(tf.train.SessionRunHook):
    def before_run(self, run_context):
        return tf.train.SessionRunArgs(step)
    def after_run(self, run_context, run_values):
        with open(f"{folder}/{rank}.step", "a") as file:
            file.write(f"{run_values.results}\\n")
        time.sleep(pause)
    def end(self, session):
        variables = {v.op.name: v for v in tf.global_variables()}
        np.savez(f"{folder}/{rank}.npz", **session.run(variables))

hooks = [tf.train.StopAtStepHook(last_step=steps), Progress(), dist.BroadcastVariablesHook()]
with tf.train.MonitoredTrainingSession(hooks=hooks) as session:
    while not session.should_stop():
        session.run(train)
"""


# Every process has as many batches as are after the folder in the arguments, by rank.
UNEVEN = """
import sys
import numpy as np
import millrace.compat.v1 as tf
import millrace.distributed as dist

folder = sys.argv[1]
dist.init()
rank = dist.rank()
batches = int(sys.argv[2 + rank])
data = tf.data.Dataset.range(batches).map(lambda i: tf.cast(i, tf.float32) + rank)
batch = tf.data.make_one_shot_iterator(data).get_next()
w = tf.get_variable("w", [2], initializer=tf.zeros_initializer())
table = tf.get_variable("table", [4, 2], initializer=tf.zeros_initializer())
rows = tf.nn.embedding_lookup(table, [rank])
loss = tf.reduce_sum(w * batch) + tf.reduce_sum(rows * batch)
optimizer = dist.DistributedOptimizer(tf.train.GradientDescentOptimizer(1.0))
train = optimizer.minimize(loss, global_step=tf.train.get_or_create_global_step())

class Result(tf.train.SessionRunHook):
    def end(self, session):
        variables = {v.op.name: v for v in tf.global_variables()}
        np.savez(f"{folder}/{rank}.npz", **session.run(variables))

with tf.train.MonitoredTrainingSession(hooks=[Result(), dist.BroadcastVariablesHook()]) as session:
    while not session.should_stop():
        session.run(train)
print("ended", flush=True)
"""

# Two of three that there could be: a step of each kind of gradient.
SMALLER = """
import sys
import numpy as np
import millrace.compat.v1 as tf
import millrace.distributed as dist

dist.init(min_size=2)
rank = dist.rank()
w = tf.get_variable("w", [2], initializer=tf.zeros_initializer())
table = tf.get_variable("table", [3, 2], initializer=tf.zeros_initializer())
loss = tf.reduce_sum(dist.all_reduce(w) * (2 + 2 * rank))
loss += tf.reduce_sum(tf.nn.embedding_lookup(table, [rank, 2])) * (2 + 2 * rank)
optimizer = dist.DistributedOptimizer(tf.train.GradientDescentOptimizer(-1.0))
train = optimizer.minimize(loss, global_step=tf.train.get_or_create_global_step())
hooks = [tf.train.StopAtStepHook(last_step=1), dist.BroadcastVariablesHook()]
with tf.train.MonitoredTrainingSession(hooks=hooks) as session:
    session.run(train)
    values = session.run([w, table]) if not session.should_stop() else None
    if values is None:
        values = session._tf_sess().run([w, table])
    np.savez(f"{sys.argv[1]}/{rank}.npz", w=values[0], table=values[1])
"""


def launch(program, processes, folder, *args, restart=None, **environment):
    """`millrace launch` of a program, which gets the folder as its first argument."""
    if isinstance(program, str):
        (folder / "program.py").write_text(program)
        program = folder / "program.py"
    again = [] if restart is None else ["--restart", str(restart)]
    log = open(folder / "log", "w")  # noqa: SIM115: of the process
    return subprocess.Popen(
        [sys.executable, "-m", "millrace", "launch", "-n", str(processes), *again, str(program),
         *map(str, args)],
        stdout=log, stderr=log, env={**os.environ, **environment},
    )  # fmt: skip


@pytest.fixture(scope="module")
def transports(tmp_path_factory):
    """How processes of this machine reach each other: what is to be in their environment."""
    folder = tmp_path_factory.mktemp("secrets")
    (folder / "token").write_text("open-sesame\n")
    found = {
        "shared memory": {},
        "gRPC": {"MILLRACE_SAME_HOST": "0"},
        "token": {"MILLRACE_SAME_HOST": "0", "MILLRACE_CLUSTER_TOKEN_FILE": str(folder / "token")},
    }
    if shutil.which("openssl"):
        assert certs.main([str(folder), "localhost"]) == 0
        found["certificates"] = {
            "MILLRACE_SAME_HOST": "0", "MILLRACE_CLUSTER_CERTS": str(folder / "localhost"),
        }  # fmt: skip
    return found


def environment_of(transports, name):
    if name not in transports:
        pytest.skip("there is no openssl")
    if transports[name] and not _core.grpc_available():
        pytest.skip("this build has no gRPC")
    return transports[name]


TRANSPORTS = ["shared memory", "gRPC", "token", "certificates"]


def ended(process, folder):
    assert process.wait(timeout=240) == 0, (folder / "log").read_text()


def weights(path):
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def expect_equal(left, right):
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_array_equal(left[name], right[name], err_msg=name)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_operations_of_three_processes(tmp_path, transports, transport):
    environment = environment_of(transports, transport)
    ended(launch(OPERATIONS, 3, tmp_path, tmp_path, **environment), tmp_path)
    for rank in range(3):
        got = json.loads((tmp_path / f"{rank}.json").read_text())
        assert got == {
            "size": 3, "sum": [3, 6, 9, 12], "mean": [2, 4, 6, 8], "max": [2, 3, 4, 5], "min": 0,
            "product": 6, "half": [1, 2, 3, 4], "rows": [[1, 1], [2, 2], [2, 2]],
            "sent": [1, 2, 3, 4], "flag": True, "gradient": 6.0 + 4 * rank,
        }  # fmt: skip


def test_processes_that_disagree_are_told_so(tmp_path):
    ended(launch(DISAGREEMENT, 2, tmp_path), tmp_path)
    text = (tmp_path / "log").read_text()
    for rank in range(2):
        assert f"worker {rank} | got CollectiveReduce" in text, text
        assert f"worker {rank} | summed" in text, text
    assert "rank 0 (/job:worker/replica:0/task:0) has Add and Div of float [2]" in text, text
    assert "rank 1 (/job:worker/replica:0/task:1) has Add and Div of float [3]" in text, text


def test_digits_by_two_processes_are_those_of_one(tmp_path):
    ended(launch(DIGITS / "data_parallel.py", 2, tmp_path, tmp_path / "two.npz", 12), tmp_path)
    alone = [sys.executable, str(DIGITS / "synchronous.py"), str(tmp_path / "one.npz"), "12"]
    subprocess.run(alone, check=True, timeout=240, capture_output=True)
    expect_equal(weights(tmp_path / "two.npz"), weights(tmp_path / "one.npz"))


def step_of(folder, rank):
    try:
        lines = (folder / f"{rank}.step").read_text().split()
    except FileNotFoundError:
        return -1
    return int(lines[-1]) if lines else -1


@pytest.mark.parametrize(
    ("victim", "transport"),
    [(0, "shared memory"), (1, "shared memory"), (0, "gRPC"), (1, "token"), (1, "certificates")],
)
def test_a_process_that_is_killed_comes_back(tmp_path, victim, transports, transport):
    environment = environment_of(transports, transport)
    steps = 40
    calm, disturbed = tmp_path / "calm", tmp_path / "disturbed"
    calm.mkdir()
    disturbed.mkdir()
    ended(launch(TRAINING, 2, calm, calm, steps, 0, **environment), calm)
    process = launch(TRAINING, 2, disturbed, disturbed, steps, 0.02, restart=5, **environment)
    try:
        end = time.monotonic() + 120
        while step_of(disturbed, victim) < 5:
            assert process.poll() is None, (disturbed / "log").read_text()
            assert time.monotonic() < end, (disturbed / "log").read_text()
            time.sleep(0.01)
        os.kill(int((disturbed / f"{victim}.pid").read_text()), signal.SIGKILL)
        ended(process, disturbed)
    finally:
        process.kill()
    text = (disturbed / "log").read_text()
    assert "The run is made again, for: " in text, text
    assert f"/job:worker/replica:0/task:{victim}" in text, text
    for rank in range(2):
        expect_equal(weights(disturbed / f"{rank}.npz"), weights(calm / "0.npz"))


@pytest.mark.parametrize("batches", [(3, 9), (9, 3), (5, 9, 7), (0, 4), (4, 4)])
def test_the_first_end_of_data_is_that_of_all(tmp_path, batches):
    """Nobody waits, and nobody has made a step that others have not."""
    began = time.monotonic()
    ended(launch(UNEVEN, len(batches), tmp_path, tmp_path, *batches), tmp_path)
    took = time.monotonic() - began
    text = (tmp_path / "log").read_text()
    assert took < 25, text  # after 30 s they would have given up
    assert "lost" not in text, text
    steps = min(batches)
    for rank in range(len(batches)):
        assert f"worker {rank} | ended" in text, text
        got = weights(tmp_path / f"{rank}.npz")
        assert got["global_step"] == steps
        expect_equal(got, weights(tmp_path / "0.npz"))
    mean = np.mean([np.arange(steps).sum() + rank * steps for rank in range(len(batches))])
    np.testing.assert_allclose(got["w"], -mean, rtol=1e-6)


def test_rows_are_divided_by_those_that_took_part(tmp_path):
    (tmp_path / "program.py").write_text(SMALLER)
    with contextlib.ExitStack() as sockets:
        held = [sockets.enter_context(socket.socket()) for _ in range(3)]
        for holder in held:
            holder.bind(("", 0))
        workers = ",".join(f"localhost:{holder.getsockname()[1]}" for holder in held)
    environment = {
        **os.environ, "MILLRACE_CLUSTER": f"worker={workers}", "MILLRACE_JOB": "worker",
        "MILLRACE_LOST_AFTER_MS": "500",
    }  # fmt: skip
    two = [
        subprocess.Popen(
            [sys.executable, str(tmp_path / "program.py"), str(tmp_path)],
            env={**environment, "MILLRACE_TASK": str(rank)}, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    for process in two:
        _, text = process.communicate(timeout=120)
        assert process.returncode == 0, text
    for rank in range(2):
        got = weights(tmp_path / f"{rank}.npz")
        np.testing.assert_array_equal(got["w"], [3, 3])
        np.testing.assert_array_equal(got["table"], [[1, 1], [2, 2], [3, 3]])


@pytest.fixture
def alone(monkeypatch):
    for name in ("MILLRACE_CLUSTER", "TF_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(world, "_world", None)
    with tf.Graph().as_default():
        yield


def test_a_process_alone(alone):
    with pytest.raises(RuntimeError, match="init"):
        dist.rank()
    with pytest.raises(ValueError, match="min_size: expected at most 1, got 2"):
        dist.init(min_size=2)
    dist.init()
    assert (dist.rank(), dist.size()) == (0, 1)
    w = tf.get_variable("w", [2], initializer=tf.ones_initializer())
    loss = tf.reduce_sum(w * w)
    optimizer = dist.DistributedOptimizer(tf.train.GradientDescentOptimizer(0.25))
    train = optimizer.minimize(loss, global_step=tf.train.get_or_create_global_step())
    whole = [dist.all_reduce([1.0, 2.0]), dist.all_gather([[3]]), dist.broadcast(True)]
    hooks = [dist.BroadcastVariablesHook()]
    with tf.train.MonitoredTrainingSession(hooks=hooks) as session:
        session.run(train)
        np.testing.assert_array_equal(session.run(w), [0.5, 0.5])
        mean, rows, flag = session.run(whole)
    assert mean.tolist() == [1, 2] and rows.tolist() == [[3]] and flag
    with pytest.raises(ValueError, match="op: expected one of sum, mean.*got 'average'"):
        dist.all_reduce(1.0, "average")
    with pytest.raises(ValueError, match="root: expected a rank below 1, got 1"):
        dist.broadcast(1.0, root=1)
    with pytest.raises(ValueError, match="bucket_bytes"):
        dist.DistributedOptimizer(tf.train.GradientDescentOptimizer(1.0), bucket_bytes=0)


GROUP_WITHOUT_SERVER = """
import millrace.compat.v1 as tf

reduced = tf.raw_ops.CollectiveReduce(
    input=[1.0], group_size=2, group_key=1, instance_key=1, merge_op="Add", final_op="Id",
    subdiv_offsets=[0],
)
try:
    tf.Session().run(reduced)
except tf.errors.FailedPreconditionError as error:
    print(error.message)
"""


def test_groups_need_a_server():
    """In a process of its own: others of this one may have servers."""
    out = subprocess.check_output([sys.executable, "-c", GROUP_WITHOUT_SERVER], text=True)
    assert "millrace.distributed.init()" in out
