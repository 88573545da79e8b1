"""MetaGraphs: out, back, and what is in them."""

import random

import pytest
from tensorflow_twin import FILES, needs_tensorflow, run_tensorflow

import millrace.compat.v1 as tf
from millrace import protos
from millrace.checkpoint import meta_graph


@pytest.fixture(autouse=True)
def _fresh_graph():
    tf.reset_default_graph()


def full_graph():
    """A graph with one of everything that a MetaGraph can hold."""
    w = tf.get_variable("w", [4, 2], partitioner=tf.fixed_size_partitioner(2))
    r = tf.Variable(1.0, name="r", use_resource=True)
    v = tf.Variable(2.0, name="v", trainable=False)
    tf.cond(v < 10.0, lambda: v + 1.0, lambda: v - 1.0)
    total = tf.while_loop(lambda i: i < 10.0, lambda i: i + 1.0, [v])
    queue = tf.FIFOQueue(3, tf.float32)
    tf.train.add_queue_runner(tf.train.QueueRunner(queue, [queue.enqueue(1.0)]))
    for name, value in (("int", 3), ("float", 3.5), ("text", "hello"), ("node", total)):
        tf.add_to_collection(name, value)
    packed = protos.Any()
    packed.Pack(protos.SaverDef(max_to_keep=3))
    tf.add_to_collection("any", packed)
    return w, r, v


def test_out_and_back_is_the_same(tmp_path):
    full_graph()
    for as_text in (False, True):
        path = str(tmp_path / "sub" / f"graph{as_text}.meta")
        exported = tf.train.export_meta_graph(path, as_text=as_text)
        with tf.Graph().as_default() as graph:
            tf.train.import_meta_graph(path)
            graph.clear_collection("savers")
            again = tf.train.export_meta_graph(
                graph_def=protos.GraphDef.FromString(exported.graph_def.SerializeToString())
            )
            assert again == exported
            parts = tf.global_variables()[:2]
            assert parts[0]._get_save_slice_info().spec == "4 2 0,2:0,2"
            assert [v.name for v in tf.trainable_variables()] == ["w/part_0:0", "w/part_1:0", "r:0"]
            assert tf.trainable_variables()[0] is parts[0]
            assert tf.get_collection("int") == [3]
            assert tf.get_collection("text") == [b"hello"]
            assert isinstance(tf.get_collection("node")[0], tf.Tensor)
            assert isinstance(tf.get_collection("queue_runners")[0], tf.train.QueueRunner)


def test_collections_that_cannot_be_messages_are_left_out():
    tf.add_to_collection(object(), 3)
    tf.add_to_collection("mixed", 3)
    tf.add_to_collection("mixed", "three")
    tf.add_to_collection("nameless", object())
    assert not list(tf.train.export_meta_graph().collection_def)


def test_what_is_known_of_ops_and_defaults():
    a = tf.constant(1.0, name="a")
    with tf.device("/cpu:0"):
        tf.matmul([[a]], [[a]], name="product")
    exported = tf.train.export_meta_graph(strip_default_attrs=True, clear_devices=True)
    node = next(n for n in exported.graph_def.node if n.name == "product")
    assert "transpose_a" not in node.attr and "_mr_origin" not in node.attr and not node.device
    assert [op.name for op in exported.meta_info_def.stripped_op_list.op] == [
        "Const", "MatMul", "Pack",
    ]  # fmt: skip
    assert exported.meta_info_def.stripped_default_attrs
    with tf.Graph().as_default() as graph, tf.Session() as sess:
        assert tf.train.import_meta_graph(exported) is None  # nothing to restore
        assert graph.get_operation_by_name("product").get_attr("transpose_a") is False
        assert sess.run("product:0") == [[1.0]]


def test_part_of_a_graph_goes_elsewhere():
    with tf.name_scope("h"):
        a = tf.constant(1.0, name="a")
        w = tf.Variable(2.0, name="w")
        z = tf.add(a, w, name="z")
    with tf.name_scope("k"):
        tf.multiply(z, w, name="u")
    exported, variables = meta_graph.export_scoped_meta_graph(export_scope="h")
    assert [v.name for v in variables.values()] == ["h/w:0"]
    assert {n.name.split("/")[0] for n in exported.graph_def.node} == {"a", "w", "z"}
    copies = meta_graph.copy_scoped_meta_graph("h", "h2")
    with tf.Session() as sess:
        sess.run(copies["w:0"].initializer)
        assert sess.run("h2/z:0") == 3.0
    with pytest.raises(ValueError, match="need to be different"):
        meta_graph.copy_scoped_meta_graph("h", "h")
    exported, _ = meta_graph.export_scoped_meta_graph(export_scope="k")
    with tf.Graph().as_default(), tf.Session() as sess:
        with pytest.raises(ValueError, match="unbound inputs"):
            meta_graph.import_scoped_meta_graph(exported)
        names = ["$unbound_inputs_h/z", "$unbound_inputs_h/w/read"]
        two = tf.constant(2.0)
        meta_graph.import_scoped_meta_graph(
            exported, import_scope="n", input_map=dict.fromkeys(names, two)
        )
        assert sess.run("n/u:0") == 4.0


def test_imports_below_a_scope_and_returns_elements():
    tf.Variable(2.0, name="v")
    tf.identity(tf.constant(1.0), name="one")
    exported = tf.train.export_meta_graph()
    with tf.Graph().as_default():
        variables, (one,) = meta_graph.import_scoped_meta_graph_with_return_elements(
            exported, import_scope="a", return_elements=["one:0"]
        )
        assert one.name == "a/one:0" and variables["v:0"].name == "a/v:0"
        with tf.name_scope("b"):
            assert meta_graph.import_scoped_meta_graph(exported)["v:0"].name == "b/v:0"
        again = meta_graph.import_scoped_meta_graph(exported, import_scope="a")
        assert again["v:0"].name == "a_1/v:0"


