"""Layers: names, reuse, updates, and what they compute."""

import inspect

import numpy as np
import pytest

import millrace.compat.v1 as tf


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default():
        yield


def names():
    return [v.op.name for v in tf.global_variables()]


def test_names_of_variables_and_operations():
    x = tf.placeholder(tf.float32, [None, 4])
    first = tf.layers.dense(x, 3, activation=tf.nn.relu)
    second = tf.layers.dense(x, 3)
    with tf.variable_scope("outer"):
        third = tf.layers.dense(x, 3, name="mine")
    assert [t.op.name for t in (first, second, third)] == [
        "dense/Relu", "dense_1/BiasAdd", "outer/mine/BiasAdd"
    ]  # fmt: skip
    assert names() == [
        "dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias", "outer/mine/kernel",
        "outer/mine/bias",
    ]  # fmt: skip


def test_reuse():
    x = tf.ones([2, 4])
    first = tf.layers.dense(x, 3, name="a")
    second = tf.layers.dense(x, 3, name="a", reuse=True)
    assert names() == ["a/kernel", "a/bias"]
    with pytest.raises(ValueError):
        tf.layers.dense(x, 3, name="a")
    with pytest.raises(ValueError):
        tf.layers.dense(x, 3, name="unknown", reuse=True)
    for _ in range(2):
        with tf.variable_scope("s", reuse=tf.AUTO_REUSE):
            tf.layers.dense(x, 3, name="b")
    assert names() == ["a/kernel", "a/bias", "s/b/kernel", "s/b/bias"]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        a, b = session.run([first, second])
    np.testing.assert_array_equal(a, b)


def test_a_layer_called_twice_keeps_its_variables():
    layer = tf.layers.Dense(3)
    one, two = layer(tf.ones([2, 4])), layer(tf.zeros([5, 4]))
    assert names() == ["dense/kernel", "dense/bias"]
    assert (one.op.name, two.op.name) == ("dense/BiasAdd", "dense/BiasAdd_1")
    assert layer.count_params() == 15
    with pytest.raises(ValueError, match="axis -1"):
        layer(tf.ones([2, 5]))


def test_dense_along_the_last_of_many_dimensions():
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    y = tf.layers.dense(x, 2, kernel_initializer=tf.ones_initializer())
    assert y.shape.as_list() == [2, 3, 2]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        expected = np.repeat(x.sum(-1, keepdims=True), 2, -1)
        np.testing.assert_allclose(session.run(y), expected)


def test_regularizers_count_once():
    x = tf.ones([2, 4])
    layer = tf.layers.Dense(3, kernel_regularizer=tf.nn.l2_loss)
    layer(x), layer(x)
    losses = tf.losses.get_regularization_losses()
    assert [loss.op.name for loss in losses] == ["dense/kernel/Regularizer/L2Loss"]
    assert layer.losses == losses


@pytest.mark.parametrize(
    "shape, fused", [([20, 3], None), ([8, 4, 4, 3], None), ([8, 4, 4, 3], False)]
)
def test_batch_normalization(shape, fused):
    training = tf.placeholder(tf.bool, [])
    x = np.random.RandomState(0).randn(*shape).astype(np.float32) * 3 + 5
    y = tf.layers.batch_normalization(
        tf.constant(x), momentum=0.5, training=training, fused=fused, epsilon=1e-3
    )
    updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
    assert len(updates) == 2
    assert len(tf.trainable_variables()) == 2
    mean, variance = tf.global_variables()[2:]
    axes = tuple(range(len(shape) - 1))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        got = session.run(y, {training: True})
        expected = (x - x.mean(axes)) / np.sqrt(x.var(axes) + 1e-3)
        np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(session.run(y, {training: False}), x / np.sqrt(1.001), rtol=1e-4)
        session.run(updates, {training: False})
        np.testing.assert_array_equal(session.run(mean), [0, 0, 0])
        for _ in range(30):
            session.run(updates, {training: True})
        np.testing.assert_allclose(session.run(mean), x.mean(axes), rtol=1e-3)
        np.testing.assert_allclose(session.run(variance), x.var(axes), rtol=0.1)


