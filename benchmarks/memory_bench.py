"""What ops that do little with each number reach, in GB/s, in every framework that is installed.

python memory_bench.py [--python TENSORFLOW_PYTHON] [--peers PYTORCH_AND_JAX_PYTHON] [WORD...]

The bytes of an op are those of its inputs and its result, each once. Inputs stay in the framework,
results are dropped there. Each framework is a process that stays alive, kept to as many processors
as threads; they take turns. Results are compared with each other before.
"""

import contextlib
import dataclasses
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
    name: str
    inputs: Callable  # of a random generator: arrays
    graph: Callable  # of TensorFlow 1's interface and the inputs there: the result
    torch: Callable  # of torch and its tensors
    jax: Callable  # of jax and its arrays
    # How far results of frameworks may be apart, as a share of the largest number.
    tolerance: float = 1e-5
    result_bytes: int = 4  # of a number


def floats(*shapes):
    return lambda rng: [rng.standard_normal(shape, np.float32) for shape in shapes]


def rows_and_ids(rows, width, ids):
    """A table, the numbers of some of its rows, and a row for each."""

    def make(rng):
        table = rng.standard_normal((rows, width), np.float32)
        return [table, rng.integers(0, rows, ids), rng.standard_normal((ids, width), np.float32)]

    return make


def logits_and_labels(rows, classes):
    return lambda rng: [
        rng.standard_normal((rows, classes), np.float32),
        rng.integers(0, classes, rows),
    ]


def segments(rows, width, count):
    return lambda rng: [
        rng.standard_normal((rows, width), np.float32),
        np.sort(rng.integers(0, count, rows)),
    ]


def layer_norm(square_mean, rsqrt, x, scale, shift):
    mean, variance = square_mean(x)
    return (x - mean) * rsqrt(variance + 1e-5) * scale + shift


