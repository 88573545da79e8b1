"""Finding the NaN: tf.debugging.debug_numerics."""

import numpy as np
import pytest

import millrace.compat.v1 as tf


@pytest.fixture(autouse=True)
def fresh_graph():
    tf.reset_default_graph()


def failure(fetches, feed_dict=None, **options):
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        tf.debugging.debug_numerics(fetches, feed_dict, **options)
    return str(caught.value)


@pytest.fixture(params=[False, True], ids=["reference", "resource"])
def model(request):
    class Model:
        x = tf.placeholder(tf.float32, [None, 2], name="x")
        w = tf.get_variable("w", initializer=[[1.0], [1.0]], use_resource=request.param)
        other = tf.get_variable("other", initializer=1.0, use_resource=request.param)
        logits = tf.log(tf.matmul(x, w), name="suspect")
        loss = tf.reduce_mean(logits)
        train = tf.train.AdamOptimizer(0.1).minimize(loss + other * other)
        session = tf.Session()

    with Model.session.as_default():
        Model.session.run(tf.global_variables_initializer())
        yield Model
    Model.session.close()


def test_names_the_operation_its_line_and_its_inputs(model):
    message = failure(model.loss, {model.x: [[1, 2], [-1, 1], [2, 2]]})
    assert 'Log "suspect" gave 1 Inf of 3 numbers' in message
    assert 'MatMul "MatMul": float [3,1], from 0 to 4' in message
    assert 'logits = tf.log(tf.matmul(x, w), name="suspect")' in message
    assert __file__ in message


def test_no_variable_has_changed(model):
    before = model.session.run(tf.global_variables())
    message = failure(model.train, {model.x: [[0, 0]]})
    assert "Input" in message and "Adam" in message and "gave 1 Inf of 1 number" in message
    for old, new in zip(before, model.session.run(tf.global_variables()), strict=True):
        np.testing.assert_array_equal(old, new)


def test_a_finite_step_is_an_ordinary_one(model):
    feed = {model.x: [[1, 2]]}
    tf.debugging.debug_numerics([model.train, model.loss], feed)
    changed = model.session.run(model.w)
    assert changed[0, 0] != 1.0
    assert tf.debugging.debug_numerics(model.loss, feed) == model.session.run(model.loss, feed)


def test_an_ordinary_run_of_the_same_fetches_is_not_checked(model):
    feed = {model.x: [[0, 0]]}
    failure(model.loss, feed)
    assert np.isneginf(model.session.run(model.loss, feed))
    failure(model.loss, feed)


def test_tells_what_was_not_finite_before_the_step(model):
    assert 'the feed "' in failure(model.loss, {model.x: [[np.nan, 1]]})
    model.session.run(tf.assign(model.w, [[np.inf], [1.0]]))
    message = failure(model.loss, {model.x: [[1, 1]]})
    assert "1 Inf of 2 numbers" in message


def test_what_becomes_finite_again_is_fine():
    x = tf.placeholder(tf.float32, [2])
    safe = tf.where(x > 0, tf.log(x), tf.zeros([2]))
    with tf.Session():
        np.testing.assert_allclose(tf.debugging.debug_numerics(safe, {x: [0.0, 1.0]}), [0, 0])


def test_finds_it_inside_a_loop_and_a_branch():
    x = tf.placeholder(tf.float32, [])

    def body(i, v):
        return i + 1, tf.cond(tf.equal(i, 3), lambda: tf.sqrt(v - 10.0, name="root"), lambda: v)

    _, end = tf.while_loop(lambda i, _: i < 6, body, [0, x])
    with tf.Session():
        assert tf.debugging.debug_numerics(end, {x: 11.0}) == 1.0
        message = failure(end * 2.0, {x: 1.0})
        assert "root" in message and "gave 1 NaN of 1 number" in message
        assert "from -9 to -9" in message


def test_a_reference_that_control_flow_reads_is_looked_at():
    w = tf.get_variable("w", initializer=1.0, use_resource=False)
    yes = tf.placeholder(tf.bool, [])
    branches = tf.raw_ops.Switch(data=w._ref(), pred=yes)
    merged, _ = tf.raw_ops.Merge(inputs=list(branches))
    with tf.Session() as session:
        session.run(w.initializer)
        assert tf.debugging.debug_numerics(merged, {yes: True}) == 1.0
        session.run(tf.assign(w, np.nan))
        assert '"w" gave 1 NaN of 1 number' in failure(merged, {yes: True})


def test_half_and_complex_numbers_are_looked_at():
    with tf.Session():
        big = tf.placeholder(tf.float16, [])
        assert "Mul" in failure(big * big, {big: 60000.0})
        z = tf.placeholder(tf.complex64, [])
        assert "gave" in failure(z / (z - z), {z: 1 + 1j})


def test_saves_the_step_and_replays_it(model, tmp_path):
    path = tmp_path / "step.npz"
    model.session.run(tf.assign(model.w, [[2.0], [2.0]]))
    first = failure(model.loss, {model.x: [[1, -1]]}, save_to=path)
    tf.reset_default_graph()
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        tf.debugging.replay_numerics(path)
    assert 'Log "suspect" gave 1 Inf of 1 number' in str(caught.value)
    assert 'Log "suspect" gave 1 Inf of 1 number' in first


def test_a_damaged_or_missing_step_is_an_error(model, tmp_path):
    path = tmp_path / "step.npz"
    failure(model.loss, {model.x: [[0, 0]]}, save_to=path)
    data = path.read_bytes()
    for size in range(0, len(data), max(1, len(data) // 50)):
        path.write_bytes(data[:size])
        with pytest.raises(tf.errors.DataLossError):
            tf.debugging.replay_numerics(path)
    with pytest.raises(tf.errors.NotFoundError):
        tf.debugging.replay_numerics(tmp_path / "none")


def test_needs_a_session():
    with pytest.raises(ValueError, match="session"):
        tf.debugging.debug_numerics(tf.constant(1.0))
