"""A tree-LSTM over a different parse tree at every step, in one graph.

The trees are sums and differences of digits, such as ((1 + 2) - 5); the network learns whether the
result is positive. A tree comes as a list of nodes, children before parents. The graph never
changes: a while_loop goes over the nodes, and their states lie in TensorArrays.

python tree_lstm.py [steps]
"""

import sys
from typing import Any

import numpy as np

import millrace.compat.v1 as tf

SIZE = 16


def tree(rng: np.random.Generator, depth: int) -> tuple[list[tuple[int, int, int]], int]:
    """Nodes (symbol, left, right) and the value. Symbols 0-9 are leaves, 10 is +, 11 is -."""
    if depth == 0 or rng.random() < 0.2:
        digit = int(rng.integers(0, 10))
        return [(digit, 0, 0)], digit
    left, a = tree(rng, depth - 1)
    right, b = tree(rng, depth - 1)
    sign = int(rng.integers(0, 2))
    shift = len(left)
    moved = [(s, first + shift, second + shift) for s, first, second in right]
    parent = (10 + sign, shift - 1, shift + len(right) - 1)
    return [*left, *moved, parent], a - b if sign else a + b


def main(steps: int = 600) -> float:
    tf.set_random_seed(8)
    rng = np.random.default_rng(8)
    nodes = tf.placeholder(tf.int32, [None, 3], name="nodes")
    positive = tf.placeholder(tf.float32, [], name="positive")
    symbols = tf.get_variable("symbols", [12, SIZE])
    weights = tf.get_variable("weights", [3 * SIZE, 5 * SIZE])
    bias = tf.get_variable("bias", [5 * SIZE], initializer=tf.zeros_initializer())
    count = tf.shape(nodes)[0]

    def node(i: tf.Tensor, hidden: Any, memory: Any) -> tuple[tf.Tensor, Any, Any]:
        symbol, left, right = nodes[i, 0], nodes[i, 1], nodes[i, 2]
        zeros = tf.zeros([SIZE])

        def children() -> tuple[tf.Tensor, ...]:
            return hidden.read(left), hidden.read(right), memory.read(left), memory.read(right)

        h_left, h_right, c_left, c_right = tf.cond(
            symbol >= 10, children, lambda: (zeros, zeros, zeros, zeros)
        )
        joined = tf.concat([tf.gather(symbols, symbol), h_left, h_right], 0)
        gates = tf.squeeze(tf.matmul(joined[tf.newaxis], weights), 0) + bias
        put, keep_left, keep_right, out, new = tf.split(gates, 5)
        cell = (
            tf.sigmoid(put) * tf.tanh(new)
            + tf.sigmoid(keep_left + 1) * c_left
            + tf.sigmoid(keep_right + 1) * c_right
        )
        return i + 1, hidden.write(i, tf.sigmoid(out) * tf.tanh(cell)), memory.write(i, cell)

    states = [
        tf.TensorArray(tf.float32, count, clear_after_read=False, element_shape=[SIZE])
        for _ in range(2)
    ]
    _, hidden, _ = tf.while_loop(lambda i, *_: i < count, node, [0, *states])
    root = hidden.read(count - 1)
    score = tf.squeeze(tf.layers.dense(root[tf.newaxis], 1))
    loss = tf.nn.sigmoid_cross_entropy_with_logits(labels=positive, logits=score)
    train = tf.train.AdamOptimizer(0.005).minimize(loss)

    right, losses = [], []
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for step in range(steps):
            made, value = tree(rng, 3)
            _, now, said = session.run([train, loss, score], {nodes: made, positive: value > 0})
            right.append((said > 0) == (value > 0))
            losses.append(now)
            if step % max(steps // 5, 1) == 0:
                print(f"step {step:4}  {len(made):2} nodes  loss {np.mean(losses[-100:]):.3f}")
    share = float(np.mean(right[-200:]))
    print(f"right about {share:.0%} of the last trees")
    return share


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
