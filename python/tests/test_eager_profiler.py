"""Traces of what runs at once: `tf.profiler.experimental`."""

import gzip
import json
import os

import pytest

import millrace as tf
from millrace import _core


@pytest.fixture(autouse=True, scope="module")
def _eager():
    before = _core.eager_enabled()
    _core.choose_eager(True)
    yield
    _core.choose_eager(before)


def traces(folder):
    """The names of the events of every trace below a folder."""
    found = []
    for path in sorted(folder.glob("plugins/profile/*/*.trace.json.gz")):
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        found.append([event["name"] for event in events if event["ph"] == "X"])
    return found


def test_operations_and_functions_are_in_it(tmp_path):
    @tf.function
    def tangent(x):
        return tf.tanh(x) * 2.0

    x = tf.constant([1.0, 2.0])
    tangent(x)
    tf.exp(x)
    with tf.profiler.experimental.Profile(str(tmp_path)):
        tf.maximum(x, x)
        tangent(x)
    tf.sin(x)
    (names,) = traces(tmp_path)
    assert {"Maximum", "StatefulPartitionedCall"} <= set(names)
    assert len(names) > 2  # the function's nodes
    assert not {"Exp", "Sin"} & set(names)


def test_each_stop_writes_a_file_of_its_own(tmp_path):
    for _ in range(3):
        tf.profiler.experimental.start(tmp_path)
        tf.exp(1.0)
        tf.profiler.experimental.stop()
    assert len(traces(tmp_path)) == 3
    tf.profiler.experimental.start(tmp_path)
    tf.profiler.experimental.stop(save=False)
    assert len(traces(tmp_path)) == 3


def test_starts_and_stops_come_in_pairs(tmp_path):
    with pytest.raises(tf.errors.UnavailableError, match="No profiler is running"):
        tf.profiler.experimental.stop()
    tf.profiler.experimental.start(str(tmp_path / "first"))
    with pytest.raises(tf.errors.AlreadyExistsError, match="first"):
        tf.profiler.experimental.start(str(tmp_path / "second"))
    tf.profiler.experimental.stop()
    assert os.listdir(tmp_path) == ["first"]
