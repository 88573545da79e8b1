"""`tf.contrib.learn`: estimators as programs of TensorFlow's first year have them."""
