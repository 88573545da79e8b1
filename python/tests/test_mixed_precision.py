"""Training in half precision and bfloat16: losses follow float32's, and what scales them."""

import numpy as np
import pytest

import millrace.compat.v1 as tf


def config_with(**toggles):
    config = tf.ConfigProto()
    for name, value in toggles.items():
        setattr(config.graph_options.rewrite_options, name, value)
    return config


ON, OFF = 1, 2
BFLOAT16 = {"auto_mixed_precision_onednn_bfloat16": ON}
HALF = {"auto_mixed_precision_cpu": ON}


def layers(x):
    hidden = tf.layers.dense(x, 32, tf.nn.relu)
    hidden = tf.layers.dense(hidden, 32, tf.tanh)
    return tf.layers.dense(hidden, 4)


def convolutions(x):
    images = tf.reshape(x, [-1, 4, 4, 2])
    hidden = tf.layers.conv2d(images, 8, 3, padding="same")
    hidden = tf.nn.relu(tf.layers.batch_normalization(hidden, training=True))
    hidden = tf.layers.max_pooling2d(hidden, 2, 2)
    return tf.layers.dense(tf.layers.flatten(hidden), 4)


def unrolled_in_a_loop(x):
    weights = tf.get_variable("w", [32, 32])
    state = tf.while_loop(
        lambda i, s: i < 3, lambda i, s: (i + 1, tf.tanh(tf.matmul(s, weights) + x)), (0, x)
    )[1]
    return tf.layers.dense(tf.cond(tf.reduce_sum(x) > 0, lambda: state, lambda: -state), 4)


def losses(model, config, wrap=lambda optimizer: optimizer, steps=12):
    """The losses of some steps from the same weights."""
    rng = np.random.default_rng(0)
    with tf.Graph().as_default():
        tf.set_random_seed(7)
        x, labels = tf.placeholder(tf.float32, [None, 32]), tf.placeholder(tf.int32, [None])
        loss = tf.losses.sparse_softmax_cross_entropy(labels, model(x))
        train = wrap(tf.train.MomentumOptimizer(0.05, 0.9)).minimize(loss)
        with tf.Session(config=config) as session:
            session.run(tf.global_variables_initializer())
            found = []
            for _ in range(steps):
                feed = {x: rng.standard_normal((16, 32), np.float32)}
                feed[labels] = (feed[x][:, 0] > 0) + 2 * (feed[x][:, 1] > 0)
                found.append(session.run([loss, train], feed)[0])
    return np.array(found)


@pytest.mark.parametrize("model", [layers, convolutions, unrolled_in_a_loop])
def test_losses_follow_those_of_float32(model):
    own = losses(model, None)
    np.testing.assert_array_equal(losses(model, config_with(auto_mixed_precision_cpu=OFF)), own)
    low = losses(model, config_with(**BFLOAT16))
    assert not np.array_equal(low, own)
    np.testing.assert_allclose(low, own, rtol=0.03, atol=0.01)
    scaled = losses(
        model,
        config_with(**HALF),
        lambda o: tf.train.experimental.MixedPrecisionLossScaleOptimizer(o, "dynamic"),
    )
    assert not np.array_equal(scaled, own)
    np.testing.assert_allclose(scaled, own, rtol=0.006, atol=0.002)


def test_small_gradients_are_lost_in_half_without_a_scale():
    def gradient(config, scale):
        with tf.Graph().as_default():
            x, w = tf.constant([[1.0]]), tf.Variable([[1.0]])
            loss = tf.reduce_sum(tf.matmul(x, w)) * 1e-9
            optimizer = tf.train.experimental.MixedPrecisionLossScaleOptimizer(
                tf.train.GradientDescentOptimizer(1.0), scale
            )
            pair = optimizer.compute_gradients(loss)[0]
            with tf.Session(config=config) as session:
                session.run(tf.global_variables_initializer())
                return session.run(pair[0])[0, 0]

    assert gradient(None, 1) == pytest.approx(1e-9)
    assert gradient(config_with(**HALF), 1) == 0
    assert gradient(config_with(**HALF), 2.0**15) == pytest.approx(1e-9, rel=0.01)


