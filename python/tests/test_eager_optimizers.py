"""Optimisers outside of graphs: those of TensorFlow 2, and TensorFlow 1's."""

import numpy as np
import pytest

import millrace as tf
from millrace import _core

v1 = tf.compat.v1


@pytest.fixture(autouse=True, scope="module")
def _eager():
    before = _core.eager_enabled()
    _core.choose_eager(True)
    yield
    _core.choose_eager(before)


def stepped(optimizer, gradients, start=(1.0, 2.0)):
    v = tf.Variable(list(start))
    for gradient in gradients:
        optimizer.apply_gradients([(gradient, v)])
    return v.numpy()


GRADIENTS = [np.array(g, np.float32) for g in ([1.0, -2.0], [0.5, 0.0], [-1.0, 3.0])]


class TestFormulas:
    def test_sgd(self):
        assert np.allclose(stepped(tf.optimizers.SGD(0.1), GRADIENTS), [0.95, 1.9])

    @pytest.mark.parametrize("nesterov", [False, True])
    def test_momentum(self, nesterov):
        x, m = np.array([1.0, 2.0]), 0
        for g in GRADIENTS:
            m = 0.9 * m - 0.1 * g
            x = x + (0.9 * m - 0.1 * g if nesterov else m)
        made = stepped(tf.optimizers.SGD(0.1, momentum=0.9, nesterov=nesterov), GRADIENTS)
        assert np.allclose(made, x)

    @pytest.mark.parametrize("amsgrad", [False, True])
    def test_adam(self, amsgrad):
        x, m, v, most = np.array([1.0, 2.0]), 0, 0, 0
        for t, g in enumerate(GRADIENTS, 1):
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            most = np.maximum(most, v)
            rate = 0.1 * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
            x = x - rate * m / (np.sqrt(most if amsgrad else v) + 1e-7)
        assert np.allclose(stepped(tf.optimizers.Adam(0.1, amsgrad=amsgrad), GRADIENTS), x)

    def test_adamax(self):
        x, m, u = np.array([1.0, 2.0]), 0, 0
        for t, g in enumerate(GRADIENTS, 1):
            m, u = 0.9 * m + 0.1 * g, np.maximum(0.999 * u, np.abs(g))
            x = x - 0.1 / (1 - 0.9**t) * m / (u + 1e-7)
        assert np.allclose(stepped(tf.optimizers.Adamax(0.1), GRADIENTS), x)

    def test_adagrad(self):
        x, a = np.array([1.0, 2.0]), 0.1
        for g in GRADIENTS:
            a = a + g * g
            x = x - 0.1 * g / np.sqrt(a + 1e-7)
        assert np.allclose(stepped(tf.optimizers.Adagrad(0.1), GRADIENTS), x, rtol=1e-5)

    @pytest.mark.parametrize("centered", [False, True])
    @pytest.mark.parametrize("momentum", [0.0, 0.5])
    def test_rmsprop(self, centered, momentum):
        x, v, mean, m = np.array([1.0, 2.0]), 0, 0, 0
        for g in GRADIENTS:
            v, mean = 0.9 * v + 0.1 * g * g, 0.9 * mean + 0.1 * g
            m = momentum * m + 0.1 * g / np.sqrt(v - centered * mean * mean + 1e-7)
            x = x - m
        made = tf.optimizers.RMSprop(0.1, momentum=momentum, centered=centered)
        assert np.allclose(stepped(made, GRADIENTS), x, rtol=1e-4)

    def test_adadelta(self):
        x, a, d = np.array([1.0, 2.0]), 0, 0
        for g in GRADIENTS:
            a = 0.95 * a + 0.05 * g * g
            step = np.sqrt(d + 1e-7) / np.sqrt(a + 1e-7) * g
            d, x = 0.95 * d + 0.05 * step * step, x - 0.1 * step
        assert np.allclose(stepped(tf.optimizers.Adadelta(0.1), GRADIENTS), x)

    def test_ftrl_is_that_of_graphs(self):
        with tf.Graph().as_default(), v1.Session() as session:
            v = v1.Variable([1.0, 2.0], use_resource=True)
            gradient = v1.placeholder(tf.float32, [2])
            step = v1.train.FtrlOptimizer(0.1).apply_gradients([(gradient, v)])
            session.run(v1.global_variables_initializer())
            for g in GRADIENTS:
                session.run(step, {gradient: g})
            expected = session.run(v)
        assert np.allclose(stepped(tf.optimizers.Ftrl(0.1), GRADIENTS), expected)

    def test_decay_apart_from_the_gradient(self):
        made = stepped(tf.optimizers.SGD(0.1, weight_decay=0.5), [np.zeros(2, np.float32)] * 2)
        assert np.allclose(made, np.array([1.0, 2.0]) * 0.95**2)
        kept = tf.optimizers.SGD(0.1, weight_decay=0.5)
        kept.exclude_from_weight_decay(var_names=["Vari"])
        assert stepped(kept, [np.zeros(2, np.float32)]).tolist() == [1, 2]


