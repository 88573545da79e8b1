"""Trains a network on handwritten digits by several processes without parameter servers.

data_parallel.py FILE.npz [steps]: a program for one machine, made data-parallel by the three lines
that are marked. Every process has a part of each batch, and the mean of their gradients makes a
step; with two of them the weights in FILE.npz are those of one process that takes the mean of both
halves (synchronous.py alone), to the last bit. Start it as docs/clusters.md says, for instance:

millrace launch -n 2 data_parallel.py weights.npz
"""

import sys
from typing import Any

from synchronous import SaveWeights, gradients

import millrace.compat.v1 as tf
import millrace.distributed as dist


def main(path: str, steps: int = 60) -> None:
    dist.init()  # 1: this process is one of several
    tf.set_random_seed(7)
    optimizer: Any = tf.train.AdamOptimizer(5e-3)
    optimizer = dist.DistributedOptimizer(optimizer)  # 2: means of gradients
    pairs = gradients(dist.rank(), dist.size(), steps, optimizer)
    train = optimizer.apply_gradients(pairs, tf.train.get_or_create_global_step())
    hooks: list[Any] = [tf.train.StopAtStepHook(last_step=steps)]
    if dist.rank() == 0:
        hooks.append(SaveWeights(path))
    hooks.append(dist.BroadcastVariablesHook())  # 3: the same variables, also after a loss
    with tf.train.MonitoredTrainingSession(hooks=hooks) as session:
        while not session.should_stop():
            session.run(train)
    if dist.rank() == 0:
        print(f"{steps} steps of {dist.size()} processes; the weights are in {path}")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
