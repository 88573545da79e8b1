"""tf.function: Python functions that are traced and run as graphs."""

import collections
import gc
import threading
import weakref

import numpy as np
import pytest

import millrace as tf
from millrace import _core
from millrace.eager import function as traced_functions
from millrace.graph.default_graph import get_default_graph


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
        with pytest.raises(TypeError, match=r"Can not cast TensorSpec\(shape=\(3,\).*argument x"):
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


class TestCaching:
    def test_arguments_are_bound_as_python_does(self):
        traced = []

        @tf.function
        def f(x, y=2.0, *, scale=1.0):
            traced.append(1)
            return x * y * scale

        x = tf.constant(3.0)
        calls = [f(x), f(x=x), f(x, 2.0), f(x, y=2.0), f(y=2.0, x=x, scale=1.0)]
        assert [float(c) for c in calls] == [6.0] * 5
        assert len(traced) == 1
        with pytest.raises(TypeError, match=r"missing a required argument: 'x'.*f\(x, y=2.0"):
            f()
        with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
            f(x, z=1)

    def test_what_lists_and_dictionaries_of_a_users_own_hold_is_part_of_the_structure(self):
        class Rows(collections.UserList):
            pass

        class Named(collections.UserDict):
            pass

        @tf.function
        def lengths(rows):
            return tf.constant([len(row) for row in rows])

        @tf.function
        def names(by_name):
            return tf.constant(list(by_name)) + by_name["a"]

        a = tf.constant("a")
        assert lengths(Rows([[a], [a, a]])).numpy().tolist() == [1, 2]
        assert lengths(Rows([[a, a], [a]])).numpy().tolist() == [2, 1]
        assert names(Named(a=a, b=a)).numpy().tolist() == [b"aa", b"ba"]
        assert names(Named(a=a, z=a)).numpy().tolist() == [b"aa", b"za"]

    def test_sizes_that_differ_are_left_open_after_some_traces(self):
        shapes = []

        @tf.function
        def f(x):
            shapes.append(x.shape.as_list())
            return tf.reduce_sum(x)

        for n in range(1, 12):
            assert float(f(tf.ones([n, 2]))) == 2 * n
        assert shapes == [[1, 2], [2, 2], [3, 2], [None, 2]]
        assert f.experimental_get_tracing_count() == 4

    def test_reduce_retracing_leaves_them_open_from_the_second_on(self):
        shapes = []

        @tf.function(reduce_retracing=True)
        def f(x):
            shapes.append(x.shape)
            return tf.size(x)

        assert [int(f(tf.ones(s))) for s in ([1, 3], [2, 3], [5, 3], [4], [2, 2, 2])] == [
            3, 6, 15, 4, 8,
        ]  # fmt: skip
        assert [s.rank and s.as_list() for s in shapes] == [[1, 3], [None, 3], None]

    def test_a_function_that_needs_sizes_keeps_them(self):
        traced = []

        @tf.function
        def f(x):
            traced.append(x.shape.as_list())
            return sum(x[i] for i in range(x.shape[0]))

        for n in range(1, 7):
            assert float(f(tf.ones([n]))) == n
        assert [s for s in traced if s != [None]] == [[n] for n in range(1, 7)]

    def test_objects_are_told_apart_and_not_kept(self):
        class Config:
            def __init__(self, by):
                self.by = by

        @tf.function
        def f(x, config):
            return x * config.by

        one, two = Config(1.0), Config(2.0)
        x = tf.constant(3.0)
        assert (float(f(x, one)), float(f(x, two)), float(f(x, one))) == (3, 6, 3)
        assert f.experimental_get_tracing_count() == 2
        gone = weakref.ref(two)
        del two
        gc.collect()
        assert gone() is None
        assert float(f(x, Config(5.0))) == 15

    def test_methods_are_cached_by_object(self):
        class Model:
            def __init__(self, by):
                self.by = by

            @tf.function
            def __call__(self, x):
                return x * self.by

            @tf.function
            def twice(self, x):
                return x * self.by * 2.0

        x = tf.constant(1.0)
        assert [float(Model(float(i)).twice(x)) for i in range(20)] == [2.0 * i for i in range(20)]
        model = Model(3.0)
        assert model.twice == model.twice and model.twice != Model(3.0).twice
        assert float(model.twice(x)) == 6 and float(model(x)) == 3
        assert model.twice.experimental_get_tracing_count() == 1
        gone = weakref.ref(model)
        del model
        assert gone() is None

    def test_many_traces_are_said_once(self, monkeypatch):
        said = []
        monkeypatch.setattr(traced_functions, "warn", said.append)

        @tf.function
        def f(x, n):
            return x + float(n)

        for n in range(9):
            f(tf.constant(1.0), n)
        assert len(said) == 1 and "5 calls of f(x, n) traced it anew" in said[0]
        assert "differ in n: 3 of type int before, 4 of type int now." in said[0]

    def test_bound_methods_are_known_again(self):
        class Scale:
            def by_two(self, x):
                return x * 2.0

        @tf.function
        def f(x, how):
            return how(x)

        scale = Scale()
        assert [float(f(tf.constant(1.0), scale.by_two)) for _ in range(3)] == [2, 2, 2]
        assert f.experimental_get_tracing_count() == 1

    def test_threads_trace_once(self):
        @tf.function
        def f(x):
            return x + 1.0

        found = []
        threads = [
            threading.Thread(target=lambda: found.append(f.get_concrete_function(tf.constant(1.0))))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(found)) == 1 and f.experimental_get_tracing_count() == 1

    def test_arguments_must_stay_as_they_are(self):
        @tf.function
        def f(parts):
            parts.append(tf.constant(1.0))

        with pytest.raises(ValueError, match=r"f\(parts\) should not modify"):
            f([tf.constant(0.0)])


