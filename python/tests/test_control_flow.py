"""Branches, loops, TensorArrays, functions over rows, py_func, graph functions."""

import threading

import numpy as np
import pytest

import millrace.compat.v1 as tf


@pytest.fixture
def sess():
    with tf.Graph().as_default(), tf.Session() as session:
        yield session


def test_cond_takes_one_branch_and_has_a_gradient(sess):
    x = tf.placeholder(tf.float32, [3])
    p = tf.placeholder(tf.bool, [])
    y = tf.cond(p, lambda: x * 2, lambda: tf.square(x))
    (dx,) = tf.gradients(y, x)
    feed = {x: [1, 2, 3]}
    np.testing.assert_allclose(sess.run(dx, {p: True, **feed}), [2, 2, 2])
    np.testing.assert_allclose(sess.run(dx, {p: False, **feed}), [2, 4, 6])


def test_cond_runs_the_operations_it_returns(sess):
    v = tf.Variable(1.0)
    p = tf.placeholder(tf.bool, [])
    op = tf.cond(p, lambda: tf.group(v.assign(7.0)), lambda: tf.no_op())
    sess.run(tf.global_variables_initializer())
    sess.run(op, {p: False})
    assert sess.run(v) == 1
    sess.run(op, {p: True})
    assert sess.run(v) == 7


def test_branches_that_differ_are_named(sess):
    p = tf.placeholder(tf.bool, [])
    with pytest.raises(ValueError, match=r"(?s)int32 of shape \(\).*float32 of shape \(2,\)"):
        tf.cond(p, lambda: tf.constant(1), lambda: tf.constant([1.0, 2.0]))
    with pytest.raises(TypeError, match="must not be a Python bool"):
        tf.cond(True, lambda: 1, lambda: 2)


def test_case_is_exclusive_where_asked(sess):
    x = tf.placeholder(tf.int32, [])
    r = tf.case(
        [(x > 3, lambda: tf.constant(1)), (x > 1, lambda: tf.constant(2))],
        default=lambda: tf.constant(3),
    )
    assert [sess.run(r, {x: v}) for v in (5, 2, 0)] == [1, 2, 3]
    strict = tf.case(
        [(x > 3, lambda: tf.constant(1)), (x > 1, lambda: tf.constant(2))],
        default=lambda: tf.constant(3), exclusive=True,
    )  # fmt: skip
    with pytest.raises(tf.errors.InvalidArgumentError, match="More than one condition"):
        sess.run(strict, {x: 5})


def test_loop_with_structure_invariants_and_gradient(sess):
    x = tf.constant([1.0, 2.0])
    i, (y, z) = tf.while_loop(
        lambda i, _: i < 3,
        lambda i, yz: (i + 1, (yz[0] * x, tf.concat([yz[1], yz[0]], 0))),
        (0, (x, tf.zeros([0]))),
        shape_invariants=(tf.TensorShape([]), (x.shape, tf.TensorShape([None]))),
    )
    (dx,) = tf.gradients(y, x)
    assert sess.run(i) == 3
    np.testing.assert_allclose(sess.run(y), [1, 16])
    np.testing.assert_allclose(sess.run(dx), [4, 32])
    assert sess.run(z).shape == (6,)


def test_loop_names_a_shape_that_changes(sess):
    x = tf.zeros([3])
    with pytest.raises(ValueError, match=r"(?s)not an invariant.*\(3,\).*\(6,\)"):
        tf.while_loop(lambda x: True, lambda x: tf.concat([x, x], 0), [x])
    with pytest.raises(TypeError, match=r"type <dtype: 'int32'> .* type <dtype: 'float32'>"):
        tf.while_loop(lambda i: i < 3, lambda i: tf.cast(i, tf.float32), [0])


def test_loops_nest_and_take_gradients_inside(sess):
    x = tf.constant(2.0)

    def body(i, total):
        inner = tf.while_loop(lambda j, _: j < 2, lambda j, a: (j + 1, a * x), [0, x])[1]
        return i + 1, total + tf.gradients(inner, x)[0]

    total = tf.while_loop(lambda i, _: i < 3, body, [0, 0.0])[1]
    assert sess.run(total) == pytest.approx(3 * 3 * 4)
    assert sess.run(tf.gradients(total, x)[0]) == pytest.approx(3 * 6 * 2)


