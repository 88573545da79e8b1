"""Tapes beside gradients: Jacobians, forward mode, tapes of several threads."""

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


A = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], np.float32)


class TestJacobians:
    def test_of_a_product(self):
        x = tf.constant([1.0, -1.0, 2.0])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.linalg.matvec(A, x * x)
        found = tape.jacobian(y, x)
        assert found.numpy().tolist() == (A * 2 * x.numpy()).tolist()
        with pytest.raises(RuntimeError, match="non-persistent"):
            tape.jacobian(y, x)

    def test_structures_and_what_is_not_connected(self):
        x, v, other = tf.constant([[1.0, 2.0]]), tf.Variable([3.0, 4.0]), tf.constant(1.0)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch([x, other])
            y = x * v
        found = tape.jacobian(y, {"x": x, "v": v, "other": other})
        assert found["x"].shape == [1, 2, 1, 2] and found["other"] is None
        assert found["v"].numpy().tolist() == [[[1, 0], [0, 2]]]
        zeros = tape.jacobian(y, other, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        assert zeros.numpy().tolist() == [[0, 0]]

    def test_hessian(self):
        x = tf.constant([1.0, 2.0])
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = x[0] * x[0] * x[1]
            slope = inner.gradient(y, x)
        assert outer.jacobian(slope, x).numpy().tolist() == [[4, 2], [2, 0]]

    def test_in_functions(self):
        @tf.function
        def f(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = tf.linalg.matvec(A, x * x)
            return tape.jacobian(y, x)

        x = tf.constant([1.0, -1.0, 2.0])
        assert f(x).numpy().tolist() == (A * 2 * x.numpy()).tolist()

    def test_of_targets_of_unknown_size(self):
        w = tf.Variable(2.0)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
        def f(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = x * x * w
            return tape.jacobian(y, {"x": x, "w": w})

        for n in (1, 3):
            x = np.arange(1, n + 1, dtype=np.float32)
            found = f(x)
            assert found["x"].numpy().tolist() == np.diag(4 * x).tolist()
            assert found["w"].numpy().tolist() == (x * x).tolist()

    def test_of_rows(self):
        x = tf.constant(np.arange(6, dtype=np.float32).reshape(3, 2))
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.stack([x[:, 0] * x[:, 1], x[:, 0] ** 2.0, x[:, 1]], axis=1)
        found = tape.batch_jacobian(y, x).numpy()
        assert found.shape == (3, 3, 2)
        for row, (a, b) in zip(found, x.numpy(), strict=True):
            assert row.tolist() == [[b, a], [2 * a, 0], [0, 1]]
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x[:2]
        with pytest.raises(ValueError, match=r"Need first dimension of target shape \(2, 2\)"):
            tape.batch_jacobian(y, x)


class TestForwardMode:
    def test_products(self):
        x, v = tf.constant([1.0, 2.0, 3.0]), tf.constant([1.0, 0.0, -1.0])
        with tf.autodiff.ForwardAccumulator(x, v) as forward:
            y = tf.linalg.matvec(A, tf.sin(x))
            inside = forward.jvp(y)
        expected = A @ (np.cos(x.numpy()) * v.numpy())
        assert inside.numpy() == pytest.approx(expected, rel=1e-5)
        assert forward.jvp(y).numpy() == pytest.approx(expected, rel=1e-5)
        assert forward.jvp(x) is v or forward.jvp(x).numpy().tolist() == v.numpy().tolist()
        assert forward.jvp(tf.constant(1.0)) is None
        zero = forward.jvp(tf.constant(1.0), tf.UnconnectedGradients.ZERO)
        assert float(zero) == 0

    def test_variables_and_structures(self):
        w, x = tf.Variable(2.0), tf.constant(3.0)
        directions = [tf.constant(1.0), tf.constant(10.0)]
        with tf.autodiff.ForwardAccumulator([w, x], directions) as forward:
            y = {"product": w * x, "square": x * x}
        found = forward.jvp(y)
        assert (float(found["product"]), float(found["square"])) == (23, 60)

    def test_with_tapes_around_and_inside(self):
        x = tf.constant(2.0)
        with tf.autodiff.ForwardAccumulator(x, tf.constant(1.0)) as forward:
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = x**3.0
            slope = tape.gradient(y, x)
        assert float(forward.jvp(slope)) == 12
        with tf.GradientTape() as tape:
            tape.watch(x)
            with tf.autodiff.ForwardAccumulator(x, tf.constant(1.0)) as forward:
                y = x**3.0
            slope = forward.jvp(y)
        assert (float(slope), float(tape.gradient(slope, x))) == (12, 12)

    def test_nested(self):
        x = tf.constant(2.0)
        one = tf.constant(1.0)
        with tf.autodiff.ForwardAccumulator(x, one) as outer:
            with tf.autodiff.ForwardAccumulator(x, one) as inner:
                y = x**3.0
            first = inner.jvp(y)
        assert (float(first), float(outer.jvp(first))) == (12, 12)

    def test_through_and_in_functions(self):
        @tf.function
        def f(x):
            return tf.exp(x) * x

        @tf.function
        def product(x, v):
            with tf.autodiff.ForwardAccumulator(x, v) as forward:
                y = tf.exp(x) * x
            return forward.jvp(y)

        x, v = tf.constant(0.5), tf.constant(2.0)
        with tf.autodiff.ForwardAccumulator(x, v) as forward:
            y = f(x)
        expected = 2 * (np.exp(0.5) * 1.5)
        assert float(forward.jvp(y)) == pytest.approx(expected, rel=1e-6)
        assert float(product(x, v)) == pytest.approx(expected, rel=1e-6)

    def test_mistakes(self):
        with pytest.raises(ValueError, match="must have that shape"):
            tf.autodiff.ForwardAccumulator(tf.ones([2]), tf.ones([3]))
        forward = tf.autodiff.ForwardAccumulator(tf.constant(1.0), tf.constant(1.0))
        with forward, pytest.raises(ValueError, match="already recording"):
            forward.__enter__()


def test_each_thread_has_its_own_reads():
    """While one thread traces a function, another one reads variables."""
    mine, theirs = tf.Variable(1.0), tf.Variable(2.0)
    begun, done = threading.Event(), threading.Event()

    def read():
        begun.wait(30)
        theirs.read_value()
        done.set()

    thread = threading.Thread(target=read)
    thread.start()

    @tf.function
    def f():
        with tf.GradientTape() as tape:
            begun.set()
            assert done.wait(30)
            y = mine * mine
        assert [v is mine for v in tape.watched_variables()] == [True]
        return y

    made = f.get_concrete_function()
    thread.join()
    assert [v is mine for v in made.trainable_variables] == [True]
    with tf.GradientTape() as tape:
        f()
    assert [v is mine for v in tape.watched_variables()] == [True]


def test_a_tape_pauses_and_begins_anew():
    x = tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * x
        with tape.stop_recording():
            z = x * x * x
            with pytest.raises(ValueError, match="not recording"), tape.stop_recording():
                pass
        y = y + z
    assert float(tape.gradient(y, x)) == 6
    with tf.GradientTape() as tape:
        tape.watch(x)
        x * x
        tape.reset()
        tape.watch(x)
        y = x * 2.0
    assert float(tape.gradient(y, x)) == 2
