"""Operations that run at once: `import millrace as tf`.

What graphs do besides is tested in a process of its own, since eager execution is for a process.
"""

import copy
import gc
import pickle
import subprocess
import sys

import numpy as np
import pytest
from sanitizers import measures_memory

import millrace as tf
from millrace import _core


@pytest.fixture(autouse=True, scope="module")
def _eager():
    before = _core.eager_enabled()
    _core.choose_eager(True)
    yield
    _core.choose_eager(before)


def run_apart(program: str) -> str:
    """What a program of its own prints."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class TestTensors:
    def test_values_and_types(self):
        x = tf.constant([[1, 2], [3, 4]])
        assert isinstance(x, tf.Tensor)
        assert x.dtype == tf.int32 and x.shape == (2, 2) and x.ndim == 2
        assert x.numpy().tolist() == [[1, 2], [3, 4]]
        assert tf.constant(1.5).dtype == tf.float32
        assert tf.constant(2**40).dtype == tf.int64
        assert tf.constant("a").numpy() == b"a"
        assert tf.constant(np.float64(1)).dtype == tf.float64
        assert tf.convert_to_tensor([1.0, 2.0], dtype_hint=tf.float64).dtype == tf.float64
        assert tf.constant([True, False]).dtype == tf.bool
        assert tf.is_tensor(x) and not tf.is_tensor(1)

    def test_arrays_are_the_callers_own(self):
        given = np.ones(1000, np.float32)
        x = tf.constant(given)
        given[:] = 7
        taken = x.numpy()
        taken[:] = 5
        assert x.numpy().sum() == 1000
        assert np.asarray(x).shape == (1000,)
        assert np.add(x, 1.0)[0] == 2

    def test_scalars_as_numbers(self):
        assert int(tf.constant(3)) == 3 and float(tf.constant(2.5)) == 2.5
        assert bool(tf.constant(1)) and not tf.constant(False)
        assert [10, 20, 30][tf.constant(1)] == 20
        assert complex(tf.constant(2.0)) == 2
        with pytest.raises(TypeError, match="scalar index"):
            [1][tf.constant(0.0)]
        with pytest.raises(ValueError, match="ambiguous"):
            bool(tf.constant([1, 2]))
        with pytest.raises(TypeError, match="one element"):
            float(tf.constant([1.0, 2.0]))

    def test_iteration_and_length(self):
        assert [int(v) for v in tf.constant([1, 2, 3])] == [1, 2, 3]
        assert len(tf.constant([[1], [2]])) == 2
        a, b = tf.constant([4, 5])
        assert (int(a), int(b)) == (4, 5)
        with pytest.raises(TypeError, match="[Ss]calar"):
            len(tf.constant(1))
        with pytest.raises(TypeError, match="[Ss]calar"):
            iter(tf.constant(1))

    def test_text(self):
        assert repr(tf.constant(3.0)) == "<tf.Tensor: shape=(), dtype=float32, numpy=3.0>"
        assert str(tf.constant(3.0)) == "tf.Tensor(3.0, shape=(), dtype=float32)"
        assert (
            repr(tf.constant([1, 2]))
            == "<tf.Tensor: shape=(2,), dtype=int32, numpy=array([1, 2], dtype=int32)>"
        )
        assert str(tf.constant([1, 2])) == "tf.Tensor([1 2], shape=(2,), dtype=int32)"
        assert f"{tf.constant(2.5):.2f}" == "2.50"

    def test_equality_is_of_elements(self):
        x = tf.constant([1, 2])
        assert (x == [1, 3]).numpy().tolist() == [True, False]
        assert (x != x).numpy().tolist() == [False, False]
        assert (x == tf.constant([1, 2, 3])) is not None
        assert x != None  # noqa: E711
        with pytest.raises(TypeError, match="unhashable"):
            hash(x)
        assert x.ref() == x.ref() and x.ref().deref() is x
        assert len({x.ref(), x.ref(), tf.constant(1).ref()}) == 2

    def test_operators(self):
        x, y = tf.constant([7.0, 8.0]), tf.constant([2.0, 4.0])
        for op in ("+", "-", "*", "/", "//", "%", "**"):
            expected = eval(f"x {op} y", {"x": x.numpy(), "y": y.numpy()})
            for program in (f"x {op} y", f"x {op} [2.0, 4.0]", f"[7.0, 8.0] {op} y"):
                assert eval(program, {"x": x, "y": y}).numpy().tolist() == expected.tolist()
            assert eval(f"2.0 {op} y", {"y": y}).dtype == tf.float32
        assert (-x).numpy().tolist() == [-7, -8] and abs(-x).numpy().tolist() == [7, 8]
        assert (x > y).numpy().all() and (x >= 7.0).numpy().all() and not (x < y).numpy().any()
        assert (tf.constant(True) & tf.constant(False)).numpy() == np.False_
        assert (~tf.constant([True])).numpy().tolist() == [False]
        assert (tf.constant([1, 2]) / tf.constant([2, 2])).dtype == tf.float64
        m = tf.constant([[1.0, 2.0], [3.0, 4.0]])
        assert (m @ m).numpy().tolist() == [[7, 10], [15, 22]]
        assert (tf.constant(["a"]) + tf.constant(["b"])).numpy().tolist() == [b"ab"]

    @pytest.mark.parametrize(
        "values, dtype, expected",
        [
            ([1, 2], None, np.int32), ((3,), None, np.int32), ([1, 2**31], None, np.int64),
            ([1, 2], tf.int64, np.int64), ([1, 2], tf.float32, np.float32),
            ([1.5, 2.0], None, np.float32), ((1.5,), tf.float64, np.float64),
            ([1, 2.5], None, np.float32), ([2.5, 1], None, np.float32), ([], None, np.float32),
            ([True, False], None, np.bool_), ([[1, 2]], None, np.int32),
            ([1, 2], tf.uint8, np.uint8),
        ],
    )  # fmt: skip
    def test_lists_of_numbers(self, values, dtype, expected):
        for made in (tf.constant(values, dtype), tf.convert_to_tensor(values, dtype)):
            assert made.numpy().dtype == expected
            assert np.array_equal(made.numpy(), np.array(values, expected))

    def test_lists_that_do_not_fit(self):
        for values, dtype in (
            ([1.5], tf.int32),
            ([1, "a"], None),
            ([1, None], None),
        ):
            with pytest.raises((TypeError, ValueError, OverflowError)):
                tf.constant(values, dtype)
            with pytest.raises((TypeError, ValueError, OverflowError)):
                tf.reshape(tf.constant([1.0]), [1.5])
        assert tf.reshape(tf.constant([1.0]), []).shape == ()
        assert tf.reshape(tf.constant([1.0]), [1, tf.constant(1)]).shape == (1, 1)
        # The type of a list is that of the tensor that it stands beside.
        assert (tf.constant([1.0, 2.0], tf.float64) + [1, 2]).dtype is tf.float64
        assert tf.maximum([1, 2], tf.constant([1.5, 1.5])).numpy().tolist() == [1.5, 2.0]

    def test_arrays_keep_what_the_usual_type_would_lose(self):
        assert tf.reshape(tf.zeros([0]), np.int64([1 << 33, 0])).shape == (1 << 33, 0)
        with tf.Graph().as_default():
            assert tf.reshape(tf.zeros([0]), np.int64([1 << 33, 0])).shape == (1 << 33, 0)
            assert tf.reshape(tf.zeros([6]), np.int64([2, 3])).op.inputs[1].dtype is tf.int32

    def test_conversions_of_a_users_own_come_first(self):
        class Two(list):
            pass

        tf.register_tensor_conversion_function(
            Two, lambda value, dtype=None, name=None, as_ref=False: tf.constant("two"), 50
        )
        assert tf.identity(Two([1, 2])).numpy() == b"two"
        assert tf.identity([1, 2]).numpy().tolist() == [1, 2]

    def test_slices(self):
        x = tf.reshape(tf.range(24), [2, 3, 4])
        array = x.numpy()
        for index in (0, -1, (0, 1), (slice(None), 1), (..., 2), (slice(0, 2), None, 1)):
            assert x[index].numpy().tolist() == array[index].tolist()
        assert x[tf.constant(1), 2, 3].numpy() == 23
        assert x[0, ::-1].numpy().tolist() == array[0, ::-1].tolist()

    def test_graphs_only(self):
        x = tf.constant(1.0)
        for name in ("name", "op", "graph"):
            with pytest.raises(AttributeError, match="undefined when eager"):
                getattr(x, name)
        with pytest.raises(NotImplementedError, match=r"\.numpy\(\)"):
            x.eval()

    def test_copies(self):
        x = tf.constant([1.0, 2.0])
        assert copy.copy(x) is x
        assert copy.deepcopy(x).numpy().tolist() == [1, 2]
        restored = pickle.loads(pickle.dumps(x))
        assert restored.dtype == tf.float32 and restored.numpy().tolist() == [1, 2]

    def test_errors_name_the_op_and_the_line(self):
        with pytest.raises(tf.errors.InvalidArgumentError) as raised:
            tf.constant([1.0, 2.0]) + tf.constant([1.0, 2.0, 3.0])
        assert "AddV2" in str(raised.value) and "[2]" in str(raised.value)
        assert "test_eager.py" in str(raised.value)
        with pytest.raises(TypeError, match="int32 that does not match type float32"):
            tf.constant([1.0]) + tf.constant([1])
        with pytest.raises(tf.errors.UnimplementedError, match="Placeholder.*pass the value"):
            tf.raw_ops.Placeholder(dtype=tf.float32)
        with pytest.raises(tf.errors.InvalidArgumentError, match="MatMul"):
            tf.matmul(tf.ones([2, 3]), tf.ones([2, 3]))

    def test_devices(self):
        with tf.device("/CPU:0"):
            assert tf.constant(1.0).device.endswith("/device:CPU:0")
        with pytest.raises(tf.errors.InvalidArgumentError, match="GPU:7"), tf.device("/GPU:7"):
            pass


class TestTape:
    def test_gradient(self):
        x = tf.constant(3.0)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x * x
            z = tf.math.sin(y)
        assert tape.gradient(z, x).numpy() == pytest.approx(6 * np.cos(9.0), rel=1e-5)
        with pytest.raises(RuntimeError, match="non-persistent"):
            tape.gradient(z, x)

    def test_structures_and_unconnected(self):
        x, y = tf.constant(3.0), tf.constant(4.0)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch([x, {"y": y}])
            z = x * x
        found = tape.gradient(z, {"a": x, "b": [y]})
        assert found["a"].numpy() == 6 and found["b"] == [None]
        zeros = tape.gradient(z, [y], unconnected_gradients=tf.UnconnectedGradients.ZERO)
        assert zeros[0].numpy() == 0
        assert tape.gradient([z, x], x, output_gradients=[2.0, 5.0]).numpy() == 17
        with pytest.raises(ValueError, match="unconnected_gradients"):
            tape.gradient(z, x, unconnected_gradients="nonsense")

    def test_second_order(self):
        x = tf.Variable(2.0)
        with tf.GradientTape() as outer:
            with tf.GradientTape() as inner:
                y = x * x * x
            first = inner.gradient(y, x)
        assert first.numpy() == 12
        assert outer.gradient(first, x).numpy() == 12

    def test_recording_stops(self):
        x = tf.constant(3.0)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            with tape.stop_recording():
                hidden = x * x
            y = hidden * x
        assert tape.gradient(y, x).numpy() == 9
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x * x
            tape.reset()
            tape.watch(x)
            z = x * 5.0
        assert tape.gradient([y, z], x).numpy() == 5

    def test_variables(self):
        v = tf.Variable([1.0, 2.0])
        fixed = tf.Variable(3.0, trainable=False)
        with tf.GradientTape() as tape:
            y = v * v * fixed
        found = tape.gradient(y, [v, fixed])
        assert found[0].numpy().tolist() == [6, 12] and found[1] is None
        assert [w is v for w in tape.watched_variables()] == [True]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            y = v * v
        assert tape.gradient(y, v) is None

    def test_rows(self):
        table = tf.Variable(np.ones((5, 2), np.float32))
        with tf.GradientTape() as tape:
            y = tf.gather(table, [3, 1, 3])
        found = tape.gradient(y, table)
        assert isinstance(found, tf.IndexedSlices)
        dense = tf.convert_to_tensor(found).numpy()
        assert dense.tolist() == [[0, 0], [1, 1], [0, 0], [2, 2], [0, 0]]

    def test_custom_gradient(self):
        @tf.custom_gradient
        def clipped(x):
            return tf.identity(x), lambda dy: tf.clip_by_value(dy, -1.0, 1.0)

        x = tf.constant(3.0)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = clipped(x) * 10.0
        assert tape.gradient(y, x).numpy() == 1

    def test_errors_in_rules_are_raised(self):
        @tf.custom_gradient
        def broken(x):
            def gradient(dy):
                raise KeyError("mine")

            return tf.identity(x), gradient

        x = tf.constant(3.0)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = broken(x)
        with pytest.raises(KeyError, match="mine"):
            tape.gradient(y, x)

    def test_training(self):
        rng = np.random.default_rng(0)
        points = rng.normal(size=(64, 2)).astype(np.float32)
        target = points @ np.array([[1.0], [-2.0]], np.float32)
        w = tf.Variable(np.zeros((2, 1), np.float32))
        losses = []
        for _ in range(100):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(tf.matmul(points, w) - target))
            w.assign_sub(0.1 * tape.gradient(loss, w))
            losses.append(float(loss))
        assert losses[-1] < losses[0] / 1000


class TestVariables:
    def test_life(self):
        v = tf.Variable([1.0, 2.0], name="v")
        assert v.name == "v:0" and v.shape == (2,) and v.dtype == tf.float32 and v.trainable
        before = v.read_value()
        assert v.assign([3.0, 4.0]) is v
        v.assign_add([1.0, 1.0])
        assert v.numpy().tolist() == [4, 5] and before.numpy().tolist() == [1, 2]
        v[0]
        assert (v + 1.0).numpy().tolist() == [5, 6] and (1.0 - v)[0].numpy() == -3
        with pytest.raises(ValueError, match="Shape mismatch"):
            v.assign([1.0, 2.0, 3.0])
        v.scatter_add(tf.IndexedSlices(tf.constant([10.0]), tf.constant([1])))
        assert v.numpy().tolist() == [4, 15]
        assert "tf.Variable 'v:0' shape=(2,) dtype=float32" in repr(v)
        assert tf.Variable(lambda: tf.zeros([3]), dtype=tf.float32).shape == (3,)
        with pytest.raises(ValueError, match="initial_value"):
            tf.Variable()

    def test_names_and_scopes(self):
        with tf.name_scope("a"):
            assert tf.Variable(1.0, name="b").name == "a/b:0"
        assert tf.Variable(1.0).name == "Variable:0"

    def test_operands(self):
        x, v = tf.constant([[1.0, 2.0]]), tf.Variable([[3.0], [4.0]])
        with tf.GradientTape() as tape:
            y = x @ v + x * v - v / x
        assert y.numpy().tolist() == [[11.0, 15.5], [11.0, 17.0]]
        assert tape.gradient(y, v).numpy().tolist() == [[5.5], [9.5]]
        with pytest.raises(TypeError, match="float64"):
            x + tf.Variable(1.0, dtype=tf.float64)
        assert (tf.constant([7, 8]) // tf.Variable(2)).numpy().tolist() == [3, 4]
        # One is read where the line says so, not later.
        read = tf.maximum(v, [[0.0], [9.0]])
        v.assign_add([[1.0], [1.0]])
        assert read.numpy().tolist() == [[3.0], [9.0]]

    def test_copies(self):
        v = tf.Variable(2.0)
        other = copy.deepcopy(v)
        other.assign(3.0)
        assert v.numpy() == 2 and pickle.loads(pickle.dumps(v)).numpy() == 2

    def test_creators(self):
        made = []

        def creator(following, **kwargs):
            made.append(kwargs.get("name"))
            return following(**kwargs)

        with tf.variable_creator_scope(creator):
            tf.Variable(1.0, name="x")
        tf.Variable(1.0, name="y")
        assert made == ["x"]


class TestRandom:
    def test_seeds(self):
        tf.random.set_seed(5)
        first = [tf.random.normal([3]).numpy().tolist() for _ in range(3)]
        tf.random.set_seed(5)
        assert [tf.random.normal([3]).numpy().tolist() for _ in range(3)] == first
        assert first[0] != first[1]
        tf.random.set_seed(5)
        a = tf.random.uniform([2], seed=1).numpy().tolist()
        b = tf.random.uniform([2], seed=1).numpy().tolist()
        tf.random.set_seed(5)
        assert a != b and tf.random.uniform([2], seed=1).numpy().tolist() == a
        tf.random.set_seed(None)


def live_bytes() -> int:
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


@measures_memory
class TestMemory:
    def test_many_ops_and_tapes_leave_nothing(self):
        a = tf.constant(1.0)

        def work(ops, tapes):
            x = a
            for _ in range(ops):
                x = x + a
            for _ in range(tapes):
                with tf.GradientTape() as tape:
                    tape.watch(a)
                    y = a * a
                tape.gradient(y, a)

        work(10_000, 1_000)
        before = live_bytes()
        work(1_000_000, 10_000)
        assert live_bytes() - before < 1 << 20

    def test_variables_end(self):
        v = tf.Variable(np.zeros(1 << 20, np.float32))
        del v
        before = live_bytes()
        for _ in range(20):
            tf.Variable(np.zeros(1 << 20, np.float32))
        assert live_bytes() - before < 16 << 20


class TestBothFaces:
    def test_graphs_stay_graphs(self):
        out = run_apart(
            "import millrace.compat.v1 as tf\n"
            "x = tf.constant(1.0) + 2.0\n"
            "print(tf.executing_eagerly(), x.graph is tf.get_default_graph(),"
            " tf.Session().run(x))\n"
            "import sys; print('millrace.eager.tensor' in sys.modules)\n"
        )
        assert out == "False True 3.0\nTrue" or out == "False True 3.0\nFalse"

    def test_types_do_not_turn_it_on(self):
        out = run_apart(
            "import millrace as mr, millrace.compat.v1 as tf\n"
            "mr.float32, mr.TensorShape([1]), mr.errors.OpError\n"
            "print(tf.placeholder(mr.float32).dtype)\n"
        )
        assert out == "<dtype: 'float32'>"

    def test_eager_in_the_old_face(self):
        out = run_apart(
            "import millrace.compat.v1 as tf\n"
            "tf.enable_eager_execution()\n"
            "print((tf.constant(1.0) + 1.0).numpy(), tf.executing_eagerly())\n"
            "with tf.Graph().as_default():\n"
            "  x = tf.constant(5.0) * 2.0\n"
            "  print(tf.executing_eagerly(), tf.Session().run(x))\n"
        )
        assert out == "2.0 True\nFalse 10.0"

    def test_graphs_in_the_new_face(self):
        out = run_apart(
            "import millrace as tf\n"
            "tf.compat.v1.disable_eager_execution()\n"
            "x = tf.add(tf.constant(1.0), 2.0)\n"
            "print(tf.executing_eagerly(), tf.compat.v1.Session().run(x))\n"
        )
        assert out == "False 3.0"

    def test_values_of_eager_tensors_in_graphs(self):
        x = tf.constant([1.0, 2.0])
        with tf.Graph().as_default() as graph:
            y = tf.square(x) + x
            assert y.graph is graph
            with tf.compat.v1.Session() as session:
                assert session.run(y).tolist() == [2, 6]