def test_functions_for_other_devices_are_left_out():
    @tf.contrib.framework.Defun(tf.float32, func_name="double")
    def double(x):
        return x * 2.0

    tf.identity(double(tf.constant(3.0)), name="six")
    exported = tf.train.export_meta_graph()
    (function,) = exported.graph_def.library.function
    function.node_def[0].attr["_class"].list.s.append(b"loc:@where/it/was/traced")
    twin = exported.graph_def.library.function.add()
    twin.CopyFrom(function)
    twin.signature.name = "twin"
    twin.node_def[0].op = "CudnnRNNV9"
    with tf.Graph().as_default(), tf.Session() as sess:
        tf.train.import_meta_graph(exported)
        assert sess.run("six:0") == 6.0
    function.node_def[0].op = "CudnnRNNV9"
    with tf.Graph().as_default(), pytest.raises(ValueError, match="'CudnnRNNV9'.*'double'"):
        tf.train.import_meta_graph(exported)


def test_files_that_are_no_metagraphs(tmp_path):
    path = tmp_path / "graph.meta"
    with pytest.raises(OSError, match="does not exist"):
        tf.train.import_meta_graph(str(path))
    path.write_bytes(b"\xff\xfe no message at all")
    with pytest.raises(OSError, match="Cannot parse file"):
        tf.train.import_meta_graph(str(path))
    full_graph()
    exported = tf.train.export_meta_graph()
    exported.collection_def["variables"].bytes_list.value[0] = b"\xff"
    with tf.Graph().as_default(), pytest.raises(ValueError, match="collection 'variables'"):
        tf.train.import_meta_graph(exported)


def test_damaged_files_are_errors(tmp_path):
    whole = (FILES / "checkpoint" / "model-7.meta").read_bytes()
    path = tmp_path / "graph.meta"
    seed = random.randrange(1 << 30)
    print("seed", seed)
    choose = random.Random(seed)
    for _ in range(60):
        at = choose.randrange(len(whole))
        flipped = whole[:at] + bytes([whole[at] ^ (1 << choose.randrange(8))]) + whole[at + 1 :]
        path.write_bytes(choose.choice([flipped, whole[:at]]))
        with tf.Graph().as_default():
            try:
                tf.train.import_meta_graph(str(path))
            except (OSError, ValueError, KeyError, TypeError, tf.errors.OpError):
                pass


@needs_tensorflow
def test_tensorflow_reads_what_is_written(tmp_path):
    full_graph()
    path = str(tmp_path / "graph.meta")
    tf.train.export_meta_graph(path)
    printed = run_tensorflow(
        """
        tf.disable_eager_execution()
        tf.train.import_meta_graph(args[0])
        print([v.name for v in tf.global_variables()])
        print(tf.get_collection("int"), tf.get_collection("text"))
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            print(sess.run(tf.get_collection("node")[0]))
        """,
        path,
    )
    assert printed.splitlines() == [
        "['w/part_0:0', 'w/part_1:0', 'r:0', 'v:0']", "[3] [b'hello']", "10.0",
    ]  # fmt: skip


def assigning_in_branches():
    p = tf.placeholder(tf.bool, [], name="p")
    v = tf.Variable(1.0, name="v", use_resource=False)
    first, second = tf.cond(
        p, lambda: (tf.assign(v, 5.0), v * 3.0), lambda: (tf.identity(v), v * 2.0), name="c"
    )
    count = lambda: tf.cast(tf.assign_add(v, 1.0) > 0, tf.int32)  # noqa: E731
    loop = tf.while_loop(
        lambda i: i < 3, lambda i: tf.cond(p, lambda: i + count(), lambda: i + 1), [0]
    )
    tf.identity(first + 0 * second, name="first")
    tf.identity(loop, name="loop")
    tf.group(tf.global_variables_initializer(), name="begin")


def test_branches_that_assign_are_written_for_tensorflow(tmp_path):
    path = str(tmp_path / "m.meta")
    with tf.Graph().as_default():
        assigning_in_branches()
        tf.train.export_meta_graph(path)
    with tf.Graph().as_default() as graph, tf.Session() as session:
        tf.train.import_meta_graph(path)
        session.run("begin")
        assert session.run("first:0", {"p:0": False}) == 1.0
        assert session.run("first:0", {"p:0": True}) == 5.0
        assert session.run(["loop:0"], {"p:0": True}) == [3]
        assert session.run("v:0") == 8.0
        assert {"Switch", "Merge"} <= {node.op for node in graph.as_graph_def().node}


@needs_tensorflow
def test_tensorflow_runs_branches_that_assign(tmp_path):
    path = str(tmp_path / "m.meta")
    with tf.Graph().as_default():
        assigning_in_branches()
        tf.train.export_meta_graph(path)
    printed = run_tensorflow(
        f"""
        tf.disable_eager_execution()
        tf.train.import_meta_graph({path!r})
        with tf.Session() as session:
            session.run("begin")
            print([session.run("first:0", {{"p:0": p}}) for p in (False, True)])
            print(session.run("loop:0", {{"p:0": True}}), session.run("v:0"))
        """
    )
    assert printed.split("\n")[:2] == ["[1.0, 5.0]", "3 8.0"]
