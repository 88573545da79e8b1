"""What benchmarks of single ops share: how much an op does in a second, in each framework.

Inputs stay in the framework, results are dropped there. Each framework is a process that stays
alive, kept to as many processors as threads; they take turns. Results are compared with each other
before.
"""

import contextlib
import dataclasses
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np
import turns

TURN_SECONDS = 0.15


@dataclasses.dataclass(frozen=True)
class Op:
    """Subclasses say amount(inputs, result): the bytes, or the operations, of one call."""

    name: str
    inputs: Callable  # of a random generator: arrays
    graph: Callable  # of TensorFlow 1's interface and the inputs there: the result
    torch: Callable  # of torch and its tensors
    jax: Callable  # of jax and its arrays
    # How far results of frameworks may be apart, as a share of the largest number.
    tolerance: float = 1e-5
    # Functions of PyTorch's tensors that give the same numbers in another order of memory; the
    # order that is quickest counts.
    torch_layouts: tuple[Callable, ...] = (list,)


def torch_runner(op, inputs, threads):
    import torch

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    tensors = [torch.from_numpy(value) for value in inputs]

    def in_layout(lay_out):
        held = lay_out(tensors)
        return lambda: op.torch(torch, *held)

    calls = [in_layout(lay_out) for lay_out in op.torch_layouts]
    call = calls[0]
    if len(calls) > 1:
        call = min(calls, key=lambda call: min(timed(call, TURN_SECONDS / 3)))
    return call, lambda: call().float().numpy()


def timed(call, seconds):
    """What calls take that fit into so many seconds: one at least, after one that warms up."""
    call()
    took, end = [], time.perf_counter() + seconds
    while not took or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        took.append(time.perf_counter() - start)
    return took


def runner(framework, op, inputs, threads):
    """Two calls in that framework: one that computes and drops the result, one that gives it."""
    if framework == "PyTorch":
        return torch_runner(op, inputs, threads)
    if framework == "JAX":
        import jax

        held = [jax.numpy.asarray(value) for value in inputs]
        call = jax.jit(lambda *values: op.jax(jax, *values))
        return lambda: call(*held).block_until_ready(), lambda: np.asarray(call(*held), np.float32)
    if framework == "TensorFlow":
        import tensorflow.compat.v1 as tf

        tf.disable_eager_execution()
    else:
        import millrace.compat.v1 as tf
    with tf.Graph().as_default():
        feeds = [tf.placeholder(value.dtype, value.shape) for value in inputs]
        held = [tf.get_variable(f"v{i}", initializer=x) for i, x in enumerate(feeds)]
        result = op.graph(tf, *[tf.convert_to_tensor(v) for v in held])
        number = tf.cast(result, tf.float32)
        config = tf.ConfigProto(
            intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads
        )
        session = tf.Session(config=config)
        for variable, feed, value in zip(held, feeds, inputs, strict=True):
            session.run(variable.initializer, {feed: value})
        return session.make_callable([result.op]), lambda: session.run(number)


def work(ops, framework, threads):
    """What a framework's process does when it is asked."""
    call = None

    def prepare(index, path):
        nonlocal call
        call = None
        gc.collect()
        op = ops[index]
        inputs = op.inputs(np.random.default_rng(1))
        call, result = runner(framework, op, inputs, threads)
        value = result()
        np.save(path, value)
        return {"amount": op.amount(inputs, value), "version": turns.version(framework)}

    turns.serve({"prepare": prepare, "turn": lambda: timed(call, TURN_SECONDS)})


def measure(op, index, workers, options):
    """The figures of an op: of each framework its rate, in thousand millions of the amount a
    second, and whether its result is Millrace's."""
    figures, results = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for name, worker in workers.items():
            path = f"{folder}/{name}.npy"
            figures[name] = worker.ask("prepare", index=index, path=path) | {"seconds": []}
            results[name] = np.load(path)
    for _ in range(options.rounds):
        for name, worker in workers.items():
            time.sleep(0.02)  # threads of the one before may still look for work
            figures[name]["seconds"] += worker.ask("turn")
    ours = results["Millrace"]
    for name, figure in figures.items():
        seconds = figure.pop("seconds")
        figure["rate"] = figure["amount"] / min(seconds) / 1e9
        figure["median_rate"] = figure["amount"] / statistics.median(seconds) / 1e9
        apart = np.abs(results[name] - ours).max() / np.abs(ours).max()
        figure["same"] = results[name].shape == ours.shape and bool(apart <= op.tolerance)
    return {"name": op.name, "frameworks": figures}


def line(result, names, width):
    """A row of the table: the rate of each, and ours as a share of the best peer's."""
    figures = result["frameworks"]
    cells = [f"{figures[n]['rate']:.1f}" + " !"[not figures[n]["same"]] for n in names]
    peers = [(figures[name]["rate"], name) for name in names if name != "Millrace"]
    share = ""
    if peers:
        best, name = max(peers)
        share = f"   {figures['Millrace']['rate'] / best:5.2f} of {name}"
    return f"{result['name']:{width}}" + "".join(f"{cell:>14}" for cell in cells) + share


def main(script, doc, unit, ops):
    """The program of a benchmark: `script` of the ops, whose rates are in `unit`."""
    job = turns.start_work(sys.argv)
    if job:
        work(ops, *job)
        return
    options = turns.arguments(doc).parse_args()
    chosen = [i for i, op in enumerate(ops) if turns.chosen(op.name, options.words)]
    if not chosen:
        sys.exit(f"none of the ops has one of {options.words} in its name")
    found = turns.find(options)
    with contextlib.ExitStack() as stack:
        workers = {
            name: stack.enter_context(turns.Worker(script, name, python, options.threads))
            for name, python in found.items()
        }
        print(f"{turns.machine()}, {options.threads} threads; the best of {options.rounds} rounds")
        width = max(24, *(len(ops[i].name) + 1 for i in chosen))
        print(f"{unit:{width}}" + "".join(f"{name:>14}" for name in workers), flush=True)
        results = []
        for index in chosen:
            results.append(measure(ops[index], index, workers, options))
            print(line(results[-1], list(workers), width), flush=True)
    print("!: another result than Millrace's")
    what = {"machine": turns.machine(), "threads": options.threads, "rounds": options.rounds}
    turns.write_json(options.json, what | {"unit": unit, "ops": results})
