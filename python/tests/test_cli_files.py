"""The commands of `millrace` about files: inspect, convert, verify, freeze."""

import json
import os
import xml.dom.minidom

import numpy as np
import pytest
from cli_runs import (
    DATA,
    MODEL,
    SAVED_MODEL,
    TYPES,
    example,
    run,
    shown,
    write_checkpoint,
    write_records,
)

import millrace.compat.v1 as tf
from millrace import _core
from millrace.cli import draw_graph

# Tensors.


@pytest.mark.parametrize("name", ["", "checkpoint", "model-7", "model-7.index",
                                  "model-7.data-00000-of-00001"])  # fmt: skip
def test_a_checkpoint_is_known_by_any_of_its_names(name):
    lines = shown("inspect", MODEL / name).splitlines()
    assert lines[0] == f"checkpoint {MODEL / 'model-7'}"
    assert lines[2].split() == ["b", "float32", "[3]", "12"]
    assert lines[-1] == "6 tensors, 21 elements, 78 bytes and those of 1 tensor of strings"


def test_a_checkpoint_of_version_1():
    assert shown("inspect", DATA / "checkpoints" / "v1").startswith("checkpoint ")


def test_statistics_are_those_of_numpy(tmp_path):
    array = np.random.default_rng(7).normal(3, 2, 300_000).astype(np.float32)
    array[[1, 2, 299_999]] = np.nan, np.inf, -np.inf
    write_checkpoint(tmp_path / "c", {"x": array, "n": np.arange(5), "none": np.zeros([0, 2])})
    text = shown("inspect", tmp_path / "c", "--stats", "--json")
    found = {each["name"]: each["statistics"] for each in json.loads(text)["tensors"]}
    finite = array[np.isfinite(array)]
    x = found["x"]
    assert (x["nan"], x["inf"]) == (1, 2)
    assert (x["min"], x["max"]) == (finite.min(), finite.max())
    assert x["mean"] == pytest.approx(finite.mean(dtype=np.float64), rel=1e-12)
    assert x["std"] == pytest.approx(finite.std(dtype=np.float64), rel=1e-12)
    assert found["n"] == dict(min=0, max=4, mean=2, std=pytest.approx(2**0.5), nan=0, inf=0)
    assert found["none"]["mean"] is None


def test_every_type_has_statistics_and_values():
    names = [line.split()[0] for line in shown("inspect", TYPES, "--stats").splitlines()[2:-1]]
    assert len(names) == 24
    for name in names:
        assert shown("inspect", TYPES, "--values", name).startswith(name)
        json.loads(shown("inspect", TYPES, "--values", name, "--json"))


def test_names_are_chosen_by_pattern():
    text = shown("inspect", TYPES, "--grep", "^q.*8$", "--json")
    assert [each["name"] for each in json.loads(text)["tensors"]] == ["qint8", "quint8"]
    assert "0 tensors" in shown("inspect", TYPES, "--grep", "nothing")


def test_a_wrong_name_is_answered_with_the_nearest():
    code, out, err = run("inspect", TYPES, "--values", "flot32")
    assert (code, out) == (1, "") and "float32" in err


def test_names_do_not_reach_the_terminal_raw(tmp_path):
    write_checkpoint(tmp_path / "c", {"evil\x1b[2J\n": np.zeros(1)})
    assert "evil\\x1b[2J\\n" in shown("inspect", tmp_path / "c")


# Conversion.


def test_there_and_back_keeps_every_bit(tmp_path):
    file, back = tmp_path / "x.safetensors", tmp_path / "back"
    shown("convert", TYPES, file, "--drop-unsupported")
    assert shown("convert", file, back).startswith(f"{back}: 16 tensors")
    ours, theirs = tf.train.NewCheckpointReader(str(back)), tf.train.NewCheckpointReader(str(TYPES))
    types = theirs.get_variable_to_dtype_map()
    for name, dtype in ours.get_variable_to_dtype_map().items():
        assert dtype == types[name]
        np.testing.assert_array_equal(ours.get_tensor(name), theirs.get_tensor(name))
    assert "16 parts read" in shown("verify", back)
    assert sorted(os.listdir(tmp_path)) == ["back.data-00000-of-00001", "back.index", file.name]


