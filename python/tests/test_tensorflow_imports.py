"""`import tensorflow` answered by another package: here a small one made for the test."""

import contextlib
import gzip
import struct
import sys
from types import ModuleType

import numpy as np
import pytest

from millrace.checkpoint.saveable import SaveableObject
from millrace.compat.tensorflow.imports import install, uninstall
from millrace.core.nest import flatten
from millrace.core.shapes import unknown_shape
from millrace.core.suggest import nearest, unknown_name_message
from millrace.io import gfile
from millrace.saved_model.builder import SavedModelBuilder


def package(**names):
    """A module `public` with the names given; a dictionary becomes a module in it."""

    def fill(module, names):
        for name, value in names.items():
            if isinstance(value, dict):
                value = fill(ModuleType(f"{module.__name__}.{name}"), value)
            setattr(module, name, value)
        return module

    return fill(ModuleType("public"), names)


class Cell:
    pass


class Config:
    pass


@pytest.fixture
def public():
    made = package(
        __version__="1.15.0",
        reshape=lambda x: "reshape",
        Session=type("Session", (), {}),
        ConfigProto=Config,
        nn={"relu": lambda x: "relu", "rnn_cell": {"BasicRNNCell": Cell}},
        train={"AdamOptimizer": type("AdamOptimizer", (), {})},
        layers={"conv2d": lambda x: "layers"},
        losses={"log_loss": lambda: "log_loss"},
        contrib={"layers": {"conv2d": lambda x: "contrib"}, "rnn": {"LSTMCell": Cell}},
        gfile={"GFile": gfile.GFile},
        test={"TestCase": type("TestCase", (), {})},
    )
    install(made)
    yield made
    uninstall()


def test_the_package_itself(public):
    import tensorflow as tf
    import tensorflow.compat.v1 as v1

    assert tf.Session is public.Session and tf.nn.relu is public.nn.relu
    assert v1 is tf and tf.__version__ == "1.15.0"
    assert "reshape" in dir(tf) and "reshape" in tf.__all__


def test_namespaces_can_be_imported(public):
    import tensorflow.nn as nn
    from tensorflow import train
    from tensorflow.layers import conv2d

    assert nn.relu is public.nn.relu
    assert train.AdamOptimizer is public.train.AdamOptimizer
    assert conv2d is public.layers.conv2d


def test_modules_inside_tensorflow(public):
    import tensorflow as tf
    import tensorflow.python.platform
    from tensorflow.core.protobuf import config_pb2
    from tensorflow.python.client import session
    from tensorflow.python.framework import tensor_shape
    from tensorflow.python.lib.io import file_io
    from tensorflow.python.ops import array_ops, nn_ops
    from tensorflow.python.ops.array_ops import reshape
    from tensorflow.python.ops.losses import losses, util
    from tensorflow.python.platform import googletest
    from tensorflow.python.saved_model import builder, tag_constants
    from tensorflow.python.training import adam, saver
    from tensorflow.python.util import nest as tf_nest

    assert array_ops.reshape is reshape is public.reshape
    assert nn_ops.relu is public.nn.relu
    assert session.Session is public.Session
    assert adam.AdamOptimizer is public.train.AdamOptimizer
    assert saver.BaseSaverBuilder.SaveableObject is SaveableObject
    assert builder.SavedModelBuilder is SavedModelBuilder
    assert tag_constants.SERVING == "serve"
    assert config_pb2.ConfigProto is Config
    assert losses.log_loss is util.log_loss is public.losses.log_loss
    assert file_io.FileIO is gfile.GFile
    assert googletest.TestCase is public.test.TestCase
    assert tensor_shape.unknown_shape is unknown_shape
    assert tf_nest.flatten is flatten
    assert tf.python.ops.array_ops is array_ops
    assert tensorflow.python.platform is not None


def test_functions_that_were_never_public(public):
    from contextlib import contextmanager

    from tensorflow.python.framework import ops
    from tensorflow.python.ops import control_flow_ops

    @contextmanager
    def control_dependencies(dependencies):
        done.extend(dependencies)
        yield

    done = []
    public.control_dependencies = control_dependencies
    public.identity = lambda x, name=None: (x, name)
    public.convert_to_tensor = lambda value, dtype=None, name=None: (value, name)
    assert control_flow_ops.with_dependencies(["a"], "x", name="n") == ("x", "n")
    assert done == ["a"]
    assert ops.convert_n_to_tensor([1, 2], name="n") == [(1, "n_0"), (2, "n_1")]


