"""An embedding table in two parts, trained so that its rows sum to their number.

millrace run sharded_embedding.py [steps]
"""

import sys

import numpy as np
import tensorflow as tf

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 100

table = [
    tf.Variable(tf.random_uniform([5, 4], -0.1, 0.1), name="table_%d" % shard) for shard in range(2)
]
ids = tf.placeholder(tf.int32, [None])
rows = tf.nn.embedding_lookup(table, ids)
loss = tf.reduce_mean(tf.square(tf.reduce_sum(rows, 1) - tf.cast(ids, tf.float32)))
train_op = tf.train.AdagradOptimizer(0.5).minimize(loss)

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    everything = np.arange(10)
    print("before", sess.run(loss, {ids: everything}))
    for step in range(STEPS):
        sess.run(train_op, {ids: np.random.randint(0, 10, 8)})
    print("after", sess.run(loss, {ids: everything}))
