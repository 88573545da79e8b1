"""A branch, and the gradients of both ways through it.

millrace run branch.py
"""

import tensorflow as tf

x = tf.placeholder(tf.float32, [])
y = tf.placeholder(tf.float32, [])
z = tf.constant(5.0)
result = tf.cond(x < y, lambda: tf.add(x, z), lambda: tf.square(y))
gradients = tf.gradients(result, [x, y, z])

with tf.Session() as sess:
    for values in ((1.0, 2.0), (3.0, 2.0)):
        feed = dict(zip((x, y), values))
        print(values, "->", sess.run(result, feed), "gradients", sess.run(gradients, feed))
