"""What steps over the processes of a cluster cost, beside TensorFlow.

    python benchmarks/cluster_bench.py [--python PYTHON] [--rounds N] [WORD ...]

Microseconds, of the clock and of the measuring process. Tasks are processes of this machine. The
names with "gRPC" are of Millrace without its shared memory; TensorFlow has gRPC only. Those with
"TLS" are by gRPC between tasks that show each other certificates, where there is an openssl. Those
with "MPI" are by Open MPI, where there is an mpirun. A synchronous step is one of the training, as
its chief sees it: every worker's gradient, of one number, is part of it.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time

import beside

_TASK = """
import importlib, json, sys
tf = importlib.import_module(sys.argv[1])
tf.train.Server(json.loads(sys.argv[2]), sys.argv[3], int(sys.argv[4])).join()
"""
# Another worker that steps together with this process.
_REPLICA = """
import importlib, json, sys
sys.path.insert(0, sys.argv[4])
import cluster_bench
tf = importlib.import_module(sys.argv[1])
if hasattr(tf, "disable_eager_execution"):
    tf.disable_eager_execution()
with cluster_bench.replica(tf, json.loads(sys.argv[2]), int(sys.argv[3])) as (session, train, _):
    while True:
        session.run(train)
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
MOST_WORKERS = 4
TLS = ", TLS"


def free_address():
    with socket.socket() as holder:
        holder.bind(("", 0))
        return f"localhost:{holder.getsockname()[1]}"


@contextlib.contextmanager
def processes(programs):
    """Runs each, a program and its arguments, in a process of its own."""
    running = [
        subprocess.Popen([sys.executable, "-c", *program], stderr=subprocess.DEVNULL)
        for program in programs
    ]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def parameter_servers(tf, jobs):
    """Their programs."""
    said = json.dumps(jobs)
    return [(_TASK, tf.__name__, said, "ps", str(i)) for i in range(len(jobs["ps"]))]


def stop(server):
    if hasattr(server, "stop"):  # TensorFlow's cannot be stopped
        server.stop()


@contextlib.contextmanager
def cluster(tf, ps):
    """So many parameter servers in processes of their own; gives the target of a worker here."""
    jobs = {"ps": [free_address() for _ in range(ps)], "worker": [free_address()]}
    with processes(parameter_servers(tf, jobs)):
        server = tf.train.Server(jobs, "worker", 0)
        try:
            yield server.target
        finally:
            stop(server)


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
    for transport in ("", ", gRPC", TLS) if own else ("",):
        os.environ["MILLRACE_SAME_HOST"] = "0" if transport else "1"
        for name, ps, make in steps(tf):
            if not chosen(name + transport) or (transport == TLS and ps > 1):
                continue
            if transport == TLS and not use_certificates(folder):
                continue
            with cluster(tf, ps) as target, tf.Graph().as_default():
                op = make()
                with tf.Session(target) as session:
                    session.run(tf.global_variables_initializer())
                    call = session.make_callable([op])
                    yield name + transport, beside.cost(call, 0.5)
    os.environ.pop("MILLRACE_CLUSTER_CERTS", None)
    os.environ["MILLRACE_SAME_HOST"] = "1"
    for workers in range(1, MOST_WORKERS + 1):
        name = f"synchronous step, {workers} worker" + "s" * (workers > 1)
        if chosen(name):
            yield name, cost_together(tf, workers)
    if own:
        yield from measure_sums(tf, chosen)


def use_certificates(folder):
    """Whether there are some, which clusters use from now on."""
    if not shutil.which("openssl"):
        return False
    made = os.path.join(folder, "certificates")
    if not os.path.exists(made):
        command = [sys.executable, "-m", "millrace", "certs", made, "localhost"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    os.environ["MILLRACE_CLUSTER_CERTS"] = os.path.join(made, "localhost")
    return True


@contextlib.contextmanager
def replica(tf, jobs, index):
    """A worker that steps together with the others; gives a session, the op that gives a gradient
    and waits for the step, and the number of steps."""
    server = tf.train.Server(jobs, "worker", index)
    worker = f"/job:worker/task:{index}"
    replicas = len(jobs["worker"])
    with tf.Graph().as_default():
        with tf.device(tf.train.replica_device_setter(cluster=jobs, worker_device=worker)):
            step = tf.train.get_or_create_global_step()
            v = tf.get_variable("v", initializer=tf.ones([1]))
            optimizer = tf.train.SyncReplicasOptimizer(
                tf.train.GradientDescentOptimizer(0.001), replicas, total_num_replicas=replicas
            )
            train = optimizer.apply_gradients([(tf.identity(v), v)], global_step=step)
        try:
            with tf.train.MonitoredTrainingSession(
                server.target,
                is_chief=index == 0,
                hooks=[optimizer.make_session_run_hook(index == 0)],
                config=tf.ConfigProto(device_filters=["/job:ps", worker]),
                log_step_count_steps=None,
            ) as session:
                yield session, train, step
        finally:
            stop(server)


def cost_together(tf, workers, seconds=0.5, windows=6):
    """As beside.cost(), of a step that so many workers take together: by the clock, and of the
    chief. One that is quick may give two of its gradients, so it is steps that are counted."""
    jobs = {"ps": [free_address()], "worker": [free_address() for _ in range(workers)]}
    folder = os.path.dirname(os.path.abspath(__file__))
    others = [(_REPLICA, tf.__name__, json.dumps(jobs), str(i), folder) for i in range(1, workers)]
    best = [float("inf")] * 2
    with (
        processes(parameter_servers(tf, jobs) + others),
        replica(tf, jobs, 0) as (session, train, step),
    ):
        for _ in range(windows + 1):  # the first, until all have begun, is not the best
            done = session.run(step)
            start, used_before = time.perf_counter(), time.process_time()
            while time.perf_counter() - start < seconds:
                session.run(train)
            took, used = time.perf_counter() - start, time.process_time() - used_before
            done = session.run(step) - done
            best = [min(b, t * 1e6 / done) for b, t in zip(best, (took, used), strict=True)]
        return best


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
