"""SavedModels: written, loaded, and those of TensorFlow run."""

import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from tensorflow_twin import FILES, needs_tensorflow, run_tensorflow

import millrace.compat.v1 as tf
from millrace import protos

KEY = tf.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as made:
        yield made


def write_model(folder, as_text=False):
    x = tf.placeholder(tf.float32, [None, 2], name="x")
    w = tf.Variable([[1.0], [2.0]], name="w")
    y = tf.matmul(x, w, name="y")
    ready = tf.Variable(False, name="ready", collections=[tf.GraphKeys.LOCAL_VARIABLES])
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        builder = tf.saved_model.Builder(folder)
        signature = tf.saved_model.predict_signature_def({"x": x}, {"y": y})
        builder.add_meta_graph_and_variables(
            sess, ["train"], {KEY: signature}, main_op=tf.group(ready.assign(True))
        )
        tf.get_default_graph().clear_collection(tf.saved_model.MAIN_OP_KEY)
        builder.add_meta_graph(["serve", "gpu"], {KEY: signature})
        return builder.save(as_text)


def serve(folder, tags=("serve",), **scope):
    """Loads a model and gives a function from inputs to outputs, by the names of its signature."""
    sess = tf.Session(graph=tf.Graph())
    loaded = tf.saved_model.loader.load(sess, list(tags), str(folder), **scope)
    signature = loaded.signature_def[KEY]
    below = scope["import_scope"] + "/" if scope else ""

    def call(**inputs):
        feeds = {below + signature.inputs[name].name: value for name, value in inputs.items()}
        fetches = {name: below + info.name for name, info in signature.outputs.items()}
        return sess.run(fetches, feeds)

    return call, sess


@pytest.mark.parametrize("as_text", [False, True])
def test_round_trip(tmp_path, as_text):
    folder = str(tmp_path / "model")
    assert not tf.saved_model.contains_saved_model(folder)
    path = write_model(folder, as_text)
    assert path.decode().endswith("saved_model.pbtxt" if as_text else "saved_model.pb")
    assert tf.saved_model.maybe_saved_model_directory(folder)
    call, sess = serve(folder, ["train"])
    assert call(x=[[3.0, 4.0]])["y"].tolist() == [[11.0]]
    assert sess.run("ready:0")  # the main op ran
    call, _ = serve(folder, ["gpu", "serve"], import_scope="below")
    assert call(x=[[3.0, 4.0]])["y"].tolist() == [[11.0]]
    with pytest.raises(RuntimeError, match="available tags"):
        serve(folder, ["serve"])


def test_simple_save_takes_files_along(tmp_path):
    words = tmp_path / "words.txt"
    words.write_text("one two")
    path = tf.constant(str(words), name="path")
    tf.add_to_collection(tf.GraphKeys.ASSET_FILEPATHS, path)
    held = tf.Variable("", name="held", collections=[tf.GraphKeys.LOCAL_VARIABLES])
    x = tf.placeholder(tf.float32, [], name="x")
    with tf.Session() as sess:
        init = tf.group(held.assign(path))
        tf.saved_model.simple_save(sess, tmp_path / "model", {"x": x}, {"y": x + 1.0}, init)
    words.unlink()
    call, sess = serve(tmp_path / "model")
    assert call(x=1.0)["y"] == 2.0
    asset = sess.run("held:0").decode()
    assert asset == str(tmp_path / "model" / "assets" / "words.txt")
    assert Path(asset).read_text() == "one two"