def test_gradients_inside_go_on_outside(sess):
    p = tf.constant(5.0)
    squared = tf.square(p)

    def body(i, total):
        inner = tf.cond(i < 5, lambda: tf.gradients(squared * p, p)[0], lambda: 0.0)
        return i + 1, total + inner + tf.gradients(squared, p)[0]

    total = tf.while_loop(lambda i, _: i < 2, body, [0, 0.0])[1]
    assert sess.run(total) == 2 * (3 * 25 + 10)
    x = tf.constant([1.0, 2.0])
    (h,) = tf.hessians(tf.reduce_sum(x * x * x) * x[0], x)
    np.testing.assert_allclose(sess.run(h), [[12, 12], [12, 12]])


def test_gradients_inside_use_what_was_drawn_outside(sess):
    x = tf.Variable(tf.ones([100]))
    noise = tf.random_uniform([100])
    loop = tf.while_loop(
        lambda i, _: i < 3, lambda i, v: (i + 1, v * tf.random_uniform([100])), [0, x]
    )[1]
    y = tf.nn.dropout(x, 0.5) * noise + loop
    p = tf.placeholder(tf.bool, [])
    inside = tf.cond(p, lambda: tf.gradients(y, x)[0], lambda: tf.zeros([100]))
    twice = tf.cond(
        p, lambda: tf.cond(p, lambda: tf.gradients(y * y, x)[0] / 2, lambda: x), lambda: x
    )
    second = tf.cond(p, lambda: tf.gradients(tf.gradients(y * y, x)[0], x)[0] / 2, lambda: x)
    sess.run(x.initializer)
    # y is linear in x, so its gradient is y where x is one.
    value, *gradients = sess.run([y, inside, twice, second], {p: True})
    np.testing.assert_allclose(gradients[0], value, rtol=1e-5)
    np.testing.assert_allclose(gradients[1], value * value, rtol=1e-5)
    np.testing.assert_allclose(gradients[2], value * value, rtol=1e-5)


def test_gradients_inside_stop_where_they_are_told(sess):
    x = tf.constant(3.0)
    squared = x * x
    p = tf.constant(True)

    def inside(**options):
        return tf.cond(p, lambda: tf.gradients(squared * x, x, **options)[0], lambda: 0.0)

    nothing = tf.cond(
        p, lambda: tf.gradients(2.0 * x, squared, unconnected_gradients="zero")[0], lambda: 1.0
    )
    assert sess.run([inside(), inside(stop_gradients=[squared]), nothing]) == [27, 9, 0]


def test_operations_in_bodies_have_seeds_of_their_own(sess):
    tf.set_random_seed(3)
    p = tf.placeholder_with_default(True, [])
    draw = lambda: tf.random_uniform([])  # noqa: E731
    double = tf.make_template("double", lambda: tf.cond(p, draw, draw))

    @tf.contrib.framework.Defun()
    def function():
        return draw()

    drawn = [draw(), tf.cond(p, draw, draw), tf.cond(p, draw, draw), double(), double()]
    drawn.append(tf.cond(p, lambda: tf.cond(p, draw, draw) + 0.0, draw))
    drawn.append(tf.while_loop(lambda i, _: i < 1, lambda i, _: (i + 1, draw()), [0, 0.0])[1])
    drawn += [tf.reshape(function(), []), draw()]
    values = sess.run(drawn)
    assert len(set(values)) == len(values)
    dropped = [
        tf.layers.dropout(tf.ones([100]), 0.5, training=tf.placeholder_with_default(True, []))
        for _ in range(2)
    ]
    first, second = sess.run(dropped)
    assert (first != second).any()


def test_only_what_is_used_waits(sess):
    p = tf.placeholder(tf.float32, [])

    def branch():
        with tf.control_dependencies([p]):
            tf.constant(1) + 1
        return tf.constant(3)

    assert sess.run(tf.cond(tf.constant(True), branch, lambda: tf.constant(4))) == 3


