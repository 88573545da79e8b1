"""What Python's values become where operations run at once, and how tensors show themselves."""

import os
import signal
import sys
import threading

import numpy as np
import pytest

import millrace as tf
from millrace import _core
from millrace.compat import v1


@pytest.fixture(autouse=True, scope="module")
def _eager():
    before = _core.eager_enabled()
    _core.choose_eager(True)
    yield
    _core.choose_eager(before)


# Constants.


@pytest.mark.parametrize(
    ("values", "dtype", "made"),
    [
        (300, "uint8", 44),
        ([300, -129], "int8", [44, 127]),
        (2**33 + 5, "int32", 5),
        ([-1], "uint32", [2**32 - 1]),
        (True, "float32", 1.0),
        ([True, False], "int64", [1, 0]),
        (10**39, "float32", float("inf")),
    ],
)
def test_numbers_are_counted_round_a_type(values, dtype, made):
    tensor = tf.constant(values, dtype)
    assert tensor.dtype.name == dtype and tensor.numpy().tolist() == made
    if np.ndim(made) or isinstance(values, bool) or dtype == "float32":
        return
    with tf.Graph().as_default(), pytest.raises(ValueError, match="does not fit"):
        tf.constant(values, dtype)


@pytest.mark.parametrize(
    ("values", "dtype", "error", "match"),
    [
        (10**310, "float64", ValueError, "out-of-range integer"),
        ([2**72], None, ValueError, "out-of-range integer"),
        ([[1, 2], [3]], None, ValueError, "non-rectangular Python sequence"),
        ([[1], 2], "int32", ValueError, "non-rectangular Python sequence"),
        ([1, 2, [3]], None, ValueError, "mixed types"),
        ([1, None], None, ValueError, "mixed types"),
        (1.0, "int32", TypeError, "Cannot convert 1.0 to EagerTensor of dtype int32"),
        (None, None, ValueError, r"Attempt to convert a value \(None\) with an unsupported type"),
        (object(), None, ValueError, "Attempt to convert a value .* with an unsupported type"),
        ({1}, None, ValueError, r"Attempt to convert a value \(\{1\}\) with an unsupported type"),
    ],
)
def test_values_that_are_no_tensor(values, dtype, error, match):
    with pytest.raises(error, match=match):
        tf.constant(values, dtype)


def test_a_constant_of_a_tensor():
    x = tf.constant([1, 2])
    assert tf.constant(x) is x
    assert tf.constant(x, shape=[2, 1]).shape == [2, 1]
    with pytest.raises(TypeError, match="Expected tensor .* with dtype tf.float32"):
        tf.constant(x, tf.float32)
    assert tf.function(lambda: tf.constant(x) + 1)().numpy().tolist() == [2, 3]


def test_a_shape_of_as_many_elements():
    assert tf.constant(7, shape=[2, 2]).numpy().tolist() == [[7, 7], [7, 7]]
    for count in (2, 4):
        with pytest.raises(TypeError, match="unsupported shape"):
            tf.constant([1, 2, 3], shape=[count])
        with pytest.raises(TypeError, match="Expected Tensor's shape"):
            tf.function(lambda n: tf.constant([1, 2, 3], shape=[n]))(count)
    with tf.Graph().as_default(), v1.Session() as session:
        assert session.run(v1.constant([1, 2, 3], shape=[4])).tolist() == [1, 2, 3, 3]


def test_operators_of_bits():
    x = tf.constant(5)
    for run in (lambda f: f(x), lambda f: tf.function(f)(x)):
        made = [run(lambda x: x & 3), run(lambda x: 2 | x), run(lambda x: x ^ 3), run(lambda x: ~x)]
        assert [one.numpy() for one in made] == [1, 7, 6, -6]
        assert run(lambda x: (x > 1) & True).numpy() and not run(lambda x: ~(x > 1)).numpy()
        assert run(lambda x: (x > 1) ^ False).numpy() and run(lambda x: False | (x > 1)).numpy()
    with pytest.raises(TypeError, match="LogicalAnd"):
        tf.constant(1.0) & 1.0


