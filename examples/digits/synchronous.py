"""Trains a network on handwritten digits on several tasks, step by step together.

synchronous.py FILE.npz [steps [parts]]: every batch is cut in as many parts as there are workers,
each worker has one, and the mean of their gradients makes a step. Alone it does the same with all
`parts` (2) by itself; with two of them the weights in FILE.npz are the same to the last bit. Start
it on several tasks as docs/clusters.md says, for instance:

millrace launch -n 2 --ps 1 synchronous.py weights.npz
"""

import sys
from typing import Any

import numpy as np
from digits import read_digits

import millrace.compat.v1 as tf
from millrace.distributed import cluster_from_environment

BATCH = 32


def batches(steps: int, rows: int) -> np.ndarray:
    """The rows of each step's batch, the same in every process."""
    random = np.random.default_rng(7)
    epochs = -(-steps * BATCH // rows)
    order = np.concatenate([random.permutation(rows) for _ in range(epochs)])
    return order[: steps * BATCH].reshape(steps, BATCH).astype(np.int32)


def gradients(part: int, parts: int, steps: int, optimizer: Any) -> list[Any]:
    """The gradients of one part of this step's batch, with their variables."""
    data, digits = read_digits()
    plan = tf.constant(batches(steps, len(data)).reshape(steps, parts, BATCH // parts)[:, part])
    step = tf.minimum(tf.train.get_or_create_global_step(), steps - 1)
    chosen = tf.gather(plan, step)
    images, labels = tf.gather(data, chosen), tf.gather(digits, chosen)

    def start(seed: int) -> Any:
        return tf.glorot_uniform_initializer(seed=seed)

    with tf.variable_scope("digits", reuse=tf.AUTO_REUSE):
        net = tf.layers.conv2d(images, 8, 3, activation=tf.nn.relu, kernel_initializer=start(1))
        net = tf.layers.flatten(tf.layers.max_pooling2d(net, 2, 2))
        logits = tf.layers.dense(net, 10, kernel_initializer=start(2))
    loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
    return list(optimizer.compute_gradients(loss))


class SaveWeights(tf.train.SessionRunHook):
    """Writes all weights at the end."""

    def __init__(self, path: str):
        self.path = path

    def end(self, session: tf.Session) -> None:
        weights = {v.op.name: v for v in tf.trainable_variables()}
        np.savez(self.path, **session.run(weights))


def main(path: str, steps: int = 60, parts: int = 2) -> None:
    task = cluster_from_environment()
    tf.set_random_seed(7)
    optimizer = tf.train.AdamOptimizer(5e-3)
    hooks: list[Any] = [tf.train.StopAtStepHook(last_step=steps)]
    target = ""
    config = tf.ConfigProto()
    if not task.cluster:
        # Sums of gradients that are products would be one product, which rounds differently.
        config.graph_options.optimizer_options.disabled_passes.append("sums_of_products")
        step = tf.train.get_or_create_global_step()
        towers = [gradients(part, parts, steps, optimizer) for part in range(parts)]
        mean = [
            (tf.add_n([gradient for gradient, _ in pairs]) / float(parts), pairs[0][1])
            for pairs in zip(*towers, strict=True)
        ]
        train = optimizer.apply_gradients(mean, step)
    else:
        server = tf.train.Server(task.cluster, task.job, task.index)
        if task.job == "ps":
            server.join()
        target, parts = server.target, task.cluster.num_tasks("worker")
        own = f"/job:{task.job}/task:{task.index}"
        with tf.device(tf.train.replica_device_setter(cluster=task.cluster, worker_device=own)):
            step = tf.train.get_or_create_global_step()
            together = tf.train.SyncReplicasOptimizer(optimizer, parts, total_num_replicas=parts)
            train = together.apply_gradients(
                gradients(task.index, parts, steps, together), global_step=step
            )
        # Without tokens to begin with, the first gradients too are of the step that takes them.
        hooks.append(together.make_session_run_hook(task.is_chief, num_tokens=0))
    if task.is_chief:
        hooks.append(SaveWeights(path))
    with tf.train.MonitoredTrainingSession(
        target, task.is_chief, hooks=hooks, config=config
    ) as session:
        while not session.should_stop():
            session.run(train)
    if task.is_chief:
        print(f"{steps} steps of {parts} parts; the weights are in {path}")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
