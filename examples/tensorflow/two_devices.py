"""A sum split over two devices: s += w * x + b.

millrace run two_devices.py
"""

import numpy as np
import tensorflow as tf

with tf.device("/cpu:0"):
    s = tf.Variable(tf.zeros([4]), name="s")
    w = tf.Variable([1.0, 2.0, 3.0, 4.0], name="w")
with tf.device("/cpu:1"):
    b = tf.Variable(tf.ones([4]), name="b")
    x = tf.placeholder(tf.float32, [4], name="x")
    term = w * x + b
with tf.device("/cpu:0"):
    update = tf.assign_add(s, term)

config = tf.ConfigProto(device_count={"CPU": 2})
with tf.Session(config=config) as sess:
    sess.run(tf.global_variables_initializer())
    for step in range(3):
        print("step", step, sess.run(update, {x: np.full(4, step, np.float32)}))
