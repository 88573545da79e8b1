"""The commands of `millrace` about files: inspect, convert, verify, freeze."""

import json
import os
import shutil
import signal
import subprocess
import sys
import xml.dom.minidom
from pathlib import Path

import numpy as np
import pytest

import millrace.compat.v1 as tf
from millrace import _core
from millrace.__main__ import main

DATA = Path(__file__).resolve().parents[2] / "tests" / "data"
MODEL = DATA / "tensorflow" / "checkpoint"
TYPES = DATA / "checkpoints" / "types"
SAVED_MODEL = DATA / "tensorflow" / "saved_model"


@pytest.fixture
def millrace(capfd):
    """Runs a command; gives (exit code, what it printed, what it complained of)."""

    def run(*arguments):
        capfd.readouterr()
        try:
            code = main([str(a) for a in arguments])
        except SystemExit as error:
            code = error.code
        out, err = capfd.readouterr()
        return code, out, err

    return run


@pytest.fixture
def shown(millrace):
    """Runs a command that must succeed; gives what it printed."""

    def run(*arguments):
        code, out, err = millrace(*arguments)
        assert (code, err) == (0, "")
        return out

    return run


def write_records(path, records, compression=""):
    with tf.python_io.TFRecordWriter(str(path), compression) as writer:
        for record in records:
            writer.write(record)


def example(**features):
    kinds = {bytes: "bytes_list", float: "float_list", int: "int64_list"}
    out = tf.train.Example()
    for name, values in features.items():
        getattr(out.features.feature[name], kinds[type(values[0])]).value.extend(values)
    return out.SerializeToString()


# Tensors.


@pytest.mark.parametrize("name", ["", "checkpoint", "model-7", "model-7.index",
                                  "model-7.data-00000-of-00001"])  # fmt: skip
def test_a_checkpoint_is_known_by_any_of_its_names(shown, name):
    lines = shown("inspect", MODEL / name).splitlines()
    assert lines[0] == f"checkpoint {MODEL / 'model-7'}"
    assert lines[2].split() == ["b", "float32", "[3]", "12"]
    assert lines[-1] == "6 tensors, 21 elements, 78 bytes and those of 1 tensor of strings"


def test_a_checkpoint_of_version_1(shown):
    assert shown("inspect", DATA / "checkpoints" / "v1").startswith("checkpoint ")


def test_statistics_are_those_of_numpy(shown, tmp_path):
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


def test_every_type_has_statistics_and_values(shown):
    names = [line.split()[0] for line in shown("inspect", TYPES, "--stats").splitlines()[2:-1]]
    assert len(names) == 24
    for name in names:
        assert shown("inspect", TYPES, "--values", name).startswith(name)
        json.loads(shown("inspect", TYPES, "--values", name, "--json"))


def test_names_are_chosen_by_pattern(shown):
    text = shown("inspect", TYPES, "--grep", "^q.*8$", "--json")
    assert [each["name"] for each in json.loads(text)["tensors"]] == ["qint8", "quint8"]
    assert "0 tensors" in shown("inspect", TYPES, "--grep", "nothing")


def test_a_wrong_name_is_answered_with_the_nearest(millrace):
    code, out, err = millrace("inspect", TYPES, "--values", "flot32")
    assert (code, out) == (1, "") and "float32" in err


def test_names_do_not_reach_the_terminal_raw(shown, tmp_path):
    write_checkpoint(tmp_path / "c", {"evil\x1b[2J\n": np.zeros(1)})
    assert "evil\\x1b[2J\\n" in shown("inspect", tmp_path / "c")


# Conversion.


def write_checkpoint(prefix, arrays):
    writer = _core.CheckpointWriter(str(prefix))
    for name, array in arrays.items():
        writer.add(name, array, array.dtype)
    writer.finish()


def test_there_and_back_keeps_every_bit(shown, tmp_path):
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


def test_all_bits_of_bfloat16_survive(shown, tmp_path):
    bits = np.arange(1 << 16, dtype=np.uint16)
    writer = _core.CheckpointWriter(str(tmp_path / "a"))
    writer.add("x", bits, tf.bfloat16)
    writer.finish()
    shown("convert", tmp_path / "a", tmp_path / "b.safetensors")
    shown("convert", tmp_path / "b.safetensors", tmp_path / "c")
    files = [(tmp_path / f"{name}.data-00000-of-00001").read_bytes() for name in "ac"]
    assert files[0] == files[1] == bits.tobytes()


def test_types_without_a_name_in_safetensors_are_refused(millrace, tmp_path):
    code, _, err = millrace("convert", MODEL, tmp_path / "x.safetensors")
    assert code == 1 and "words (string)" in err and os.listdir(tmp_path) == []


@pytest.mark.parametrize("arguments", [[MODEL, "copy"], ["{}/none", "x.safetensors"],
                                       [SAVED_MODEL, "x.safetensors"]])  # fmt: skip