class TestSignatures:
    def test_number_of_arguments(self):
        spec = tf.TensorSpec([None], tf.float32)

        @tf.function(input_signature=[spec, spec])
        def f(x, y):
            return x + y

        with pytest.raises(TypeError, match="missing a required argument: 'y'"):
            f(tf.ones([2]))
        with pytest.raises(TypeError, match="too many positional arguments"):
            f(tf.ones([2]), tf.ones([2]), tf.ones([2]))
        assert f(y=[1.0], x=[2.0]).numpy().tolist() == [3]
        with pytest.raises(TypeError, match="must be either a tuple or a list"):
            tf.function(lambda x: x, input_signature=spec).get_concrete_function()
        with pytest.raises(TypeError, match="missing type constraint for y"):
            tf.function(lambda x, y: x, input_signature=[spec]).get_concrete_function()

    def test_structures_and_defaults(self):
        spec = tf.TensorSpec([], tf.float32)

        @tf.function(input_signature=[{"a": spec, "b": [spec]}, tf.TensorSpec([], tf.bool)])
        def f(parts, add=True):
            assert parts["a"].shape.rank == 0
            return tf.where(add, parts["a"] + parts["b"][0], parts["a"])

        assert float(f({"a": 1.0, "b": [2.0]})) == 3
        assert float(f({"a": 1.0, "b": [2.0]}, add=False)) == 1
        assert f.experimental_get_tracing_count() == 1
        with pytest.raises(TypeError, match="Can not cast {'a': 1.0} to {'a': TensorSpec"):
            f({"a": 1.0})
        with pytest.raises(TypeError, match=r"Can not cast \[1.0, 2.0\] to .*argument parts"):
            f([1.0, 2.0])
        with pytest.raises(TypeError, match="Can not cast .*int32.* to .*float32"):
            f({"a": tf.constant(1), "b": [2.0]})