def test_body_waits_for_operations_of_the_graphs_around(sess):
    v = tf.Variable(0.0, use_resource=True)
    sess.run(tf.global_variables_initializer())
    change = v.assign_add(5.0)

    def body(i, _):
        def branch():
            with tf.control_dependencies([change]):
                return v.read_value()

        return i + 1, tf.cond(i >= 0, branch, lambda: -1.0)

    assert sess.run(tf.while_loop(lambda i, _: i < 2, body, [0, 0.0])[1]) == 5


def test_tensor_of_a_body_cannot_be_run(sess):
    inside = []
    tf.while_loop(lambda i: i < 2, lambda i: inside.append(i * 2) or i + 1, [0])
    with pytest.raises(ValueError, match="not an element of this graph|inside a"):
        sess.run(inside[0])


def test_tensor_array_in_a_loop(sess):
    x = tf.constant([1.0, 2.0, 3.0])

    def body(i, out):
        return i + 1, out.write(i, tf.square(x[i]))

    array = tf.TensorArray(tf.float32, 3)
    squares = tf.while_loop(lambda i, _: i < 3, body, [0, array])[1].stack()
    np.testing.assert_allclose(sess.run(squares), [1, 4, 9])
    np.testing.assert_allclose(sess.run(tf.gradients(squares, x)[0]), [2, 4, 6])
    assert squares.shape.as_list() in ([3], [None])


def test_tensor_array_says_what_it_refuses(sess):
    array = tf.TensorArray(tf.float32, 2, tensor_array_name="acc", infer_shape=False)
    twice = array.write(0, 1.0).write(0, 2.0)
    with pytest.raises(tf.errors.InvalidArgumentError, match="acc.*already been written"):
        sess.run(twice.stack())
    one = array.write(0, 1.0)
    with pytest.raises(tf.errors.InvalidArgumentError, match="cleared after a previous read"):
        sess.run([one.read(0), one.read(0)])
    with pytest.raises(tf.errors.InvalidArgumentError, match="not yet been written"):
        sess.run(array.read(1))
    with pytest.raises(ValueError, match="Inconsistent shapes"):
        tf.TensorArray(tf.float32, 2).write(0, 1.0).write(1, [1.0])


def test_rows(sess):
    x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    doubled = tf.map_fn(lambda r: r * 2, x)
    np.testing.assert_allclose(sess.run(doubled), [[2, 4], [6, 8]])
    assert doubled.shape == (2, 2)
    pairs = tf.map_fn(lambda r: (r[0] + r[1], r[0]), (x, x[:, 0]), dtype=(tf.float32, tf.float32))
    np.testing.assert_allclose(sess.run(pairs)[1], x_rows := [[1, 2], [3, 4]])
    assert x_rows
    n = tf.constant([1, 2, 3])
    assert list(sess.run(tf.scan(lambda a, v: a + v, n))) == [1, 3, 6]
    assert list(sess.run(tf.scan(lambda a, v: a + v, n, reverse=True))) == [6, 5, 3]
    assert sess.run(tf.foldl(lambda a, v: a - v, n)) == -4
    assert sess.run(tf.foldr(lambda a, v: a - v, n)) == 0


def test_py_func_calls_in_parallel_and_says_what_is_wrong(sess):
    barrier = threading.Barrier(2)

    def meet():
        barrier.wait(timeout=20)
        return np.int64(1)

    assert sess.run([tf.py_func(meet, [], tf.int64), tf.py_func(meet, [], tf.int64)]) == [1, 1]
    with pytest.raises(tf.errors.InvalidArgumentError, match="returns 2 values"):
        sess.run(tf.py_func(lambda: (1, 2, 3)[:2], [], [tf.int64] * 3))


@pytest.mark.parametrize(
    "returned, declared",
    [(1.0, tf.float32), (1, tf.int32), (np.float64(1), tf.float32), ([1, 2], tf.float64)],
)
def test_py_func_returns_the_type_it_declared(sess, returned, declared):
    y = tf.py_func(lambda: returned, [], declared)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"but expects {declared.name}"):
        sess.run(y)
    kind = np.asarray(returned).dtype
    assert (sess.run(tf.py_func(lambda: returned, [], kind)) == returned).all()


