"""Mistakes that users make: what is raised names their line, the op and what it was given."""

import traceback

import numpy as np
import pytest

import millrace as tf
from millrace import _core


@pytest.fixture(autouse=True, scope="module")
def _eager():
    before = _core.eager_enabled()
    _core.choose_eager(True)
    yield
    _core.choose_eager(before)


# What is wrong with the line marked so, and words that the message must have.
MISTAKES = [
    ("tf.ones([2, 3]) @ tf.ones([2, 3])  # HERE", ["MatMul", "[2,3]"]),
    ("tf.ones([2, 3]) + tf.ones([4])  # HERE", ["Add", "[2,3]", "[4]"]),
    ("tf.constant(1) + tf.constant(2.0)  # HERE", ["Add", "int32", "float32"]),
    ("tf.matmul(tf.ones([2]), tf.ones([2, 2]))  # HERE", ["MatMul", "[2]"]),
    ("tf.concat([tf.ones([2, 2]), tf.ones([3, 3])], 0)  # HERE", ["Concat", "[2,2]", "[3,3]"]),
    ("tf.reshape(tf.ones([2, 3]), [4])  # HERE", ["Reshape", "6", "4"]),
    ("tf.gather(tf.ones([3]), [5])  # HERE", ["Gather", "5", "3"]),
    ("tf.gather(tf.ones([3]), [-1])  # HERE", ["Gather", "-1"]),
    ("tf.reduce_sum(tf.ones([2]), axis=3)  # HERE", ["Sum", "3"]),
    ("tf.transpose(tf.ones([2, 3]), [0, 0])  # HERE", ["Transpose", "0"]),
    ("tf.split(tf.ones([5]), 2)  # HERE", ["Split", "5", "2"]),
    ("tf.stack([tf.ones([2]), tf.ones([3])])  # HERE", ["Pack", "[2]", "[3]"]),
    ("tf.one_hot([1.5], 3)  # HERE", ["OneHot", "float"]),
    ("tf.ones([3])[7]  # HERE", ["StridedSlice", "7"]),
    ("tf.squeeze(tf.ones([2, 1]), 0)  # HERE", ["Squeeze", "2"]),
    (
        "tf.nn.conv2d(tf.ones([1, 8, 8, 3]), tf.ones([3, 3, 4, 8]), 1, 'SAME')  # HERE",
        ["Conv2D", "3", "4"],
    ),
    ("tf.nn.softmax(tf.constant([1, 2]))  # HERE", ["Softmax", "int32"]),
    ("tf.linalg.inv(tf.zeros([2, 2]))  # HERE", ["MatrixInverse", "not invertible"]),
    ("tf.linalg.cholesky(-tf.eye(2))  # HERE", ["Cholesky"]),
    ("tf.strings.to_number('abc')  # HERE", ["StringToNumber", "abc"]),
    ("tf.io.decode_png(b'none')  # HERE", ["DecodePng"]),
    ("tf.io.read_file('/no/such/file')  # HERE", ["ReadFile", "/no/such/file"]),
    ("tf.cast('a', tf.float32)  # HERE", ["Cast", "string"]),
    ("tf.fill([-1], 0)  # HERE", ["Fill", "-1"]),
    ("tf.range(0, 10, 0)  # HERE", ["Range", "0"]),
    ("tf.sqrt('a')  # HERE", ["Sqrt", "string"]),
    ("tf.debugging.assert_equal(1, 2)  # HERE", ["1", "2"]),
    ("tf.debugging.check_numerics(tf.constant([float('nan')]), 'loss')  # HERE", ["loss", "NaN"]),
    ("tf.Variable([1.0]).assign([1.0, 2.0])  # HERE", ["Variable", "(1,)", "(2,)"]),
    ("tf.Variable([1.0]).assign_add(tf.constant([1]))  # HERE", ["float32", "int32"]),
    ("bool(tf.ones([2]) > 0)  # HERE", ["ambiguous"]),
    ("int(tf.ones([2]))  # HERE", ["one element", "(2,)"]),
    ("tf.constant([[1], [2, 3]])  # HERE", ["shape"]),
    (
        """
x = tf.constant(3)
with tf.GradientTape() as tape:
    tape.watch(x)
    y = x * x
tape.gradient(y, x) + 1  # HERE""",
        ["None"],
    ),
    (
        """
x = tf.Variable(3.0)
with tf.GradientTape() as tape:
    y = x * x
tape.gradient(y, x)
tape.gradient(y, x)  # HERE""",
        ["non-persistent"],
    ),
    (
        """
@tf.function
def f(x):
    v = tf.Variable(1.0)  # HERE
    return x * v
f(1.0)
f(2.0)""",
        ["tf.function", "created"],
    ),
    (
        """
@tf.function
def f(x):
    return tf.ones([2, 3]) @ x  # HERE
f(tf.ones([2, 3]))""",
        ["MatMul", "[2,3]"],
    ),
    (
        """
@tf.function
def f(i):
    return tf.gather([1.0, 2.0], i)  # HERE
f(tf.constant(7))""",
        ["Gather", "7"],
    ),
    (
        """
@tf.function(input_signature=[tf.TensorSpec([2], tf.float32)])
def f(x):
    return x
f(tf.ones([3]))  # HERE""",
        ["(3,)", "(2,)"],
    ),
    (
        """
@tf.function
def f(x):
    return float(x)  # HERE
f(tf.constant(1.0))""",
        ["float"],
    ),
    (
        """
w = tf.Variable(tf.ones([2, 2]))
with tf.GradientTape() as tape:
    y = tf.cast(tf.argmax(w, 1), tf.float32)
slope = tape.gradient(y, w)
w.assign_sub(0.1 * slope)  # HERE""",
        ["None"],
    ),
    (
        """
with tf.device('/gpu:7'):  # HERE
    tf.ones([2]) + 1.0""",
        ["gpu:7", "CPU:0"],
    ),
]


def line_of(program):
    return next(i for i, line in enumerate(program.splitlines(), 1) if "# HERE" in line)


@pytest.mark.parametrize("case", range(len(MISTAKES)), ids=lambda i: MISTAKES[i][0].strip()[:40])
def test_mistake(case):
    program, words = MISTAKES[case]
    with pytest.raises(Exception) as raised:
        exec(compile(program, "users.py", "exec"), {"tf": tf, "np": np})
    message = str(raised.value)
    assert all(word.lower() in message.lower() for word in words), message
    lines = [
        f.lineno
        for f in traceback.extract_tb(raised.value.__traceback__)
        if f.filename == "users.py"
    ]
    named = (
        f"users.py:{line_of(program)}" in message
        or f'"users.py", line {line_of(program)}' in message
    )
    assert line_of(program) in lines or named, (lines, message)
    assert len(message.splitlines()) <= 8, message
