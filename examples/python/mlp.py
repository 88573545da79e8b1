"""A network of dense layers that tells two spirals apart.

python mlp.py [steps]
"""

import sys

import numpy as np

import millrace.compat.v1 as tf


def spirals(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Points of two spirals, and which of them each belongs to."""
    rng = np.random.default_rng(1)
    labels = np.arange(count) % 2
    turn = rng.uniform(0.3, 3, count)
    angle = turn * np.pi + labels * np.pi
    points = np.stack([turn * np.cos(angle), turn * np.sin(angle)], 1) / 3
    return (points + rng.normal(0, 0.02, points.shape)).astype(np.float32), labels.astype(np.int32)


def main(steps: int = 1500) -> float:
    tf.set_random_seed(1)
    points, labels = spirals(600)
    x = tf.placeholder(tf.float32, [None, 2], name="x")
    y = tf.placeholder(tf.int32, [None], name="y")
    hidden = tf.layers.dense(x, 64, activation=tf.nn.relu)
    hidden = tf.layers.dense(hidden, 64, activation=tf.nn.relu)
    logits = tf.layers.dense(hidden, 2)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    hits = tf.equal(tf.argmax(logits, 1), tf.cast(y, tf.int64))
    accuracy = tf.reduce_mean(tf.cast(hits, tf.float32))
    train = tf.train.AdamOptimizer(0.01).minimize(loss)

    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for step in range(steps):
            _, now = session.run([train, loss], {x: points, y: labels})
            if step % max(steps // 5, 1) == 0:
                print(f"step {step:4}  loss {now:.4f}")
        right = session.run(accuracy, {x: points, y: labels})
    print(f"accuracy {right:.1%}")
    return float(right)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
