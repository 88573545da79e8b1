"""training_program.py FOLDER STEPS: trains a small model, and goes on where FOLDER was left.

Prints each step when it is done, and at the end a digest of all that is saved. It is a process, so
that tests can kill it.
"""

import hashlib
import sys

import numpy as np

import millrace.compat.v1 as tf


def build():
    """The operation of a step; batches follow from the number of the step."""
    step = tf.train.get_or_create_global_step()
    points = tf.constant(np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32))
    first = tf.cast(step * 5 % 56, tf.int32)
    batch = tf.slice(points, [first, 0], [8, 8])
    hidden = tf.layers.dense(
        batch, 16, tf.nn.tanh, kernel_initializer=tf.glorot_uniform_initializer(seed=1)
    )
    out = tf.layers.dense(hidden, 1, kernel_initializer=tf.glorot_uniform_initializer(seed=2))
    loss = tf.reduce_mean(tf.square(out - tf.reduce_sum(batch, 1, keepdims=True)))
    return tf.train.AdamOptimizer(0.01).minimize(loss, global_step=step), step


def digest(folder):
    """Of all tensors of the newest checkpoint, by name."""
    out = hashlib.sha256()
    for name, _ in sorted(tf.train.list_variables(folder)):
        out.update(name.encode() + tf.train.load_variable(folder, name).tobytes())
    return out.hexdigest()


def main(folder, steps):
    """Trains up to a number of steps."""
    train, step = build()
    with tf.train.MonitoredTrainingSession(
        checkpoint_dir=folder,
        hooks=[tf.train.StopAtStepHook(last_step=steps)],
        save_checkpoint_steps=3,
        save_summaries_steps=None,
        log_step_count_steps=None,
    ) as session:
        while not session.should_stop():
            _, done = session.run([train, step])
            print("step", done, flush=True)
    print("digest", digest(folder), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
