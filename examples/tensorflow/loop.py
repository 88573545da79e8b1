"""A loop that counts to ten.

millrace run loop.py
"""

import tensorflow as tf

result = tf.while_loop(lambda i: i < 10, lambda i: tf.add(i, 1), [0])

with tf.Session() as sess:
    print(sess.run(result))