def test_the_state_of_random_ops_is_no_tensor_of_a_model(tmp_path):
    with tf.Graph().as_default(), tf.Session() as session:
        session.run(tf.get_variable("v", [2]).initializer)
        path = tf.train.Saver(random_state=True).save(session, str(tmp_path / "model"))
    file = tmp_path / "model.safetensors"
    assert shown("convert", path, file).startswith(f"{file}: 1 tensor,")


def test_all_bits_of_bfloat16_survive(tmp_path):
    bits = np.arange(1 << 16, dtype=np.uint16)
    writer = _core.CheckpointWriter(str(tmp_path / "a"))
    writer.add("x", bits, tf.bfloat16)
    writer.finish()
    shown("convert", tmp_path / "a", tmp_path / "b.safetensors")
    shown("convert", tmp_path / "b.safetensors", tmp_path / "c")
    files = [(tmp_path / f"{name}.data-00000-of-00001").read_bytes() for name in "ac"]
    assert files[0] == files[1] == bits.tobytes()


def test_types_without_a_name_in_safetensors_are_refused(tmp_path):
    code, _, err = run("convert", MODEL, tmp_path / "x.safetensors")
    assert code == 1 and "words (string)" in err and os.listdir(tmp_path) == []


def test_the_name_that_safetensors_keeps_for_itself(tmp_path):
    write_checkpoint(tmp_path / "c", {"__metadata__": np.zeros(1)})
    assert run("convert", tmp_path / "c", tmp_path / "x.safetensors")[0] == 1


@pytest.mark.parametrize("arguments", [[MODEL, "copy"], ["{}/none", "x.safetensors"],
                                       [SAVED_MODEL, "x.safetensors"]])  # fmt: skip
def test_what_cannot_be_converted(tmp_path, arguments):
    code, out, err = run("convert", str(arguments[0]).format(tmp_path), arguments[1])
    assert (code, out, err.count("\n")) == (1, "", 1)


def test_a_conversion_that_fails_leaves_nothing(tmp_path):
    write_checkpoint(tmp_path / "c", {"a": np.zeros(3), "b": np.ones(3)})
    data = tmp_path / "c.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:-1] + b"\0")
    code, _, err = run("convert", tmp_path / "c", tmp_path / "out.safetensors")
    assert code == 1 and err.count("\n") == 1 and "b" in err
    assert sorted(os.listdir(tmp_path)) == [data.name, "c.index"]


# Graphs.


def test_a_meta_graph_by_scope():
    lines = shown("inspect", MODEL / "model-7.meta").splitlines()
    assert lines[1] == "written by: TensorFlow 2.15.1"
    assert "  MatMul  MatMul  float32  <- x, w" in lines
    assert "    part_0  VariableV2  float32  [2,3]" in lines
    assert "  save/  (32 nodes)" in lines


def test_graphs_as_text_and_binary_are_the_same(tmp_path):
    with tf.Graph().as_default() as graph:
        with tf.name_scope("deep"), tf.name_scope("er"):
            tf.constant([[1.0, 2.0]], name="c")
        tf.train.write_graph(graph, str(tmp_path), "g.pbtxt")
        tf.train.write_graph(graph, str(tmp_path), "g.pb", as_text=False)
    text, binary = (shown("inspect", tmp_path / f"g.{end}") for end in ("pbtxt", "pb"))
    assert text.splitlines()[1:] == binary.splitlines()[1:]
    assert "    er/  (1 node)\n      c  Const  float32  [1,2]\n" in text
    assert "[[1. 2.]]" in shown("inspect", tmp_path / "g.pb", "--values", "deep/er/c")
    closed = shown("inspect", tmp_path / "g.pb", "--depth", 1)
    assert "er/" not in closed and "deep/  (1 node)" in closed