BIG, ROWS = 1 << 24, (4096, 1024)
IMAGES = (8, 56, 56, 64)
OPS = [
    Op(
        "add",
        floats(BIG, BIG),
        lambda tf, x, y: x + y,
        lambda torch, x, y: x + y,
        lambda jax, x, y: x + y,
    ),
    Op(
        "add, 256 Ki numbers",
        floats(1 << 18, 1 << 18),
        lambda tf, x, y: x + y,
        lambda torch, x, y: x + y,
        lambda jax, x, y: x + y,
    ),
    Op(
        "exp",
        floats(BIG),
        lambda tf, x: tf.exp(x),
        lambda torch, x: x.exp(),
        lambda jax, x: jax.numpy.exp(x),
    ),
    Op(
        "tanh",
        floats(BIG),
        lambda tf, x: tf.tanh(x),
        lambda torch, x: x.tanh(),
        lambda jax, x: jax.numpy.tanh(x),
    ),
    Op(
        "erf",
        floats(BIG),
        lambda tf, x: tf.erf(x),
        lambda torch, x: x.erf(),
        lambda jax, x: jax.lax.erf(x),
    ),
    Op(
        "pow",
        lambda rng: [rng.random(BIG, np.float32) + 0.5, rng.random(BIG, np.float32)],
        lambda tf, x, y: tf.pow(x, y),
        lambda torch, x, y: x.pow(y),
        lambda jax, x, y: x**y,
    ),
    Op(
        "cast to bfloat16",
        floats(BIG),
        lambda tf, x: tf.cast(x, tf.bfloat16),
        lambda torch, x: x.bfloat16(),
        lambda jax, x: x.astype(jax.numpy.bfloat16),
        result_bytes=2,
    ),
    Op(
        "cast to int32",
        floats(BIG),
        lambda tf, x: tf.cast(x, tf.int32),
        lambda torch, x: x.int(),
        lambda jax, x: x.astype(jax.numpy.int32),
    ),
    Op(
        "sum",
        floats(BIG),
        lambda tf, x: tf.reduce_sum(x),
        lambda torch, x: x.sum(),
        lambda jax, x: x.sum(),
        1e-3,
    ),
    Op(
        "sum of rows",
        floats(ROWS),
        lambda tf, x: tf.reduce_sum(x, 1),
        lambda torch, x: x.sum(1),
        lambda jax, x: x.sum(1),
    ),
    Op(
        "sum of columns",
        floats(ROWS),
        lambda tf, x: tf.reduce_sum(x, 0),
        lambda torch, x: x.sum(0),
        lambda jax, x: x.sum(0),
    ),
    Op(
        "largest of rows",
        floats(ROWS),
        lambda tf, x: tf.reduce_max(x, 1),
        lambda torch, x: x.amax(1),
        lambda jax, x: x.max(1),
    ),
    Op(
        "softmax, 1024 wide",
        floats(ROWS),
        lambda tf, x: tf.nn.softmax(x),
        lambda torch, x: torch.softmax(x, 1),
        lambda jax, x: jax.nn.softmax(x),
    ),
    Op(
        "softmax, 10 wide",
        floats((1 << 18, 10)),
        lambda tf, x: tf.nn.softmax(x),
        lambda torch, x: torch.softmax(x, 1),
        lambda jax, x: jax.nn.softmax(x),
    ),
    Op(
        "cross entropy",
        logits_and_labels(*ROWS),
        lambda tf, x, ids: tf.nn.sparse_softmax_cross_entropy_with_logits(labels=ids, logits=x),
        lambda torch, x, ids: torch.nn.functional.cross_entropy(x, ids, reduction="none"),
        lambda jax, x, ids: -jax.nn.log_softmax(x)[jax.numpy.arange(x.shape[0]), ids],
    ),
    Op(
        "layer normalisation",
        floats(ROWS, ROWS[1:], ROWS[1:]),
        lambda tf, x, a, b: layer_norm(
            lambda x: tf.nn.moments(x, [-1], keep_dims=True), tf.rsqrt, x, a, b
        ),
        lambda torch, x, a, b: torch.nn.functional.layer_norm(x, x.shape[1:], a, b, 1e-5),
        lambda jax, x, a, b: layer_norm(
            lambda x: (x.mean(-1, keepdims=True), x.var(-1, keepdims=True)),
            jax.lax.rsqrt,
            x,
            a,
            b,
        ),
    ),
    Op(
        "batch normalisation",
        floats(IMAGES, IMAGES[3:], IMAGES[3:]),
        lambda tf, x, a, b: tf.nn.fused_batch_norm(x, a, b, epsilon=1e-3)[0],
        lambda torch, x, a, b: torch.nn.functional.batch_norm(
            x.permute(0, 3, 1, 2), None, None, a, b, True, 0.1, 1e-3
        ).permute(0, 2, 3, 1),
        lambda jax, x, a, b: (
            (x - x.mean((0, 1, 2))) * jax.lax.rsqrt(x.var((0, 1, 2)) + 1e-3) * a + b
        ),
        1e-4,
    ),
    Op(
        "bias of images",
        floats(IMAGES, IMAGES[3:]),
        lambda tf, x, b: tf.nn.bias_add(x, b),
        lambda torch, x, b: x + b,
        lambda jax, x, b: x + b,
    ),
    Op(
        "transposition",
        floats(ROWS),
        lambda tf, x: tf.transpose(x),
        lambda torch, x: x.t().contiguous(),
        lambda jax, x: x.T.copy(),
    ),
    Op(
        "concatenation",
        floats(ROWS, ROWS),
        lambda tf, x, y: tf.concat([x, y], 1),
        lambda torch, x, y: torch.cat([x, y], 1),
        lambda jax, x, y: jax.numpy.concatenate([x, y], 1),
    ),
    Op(
        "gather",
        rows_and_ids(100_000, 128, 65_536),
        lambda tf, table, ids, rows: tf.gather(table, ids),
        lambda torch, table, ids, rows: table[ids],
        lambda jax, table, ids, rows: table[ids],
    ),
    Op(
        "scatter-add",
        rows_and_ids(100_000, 128, 65_536),
        lambda tf, table, ids, rows: tf.tensor_scatter_nd_add(table, ids[:, None], rows),
        lambda torch, table, ids, rows: table.index_add(0, ids, rows),
        lambda jax, table, ids, rows: table.at[ids].add(rows),
    ),
    Op(
        "sums of segments",
        segments(65_536, 128, 8192),
        lambda tf, x, ids: tf.unsorted_segment_sum(x, ids, 8192),
        lambda torch, x, ids: torch.zeros(8192, x.shape[1]).index_add_(0, ids, x),
        lambda jax, x, ids: jax.ops.segment_sum(x, ids, 8192),
        1e-4,
    ),
]


