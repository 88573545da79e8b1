"""What operations that run at once cost, in every framework that is installed.

python eager_bench.py [--python TENSORFLOW_PYTHON] [--peers PYTORCH_AND_JAX_PYTHON] [WORD...]

add         a sum of two scalars
add, tape   the same while its gradient is recorded (PyTorch: of tensors that require it)
function    a call of a traced and compiled function of one op
MLP         a training step of the MLP of training_bench.py, op by op
MLP traced  the same as a function; Millrace's session beside it
trees       a training step of the tree-LSTM of examples/eager on eight trees, new ones each time
tracing     of a function of 10,000 ops, for each op

WORD chooses among them. Microseconds, the least of several turns; frameworks are processes that
take turns.
"""

import sys
import time

import numpy as np
import turns
from training.programs import initial_values, mlp

TURN_SECONDS = 0.2
TRACED_OPS = 10000
SIZE = 16  # of the tree-LSTM's states, as in the example


def some_trees(count):
    """Trees as those of the example, and whether the value of each is positive."""
    rng = np.random.default_rng(8)

    def tree(depth):
        if depth == 0 or rng.random() < 0.2:
            return (int(rng.integers(0, 10)),)
        return ("+-"[rng.integers(0, 2)], tree(depth - 1), tree(depth - 1))

    def value(made):
        if len(made) == 1:
            return made[0]
        return value(made[1]) + (1 if made[0] == "+" else -1) * value(made[2])

    trees = [tree(3) for _ in range(count)]
    return trees, np.array([value(made) > 0 for made in trees], np.float32)


def tree_values():
    rng = np.random.default_rng(9)
    shapes = [(10, 2 * SIZE), (2 * SIZE, 5 * SIZE), (2 * SIZE, 5 * SIZE), (5 * SIZE,), (SIZE, 1)]
    return [rng.standard_normal(shape, np.float32) * 0.3 for shape in shapes]


class Millrace:
    """Of TensorFlow 2's interface, which both have."""

    def __init__(self, tf):
        self.tf = tf

    def add(self):
        a, b = self.tf.constant(1.0), self.tf.constant(2.0)
        return lambda: a + b

    def add_on_a_tape(self):
        tf = self.tf
        a, b = tf.constant(1.0), tf.constant(2.0)
        tape = None

        def call():
            return a + b

        def begin():
            nonlocal tape
            tape = tf.GradientTape()
            tape.__enter__()
            tape.watch(a)

        call.begin, call.end = begin, lambda: tape.__exit__(None, None, None)
        return call

    def function(self):
        tf = self.tf
        a, b = tf.constant(1.0), tf.constant(2.0)
        call = tf.function(lambda x, y: x + y)
        return lambda: call(a, b)

    def _mlp(self):
        tf = self.tf
        program = mlp()
        values, inputs = initial_values(program)
        weights = [tf.Variable(value) for value in values]
        held = [tf.constant(value) for value in inputs]
        parts = _graph_parts(tf)

        def step():
            with tf.GradientTape() as tape:
                loss = program.loss(parts, weights, *held)
            for weight, slope in zip(weights, tape.gradient(loss, weights), strict=True):
                weight.assign_sub(program.rate * slope)
            return loss

        return step

    def mlp(self):
        step = self._mlp()
        return lambda: float(step())

    def mlp_traced(self):
        step = self.tf.function(self._mlp())
        return lambda: float(step())

    def trees(self):
        tf = self.tf
        digits, plus, minus, bias, score = weights = [tf.Variable(v) for v in tree_values()]
        by_sign = {"+": plus, "-": minus}

        def state(tree):
            if len(tree) == 1:
                hidden, memory = tf.split(digits[tree[0] : tree[0] + 1], 2, axis=1)
                return tf.tanh(hidden), memory
            (h_left, c_left), (h_right, c_right) = state(tree[1]), state(tree[2])
            gates = tf.concat([h_left, h_right], 1) @ by_sign[tree[0]] + bias
            put, keep_left, keep_right, out, new = tf.split(gates, 5, axis=1)
            memory = tf.sigmoid(put) * tf.tanh(new) + tf.sigmoid(keep_left + 1.0) * c_left
            memory += tf.sigmoid(keep_right + 1.0) * c_right
            return tf.sigmoid(out) * tf.tanh(memory), memory

        def step(trees, positive):
            with tf.GradientTape() as tape:
                roots = tf.concat([state(tree)[0] for tree in trees], 0)
                scores = tf.squeeze(roots @ score, 1)
                loss = tf.reduce_mean(
                    tf.nn.sigmoid_cross_entropy_with_logits(labels=positive, logits=scores)
                )
            for weight, slope in zip(weights, tape.gradient(loss, weights), strict=True):
                weight.assign_sub(0.1 * tf.convert_to_tensor(slope))
            return float(loss)

        return over_trees(step, tf.constant)

    def tracing(self):
        tf = self.tf

        def chain(x):
            for _ in range(TRACED_OPS):
                x = x + 1.0
            return x

        x = tf.constant(1.0)
        return lambda: tf.function(chain).get_concrete_function(x)


