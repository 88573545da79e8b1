"""Sixty mistakes, and what their messages tell.

Every mistake raises an ordinary exception. The message or traceback names the user's file and the
line marked with `#!`, the op or function, and, where shapes or types clash, those of every operand.
What an uncaught error prints is short. A third of the mistakes show only later: at a run, in a loop
body, a branch, a gradient, another thread, a py_func.
"""

import re
import statistics
import subprocess
import sys
import traceback

import pytest

import millrace.compat.v1 as tf
from millrace.core.tracebacks import hide_library_frames

SETUP = """
import numpy as np
import threading
import millrace.compat.v1 as tf
a = tf.constant(np.ones([2, 3], np.float32), name="a")
b = tf.constant(np.ones([2, 4], np.float32), name="b")
i = tf.constant([1, 2], name="i")
x = tf.placeholder(tf.float32, [None, 3], name="x")
u = tf.placeholder(tf.float32, name="u")
w = tf.get_variable("w", [3, 2])
graph = tf.get_default_graph()
def run(fetch, feed=None, init=True):
    with tf.Session(graph=graph) as s:
        if init:
            s.run(tf.global_variables_initializer())
        return s.run(fetch, feed)
"""

A, B = r"\(?2, ?3\)?|\[2,3\]", r"\(?2, ?4\)?|\[2,4\]"
F, INT = "float32", "int32"

# name: (code, what the text must match besides the marked line)
NOW = {
    "matmul_shapes": ("tf.matmul(a, b) #!", ["MatMul", A, B, F]),
    "add_shapes": ("a + b #!", ["Add", A, B, F]),
    "add_types": ("a + i #!", ["Add", A, r"\[2\]|\(2,\)", F, INT]),
    "add_string": ("a + 'text' #!", ["Add", "str", F]),
    "reshape_count": ("tf.reshape(a, [4, 2]) #!", ["Reshape", A, F]),
    "concat_ranks": ("tf.concat([a, i], 0) #!", ["[Cc]oncat", F, INT]),
    "concat_sizes": ("tf.concat([a, b], 0) #!", ["Concat", A, B, F]),
    "stack_shapes": ("tf.stack([a, b]) #!", ["[Ss]tack|[Pp]ack", A, B]),
    "bad_axis": ("tf.reduce_sum(a, axis=5) #!", ["Sum", A, "5"]),
    "split_uneven": ("tf.split(a, 2, axis=1) #!", ["[Ss]plit", A]),
    "transpose_perm": ("tf.transpose(a, [0, 0]) #!", ["[Tt]ranspose", A]),
    "slice_out": ("tf.slice(a, [0, 2], [2, 2]) #!", ["[Ss]lice", A]),
    "index_out": ("a[5] #!", ["slice|index", A]),
    "too_many_indices": ("a[0, 0, 0] #!", ["slice|ind", A]),
    "iterate": ("for _ in a: pass #!", ["iterat", "a:0"]),
    "truth": ("if a > 0: pass #!", ["bool", "Greater"]),
    "cast_type": ("tf.cast(a, 'florat') #!", ["florat"]),
    "conv_channels": (
        "tf.nn.conv2d(tf.zeros([1, 8, 8, 3]), tf.zeros([3, 3, 4, 8]), [1, 1, 1, 1], 'SAME') #!",
        ["Conv2D", r"\[1,8,8,3\]", r"\[3,3,4,8\]", F],
    ),
    "conv_padding": (
        "tf.nn.conv2d(tf.zeros([1, 8, 8, 3]), tf.zeros([3, 3, 3, 8]), [1, 1, 1, 1], 'FULL') #!",
        ["Conv2D", "FULL", "SAME"],
    ),
    "pool_rank": ("tf.nn.max_pool(a, [1, 2, 2, 1], [1, 2, 2, 1], 'SAME') #!", ["MaxPool", A, F]),
    "relu_type": ("tf.nn.relu(tf.constant([True])) #!", ["Relu", "bool"]),
    "xent_positional": (
        "tf.nn.softmax_cross_entropy_with_logits(a, b) #!",
        ["softmax_cross", "labels="],
    ),
    "xent_shapes": (
        "tf.nn.sigmoid_cross_entropy_with_logits(labels=a, logits=b) #!",
        ["logits", A, B, F],
    ),
    "sparse_xent_rank": (
        "tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.constant([[1]]), logits=a) #!",
        ["[Ll]abels", A, F, INT],
    ),
    "assign_shape": ("tf.assign(w, a) #!", ["[Aa]ssign", A, r"\[3,2\]|\(3, 2\)", F]),
    "assign_constant": ("tf.assign(a, a) #!", ["[Aa]ssign", "a"]),
    "variable_twice": ("tf.get_variable('w', [3, 2]) #!", ["w", "reuse"]),
    "reuse_missing": (
        "with tf.variable_scope('s', reuse=True):\n    tf.get_variable('none', [1]) #!",
        ["s/none", "get_variable"],
    ),
    "cond_types": ("tf.cond(a[0, 0] > 0, lambda: 1.0, lambda: 1) #!", ["cond", F, INT]),
    "loop_shape": (
        "tf.while_loop(lambda v: True, lambda v: tf.concat([v, v], 0), [a]) #!",
        ["while|loop", A, r"\[4,3\]|\(4, 3\)"],
    ),
    "loop_type": (
        "tf.while_loop(lambda v: v < 3, lambda v: v + 1.5, [0]) #!",
        ["loop|add|Add", INT],
    ),
    "gradient_none_minimize": (
        "tf.train.AdamOptimizer().minimize(tf.reduce_sum(a)) #!",
        ["gradient", "w"],
    ),
    "other_graph": (
        "with tf.Graph().as_default():\n    c = tf.constant(1.0)\nd = a + c #!",
        ["graph", "Const:0", "a:0", F],
    ),
    "no_such_tensor": ("tf.get_default_graph().get_tensor_by_name('aa:0') #!", ["aa", "exist"]),
    "tensor_without_number": ("tf.get_default_graph().get_tensor_by_name('a') #!", ["a:0"]),
    "bad_device": ("with tf.device('/gpu_0'): #!\n    tf.identity(a)", ["gpu_0", "device"]),
    "missing_function": ("tf.nn.reluu(a) #!", ["reluu", "relu"]),
    "bad_name": ("tf.identity(a, name='a b') #!", ["a b", "name"]),
    "feed_shape": ("run(x, {x: np.ones([2, 4])}) #!", ["x:0", r"2, 4", r"\?, 3|None, 3", F]),
    "feed_type": ("run(x, {x: [['text']]}) #!", ["x:0", F]),
}