def test_programs_for_a_gpu_run_without_one():
    assert tf.config.get_soft_device_placement()
    for name in ("/GPU:0", "gpu"):
        with tf.device(name):
            assert tf.constant(1).device.rpartition(":")[2] == "0"
            assert (tf.constant(1) + 1).numpy() == 2
    for name in ("/GPU:7", "/job:elsewhere/GPU:0"):
        with pytest.raises(tf.errors.InvalidArgumentError, match="Could not satisfy"):
            tf.device(name).__enter__()


# Memory.


def test_the_elements_are_a_buffer_that_nobody_writes_to():
    view = memoryview(tf.constant([[1, 2], [3, 4]], tf.int64))
    assert (view.readonly, view.shape, view.tolist()) == (True, (2, 2), [[1, 2], [3, 4]])
    assert memoryview(tf.constant(2.5)).tolist() == 2.5
    assert np.array(memoryview(tf.constant([], tf.float32))).shape == (0,)
    with pytest.raises(BufferError, match="Cannot convert a tensor of type resource"):
        memoryview(tf.Variable(1).handle)
    assert np.asarray(tf.constant(["a"])).tolist() == [b"a"]
    assert np.asarray(tf.constant([1.5, 2.0], tf.bfloat16)).tolist() == [1.5, 2.0]


def test_what_is_in_a_tensor():
    x = tf.constant([1, 2])
    assert 1 in x and 3 not in x


# Printing.


def printed(capsys, *inputs, **options):
    tf.print(*inputs, output_stream=sys.stdout, **options)
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (["a", 'b"\n'], '["a" "b\\"\\n"]'),
        ("s", "s"),
        (1 / 3, "0.333333343"),
        ([0.1, 1e10, -3.5, 1e-7, float("nan"), float("inf")], "[0.1 1e+10 -3.5 1e-07 nan inf]"),
        ([100000.0, 1234567.0], "[100000 1234567]"),
        ([[1, -10], [200, 3]], "[[1 -10]\n [200 3]]"),
        ([True, False], "[1 0]"),
        (np.array([1 / 3]), "[0.33333333333333331]"),
        (np.array([0.1], np.float16), "[0.0999755859]"),
        (np.arange(8).reshape(2, 2, 2), "[[[0 1]\n  [2 3]]\n\n [[4 5]\n  [6 7]]]"),
        (range(10), "[0 1 2 ... 7 8 9]"),
        (np.zeros((0,), np.float32), "[]"),
    ],
)
def test_tensors_are_printed_as_in_tensorflow(capsys, value, text):
    assert printed(capsys, tf.constant(value)) == text + "\n"


def test_structures_are_printed(capsys):
    out = printed(capsys, "x", {"b": tf.constant(["s"]), "a": [tf.constant(2), "t"]}, 3, sep="|")
    assert out == "x|{'a': [2, 't'], 'b': [\"s\"]}|3\n"
    assert printed(capsys, tf.range(9), summarize=1, end="!") == "[0 ... 8]!"
    sparse = tf.sparse.from_dense([[0, 7]])
    text = "'SparseTensor(indices=[[0 1]], values=[7], shape=[1 2])'"
    assert printed(capsys, sparse) == text + "\n"
    assert printed(capsys, [sparse]) == f"[{text}]\n"
    ragged = tf.ragged.constant([[[1, 2], []], [[3]]])
    assert printed(capsys, ragged) == "[[[1, 2], []], [[3]]]\n"
    assert printed(capsys, tf.ragged.constant([[i] for i in range(9)]), summarize=1) == (
        "[[0], ..., [8]]\n"
    )


