"""Runs of `millrace` commands, and small files for them."""

import contextlib
import io
from pathlib import Path

import millrace.compat.v1 as tf
from millrace import _core
from millrace.__main__ import main

DATA = Path(__file__).resolve().parents[2] / "tests" / "data"
MODEL = DATA / "tensorflow" / "checkpoint"
TYPES = DATA / "checkpoints" / "types"
SAVED_MODEL = DATA / "tensorflow" / "saved_model"


def run(*arguments):
    """Runs a command; gives (exit code, what it printed, what it complained of)."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main([str(a) for a in arguments])
        except SystemExit as error:
            code = error.code
    return code, out.getvalue(), err.getvalue()


def shown(*arguments):
    """Runs a command that must succeed; gives what it printed."""
    code, out, err = run(*arguments)
    assert (code, err) == (0, "")
    return out


def write_checkpoint(prefix, arrays):
    writer = _core.CheckpointWriter(str(prefix))
    for name, array in arrays.items():
        writer.add(name, array, array.dtype)
    writer.finish()


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