def test_ops_by_the_names_of_their_generated_functions(public, monkeypatch):
    raw_ops = ModuleType("millrace.raw_ops")
    raw_ops.BatchMatMul = lambda *, x, y, name=None: (x, y, name)
    monkeypatch.setitem(sys.modules, "millrace.raw_ops", raw_ops)
    from tensorflow.python.ops import gen_math_ops

    assert gen_math_ops._batch_mat_mul(1, 2, name="n") == (1, 2, "n")
    with pytest.raises(TypeError, match="two values for 'x'"):
        gen_math_ops.batch_mat_mul(1, x=2)
    with pytest.raises(TypeError, match="at most 3"):
        gen_math_ops.batch_mat_mul(1, 2, 3, 4)


def test_contrib(public):
    import tensorflow as tf
    from tensorflow.contrib import layers, rnn
    from tensorflow.contrib.rnn.python.ops import core_rnn_cell

    assert layers.conv2d is public.contrib.layers.conv2d
    assert rnn.LSTMCell is Cell and rnn.BasicRNNCell is Cell
    assert core_rnn_cell.LSTMCell is Cell
    assert tf.contrib.layers.conv2d is public.contrib.layers.conv2d
    with pytest.raises(AttributeError):
        _ = layers.log_loss


def test_estimators_by_their_modules():
    install()
    try:
        from tensorflow.contrib import learn
        from tensorflow.contrib.learn.python.learn.datasets import base
        from tensorflow.contrib.learn.python.learn.estimators import model_fn
        from tensorflow.python.estimator.inputs import numpy_io

        assert model_fn.ModelFnOps is learn.ModelFnOps
        assert learn.datasets.base.load_csv_with_header is base.load_csv_with_header
        assert callable(learn.monitors.ValidationMonitor) and callable(learn.learn_runner.run)
        assert callable(numpy_io.numpy_input_fn)
    finally:
        uninstall()


def test_contrib_that_is_not_there(public):
    with pytest.raises(ImportError, match=r"tf\.contrib\.slim"):
        from tensorflow.contrib import slim  # noqa: F401
    with pytest.raises(ImportError, match=r"tf\.contrib\.slim"):
        import tensorflow.contrib.slim  # noqa: F401


@pytest.mark.parametrize(
    ("statement", "name", "hint"),
    [
        ("from tensorflow import reshap", "tf.reshap", "tf.reshape"),
        ("import tensorflow.trian", "tf.trian", "tf.train"),
        ("import tensorflow.nn as nn; nn.rellu", "tf.nn.rellu", "tf.nn.relu"),
        ("import tensorflow as tf; tf.relu", "tf.relu", "tf.nn.relu"),
        ("from tensorflow.python.ops.array_ops import reshap", "array_ops.reshap", "tf.reshape"),
        (
            "from tensorflow.python.ops import array_ops; array_ops.reshap",
            "tensorflow.python.ops.array_ops.reshap",
            "tf.reshape",
        ),
    ],
)
def test_unknown_names(public, statement, name, hint):
    with pytest.raises((ImportError, AttributeError)) as caught:
        exec(statement, {})
    assert name in str(caught.value) and hint in str(caught.value)


def test_hasattr_is_false_for_unknown_names(public):
    import tensorflow as tf

    assert not hasattr(tf, "no_such_name") and not hasattr(tf, "__wrapped__")


def test_other_modules_are_left_alone(public):
    with pytest.raises(ModuleNotFoundError) as caught:
        import tensorflow_no_such_package  # noqa: F401
    assert caught.value.name == "tensorflow_no_such_package"


def test_it_can_be_taken_back(public):
    import tensorflow  # noqa: F401

    uninstall()
    assert "tensorflow" not in sys.modules
    assert not any("Tensorflow" in type(finder).__name__ for finder in sys.meta_path)