def test_text_with_tensors_in_it():
    made = tf.strings.format("x {} y {}", (tf.constant(["a"]), tf.range(10)))
    assert made.numpy() == b'x ["a"] y [0 1 2 ... 7 8 9]'
    assert tf.function(lambda x: tf.strings.format("%", x, placeholder="%"))(1.5).numpy() == b"1.5"
    with pytest.raises(ValueError, match="expects 1 tensors, but the inputs only has 2"):
        tf.strings.format("{}", (1, 2))


# Shapes.


def test_sizes_of_shapes_are_numbers():
    shape = tf.zeros([2, 3]).shape
    assert shape[0] == 2 and type(shape[0]) is int and list(shape) == [2, 3]
    assert str(tf.TensorShape([2, None])) == "(2, None)"
    assert repr(tf.TensorShape([2, None])) == "TensorShape([2, None])"
    assert tf.TensorShape(None)[3] is None

    @tf.function(input_signature=[tf.TensorSpec([None, 3])])
    def f(x):
        assert x.shape[0] is None and x.shape[1] // 2 == 1
        assert str(x) == 'Tensor("x:0", shape=(None, 3), dtype=float32)'
        return x

    f(tf.ones([2, 3]))


def test_values_known_in_part():
    with tf.Graph().as_default():
        packed = tf.stack([[1.0, 2.0], v1.placeholder(tf.float32, [2])])
        known = tf.get_static_value(packed, partial=True)
        assert known[0].tolist() == [1.0, 2.0] and known[1] is None
        assert tf.get_static_value(packed) is None
        rows = [tf.get_static_value(row, partial=True) for row in tf.unstack(packed)]
        assert rows[0].tolist() == [1.0, 2.0] and rows[1] is None
        halves = [tf.get_static_value(half, partial=True) for half in tf.split(packed, 2)]
        assert halves[0][0].tolist() == [1.0, 2.0] and halves[1][0] is None


# What TensorFlow 1's names do where operations run at once.


def test_variables_of_tensorflow_1_have_values():
    v = v1.Variable([1.0, 2.0], name="v")
    v1.assign_add(v, [1.0, 1.0])
    assert v.numpy().tolist() == [2.0, 3.0] and isinstance(v, tf.Variable)
    with v1.variable_scope("outer"):
        w = v1.get_variable("w", [2], initializer=v1.ones_initializer(), collections=["mine"])
        again = v1.get_variable("w", [2], initializer=v1.zeros_initializer())
    assert w.name == "outer/w:0" and w.numpy().tolist() == [1.0, 1.0]
    assert again is not w
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(w * v)
    gradients = tape.gradient(loss, [w, v])
    v1.train.GradientDescentOptimizer(1.0).apply_gradients([(gradients[0], w), (gradients[1], v)])
    assert w.numpy().tolist() == [-1.0, -2.0] and v.numpy().tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="partitioned variables need a graph"):
        v1.get_variable("p", [4], partitioner=v1.fixed_size_partitioner(2))


def test_layers_of_tensorflow_1_in_functions():
    layer = v1.layers.Dense(2, kernel_initializer=v1.ones_initializer())
    model = tf.function(lambda x: layer(x))
    assert model(tf.ones([1, 3])).numpy().tolist() == [[3.0, 3.0]]
    assert layer(tf.ones([1, 3])).numpy().tolist() == [[3.0, 3.0]]
    assert [v.shape.as_list() for v in layer.trainable_variables] == [[3, 2], [2]]


def test_queues_have_elements_at_once():
    queue = tf.queue.FIFOQueue(5, [tf.int32, tf.string], shapes=[[], []])
    queue.enqueue([1, "a"])
    queue.enqueue_many([[2, 3], ["b", "c"]])
    assert queue.size().numpy() == 3 and queue.name == "queue"
    number, text = queue.dequeue()
    assert number.numpy() == 1 and text.numpy() == b"a"
    assert queue.dequeue_many(2)[0].numpy().tolist() == [2, 3]


