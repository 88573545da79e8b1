"""Models, MetaGraphs and lists of checkpoints with random damage: what is read of them is read, and
all else is an error of Python."""

import functools
import gc
import os
import random
import time

import pytest

import millrace.compat.v1 as tf
from millrace import protos

SECONDS = float(os.environ.get("MILLRACE_FUZZ_SECONDS", "0.4"))

# What loading may say. Everything else, and everything that ends the process, is a bug.
ERRORS = (ValueError, TypeError, KeyError, RuntimeError, OSError, tf.errors.OpError)


def changed(data, choose):
    """The bytes with a few random edits."""
    data = bytearray(data)
    for _ in range(choose.choice([1, 1, 2, 5])):
        at = choose.randrange(len(data)) if data else 0
        edit = choose.randrange(6)
        if edit == 0 and data:
            data[at] ^= 1 << choose.randrange(8)
        elif edit == 1 and data:
            data[at] = choose.choice([0, 1, 0x7F, 0x80, 0xFF, choose.randrange(256)])
        elif edit == 2:
            data[at:at] = choose.randbytes(choose.randrange(1, 9))
        elif edit == 3:
            del data[at : at + choose.randrange(1, 9)]
        elif edit == 4 and data:  # a part of it, again
            end = at + choose.randrange(1, 40)
            to = choose.randrange(len(data))
            data[to:to] = data[at:end]
        else:
            del data[at:]
    return bytes(data)


def attack(load, data, seed):
    """Loads damaged copies for a while; at least some of them must come to be loaded or refused."""
    choose = random.Random(seed)
    loaded = refused = 0
    end = time.monotonic() + SECONDS
    while time.monotonic() < end or loaded + refused < 20:
        damaged = changed(data, choose)
        try:
            load(damaged)
            loaded += 1
        except ERRORS:
            refused += 1
        except BaseException:
            print(f"seed {seed}: {damaged!r}")
            raise
    return loaded, refused


def write_model(folder):
    """A small model with a variable, a branch, a loop, an asset and what makes it ready."""
    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [None, 2], name="x")
        w = tf.Variable([[1.0], [2.0]], name="w")
        y = tf.while_loop(lambda v: tf.reduce_sum(v) < 3.0, lambda v: [v + 1.0], [tf.matmul(x, w)])
        tf.add_to_collection("notes", "text")
        tf.add_to_collection("numbers", 3)
        words = folder.parent / "words"
        words.write_text("a\nb\n")
        asset = tf.constant(str(words))
        tf.add_to_collection(tf.GraphKeys.ASSET_FILEPATHS, asset)
        session.run(tf.global_variables_initializer())
        tf.saved_model.simple_save(
            session,
            str(folder),
            {"x": x},
            {"y": y},
            legacy_init_op=tf.group(w.assign([[3.0], [4.0]])),
        )


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "model"
    write_model(folder)
    return folder


def loader(folder, name):
    path = folder / name

    def load(data):
        path.write_bytes(data)
        with tf.Graph().as_default(), tf.Session() as session:
            tf.saved_model.loader.load(session, ["serve"], str(folder))

    return load


def test_models_in_binary(model):
    data = (model / "saved_model.pb").read_bytes()
    load = loader(model, "saved_model.pb")
    load(data)
    assert attack(load, data, 1)[1] > 0


def test_models_as_text(model):
    message = protos.SavedModel.FromString((model / "saved_model.pb").read_bytes())
    (model / "saved_model.pb").unlink()
    data = protos.text_format.MessageToString(message).encode()
    load = loader(model, "saved_model.pbtxt")
    load(data)
    assert attack(load, data, 2)[1] > 0


def test_meta_graphs(model, tmp_path):
    message = protos.SavedModel.FromString((model / "saved_model.pb").read_bytes())
    path = tmp_path / "graph.meta"

    def load(data):
        path.write_bytes(data)
        with tf.Graph().as_default():
            tf.train.import_meta_graph(str(path))

    data = message.meta_graphs[0].SerializeToString()
    load(data)
    assert attack(load, data, 3)[1] > 0


def test_lists_of_checkpoints(tmp_path):
    prefix = str(tmp_path / "model-1")
    tf.train.update_checkpoint_state(str(tmp_path), prefix, [prefix])
    path = tmp_path / "checkpoint"
    data = path.read_bytes()

    def load(damaged):
        path.write_bytes(damaged)
        tf.train.latest_checkpoint(str(tmp_path))
        tf.train.get_checkpoint_state(str(tmp_path))

    load(data)
    attack(load, data, 4)


def test_no_damaged_file_stays_open(tmp_path):
    rubbish = random.Random(5).randbytes(500)
    for name in ("bad", "bad.index", "bad.safetensors", "bad.tfevents"):
        (tmp_path / name).write_bytes(rubbish)
    bad = str(tmp_path / "bad")

    def restore(path):
        return tf.raw_ops.RestoreV2(
            prefix=path, tensor_names=["a"], shape_and_slices=[""], dtypes=[tf.float32]
        )

    with tf.Graph().as_default(), tf.Session() as session:
        runs = [restore(bad), restore(bad + ".safetensors")]
        for dataset in (tf.data.TFRecordDataset(bad), tf.data.TFRecordDataset(bad, "GZIP"),
                        tf.data.FixedLengthRecordDataset(bad, 7)):  # fmt: skip
            iterator = tf.data.make_initializable_iterator(dataset)
            with tf.control_dependencies([iterator.initializer]):
                runs.append(iterator.get_next())
        reads = [
            *(functools.partial(session.run, run) for run in runs),
            lambda: list(tf.python_io.tf_record_iterator(bad)),
            lambda: list(tf.train.summary_iterator(bad + ".tfevents")),
            lambda: tf.train.load_checkpoint(bad),
            lambda: tf.train.load_checkpoint(bad + ".safetensors"),
            lambda: tf.train.import_meta_graph(bad),
        ]
        counts = []
        for _ in range(3):
            for read in reads:
                with pytest.raises(ERRORS):
                    read()
            gc.collect()
            counts.append(len(os.listdir("/proc/self/fd")))
        assert counts[-1] <= counts[0]


@pytest.mark.parametrize("depth", [20, 3000])
def test_messages_of_any_depth(tmp_path, depth):
    """A function that is given a function that is given ..., in both formats."""
    value = b""
    for _ in range(depth):
        value = _field(10, _field(2, _field(1, b"a") + _field(2, value)))
    binary = _field(2, _field(1, _field(5, _field(1, b"a") + _field(2, value))))
    opening = "func { attr { key: 'a' value { "
    text = "graph_def { node { attr { key: 'a' value { " + opening * depth + "} } } " * (depth + 1)
    for name, contents in (("binary.meta", binary), ("text.meta", f"{text} }}".encode())):
        path = tmp_path / name
        path.write_bytes(contents)
        with pytest.raises(ERRORS), tf.Graph().as_default():
            tf.train.import_meta_graph(str(path))


def _field(number, data):
    """A field of bytes in wire format."""
    size, out = len(data), bytearray([number << 3 | 2])
    while size >= 0x80:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes(out) + bytes([size]) + data
