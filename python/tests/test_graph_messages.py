"""Graphs and tensors as messages: importing, cutting, freezing."""

import numpy as np
import pytest

import millrace.compat.v1 as tf


@pytest.fixture(autouse=True)
def _fresh_graph():
    tf.reset_default_graph()


def small_graph():
    with tf.Graph().as_default() as graph:
        a = tf.placeholder(tf.float32, [2], name="a")
        b = tf.identity(a, name="b")
        tf.stack([b, a], name="c")
        tf.constant(1.0, name="unused")
    return graph.as_graph_def()


def test_import_returns_what_was_asked_for():
    x = tf.constant([1.0, 2.0])
    c, b = tf.import_graph_def(small_graph(), {"a:0": x}, ["c:0", "b"])
    assert (c.name, b.name, b.type) == ("import/c:0", "import/b", "Identity")
    with tf.Session() as sess:
        np.testing.assert_array_equal(sess.run(c), [[1, 2], [1, 2]])


def test_import_names():
    assert tf.import_graph_def(small_graph()) is None
    assert tf.import_graph_def(small_graph(), return_elements=["c"])[0].name == "import_1/c"
    assert tf.import_graph_def(small_graph(), return_elements=["c"], name="n")[0].name == "n/c"
    assert tf.import_graph_def(small_graph(), return_elements=["c"], name="")[0].name == "c"
    assert tf.import_graph_def(small_graph(), return_elements=["c"], name="")[0].name == "c_1"


def test_import_goes_to_the_open_device():
    with tf.device("/cpu:0"):
        (b,) = tf.import_graph_def(small_graph(), return_elements=["b"])
    assert "CPU:0" in b.device.upper()


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"graph_def": ""}, TypeError, "GraphDef"),
        ({"input_map": [1]}, TypeError, "dictionary"),
        ({"input_map": {"z:0": 1.0}}, ValueError, r"not found in graph_def: \[z:0\]"),
        ({"return_elements": [7]}, TypeError, "strings"),
        ({"return_elements": ["z"]}, ValueError, "'z' not found"),
        ({"input_map": {"a": 1.0}, "name": ""}, ValueError, "non-empty `name`"),
    ],
)
def test_bad_imports(arguments, error, text):
    with pytest.raises(error, match=text):
        tf.import_graph_def(**{"graph_def": small_graph(), **arguments})


def test_sub_graphs():
    graph_def = small_graph()
    assert [n.name for n in tf.graph_util.extract_sub_graph(graph_def, ["b"]).node] == ["a", "b"]
    with pytest.raises(AssertionError, match="z is not in graph"):
        tf.graph_util.extract_sub_graph(graph_def, ["z"])
    plain = tf.graph_util.remove_training_nodes(graph_def)
    assert [n.name for n in plain.node] == ["a", "c", "unused"]
    assert list(plain.node[1].input) == ["a", "a"]


@pytest.mark.parametrize("use_resource", [False, True])
def test_variables_become_constants(use_resource):
    w = tf.get_variable("w", initializer=[1.0, 2.0], use_resource=use_resource)
    tf.identity(w * 2.0, name="out")
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        graph_def = sess.graph.as_graph_def()
        frozen = tf.graph_util.convert_variables_to_constants(sess, graph_def, ["out"])
    with tf.Graph().as_default(), tf.Session() as sess:
        (out,) = tf.import_graph_def(frozen, return_elements=["out:0"])
        np.testing.assert_array_equal(sess.run(out), [2, 4])


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1.5, tf.float32), ([1, 2, 3], tf.int32), ([[1], [2]], tf.int64), ([True, False], tf.bool),
        ([b"a", "b"], tf.string), (1 + 2j, tf.complex64), ([1.5, 2], tf.float16),
        (2.5, tf.bfloat16), ([3, 4], tf.uint64), (7, tf.int8),
    ],
)  # fmt: skip
def test_tensor_messages(value, dtype):
    proto = tf.make_tensor_proto(value, dtype)
    assert proto.dtype == dtype.as_datatype_enum
    array = tf.make_ndarray(tf.TensorProto.FromString(proto.SerializeToString()))
    expected = np.array(value, object if dtype == tf.string else dtype.as_numpy_dtype)
    if dtype == tf.string:
        expected = np.array([b"a", b"b"], object)
    np.testing.assert_array_equal(array, expected)


def test_tensor_messages_of_a_shape():
    assert tf.make_ndarray(tf.make_tensor_proto([1, 2], shape=[4])).tolist() == [1, 2, 2, 2]
    with pytest.raises(ValueError, match="Too many elements"):
        tf.make_tensor_proto([1, 2, 3], shape=[2])
    with pytest.raises(TypeError, match="shape"):
        tf.make_tensor_proto([1, 2], shape=[2, 1], verify_shape=True)


def test_import_waits_for_what_is_waited_for():
    first = tf.no_op(name="first")
    with tf.control_dependencies([first]):
        (a, b) = tf.import_graph_def(small_graph(), return_elements=["a", "b"])
    assert a.control_inputs == [first]
    assert b.control_inputs == []
