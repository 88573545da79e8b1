"""What a step of training costs within a third of the memory that it takes without a limit.

python budget_bench.py [--threads N] [--rounds N] [--share SHARE] [--tiny] [--json FILE] [WORD...]

Networks of 64 layers, of whose step most memory holds what is kept for the backward pass. Each is
trained in two processes that take turns: one without a limit, and one with `memory_limit`
(docs/plans.md) at that share of what Session.explain says of the first. Printed are how much memory
steps add to each process, the milliseconds of a step, the least of all rounds, and their ratio; and
whether losses are equal to the bit.
"""

import contextlib
import dataclasses
import re
import statistics
import sys
import time
from collections.abc import Callable

import turns

LAYERS = 64
# Steps whose losses are compared.
STEPS = 4


@dataclasses.dataclass(frozen=True)
class Program:
    name: str
    about: str
    inputs: tuple  # the shape of a batch
    layer: Callable  # of TensorFlow 1's interface, the layer's number and its input


def variables(tf, i, shape, deviation):
    """Weights and bias of a layer."""
    normal = tf.random_normal_initializer(stddev=deviation, seed=i)
    weights = tf.get_variable(f"w{i}", shape, initializer=normal)
    return weights, tf.get_variable(f"b{i}", shape[-1:], initializer=tf.zeros_initializer())


def dense(width, activation):
    def layer(tf, i, x):
        weights, bias = variables(tf, i, [width, width], 1.3 / width**0.5)
        return getattr(tf.nn, activation)(tf.nn.bias_add(tf.matmul(x, weights), bias))

    return layer


def convolution(channels):
    def layer(tf, i, x):
        weights, bias = variables(tf, i, [3, 3, channels, channels], (2 / (9 * channels)) ** 0.5)
        return tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, weights, [1] * 4, "SAME"), bias))

    return layer


def programs(tiny):
    width, batch = (32, 256) if tiny else (1024, 1024)
    images = (4, 8, 8, 8) if tiny else (16, 28, 28, 64)
    sizes = f"{width} wide, batch {batch}"
    return [
        Program("dense, tanh", sizes, (batch, width), dense(width, "tanh")),
        Program("dense, ReLU", sizes, (batch, width), dense(width, "relu")),
        Program("convolutions", f"3x3, images {images}", images, convolution(images[-1])),
    ]


def trainer(program, threads, limit):
    """What trains for a step and gives the loss before it, and what explains the step."""
    import millrace.compat.v1 as tf

    config = tf.ConfigProto(
        intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads
    )
    if limit:
        config.graph_options.rewrite_options.optimizers.append(f"memory_limit={limit}")
    with tf.Graph().as_default():
        # A variable has a shape that is known before it is fed.
        start = tf.random_normal_initializer(seed=LAYERS)
        y = tf.get_variable("x", program.inputs, initializer=start, trainable=False)
        for i in range(LAYERS):
            y = program.layer(tf, i, y)
        loss = tf.reduce_mean(tf.square(y - 0.5))
        train = tf.train.GradientDescentOptimizer(1e-3).minimize(loss)
        session = tf.Session(config=config)
        session.run(tf.global_variables_initializer())
    fetches = [loss, train]
    return lambda: float(session.run(fetches)[0]), lambda: session.explain(fetches)


def work(threads):
    """What a process does when it is asked."""
    step = None

    def prepare(index, tiny, limit):
        nonlocal step
        step, explain = trainer(programs(tiny)[index], threads, limit)
        turns.forget_peak()
        before = turns.peak_mb()
        losses = [step() for _ in range(STEPS)]
        estimate = re.search(r"memory: at most about (\d+) bytes", explain())
        return {
            "losses": losses,
            "peak_mb": turns.peak_mb() - before,
            "estimate": int(estimate[1]),
        }

    def turn():
        start = time.perf_counter()
        step()
        return (time.perf_counter() - start) * 1e3

    turns.serve({"prepare": prepare, "turn": turn})


def measure(index, options):
    with contextlib.ExitStack() as stack:
        workers, found = {}, {}
        for name in ("free", "limited"):
            worker = turns.Worker(__file__, name, sys.executable, options.threads)
            workers[name] = stack.enter_context(worker)
            limit = int(found["free"]["estimate"] * options.share) if found else 0
            found[name] = worker.ask("prepare", index=index, tiny=options.tiny, limit=limit)
            found[name] |= {"limit": limit, "ms": []}
        for _ in range(options.rounds):
            for name, worker in workers.items():
                found[name]["ms"].append(worker.ask("turn"))
    equal = found["free"].pop("losses") == found["limited"].pop("losses")
    found |= {"equal": equal}
    for kind, value in (("ratio", min), ("median_ratio", statistics.median)):
        found[kind] = value(found["limited"]["ms"]) / value(found["free"]["ms"])
    return found


def main():
    job = turns.start_work(sys.argv)
    if job:
        work(job[1])
        return
    parser = turns.arguments(__doc__)
    parser.add_argument("--share", type=float, default=1 / 3, help="of the peak without a limit")
    parser.add_argument("--tiny", action="store_true", help="try it with small programs")
    options = parser.parse_args()
    all_programs = programs(options.tiny)
    chosen = [i for i, p in enumerate(all_programs) if turns.chosen(p.name, options.words)]
    if not chosen:
        sys.exit(f"none of the programs has one of {options.words} in its name")
    print(f"{turns.machine()}, {options.threads} threads; the least of {options.rounds} rounds")
    title = f"{LAYERS} layers"
    print(f"{title:16}{'MB: explained, added':>24}{'limit':>10}{'within it':>24}", end="")
    print(f"{'ms':>10}{'within it':>12}{'ratio (median)':>18}")
    results = []
    for index in chosen:
        program = all_programs[index]
        r = measure(index, options)
        results.append({"name": program.name, "about": program.about} | r)
        free, limited = r["free"], r["limited"]
        memory = [f"{f['estimate'] / 1e6:.1f}, {f['peak_mb']:.1f}" for f in (free, limited)]
        line = f"{program.name:16}{memory[0]:>24}{limited['limit'] / 1e6:>10.1f}{memory[1]:>24}"
        line += f"{min(free['ms']):>10.2f}{min(limited['ms']):>12.2f}"
        ratio = f"{r['ratio']:.2f} ({r['median_ratio']:.2f})"
        print(f"{line}{ratio:>18}" + ("" if r["equal"] else "   other losses!"), flush=True)
    what = {"machine": turns.machine(), "threads": options.threads, "rounds": options.rounds}
    turns.write_json(options.json, what | {"share": options.share, "programs": results})


if __name__ == "__main__":
    main()
