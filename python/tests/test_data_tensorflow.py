"""Datasets in graphs that TensorFlow wrote (tests/data/tensorflow/make.py)."""

from pathlib import Path

import numpy as np
import pytest

import millrace.compat.v1 as tf

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "data" / "tensorflow" / "datasets"

# What TensorFlow gives for them.
EXPECTED = {
    "batches": [[[2, 4, 8]], [[10, 14, 16]], [[20, 22, 26]], [[28, 32, 34]], [[38]]],
    "chosen": [[[0, 10, 1, 11]], [[2, 12]]],
    "nested": [[0, [0, 1]], [0, [2, 3]], [0, [4, 5]], [1, [6, 7]], [1, [8]]],
    "padded": [
        [[0.0, 1.0, 2.0, 3.0], [[0, 1, 0], [2, 3, 0], [4, 5, 0], [6, 7, 0]]],
        [[4.0, 5.0, 0.0, 1.0], [[8, 9, 0], [10, 11, 0], [0, 1, 0], [2, 3, 0]]],
        [[2.0, 3.0, 4.0, 5.0], [[4, 5, 0], [6, 7, 0], [8, 9, 0], [10, 11, 0]]],
    ],
    "reduced": [[18, 0, [0, 1]], [12, 1, [2]], [15, 2, [3, 4]]],
    "sparse": [
        [[b"", b"x"], [[1, 0]], [0], [2, 1], [[1, 0]], [0], [2, 6]],
        [
            [b"xx", b"xxx"],
            *([[0, 0], [0, 1], [1, 0], [1, 1], [1, 2]], [0, 1, 0, 1, 2], [2, 3]),
            *([[0, 0], [0, 1], [1, 0], [1, 1], [1, 2]], [0, 1, 0, 1, 2], [2, 6]),
        ],
    ],
}


@pytest.mark.parametrize("name", EXPECTED)
def test_graphs_of_tensorflow_run(name):
    graph_def = tf.GraphDef.FromString((FOLDER / f"{name}.pb").read_bytes())
    fetches = [f"out{i}:0" for i in range(len(EXPECTED[name][0]))]
    out = []
    with tf.Graph().as_default(), tf.Session() as session:
        tf.import_graph_def(graph_def, name="")
        with pytest.raises(tf.errors.OutOfRangeError):
            while True:
                out.append([np.asarray(value).tolist() for value in session.run(fetches)])
    assert out == EXPECTED[name]