def test_a_saved_model_with_its_signatures_and_variables():
    text = shown("inspect", SAVED_MODEL)
    assert "  input x: x:0 float32 [?,2]\n" in text and "\nw     float32  [2,1]      8\n" in text
    described = json.loads(shown("inspect", SAVED_MODEL, "--json"))
    assert described["graphs"][0]["signatures"]["serving_default"]["outputs"] == {"y": "y:0"}
    assert described["variables"]["bytes"] == 8
    values = json.loads(shown("inspect", SAVED_MODEL, "--json", "--values", "w"))
    assert values == {
        "w": tf.train.load_variable(str(SAVED_MODEL / "variables/variables"), "w").tolist()
    }


def test_a_constant_that_claims_to_be_huge(tmp_path):
    graph = tf.GraphDef()
    node = graph.node.add(name="c", op="Const")
    node.attr["value"].tensor.dtype = 1
    node.attr["value"].tensor.tensor_shape.dim.add(size=1 << 40)
    (tmp_path / "g.pb").write_bytes(graph.SerializeToString())
    code, _, err = run("inspect", tmp_path / "g.pb", "--values", "c")
    assert code == 1 and "too many" in err


@pytest.mark.parametrize(("nodes", "boxes"), [(3, 3), (5000, 300), (40, 40)])
def test_drawings(tmp_path, nodes, boxes):
    graph = tf.GraphDef()
    for i in range(nodes):  # with an edge back to the first, which makes a loop
        node = graph.node.add(name=f"s{i}/<n&m>", op="Merge")
        node.input.append(f"s{(i or nodes) - 1}/<n&m>")
    (tmp_path / "g.pb").write_bytes(graph.SerializeToString())
    out = shown("inspect", tmp_path / "g.pb", "--svg", tmp_path / "g.svg")
    assert f" in {boxes} boxes" in out
    drawing = xml.dom.minidom.parse(str(tmp_path / "g.svg"))
    assert len(drawing.getElementsByTagName("title")) == boxes


@pytest.mark.parametrize("seed", range(5))
def test_boxes_stand_apart_and_below_what_they_read(seed):
    random = np.random.default_rng(seed)
    names = [f"n{i}" for i in range(60)]
    edges = {name: set(random.choice(names[:i], min(i, 2))) for i, name in enumerate(names)}
    layers = draw_graph.layers_of(edges)
    row = {name: i for i, layer in enumerate(layers) for name in layer}
    assert all(row[source] < row[name] for name in names for source in edges[name])
    drawing = xml.dom.minidom.parseString(draw_graph.draw({n: ["NoOp"] for n in names}, edges))
    boxes = [(r.getAttribute("x"), r.getAttribute("y")) for r in
             drawing.getElementsByTagName("rect") if r.getAttribute("rx")]  # fmt: skip
    assert len(set(boxes)) == len(names)


def test_scopes_are_closed_until_a_drawing_is_readable(tmp_path):
    graph = tf.GraphDef()
    for i in range(2000):
        graph.node.add(name=f"layer{i % 10}/part{i % 7}/n{i}", op="NoOp")
    (tmp_path / "g.pb").write_bytes(graph.SerializeToString())
    out = shown("inspect", tmp_path / "g.pb", "--svg", tmp_path / "g.svg")
    assert out.endswith("2,000 nodes in 70 boxes\n")


def test_freezing_a_saved_model(tmp_path):
    shown("freeze", SAVED_MODEL, tmp_path / "f.pb")
    graph = tf.GraphDef.FromString((tmp_path / "f.pb").read_bytes())
    assert {node.op for node in graph.node} == {"Const", "Identity", "MatMul", "Placeholder"}
    w = tf.train.load_variable(str(SAVED_MODEL / "variables" / "variables"), "w")
    with tf.Graph().as_default(), tf.Session() as session:
        tf.import_graph_def(graph, name="")
        result = session.run("y:0", {"x:0": [[1.0, 1.0]]})
    np.testing.assert_allclose(result, [[w.sum()]])


