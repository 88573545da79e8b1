"""How the cost of a step grows with the work in it, in every framework that is installed.

python scaling_bench.py [--python TENSORFLOW_PYTHON] [--peers PYTORCH_AND_JAX_PYTHON] [WORD...]

batch    a training step of the MLP of training_bench.py, by the size of its batch
ops      a chain of products of two 8x8 matrices and sums, by the number of ops
outside  of Millrace alone: the share of a step, on one thread, that is not in kernels, of the
         programs of training_bench.py at their sizes, with the clock's own cost

WORD chooses among the three. Frameworks are processes that take turns.
"""

import statistics
import sys
import time
from pathlib import Path

import charts
import numpy as np
import turns
from training.programs import PROGRAMS, initial_values, mlp
from training_bench import trainer

TURN_SECONDS = 0.15
BATCHES = [1, 2, 4, 8, 16, 32, 64, 128, 256]
OPS = [10, 30, 100, 300, 1000, 3000, 10000]
# A chain that takes a framework minutes to compile is not asked of it.
MOST_OPS = {"JAX": 1000}


def chain(framework, count, threads):
    """A call that runs a chain of so many ops, a product and a sum in turn."""
    rng = np.random.default_rng(1)
    x, w, b = (rng.standard_normal((8, 8), np.float32) * 0.3 for _ in range(3))

    def ops(y, matmul):
        for i in range(count):
            y = y + b if i % 2 else matmul(y, w)
        return y

    if framework == "PyTorch":
        import torch

        torch.set_num_threads(threads)
        start, w, b = map(torch.from_numpy, (x, w, b))
        return lambda: ops(start, torch.matmul)
    if framework == "JAX":
        import jax

        compiled = jax.jit(lambda y: ops(y, jax.numpy.matmul))
        return lambda: compiled(x).block_until_ready()
    if framework == "TensorFlow":
        import tensorflow.compat.v1 as tf

        tf.disable_eager_execution()
    else:
        import millrace.compat.v1 as tf
    with tf.Graph().as_default() as graph:
        held = [tf.Variable(value) for value in (x, w, b)]
        start, w, b = map(tf.convert_to_tensor, held)
        end = ops(start, tf.matmul)
        config = tf.ConfigProto(
            intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads
        )
        session = tf.Session(graph=graph, config=config)
        session.run(tf.global_variables_initializer())
    return session.make_callable(end)


def outside_of_kernels(index, tiny):
    """The share of a step's time in which no kernel ran, on this process's one thread."""
    from training import graph

    import millrace.compat.v1 as tf

    program = PROGRAMS[index](tiny)
    session, fetches = graph.trained(tf, program, *initial_values(program), 1)
    options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
    shares = []
    for _ in range(5):
        metadata = tf.RunMetadata()
        session.run(fetches, options=options, run_metadata=metadata)
        nodes = [n for d in metadata.step_stats.dev_stats for n in d.node_stats]
        begins = [n.all_start_nanos + n.op_start_rel_nanos for n in nodes]
        ends = [n.all_start_nanos + n.op_end_rel_nanos for n in nodes]
        in_kernels = sum(ends) - sum(begins)
        shares.append(1 - in_kernels / (max(ends) - min(begins)))
    return statistics.median(shares)


def work(framework, threads):
    """What a framework's process does when it is asked."""
    step = None

    def prepare_batch(batch):
        nonlocal step
        program = mlp(batch=batch)
        step = trainer(framework, program, *initial_values(program), threads)
        for _ in range(3):
            step()

    def prepare_ops(count):
        nonlocal step
        step = chain(framework, count, threads)
        for _ in range(3):
            step()

    def turn():
        microseconds, end = [], time.perf_counter() + TURN_SECONDS
        while not microseconds or time.perf_counter() < end:
            start = time.perf_counter()
            step()
            microseconds.append((time.perf_counter() - start) * 1e6)
        return min(microseconds)

    questions = [prepare_batch, prepare_ops, turn, outside_of_kernels]
    turns.serve({f.__name__: f for f in questions} | {"version": lambda: turns.version(framework)})


def grow(question, sizes, found, options):
    """Microseconds by framework, for each size; None where it is not asked or cannot."""
    times = {name: [] for name in found}
    for size in sizes:
        workers = {}
        least = dict.fromkeys(found)
        try:
            for name, python in found.items():
                if question == "ops" and size > MOST_OPS.get(name, size):
                    continue
                worker = turns.Worker(__file__, name, python, options.threads)
                try:
                    argument = {"ops": "count", "batch": "batch"}[question]
                    worker.ask(f"prepare_{question}", **{argument: size})
                    workers[name] = worker
                except turns.Failed as failure:
                    print(f"{question} {size}: {failure}", file=sys.stderr)
                    worker.end()
            for _ in range(options.rounds):
                for name, worker in workers.items():
                    us = worker.ask("turn")
                    least[name] = min(us, least[name] or us)
        finally:
            for worker in workers.values():
                worker.end()
        for name in found:
            times[name].append(least[name])
        shown = ", ".join(f"{name} {us:.1f}" for name, us in least.items() if us is not None)
        print(f"{question} {size}, us: {shown}", flush=True)
    return times


def outside(options):
    """The shares of the programs, by name."""
    shares = {}
    for index, make in enumerate(PROGRAMS):
        with turns.Worker(__file__, "Millrace", sys.executable, 1) as worker:
            share = worker.ask("outside_of_kernels", index=index, tiny=options.tiny)
        shares[make(True).name] = share
        print(f"{make(True).name}: {share:.2%} outside of kernels", flush=True)
    return shares


def table(title, sizes, times):
    lines = [f"{title:>10}" + "".join(f"{name:>14}" for name in times)]
    for i, size in enumerate(sizes):
        cells = [f"{us[i]:.1f}" if us[i] is not None else "-" for us in times.values()]
        lines.append(f"{size:>10}" + "".join(f"{cell:>14}" for cell in cells))
    return "\n".join(lines)


def main():
    job = turns.start_work(sys.argv)
    if job:
        work(*job)
        return
    parser = turns.arguments(__doc__, rounds=3)
    parser.add_argument("--tiny", action="store_true", help="try it with few and small sizes")
    options = parser.parse_args()
    found = turns.find(options)
    figures, pictures = {}, []
    where = f"{turns.machine()}, {options.threads} threads; the least of {options.rounds} rounds"
    for question, sizes, title in (
        ("batch", BATCHES, "Microseconds of an MLP's training step, by its batch"),
        ("ops", OPS, "Microseconds of a chain of small ops, by their number"),
    ):
        if not turns.chosen(question, options.words):
            continue
        sizes = sizes[:2] if options.tiny else sizes
        times = grow(question, sizes, found, options)
        figures[question] = {"sizes": sizes, "microseconds": times}
        pictures.append((title, where, question, sizes, times))
        print(f"\n{title}\n{table(question, sizes, times)}\n")
    if turns.chosen("outside", options.words):
        figures["outside"] = outside(options)
    if not figures:
        sys.exit(f"expected batch, ops or outside, got {options.words}")
    what = {"machine": turns.machine(), "threads": options.threads, "rounds": options.rounds}
    turns.write_json(options.json, what | figures)
    if options.svg and pictures:
        Path(options.svg).write_text(charts.lines(pictures))


if __name__ == "__main__":
    main()