def _graph_parts(tf):
    from training.graph import Graph

    return Graph(tf)


class PyTorch:
    def __init__(self, threads):
        import torch

        torch.set_num_threads(threads)
        self.torch, self.threads = torch, threads

    def add(self):
        a, b = self.torch.tensor(1.0), self.torch.tensor(2.0)
        return lambda: a + b

    def add_on_a_tape(self):
        a, b = self.torch.tensor(1.0, requires_grad=True), self.torch.tensor(2.0)
        return lambda: a + b

    def mlp(self):
        from training import pytorch

        program = mlp()
        return pytorch.trainer(program, *initial_values(program), self.threads)

    def trees(self):
        torch = self.torch
        weights = [torch.from_numpy(value).requires_grad_() for value in tree_values()]
        digits, plus, minus, bias, score = weights
        by_sign = {"+": plus, "-": minus}
        optimizer = torch.optim.SGD(weights, 0.1)

        def state(tree):
            if len(tree) == 1:
                hidden, memory = digits[tree[0] : tree[0] + 1].chunk(2, 1)
                return torch.tanh(hidden), memory
            (h_left, c_left), (h_right, c_right) = state(tree[1]), state(tree[2])
            gates = torch.cat([h_left, h_right], 1) @ by_sign[tree[0]] + bias
            put, keep_left, keep_right, out, new = gates.chunk(5, 1)
            memory = torch.sigmoid(put) * torch.tanh(new) + torch.sigmoid(keep_left + 1.0) * c_left
            memory = memory + torch.sigmoid(keep_right + 1.0) * c_right
            return torch.sigmoid(out) * torch.tanh(memory), memory

        def step(trees, positive):
            optimizer.zero_grad()
            scores = (torch.cat([state(tree)[0] for tree in trees], 0) @ score).squeeze(1)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(scores, positive)
            loss.backward()
            optimizer.step()
            return loss.item()

        return over_trees(step, torch.from_numpy)


class Jax:
    def __init__(self):
        import jax

        self.jax = jax

    def add(self):
        a, b = self.jax.numpy.float32(1.0), self.jax.numpy.float32(2.0)
        a, b = self.jax.device_put(a), self.jax.device_put(b)
        return lambda: a + b

    def function(self):
        a, b = self.jax.device_put(np.float32(1.0)), self.jax.device_put(np.float32(2.0))
        call = self.jax.jit(lambda x, y: x + y)
        return lambda: call(a, b)

    def mlp_traced(self):
        from training import jax_numpy

        program = mlp()
        return jax_numpy.trainer(program, *initial_values(program), 1)


