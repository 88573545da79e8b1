"""Checkpoints go both ways between TensorFlow and this package, whatever they hold."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tensorflow_twin import needs_tensorflow, run_tensorflow

import millrace.compat.v1 as tf
from millrace import raw_ops

CHECKPOINTS = Path(__file__).parents[2] / "tests" / "data" / "checkpoints"
ROWS = np.arange(60, dtype=np.float32).reshape(12, 5)
TYPES = """float32 float64 int32 uint8 int16 int8 complex64 int64 bool bfloat16 uint16 complex128
    float16 uint32 uint64 qint8 quint8 qint32 qint16 quint16 string""".split()


def run(op):
    with tf.Session() as sess:
        return sess.run(op)


def save(prefix, names, tensors, slices=None):
    slices = slices or [""] * len(names)
    run(
        raw_ops.SaveV2(
            prefix=str(prefix), tensor_names=names, shape_and_slices=slices, tensors=tensors
        )
    )


def restore(prefix, names, dtypes, slices=None):
    slices = slices or [""] * len(names)
    return raw_ops.RestoreV2(
        prefix=str(prefix), tensor_names=names, shape_and_slices=slices, dtypes=dtypes
    )


def test_every_type_is_written_as_tensorflow_writes_it(tmp_path):
    with tf.Graph().as_default():
        names = [*TYPES, "scalar", "empty", "scalar_string"]
        dtypes = [getattr(tf, name) for name in TYPES] + [tf.float32, tf.float32, tf.string]
        save(tmp_path / "types", names, restore(CHECKPOINTS / "types", names, dtypes))
    for suffix in [".index", ".data-00000-of-00001"]:
        ours = (tmp_path / ("types" + suffix)).read_bytes()
        assert ours == (CHECKPOINTS / ("types" + suffix)).read_bytes()


def test_slices_of_tensorflow_are_put_together():
    with tf.Graph().as_default():
        whole, part = run(
            restore(CHECKPOINTS / "partitioned", ["v"] * 2, [tf.float32] * 2, ["", "12 5 3,6:1,2"])
        )
    np.testing.assert_array_equal(whole, ROWS)
    np.testing.assert_array_equal(part, ROWS[3:9, 1:3])


@pytest.mark.parametrize("wait", ["session.close()", "pass"])
def test_a_save_beside_the_program_outlives_it(tmp_path, wait):
    program = f"""
import numpy as np
import millrace.compat.v1 as tf
from millrace import raw_ops
session = tf.Session()
x = tf.placeholder(tf.float32)
save = raw_ops.SaveV2(
    prefix={str(tmp_path / "x")!r}, tensor_names=["x"], shape_and_slices=[""], tensors=[x])
save._set_attr("_asynchronous", True)
session.run(save, {{x: np.full(3_000_000, 7, np.float32)}})
{wait}
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
    with tf.Graph().as_default():
        (x,) = run(restore(tmp_path / "x", ["x"], [tf.float32]))
    assert x.shape == (3_000_000,) and (x == 7).all()


@needs_tensorflow
def test_tensorflow_reads_what_is_written_here(tmp_path):
    with tf.Graph().as_default():
        for times in range(3):  # that it is saved over
            for value in range(times + 1):
                save(tmp_path / f"over-{times}", ["x"], [tf.constant(value)])
        parts = [str(tmp_path / "temp" / f"part-{i}") for i in range(2)]
        save(parts[0], ["v", "v"], [ROWS[:4], ROWS[4:7]], ["12 5 0,4:-", "12 5 4,3:-"])
        save(parts[1], ["v", "s"], [ROWS[7:], [b"a", b""]], ["12 5 7,5:-", ""])
        merged = str(tmp_path / "merged")
        run(raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts, destination_prefix=merged))
        run(
            raw_ops.SaveSlices(
                filename=str(tmp_path / "v1"),
                tensor_names=["v", "v", "s"],
                shapes_and_slices=["12 5 0,4:-", "12 5 4,8:-", ""],
                data=[ROWS[:4], ROWS[4:], [b"a", b""]],
            )
        )
    run_tensorflow(
        """
        for times in range(3):
            reader = tensorflow.train.load_checkpoint(f"{args[0]}/over-{times}")
            assert reader.get_tensor("x") == times
        rows = np.arange(60, dtype=np.float32).reshape(12, 5)
        for name in ["merged", "v1"]:
            v, part, s = tensorflow.raw_ops.RestoreV2(
                prefix=f"{args[0]}/{name}", tensor_names=["v", "v", "s"],
                shape_and_slices=["", "12 5 2,4:-", ""], dtypes=[tf.float32, tf.float32, tf.string])
            assert (v.numpy() == rows).all() and (part.numpy() == rows[2:6]).all()
            assert s.numpy().tolist() == [b"a", b""]
        """,
        tmp_path,
    )
