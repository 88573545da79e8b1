"""Normalisations and losses run as one node, rows and all, with the bits of op by op."""

import numpy as np
import pytest

import millrace.compat.v1 as tf

RUNS = 12  # the plan for the shapes that are fed comes in between


def layer_norm(x):
    mean, variance = tf.nn.moments(x, [-1], keep_dims=True)
    scale = tf.get_variable("scale", x.shape[-1:], initializer=tf.ones_initializer())
    shift = tf.get_variable("shift", x.shape[-1:], initializer=tf.zeros_initializer())
    return (x - mean) * tf.rsqrt(variance + 1e-5) * scale + shift


def expanded(x):
    """With folds that drop what they fold, as older programs have them."""
    e = tf.exp(x - tf.expand_dims(tf.reduce_max(x, 1), 1))
    return e / tf.reshape(tf.reduce_sum(e, 1), [-1, 1])


def softmax(x):
    e = tf.exp(x - tf.reduce_max(x, 1, keep_dims=True))
    return e / tf.reduce_sum(e, 1, keep_dims=True)


PROGRAMS = {
    "layer_norm": layer_norm,
    "softmax": softmax,
    "expanded": expanded,
    "l2_normalize": lambda x: tf.nn.l2_normalize(x, 1),
    "squared_error": lambda x: tf.reduce_mean(tf.squared_difference(x, 0.5), 1),
    "log_sum_exp": lambda x: tf.reduce_logsumexp(x, 1),
}


def graph_of(program, shape):
    """The program's result, its loss and the gradients of that."""
    x = tf.placeholder(tf.float32, shape, "x")
    y = program(x)
    loss = tf.reduce_mean(tf.square(y - 0.25))
    sources = [x, *tf.trainable_variables()]
    return x, [y, loss, *tf.gradients(loss, sources)]


def run(fetches, x, values, disabled):
    config = tf.ConfigProto()
    if disabled:
        config.graph_options.optimizer_options.disabled_passes.append("fuse_elementwise")
    with tf.Session(config=config) as session:
        session.run(tf.global_variables_initializer())
        results = [session.run(fetches, {x: value}) for value in values]
        return results, session.explain(fetches, [x])


@pytest.mark.parametrize("shape", [(None, None), (None, 40)], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_bits_of_op_by_op(name, shape):
    if name == "layer_norm" and shape[1] is None:
        pytest.skip("its variables have the width of x")
    rng = np.random.default_rng(5)
    values = [rng.standard_normal((rows, 40), np.float32) for rows in [7, 1, 300] + [33] * RUNS]
    with tf.Graph().as_default():
        x, fetches = graph_of(PROGRAMS[name], shape)
        fused, plan = run(fetches, x, values, disabled=False)
        separate, plan_without = run(fetches, x, values, disabled=True)
    assert "_FusedElementwise" in plan
    assert "_Fused" not in plan_without
    for got, expected in zip(fused, separate, strict=True):
        for a, b in zip(got, expected, strict=True):
            assert a.dtype == b.dtype
            assert a.tobytes() == b.tobytes()


def test_explain_shows_folds_and_those_left_out():
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, (None, 8), "x")
        y = tf.exp(x - tf.reduce_max(x, -1, keep_dims=True, name="largest"), name="y")
        columns = tf.reduce_sum(tf.tanh(x, name="t"), 0, name="columns")
        plan = session.explain([y, columns], [x])
    assert "is largest, sub, y\n" in plan
    assert "not fused: it may fold other dimensions than the last" in plan


def test_a_normalisation_and_its_gradient_are_one_node():
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.get_variable("x", (30, 8))
        y = layer_norm(tf.convert_to_tensor(x))
        gradient = tf.gradients(y, x, x)[0]
        plan = session.explain([y, gradient])
    assert plan.count("    is ") == 1
