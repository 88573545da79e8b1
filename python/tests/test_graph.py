"""Graphs: names, scopes, devices, order, collections; operators; gradients of one's own."""

import gc
import threading
import weakref

import numpy as np
import pytest

import millrace.compat.v1 as tf


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def value(tensor, feed=None):
    with tf.Session() as session:
        return session.run(tensor, feed)


def test_names_are_unique_below_their_scopes():
    assert tf.constant(1, name="a").name == "a:0"
    assert tf.constant(1, name="a").name == "a_1:0"
    with tf.name_scope("s") as scope:
        assert scope == "s/"
        assert tf.constant(1, name="a").op.name == "s/a"
        with tf.name_scope("t"):
            assert (tf.constant(1.0) + 1.0).op.name == "s/t/add"
    with tf.name_scope("s"):
        assert tf.constant(1, name="a").op.name == "s_1/a"
    with tf.name_scope("s/"):
        assert tf.constant(1, name="b").op.name == "s/b"
    for bad in ("a b", "_x", "-y", "a:0"):
        with pytest.raises(ValueError, match="not a valid"):
            tf.constant(1, name=bad)


def test_elements_are_found_by_name(graph):
    a = tf.constant(1, name="a")
    assert graph.get_tensor_by_name("a:0") is a
    assert graph.get_operation_by_name("a") is a.op
    assert graph.as_graph_element(a.op) is a.op
    with pytest.raises(KeyError, match="aa"):
        graph.get_tensor_by_name("aa:0")
    with pytest.raises(KeyError, match="only has 1"):
        graph.get_tensor_by_name("a:1")
    with tf.Graph().as_default():
        b = tf.constant(2)
    with pytest.raises(ValueError, match="not an element"):
        graph.as_graph_element(b)


def test_devices_are_merged_from_outside_in():
    with tf.device("/job:ps/task:1"):
        with tf.device("/cpu:0"):
            assert tf.constant(1).device == "/job:ps/task:1/device:CPU:0"
        with tf.device(None):
            assert tf.constant(1).device == ""
        with tf.device(lambda op: "/gpu:1" if op.type == "Const" else "/cpu:0"):
            a = tf.constant(1.0)
            assert a.device == "/job:ps/task:1/device:GPU:1"
            assert (-a).device == "/job:ps/task:1/device:CPU:0"
    with pytest.raises(ValueError, match="nowhere"), tf.device("nowhere"):
        pass


def test_control_dependencies_order_operations():
    a = tf.constant(1.0, name="a")
    with tf.control_dependencies([a]):
        b = tf.constant(2.0, name="b")
        c = tf.identity(b, name="c")  # waits by way of b
        with tf.control_dependencies(None):
            d = tf.constant(3.0, name="d")
    assert [op.name for op in b.op.control_inputs] == ["a"]
    assert c.op.control_inputs == [] and d.op.control_inputs == []


def test_collections_and_colocation(graph):
    a = tf.constant(1.0, name="a")
    tf.add_to_collection("mine", a)
    assert tf.get_collection("mine") == [a]
    assert tf.get_collection("mine", scope="b") == []
    with tf.colocate_with(a):
        b = tf.constant(2.0)
    assert b.op.colocation_groups() == [b"loc:@a"]


def test_a_finalized_graph_cannot_be_changed(graph):
    x = tf.constant(1.0)
    graph.finalize()
    with pytest.raises(RuntimeError, match=r'finalized(.|\n)*Add "later"(.|\n)*test_graph.py'):
        tf.add(x, x, name="later")
    with pytest.raises(RuntimeError, match=r"finalized(.|\n)*test_graph.py"):
        tf.gradients(x, x)


def in_thread(function):
    """What the function gives in a thread of its own."""
    out = []
    thread = threading.Thread(target=lambda: out.append(function()))
    thread.start()
    thread.join()
    return out[0]


def test_scopes_are_those_of_a_thread(graph):
    def build():
        with graph.as_default():
            v = tf.get_variable("v", [], use_resource=True)
            with tf.name_scope("inner"), tf.variable_scope("own"):
                x = tf.constant(1.0, name="x")
                return v.name, x.name, x.op.control_inputs, tf.get_variable_scope().name

    first = tf.no_op("first")
    with tf.name_scope("a"), tf.variable_scope("b"), tf.control_dependencies([first]):
        assert in_thread(build) == ("v:0", "inner/own/x:0", [], "own")
        y = tf.constant(2.0, name="y")
        assert y.name == "a/b/y:0" and y.op.control_inputs == [first]
        assert tf.get_variable_scope().name == "b"