def test_what_cannot_be_converted(millrace, tmp_path, arguments):
    code, out, err = millrace("convert", str(arguments[0]).format(tmp_path), arguments[1])
    assert (code, out, err.count("\n")) == (1, "", 1)


def test_a_conversion_that_fails_leaves_nothing(millrace, tmp_path):
    write_checkpoint(tmp_path / "c", {"a": np.zeros(3), "b": np.ones(3)})
    data = tmp_path / "c.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:-1] + b"\0")
    code, _, err = millrace("convert", tmp_path / "c", tmp_path / "out.safetensors")
    assert code == 1 and err.count("\n") == 1 and "b" in err
    assert sorted(os.listdir(tmp_path)) == [data.name, "c.index"]


# Graphs.


def test_a_meta_graph_by_scope(shown):
    lines = shown("inspect", MODEL / "model-7.meta").splitlines()
    assert lines[1] == "written by: TensorFlow 2.15.1"
    assert "  MatMul  MatMul  float32  <- x, w" in lines
    assert "    part_0  VariableV2  float32  [2,3]" in lines
    assert "  save/  (32 nodes)" in lines


def test_graphs_as_text_and_binary_are_the_same(shown, tmp_path):
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


def test_a_saved_model_with_its_signatures_and_variables(shown):
    text = shown("inspect", SAVED_MODEL)
    assert "  input x: x:0 float32 [?,2]\n" in text and "\nw     float32  [2,1]      8\n" in text
    described = json.loads(shown("inspect", SAVED_MODEL, "--json"))["graphs"][0]
    assert described["signatures"]["serving_default"]["outputs"] == {"y": "y:0"}


def test_a_constant_that_claims_to_be_huge(millrace, tmp_path):
    graph = tf.GraphDef()
    node = graph.node.add(name="c", op="Const")
    node.attr["value"].tensor.dtype = 1
    node.attr["value"].tensor.tensor_shape.dim.add(size=1 << 40)
    (tmp_path / "g.pb").write_bytes(graph.SerializeToString())
    code, _, err = millrace("inspect", tmp_path / "g.pb", "--values", "c")
    assert code == 1 and "too many" in err


@pytest.mark.parametrize(("nodes", "boxes"), [(3, 3), (5000, 300), (40, 40)])
def test_drawings(shown, tmp_path, nodes, boxes):
    graph = tf.GraphDef()
    for i in range(nodes):  # with an edge back to the first, which makes a loop
        node = graph.node.add(name=f"s{i}/<n&m>", op="Merge")
        node.input.append(f"s{(i or nodes) - 1}/<n&m>")
    (tmp_path / "g.pb").write_bytes(graph.SerializeToString())
    out = shown("inspect", tmp_path / "g.pb", "--svg", tmp_path / "g.svg")
    assert f" in {boxes} boxes" in out
    drawing = xml.dom.minidom.parse(str(tmp_path / "g.svg"))
    assert len(drawing.getElementsByTagName("title")) == boxes


def test_scopes_are_closed_until_a_drawing_is_readable(shown, tmp_path):
    graph = tf.GraphDef()
    for i in range(2000):
        graph.node.add(name=f"layer{i % 10}/part{i % 7}/n{i}", op="NoOp")
    (tmp_path / "g.pb").write_bytes(graph.SerializeToString())
    out = shown("inspect", tmp_path / "g.pb", "--svg", tmp_path / "g.svg")
    assert out.endswith("2,000 nodes in 70 boxes\n")


def test_freezing_a_saved_model(shown, tmp_path):
    shown("freeze", SAVED_MODEL, tmp_path / "f.pb")
    graph = tf.GraphDef.FromString((tmp_path / "f.pb").read_bytes())
    assert {node.op for node in graph.node} == {"Const", "Identity", "MatMul", "Placeholder"}
    w = tf.train.load_variable(str(SAVED_MODEL / "variables" / "variables"), "w")
    with tf.Graph().as_default(), tf.Session() as session:
        tf.import_graph_def(graph, name="")
        result = session.run("y:0", {"x:0": [[1.0, 1.0]]})
    np.testing.assert_allclose(result, [[w.sum()]])


def test_freezing_a_checkpoint(shown, millrace, tmp_path):
    assert "constant" in shown("freeze", "--output", "y", MODEL, tmp_path / "f.pb")
    code, _, err = millrace("freeze", "--output", "yy", MODEL, tmp_path / "g.pb")
    assert code == 1 and "'yy'" in err and not (tmp_path / "g.pb").exists()
    assert millrace("freeze", MODEL, tmp_path / "g.pb")[0] == 1
    assert millrace("freeze", "--output", "y", TYPES, tmp_path / "g.pb")[0] == 1


# Records and events.


@pytest.mark.parametrize("compression", ["", "ZLIB", "GZIP"])
def test_records(shown, tmp_path, compression):
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


