"""An autoencoder: 8x8 pictures through a bottleneck of four numbers and back.

python autoencoder.py [steps]
"""

import sys

import numpy as np

import millrace.compat.v1 as tf


def rectangles(rng: np.random.Generator, count: int) -> np.ndarray:
    """Pictures of a filled rectangle, which four numbers describe."""
    images = np.zeros((count, 8, 8), dtype=np.float32)
    for image in images:
        top, left = rng.integers(0, 5, 2)
        height, width = rng.integers(2, 5, 2)
        image[top : top + height, left : left + width] = 1
    return images.reshape(count, 64)


def main(steps: int = 1500) -> float:
    tf.set_random_seed(4)
    rng = np.random.default_rng(4)
    x = tf.placeholder(tf.float32, [None, 64], name="pictures")
    code = tf.layers.dense(tf.layers.dense(x, 48, tf.nn.relu), 4, tf.tanh, name="code")
    logits = tf.layers.dense(tf.layers.dense(code, 48, tf.nn.relu), 64)
    loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=x, logits=logits))
    wrong = tf.reduce_mean(tf.cast(tf.not_equal(logits > 0, x > 0.5), tf.float32))
    train = tf.train.AdamOptimizer(0.003).minimize(loss)

    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for step in range(steps):
            _, now = session.run([train, loss], {x: rectangles(rng, 64)})
            if step % max(steps // 5, 1) == 0:
                print(f"step {step:4}  loss {now:.4f}")
        picture = rectangles(rng, 1)
        error, drawn = session.run([wrong, tf.sigmoid(logits)], {x: picture})
    for before, after in zip(picture.reshape(8, 8), drawn.reshape(8, 8), strict=True):
        print("".join(" #"[int(p > 0.5)] for p in before), "->",
              "".join(" .+#"[int(min(p, 0.99) * 4)] for p in after))  # fmt: skip
    return float(error)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