def test_devices_are_those_of_a_thread_once_asked_for(graph):
    def build():
        with graph.as_default():
            before = tf.no_op()
            with graph.device("/device:CPU:1"):
                return before.device, tf.no_op().device, list(before.colocation_groups())

    with graph.device("/job:a"):
        assert in_thread(build)[:2] == ("/job:a", "/job:a/device:CPU:1")
        graph.switch_to_thread_local()
        with graph.device("/job:b"):
            assert in_thread(build)[:2] == ("/job:a", "/job:a/device:CPU:1")
        with graph.colocate_with(tf.no_op("partner")):
            assert in_thread(build)[2] != [b"loc:@partner"]


def test_operators_are_those_of_numpy():
    x, y = np.array([7.0, -3.0], np.float32), np.array([2.0, 2.0], np.float32)
    a, b = tf.constant(x), tf.constant(y)
    pairs = [
        (a + b, x + y), (a - b, x - y), (a * b, x * y), (a / b, x / y), (a // b, x // y),
        (a % b, x % y), (a**b, x**y), (-a, -x), (abs(a), abs(x)), (a < b, x < y), (a <= b, x <= y),
        (a > b, x > y), (a >= b, x >= y), (1.0 + a, 1 + x), (1.0 - a, 1 - x), (2.0 * a, 2 * x),
        (1.0 / a, 1 / x), (x + b, x + y), (x * b, x * y), ((a > b) & (a < b), (x > y) & (x < y)),
        ((a > b) | (a < b), (x > y) | (x < y)), (~(a > b), ~(x > y)),
    ]  # fmt: skip
    got = value([tensor for tensor, _ in pairs])
    for array, (_, expected) in zip(got, pairs, strict=True):
        np.testing.assert_allclose(array, expected, rtol=1e-6)
    m = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(value(tf.constant(m) @ m.T), m @ m.T)


def test_indexing_is_that_of_numpy():
    array = np.arange(60).reshape(3, 4, 5)
    t = tf.constant(array)
    plain = (0, -1, (1, 2), slice(1, 3), (slice(None), slice(None, None, -1)))
    special = (Ellipsis, (Ellipsis, 0), (0, Ellipsis, None), (None, 2))
    for index in (*plain, *special, (slice(0, 3, 2), 1, slice(3, 0, -2))):
        np.testing.assert_array_equal(value(t[index]), array[index])
    assert value(t[tf.constant(1), 2, 3]) == array[1, 2, 3]


def test_conversion_can_be_registered():
    class Celsius:
        def __init__(self, degrees):
            self.degrees = degrees

    def convert(x, dtype=None, name=None, as_ref=False):
        return tf.constant(x.degrees + 273.15, dtype or tf.float32, name=name)

    tf.register_tensor_conversion_function(Celsius, convert)
    assert value(tf.add(Celsius(0.0), 1.0)) == np.float32(274.15)


def test_gradients_of_ones_own():
    @tf.RegisterGradient("TestTripled")
    def tripled(op, dy):
        return 3.0 * dy * op.inputs[0]

    x = tf.constant(2.0)
    with tf.get_default_graph().gradient_override_map({"Square": "TestTripled"}):
        y = tf.square(x)
    assert value(tf.gradients(y, x)) == [6.0]
    with pytest.raises(KeyError, match="TestTripled"):
        tf.RegisterGradient("TestTripled")(tripled)

    @tf.custom_gradient
    def capped(v):
        return tf.identity(v), lambda dy: tf.minimum(dy, 1.0)

    assert value(tf.gradients(5.0 * capped(x), x)) == [1.0]
    inside = tf.while_loop(lambda i, v: i < 2, lambda i, v: (i + 1, 3.0 * capped(v)), [0, x])[1]
    assert value(tf.gradients(inside, x)) == [1.0]


def test_an_error_in_a_gradient_rule_is_raised_as_it_is():
    @tf.custom_gradient
    def broken(v):
        def rule(dy):
            raise KeyError("in the rule")

        return tf.identity(v), rule

    x = tf.constant(1.0)
    with pytest.raises(KeyError, match="in the rule"):
        tf.gradients(broken(x), x)


def test_a_gradient_rule_that_gives_another_shape_is_an_error():
    @tf.custom_gradient
    def broken(v):
        return v * 2, lambda dy: tf.ones([5])

    @tf.RegisterGradient("GivesAnotherShape")
    def rule(op, dy):
        return tf.IndexedSlices(tf.ones([1, 9]), tf.constant([0]), tf.constant([4, 9]))

    x = tf.placeholder(tf.float32, [2, 2])
    with pytest.raises(ValueError, match=r"Input index: 1 .*\(2, 2\).*\(5,\)(.|\n)*test_graph.py"):
        tf.gradients(broken(x), x)
    with tf.get_default_graph().gradient_override_map({"Identity": "GivesAnotherShape"}):
        y = tf.identity(x, name="same")
    with pytest.raises(ValueError, match=r"same \(Identity\).*\(2, 2\).*\(4, 9\)"):
        tf.gradients(y, x)


def test_an_op_without_a_gradient_is_named_with_the_way_to_it():
    x = tf.placeholder(tf.float32, [2])
    y = tf.unique(x * 2, name="opaque")[0]
    with pytest.raises(LookupError, match=r"'opaque' \(op type: Unique\)") as error:
        tf.gradients(tf.reduce_sum(y, name="total"), x)
    for part in ("total <- opaque <- mul <- Placeholder:0", "RegisterGradient", "test_graph.py"):
        assert part in str(error.value)


@pytest.mark.parametrize(
    "op",
    [
        lambda x: tf.unique(x)[0],
        lambda x: tf.bitcast(tf.complex(x, x), tf.complex64),
        lambda x: tf.image.adjust_hue(tf.reshape(x, [1, 1, 3]), 0.1),
        lambda x: tf.scatter_update(tf.Variable(tf.zeros([4, 3]), use_resource=False), [0], [x]),
        lambda x: tf.raw_ops.ScatterMax(
            ref=tf.Variable(tf.zeros([4, 3]), use_resource=False)._ref(), indices=[0], updates=[x]
        ),
    ],
)
def test_what_tensorflow_does_not_declare_constant_is_an_error(op):
    x = tf.constant([1.0, 2.0, 3.0])
    with pytest.raises(LookupError, match="No gradient defined"):
        tf.gradients(tf.abs(op(x)), x)


def test_a_rule_goes_with_its_graph():
    @tf.custom_gradient
    def doubled(v):
        return v * 2, lambda dy: dy * 2

    with tf.Graph().as_default() as inner:
        x = tf.constant(1.0)
        assert value(tf.gradients(doubled(x), x)) == [2]
        gone = weakref.ref(inner)
    del inner, x
    gc.collect()
    assert gone() is None


def test_numbers_in_lists_have_the_types_of_python_numbers():
    kinds = {
        tf.float32: [[1.5], [np.float64(1.5), 2], (np.float32(1), 2.0), [[1], [2.0]]],
        tf.int32: [[1], [np.int64(1), np.int64(2)], [np.int16(3), 2], [np.array(3)]],
        tf.int64: [[1 << 40], [np.int64(1 << 40)], np.int64(1), np.arange(2)],
        tf.float64: [np.float64(1.5), np.ones(2), [np.ones(2)]],
        tf.uint8: [[np.uint8(3)], np.uint8(3)],
    }
    with tf.Graph().as_default():
        for dtype, values in kinds.items():
            assert [tf.convert_to_tensor(value).dtype for value in values] == [dtype] * len(values)


def test_lists_may_be_any_iterable():
    v, w = tf.Variable(1.0), tf.Variable(2.0)
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    for variables in ((x for x in (v, w)), {1: v, 2: w}.values(), map(lambda x: x, (v, w))):
        assert [x for _, x in optimizer.compute_gradients(v * w, var_list=variables)] == [v, w]
    assert len(tf.gradients(v * w, {1: v, 2: w}.values())) == 2
    assert len(tf.gradients((y for y in (v * w, w)), iter([v]))) == 1
    assert optimizer.minimize(v * w, var_list=iter([v])).type in (
        "AssignSub",
        "NoOp",
        "ApplyGradientDescent",
    )
    assert tf.global_norm(x for x in (v, w)).shape == []


@pytest.mark.parametrize(
    "call, kind, parts",
    [
        (
            lambda: tf.constant([[1], [2, 3]], name="c"),
            ValueError,
            ["[2], but wanted [2, 1]", "[1] has length 2", "'c'"],
        ),
        (lambda: tf.constant([["a"], "b"]), ValueError, ["wanted [2, 1]", "[1] is no list"]),
        (
            lambda: tf.constant("a", tf.float32, name="c"),
            TypeError,
            ["Expected float32, got 'a'", "'c'"],
        ),
        (lambda: tf.matmul([[1.0], [2.0, 3.0]], [[1.0]]), ValueError, ["dense", "'a' of 'MatMul'"]),
        (
            lambda: tf.nn.relu(None),
            ValueError,
            ["None values not supported", "'features' of 'Relu'"],
        ),
        (lambda: tf.nn.relu(object()), TypeError, ["Cannot convert", "'features' of 'Relu'"]),
        (
            lambda: tf.reshape(tf.ones([2]), tf.constant([1.0], name="to")),
            TypeError,
            ["'to:0' (float32, shape [1])", "'shape' of 'Reshape'"],
        ),
        (
            lambda: tf.concat([tf.ones([2], name="a"), tf.ones([2], tf.int32, name="b")], 0),
            TypeError,
            ["'a:0' (float32", "'b:0' (int32", "ConcatV2"],
        ),
        (
            lambda: tf.ones([2], name="a") + tf.ones([2], tf.int32, name="b"),
            TypeError,
            ["'a:0'", "'b:0'", "tf.cast"],
        ),
        (
            lambda: tf.train.AdamOptimizer().minimize(tf.ones([]), var_list=[]),
            ValueError,
            ["No variables to optimize", "ones"],
        ),
        (
            lambda: tf.train.AdamOptimizer().apply_gradients([]),
            ValueError,
            ["No variables provided"],
        ),
        (
            lambda: tf.get_default_graph().create_op("MatMull", [], []),
            ValueError,
            ["'MatMull'", "'MatMul'"],
        ),
        (
            lambda: tf.import_graph_def(nodes("Placeholdr")),
            ValueError,
            ["'Placeholdr'", "'node'", "Placeholder"],
        ),
        (
            lambda: tf.import_graph_def(in_function("Constt")),
            ValueError,
            ["'Constt'", "'function'", "Const"],
        ),
    ],
)
def test_mistakes_name_the_op_the_operands_and_the_line(call, kind, parts):
    with pytest.raises(kind) as error:
        call()
    for part in [*parts, "test_graph.py"]:
        assert part in str(error.value)


def nodes(op):
    return tf.GraphDef(node=[tf.NodeDef(name="node", op=op)])


def in_function(op):
    graph_def = tf.GraphDef()
    function = graph_def.library.function.add()
    function.signature.name = "function"
    function.node_def.add(name="inside", op=op)
    return graph_def


def test_an_operation_that_cannot_be_placed_names_its_line():
    with tf.device("/device:GPU:7"):
        x = tf.no_op("far")
    unplaced = pytest.raises(tf.errors.InvalidArgumentError, match=r'"far"(.|\n)*test_graph.py')
    with tf.Session() as session, unplaced:
        session.run(x)


def test_hessians_and_unconnected_gradients():
    x = tf.constant([1.0, 2.0])
    (h,) = tf.hessians(tf.reduce_sum(x**3), x)
    np.testing.assert_allclose(value(h), [[6, 0], [0, 12]])
    z = tf.constant(1.0)
    assert tf.gradients(z, x) == [None]
    assert value(tf.gradients(z, x, unconnected_gradients="zero"))[0].tolist() == [0, 0]


def test_tensor_is_the_base_of_all_tensors_and_made_by_operations_only():
    x = tf.constant([1.0, 2.0])
    assert isinstance(x, tf.Tensor) and type(x) is not tf.Tensor
    assert isinstance(tf.placeholder(tf.float32) + 1.0, tf.Tensor)
    assert not isinstance(tf.Variable(1.0), tf.Tensor)
    for cls in (tf.Tensor, type(x)):
        with pytest.raises(TypeError, match="cannot be made directly"):
            cls(x.op, 0, tf.float32)
    with pytest.raises(NotImplementedError):  # what each kind of tensor says for itself
        tf.Tensor.shape.fget(x)


def test_what_is_set_on_the_class_tensor_holds_for_all_tensors(monkeypatch):
    monkeypatch.setattr(tf.Tensor, "__add__", lambda a, b: "added")
    monkeypatch.setattr(tf.Tensor, "rank", property(lambda t: t.shape.ndims), raising=False)
    x = tf.zeros([2, 3])
    assert x + x == "added" and x.rank == 2


def test_a_conversion_registered_for_the_class_tensor_is_one_for_all_tensors():
    class Wrapped:
        pass

    tf.register_tensor_conversion_function(
        Wrapped, lambda value, dtype=None, name=None, as_ref=False: tf.constant(3.0)
    )
    assert isinstance(tf.convert_to_tensor(Wrapped()), tf.Tensor)


def test_what_a_thread_leaves_open_ends_with_it():
    graph = tf.Graph()

    def leave_open(graph):
        graph.as_default().__enter__()
        tf.name_scope("left").__enter__()
        tf.control_dependencies([tf.no_op()]).__enter__()
        return tf.constant(1.0).op.name

    assert in_thread(lambda graph=graph: leave_open(graph)) == "left/Const"
    with graph.as_default():
        later = tf.constant(1.0)
    assert later.op.name == "Const" and not later.op.control_inputs
    gone = weakref.ref(graph)
    del graph, later
    gc.collect()
    assert gone() is None


def test_a_graph_in_the_place_of_one_that_is_gone_has_no_scope_open():
    for _ in range(20):
        graph = tf.Graph()
        graph.name_scope("left").__enter__()
        assert graph.get_name_scope() == "left"
        del graph
        assert tf.Graph().get_name_scope() == ""


def test_operations_know_what_they_were_made_for():
    graph = tf.get_default_graph()
    a = tf.constant(0.0)
    with graph._original_op(a.op):
        b = tf.identity(a)
        with graph._original_op(b.op):
            c = tf.placeholder(tf.float32)
    assert c.op._original_op is b.op and b.op._original_op is a.op and a.op._original_op is None
