"""Variables, scopes, initializers, partitions and templates."""

import numpy as np
import pytest

import millrace.compat.v1 as tf


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as g:
        yield g


def run(*fetches, feed=None):
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(tf.local_variables_initializer())
        return sess.run(list(fetches), feed)


def test_nodes_of_a_reference_variable(graph):
    v = tf.Variable([1.0, 2.0], name="w")
    assert [op.name for op in graph.get_operations()] == [
        "w/initial_value", "w", "w/Assign", "w/read"
    ]  # fmt: skip
    assert v.dtype.name == "float32_ref" and v.value().name == "w/read:0"
    assert tf.global_variables() == [v] == tf.trainable_variables()


def test_nodes_of_a_resource_variable(graph):
    v = tf.Variable([1.0, 2.0], name="w", use_resource=True)
    assert [op.name for op in graph.get_operations()] == [
        "w/Initializer/initial_value", "w", "w/IsInitialized/VarIsInitializedOp", "w/Assign",
        "w/Read/ReadVariableOp",
    ]  # fmt: skip
    assert v.dtype == tf.float32 and v.handle.dtype == tf.resource


@pytest.mark.parametrize("use_resource", [False, True])
def test_changes(use_resource):
    v = tf.Variable([1.0, 2.0], use_resource=use_resource)
    with tf.Session() as sess:
        sess.run(v.initializer)
        assert sess.run(v.assign([3.0, 4.0])).tolist() == [3, 4]
        assert sess.run(v.assign_add([1.0, 1.0])).tolist() == [4, 5]
        assert sess.run(tf.assign_sub(v, [1.0, 1.0])).tolist() == [3, 4]
        assert sess.run(tf.scatter_add(v, [1], [10.0])).tolist() == [3, 14]
        v.load([7.0, 8.0], sess)
        assert v.eval(sess).tolist() == [7, 8]


@pytest.mark.parametrize("use_resource", [False, True])
def test_gradients_and_operators(use_resource):
    v = tf.Variable([1.0, 2.0], use_resource=use_resource)
    y = tf.reduce_sum(2.0 * v * v - v[0] + (-v))
    (gradient,) = tf.gradients(y, [v])
    assert run(gradient)[0].tolist() == [1, 7]


@pytest.mark.parametrize("use_resource", [False, True])
def test_uninitialized_says_what_to_do(use_resource):
    v = tf.Variable(1.0, name="w", use_resource=use_resource)
    with tf.Session() as sess:
        with pytest.raises(tf.errors.FailedPreconditionError, match="w") as error:
            sess.run(v + 1.0)
        assert "global_variables_initializer" in str(error.value)
        assert sess.run(tf.report_uninitialized_variables()).tolist() == [b"w"]


def test_initial_values_that_read_variables():
    a = tf.Variable(tf.random_uniform([3]))
    b = tf.Variable(a * 2.0)
    c = tf.Variable(b + a)
    x, y, z = run(a, b, c)
    np.testing.assert_allclose(y, 2 * x)
    np.testing.assert_allclose(z, x + y, rtol=1e-6)


def test_variables_inside_branches_and_loops_live_outside():
    def body(i, total):
        v = tf.get_variable("v", [], initializer=tf.constant_initializer(2.0))
        return i + 1, total + v

    _, total = tf.while_loop(lambda i, _: i < 5, body, [0, 0.0])
    assert [v.name for v in tf.global_variables()] == ["v:0"]
    (gradient,) = tf.gradients(total, tf.global_variables())
    assert run(total, gradient) == [10, 5]


def test_initial_value_from_inside_a_branch_is_refused():
    x = tf.placeholder(tf.float32, [])
    with pytest.raises(ValueError, match="lambda"):
        tf.cond(x > 0, lambda: tf.Variable(x * 1.0) + 0.0, lambda: x)


def test_bad_arguments():
    with pytest.raises(ValueError, match="initial_value"):
        tf.Variable()
    with pytest.raises(ValueError, match="shape"):
        tf.Variable(tf.placeholder(tf.float32))
    with pytest.raises(ValueError, match="list, tuple, or set"):
        tf.Variable(1.0, collections="variables")
    with pytest.raises(TypeError, match="iterable"):
        list(tf.Variable([1.0]))


def test_scopes_name_variables_and_operations():
    with tf.name_scope("n"), tf.variable_scope("s") as scope:
        v = tf.get_variable("v", [1])
        w = tf.Variable(1.0, name="w")
        assert scope.original_name_scope == "n/s/"
    assert (v.name, w.name) == ("s/v:0", "n/s/w:0")
    names = []
    for _ in range(2):
        with tf.variable_scope(None, "d"):
            names.append(tf.get_variable("v", [1]).name)
    assert names == ["d/v:0", "d_1/v:0"]


def test_reuse():
    with tf.variable_scope("s"):
        v = tf.get_variable("v", [2])
    with tf.variable_scope("s", reuse=True):
        assert tf.get_variable("v", [2]) is v
        with pytest.raises(ValueError, match="does not exist"):
            tf.get_variable("u", [2])
        with pytest.raises(ValueError, match=r"\(3,\).*\(2,\)"):
            tf.get_variable("v", [3])
        with pytest.raises(ValueError, match="dtype"):
            tf.get_variable("v", [2], dtype=tf.float64)
    with tf.variable_scope("s"), pytest.raises(ValueError, match=r"test_variables\.py:\d+"):
        tf.get_variable("v", [2])
    with tf.variable_scope("s", reuse=tf.AUTO_REUSE):
        assert tf.get_variable("v", [2]) is v
        assert tf.get_variable("u", [2]).name == "s/u:0"


