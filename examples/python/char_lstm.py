"""A character-level language model: an LSTM that learns a rhyme by heart and says it.

python char_lstm.py [steps]
"""

import sys

import numpy as np

import millrace.compat.v1 as tf

RHYME = "the mill wheel turns, the water burns a path of light across the night. "
HIDDEN = 96


def main(steps: int = 300) -> str:
    tf.set_random_seed(3)
    letters = sorted(set(RHYME))
    numbers = np.array([letters.index(c) for c in RHYME], dtype=np.int32)
    count = len(letters)

    inputs = tf.placeholder(tf.int32, [None, None], name="inputs")
    targets = tf.placeholder(tf.int32, [None, None], name="targets")
    cell = tf.nn.rnn_cell.LSTMCell(HIDDEN)
    state_in = cell.zero_state(tf.shape(inputs)[0], tf.float32)
    outputs, state = tf.nn.dynamic_rnn(cell, tf.one_hot(inputs, count), initial_state=state_in)
    logits = tf.layers.dense(outputs, count)
    loss = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=targets, logits=logits)
    )
    optimizer = tf.train.AdamOptimizer(0.01)
    gradients, variables = zip(*optimizer.compute_gradients(loss), strict=True)
    clipped, _ = tf.clip_by_global_norm(gradients, 1.0)
    train = optimizer.apply_gradients(zip(clipped, variables, strict=True))

    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        feed = {inputs: numbers[None, :-1], targets: numbers[None, 1:]}
        for step in range(steps):
            _, now = session.run([train, loss], feed)
            if step % max(steps // 5, 1) == 0:
                print(f"step {step:4}  loss {now:.4f}")
        said = RHYME[0]
        feed = {inputs: numbers[None, :1]}
        for _ in range(len(RHYME) - 1):
            scores, memory = session.run([logits, state], feed)
            said += letters[int(scores[0, -1].argmax())]
            feed = {inputs: np.array([[letters.index(said[-1])]], np.int32), state_in: memory}
    print(said)
    return said


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