def test_sequence_examples(shown, tmp_path):
    sequence = tf.train.SequenceExample()
    sequence.context.feature["id"].int64_list.value.append(3)
    for _ in range(4):
        step = sequence.feature_lists.feature_list["words"].feature.add()
        step.bytes_list.value.append(b"w")
    write_records(tmp_path / "x.tfrecord", [sequence.SerializeToString()])
    text = shown("inspect", tmp_path / "x.tfrecord")
    assert "  context id: int64 [1]  3\n  list words: 4 steps" in text


def test_events(shown, tmp_path):
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


# Damage.


def damaged(data):
    """With a bit of each byte flipped in turn, and with the end cut off."""
    for i in range(len(data)):
        yield data[:i] + bytes([data[i] ^ (1 << i % 8)]) + data[i + 1 :]
    for length in range(0, len(data), 5):
        yield data[:length]


def small_file(kind, folder):
    """A small file of that kind; gives (what to inspect, the file to damage, is all of it under
    checksums)."""
    if kind in ("index", "data"):
        for file in TYPES.parent.glob("partitioned.*"):
            shutil.copy(file, folder)
        path = folder / "partitioned"
        return path, next(folder.glob(f"*.{kind}*")), kind == "data"
    if kind == "v1":
        path = Path(shutil.copy(DATA / "checkpoints" / "v1", folder))
        return path, path, False
    path = folder / f"file.{kind}"
    if kind == "safetensors":
        write_checkpoint(folder / "c", {"a": np.zeros(2, np.float32), "b": np.arange(2)})
        assert main(["convert", str(folder / "c"), str(path)]) == 0
    elif kind == "tfrecord":
        write_records(path, [example(a=[1], b=[b"x"])])
    elif kind == "pb":
        graph = tf.GraphDef()
        graph.node.add(name="a/b", op="NoOp", input=["^c"]).attr["shape"].shape.dim.add(size=3)
        path.write_bytes(graph.SerializeToString())
    return path, path, kind == "tfrecord"


KINDS = ["index", "data", "v1", "safetensors", "tfrecord", "pb"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_byte_damaged(millrace, tmp_path, kind):
    path, file, is_checked = small_file(kind, tmp_path)
    whole = file.read_bytes()
    good = millrace("inspect", path, "--stats")
    assert good[0] == 0
    for data in damaged(whole):
        file.write_bytes(data)
        code, out, err = millrace("verify", path)
        assert code == 1 or (code == 0 and not is_checked)
        assert bool(err) == bool(code) and "Traceback" not in err
        code, out, err = millrace("inspect", path, "--stats")
        assert code in (0, 1) and err.count("\n") == code
        if kind in ("index", "v1") and code == 0:
            assert out == good[1]


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_what_cannot_be_read_is_one_line(millrace, tmp_path, command):
    (tmp_path / "empty").touch()
    (tmp_path / "noise").write_bytes(np.random.default_rng(1).bytes(5000))
    (tmp_path / "zeros.pb").write_bytes(bytes(100))
    (tmp_path / "words.pbtxt").write_text("no graph at all")
    (tmp_path / "x.index").write_bytes(b"not a table" * 10)
    (tmp_path / "folder").mkdir()
    with open(tmp_path / "huge.pb", "wb") as file:
        file.truncate(1 << 40)
    os.mkfifo(tmp_path / "pipe")
    names = ["empty", "noise", "zeros.pb", "words.pbtxt", "x", "folder", "huge.pb", "pipe", "none",
             "n" * 5000, "none/none", "empty/below", "a\0b"]  # fmt: skip
    for name in names:
        code, out, err = millrace(command, f"{tmp_path}/{name}")
        assert (code, out, err.count("\n")) == (1, "", 1), name
        assert err.startswith(f"millrace {command}: "), name


@pytest.mark.parametrize("arguments", [["inspect"], ["inspect", "x", "--grep", "("],
                                       ["inspect", "x", "--depth", "0"], ["convert", "x"],
                                       ["verify", "--fast", "x"], ["freeze", "x"]])  # fmt: skip
def test_wrong_arguments(millrace, arguments):
    code, out, err = millrace(*arguments)
    assert (code, out) == (2, "") and err.startswith("usage: millrace")


# As a process.


def start(*arguments, **options):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return subprocess.Popen(
        [sys.executable, "-m", "millrace", *map(str, arguments)], env=environment,
        stderr=subprocess.PIPE, **options,
    )  # fmt: skip


def test_a_reader_that_goes_away_ends_it_quietly():
    read, write = os.pipe()
    os.close(read)
    process = start("inspect", TYPES, stdout=write)
    os.close(write)
    assert process.communicate(timeout=60)[1] == b"" and process.returncode == 141


def test_an_interrupt_ends_it_quietly(millrace, monkeypatch):
    monkeypatch.setattr("millrace.cli.kinds.find", lambda path: signal.raise_signal(signal.SIGINT))
    assert millrace("inspect", TYPES) == (130, "", "")


def test_importing_millrace_loads_no_command():
    program = "import sys, millrace.compat.v1; print([m for m in sys.modules if '.cli' in m])"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    assert subprocess.check_output([sys.executable, "-c", program], env=environment) == b"[]\n"
