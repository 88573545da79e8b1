"""Fits a line to noisy points by gradient descent.

python linear_regression.py [steps]
"""

import sys

import numpy as np

import millrace.compat.v1 as tf


def main(steps: int = 200) -> float:
    rng = np.random.default_rng(0)
    xs = rng.uniform(-1, 1, 100).astype(np.float32)
    ys = 3 * xs + 2 + rng.normal(0, 0.1, 100).astype(np.float32)

    x = tf.placeholder(tf.float32, [None], name="x")
    y = tf.placeholder(tf.float32, [None], name="y")
    slope = tf.Variable(0.0, name="slope")
    offset = tf.Variable(0.0, name="offset")
    loss = tf.reduce_mean(tf.square(slope * x + offset - y))
    train = tf.train.GradientDescentOptimizer(0.3).minimize(loss)

    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for step in range(steps):
            _, now = session.run([train, loss], {x: xs, y: ys})
            if step % max(steps // 5, 1) == 0:
                print(f"step {step:4}  loss {now:.4f}")
        a, b, final = session.run([slope, offset, loss], {x: xs, y: ys})
    print(f"y = {a:.2f} x + {b:.2f}, loss {final:.4f}")
    return float(final)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
