"""A convolutional network that recognises bars: upright, lying, or slanting.

python cnn.py [steps]
"""

import sys

import numpy as np

import millrace.compat.v1 as tf


def bars(rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Noisy 16x16 pictures of a bar, and its direction."""
    images = rng.normal(0, 0.3, (count, 16, 16, 1)).astype(np.float32)
    kinds = rng.integers(0, 3, count).astype(np.int32)
    for image, kind in zip(images, kinds, strict=True):
        at, start = rng.integers(3, 13), rng.integers(0, 8)
        for i in range(start, start + 8):
            row, column = ((i, at), (at, i), (i, (i + at) % 16))[kind]
            image[row, column, 0] += 1
    return images, kinds


def main(steps: int = 300) -> float:
    tf.set_random_seed(2)
    rng = np.random.default_rng(2)
    x = tf.placeholder(tf.float32, [None, 16, 16, 1], name="images")
    y = tf.placeholder(tf.int32, [None], name="kinds")
    net = tf.layers.conv2d(x, 8, 3, padding="same", activation=tf.nn.relu)
    net = tf.layers.max_pooling2d(net, 2, 2)
    net = tf.layers.conv2d(net, 16, 3, padding="same", activation=tf.nn.relu)
    net = tf.layers.max_pooling2d(net, 2, 2)
    logits = tf.layers.dense(tf.layers.flatten(net), 3)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    hits = tf.equal(tf.argmax(logits, 1), tf.cast(y, tf.int64))
    accuracy = tf.reduce_mean(tf.cast(hits, tf.float32))
    train = tf.train.AdamOptimizer(0.003).minimize(loss)

    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for step in range(steps):
            images, kinds = bars(rng, 64)
            _, now = session.run([train, loss], {x: images, y: kinds})
            if step % max(steps // 5, 1) == 0:
                print(f"step {step:4}  loss {now:.4f}")
        images, kinds = bars(rng, 512)
        right = session.run(accuracy, {x: images, y: kinds})
    print(f"accuracy on new pictures {right:.1%}")
    return float(right)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
