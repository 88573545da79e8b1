"""How long it takes until a program trains, in every framework that is installed.

python first_step_bench.py [--python TENSORFLOW_PYTHON] [--peers PYTORCH_AND_JAX_PYTHON] [WORD...]

first    from the start of the process to the end of the first training step of the MLP of
         training_bench.py, its weights and images made with NumPy
plan     of Millrace alone: the first run of graphs of so many small ops, beyond the second; and how
         long a plan for the shapes of what is fed is made, beside runs that go on

WORD chooses between the two. Each start is a process of its own; frameworks take turns.
"""

import os
import statistics
import subprocess
import sys
import time

import turns
from training.programs import initial_values, mlp
from training_bench import trainer

OPS = [10, 100, 1000, 10000]
# A plan for shapes that is not there by then is not being made.
PATIENCE_SECONDS = 60


def first_step(framework, threads):
    program = mlp()
    trainer(framework, program, *initial_values(program), threads)()


def start_seconds(framework, python, threads):
    """From the start of a process to the end of its first step."""
    command = [python, __file__, "--first", framework, str(threads)]
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu"}
    environment |= {"OMP_NUM_THREADS": str(threads), "MILLRACE_NUM_THREADS": str(threads)}
    environment["CUDA_VISIBLE_DEVICES"] = ""
    start = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["nothing"]
        raise turns.Failed(f"{framework} ended with {done.returncode}: {said[-1]}")
    return seconds


def starts(found, options):
    """Milliseconds of every framework that gets there: all its starts."""
    taken = {name: [] for name in found}
    for _ in range(options.rounds):
        for name in list(taken):
            try:
                taken[name].append(start_seconds(name, found[name], options.threads) * 1e3)
            except turns.Failed as failure:
                print(failure, file=sys.stderr)
                del taken[name]
    return taken


def planning(count):
    """Milliseconds to build a graph of so many ops, to plan it, and until there is a plan for the
    shape of its feed."""
    import numpy as np

    import millrace.compat.v1 as tf

    start = time.perf_counter()
    with tf.Graph().as_default() as graph:
        fed = tf.placeholder(tf.float32, [None, 8])
        weights = tf.Variable(np.eye(8, dtype=np.float32) * 0.5)
        y = fed
        for i in range(count // 4):
            y = tf.matmul(y, weights) if i % 2 else y + tf.cast(tf.shape(y)[0], tf.float32)
        built = time.perf_counter() - start
        with tf.Session(graph=graph) as session:
            session.run(weights.initializer)
            feed = {fed: np.ones([4, 8], np.float32)}

            def run(**more):
                start = time.perf_counter()
                session.run(y, feed, **more)
                return time.perf_counter() - start

            first, second = run(), run()
            # A traced run says which plan it went by.
            traced = {"options": tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)}
            start = time.perf_counter()
            general, plan = None, None
            while plan == general and time.perf_counter() - start < PATIENCE_SECONDS:
                metadata = tf.RunMetadata()
                run(**traced, run_metadata=metadata)
                plan = len(metadata.step_stats.dev_stats[0].node_stats)
                general = general or plan
            shaped = time.perf_counter() - start if plan != general else None
    return built * 1e3, (first - second) * 1e3, shaped and shaped * 1e3


def main():
    if sys.argv[1:2] == ["--first"]:
        first_step(sys.argv[2], int(sys.argv[3]))
        return
    parser = turns.arguments(__doc__, rounds=5)
    options = parser.parse_args()
    what = {"machine": turns.machine(), "threads": options.threads, "rounds": options.rounds}
    if turns.chosen("first", options.words):
        taken = starts(turns.find(options), options)
        print("Milliseconds from the start of a process to the end of its first training step")
        for name, each in taken.items():
            print(f"{name:12}{min(each):10.0f} least{statistics.median(each):10.0f} median")
        what["first"] = taken
    if turns.chosen("plan", options.words):
        print("Milliseconds to build a graph, to plan it, and until a plan for its shapes runs")
        what["plan"] = {}
        for count in OPS:
            built, planned, shaped = planning(count)
            what["plan"][count] = {"built": built, "planned": planned, "shaped": shaped}
            last = f"{shaped:10.1f}" if shaped is not None else "         -"
            print(f"{count:7} ops{built:10.1f}{planned:10.1f}{last}", flush=True)
    if len(what) == 3:
        sys.exit(f"expected first or plan, got {options.words}")
    turns.write_json(options.json, what)


if __name__ == "__main__":
    main()
