"""A tree-LSTM over parse trees, each of another shape, as a recursive Python function.

The trees are sums and differences of digits, such as ((1 + 2) - 5); the network learns whether the
result is positive. Operations run at once, so the network of a tree is the walk over it, and a tape
has the gradient of whatever was walked.

python tree_lstm.py [steps]
"""

import sys

import numpy as np

import millrace as tf

SIZE, BATCH = 16, 8
Tree = tuple  # ("+" or "-", left, right), or (digit,)


def make_tree(rng: np.random.Generator, depth: int = 3) -> Tree:
    if depth == 0 or rng.random() < 0.2:
        return (int(rng.integers(0, 10)),)
    return ("+-"[rng.integers(0, 2)], make_tree(rng, depth - 1), make_tree(rng, depth - 1))


def value(tree: Tree) -> int:
    if len(tree) == 1:
        return tree[0]
    sign = 1 if tree[0] == "+" else -1
    return value(tree[1]) + sign * value(tree[2])


def text(tree: Tree) -> str:
    return str(tree[0]) if len(tree) == 1 else f"({text(tree[1])} {tree[0]} {text(tree[2])})"


class TreeLstm(tf.Module):
    """A state for every node, made of those of its children."""

    def __init__(self) -> None:
        super().__init__()
        self.digits = tf.Variable(tf.random.normal([10, 2 * SIZE], stddev=0.5), name="digits")
        self.weights = {
            sign: tf.Variable(tf.random.normal([2 * SIZE, 5 * SIZE], stddev=0.2), name=name)
            for sign, name in (("+", "plus"), ("-", "minus"))
        }
        self.bias = tf.Variable(tf.zeros([5 * SIZE]), name="bias")
        self.score = tf.Variable(tf.random.normal([SIZE, 1], stddev=0.5), name="score")

    def state(self, tree: Tree) -> tuple[tf.Tensor, tf.Tensor]:
        """What the tree says, and what its parent may remember of it: each [1, SIZE]."""
        if len(tree) == 1:
            hidden, memory = tf.split(self.digits[tree[0] : tree[0] + 1], 2, axis=1)
            return tf.tanh(hidden), memory
        (h_left, c_left), (h_right, c_right) = self.state(tree[1]), self.state(tree[2])
        gates = tf.concat([h_left, h_right], 1) @ self.weights[tree[0]] + self.bias
        put, keep_left, keep_right, out, new = tf.split(gates, 5, axis=1)
        memory = (
            tf.sigmoid(put) * tf.tanh(new)
            + tf.sigmoid(keep_left + 1.0) * c_left
            + tf.sigmoid(keep_right + 1.0) * c_right
        )
        return tf.sigmoid(out) * tf.tanh(memory), memory

    def __call__(self, trees: list[Tree]) -> tf.Tensor:
        """A number for each tree: how sure it is that the value is positive."""
        roots = tf.concat([self.state(tree)[0] for tree in trees], 0)
        return tf.squeeze(roots @ self.score, 1)


def main(steps: int = 600) -> float:
    tf.random.set_seed(8)
    rng = np.random.default_rng(8)
    network = TreeLstm()
    variables = network.trainable_variables
    optimizer = tf.optimizers.Adam(0.01)
    right = []
    for step in range(steps):
        trees = [make_tree(rng) for _ in range(BATCH)]
        positive = [value(tree) > 0 for tree in trees]
        with tf.GradientTape() as tape:
            scores = network(trees)
            loss = tf.reduce_mean(
                tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(positive, tf.float32), scores)
            )
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        right += list((scores.numpy() > 0) == positive)
        if step % max(steps // 5, 1) == 0:
            print(f"step {step:4}  loss {float(loss):.3f}  {text(trees[0])}")
    share = float(np.mean(right[-400:]))
    print(f"right about {share:.0%} of the last trees")
    return share


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
