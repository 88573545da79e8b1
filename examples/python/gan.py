"""A generative adversarial network that learns to draw from a normal distribution.

python gan.py [steps]
"""

import sys

import numpy as np

import millrace.compat.v1 as tf

MEAN, DEVIATION = 4.0, 1.25


def generator(noise: tf.Tensor) -> tf.Tensor:
    """Numbers made of noise."""
    with tf.variable_scope("generator"):
        hidden = tf.layers.dense(noise, 16, tf.nn.elu)
        return tf.layers.dense(hidden, 1)


def discriminator(x: tf.Tensor, reuse: bool) -> tf.Tensor:
    """How real each number looks beside the others of its batch."""
    with tf.variable_scope("discriminator", reuse=reuse):
        mean = tf.reduce_mean(x, axis=0, keepdims=True)
        spread = tf.reduce_mean(tf.square(x - mean), axis=0, keepdims=True)
        batch = tf.concat([x, tf.zeros_like(x) + mean, tf.zeros_like(x) + spread], axis=1)
        hidden = tf.layers.dense(batch, 32, tf.nn.relu, name="hidden")
        return tf.layers.dense(hidden, 1, name="score")


def cross_entropy(logits: tf.Tensor, label: float) -> tf.Tensor:
    """The loss of calling all of these real (1) or made up (0)."""
    labels = tf.ones_like(logits) * label
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))


def main(steps: int = 2000) -> float:
    tf.set_random_seed(5)
    real = tf.random_normal([128, 1], MEAN, DEVIATION)
    made = generator(tf.random_uniform([128, 1], -1, 1))
    on_real = discriminator(real, reuse=False)
    on_made = discriminator(made, reuse=True)
    loss_d = cross_entropy(on_real, 0.9) + cross_entropy(on_made, 0.0)
    loss_g = cross_entropy(on_made, 1.0)
    train_d = tf.train.AdamOptimizer(0.001).minimize(
        loss_d, var_list=tf.trainable_variables("discriminator")
    )
    train_g = tf.train.AdamOptimizer(0.001).minimize(
        loss_g, var_list=tf.trainable_variables("generator")
    )

    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for step in range(steps):
            session.run(train_d)
            session.run(train_g)
            if step % max(steps // 5, 1) == 0:
                samples = session.run(made)
                print(f"step {step:4}  mean {samples.mean():.2f}  deviation {samples.std():.2f}")
        samples = np.concatenate([session.run(made) for _ in range(20)])
    print(f"made: {samples.mean():.2f} +- {samples.std():.2f}, real: {MEAN} +- {DEVIATION}")
    return float(samples.mean())


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
