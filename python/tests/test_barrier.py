"""Barriers."""

import numpy as np
import pytest

import millrace.compat.v1 as tf


@pytest.fixture
def session():
    with tf.Graph().as_default(), tf.Session() as session:
        yield session


def test_elements_are_taken_when_they_are_complete(session):
    barrier = tf.Barrier((tf.float32, tf.int32), shapes=((), (2,)), name="B")
    ready, incomplete = barrier.ready_size(), barrier.incomplete_size()
    first = barrier.insert_many(0, ["a", "b"], [1.0, 2.0])
    second = barrier.insert_many(1, ["b", "a"], [[1, 2], [3, 4]])
    indices, keys, values = barrier.take_many(2)
    assert keys.shape.as_list() == [2] and values[1].shape.as_list() == [2, 2]
    session.run(first)
    assert session.run([ready, incomplete]) == [0, 2]
    session.run(second)
    assert session.run([ready, incomplete]) == [2, 0]
    taken = session.run([indices, keys, *values])
    np.testing.assert_array_equal(taken[0], [-(2**63)] * 2)
    assert dict(zip(taken[1], taken[2], strict=False)) == {b"a": 1.0, b"b": 2.0}
    assert dict(zip(taken[1], taken[3].tolist(), strict=False)) == {b"a": [3, 4], b"b": [1, 2]}


def test_a_closed_barrier_gives_what_it_has(session):
    barrier = tf.Barrier(tf.float32, shapes=())
    session.run(barrier.insert_many(0, ["a"], [1.0]))
    session.run(barrier.close())
    with pytest.raises(tf.errors.CancelledError, match="is closed"):
        session.run(barrier.insert_many(0, ["b"], [2.0]))
    with pytest.raises(tf.errors.OutOfRangeError, match="requested 2, total size 1"):
        session.run(barrier.take_many(2))
    assert session.run(barrier.take_many(2, allow_small_batch=True))[1].tolist() == [b"a"]


def test_shapes_without_elements_are_refused():
    with tf.Graph().as_default(), pytest.raises(ValueError, match="at index 1"):
        tf.Barrier((tf.float32, tf.float32), shapes=((1,), (0,)))
