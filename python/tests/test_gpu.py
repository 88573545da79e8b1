"""Programs on a GPU. Without one, what asks for it is told so."""

import numpy as np
import pytest

import millrace.compat.v1 as tf

HAS_GPU = tf.test.is_gpu_available()
needs_gpu = pytest.mark.skipif(not HAS_GPU, reason="there is no GPU")


def run(fetches, **config):
    with tf.Session(config=tf.ConfigProto(**config)) as session:
        session.run(tf.global_variables_initializer())
        return session.run(fetches)


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default():
        yield


def product():
    with tf.device("/gpu:0"):
        a = tf.constant([[1.0, 2.0], [3.0, 4.0]], name="a")
        return tf.matmul(a, tf.Variable(tf.eye(2) * 2.0), name="product")


def test_soft_placement_needs_no_gpu():
    value = run(product(), allow_soft_placement=True)
    np.testing.assert_array_equal(value, [[2, 4], [6, 8]])


def test_sessions_may_have_no_gpus():
    with tf.Session(config=tf.ConfigProto(device_count={"GPU": 0})) as session:
        assert [d.device_type for d in session.list_devices()] == ["CPU"]
    with pytest.raises(tf.errors.InvalidArgumentError, match="GPU:0"):
        run(product(), device_count={"GPU": 0})


@needs_gpu
def test_a_gpu_is_listed():
    assert tf.test.gpu_device_name() == "/job:localhost/replica:0/task:0/device:GPU:0"
    assert tf.test.is_built_with_cuda()
    options = tf.GPUOptions(visible_device_list="99")
    with pytest.raises(tf.errors.InvalidArgumentError, match="visible_device_list"):
        tf.Session(config=tf.ConfigProto(gpu_options=options))


@needs_gpu
def test_ops_run_where_they_are_asked_for():
    np.testing.assert_array_equal(run(product()), [[2, 4], [6, 8]])


@needs_gpu
def test_training_has_the_losses_of_the_cpu():
    rng = np.random.default_rng(1)
    images, classes = rng.random((32, 20), np.float32), rng.integers(0, 5, 32)

    def losses(**config):
        with tf.Graph().as_default():
            x, labels = tf.placeholder(tf.float32, [None, 20]), tf.placeholder(tf.int64, [None])
            weights = tf.Variable(np.linspace(-1, 1, 100, dtype=np.float32).reshape(20, 5))
            bias = tf.Variable(np.zeros(5, np.float32), use_resource=True)
            scores = tf.nn.bias_add(tf.matmul(x, weights), bias)
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=scores)
            )
            train = tf.train.AdamOptimizer(0.1).minimize(loss)
            with tf.Session(config=tf.ConfigProto(**config)) as session:
                session.run(tf.global_variables_initializer())
                feeds = {x: images, labels: classes}
                return [session.run([loss, train], feeds)[0] for _ in range(10)]

    expected = losses(device_count={"GPU": 0})
    np.testing.assert_allclose(losses(allow_soft_placement=True), expected, rtol=2e-3)
    assert expected[-1] < expected[0]