# Types and graphs that do not go together.


@pytest.mark.parametrize("error", [TypeError, tf.errors.InvalidArgumentError])
def test_types_that_do_not_go_together(error):
    one = tf.constant(1)
    match = (
        r"cannot compute Add as input #1\(zero-based\) was expected to be a int32 tensor but is a"
    )
    with pytest.raises(error, match=match) as caught:
        one + tf.constant(1.5)
    assert "test_eager_values.py" in str(caught.value)
    for wrong in (lambda: one + 1.5, lambda: 1.5 - one, lambda: tf.nn.relu(["a"])):
        with pytest.raises(error):
            wrong()
    with pytest.raises(TypeError, match="Expected int32"):
        tf.function(lambda x: x + 1.5)(one)


@pytest.mark.parametrize("error", [TypeError, ValueError])
def test_tensors_that_are_out_of_scope(error):
    kept = []

    @tf.function
    def f(x):
        kept.append(x + 1)
        return x

    f(tf.constant(1))
    with pytest.raises(error, match="is out of scope and cannot be used here") as caught:
        kept[0] + 1
    assert "kept.append(x + 1)" in str(caught.value)


# Devices.


def test_device_specs_are_changed_by_making_others():
    spec = tf.DeviceSpec.from_string("/job:a/cpu:1")
    assert spec.replace(task=2, device_type="GPU").to_string() == "/job:a/task:2/device:GPU:1"
    merged = spec.make_merged_spec(tf.DeviceSpec(job="b", device_type="GPU"))
    assert merged.to_string() == "/job:b/device:GPU:*"
    assert spec.parse_from_string("/task:3").to_string() == "/task:3"
    assert spec.to_string() == "/job:a/device:CPU:1" and spec == v1.DeviceSpec(
        "a", None, None, "cpu", 1
    )
    assert not hasattr(spec, "merge_from")
    with pytest.raises(AttributeError):
        spec.job = "c"
    with pytest.raises(ValueError, match="Cannot specify multiple"):
        tf.DeviceSpec.from_string("/cpu:0/device:GPU:1")
    old = v1.DeviceSpec()
    old.job, old.device_type = "c", "gpu"
    old.merge_from(spec)
    assert old.to_string() == "/job:a/device:CPU:1"


# Waiting.


@tf.function
def endless(x):
    while x > 0.0:
        x = tf.minimum(x + 1.0, 5.0)
    return x


@tf.function
def endless_in_parallel(x):
    while tf.reduce_min(x) > 0.0:
        x = tf.clip_by_value(tf.matmul(x, x) + tf.matmul(x, x + 1.0), 1.0, 5.0)
    return x


def endless_dataset():
    for _ in tf.data.Dataset.range(3).repeat().filter(lambda x: x < 0):
        pass


@pytest.mark.parametrize(
    "work",
    [
        lambda: endless(tf.constant(1.0)),
        lambda: endless_in_parallel(tf.ones([100, 100])),
        lambda: tf.queue.FIFOQueue(1, [tf.int32]).dequeue(),
        endless_dataset,
    ],
    ids=["function", "parallel function", "kernel that waits", "dataset"],
)
def test_an_interrupt_ends_a_call(work):
    timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            work()
    finally:
        timer.cancel()
    assert (tf.constant(1) + 1).numpy() == 2


def test_elements_are_exchanged_with_other_libraries():
    dlpack = tf.experimental.dlpack
    for value in ([[1.0, 2.0]], 3, [True]):
        tensor = tf.constant(value)
        again = dlpack.from_dlpack(dlpack.to_dlpack(tensor))
        assert again.dtype is tensor.dtype and again.numpy().tolist() == value
    array = np.from_dlpack(tf.constant([1, 2]))
    assert array.tolist() == [1, 2]
    assert dlpack.from_dlpack(np.arange(3)).numpy().tolist() == [0, 1, 2]
