"""tf.function: Python functions that are traced and run as graphs."""

import numpy as np
import pytest

import millrace as tf
from millrace import _core


@pytest.fixture(autouse=True, scope="module")
def _eager():
    before = _core.eager_enabled()
    _core.choose_eager(True)
    yield
    _core.choose_eager(before)


class TestTracing:
    def test_once_for_each_kind_of_arguments(self):
        traced = []

        @tf.function
        def f(x, y=2.0):
            traced.append(x.shape)
            return x * y

        assert f(tf.constant(3.0)).numpy() == 6
        assert f(tf.constant(4.0)).numpy() == 8
        assert len(traced) == 1 and f.experimental_get_tracing_count() == 1
        assert f(tf.constant([1.0, 2.0])).numpy().tolist() == [2, 4]
        assert f(tf.constant(3.0), 5.0).numpy() == 15
        assert f(tf.constant(3), 2).dtype == tf.int32
        assert len(traced) == 4

    def test_structures(self):
        @tf.function
        def f(pair, *, options):
            return {"sum": pair[0] + pair[1], "parts": (pair, None), "scaled": options["a"] * 2.0}

        out = f((tf.constant(1.0), tf.constant(2.0)), options={"a": tf.constant(5.0)})
        assert out["sum"].numpy() == 3 and out["scaled"].numpy() == 10
        assert out["parts"][0][1].numpy() == 2 and out["parts"][1] is None

    def test_arrays_are_tensors(self):
        @tf.function
        def f(x):
            return tf.reduce_sum(x)

        assert f(np.ones([2, 3], np.float32)).numpy() == 6

    def test_signatures(self):
        traced = []

        @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32)])
        def f(x):
            traced.append(x.shape.as_list())
            return tf.reduce_sum(x, axis=0)

        assert f(np.ones([3, 2])).numpy().tolist() == [3, 3]
        assert f([[1.0, 2.0]]).numpy().tolist() == [1, 2]
        assert traced == [[None, 2]]
        with pytest.raises(ValueError, match="incompatible with input_signature"):
            f(tf.ones([3]))
        concrete = f.get_concrete_function()
        assert concrete(tf.ones([5, 2])).numpy().tolist() == [5, 5]

    def test_methods(self):
        class Model:
            def __init__(self, factor):
                self.w = tf.Variable(factor)

            @tf.function
            def __call__(self, x):
                return x * self.w

        one, two = Model(1.0), Model(2.0)
        x = tf.constant(3.0)
        assert (one(x).numpy(), two(x).numpy(), one(x).numpy()) == (3, 6, 3)

    def test_functions_in_functions(self):
        @tf.function
        def inner(x):
            return x * x

        @tf.function
        def outer(x):
            return inner(x) + inner(x + 1.0)

        assert outer(tf.constant(2.0)).numpy() == 13

    def test_values_from_outside(self):
        outside = tf.constant([1.0, 2.0])

        @tf.function
        def f(x):
            return x + outside

        assert f(tf.constant(1.0)).numpy().tolist() == [2, 3]
        assert len(f.get_concrete_function(tf.constant(1.0)).captured_inputs) == 1

    def test_control_flow(self):
        @tf.function
        def power(base, n):
            return tf.while_loop(
                lambda i, _: i < n, lambda i, p: (i + 1, p * base), [tf.constant(0), 1.0]
            )[1]

        assert power(tf.constant(3.0), tf.constant(4)).numpy() == 81
        assert power(tf.constant(3.0), tf.constant(0)).numpy() == 1

    def test_errors_are_raised(self):
        @tf.function
        def wrong(x):
            return tf.matmul(x, x)

        with pytest.raises(ValueError, match="MatMul"):
            wrong(tf.ones([2, 3]))

        @tf.function
        def fails(x, i):
            return tf.gather(x, i)

        with pytest.raises(tf.errors.InvalidArgumentError, match="test_eager_function.py"):
            fails(tf.ones([2]), tf.constant(7))
        assert fails(tf.ones([2]), tf.constant(1)).numpy() == 1


class TestState:
    def test_changes_run_in_order(self):
        v = tf.Variable(1.0)

        @tf.function
        def f(x):
            before = v.read_value()
            v.assign_add(x)
            v.assign(v * 10.0)
            return before, v.read_value()

        before, after = f(tf.constant(2.0))
        assert (before.numpy(), after.numpy(), v.numpy()) == (1, 30, 30)

    def test_changes_without_results(self):
        v = tf.Variable(1.0)

        @tf.function
        def f(x):
            v.assign(x)

        assert f(tf.constant(7.0)) is None and v.numpy() == 7

    def test_branches_change_state(self):
        v = tf.Variable(0.0)

        @tf.function
        def f(x):
            return tf.cond(x > 0.0, lambda: v.assign_add(x).value(), lambda: v.assign(0.0).value())

        assert [f(tf.constant(x)).numpy() for x in (1.0, 2.0, -1.0)] == [1, 3, 0]
        assert v.numpy() == 0


class TestGradients:
    def test_of_arguments_and_variables(self):
        v = tf.Variable(2.0)

        @tf.function
        def f(x):
            return x * x * v

        x = tf.constant(3.0)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = f(x) * 2.0
        dx, dv = tape.gradient(y, [x, v])
        assert (dx.numpy(), dv.numpy()) == (24, 18)

    def test_training(self):
        rng = np.random.default_rng(0)
        points = rng.normal(size=(64, 2)).astype(np.float32)
        target = points @ np.array([[1.0], [-2.0]], np.float32)
        w = tf.Variable(np.zeros((2, 1), np.float32))

        @tf.function
        def loss_of(x, y):
            return tf.reduce_mean(tf.square(tf.matmul(x, w) - y))

        for _ in range(100):
            with tf.GradientTape() as tape:
                loss = loss_of(points, target)
            w.assign_sub(0.1 * tape.gradient(loss, w))
        assert float(loss) < 1e-4

    def test_inside_of_functions(self):
        w = tf.Variable(3.0)

        @tf.function
        def step(x):
            with tf.GradientTape() as tape:
                loss = w * w * x
            slope = tape.gradient(loss, w)
            w.assign_sub(0.1 * slope)
            return slope

        assert step(tf.constant(2.0)).numpy() == 12
        assert w.numpy() == pytest.approx(1.8, rel=1e-6)

    def test_same_bits_as_at_once(self):
        def f(x):
            return tf.nn.softmax(tf.tanh(x) * tf.exp(x)) + tf.reduce_sum(x, axis=0)

        x = tf.constant(np.random.default_rng(3).normal(size=(3, 4)).astype(np.float32))
        found = []
        for program in (f, tf.function(f)):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = program(x)
            found.append((y.numpy(), tape.gradient(y, x).numpy()))
        for a, b in zip(*found, strict=True):
            assert a.tobytes() == b.tobytes()


def test_arguments_without_a_hash_are_told_apart():
    class Scale:
        __hash__ = None

        def __init__(self, by):
            self.by = by

    @tf.function
    def scaled(x, scale):
        return x * scale.by

    # The next one may lie where the last one lay.
    assert [float(scaled(tf.constant(1.0), Scale(float(i)))) for i in range(5)] == [0, 1, 2, 3, 4]


def test_a_nested_function_leaves_what_the_outer_one_reads():
    first, second = tf.Variable(2.0), tf.Variable(3.0)

    @tf.function
    def inner():
        return first * 1.0

    @tf.function
    def outer():
        return first * inner() * second

    with tf.GradientTape() as tape:
        y = outer()
    assert [float(g) for g in tape.gradient(y, [first, second])] == [12.0, 4.0]
