"""Ten classes from 784 inputs, trained on noise with Adagrad: ten thousand small steps.

millrace run softmax_regression.py [steps]
"""

import sys

import numpy as np
import tensorflow as tf

BATCH_SIZE = 10
STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 10000

x = tf.placeholder(tf.float32, [BATCH_SIZE, 784])
y = tf.placeholder(tf.float32, [BATCH_SIZE, 10])
W_1 = tf.Variable(tf.random_uniform([784, 10]))
b_1 = tf.Variable(tf.zeros([10]))
layer_1 = tf.matmul(x, W_1) + b_1
loss = tf.nn.softmax_cross_entropy_with_logits(logits=layer_1, labels=y)
train_op = tf.train.AdagradOptimizer(0.01).minimize(loss)

with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    for step in range(STEPS):
        x_data = np.random.normal(size=(BATCH_SIZE, 784))
        y_data = np.random.normal(size=(BATCH_SIZE, 10))
        sess.run(train_op, {x: x_data, y: y_data})
    print("trained", STEPS, "steps; biases", sess.run(b_1).shape)
