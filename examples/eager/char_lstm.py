"""An LSTM that learns to write a sentence letter by letter, its step a `tf.function`.

The loop over the letters is Python's `for` in a function that is traced: the first call makes a
graph of it, the others run that.

python char_lstm.py [steps]
"""

import sys

import numpy as np

import millrace as tf

TEXT = "the quick brown fox jumps over the lazy dog and runs back to the river. "
LETTERS = sorted(set(TEXT))
SIZE, BATCH, LENGTH = 64, 16, 24


class CharLstm(tf.Module):
    """Reads letters and says which may follow."""

    def __init__(self) -> None:
        super().__init__()
        count = len(LETTERS)
        self.read = tf.Variable(tf.random.normal([count + SIZE, 4 * SIZE], stddev=0.1))
        self.bias = tf.Variable(tf.zeros([4 * SIZE]))
        self.say = tf.Variable(tf.random.normal([SIZE, count], stddev=0.1))

    def __call__(
        self, letters: tf.Tensor, hidden: tf.Tensor, cell: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Scores of the next letter, and the states after the letters given."""
        seen = tf.concat([tf.one_hot(letters, len(LETTERS)), hidden], 1)
        put, keep, out, new = tf.split(seen @ self.read + self.bias, 4, axis=1)
        cell = tf.sigmoid(keep + 1.0) * cell + tf.sigmoid(put) * tf.tanh(new)
        hidden = tf.sigmoid(out) * tf.tanh(cell)
        return hidden @ self.say, hidden, cell


def write(network: CharLstm, count: int, start: str = "t") -> str:
    """What it says by itself, one letter after the other, outside of any graph."""
    said, states = start, (tf.zeros([1, SIZE]), tf.zeros([1, SIZE]))
    for _ in range(count):
        scores, *states = network(tf.constant([LETTERS.index(said[-1])]), *states)
        said += LETTERS[int(tf.argmax(scores[0]))]
    return said


def main(steps: int = 300) -> str:
    tf.random.set_seed(5)
    rng = np.random.default_rng(5)
    network = CharLstm()
    variables = network.trainable_variables
    optimizer = tf.optimizers.Adam(0.01)
    letters = np.array([LETTERS.index(c) for c in TEXT * 3], np.int32)

    @tf.function
    def train(windows: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            hidden, cell, loss = tf.zeros([BATCH, SIZE]), tf.zeros([BATCH, SIZE]), 0.0
            for i in range(LENGTH):
                scores, hidden, cell = network(windows[:, i], hidden, cell)
                loss += tf.nn.sparse_softmax_cross_entropy_with_logits(windows[:, i + 1], scores)
            loss = tf.reduce_mean(loss) / LENGTH
        gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, variables), 5.0)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    for step in range(steps):
        starts = rng.integers(0, len(TEXT), BATCH)
        loss = train(tf.constant(np.stack([letters[s : s + LENGTH + 1] for s in starts])))
        if step % max(steps // 6, 1) == 0:
            print(f"step {step:4}  loss {float(loss):.3f}  {write(network, 30)!r}")
    said = write(network, len(TEXT))
    print(said)
    return said


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