def test_a_dynamic_scale_leaves_out_steps_without_finite_gradients():
    with tf.Graph().as_default() as graph:
        factor = tf.placeholder(tf.float32, [])
        w = tf.get_variable("w", initializer=2.0)
        step = tf.train.get_or_create_global_step()
        scale = tf.mixed_precision.DynamicLossScale(
            initial_loss_scale=8, increment_period=2, multiplier=2
        )
        optimizer = tf.mixed_precision.MixedPrecisionLossScaleOptimizer(
            tf.train.AdamOptimizer(0.5), scale
        )
        train = optimizer.minimize(w * factor, global_step=step)
        assert graph.get_collection(tf.GraphKeys.TRAIN_OP) == [train]
        assert {v.op.name for v in optimizer.variables()} >= {"current_loss_scale", "good_steps"}
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())

            def after(value):
                session.run(train, {factor: value})
                return session.run([scale(), step, w])

            assert after(1.0) == [8, 1, pytest.approx(1.5, abs=1e-4)]
            assert after(1.0) == [16, 2, pytest.approx(1.0, abs=1e-4)]
            for value, left in ((np.inf, 8), (np.nan, 4), (np.inf, 2), (np.inf, 1), (np.inf, 1)):
                assert after(value) == [left, 2, pytest.approx(1.0, abs=1e-4)]
            assert after(1.0)[:2] == [1, 3]
            assert after(1.0)[:2] == [2, 4]
            # It would become infinite, so it stays.
            session.run(scale._current_loss_scale.assign(3e38))
            session.run(scale._num_good_steps.assign(1))
            assert after(0.0)[:2] == [np.float32(3e38), 5]


def test_the_rewrite_is_a_setting_of_sessions_to_come():
    optimizer = tf.train.experimental.enable_mixed_precision_graph_rewrite(
        tf.train.GradientDescentOptimizer(0.1)
    )
    try:
        assert isinstance(optimizer, tf.mixed_precision.MixedPrecisionLossScaleOptimizer)
        with pytest.raises(ValueError, match="must not already be"):
            tf.mixed_precision.enable_mixed_precision_graph_rewrite(optimizer)

        def toggle(config):
            with tf.Session(graph=tf.Graph(), config=config) as session:
                return session._config.graph_options.rewrite_options.auto_mixed_precision

        assert toggle(None) == ON
        given = tf.ConfigProto(allow_soft_placement=True)
        assert toggle(given) == ON
        assert given.graph_options.rewrite_options.auto_mixed_precision == 0
        assert toggle(config_with(auto_mixed_precision=OFF)) == OFF
    finally:
        tf.train.experimental.disable_mixed_precision_graph_rewrite()
    with tf.Session(graph=tf.Graph()) as session:
        assert session._config is None


@pytest.mark.parametrize("bad", [0.5, float("nan"), "static", None])
def test_scales_that_are_none(bad):
    with pytest.raises(ValueError):
        tf.mixed_precision.MixedPrecisionLossScaleOptimizer(
            tf.train.GradientDescentOptimizer(0.1), bad
        )


def test_scales_tell_how_to_make_them():
    fixed = tf.mixed_precision.FixedLossScale(4)
    assert repr(fixed) == "FixedLossScale(4.0)"
    again = tf.mixed_precision.FixedLossScale.from_config(fixed.get_config())
    assert again.get_config() == {"loss_scale_value": 4.0}
    with tf.Graph().as_default():
        dynamic = tf.mixed_precision.DynamicLossScale()
        assert dynamic.get_config() == {
            "initial_loss_scale": 2.0**15, "increment_period": 2000, "multiplier": 2.0,
        }  # fmt: skip
