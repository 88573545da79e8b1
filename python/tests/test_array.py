"""Slicing, joining, filling and picking, against NumPy."""

import numpy as np
import pytest

import millrace.compat.v1 as tf


@pytest.fixture(autouse=True)
def _fresh_graph():
    tf.reset_default_graph()


def run(fetches, feeds=None):
    with tf.Session() as sess:
        return sess.run(fetches, feeds)


VALUES = np.arange(60.0, dtype=np.float32).reshape(3, 4, 5)


@pytest.mark.parametrize(
    "item",
    [
        1, -1, (0, -2), (2, 3, 4), slice(1, None), slice(None, None, -1), (slice(None), 1),
        (Ellipsis, 2), (1, Ellipsis, slice(1, 4, 2)), (None, 0),
        (slice(None), None, slice(3, 0, -1)), (Ellipsis, None),
        (slice(-2, None), slice(None, -1)), (slice(10, 20),), (),
        np.int64(2), (np.array(1), slice(2)),
    ],
)  # fmt: skip
def test_slices_are_numpy_s(item):
    x = tf.placeholder(tf.float32, name="x")
    known = tf.constant(VALUES)
    expected = VALUES[item]
    assert known[item].shape.as_list() == list(expected.shape)
    for got in run([x[item], known[item]], {x: VALUES}):
        np.testing.assert_array_equal(got, expected)


def test_slices_take_tensors():
    x = tf.constant(VALUES)
    i, j = tf.constant(1), tf.constant(2, tf.int64)
    got = run([x[i], x[j], x[i, j], x[:i, j:], x[::i], x[i:2]])
    expected = [VALUES[1], VALUES[2], VALUES[1, 2], VALUES[:1, 2:], VALUES, VALUES[1:2]]
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    assert x[i].name.startswith("strided_slice")


def test_slices_by_mask():
    mask = VALUES[:, 0, 0] > 10
    np.testing.assert_array_equal(run(tf.constant(VALUES)[tf.constant(mask)]), VALUES[mask])


@pytest.mark.parametrize(
    ("item", "error", "text"),
    [
        (5, ValueError, "out of bounds"),
        ((0, 0, 0, 0), ValueError, "rank 3"),
        (1.5, TypeError, "valid indices, got 1.5"),
        ("a", TypeError, "valid indices"),
        (slice(None, None, 0), ValueError, "zero"),
        ((Ellipsis, Ellipsis), ValueError, "ellipses"),
    ],
)
def test_bad_slices(item, error, text):
    with pytest.raises(error, match=text):
        tf.constant(VALUES)[item]


def test_lists_that_hold_tensors_are_packed():
    a, b = tf.constant(1), tf.placeholder(tf.int32, [])
    packed = tf.convert_to_tensor([[a, 2], [b, a]])
    assert packed.op.type == "Pack"
    np.testing.assert_array_equal(run(packed, {b: 7}), [[1, 2], [7, 1]])
    assert tf.reshape(tf.placeholder(tf.float32), [b, 3]).shape.as_list() == [None, 3]
    with pytest.raises(TypeError, match="float32"):
        tf.convert_to_tensor([a, tf.constant(1.0)])


def test_stack_and_unstack():
    parts = [np.full((2, 3), i, np.float32) for i in range(3)]
    for axis in range(-3, 3):
        stacked = tf.stack([tf.constant(p) for p in parts], axis)
        np.testing.assert_array_equal(run(stacked), np.stack(parts, axis))
        for got, part in zip(run(tf.unstack(stacked, axis=axis)), parts, strict=True):
            np.testing.assert_array_equal(got, part)
    with pytest.raises(ValueError, match=r"axis = 3 not in \[-3, 3\)"):
        tf.stack(parts, 3)
    with pytest.raises(ValueError, match="Cannot infer num"):
        tf.unstack(tf.placeholder(tf.float32))


def test_constants_of_one_value():
    for made, expected in [
        (tf.zeros([2, 3]), np.zeros((2, 3))),
        (tf.ones([40, 50], tf.int32), np.ones((40, 50))),
        (tf.zeros([2], tf.bool), [False, False]),
        (tf.zeros([1], tf.string), [b""]),
        (tf.ones([2], tf.bool), [True, True]),
        (tf.zeros(tf.constant([2, 2])), np.zeros((2, 2))),
        (tf.fill([2], 7), [7, 7]),
        (tf.zeros_like([1, 2], tf.float64), [0.0, 0.0]),
        (tf.ones_like(tf.constant([[1.5]])), [[1.0]]),
    ]:
        np.testing.assert_array_equal(run(made), expected)
    x = tf.placeholder(tf.float32, [None, 2])
    for made in (tf.zeros_like(x), tf.ones_like(x, tf.int32)):
        assert made.shape.as_list() == [None, 2]
        assert run(made, {x: np.ones((3, 2))}).shape == (3, 2)


def test_shapes():
    x = tf.placeholder(tf.float32, [None, 4])
    known = tf.constant(VALUES)
    feeds = {x: np.zeros((2, 4))}
    got = run([tf.shape(x), tf.size(x), tf.rank(x), tf.shape(known), tf.size(known)], feeds)
    assert [np.array(g).tolist() for g in got] == [[2, 4], 8, 2, [3, 4, 5], 60]
    assert tf.shape(known, out_type=tf.int64).dtype == tf.int64
    assert tf.placeholder(tf.int32, []).shape.as_list() == []
    assert tf.placeholder(name="p").dtype == tf.float32