@pytest.mark.parametrize(
    "make",
    [
        lambda: tf.optimizers.SGD(0.1),
        lambda: tf.optimizers.SGD(0.1, momentum=0.5),
        lambda: tf.optimizers.Adam(0.1),
        lambda: tf.optimizers.Adagrad(0.1),
        lambda: tf.optimizers.RMSprop(0.1),
    ],
)
def test_rows_are_those_of_a_dense_gradient(make):
    rows = tf.IndexedSlices(tf.constant([[1.0], [2.0], [3.0]]), tf.constant([2, 0, 2]))
    whole = np.array([[2.0], [0.0], [4.0]], np.float32)
    start = [[1.0], [2.0], [3.0]]
    sparse, dense = make(), make()
    made = stepped(sparse, [rows, rows], start)
    assert np.allclose(made, stepped(dense, [whole, whole], start), rtol=1e-5)


class TestSteps:
    def test_are_counted(self):
        optimizer = tf.optimizers.SGD(0.1)
        v = tf.Variable(1.0)
        assert optimizer.apply_gradients([(tf.constant(1.0), v)]).numpy() == 1
        assert optimizer.iterations.numpy() == 1 and optimizer.variables[0] is optimizer.iterations

    def test_minimize(self):
        v, other = tf.Variable(3.0), tf.Variable(1.0)
        optimizer = tf.optimizers.SGD(0.1)
        optimizer.minimize(lambda: v * v, [v])
        assert np.isclose(v.numpy(), 2.4)
        with tf.GradientTape() as tape:
            loss = v * v
        optimizer.minimize(loss, [v], tape=tape)
        assert np.isclose(v.numpy(), 1.92)
        optimizer.minimize(lambda: v * v, lambda: [v, other])
        with pytest.raises(ValueError, match="`tape` is required"):
            optimizer.minimize(loss, [v])
        with pytest.raises(ValueError, match="No gradients provided for any variable"):
            optimizer.apply_gradients([(None, v)])

    def test_in_a_function(self):
        v, optimizer = tf.Variable([1.0, 2.0]), tf.optimizers.Adam(0.1)
        alone, again = tf.Variable([1.0, 2.0]), tf.optimizers.Adam(0.1)

        @tf.function
        def step(gradient):
            optimizer.apply_gradients([(gradient, v)])

        for g in GRADIENTS:
            step(tf.constant(g))
            again.apply_gradients([(g, alone)])
        assert v.numpy().tobytes() == alone.numpy().tobytes()
        assert optimizer.iterations.numpy() == 3

    def test_rates_can_be_set(self):
        optimizer = tf.optimizers.SGD(0.5)
        optimizer.learning_rate = 0.25
        assert optimizer.lr.numpy() == 0.25
        assert stepped(optimizer, [np.array([1.0, 1.0], np.float32)]).tolist() == [0.75, 1.75]
        assert stepped(tf.optimizers.SGD(lambda: 1.0), GRADIENTS[:1]).tolist() == [0, 4]

    def test_schedules(self):
        schedules = tf.optimizers.schedules
        optimizer = tf.optimizers.SGD(schedules.ExponentialDecay(1.0, 1, 0.5))
        made = stepped(optimizer, [np.array([1.0, 0.0], np.float32)] * 3)
        assert made.tolist() == [1 - 1 - 0.5 - 0.25, 2]
        with pytest.raises(TypeError, match="not settable"):
            optimizer.learning_rate = 0.1
        steps = schedules.PiecewiseConstantDecay([1, 3], [1.0, 0.5, 0.25])
        assert [float(steps(tf.constant(i))) for i in range(5)] == [1, 1, 0.5, 0.5, 0.25]
        assert np.isclose(float(schedules.CosineDecay(1.0, 10)(5)), 0.5)
        assert np.isclose(float(schedules.PolynomialDecay(1.0, 10, 0.0)(5)), 0.5)
        again = tf.optimizers.SGD.from_config(optimizer.get_config())
        assert float(again.learning_rate) == 1.0

    def test_limits_of_gradients(self):
        large = np.array([3.0, 4.0], np.float32)
        start = np.array([1.0, 2.0])
        for limit, expected in (
            ({"clipvalue": 3.5}, [3.0, 3.5]), ({"clipnorm": 1.0}, [0.6, 0.8]),
            ({"global_clipnorm": 1.0}, [0.6, 0.8]),
        ):  # fmt: skip
            made = stepped(tf.optimizers.SGD(1.0, **limit), [large])
            assert np.allclose(made, start - expected)
        with pytest.raises(ValueError, match="At most one of"):
            tf.optimizers.SGD(1.0, clipnorm=1.0, clipvalue=1.0)

    def test_constraints(self):
        v = tf.Variable([1.0, 2.0], constraint=lambda x: tf.maximum(x, 0.5))
        tf.optimizers.SGD(1.0).apply_gradients([(tf.constant([9.0, 0.0]), v)])
        assert v.numpy().tolist() == [0.5, 2]

    def test_one_of_the_users_own(self):
        class Signs(tf.optimizers.Optimizer):
            def __init__(self, rate):
                super().__init__("Signs")
                self._learning_rate = self._build_learning_rate(rate)

            def update_step(self, gradient, variable):
                variable.assign_sub(self.learning_rate * tf.sign(gradient))

        assert stepped(Signs(1.0), GRADIENTS[:1]).tolist() == [0, 3]


