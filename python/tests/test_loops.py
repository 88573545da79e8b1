"""Loops run with frames or without, depending on the run: each result is asked for in several ones.

The first run of a plan has frames at hand and measures; those after it go on the caller's thread.
A run with a time limit, or a traced one, never does.
"""

import threading

import numpy as np
import pytest

import millrace.compat.v1 as tf


@pytest.fixture
def sess():
    with tf.Graph().as_default(), tf.Session() as session:
        yield session


def in_all_ways(session, fetches, feed=None):
    """What three plain runs and one with a time limit give, which is the same."""
    options = tf.RunOptions(timeout_in_ms=60000)
    values = [session.run(fetches, feed) for _ in range(3)]
    values.append(session.run(fetches, feed, options=options))
    for other in values[1:]:
        tf.nest.map_structure(np.testing.assert_array_equal, values[0], other)
    return values[0]


def test_gradients_of_loops_are_those_of_the_unrolled_loop(sess):
    x = tf.placeholder(tf.float32, [4])
    w = tf.placeholder(tf.float32, [4])

    def step(i, y):
        y = tf.tanh(y * w) + x
        return i + 1, tf.cond(tf.reduce_sum(y) > 2.0, lambda: y * 0.5, lambda: y + w)

    looped = tf.while_loop(lambda i, _: i < 9, step, [tf.constant(0), x])[1]
    unrolled = x
    for _ in range(9):
        unrolled = step(0, unrolled)[1]
    first = tf.gradients(looped, [x, w])
    feed = {x: np.linspace(-1, 1, 4), w: np.linspace(0.5, 2, 4)}
    found = in_all_ways(sess, [looped, *first], feed)
    wanted = sess.run([unrolled, *tf.gradients(unrolled, [x, w])], feed)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    second = tf.gradients(tf.reduce_sum(first[1]), w)[0]
    assert np.isfinite(in_all_ways(sess, second, feed)).all()


def test_loops_with_arrays(sess):
    rows = tf.placeholder(tf.float32, [None, 3])
    source = tf.TensorArray(tf.float32, size=0, dynamic_size=True).unstack(rows)
    target = tf.TensorArray(tf.float32, size=tf.shape(rows)[0])

    def step(i, total, out):
        total = total + source.read(i)
        return i + 1, total, out.write(i, total)

    zero = tf.zeros([3])
    count = tf.shape(rows)[0]
    _, _, out = tf.while_loop(lambda i, *_: i < count, step, [tf.constant(0), zero, target])
    sums = out.stack()
    grad = tf.gradients(sums, rows)[0]
    for length in (0, 1, 7):
        value = np.arange(3 * length, dtype=np.float32).reshape(length, 3)
        found, slope = in_all_ways(sess, [sums, grad], {rows: value})
        np.testing.assert_array_equal(found, np.cumsum(value, axis=0))
        np.testing.assert_array_equal(slope, np.arange(length, 0, -1)[:, None] * np.ones([1, 3]))


def test_loops_in_loops_and_branches(sess):
    n = tf.placeholder(tf.int32, [])

    def collatz(start):
        def step(value, length):
            even = tf.equal(value % 2, 0)
            return tf.cond(even, lambda: value // 2, lambda: 3 * value + 1), length + 1

        return tf.while_loop(lambda v, _: v > 1, step, [start, 0])[1]

    longest = tf.while_loop(
        lambda i, _: i < n, lambda i, best: (i + 1, tf.maximum(best, collatz(i))), [1, 0]
    )[1]

    def length(value):
        steps = 0
        while value > 1:
            value, steps = value // 2 if value % 2 == 0 else 3 * value + 1, steps + 1
        return steps

    assert in_all_ways(sess, longest, {n: 30}) == max(length(i) for i in range(1, 30))
    assert in_all_ways(sess, longest, {n: 1}) == 0


@pytest.mark.parametrize("use_resource", [False, True])
def test_effects_of_a_loop_happen_in_each_iteration(sess, use_resource):
    v = tf.get_variable("v", initializer=1.0, use_resource=use_resource)
    n = tf.placeholder(tf.int32, [])

    def step(i, _):
        with tf.control_dependencies([v.assign(v.read_value() * 2.0 + tf.cast(i, tf.float32))]):
            return i + 1, v.read_value()

    last = tf.while_loop(lambda i, _: i < n, step, [0, 0.0], parallel_iterations=1)[1]
    for count in (0, 1, 5, 5, 5):
        sess.run(v.initializer)
        wanted = 1.0
        for i in range(count):
            wanted = 2 * wanted + i
        assert sess.run(last, {n: count}) == (wanted if count else 0)
        assert sess.run(v) == wanted


def test_an_error_in_some_iteration_names_the_line(sess):
    n = tf.placeholder(tf.int32, [])

    def step(i, y):
        here = 100 // (n - i)  # zero in iteration n
        return i + 1, y + here

    out = tf.while_loop(lambda i, _: i < 20, step, [0, 0])[1]
    for count in (7, 30, 7, 30, 7, 30):
        if count > 20:
            assert sess.run(out, {n: count}) == sum(100 // (count - i) for i in range(20))
            continue
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"here = 100 // \(n - i\)"):
            sess.run(out, {n: count})


def test_a_loop_that_never_ends_is_ended_by_time_and_by_close():
    with tf.Graph().as_default(), tf.Session() as session:
        n = tf.placeholder(tf.int32, [])
        started = tf.Variable(0)
        with tf.control_dependencies([started.assign_add(1)]):
            zero = tf.identity(0)
        # Ends after n iterations, where n is not negative.
        out = tf.while_loop(lambda i: tf.not_equal(i, n), lambda i: tf.maximum(i + 1, 0), [zero])
        session.run(started.initializer)
        for _ in range(3):
            assert session.run(out, {n: 5}) == 5
        with pytest.raises(tf.errors.DeadlineExceededError):
            session.run(out, {n: -1}, options=tf.RunOptions(timeout_in_ms=20))
        before = session.run(started)
        failures = []

        def run():
            try:
                session.run(out, {n: -1})
            except tf.errors.OpError as e:
                failures.append(e)

        threads = [threading.Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        while session.run(started) < before + 2:
            pass
        session.close()
        for thread in threads:
            thread.join()
        assert [type(e) for e in failures] == [tf.errors.CancelledError] * 2


def test_a_trace_has_every_step_of_every_iteration(sess):
    out = tf.while_loop(lambda i: i < 6, lambda i: tf.multiply(i + 1, 1 + 0 * i), [0])
    for _ in range(3):
        assert sess.run(out) == 6
    metadata = tf.RunMetadata()
    options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
    assert sess.run(out, options=options, run_metadata=metadata) == 6
    names = [n.node_name for d in metadata.step_stats.dev_stats for n in d.node_stats]
    assert names.count("while/cond/Less") == 7, names


def test_a_tensor_inside_of_a_loop_cannot_be_fetched(sess):
    inside = []

    def step(i):
        inside.append(i * 2)
        return i + 1

    out = tf.while_loop(lambda i: i < 6, step, [0])
    assert sess.run(out) == 6
    with pytest.raises((ValueError, tf.errors.OpError)):
        sess.run(inside[0])
