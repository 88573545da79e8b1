"""What a step costs from Python, beside TensorFlow and PyTorch where they are installed.

python python_bench.py [peers' python]: peers are looked for in this interpreter, or in the one
named (or in $PEER_PYTHON). Medians of several rounds; one thread and all of them.
"""

import json
import os
import statistics
import subprocess
import sys
import time

ROUNDS = 7


def median(measure, rounds=ROUNDS):
    """The median of what `measure()` gives."""
    return statistics.median(measure() for _ in range(rounds))


def per_call(f, count):
    """Microseconds of one call of f."""

    def measure():
        start = time.perf_counter()
        for _ in range(count):
            f()
        return (time.perf_counter() - start) / count * 1e6

    f()
    return median(measure)


def graph_figures(tf, count):
    """What TensorFlow 1's interface measures, whoever provides it."""
    import numpy as np

    figures = {}
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [])
        y = tf.multiply(x, 2.0)
        with tf.Session() as session:
            figures["sess.run, one op (us)"] = per_call(lambda: session.run(y, {x: 1.0}), count)
            call = session.make_callable(y, [x])
            figures["make_callable (us)"] = per_call(lambda: call(1.0), count)

    def build():
        with tf.Graph().as_default():
            node = tf.placeholder(tf.float32, [])
            start = time.perf_counter()
            for _ in range(5000):
                node = node + 1.0
            return (time.perf_counter() - start) / 10000 * 1e6

    figures["building a node (us)"] = median(build, 3)
    with tf.Graph().as_default():
        images = tf.placeholder(tf.float32, [100, 784])
        labels = tf.placeholder(tf.int32, [100])
        net = images
        for width, activation in ((256, tf.nn.relu), (128, tf.nn.relu), (10, lambda v: v)):
            inputs = int(net.shape[1])
            weights = tf.Variable(tf.truncated_normal([inputs, width], stddev=inputs**-0.5))
            net = activation(tf.matmul(net, weights) + tf.Variable(tf.zeros([width])))
        loss = tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=net)
        )
        train = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
        rng = np.random.default_rng(0)
        feed = {
            images: rng.normal(size=(100, 784)).astype(np.float32),
            labels: rng.integers(0, 10, 100).astype(np.int32),
        }
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            us = per_call(lambda: session.run(train, feed), 100)
            figures["MLP 784-256-128-10, batch 100 (steps/s)"] = 1e6 / us
    return figures


def loop_figures(tf, turns):
    """Nanoseconds of an iteration of loops that compute next to nothing."""

    def count(_, end=turns):
        return tf.while_loop(lambda i: i < end, lambda i: i + 1, [tf.constant(0)])

    def polynomial(x):
        def body(i, y):
            y = y * 0.5 + 1.0
            return i + 1, tf.where(y > 1.5, y - 0.25, y + 0.25)

        return tf.while_loop(lambda i, y: i < turns, body, [tf.constant(0), x])[1]

    def nested(_):
        def body(i, total):
            inner = tf.while_loop(lambda j, t: j < 100, lambda j, t: (j + 1, t + j), [0, total])
            return i + 1, inner[1]

        return tf.while_loop(lambda i, t: i < turns // 100, body, [0, tf.constant(0)])[1]

    def branches(x):
        def body(i, y):
            return i + 1, tf.cond(y > 1.0, lambda: y - 1.0, lambda: y + 0.75)

        return tf.while_loop(lambda i, y: i < turns, body, [tf.constant(0), x])[1]

    def power(x):
        y = tf.while_loop(
            lambda i, y: i < turns, lambda i, y: (i + 1, y * 1.0001), [tf.constant(0), x]
        )[1]
        return tf.gradients(y, x)[0]

    programs = {
        "an iteration of i += 1 (ns)": count,
        "an iteration of 8 ops (ns)": polynomial,
        "an inner iteration of two loops (ns)": nested,
        "an iteration with a branch (ns)": branches,
        "an iteration with its gradient (ns)": power,
    }
    figures = {}
    for name, program in programs.items():
        with tf.Graph().as_default():
            x = tf.placeholder(tf.float32, [])
            y = program(x)
            with tf.Session() as session:
                call = session.make_callable(y, [x])
                for _ in range(3):
                    call(1.0)
                figures[name] = per_call(lambda call=call: call(1.0), 3) * 1e3 / turns
    return figures


def torch_figures():
    import torch

    net = torch.nn.Sequential(
        torch.nn.Linear(784, 256), torch.nn.ReLU(), torch.nn.Linear(256, 128), torch.nn.ReLU(),
        torch.nn.Linear(128, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    criterion = torch.nn.CrossEntropyLoss()
    images, labels = torch.randn(100, 784), torch.randint(0, 10, (100,))

    def step():
        optimizer.zero_grad()
        criterion(net(images), labels).backward()
        optimizer.step()

    return {"MLP 784-256-128-10, batch 100 (steps/s)": 1e6 / per_call(step, 100)}


def import_figures(python):
    """Milliseconds to import, beyond an interpreter that does nothing, and bytes printed."""

    def seconds(code):
        start = time.perf_counter()
        done = subprocess.run([python, "-c", code], capture_output=True)
        assert done.returncode == 0, done.stderr
        seconds.printed = len(done.stdout) + len(done.stderr)
        return time.perf_counter() - start

    code = "import millrace.compat.v1 as tf; tf.Session; tf.matmul; tf.train.AdamOptimizer"
    nothing = median(lambda: seconds("pass"))
    plain = median(lambda: seconds("import millrace.compat.v1, numpy"))
    used = median(lambda: seconds(code))
    return {
        "import, NumPy included (ms)": (plain - nothing) * 1e3,
        "import and use of its parts (ms)": (used - nothing) * 1e3,
        "bytes printed": seconds.printed,
    }


def peer(kind):
    """Figures of one peer in this process."""
    if kind == "torch":
        return torch_figures()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    tf.logging.set_verbosity(tf.logging.ERROR)
    return {**graph_figures(tf, 300), **loop_figures(tf, 10000)}


def main():
    if sys.argv[1:2] == ["--peer"]:
        print(json.dumps(peer(sys.argv[2])))
        return
    import millrace.compat.v1 as tf

    columns = {
        "Millrace": {
            **graph_figures(tf, 20000),
            **loop_figures(tf, 10000),
            **import_figures(sys.executable),
        }
    }
    python = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("PEER_PYTHON", sys.executable)
    for title, kind in (("TensorFlow", "tensorflow"), ("PyTorch", "torch")):
        done = subprocess.run([python, __file__, "--peer", kind], capture_output=True, text=True)
        if done.returncode == 0:
            columns[title] = json.loads(done.stdout.splitlines()[-1])
    names = list(columns["Millrace"])
    print(f"{'':42}" + "".join(f"{title:>12}" for title in columns))
    for name in names:
        row = [column.get(name) for column in columns.values()]
        print(f"{name:42}" + "".join(f"{'-' if v is None else f'{v:.1f}':>12}" for v in row))


if __name__ == "__main__":
    main()
