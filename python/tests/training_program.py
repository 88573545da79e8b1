"""training_program.py FOLDER STEPS [beside]: trains a small model, going on where FOLDER was left.

With "beside" checkpoints are written while steps go on. Prints each step when it is done, and at
the end a digest of all that is saved. It is a process, so that tests can kill it.
"""

import hashlib
import sys

import numpy as np

import millrace.compat.v1 as tf


def build():
    """The operation of a step, the count of steps, and what initialises the model: batches come
    from an iterator that is saved too, with noise, and units are dropped."""
    step = tf.train.get_or_create_global_step()
    points = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
    dataset = tf.data.Dataset.from_tensor_slices(points).shuffle(20, seed=3).repeat()
    dataset = dataset.map(lambda point: point + tf.random_normal([8], stddev=0.1, seed=4))
    iterator = dataset.batch(8).prefetch(2).make_initializable_iterator()
    tf.add_to_collection(
        tf.GraphKeys.SAVEABLE_OBJECTS, tf.data.experimental.make_saveable_from_iterator(iterator)
    )
    batch = iterator.get_next()
    hidden = tf.layers.dense(
        batch, 16, tf.nn.tanh, kernel_initializer=tf.glorot_uniform_initializer(seed=1)
    )
    hidden = tf.nn.dropout(hidden, rate=0.2, seed=5)
    out = tf.layers.dense(hidden, 1, kernel_initializer=tf.glorot_uniform_initializer(seed=2))
    loss = tf.reduce_mean(tf.square(out - tf.reduce_sum(batch, 1, keepdims=True)))
    train = tf.train.AdamOptimizer(0.01).minimize(loss, global_step=step)
    init = tf.group(tf.global_variables_initializer(), iterator.initializer)
    return train, step, tf.train.Scaffold(init_op=init)


def digest(folder):
    """Of all tensors of the newest checkpoint, by name, but for where the iterator stands: that
    says how far it has worked ahead, too, which no two runs share. Weights tell what it gave."""
    out = hashlib.sha256()
    for name, _ in sorted(tf.train.list_variables(folder)):
        if name == "IteratorV2-state":
            continue
        value = tf.train.load_variable(folder, name)
        out.update(name.encode() + (value if isinstance(value, bytes) else value.tobytes()))
    return out.hexdigest()


def main(folder, steps, beside=False):
    """Trains up to a number of steps."""
    train, step, scaffold = build()
    with tf.train.MonitoredTrainingSession(
        checkpoint_dir=folder,
        scaffold=scaffold,
        hooks=[tf.train.StopAtStepHook(last_step=steps)],
        save_checkpoint_steps=3,
        save_summaries_steps=None,
        log_step_count_steps=None,
        asynchronous_checkpoints=beside,
    ) as session:
        while not session.should_stop():
            _, done = session.run([train, step])
            print("step", done, flush=True)
    print("digest", digest(folder), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), len(sys.argv) > 3)