class TestConcreteFunctions:
    def test_what_it_tells(self):
        w = tf.Variable([1.0, 2.0], name="w")
        frozen = tf.Variable(3.0, trainable=False)

        @tf.function
        def f(x, flag, *, y):
            return {"sum": x * w + y * frozen, "none": None}

        made = f.get_concrete_function(
            tf.TensorSpec([None, 2], tf.float32), True, y=tf.constant(1.0)
        )
        (x, flag), kwargs = made.structured_input_signature
        assert x == tf.TensorSpec([None, 2], tf.float32, "x") and flag is True
        assert kwargs["y"] == tf.TensorSpec([], tf.float32, "y")
        assert made.output_shapes["sum"].as_list() == [None, 2]
        assert made.output_dtypes == {"sum": tf.float32, "none": None}
        assert len(made.inputs) == 4 and len(made.outputs) == 1
        assert [t.dtype for t in made.captured_inputs] == [tf.resource] * 2
        assert {v.name for v in made.variables} == {w.name, frozen.name}
        assert made.trainable_variables == (w,) or made.trainable_variables[0] is w
        assert made.function_def.signature.name == made.name
        assert made.graph.get_operations()

    def test_calls_by_place_and_by_name(self):
        @tf.function
        def f(x, n, pair):
            return x * float(n) + pair[0] - pair[1]

        spec = tf.TensorSpec([], tf.float32)
        made = f.get_concrete_function(spec, 3, (spec, spec))
        x = tf.constant(2.0)
        assert float(made(x, 3, (x, x))) == 6
        assert float(made(x, pair=(x, 1.0))) == 7
        assert float(made(x, x, tf.constant(1.0))) == 7
        assert float(made(x=x, pair_0=x, pair_1=x)) == 6
        with pytest.raises(TypeError, match="traced with int value 3.* called with int value 4"):
            made(x, 4, (x, x))
        with pytest.raises(ValueError, match="must be float32 of shape .*, got int32"):
            made(tf.constant(2), 3, (x, x))
        with pytest.raises(ValueError, match="shape"):
            made(tf.ones([2]), 3, (x, x))
        with pytest.raises(TypeError, match="missing required arguments: pair"):
            made(x)

    def test_names_of_specs(self):
        @tf.function
        def f(pair):
            return pair[0] - pair[1]

        plain = tf.TensorSpec(None, tf.float32)
        first, second = (tf.TensorSpec(None, tf.float32, name) for name in ("first", "second"))
        made = f.get_concrete_function((plain, plain))
        named = f.get_concrete_function((first, second))
        x, y = tf.constant(5.0), tf.constant(3.0)
        assert (float(made(x, y)), float(named(second=y, first=x)), float(f((x, y)))) == (2, 2, 2)
        assert f.experimental_get_tracing_count() == 2

    def test_sparse_values(self):
        @tf.function
        def f(x):
            assert x.values.shape.as_list() == [None]
            assert x.dense_shape.shape.as_list() == [2]
            return x

        for count in (1, 2, 3):
            given = tf.SparseTensor([[i, i] for i in range(count)], [1.0] * count, [4, 4])
            found = f(given)
            assert isinstance(found, tf.SparseTensor)
            parts = [tf.nest.flatten(v, expand_composites=True) for v in (given, found)]
            for a, b in zip(*parts, strict=True):
                assert a.numpy().tolist() == b.numpy().tolist()
        assert f.experimental_get_tracing_count() == 1

    def test_a_function_for_open_sizes_serves_calls(self):
        traced = []

        @tf.function
        def f(x):
            traced.append(1)
            return x + 1.0

        made = f.get_concrete_function(tf.TensorSpec([None], tf.float32))
        assert f(tf.ones([3])).shape == [3] and f.get_concrete_function(tf.ones([7])) is made
        assert traced == [1]

    def test_parts_of_the_body(self):
        outside = tf.constant(10.0)

        @tf.function
        def f(x):
            y = tf.square(x, name="y")
            return y * outside

        made = f.get_concrete_function(tf.constant(1.0))
        part = made.prune(made.inputs[0], "y:0")
        assert float(part(3.0)) == 9 and part.captured_inputs == []
        assert float(made.prune("y:0", made.outputs[0])(4.0)) == 40

    def test_calls_in_graphs_for_sessions(self):
        @tf.function
        def inner(x):
            return tf.cond(x > 0.0, lambda: x * 2.0, lambda: x)

        @tf.function
        def f(x):
            return inner(x) + tf.constant(1.0)

        made = f.get_concrete_function(tf.TensorSpec([], tf.float32))
        with tf.Graph().as_default() as graph:
            x = tf.compat.v1.placeholder(tf.float32, [])
            y = made(x)
            with tf.compat.v1.Session(graph=graph) as session:
                assert session.run([y, f(x)], {x: 3.0}) == [7.0, 7.0]

    def test_values_from_the_time_of_the_call(self):
        value = [1.0]

        @tf.function
        def f(x):
            y = get_default_graph().capture_call_time_value(
                lambda: value[0], tf.TensorSpec([], tf.float32)
            )
            return x + y

        assert float(f(tf.constant(1.0))) == 2
        value[0] = 5.0
        assert float(f(tf.constant(1.0))) == 6