def test_transpose_split_concat():
    x = tf.constant(VALUES)
    np.testing.assert_array_equal(run(tf.transpose(x)), VALUES.T)
    np.testing.assert_array_equal(run(tf.transpose(x, [1, 2, 0])), VALUES.transpose(1, 2, 0))
    np.testing.assert_array_equal(run(tf.matrix_transpose(x)), VALUES.swapaxes(1, 2))
    for got, part in zip(run(tf.split(x, 2, 1)), np.split(VALUES, 2, 1), strict=True):
        np.testing.assert_array_equal(got, part)
    for got, part in zip(run(tf.split(x, [1, 4], -1)), np.split(VALUES, [1], 2), strict=True):
        np.testing.assert_array_equal(got, part)
    np.testing.assert_array_equal(run(tf.concat([x, x], 1)), np.concatenate([VALUES] * 2, 1))
    with pytest.raises(ValueError, match="scalars"):
        tf.concat([tf.constant(1), tf.constant(2)], 0)


def test_picking():
    x = tf.constant(VALUES)
    np.testing.assert_array_equal(run(tf.gather(x, [2, 0])), VALUES[[2, 0]])
    np.testing.assert_array_equal(run(tf.gather(x, [3, 0], axis=1)), VALUES[:, [3, 0]])
    np.testing.assert_array_equal(run(tf.gather_nd(x, [[0, 1], [2, 3]])), VALUES[[0, 2], [1, 3]])
    rows = run(tf.gather_nd(x, [[1], [0], [3]], batch_dims=1))
    np.testing.assert_array_equal(rows, VALUES[[0, 1, 2], [1, 0, 3]])
    np.testing.assert_array_equal(run(tf.boolean_mask(x, VALUES > 30)), VALUES[VALUES > 30])
    mask = [True, False, True, True]
    np.testing.assert_array_equal(run(tf.boolean_mask(x, mask, axis=1)), VALUES[:, mask])
    np.testing.assert_array_equal(run(tf.where(VALUES > 57)), np.argwhere(VALUES > 57))
    np.testing.assert_array_equal(
        run(tf.where(VALUES > 30, x, -x)), np.where(VALUES > 30, VALUES, -VALUES)
    )
    with pytest.raises(ValueError, match="both"):
        tf.where([True], x=[1])


def test_one_hot():
    np.testing.assert_array_equal(run(tf.one_hot([0, 2, -1], 3)), [[1, 0, 0], [0, 0, 1], [0, 0, 0]])
    np.testing.assert_array_equal(
        run(tf.one_hot([1], 2, on_value=5, off_value=9, axis=0)), [[9], [5]]
    )
    with pytest.raises(TypeError, match="on_value"):
        tf.one_hot([1], 2, on_value=tf.constant(1), dtype=tf.float32)


def test_grids_and_masks():
    for indexing in ("xy", "ij"):
        got = run(tf.meshgrid([1, 2, 3], [4, 5], indexing=indexing))
        for a, b in zip(got, np.meshgrid([1, 2, 3], [4, 5], indexing=indexing), strict=True):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(
        run(tf.sequence_mask([0, 2, 3], 4)),
        [[False] * 4, [True, True, False, False], [True, True, True, False]],
    )
    assert tf.broadcast_static_shape(tf.TensorShape([2, 1]), tf.TensorShape([3])).as_list() == [
        2,
        3,
    ]


def test_sorting():
    values = np.array([[3, -1, 2], [-128, 127, 0]], np.int8)
    for axis in (-1, 0):
        np.testing.assert_array_equal(run(tf.sort(values, axis)), np.sort(values, axis))
        order = np.argsort(values, axis, kind="stable")
        np.testing.assert_array_equal(run(tf.argsort(values, axis)), order)
    np.testing.assert_array_equal(run(tf.sort([1.0, 3.0, 2.0], direction="DESCENDING")), [3, 2, 1])


def test_gradients_flow_through():
    x = tf.constant(VALUES)
    y = tf.reduce_sum(tf.transpose(x[1, ::-1, None])[2:] * 3.0)
    expected = np.zeros_like(VALUES)
    expected[1, :, 2:] = 3
    np.testing.assert_array_equal(run(tf.gradients(y, x)[0]), expected)


def test_unravel_index_is_public():
    coordinates = tf.unravel_index(indices=[1, 5], dims=[2, 3], name="where")
    assert coordinates.op.name == "where" and coordinates.shape == [2, 2]
    assert run(coordinates).tolist() == [[0, 1], [1, 2]]


def test_constants_are_filled_up_with_their_last_value():
    made = [
        tf.constant(7, shape=[2, 300]), tf.constant([7], tf.float16, [2, 300]),
        tf.constant("x", shape=[2]), tf.constant([1, 2], shape=[2, 2]),
        tf.constant(2.0, tf.bfloat16, [600]), tf.constant(True, shape=[0, 3]),
    ]  # fmt: skip
    with tf.Session() as session:
        got = session.run(made)
    assert (got[0] == 7).all() and got[0].dtype == np.int32 and got[0].shape == (2, 300)
    assert (got[1] == 7).all() and got[1].dtype == np.float16 and got[1].flags.writeable
    assert got[2].tolist() == [b"x", b"x"] and got[3].tolist() == [[1, 2], [2, 2]]
    assert (got[4] == 2).all() and got[5].shape == (0, 3)
    with pytest.raises(ValueError, match="Too many elements"):
        tf.constant([1, 2, 3], shape=[2])
