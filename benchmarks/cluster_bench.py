"""What steps over the processes of a cluster cost, beside TensorFlow.

    python benchmarks/cluster_bench.py [--python PYTHON] [--rounds N] [WORD ...]

Microseconds, of the clock and of the measuring process. Tasks are processes of this machine. The
names with "gRPC" are of Millrace without its shared memory; TensorFlow has gRPC only.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys

import beside

_TASK = """
import importlib, json, sys
tf = importlib.import_module(sys.argv[1])
tf.train.Server(json.loads(sys.argv[2]), sys.argv[3], int(sys.argv[4])).join()
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
    try:
        yield tf.train.Server(jobs, "worker", 0).target
    finally:
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

    def lookup():
        tables = []
        for i in range(TABLES):
            with tf.device(f"/job:ps/task:{i}"):
                shape = [1 << 18, 64]  # 64 MiB each: what is read does not depend on it
                tables.append(tf.get_variable(f"t{i}", initializer=tf.zeros(shape)))
        with tf.device("/job:worker/task:0"):
            ids = tf.constant([i * 7919 % (TABLES << 18) for i in range(ROWS)], tf.int64)
            return tf.nn.embedding_lookup(tables, ids).op

    yield "null step", 1, null
    yield "100 MiB from a ps", 1, large
    yield f"{ROWS} rows of {TABLES} ps", TABLES, lookup


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


if __name__ == "__main__":
    beside.main(__file__, __doc__, "microseconds", lambda folder: None, measure)