LATER = {
    "unfed": ("y = x * 2.0\nrun(y) #!", ["x", "feed", F]),
    "uninitialized": ("y = tf.matmul(a, w)\nrun(y, init=False) #!", ["w", "initializer"]),
    "matmul_at_run": (
        "y = tf.matmul(u, a) #!\nrun(y, {u: np.ones([5, 7])})",
        ["MatMul", r"\[5,7\]", A, F],
    ),
    "gather_out": ("y = tf.gather(a, [7]) #!\nrun(y)", ["[Gg]ather", "7", A, F]),
    "division": ("y = i // 0 #!\nrun(y)", ["[Dd]iv", "zero", INT]),
    "assert": ("y = tf.Assert(a[0, 0] > 5, [a]) #!\nrun(y)", ["Assert"]),
    "nan": ("y = tf.check_numerics(tf.log(-a), 'oh') #!\nrun(y)", ["oh", "CheckNumerics", "NaN"]),
    "loop_body": (
        "def body(v, n):\n    return tf.gather(v, [5, 6]), n + 1 #!\n"
        "y = tf.while_loop(lambda v, n: n < 3, body, [i, 0])\nrun(y)",
        ["[Gg]ather", "5|6"],
    ),
    "branch": (
        "y = tf.cond(a[0, 0] > 0,\n"
        "    lambda: tf.reshape(a, tf.shape(u)), #!\n"
        "    lambda: a)\nrun(y, {u: np.ones([5])})",
        ["[Rr]eshape", A, F],
    ),
    "gradient_at_run": (
        "y = tf.matmul(u, w) #!\ng = tf.gradients(y, w, tf.ones([9, 9]))\nrun(g, "
        "{u: np.ones([4, 3])})",
        ["MatMul", F],
    ),
    "gradient_missing": (
        "y = tf.unique(a[0])[0] #!\ng = tf.gradients(y, a)",
        ["Unique", "gradient"],
    ),
    "thread": (
        "y = tf.reshape(u, [3, 3]) #!\nfailed = []\n"
        "def work():\n    try:\n        run(y, {u: np.ones([4])})\n"
        "    except Exception as e:\n        failed.append(e)\n"
        "t = threading.Thread(target=work)\nt.start()\nt.join()\nraise failed[0]",
        ["[Rr]eshape", r"\[4\]|4 elem|4 values", F],
    ),
    "py_func": (
        "def f(v):\n    return v.nothing #!\ny = tf.py_func(f, [a], tf.float32)\nrun(y)",
        ["PyFunc", "nothing"],
    ),
    "py_func_type": ("y = tf.py_func(lambda v: 'text', [a], tf.float32) #!\nrun(y)", ["PyFunc", F]),
    "map_fn": (
        "y = tf.map_fn(lambda v: tf.gather(v, 9), a) #!\nrun(y)",
        ["[Gg]ather", "9"],
    ),
    "queue_closed": (
        "q = tf.FIFOQueue(2, tf.float32, shapes=[[]])\nwith tf.Session() as s:\n    "
        "s.run(q.close())\n"
        "    s.run(q.dequeue()) #!",
        ["[Qq]ueue", "closed"],
    ),
    "tensor_array_twice": (
        "ta = tf.TensorArray(tf.float32, 2).write(0, 1.0)\nta = ta.write(0, 2.0) "
        "#!\nrun(ta.stack())",
        ["TensorArray", "0"],
    ),
    "dynamic_rnn_length": (
        "c = tf.nn.rnn_cell.BasicRNNCell(4)\n"
        "y, _ = tf.nn.dynamic_rnn(c, tf.zeros([2, 3, 5]), sequence_length=u, dtype=tf.float32) #!\n"
        "run(y, {u: [1, 2, 3]})",
        ["."],
    ),
    "embedding_out": (
        "y = tf.nn.embedding_lookup(w, [11]) #!\nrun(y)",
        ["[Gg]ather|embedding", "11"],
    ),
    "sparse_label": (
        "y = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=[9, 0], logits=a) #!\nrun(y)",
        ["Cross", "9"],
    ),
}


