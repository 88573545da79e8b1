"""What steps over the processes of a cluster cost, beside TensorFlow.

    python benchmarks/cluster_bench.py [--python PYTHON] [--rounds N] [WORD ...]

Microseconds, of the clock and of the measuring process. Tasks are processes of this machine. The
names with "gRPC" are of Millrace without its shared memory; TensorFlow has gRPC only. Those with
"MPI" are by Open MPI, where there is an mpirun.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys

import beside

_TASK = """
import importlib, json, sys
tf = importlib.import_module(sys.argv[1])
tf.train.Server(json.loads(sys.argv[2]), sys.argv[3], int(sys.argv[4])).join()
"""
# Another worker, which sums whenever this process does.
_SUMMER = """
import importlib, json, sys
tf = importlib.import_module(sys.argv[1])
server = tf.train.Server(json.loads(sys.argv[2]), "worker", 1)
total = tf.raw_ops.CollectiveReduce(
    input=tf.Variable(tf.ones([int(sys.argv[3])])), group_size=2, group_key=1, instance_key=1,
    merge_op="Add", final_op="Id", subdiv_offsets=[0])
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    call = session.make_callable([total.op])
    while True:
        call()
"""
# Two ranks that sum by Open MPI. The first says what that costs it; the other ends with it.
_RANK = """
import importlib, json, sys
sys.path.insert(0, sys.argv[3])
import beside
tf = importlib.import_module(sys.argv[1])
import millrace.distributed as dist
dist.init()
total = dist.all_reduce(tf.Variable(tf.ones([int(sys.argv[2])])), "sum")
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    call = session.make_callable([total.op])
    if dist.rank() == 0:
        print(json.dumps(beside.cost(call, 0.5)), flush=True)
    else:
        try:
            while True:
                call()
        except tf.errors.FailedPreconditionError:
            pass
"""
ELEMENTS = 25 << 20  # 100 MiB of floats
ROWS, TABLES = 32, 4


def free_address():
    with socket.socket() as holder:
        holder.bind(("", 0))
        return f"localhost:{holder.getsockname()[1]}"


@contextlib.contextmanager
def cluster(tf, ps):
    """So many parameter servers in processes of their own; gives the target of a worker here."""
    jobs = {"ps": [free_address() for _ in range(ps)], "worker": [free_address()]}
    tasks = [
        subprocess.Popen(
            [sys.executable, "-c", _TASK, tf.__name__, json.dumps(jobs), "ps", str(i)],
            stderr=subprocess.DEVNULL,
        )
        for i in range(ps)
    ]
    server = tf.train.Server(jobs, "worker", 0)
    try:
        yield server.target
    finally:
        if hasattr(server, "stop"):  # TensorFlow's cannot be stopped
            server.stop()
        for task in tasks:
            task.kill()
            task.wait()


def steps(tf):
    """(name, number of parameter servers, function that makes the op) of each measurement."""

    def null():
        with tf.device("/job:ps/task:0"):
            v = tf.get_variable("v", initializer=1.0)
        with tf.device("/job:worker/task:0"):
            return (tf.identity(v) + 1).op

    def large():
        with tf.device("/job:ps/task:0"):
            v = tf.get_variable("v", initializer=tf.ones([ELEMENTS]))
        with tf.device("/job:worker/task:0"):
            return tf.identity(v)[0].op

    def sharded():
        tables = []
        for i in range(TABLES):
            with tf.device(f"/job:ps/task:{i}"):
                shape = [1 << 18, 64]  # 64 MiB each: what is read does not depend on it
                tables.append(tf.get_variable(f"t{i}", initializer=tf.zeros(shape)))
        return tables, tf.constant([i * 7919 % (TABLES << 18) for i in range(ROWS)], tf.int64)

    def lookup():
        tables, ids = sharded()
        with tf.device("/job:worker/task:0"):
            return tf.nn.embedding_lookup(tables, ids).op

    def computed(strategy):
        tables, ids = sharded()
        with tf.device("/job:worker/task:0"):
            shift = tf.random.uniform([], 0, 1000, tf.int64)
            return tf.nn.embedding_lookup(tables, ids + shift, partition_strategy=strategy)

    def update():
        rows = computed("mod")
        with tf.device("/job:worker/task:0"):
            loss = tf.reduce_sum(tf.square(rows))
        return tf.train.GradientDescentOptimizer(0.1).minimize(loss)

    yield "null step", 1, null
    yield "100 MiB from a ps", 1, large
    yield f"{ROWS} rows of {TABLES} ps", TABLES, lookup
    yield f"{ROWS} computed rows (mod)", TABLES, lambda: computed("mod").op
    yield f"{ROWS} computed rows (div)", TABLES, lambda: computed("div").op
    yield f"update of {ROWS} computed rows", TABLES, update


def measure(tf, folder, chosen):
    """The steps, over each transport there is."""
    own = tf.__name__.startswith("millrace")
    for transport in ("", ", gRPC") if own else ("",):
        os.environ["MILLRACE_SAME_HOST"] = "0" if transport else "1"
        for name, ps, make in steps(tf):
            if not chosen(name + transport):
                continue
            with cluster(tf, ps) as target, tf.Graph().as_default():
                op = make()
                with tf.Session(target) as session:
                    session.run(tf.global_variables_initializer())
                    call = session.make_callable([op])
                    yield name + transport, beside.cost(call, 0.5)
    if own:
        yield from measure_sums(tf, chosen)


@contextlib.contextmanager
def summer(tf, elements):
    """A worker of this process and one of another; gives the sum of a variable of each."""
    jobs = {"worker": [free_address(), free_address()]}
    command = [sys.executable, "-c", _SUMMER, tf.__name__, json.dumps(jobs), str(elements)]
    other = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    server = tf.train.Server(jobs, "worker", 0)
    try:
        yield tf.raw_ops.CollectiveReduce(
            input=tf.Variable(tf.ones([elements])), group_size=2, group_key=1, instance_key=1,
            merge_op="Add", final_op="Id", subdiv_offsets=[0],
        )  # fmt: skip
    finally:
        other.kill()
        other.wait()
        server.stop()


def cost_by_mpi(tf, elements):
    """What rank 0 of two measures."""
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2"]
    folder = os.path.dirname(os.path.abspath(__file__))
    program = [sys.executable, "-c", _RANK, tf.__name__, str(elements), folder]
    return json.loads(subprocess.check_output([*command, *program], stderr=subprocess.DEVNULL))


def measure_sums(tf, chosen):
    """Sums over two processes without a parameter server. TensorFlow's are not measured."""
    for transport in ("", ", gRPC", ", MPI"):
        os.environ["MILLRACE_SAME_HOST"] = "0" if transport == ", gRPC" else "1"
        for size, elements in (("4 B", 1), ("4 MiB", 1 << 20), ("100 MiB", ELEMENTS)):
            name = f"all-reduce of {size}{transport}"
            if not chosen(name):
                continue
            if transport == ", MPI":
                if shutil.which("mpirun"):
                    yield name, cost_by_mpi(tf, elements)
                continue
            with tf.Graph().as_default(), summer(tf, elements) as total, tf.Session() as session:
                session.run(tf.global_variables_initializer())
                call = session.make_callable([total.op])
                yield name, beside.cost(call, 0.5)


if __name__ == "__main__":
    beside.main(__file__, __doc__, "microseconds", lambda folder: None, measure)