class TestTensorFlow1:
    @pytest.mark.parametrize("name", ["Adam", "Momentum", "RMSProp", "Adagrad", "Ftrl"])
    def test_updates_are_those_of_graphs(self, name):
        def make():
            more = (0.9,) if name == "Momentum" else ()
            return getattr(v1.train, name + "Optimizer")(0.1, *more)

        with tf.Graph().as_default(), v1.Session() as session:
            v = v1.Variable([1.0, 2.0], use_resource=True)
            step = make().minimize(tf.reduce_sum(v * v))
            session.run(v1.global_variables_initializer())
            for _ in range(3):
                session.run(step)
            expected = session.run(v)
        v, optimizer = tf.Variable([1.0, 2.0]), make()
        counted = tf.Variable(0, dtype=tf.int64)
        for _ in range(3):
            optimizer.minimize(lambda: tf.reduce_sum(v * v), counted, [v])
        assert np.allclose(v.numpy(), expected, rtol=1e-6) and counted.numpy() == 3
        assert len(optimizer.variables()) == len(optimizer.get_slot_names()) + 2 * (name == "Adam")

    def test_losses_are_scaled(self):
        v = tf.Variable(2.0)
        inside = v1.train.GradientDescentOptimizer(0.5)
        optimizer = v1.train.experimental.MixedPrecisionLossScaleOptimizer(inside, "dynamic")
        optimizer.minimize(lambda: v * v)
        assert v.numpy() == 0 and optimizer._loss_scale().numpy() == 2**15
        optimizer.apply_gradients([(tf.constant(np.inf), v)])
        assert v.numpy() == 0 and optimizer._loss_scale().numpy() == 2**14

        @tf.function
        def step():
            optimizer.apply_gradients([(tf.constant(np.nan), v), (tf.constant(1.0), v)])

        step()
        assert v.numpy() == 0 and optimizer._loss_scale().numpy() == 2**13

    def test_losses_are_functions(self):
        with pytest.raises(RuntimeError, match="should be a function when eager"):
            v1.train.GradientDescentOptimizer(0.1).minimize(tf.constant(1.0))


def test_variables_in_graphs_are_those_of_graphs():
    with tf.Graph().as_default() as graph, v1.Session() as session:
        v = tf.Variable([1.0], name="v")
        assert isinstance(v, tf.Variable) and v.graph is graph
        session.run(v.initializer)
        assert session.run(v).tolist() == [1]