def fail(name, code, tmp_path):
    """Runs a mistake: what it would print uncaught, and the number of the marked line."""
    source = SETUP + code + "\n"
    path = tmp_path / f"{name}.py"
    path.write_text(source)
    marked = next(n for n, line in enumerate(source.split("\n"), 1) if "#!" in line)
    with tf.Graph().as_default():
        try:
            exec(compile(source, str(path), "exec"), {"__name__": "mistake"})
        except Exception as error:
            hide_library_frames(error)
            # The frame of this file stands for the interpreter that runs a script.
            error.__traceback__ = error.__traceback__.tb_next
            return "".join(traceback.format_exception(error)), str(path), marked
    pytest.fail("nothing was raised")


MISTAKES = {**NOW, **LATER}


def test_there_are_sixty_mistakes_a_third_of_them_late():
    assert len(MISTAKES) == 60
    assert len(LATER) == 20


@pytest.mark.parametrize("name", sorted(MISTAKES))
def test_message(name, tmp_path):
    code, expected = MISTAKES[name]
    text, path, line = fail(name, code, tmp_path)
    assert f'File "{path}", line {line}' in text or f"{path}:{line}" in text, text
    for pattern in expected:
        assert re.search(pattern, text), f"{pattern!r} is not in:\n{text}"
    assert text.count("\n") <= 20, text


def test_what_is_printed_is_short(tmp_path):
    lengths = [fail(name, code, tmp_path)[0].count("\n") for name, (code, _) in MISTAKES.items()]
    assert statistics.median(lengths) <= 12


def test_an_uncaught_error_prints_the_users_frames_only(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SETUP + "def layer():\n    return tf.matmul(a, b)\nlayer()\n")
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True)
    assert done.returncode == 1
    assert "millrace/" not in done.stderr
    assert done.stderr.count("\n") <= 12, done.stderr