def test_freezing_functions_of_variables(tmp_path):
    keras = DATA / "tensorflow" / "keras"
    shown("freeze", keras, tmp_path / "f.pb")
    graph = tf.GraphDef.FromString((tmp_path / "f.pb").read_bytes())
    assert {node.op for node in graph.node} == {"Const", "Placeholder", "StatefulPartitionedCall"}
    ops = {node.op for function in graph.library.function for node in function.node_def}
    assert "Conv2D" in ops and "ReadVariableOp" not in ops and "RestoreV2" not in ops
    image = np.linspace(-1, 1, 50).reshape(2, 5, 5, 1).astype(np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        tf.import_graph_def(graph, name="")
        feed = {"serving_default_image:0": image}
        result = session.run("StatefulPartitionedCall_1:0", feed)
    np.testing.assert_allclose(result, np.load(keras / "expected.npy"), rtol=1e-5)


def test_a_graph_that_writes_variables_in_functions_is_not_frozen(tmp_path):
    keras = DATA / "tensorflow" / "keras"
    restore = "StatefulPartitionedCall_3"
    code, _, err = run("freeze", "--output", restore, keras, tmp_path / "f.pb")
    assert code == 1 and err.count("\n") == 1 and "cannot be frozen" in err
    assert os.listdir(tmp_path) == []


def test_freezing_a_checkpoint(tmp_path):
    assert "constant" in shown("freeze", "--output", "y", MODEL, tmp_path / "f.pb")
    code, _, err = run("freeze", "--output", "yy", MODEL, tmp_path / "g.pb")
    assert code == 1 and "'yy'" in err and not (tmp_path / "g.pb").exists()
    assert run("freeze", MODEL, tmp_path / "g.pb")[0] == 1
    assert run("freeze", "--output", "y", TYPES, tmp_path / "g.pb")[0] == 1


# Records and events.


@pytest.mark.parametrize("compression", ["", "ZLIB", "GZIP"])
def test_records(tmp_path, compression):
    path = tmp_path / "data"  # the name says nothing
    records = [example(label=[i], text=[b"word"], x=[0.5, 1.5]) for i in range(300)]
    write_records(path, [*records, b"raw"], compression)
    lines = shown("inspect", path).splitlines()
    assert lines[1].startswith("301 records, ")
    assert lines[3:6] == [
        "  label: int64 [1]  0", "  text: bytes [1]  b'word'", "  x: float [2]  0.5, 1.5",
    ]  # fmt: skip
    described = json.loads(shown("inspect", path, "--json", "--first", 1))
    assert described["first"][0]["features"]["x"] == [0.5, 1.5]
    assert "301 parts read" in shown("verify", path)


def test_sequence_examples(tmp_path):
    sequence = tf.train.SequenceExample()
    sequence.context.feature["id"].int64_list.value.append(3)
    for _ in range(4):
        step = sequence.feature_lists.feature_list["words"].feature.add()
        step.bytes_list.value.append(b"w")
    write_records(tmp_path / "x.tfrecord", [sequence.SerializeToString()])
    text = shown("inspect", tmp_path / "x.tfrecord")
    assert "  context id: int64 [1]  3\n  list words: 4 steps" in text


def test_events(tmp_path):
    with tf.Graph().as_default() as graph:
        writer = tf.summary.FileWriter(str(tmp_path), graph)
    for step in range(5):
        value = tf.Summary.Value(tag="loss", simple_value=1.0 / (1 + step))
        writer.add_summary(tf.Summary(value=[value]), step)
    writer.close()
    text = shown("inspect", tmp_path)
    assert text.startswith("event file ") and "graph_def: 1\n" in text
    assert text.splitlines()[-1].split() == ["loss", "simple_value", "5", "0..4", "0.2"]
    assert "nothing is damaged" in shown("verify", tmp_path)
