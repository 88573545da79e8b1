"""Passes that round differently: on by default, off by their switch, within the tolerance told."""

import numpy as np
import pytest

import millrace.compat.v1 as tf


def without(*passes):
    config = tf.ConfigProto()
    config.graph_options.optimizer_options.disabled_passes.extend(passes)
    return config


def exact_only():
    config = tf.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return config


def convolution_and_gradients(size, channels, filters):
    """What a convolution of 3x3 computes, by a session's ConfigProto."""
    rng = np.random.default_rng(4)
    image = rng.standard_normal((4, size, size, channels), np.float32)
    weights = rng.standard_normal((3, 3, channels, filters), np.float32)
    dy = rng.standard_normal((4, size, size, filters), np.float32)
    with tf.Graph().as_default() as graph:
        x, w = tf.placeholder(tf.float32), tf.placeholder(tf.float32)
        x.set_shape(image.shape)
        w.set_shape(weights.shape)
        y = tf.nn.conv2d(x, w, strides=[1, 1, 1, 1], padding="SAME")
        fetches = [y, *tf.gradients(y, [x, w], dy)]

    def run(config):
        with tf.Session(graph=graph, config=config) as session:
            return session.run(fetches, {x: image, w: weights})

    return run


def test_convolutions_are_approximated_unless_switched_off():
    run = convolution_and_gradients(size=24, channels=96, filters=128)
    plain = run(exact_only())
    for close, own in zip(run(None), plain, strict=True):
        assert not np.array_equal(close, own)
        # An element is the sum of hundreds of products of normal numbers.
        np.testing.assert_allclose(close, own, rtol=0, atol=3e-6 * np.abs(own).max())
    for other, own in zip(run(without("approximations")), plain, strict=True):
        np.testing.assert_array_equal(other, own)


@pytest.mark.parametrize("channels, filters", [(3, 64), (64, 3)])
def test_convolutions_that_would_not_be_faster_stay_as_they_are(channels, filters):
    run = convolution_and_gradients(size=8, channels=channels, filters=filters)
    for close, own in zip(run(None), run(exact_only()), strict=True):
        np.testing.assert_array_equal(close, own)
