"""Tensors that sessions keep, and staging areas."""

import numpy as np
import pytest

import millrace.compat.v1 as tf


@pytest.fixture
def session():
    with tf.Graph().as_default(), tf.Session() as session:
        yield session


def test_a_kept_tensor_is_read_by_its_handle(session):
    handle = session.run(tf.get_session_handle(tf.constant([1.0, 2.0])))
    np.testing.assert_array_equal(handle.eval(), [1.0, 2.0])
    holder, value = tf.get_session_tensor(handle, tf.float32)
    np.testing.assert_array_equal(session.run(value * 2.0, {holder: handle}), [2.0, 4.0])
    np.testing.assert_array_equal(session.run(value, {holder: handle.handle}), [1.0, 2.0])


def test_handles_come_in_structures(session):
    kept = tf.get_session_handle(tf.constant(3))
    out = session.run({"a": [kept, tf.constant(4)]})
    assert out["a"][0].eval() == 3 and out["a"][1] == 4


def test_a_deleted_tensor_is_gone(session):
    handle = session.run(tf.get_session_handle(tf.constant(3)))
    holder, value = tf.get_session_tensor(handle.handle, tf.int32)
    handle.delete()
    with pytest.raises(TypeError, match="already been deleted"):
        handle.eval()
    with pytest.raises(tf.errors.InvalidArgumentError, match="not in the session store"):
        session.run(value, {holder: handle.handle})


def test_tensors_that_nobody_knows_are_deleted(session):
    kept = tf.get_session_handle(tf.constant(3))
    first = session.run(kept).handle
    holder, value = tf.get_session_tensor(first, tf.int32)
    assert session.run(value, {holder: first}) == 3
    for _ in range(20):
        last = session.run(kept)
    with pytest.raises(tf.errors.InvalidArgumentError, match="not in the session store"):
        session.run(value, {holder: first})
    assert last.eval() == 3


def test_only_tensors_have_handles():
    with tf.Graph().as_default(), pytest.raises(TypeError, match="must be of type Tensor"):
        tf.get_session_handle(3)


def test_a_staging_area_gives_in_order(session):
    area = tf.contrib.staging.StagingArea([tf.float32], shapes=[[]])
    x = tf.placeholder(tf.float32, [])
    put, got = area.put(x), area.get()
    for i in range(3):
        session.run(put, {x: i})
    assert session.run(area.size()) == 3
    assert [session.run(got) for _ in range(3)] == [0.0, 1.0, 2.0]


def test_a_staging_area_with_names_holds_dictionaries(session):
    area = tf.contrib.staging.StagingArea([tf.float32, tf.int32], names=["a", "b"])
    session.run(area.put({"a": 1.0, "b": 2}))
    assert session.run(area.get()) == {"a": 1.0, "b": 2}
    with pytest.raises(ValueError, match="do not match"):
        area.put({"a": 1.0, "c": 2})
    with pytest.raises(ValueError, match="dictionary"):
        area.put([1.0, 2])