def over_trees(step, tensor, batch=8, batches=32):
    """A call that trains on the next batch of trees."""
    trees, positive = some_trees(batch * batches)
    made = [
        (trees[i : i + batch], tensor(positive[i : i + batch])) for i in range(0, len(trees), batch)
    ]
    place = 0

    def call():
        nonlocal place
        place = (place + 1) % len(made)
        return step(*made[place])

    return call


def session_step(threads):
    """The MLP in a session of Millrace."""
    from training import graph

    import millrace.compat.v1 as tf

    program = mlp()
    return graph.trainer(tf, program, *initial_values(program), threads)


# What is measured, the function that prepares it, and how many calls go by without a look at the
# clock.
WORK = {
    "add": ("add", 2000),
    "add, tape": ("add_on_a_tape", 2000),
    "function": ("function", 500),
    "MLP": ("mlp", 1),
    "MLP traced": ("mlp_traced", 1),
    "trees": ("trees", 1),
    "tracing": ("tracing", 1),
}


def work(framework, threads):
    """What a framework's process does when it is asked."""
    call, calls = None, 1

    def prepare(name):
        nonlocal call, calls
        method, calls = WORK[name]
        if framework == "Millrace, session":
            call = session_step(threads)
        else:
            call = getattr(provider(framework, threads), method)()
        for _ in range(3):
            last = call()
        return last if isinstance(last, float) else None

    def turn():
        least, end = float("inf"), time.perf_counter() + TURN_SECONDS
        begin, stop = (getattr(call, name, lambda: None) for name in ("begin", "end"))
        while time.perf_counter() < end:
            begin()
            start = time.perf_counter()
            for _ in range(calls):
                call()
            least = min(least, (time.perf_counter() - start) / calls)
            stop()
        return least * 1e6

    turns.serve({"prepare": prepare, "turn": turn})


def provider(framework, threads):
    if framework == "PyTorch":
        return PyTorch(threads)
    if framework == "JAX":
        return Jax()
    if framework == "TensorFlow":
        import tensorflow as tf

        return Millrace(tf)
    import millrace as tf

    return Millrace(tf)


def has(framework, name):
    kinds = {"PyTorch": PyTorch, "JAX": Jax}
    return hasattr(kinds.get(framework, Millrace), WORK[name][0])


def measure(name, found, options):
    """The least microseconds of each framework that has such a thing."""
    workers, least = {}, {}
    try:
        asked = {f: python for f, python in found.items() if has(f, name)}
        if name == "MLP traced":
            asked["Millrace, session"] = sys.executable
        for framework, python in asked.items():
            workers[framework] = turns.Worker(__file__, framework, python, options.threads)
        for framework in list(workers):
            try:
                workers[framework].ask("prepare", name=name)
                least[framework] = float("inf")
            except turns.Failed as failure:
                print(failure, file=sys.stderr)
                workers.pop(framework).end()
        for _ in range(options.rounds):
            for framework, worker in workers.items():
                least[framework] = min(least[framework], worker.ask("turn"))
    finally:
        for worker in workers.values():
            worker.end()
    if name == "tracing":
        least = {framework: value / TRACED_OPS for framework, value in least.items()}
    return least


def main():
    given = turns.start_work(sys.argv)
    if given:
        work(*given)
        return
    options = turns.arguments(__doc__, rounds=3).parse_args()
    found = turns.find(options)
    columns = [*found, "Millrace, session"]
    print(f"{'us':12}" + "".join(f"{name:>20}" for name in columns))
    figures = {}
    for name in WORK:
        if not turns.chosen(name, options.words):
            continue
        figures[name] = least = measure(name, found, options)
        cells = (f"{least[f]:20.2f}" if f in least else f"{'-':>20}" for f in columns)
        print(f"{name:12}" + "".join(cells), flush=True)
    what = {"machine": turns.machine(), "threads": options.threads, "rounds": options.rounds}
    turns.write_json(options.json, what | {"figures": figures})


if __name__ == "__main__":
    main()