def test_registered_gradient_inside_a_loop(sess):
    @tf.custom_gradient
    def clipped(x):
        return x * 1.0, lambda dy: dy * 10.0 * x

    x = tf.constant(3.0)
    y = tf.while_loop(lambda i, _: i < 1, lambda i, a: (i + 1, clipped(a)), [0, x])[1]
    assert sess.run(tf.gradients(y, x)[0]) == 30
    p = tf.placeholder(tf.bool, [])
    z = tf.cond(p, lambda: clipped(x), lambda: x)
    assert sess.run(tf.gradients(z, x)[0], {p: True}) == 30


def test_graph_functions(sess):
    from millrace.graph.function import Defun

    scale = tf.constant(3.0)

    @Defun(tf.float32, tf.float32, func_name="PlusScaled")
    def plus_scaled(a, b):
        return a + b * scale

    x, y = tf.constant(1.0), tf.constant(2.0)
    r = plus_scaled(x, y)
    assert r.op.type == "PlusScaled"
    assert sess.run([r, *tf.gradients(r, [x, y, scale])]) == [7, 1, 3, 2]
    with pytest.raises(ValueError, match="number of arguments: 2"):
        plus_scaled(x)


def test_group_and_tuple(sess):
    a, b = tf.constant(1), tf.constant(2)
    assert tf.group(a, [b, tf.no_op()]).type == "NoOp"
    assert sess.run(tf.tuple([a, b])) == [1, 2]
    with pytest.raises(TypeError, match="zero or more"):
        tf.group(3)


def test_the_gradient_of_a_function_uses_what_its_run_drew():
    @tf.contrib.framework.Defun(tf.float32)
    def drop(x):
        return tf.nn.dropout(x, rate=0.5) * tf.random_uniform([100])

    x = tf.placeholder(tf.float32, [100])
    y = drop(x)
    (slope,) = tf.gradients(y, x)
    with tf.Session() as session:
        for _ in range(3):
            value, gradient = session.run([y, slope], {x: np.ones(100)})
            assert 0 < np.count_nonzero(value) < 100
            np.testing.assert_array_equal(value, gradient)


def test_the_gradient_of_a_function_in_a_function_uses_what_its_run_drew():
    @tf.contrib.framework.Defun(tf.float32)
    def inner(x):
        return x * x * tf.random_normal([10])

    @tf.contrib.framework.Defun(tf.float32)
    def outer(x):
        return inner(x) + tf.random_normal([10]) * x

    x = tf.placeholder(tf.float32, [10])
    y = outer(x)
    (slope,) = tf.gradients(y, x)
    (curve,) = tf.gradients(slope, x)
    with tf.Session() as session:
        y1, dy1, d2y = session.run([y, slope, curve], {x: np.ones(10)})
    # y = a x^2 + b x, of which y(1) = a + b, y'(1) = 2 a + b and y'' = 2 a.
    np.testing.assert_allclose(y1 + d2y / 2, dy1, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("noinline", [True, False])
def test_a_function_may_ask_to_stay_a_call(noinline):
    def body(x):
        return x * tf.cast(tf.random_uniform([]) < 2, tf.float32)

    x = tf.placeholder(tf.float32, [])
    for code in (body, lambda x: x * 2):
        y = tf.contrib.framework.Defun(tf.float32, noinline=noinline)(code)(x)
        assert y.op.get_attr("_noinline") is noinline
        with tf.Session() as session:
            assert session.run([y, *tf.gradients(y, x)], {x: 3.0})[0] in (3, 6)


def test_gradients_beside_their_operations_in_branches_and_loops():
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.constant([2.0, 3.0])
        chosen = tf.cond(tf.constant(True), lambda: tf.square(x), lambda: x)
        _, power = tf.while_loop(lambda i, _: i < 3, lambda i, p: (i + 1, p * x), [0, x])
        slopes = tf.gradients([chosen, power], x, colocate_gradients_with_ops=True)
        assert session.run(slopes[0]).tolist() == [4 + 32, 6 + 108]
