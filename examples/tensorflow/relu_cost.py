"""A layer and a cost, run ten times. Two mistakes show what their messages say.

millrace run relu_cost.py
"""

import numpy as np
import tensorflow as tf

b = tf.Variable(tf.zeros([100]))
W = tf.Variable(tf.random_uniform([784, 100], -1, 1))
x = tf.placeholder(name="x")
relu = tf.nn.relu(tf.matmul(W, x) + b)
C = tf.reduce_mean(relu)

s = tf.Session()
try:
    s.run(C, feed_dict={x: np.zeros([100, 100])})
except tf.errors.FailedPreconditionError as error:
    print("without the initializer:", error.message)

s.run(tf.global_variables_initializer())
for step in range(10):
    input = np.random.uniform(size=[100, 100])
    result = s.run(C, feed_dict={x: input})
    print(step, result)

try:
    s.run(C, feed_dict={x: np.zeros([99, 100])})
except tf.errors.InvalidArgumentError as error:
    print("with an input that does not fit:", error.message)