def runner(framework, op, inputs, threads):
    """Two calls in that framework: one that computes and drops the result, one that gives it."""
    if framework == "PyTorch":
        import torch

        torch.set_num_threads(threads)
        torch.set_grad_enabled(False)
        held = [torch.from_numpy(value) for value in inputs]
        return lambda: op.torch(torch, *held), lambda: op.torch(torch, *held).float().numpy()
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


def work(framework, threads):
    """What a framework's process does when it is asked."""
    call = None

    def prepare(index, path):
        nonlocal call
        inputs = OPS[index].inputs(np.random.default_rng(1))
        call, result = runner(framework, OPS[index], inputs, threads)
        value = result()
        np.save(path, value)
        moved = sum(x.nbytes for x in inputs) + value.size * OPS[index].result_bytes
        return {"bytes": moved, "version": turns.version(framework)}

    def turn():
        seconds, end = [], time.perf_counter() + TURN_SECONDS
        while not seconds or time.perf_counter() < end:
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
        return seconds

    turns.serve({"prepare": prepare, "turn": turn})


def measure(index, workers, options):
    """The figures of an op: of each framework GB/s, and whether its result is Millrace's."""
    op, figures, results = OPS[index], {}, {}
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
        figure["gb_per_s"] = figure["bytes"] / min(seconds) / 1e9
        figure["median_gb_per_s"] = figure["bytes"] / statistics.median(seconds) / 1e9
        apart = np.abs(results[name] - ours).max() / np.abs(ours).max()
        figure["same"] = results[name].shape == ours.shape and bool(apart <= op.tolerance)
    return {"name": op.name, "frameworks": figures}


def line(result, names):
    """A row of the table: GB/s of each, and ours as a share of the best peer's."""
    figures = result["frameworks"]
    cells = [f"{figures[n]['gb_per_s']:.1f}" + " !"[not figures[n]["same"]] for n in names]
    peers = [(figures[name]["gb_per_s"], name) for name in names if name != "Millrace"]
    share = ""
    if peers:
        best, name = max(peers)
        share = f"   {figures['Millrace']['gb_per_s'] / best:5.2f} of {name}"
    return f"{result['name']:24}" + "".join(f"{cell:>14}" for cell in cells) + share


def main():
    job = turns.start_work(sys.argv)
    if job:
        work(*job)
        return
    options = turns.arguments(__doc__).parse_args()
    chosen = [i for i, op in enumerate(OPS) if turns.chosen(op.name, options.words)]
    if not chosen:
        sys.exit(f"none of the ops has one of {options.words} in its name")
    found = turns.find(options)
    with contextlib.ExitStack() as stack:
        workers = {
            name: stack.enter_context(turns.Worker(__file__, name, python, options.threads))
            for name, python in found.items()
        }
        print(f"{turns.machine()}, {options.threads} threads; the best of {options.rounds} rounds")
        print(f"{'GB/s':24}" + "".join(f"{name:>14}" for name in workers), flush=True)
        results = []
        for index in chosen:
            results.append(measure(index, workers, options))
            print(line(results[-1], list(workers)), flush=True)
    print("!: another result than Millrace's")
    what = {"machine": turns.machine(), "threads": options.threads, "rounds": options.rounds}
    turns.write_json(options.json, what | {"ops": results})


if __name__ == "__main__":
    main()