def test_what_is_said_of_unknown_names():
    say = unknown_name_message
    assert "tf.nn.relu is planned" in say("nn.relu", [])
    assert "tf.contrib.rnn is planned" in say("contrib.rnn", [])
    assert "not planned" in say("bitcast", ["nn.relu"])
    assert say("nn.rellu", ["nn.relu", "nn.relu6", "Session"]).endswith(
        "Nearest names: tf.nn.relu, tf.nn.relu6"
    )
    assert "tf.multiply since TensorFlow 1.0" in say("mul", [])
    assert "Nearest" not in say("qqqq", ["nn.relu"])


def test_nearest_names():
    names = ["nn.conv2d", "layers.conv2d", "layers.Conv2D", "nn.relu", "matmul"]
    assert nearest("layers.conv_2d", names)[0] == "layers.conv2d"
    assert "nn.conv2d" in nearest("layers.conv_2d", names)
    assert nearest("MatMul", names) == ["matmul"]
    assert nearest("zzzz", names) == []


def write_digits(folder, packed):
    """60 training and 20 test images whose pixels are their number."""
    for part, count in (("train", 60), ("t10k", 20)):
        images = np.repeat(np.arange(count, dtype=np.uint8), 784)
        labels = np.arange(count, dtype=np.uint8) % 10
        for name, header, data in (
            (f"{part}-images-idx3-ubyte", struct.pack(">4I", 2051, count, 28, 28), images),
            (f"{part}-labels-idx1-ubyte", struct.pack(">2I", 2049, count), labels),
        ):
            content = header + data.tobytes()
            if packed:
                (folder / f"{name}.gz").write_bytes(gzip.compress(content))
            else:
                (folder / name).write_bytes(content)


@pytest.mark.parametrize("packed", [True, False])
def test_digits(public, tmp_path, packed):
    from tensorflow.examples.tutorials.mnist import input_data

    write_digits(tmp_path, packed)
    digits = input_data.read_data_sets(str(tmp_path), one_hot=True, validation_size=10)
    assert [part.num_examples for part in digits] == [50, 10, 20]
    assert digits.train.images.shape == (50, 784) and digits.train.images.dtype == np.float32
    assert digits.train.images[0, 0] == np.float32(10) / np.float32(255)
    assert digits.test.labels[3].tolist() == [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]
    images, labels = digits.train.next_batch(30)
    assert images.shape == (30, 784) and labels.shape == (30, 10)
    np.testing.assert_array_equal(
        np.rint(images[:, 0] * 255).astype(int) % 10, labels.argmax(axis=1)
    )
    digits.train.next_batch(30)
    assert digits.train.epochs_completed == 1


def test_digits_in_order(tmp_path):
    from millrace.compat.tensorflow.mnist import read_data_sets

    write_digits(tmp_path, packed=True)
    train = read_data_sets(str(tmp_path), validation_size=0, reshape=False, dtype=np.uint8).train
    assert train.images.shape == (60, 28, 28, 1)
    seen = np.concatenate([train.next_batch(25, shuffle=False)[0][:, 0, 0, 0] for _ in range(3)])
    np.testing.assert_array_equal(seen, [*range(60), *range(15)])
    with pytest.raises(ValueError, match="Validation size"):
        read_data_sets(str(tmp_path), validation_size=61)


def test_digits_that_are_not_there(tmp_path):
    from millrace.compat.tensorflow.mnist import read_data_sets

    with pytest.raises(FileNotFoundError, match=r"lacks train-images-idx3-ubyte\.gz.*download"):
        read_data_sets(str(tmp_path))
    write_digits(tmp_path, packed=False)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(b"not an idx file")
    with pytest.raises(ValueError, match="not an idx file"):
        read_data_sets(str(tmp_path))
    (tmp_path / "train-images-idx3-ubyte").write_bytes(struct.pack(">4I", 2051, 2**31, 28, 28))
    with pytest.raises(ValueError, match="but holds 0"):
        read_data_sets(str(tmp_path))


def test_modules_inside_modules(public):
    import tensorflow.python.ops.rnn as rnn
    from tensorflow.python.util import tf_contextlib, tf_decorator

    assert rnn.rnn_cell_impl.BasicRNNCell is Cell
    assert tf_contextlib.contextmanager is contextlib.contextmanager

    def target():
        """What it does."""

    made = tf_decorator.make_decorator(target, lambda: 3)
    assert made() == 3 and made.__doc__ == "What it does."
