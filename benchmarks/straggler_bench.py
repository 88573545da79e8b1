"""What a slow replica costs those that step together with it, beside TensorFlow.

    python benchmarks/straggler_bench.py [--python PYTHON] [--rounds N] [--pause MS] [--steps N]

Three workers train synchronously over one parameter server; a step is made of the first two
gradients that come, so one worker is spare. A gradient takes as long as --pause says, and ten
times as long on the last worker where it is a straggler. Nothing is computed meanwhile, as with a
device that does the work: what is measured is waiting, not cores. Tasks are processes of this
machine. The rate is that of the training's steps, as its chief sees them.
"""

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time

from cluster_bench import free_address

WORKERS, NEEDED, SLOWER = 3, 2, 10
WARM_UP = 20  # steps before the clock runs


def serve(tf, jobs):
    """The parameter server."""
    tf.train.Server(jobs, "ps", 0).join()


def work(tf, jobs, index, seconds, steps):
    """A worker whose gradients take so long; the first, the chief, prints the steps per second."""
    server = tf.train.Server(jobs, "worker", index)

    def slowly(value):
        time.sleep(seconds)
        return value

    place = tf.train.replica_device_setter(cluster=jobs, worker_device=f"/job:worker/task:{index}")
    with tf.device(place):
        step = tf.train.get_or_create_global_step()
        w = tf.get_variable("w", [1000], initializer=tf.ones_initializer())
        gradient = tf.reshape(tf.py_func(slowly, [tf.identity(w)], tf.float32), [1000])
        optimizer = tf.train.SyncReplicasOptimizer(
            tf.train.GradientDescentOptimizer(0.001), NEEDED, total_num_replicas=WORKERS
        )
        train = optimizer.apply_gradients([(gradient, w)], global_step=step)
    with tf.train.MonitoredTrainingSession(
        server.target,
        is_chief=index == 0,
        hooks=[optimizer.make_session_run_hook(index == 0)],
        config=tf.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{index}"]),
        log_step_count_steps=None,
    ) as session:
        began = None
        while not session.should_stop():
            now = session.run([train, step])[1]
            if began is None and now >= WARM_UP:
                began, first = time.perf_counter(), now
            if began is not None and now >= WARM_UP + steps:
                break
        if index == 0:
            print((now - first) / (time.perf_counter() - began), flush=True)


def rate(python, package, seconds, slower, steps):
    """Steps per second of a training whose last worker takes `slower` times as long; None where
    the package is not there."""
    own = package.startswith("millrace")
    jobs = {"ps": [free_address()], "worker": [free_address() for _ in range(WORKERS)]}

    def start(job, index):
        pause = seconds * (slower if index == WORKERS - 1 else 1)
        return subprocess.Popen(
            [python, __file__, "--task", package, json.dumps(jobs), job, str(index),
             str(pause), str(steps)],
            stdout=subprocess.PIPE, stderr=None if own else subprocess.DEVNULL, text=True,
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "MILLRACE_LOG": "off"},
        )  # fmt: skip

    tasks = [start("ps", 0)] + [start("worker", i) for i in range(WORKERS)]
    try:
        said = tasks[1].stdout.readline()
    finally:
        for task in tasks:
            task.kill()
            task.wait()
            task.stdout.close()
    if own and not said:
        raise SystemExit("the chief has ended without a word")
    return float(said) if said else None


def run_task(package, jobs, job, index, seconds, steps):
    """What a process of a training does."""
    tf = importlib.import_module(package)
    if hasattr(tf, "disable_eager_execution"):
        tf.disable_eager_execution()
    if job == "ps":
        serve(tf, json.loads(jobs))
    else:
        work(tf, json.loads(jobs), int(index), float(seconds), int(steps))


def main():
    """Trainings of both packages in turn, with and without a straggler."""
    if sys.argv[1:2] == ["--task"]:
        return run_task(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--python", default=sys.executable, help="one that has TensorFlow")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pause", type=float, default=20, help="milliseconds of a gradient")
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    packages = {
        "Millrace": (sys.executable, "millrace.compat.v1"),
        "TensorFlow": (arguments.python, "tensorflow.compat.v1"),
    }
    found = {}  # by package and how much slower
    for _ in range(arguments.rounds):
        for name, (python, package) in packages.items():
            for slower in (1, SLOWER):
                steps = rate(python, package, arguments.pause / 1000, slower, arguments.steps)
                if steps is not None:
                    found.setdefault((name, slower), []).append(steps)
    print(f"{'steps/s, median':16} {'healthy':>10} {'straggler':>10} {'kept':>7}")
    for name in packages:
        if (name, SLOWER) not in found:
            continue
        healthy, slowed = (statistics.median(found[name, slower]) for slower in (1, SLOWER))
        print(f"{name:16} {healthy:10.1f} {slowed:10.1f} {100 * slowed / healthy:6.1f}%")
    return None


if __name__ == "__main__":
    main()