@pytest.mark.parametrize("shape", [(4, 3), (4, 5, 5, 3)])
def test_frozen_batch_normalization_updates_nothing(shape):
    x = tf.ones(shape)
    tf.layers.batch_normalization(x, training=True, trainable=False)
    layer = tf.layers.BatchNormalization()
    layer.trainable = False
    layer(x, training=True)
    assert not tf.get_collection(tf.GraphKeys.UPDATE_OPS) and not layer.updates


def test_dropout_only_in_training():
    x = tf.ones([100])
    training = tf.placeholder(tf.bool, [])
    y = tf.layers.dropout(x, 0.25, training=training)
    with tf.Session() as session:
        assert (session.run(y, {training: False}) == 1).all()
        got = session.run(y, {training: True})
    assert set(np.round(np.unique(got), 4)) == {0.0, np.float32(1.3333)}
    assert tf.layers.dropout(x, 0.25, training=False).op.type == "Identity"


def test_shapes_of_convolutions():
    x = tf.placeholder(tf.float32, [None, 9, 8, 3])
    shapes = [
        tf.layers.conv2d(x, 4, 3),
        tf.layers.conv2d(x, 4, [3, 2], 2, "same"),
        tf.layers.conv2d(x, 4, 3, dilation_rate=2),
        tf.layers.conv2d_transpose(x, 4, 3, 2),
        tf.layers.conv2d_transpose(x, 4, 3, 2, "same"),
        tf.layers.separable_conv2d(x, 4, 3),
        tf.layers.max_pooling2d(x, 3, 2),
        tf.layers.average_pooling2d(x, 3, 2, "same"),
        tf.layers.flatten(x),
        tf.layers.flatten(tf.placeholder(tf.float32, [2, None, 3])),
    ]
    assert [s.shape.as_list() for s in shapes] == [
        [None, 7, 6, 4], [None, 5, 4, 4], [None, 5, 4, 4], [None, 19, 17, 4], [None, 18, 16, 4],
        [None, 7, 6, 4], [None, 4, 3, 3], [None, 5, 4, 3], [None, 216], [2, None],
    ]  # fmt: skip


@pytest.mark.parametrize(
    "call, match",
    [
        (lambda x: tf.layers.conv2d(x, 3, (1, 2, 3)), "kernel_size"),
        (lambda x: tf.layers.conv2d(x, 3, 3, strides=None), "strides"),
        (lambda x: tf.layers.conv2d(x, 3, 3, data_format="invalid"), "data_format"),
        (lambda x: tf.layers.conv2d(x, 3, 3, padding="other"), "padding"),
        (lambda x: tf.layers.conv1d(x, 3, 3), "ndim=3"),
        (lambda x: tf.layers.max_pooling2d(x, 3, strides=None), "strides"),
        (lambda x: tf.layers.dense(tf.placeholder(tf.float32, [2, None]), 3), "last dimension"),
        (lambda x: tf.layers.Dropout(1.5), "rate"),
    ],
)
def test_mistakes_are_value_errors(call, match):
    with pytest.raises(ValueError, match=match):
        call(tf.ones([2, 8, 8, 3]))


def test_own_layer():
    class Scale(tf.layers.Layer):
        def build(self, input_shape):
            self.factor = self.add_variable("factor", [], initializer=tf.ones_initializer())
            self.built = True

        def call(self, inputs):
            return inputs * self.factor

    y = Scale(name="scale")(tf.constant([2.0]))
    assert names() == ["scale/factor"]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(y) == [2.0]


def test_layers_inside_a_branch_and_a_loop():
    x = tf.ones([2, 4])
    layer = tf.layers.Dense(4, kernel_initializer=tf.ones_initializer(), use_bias=False)
    branch = tf.cond(tf.constant(True), lambda: layer(x), lambda: x)
    _, looped = tf.while_loop(lambda i, _: i < 2, lambda i, v: (i + 1, layer(v)), [0, x])
    assert names() == ["dense/kernel"]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(branch)[0, 0] == 4
        assert session.run(looped)[0, 0] == 16


