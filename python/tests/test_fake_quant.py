"""Numbers rounded as if they were quantised: values as TensorFlow 2.15 gives them."""

import numpy as np
import pytest

import millrace as tf
import millrace.compat.v1 as v1
from millrace import _core

quantization = tf.quantization
X = np.float32([-2, -1.03, -0.5, 0, 0.3, 0.77, 1.6, 9])


@pytest.fixture(autouse=True, scope="module")
def _eager():
    before = _core.eager_enabled()
    _core.choose_eager(True)
    yield
    _core.choose_eager(before)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"min": -1.0, "max": 1.5}, [-1, -1, -0.5, 0, 0.30392, 0.77451, 1.5, 1.5]),
        ({"min": -1.0, "max": 1.5, "num_bits": 4}, [-1, -1, -0.5, 0, 0.33333, 0.83333, 1.5, 1.5]),
        (
            {"min": 0.2, "max": 1.5, "num_bits": 3, "narrow_range": True},
            [0, 0, 0, 0, 0.21667, 0.86667, 1.3, 1.3],
        ),
    ],
)
def test_values(given, expected):
    made = quantization.fake_quant_with_min_max_args(X, **given)
    np.testing.assert_allclose(made.numpy(), expected, atol=1e-5)
    staged = tf.function(lambda x: quantization.fake_quant_with_min_max_vars(x, **given))
    np.testing.assert_allclose(staged(X).numpy(), expected, atol=1e-5)


def test_a_range_of_nothing():
    assert not quantization.fake_quant_with_min_max_vars(X, 0.0, 0.0).numpy().any()


def test_gradients():
    x, low, high = tf.Variable(X), tf.Variable(-1.0), tf.Variable(1.5)
    weights = np.arange(1, 9, dtype=np.float32)
    with tf.GradientTape() as tape:
        made = quantization.fake_quant_with_min_max_vars(x, low, high, num_bits=4)
        loss = tf.reduce_sum(made * weights)
    by_x, by_low, by_high = tape.gradient(loss, [x, low, high])
    assert by_x.numpy().tolist() == [0, 0, 3, 4, 5, 6, 0, 0]
    assert (by_low.numpy(), by_high.numpy()) == (3, 15)
    parts = quantization.fake_quant_with_min_max_vars_gradient(weights, X, -1.0, 1.5, num_bits=4)
    assert [p.numpy().tolist() for p in parts] == [by_x.numpy().tolist(), 3, 15]
    alone = quantization.fake_quant_with_min_max_args_gradient(weights, X, -1.0, 1.5, num_bits=4)
    assert alone.numpy().tolist() == by_x.numpy().tolist()


def test_channels():
    x = tf.constant(np.stack([X, X * 0.5], 1))
    low, high = tf.constant([-1.0, -0.5]), tf.constant([1.5, 0.25])
    with tf.GradientTape() as tape:
        tape.watch([low, high])
        made = quantization.fake_quant_with_min_max_vars_per_channel(x, low, high)
        loss = tf.reduce_sum(made * x)
    for i in range(2):
        alone = quantization.fake_quant_with_min_max_vars(x[:, i], low[i], high[i])
        assert made[:, i].numpy().tolist() == alone.numpy().tolist()
    by_low, by_high = tape.gradient(loss, [low, high])
    np.testing.assert_allclose(by_low.numpy(), [-3.03, -1.515], atol=1e-5)
    np.testing.assert_allclose(by_high.numpy(), [10.6, 5.685], atol=1e-5)
    parts = quantization.fake_quant_with_min_max_vars_per_channel_gradient(x, x, low, high)
    assert [p.shape.as_list() for p in parts] == [[8, 2], [2], [2]]


def test_in_graphs():
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [8])
        low = tf.constant(-1.0)
        slopes = v1.gradients(v1.fake_quant_with_min_max_vars(x, low, 1.5), [x, low])
        by_x, by_low = session.run(slopes, {x: X})
    assert by_x.tolist() == [0, 0, 1, 1, 1, 1, 0, 0] and by_low == 2


def test_wrong_arguments():
    wrong = pytest.raises(tf.errors.InvalidArgumentError)
    for call in (
        lambda: quantization.fake_quant_with_min_max_args(X, min=1.0, max=0.0),
        lambda: quantization.fake_quant_with_min_max_args(X, num_bits=1),
        lambda: quantization.fake_quant_with_min_max_vars(X, 0.0, 1.0, num_bits=17),
        lambda: quantization.fake_quant_with_min_max_vars(X, [0.0], 1.0),
        lambda: quantization.fake_quant_with_min_max_vars_per_channel(X, 0.0, [1.0] * 8),
        lambda: quantization.fake_quant_with_min_max_vars_per_channel(X, [0.0], [1.0]),
    ):
        with wrong:
            call()
