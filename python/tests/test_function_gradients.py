"""Functions with gradients of their own, and Python functions as operations, at once and traced."""

import subprocess
import sys
import threading

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


@pytest.fixture(params=["at once", "traced"])
def mode(request):
    """What a program goes through: nothing, or tf.function."""
    return tf.function if request.param == "traced" else lambda f: f


def gradient(f, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = f(x)
    return tf.convert_to_tensor(tape.gradient(y, x))


class TestCustomGradients:
    def test_of_methods(self, mode):
        class Model:
            by = 2.0

            @tf.custom_gradient
            def scaled(self, x):
                return x * self.by, lambda dy: dy * 100.0

        model = Model()
        assert float(gradient(mode(lambda x: model.scaled(x) * 1.0), tf.constant(3.0))) == 100

    def test_with_variables(self, mode):
        w = tf.Variable(3.0)

        @tf.custom_gradient
        def f(x):
            def rule(dy, variables):
                assert [v is w for v in variables] == [True]
                return dy * 10.0, [dy * 20.0]

            return x * w, rule

        x = tf.constant(2.0)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = mode(f)(x)
        assert [float(g) for g in tape.gradient(y, [x, w])] == [10, 20]

    def test_rules_without_a_place_for_variables(self, mode):
        w = tf.Variable(3.0)

        @tf.custom_gradient
        def f(x):
            return x * w, lambda dy: dy

        with pytest.raises(TypeError, match="must accept keyword argument 'variables'"):
            mode(f)(tf.constant(1.0))

    def test_computed_again(self, mode):
        ran = []
        w = tf.Variable(2.0)

        @tf.recompute_grad
        def f(x):
            ran.append(1)
            return tf.exp(x) * w * x

        x = tf.constant(0.5)
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = mode(f)(x)
            dx, dw = tape.gradient(y, [x, w])
        assert float(dx) == pytest.approx(2 * np.exp(0.5) * 1.5, rel=1e-6)
        assert float(dw) == pytest.approx(np.exp(0.5) * 0.5, rel=1e-6)
        assert float(outer.gradient(dx, x)) == pytest.approx(2 * np.exp(0.5) * 2.5, rel=1e-6)
        assert len(ran) >= 2

    def test_passed_through(self, mode):
        f = mode(tf.grad_pass_through(lambda x: x**3.0))
        assert float(gradient(f, tf.constant(2.0))) == 1


class TestPythonFunctions:
    def test_values_and_gradients(self, mode):
        def python(x, n):
            assert _core.is_eager_tensor(x)
            return x ** float(n)

        def f(x):
            y = tf.py_function(python, [x, tf.constant(3)], tf.float32)
            return y * 2.0

        x = tf.constant(2.0)
        assert float(mode(f)(x)) == 16
        assert float(gradient(mode(f), x)) == 24

    def test_several_results_and_none(self, mode):
        seen = []

        def f(x):
            a, b = tf.py_function(lambda v: (v + 1.0, int(v)), [x], [tf.float32, tf.int32])
            tf.py_function(lambda v: seen.append(float(v)), [x], [])
            return a, b

        a, b = mode(f)(tf.constant(3.0))
        assert (float(a), int(b), seen) == (4, 3, [3.0])

    def test_handles(self, mode):
        v = tf.Variable([2.0, 3.0])
        f = mode(lambda: tf.py_function(lambda h, x: x + float(h is v.handle), [v.handle, 1.0],
                                        tf.float32))  # fmt: skip
        assert float(f()) == 2

    def test_mistakes(self, mode):
        def fails(x):
            raise KeyError("lost")

        with pytest.raises((KeyError, tf.errors.OpError), match="lost"):
            mode(lambda x: tf.py_function(fails, [x], tf.float32))(tf.constant(1.0))
        with pytest.raises((ValueError, tf.errors.OpError), match="returns 2 values"):
            mode(lambda x: tf.py_function(lambda v: (v, v), [x], [tf.float32] * 3))(
                tf.constant(1.0)
            )

    def test_numpy_functions(self, mode):
        def f(x):
            return tf.numpy_function(lambda v: v.sum(keepdims=True), [x], tf.float32)

        assert mode(f)(tf.constant([1.0, 2.0])).numpy().tolist() == [3]


class TestCriticalSections:
    def test_one_at_a_time(self, mode):
        section = tf.CriticalSection()
        v = tf.Variable(0.0)

        def change():
            before = v.read_value()
            v.assign(before + 1.0)
            return before

        step = mode(lambda: section.execute(change))
        found = []
        threads = [
            threading.Thread(target=lambda: found.extend(float(step()) for _ in range(25)))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(found) == [float(i) for i in range(100)] and float(v) == 100

    def test_errors_free_it(self):
        section = tf.CriticalSection()
        with pytest.raises(KeyError):
            section.execute(lambda: {}["nothing"])
        assert float(section.execute(lambda: tf.constant(1.0))) == 1

    def test_it_does_not_wait_for_itself(self):
        section = tf.CriticalSection()
        with pytest.raises(ValueError, match="already running"):
            section.execute(lambda: section.execute(lambda: tf.constant(1.0)))


def test_derivatives_of_functions_by_what_they_capture():
    x = tf.constant(3.0)

    @tf.function
    def f():
        y = x * x
        return tf.compat.v1.gradients(y, x)[0]

    assert float(f()) == 6


class TestRows:
    def test_of_different_lengths(self, mode):
        def f(a, b):
            rows = tf.TensorArray(tf.float32, 3, element_shape=[None], infer_shape=False)
            return rows.write(0, a).write(1, b).write(2, a).concat()

        found = mode(f)(tf.constant([1.0, 2.0]), tf.zeros([0]))
        assert found.numpy().tolist() == [1, 2, 1, 2]

    def test_of_nothing(self):
        nothing = tf.constant([])
        found = tf.map_fn(lambda x: tf.constant("a"), nothing, fn_output_signature=tf.string)
        assert found.dtype == tf.string and found.shape == [0]
        with pytest.raises(ValueError, match="does not contain any Tensors"):
            tf.map_fn(lambda x: x, [])

    def test_values_types_and_gradients(self, mode):
        x = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        w = tf.constant([[10.0, 100.0]])

        def f(x):
            return tf.vectorized_map(
                lambda row: {"sum": tf.reduce_sum(row[0] * row[1]), "size": tf.size(row[0])},
                (x, w),
            )

        found = mode(f)(x)
        assert found["sum"].numpy().tolist() == [210, 430, 650]
        assert found["size"].numpy().tolist() == [2, 2, 2]
        slope = gradient(mode(lambda x: tf.reduce_sum(f(x)["sum"])), x)
        assert slope.numpy().tolist() == [[10, 100]] * 3
        with pytest.raises(ValueError, match=r"different numbers of rows: \[2, 3\]"):
            mode(lambda: tf.vectorized_map(lambda r: r, (tf.ones([2]), tf.ones([3]))))()


def test_a_seed_does_not_start_the_runtime():
    """Programs set it first, and divide devices then."""
    code = (
        "import millrace as tf\n"
        "tf.random.set_seed(1)\n"
        "cpu = tf.config.list_physical_devices('CPU')[0]\n"
        "two = [tf.config.LogicalDeviceConfiguration()] * 2\n"
        "tf.config.set_logical_device_configuration(cpu, two)\n"
        "assert len(tf.config.list_logical_devices('CPU')) == 2\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