def test_the_order_of_building(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    with pytest.raises(AssertionError, match="isn't empty"):
        tf.saved_model.Builder(str(tmp_path / "full"))
    builder = tf.saved_model.builder.SavedModelBuilder(str(tmp_path / "model"))
    with pytest.raises(AssertionError, match="not been saved yet"):
        builder.add_meta_graph(["serve"])
    tf.Variable(1.0)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        bad = tf.saved_model.build_signature_def({"x": tf.TensorInfo()}, {}, "m")
        with pytest.raises(AssertionError, match="encoding"):
            builder.add_meta_graph_and_variables(sess, ["serve"], {"s": bad})
        with pytest.raises(KeyError, match="reserved"):
            builder.add_meta_graph_and_variables(
                sess, ["serve"], {"__saved_model_init_op": protos.SignatureDef()}
            )
        builder.add_meta_graph_and_variables(sess, ["serve"])
        with pytest.raises(AssertionError, match="already been saved"):
            builder.add_meta_graph_and_variables(sess, ["serve"])


def test_signatures():
    text = tf.placeholder(tf.string, [None], name="text")
    score = tf.placeholder(tf.float32, [None], name="score")
    utils = tf.saved_model.signature_def_utils
    for made in (
        utils.predict_signature_def({"a": score}, {"b": text}),
        utils.regression_signature_def(text, score),
        utils.classification_signature_def(text, text, score),
        utils.classification_signature_def(text, None, score),
    ):
        assert utils.is_valid_signature(made)
    assert not utils.is_valid_signature(protos.SignatureDef(method_name="other"))
    with pytest.raises(ValueError, match="must be of type float32"):
        utils.regression_signature_def(text, text)
    sparse = tf.sparse_placeholder(tf.float32, name="sparse")
    info = tf.saved_model.utils.build_tensor_info(sparse)
    assert tf.saved_model.utils.get_tensor_from_tensor_info(info).values is sparse.values
    assert info.coo_sparse.values_tensor_name == sparse.values.name


def test_a_model_of_tensorflow_1():
    call, sess = serve(FILES / "saved_model")
    assert call(x=[[3.0, 4.0]])["y"].tolist() == [[11.0]]
    assert sess.run("ready:0")


def test_a_function_of_tensorflow_2():
    call, _ = serve(FILES / "module")
    assert call(x=[[1.0, 2.0]])["output_0"].tolist() == [[3.0, 3.0]]
    assert call(x=[[-1.0, -2.0]])["output_0"].tolist() == [[1.0, 5.0]]


def test_a_network_of_keras():
    call, _ = serve(FILES / "keras")
    ramp = np.linspace(-1, 1, 50).reshape(2, 5, 5, 1).astype(np.float32)
    expected = np.load(FILES / "keras" / "expected.npy")
    np.testing.assert_allclose(call(image=ramp)["output_0"], expected, rtol=1e-5)


def test_damaged_models_are_errors(tmp_path):
    folder = tmp_path / "model"
    with pytest.raises(OSError, match="does not exist"):
        serve(folder)
    shutil.copytree(FILES / "saved_model", folder)
    file = folder / "saved_model.pb"
    whole = file.read_bytes()
    seed = random.randrange(1 << 30)
    print("seed", seed)
    choose = random.Random(seed)
    for _ in range(60):
        at = choose.randrange(len(whole))
        flipped = whole[:at] + bytes([whole[at] ^ (1 << choose.randrange(8))]) + whole[at + 1 :]
        file.write_bytes(choose.choice([flipped, whole[:at]]))
        try:
            serve(folder)
        except (OSError, RuntimeError, ValueError, KeyError, TypeError, tf.errors.OpError):
            pass


def test_assets_stay_in_their_folder(tmp_path):
    shutil.copytree(FILES / "saved_model", tmp_path / "model")
    file = tmp_path / "model" / "saved_model.pb"
    model = protos.SavedModel.FromString(file.read_bytes())
    model.meta_graphs[0].asset_file_def.add(filename="../../secret").tensor_info.name = "path:0"
    file.write_bytes(model.SerializeToString())
    with pytest.raises(ValueError, match="not in the model's own folder"):
        serve(tmp_path / "model")


@needs_tensorflow
def test_tensorflow_reads_what_is_written(tmp_path):
    write_model(str(tmp_path / "model"))
    printed = run_tensorflow(
        """
        model = tensorflow.saved_model.load(args[0], tags=["train"])
        print(model.signatures["serving_default"](tensorflow.constant([[3.0, 4.0]]))["y"].numpy())
        tf.disable_eager_execution()
        with tf.Session() as sess:
            tf.saved_model.loader.load(sess, ["serve", "gpu"], args[0])
            print(sess.run("y:0", {"x:0": [[3.0, 4.0]]}))
        """,
        tmp_path / "model",
    )
    assert printed.split() == ["[[11.]]", "[[11.]]"]
