"""The parts of programs in TensorFlow 1's interface, which Millrace and TensorFlow both have."""

import numpy as np


class Graph:
    def __init__(self, tf):
        self.tf = tf
        self.relu = tf.nn.relu
        self.reshape = tf.reshape
        self.transpose = tf.transpose

    def conv(self, x, weights, bias, stride, pad):
        padding = [[0, 0], [pad, pad], [pad, pad], [0, 0]] if pad else "VALID"
        if pad and stride == 1 and 2 * pad + 1 == weights.shape[0]:
            padding = "SAME"  # the same pixels, by the name that programs use
        y = self.tf.nn.conv2d(x, weights, strides=[1, stride, stride, 1], padding=padding)
        return self.tf.nn.bias_add(y, bias)

    def max_pool(self, x, kernel, stride, padding):
        size, strides = [1, kernel, kernel, 1], [1, stride, stride, 1]
        return self.tf.nn.max_pool(x, size, strides, padding)

    def concat_channels(self, parts):
        return self.tf.concat(parts, 3)

    def mean_of_image(self, x):
        return self.tf.reduce_mean(x, [1, 2])

    def flat(self, x):
        return self.tf.reshape(x, [int(x.shape[0]), int(np.prod(x.shape[1:].as_list()))])

    def dense(self, x, weights, bias):
        return self.tf.nn.bias_add(self.tf.matmul(x, weights), bias)

    def cross_entropy(self, scores, labels):
        each = self.tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)
        return self.tf.reduce_mean(each)

    def rows(self, table, ids):
        return self.tf.nn.embedding_lookup(table, ids)

    def lstm(self, x, kernel, bias):
        """Unrolled; gates are input, candidate, forget, output, as in BasicLSTMCell."""
        tf = self.tf
        batch, hidden = int(x.shape[0]), int(kernel.shape[1]) // 4
        state = output = tf.zeros([batch, hidden])
        outputs = []
        for now in tf.unstack(x, axis=1):
            gates = tf.nn.bias_add(tf.matmul(tf.concat([now, output], 1), kernel), bias)
            into, candidate, forget, out = tf.split(gates, 4, 1)
            state = state * tf.sigmoid(forget) + tf.sigmoid(into) * tf.tanh(candidate)
            output = tf.tanh(state) * tf.sigmoid(out)
            outputs.append(output)
        return tf.stack(outputs, 1)

    def sampled_softmax(self, x, weights, bias, labels, samples, words):
        labels = self.tf.cast(self.tf.reshape(labels, [-1, 1]), self.tf.int64)
        each = self.tf.nn.sampled_softmax_loss(weights, bias, labels, x, samples, words)
        return self.tf.reduce_mean(each)

    def layer_norm(self, x, scale, shift):
        mean, variance = self.tf.nn.moments(x, [-1], keep_dims=True)
        return (x - mean) * self.tf.rsqrt(variance + 1e-5) * scale + shift

    def split(self, x, count):
        return self.tf.split(x, count, -1)

    def attention(self, query, key, value):
        scores = self.tf.matmul(query, key, transpose_b=True) * int(query.shape[-1]) ** -0.5
        return self.tf.matmul(self.tf.nn.softmax(scores), value)

    def gelu(self, x):
        return 0.5 * x * (1.0 + self.tf.erf(x * 2**-0.5))

    def mean_square(self, x):
        return self.tf.reduce_mean(self.tf.square(x))


class ChannelsFirst(Graph):
    """The same of images NCHW."""

    def conv(self, x, weights, bias, stride, pad):
        padding = [[0, 0], [0, 0], [pad, pad], [pad, pad]] if pad else "VALID"
        if pad and stride == 1 and 2 * pad + 1 == weights.shape[0]:
            padding = "SAME"
        strides = [1, 1, stride, stride]
        y = self.tf.nn.conv2d(x, weights, strides=strides, padding=padding, data_format="NCHW")
        return self.tf.nn.bias_add(y, bias, data_format="NCHW")

    def max_pool(self, x, kernel, stride, padding):
        size, strides = [1, 1, kernel, kernel], [1, 1, stride, stride]
        return self.tf.nn.max_pool(x, size, strides, padding, data_format="NCHW")

    def concat_channels(self, parts):
        return self.tf.concat(parts, 1)

    def mean_of_image(self, x):
        return self.tf.reduce_mean(x, [2, 3])

    def flat(self, x):
        return super().flat(self.tf.transpose(x, [0, 2, 3, 1]))


def trained(tf, program, values, inputs, threads, channels_first=False, without=()):
    """A session, and what to fetch for a step: the loss before it, and None. Takes the values
    away. `channels_first` has images NCHW; Millrace leaves the passes `without` out."""
    if channels_first:
        inputs = [np.moveaxis(x, 3, 1).copy() if x.ndim == 4 else x for x in inputs]
    if hasattr(tf, "disable_eager_execution"):
        tf.disable_eager_execution()
    graph = tf.Graph()
    with graph.as_default():
        tf.set_random_seed(1)
        assigns = []

        def variable(value, trainable):
            feed = tf.placeholder(value.dtype, value.shape)
            made = tf.Variable(feed, trainable=trainable)
            assigns.append((made.initializer, feed))
            return made

        parameters = [variable(value, True) for value in values]
        # Held by variables, so that a step copies no images from Python.
        held = [tf.convert_to_tensor(variable(value, False)) for value in inputs]
        parts = ChannelsFirst(tf) if channels_first else Graph(tf)
        loss = program.loss(parts, parameters, *held)
        train = tf.train.GradientDescentOptimizer(program.rate).minimize(loss)
        config = tf.ConfigProto(
            intra_op_parallelism_threads=threads, inter_op_parallelism_threads=threads
        )
        if without:  # which TensorFlow has no name for
            config.graph_options.optimizer_options.disabled_passes.extend(without)
        session = tf.Session(graph=graph, config=config)
    for (assign, feed), value in zip(assigns, [*values, *inputs], strict=True):
        session.run(assign, {feed: value})
    values.clear()
    return session, [loss, train]


def trainer(tf, program, values, inputs, threads, **how):
    """A call that trains for a step and gives the loss before it. Takes the values away."""
    session, fetches = trained(tf, program, values, inputs, threads, **how)
    step = session.make_callable(fetches)
    return lambda: float(step()[0])