def test_custom_getters_nest():
    order = []

    def getter(tag):
        def ask(inner, name, *args, **kwargs):
            order.append(tag)
            return inner(name, *args, **kwargs)

        return ask

    with (
        tf.variable_scope("a", custom_getter=getter("outer")),
        tf.variable_scope("b", custom_getter=getter("inner")),
    ):
        assert tf.get_variable("v", [1]).name == "a/b/v:0"
    assert order == ["inner", "outer"]


def test_regularizers_and_collections():
    with tf.variable_scope("s", regularizer=tf.reduce_sum):
        tf.get_variable("v", [2], initializer=tf.ones_initializer())
        tf.get_variable("b", [2], regularizer=tf.no_regularizer)
        local = tf.get_local_variable("l", [1])
    assert tf.local_variables() == [local] and not local.trainable
    losses = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
    assert losses[0].name == "s/v/Regularizer/Sum:0" and len(losses) == 2
    assert tf.GraphKeys.VARIABLES == tf.GraphKeys.GLOBAL_VARIABLES


def test_partitions():
    values = np.arange(10, dtype=np.float32).reshape(5, 2)
    v = tf.get_variable("v", initializer=values, partitioner=tf.fixed_size_partitioner(2))
    assert [p.name for p in v] == ["v/part_0:0", "v/part_1:0"]
    assert [p._get_save_slice_info().spec for p in v] == ["5 2 0,3:0,2", "5 2 3,2:0,2"]
    assert np.array_equal(run(v.as_tensor())[0], values)
    (first, second) = tf.gradients(tf.reduce_sum(v.as_tensor() ** 2), list(v))
    assert np.array_equal(np.concatenate(run(first, second)), 2 * values)
    with pytest.raises(ValueError, match="one dimension"):
        tf.get_variable("w", [4, 4], partitioner=lambda shape, dtype: [2, 2])


def test_partitioners():
    shape = tf.TensorShape([100, 10])
    assert tf.variable_axis_size_partitioner(400)(shape=shape, dtype=tf.float32) == [10, 1]
    assert tf.min_max_variable_partitioner(8, min_slice_size=1000)(
        shape=shape, dtype=tf.float32
    ) == [4, 1]


def test_messages_round_trip():
    for use_resource in (False, True):
        v = tf.Variable([1.0], name="v", use_resource=use_resource)
        w = tf.Variable.from_proto(v.to_proto())
        assert (w.name, w.op, w.initializer) == (v.name, v.op, v.initializer)
        assert w.shape.as_list() == [1] and w.dtype == v.dtype


def test_templates():
    def layer(x):
        return x * tf.get_variable("w", [], initializer=tf.constant_initializer(3.0))

    scale = tf.make_template("scale", layer)
    assert run(scale(1.0), scale(2.0)) == [3, 6]
    assert [v.name for v in scale.variables] == ["scale/w:0"]
    fresh = tf.make_template("fresh", lambda: tf.Variable(1.0))
    fresh()
    with pytest.raises(ValueError, match="get_variable"):
        fresh()


@pytest.mark.parametrize(
    "make, low, high, std",
    [
        (tf.random_uniform_initializer(-1, 1, seed=1), -1, 1, 0.577),
        (tf.random_normal_initializer(stddev=2.0, seed=1), -20, 20, 2),
        (tf.truncated_normal_initializer(seed=1), -2, 2, 0.88),
        (tf.glorot_uniform_initializer(seed=1), -0.174, 0.174, 0.1),
        (tf.variance_scaling_initializer(seed=1), -0.23, 0.23, 0.1),
        (tf.uniform_unit_scaling_initializer(seed=1), -0.174, 0.174, 0.1),
    ],
)
def test_random_initializers(make, low, high, std):
    value = run(make([100, 100]))[0]
    assert low <= value.min() and value.max() <= high
    assert value.std() == pytest.approx(std, rel=0.03)
    again = type(make).from_config(make.get_config())
    np.testing.assert_array_equal(run(again([100, 100]))[0], value)


def test_plain_initializers():
    assert run(tf.constant_initializer([1, 2])([2, 2]))[0].tolist() == [[1, 2], [2, 2]]
    assert run(tf.initializers.identity(gain=2.0)([2, 3]))[0].tolist() == [[2, 0, 0], [0, 2, 0]]
    with pytest.raises(TypeError, match="shape"):
        tf.constant_initializer([1, 2], verify_shape=True)([3])
    with pytest.raises(ValueError, match="floating"):
        tf.truncated_normal_initializer(dtype=tf.int32)


def test_creators_see_every_variable():
    def renamed(create, **kwargs):
        kwargs["name"] = "mine"
        return create(**kwargs)

    with tf.variable_creator_scope(renamed):
        assert tf.Variable(1.0).name == "mine:0"


def test_variables_are_true_unless_they_are_resources():
    """Programs ask `if step:` whether there is a variable."""
    with tf.Graph().as_default():
        assert tf.Variable(0.0) and not hasattr(tf.Variable([1.0]), "__len__")
        with pytest.raises(TypeError, match="as a Python `bool` is not allowed"):
            bool(tf.Variable(0.0, use_resource=True))