def test_slim_scopes_and_names():
    slim = tf.contrib.slim
    x = tf.ones([2, 8, 8, 1])
    with slim.arg_scope([slim.conv2d, slim.fully_connected], activation_fn=None) as scope:
        net = slim.repeat(x, 2, slim.conv2d, 4, [3, 3], scope="conv")
        assert net.op.type == "BiasAdd"
    assert slim.conv2d(x, 4, 3).op.type == "Relu"
    with slim.arg_scope(scope):
        assert slim.fully_connected(slim.flatten(net), 5).op.type == "BiasAdd"
    assert names() == [
        "conv/conv_1/weights", "conv/conv_1/biases", "conv/conv_2/weights", "conv/conv_2/biases",
        "Conv/weights", "Conv/biases", "fully_connected/weights", "fully_connected/biases",
    ]  # fmt: skip
    assert len(slim.get_model_variables()) == 8
    with pytest.raises(ValueError, match="add_arg_scope"), slim.arg_scope([len], a=1):
        pass


def test_batch_norm_whose_outputs_wait_for_updates():
    y = tf.contrib.layers.batch_norm(
        tf.constant([[1.0], [3.0]]), decay=0.5, updates_collections=None, scope="bn"
    )
    assert tf.get_collection(tf.GraphKeys.UPDATE_OPS) == []
    assert names() == ["bn/beta", "bn/moving_mean", "bn/moving_variance"]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(y)
        np.testing.assert_allclose(session.run(tf.global_variables()[1]), [1.0])


def test_optimize_loss_takes_steps():
    w = tf.get_variable("w", [], initializer=tf.constant_initializer(3.0))
    step = tf.train.get_or_create_global_step()
    train = tf.contrib.layers.optimize_loss(w * w, step, 0.1, "SGD", clip_gradients=1.0)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        losses = [session.run(train) for _ in range(10)]
        assert losses == sorted(losses, reverse=True)
        assert session.run(step) == 10
    with pytest.raises(ValueError, match="Optimizer name"):
        tf.contrib.layers.optimize_loss(w * w, step, 0.1, "Other")


def test_hyperparameters():
    h = tf.contrib.training.HParams(rate=0.1, units=[1, 2], name="x", on=True)
    h.parse("rate=2,units=[3,4],on=false,name=y")
    assert h.values() == {"rate": 2.0, "units": [3, 4], "name": "y", "on": False}
    assert "rate" in h and h.get("other", 5) == 5
    for wrong in ("other=1", "rate=x", "units"):
        with pytest.raises(ValueError):
            h.parse(wrong)


@pytest.mark.parametrize("feed_previous", [False, True, "tensor"])
def test_sequence_to_sequence_trains(feed_previous):
    legacy = tf.contrib.legacy_seq2seq
    feed = tf.constant(True) if feed_previous == "tensor" else feed_previous
    symbols = [tf.constant([i % 5, (i + 1) % 5]) for i in range(4)]
    weights = [tf.ones([2])] * 3

    def model(encoder, decoder):
        cell = tf.nn.rnn_cell.GRUCell(6)
        return legacy.embedding_attention_seq2seq(
            encoder, decoder, cell, 5, 5, 4, feed_previous=feed
        )

    _, losses = legacy.model_with_buckets(
        symbols, symbols, symbols[1:], weights, [(2, 2), (4, 3)], model
    )
    step = tf.train.AdamOptimizer(0.05).minimize(losses[1])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        before = session.run(losses[1])
        for _ in range(30):
            session.run(step)
        assert session.run(losses[1]) < before / 2


def test_bag_of_words_leaves_zeros_out():
    ids = [[1, 2, 0], [0, 0, 0]]
    mean = tf.contrib.layers.bow_encoder(ids, 5, 3)
    table = tf.global_variables()[0]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        got, rows = session.run([mean, table])
    np.testing.assert_allclose(got, [(rows[1] + rows[2]) / 2, rows[0]], rtol=1e-6)


@pytest.mark.parametrize(
    ("function", "layer"),
    [
        (tf.layers.dense, tf.layers.Dense),
        (tf.layers.conv2d, tf.layers.Conv2D),
        (tf.layers.separable_conv1d, tf.layers.SeparableConv1D),
        (tf.layers.conv3d_transpose, tf.layers.Conv3DTranspose),
    ],
)
def test_functions_take_what_their_classes_take(function, layer):
    taken = [name for name in inspect.signature(layer).parameters if name != "kwargs"]
    assert list(inspect.signature(function).parameters) == ["inputs", *taken, "reuse"]
    assert layer.__name__ in function.__doc__
    with pytest.raises(TypeError, match=f"{function.__name__}: .*'colour'"):
        function(tf.ones([2, 3]), 3, (1, 1), colour="red")