class TestNesting:
    def test_inner_functions_are_traced_once(self):
        traced = []

        @tf.function
        def inner(x):
            traced.append(x.shape)
            return x * x

        @tf.function
        def outer(x):
            y = inner(x)
            assert y.shape == x.shape
            return inner(y) + inner(y)

        assert float(outer(tf.constant(2.0))) == 32
        assert float(inner(tf.constant(3.0))) == 9
        assert len(traced) == 1

    def test_tensors_of_the_outer_function(self):
        @tf.function
        def outer(x, n):
            y = x * 2.0

            @tf.function
            def inner(z):
                return z + y * float(n) + tf.zeros([k])

            k = tf.constant(2)
            return inner(x) * inner(x)

        assert outer(tf.constant(1.0), 3).numpy().tolist() == [49, 49]
        assert outer(tf.constant(1.0), 1).numpy().tolist() == [9, 9]
        x = tf.constant(1.0)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = outer(x, 3)
        assert float(tape.gradient(y, x)) == 2 * 2 * 7 * 7

    def test_changes_in_calls_run_in_order(self):
        v = tf.Variable(1.0)

        @tf.function
        def add(x):
            v.assign_add(x)

        @tf.function
        def double():
            v.assign(v * 2.0)

        @tf.function
        def f(x):
            add(x)
            double()
            before = v.read_value()
            add(x)
            return before

        assert float(f(tf.constant(3.0))) == 8 and float(v) == 11

    def test_calls_wait_for_other_effects_too(self):
        seen = []
        v = tf.Variable(0.0)

        @tf.function
        def note(x):
            v.assign_add(x)
            tf.numpy_function(lambda y: seen.append(float(y)), [x], [])

        @tf.function
        def f():
            note(tf.constant(1.0))
            tf.numpy_function(lambda: seen.append(2.0), [], [])
            note(tf.constant(3.0))

        for _ in range(20):
            f()
        assert seen == [1.0, 2.0, 3.0] * 20 and float(v) == 80

    def test_shapes_and_sizes_go_through_calls(self):
        @tf.function(
            input_signature=[tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([], tf.int32)]
        )
        def inner(x, s):
            return tf.ones(tf.stack([tf.shape(x)[0], s]), tf.int32)

        @tf.function
        def outer(x):
            y = inner(x, 5)
            assert y.shape.as_list() == [3, 5]
            return y

        assert outer(tf.zeros([3, 6], tf.int32)).shape == [3, 5]

    def test_tapes_see_variables_of_inner_functions(self):
        v = tf.Variable(4.0)

        @tf.function
        def f():
            return v**2.0

        @tf.function
        def g():
            return f()

        for _ in range(2):
            with tf.GradientTape() as tape:
                y = g()
            assert [x is v for x in tape.watched_variables()] == [True]
            assert float(tape.gradient(y, v)) == 8


class TestVariablesInFunctions:
    def test_are_made_once(self):
        class Layer:
            def __init__(self):
                self.w = None

            @tf.function
            def __call__(self, x):
                if self.w is None:
                    self.w = tf.Variable(tf.ones([2]) * 3.0, name="w")
                return x * self.w

        layer = Layer()
        assert layer(tf.constant(2.0)).numpy().tolist() == [6, 6]
        layer.w.assign([1.0, 2.0])
        assert layer(tf.constant(2.0)).numpy().tolist() == [2, 4]
        assert layer(tf.constant([1.0, 1.0])).numpy().tolist() == [1, 2]

    def test_values_that_follow_from_arguments(self):
        made = []

        @tf.function
        def f(x):
            if not made:
                made.append(tf.Variable(x * 2.0))
            return made[0] + x

        assert float(f(tf.constant(3.0))) == 9
        assert float(f(tf.constant(1.0))) == 7

    def test_are_not_made_again(self):
        @tf.function
        def f(x):
            v = tf.Variable(1.0)
            return v + x

        with pytest.raises(ValueError, match="singleton tf.Variables(.|\n)*test_eager_function.py"):
            f(tf.constant(1.0))

    def test_as_arguments(self):
        a, b = tf.Variable(1.0), tf.Variable(10.0)

        @tf.function
        def f(v, by):
            v.assign_add(by)
            return v.read_value()

        assert float(f(a, tf.constant(2.0))) == 3 and float(f(b, tf.constant(2.0))) == 12
        assert float(f(a, tf.constant(2.0))) == 5
        assert f.experimental_get_tracing_count() == 2


class TestGradientsOfCalls:
    def test_the_forward_pass_runs_once(self):
        ran = []

        @tf.function
        def f(x):
            y = tf.exp(tf.numpy_function(lambda v: (ran.append(1), v)[1], [x], tf.float32))
            y.set_shape([])
            return x * y

        x = tf.constant(0.0)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        assert float(tape.gradient(y, x)) == 1
        assert ran == [1]

    def test_changes_of_state_happen_once(self):
        v = tf.Variable(1.0)
        count = tf.Variable(0.0, trainable=False)

        @tf.function
        def f(x):
            count.assign_add(1.0)
            return tf.tanh(x * v)

        with tf.GradientTape() as tape:
            y = f(tf.constant(0.5))
        tape.gradient(y, v)
        assert float(count) == 1

    def test_drawn_numbers_are_those_of_the_call(self):
        @tf.function
        def f(x):
            return x * tf.random.uniform([64])

        x = tf.ones([64])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        assert tape.gradient(y, x).numpy().tolist() == y.numpy().tolist()

    def test_orders(self):
        @tf.function
        def f(x):
            return tf.exp(2.0 * tf.sin(x)) * x

        def plain(x):
            return tf.exp(2.0 * tf.sin(x)) * x

        def third(program):
            x = tf.constant(0.7)
            with tf.GradientTape() as t3:
                t3.watch(x)
                with tf.GradientTape() as t2:
                    t2.watch(x)
                    with tf.GradientTape() as t1:
                        t1.watch(x)
                        y = program(x)
                    first = t1.gradient(y, x)
                second = t2.gradient(first, x)
            return [float(v) for v in (first, second, t3.gradient(second, x))]

        assert third(f) == pytest.approx(third(plain), rel=1e-5)

    def test_second_order_on_one_persistent_tape(self):
        @tf.function
        def f(x):
            return tf.exp(x) * x

        x = tf.constant(0.0)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y = f(x)
            first = tape.gradient(y, x)
        assert (float(first), float(tape.gradient(first, x))) == (1, 2)

    def test_loops(self):
        @tf.function
        def power(x, n):
            return tf.while_loop(
                lambda i, _: i < n, lambda i, p: (i + 1, p * x), [tf.constant(0), tf.constant(1.0)]
            )[1]

        x = tf.constant(3.0)
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = power(x, tf.constant(4))
            first = inner.gradient(y, x)
        assert (float(y), float(first), float(outer.gradient(first, x))) == (81, 108, 108)

    def test_rows_stay_rows(self):
        table = tf.Variable(np.ones((1000, 2), np.float32))

        @tf.function
        def f(rows):
            return tf.reduce_sum(tf.gather(table, rows))

        with tf.GradientTape() as tape:
            y = f(tf.constant([1, 5]))
        found = tape.gradient(y, table)
        assert isinstance(found, tf.IndexedSlices)
        assert found.indices.numpy().tolist() == [1, 5]

    def test_gradients_written_in_python(self):
        @tf.custom_gradient
        def clipped(x):
            return x * x, lambda dy: dy * tf.clip_by_value(2.0 * x, -1.0, 1.0)

        @tf.function
        def f(x):
            return clipped(x) * 3.0

        @tf.function
        def g(x):
            return f(x)

        for program in (f, g):
            x = tf.constant(5.0)
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = program(x)
            assert (float(y), float(tape.gradient(y, x))) == (75, 3)

    def test_what_has_no_gradient_may_be_called_under_a_tape(self):
        @tf.function
        def f(x):
            return tf.raw_ops.PreventGradient(input=x, message="not this")

        x = tf.constant(2.0)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y, z = f(x), x * x
        assert float(y) == 2 and float(tape.gradient(z, x)) == 4
        with pytest.raises(LookupError, match="not this"):
            tape.gradient(y, x)

    def test_only_what_is_followed_is_computed(self):
        v = tf.Variable(2.0)

        @tf.function
        def f(x):
            return v * tf.strings.to_number(tf.strings.as_string(x))

        with tf.GradientTape() as tape:
            y = f(tf.constant(3.0))  # x is not watched: that it has no gradient is of no account
        assert float(tape.gradient(y, v)) == 3


def test_functions_run_at_once_when_asked_to():
    ran = []

    @tf.function
    def f(x):
        ran.append(1)
        return x + 1.0

    tf.config.run_functions_eagerly(True)
    try:
        assert tf.config.functions_run_eagerly()
        assert [float(f(tf.constant(1.0))) for _ in range(2)] == [2, 2]
    finally:
        tf.config.run_functions_eagerly(False)
    assert len(ran) == 2


def test_what_is_no_tensor_cannot_be_returned():
    with pytest.raises(TypeError, match="must return zero or more Tensors.* type object"):
        tf.function(lambda: object())()


def test_numbers_from_outside_have_a_known_shape():
    number, shapes = tf.constant(2), []

    @tf.function
    def f():
        shapes.extend([tf.identity(number).shape.rank, (number + 1).shape.rank])
        return number

    assert f().numpy() == 2
    assert shapes == [0, 0]
