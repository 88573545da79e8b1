"""Sparse tensors, against dense ones."""

import numpy as np
import pytest

import millrace.compat.v1 as tf


@pytest.fixture(autouse=True)
def _fresh_graph():
    tf.reset_default_graph()


def run(fetches, feeds=None):
    with tf.Session() as sess:
        return sess.run(fetches, feeds)


def random_dense(seed, shape=(4, 3)):
    rng = np.random.default_rng(seed)
    return np.where(rng.random(shape) < 0.5, rng.normal(size=shape), 0).astype(np.float32)


def sparse(dense):
    at = np.argwhere(dense)
    return tf.SparseTensor(at, dense[tuple(at.T)], dense.shape)


def dense(value):
    return run(tf.sparse_tensor_to_dense(value))


A, B = random_dense(1), random_dense(2)


def test_to_dense_and_back():
    np.testing.assert_array_equal(dense(sparse(A)), A)
    np.testing.assert_array_equal(dense(tf.sparse.from_dense(A)), A)


def test_a_constant_shape_need_not_be_fed():
    p = tf.sparse_placeholder(tf.float32, [2, 3])
    total = tf.sparse_reduce_sum(p)
    unknown = tf.sparse_placeholder(tf.float32)
    with tf.Session() as session:
        assert session.run(total, {p: ([[0, 1], [1, 2]], [1.0, 2.0])}) == 3.0
        assert session.run(tf.identity(p.dense_shape), {p: ([[0, 1]], [1.0])}).tolist() == [2, 3]
        for key, value in ((unknown, ([[0, 1]], [1.0])), (p, ([[0, 1]],)), (p, (1, 2, 3, 4))):
            with pytest.raises(ValueError, match="dense_shape"):
                session.run(tf.identity(key.values), {key: value})


def test_placeholder_takes_the_value():
    p = tf.sparse_placeholder(tf.float32)
    value = run(sparse(A))
    assert isinstance(value, tf.SparseTensorValue)
    np.testing.assert_array_equal(run(tf.sparse_tensor_to_dense(p), {p: value}), A)


def test_arithmetic():
    np.testing.assert_allclose(dense(tf.sparse_add(sparse(A), sparse(B))), A + B)
    np.testing.assert_allclose(run(tf.sparse_add(sparse(A), B)), A + B)
    np.testing.assert_allclose(dense(tf.sparse_maximum(sparse(A), sparse(B))), np.maximum(A, B))
    row = np.array([1.0, 2.0, 3.0], np.float32)
    np.testing.assert_allclose(dense(sparse(A) * row), A * row)
    np.testing.assert_allclose(dense(sparse(A) / row), A / row)
    np.testing.assert_allclose(
        run(tf.sparse_tensor_dense_matmul(sparse(A), B, adjoint_a=True)), A.T @ B, rtol=1e-5
    )
    with pytest.raises(TypeError, match="SparseTensor"):
        tf.sparse_add(A, B)


def test_threshold_drops_small_sums():
    total = run(tf.sparse_add(sparse(A), sparse(-A), thresh=0.1))
    assert len(total.values) == 0


@pytest.mark.parametrize("axis", [None, 0, 1, [-1], [0, 1]])
@pytest.mark.parametrize("keep", [False, True])
def test_reductions(axis, keep):
    numpy_axis = tuple(axis) if isinstance(axis, list) else axis
    expected = np.sum(A, axis=numpy_axis, keepdims=keep)
    got = tf.sparse_reduce_sum(sparse(A), axis, keep)
    assert got.shape.as_list() == list(expected.shape)
    np.testing.assert_allclose(run(got), expected, rtol=1e-5)
    of_sparse = tf.sparse_reduce_sum_sparse(sparse(A), axis, keep)
    np.testing.assert_allclose(dense(of_sparse), expected, rtol=1e-5)


def test_rearranging():
    np.testing.assert_array_equal(dense(tf.sparse_transpose(sparse(A))), A.T)
    np.testing.assert_array_equal(dense(tf.sparse_reshape(sparse(A), [2, -1])), A.reshape(2, 6))
    joined = tf.sparse_concat(1, [sparse(A), sparse(B)])
    np.testing.assert_array_equal(dense(joined), np.concatenate([A, B], 1))
    parts = tf.sparse_split(sp_input=sparse(A), num_split=2, axis=1)
    for part, expected in zip(parts, np.split(A, [2], 1), strict=True):
        np.testing.assert_array_equal(dense(part), expected)
    np.testing.assert_array_equal(dense(tf.sparse_slice(sparse(A), [1, 1], [2, 9])), A[1:3, 1:])
    unordered = tf.SparseTensor([[1, 0], [0, 1]], [1, 2], [2, 2])
    assert run(tf.sparse_reorder(unordered)).values.tolist() == [2, 1]
    with pytest.raises(ValueError, match="12 elements"):
        tf.sparse_reshape(sparse(A), [5, 5])


def test_empty_rows_and_shapes():
    sp = tf.SparseTensor([[1, 2]], [5], [3, 4])
    filled, empty = tf.sparse_fill_empty_rows(sp, -1)
    value, empty = run([filled, empty])
    assert value.indices.tolist() == [[0, 0], [1, 2], [2, 0]]
    assert value.values.tolist() == [-1, 5, -1]
    assert empty.tolist() == [True, False, True]
    assert run(tf.sparse_reset_shape(sp)).dense_shape.tolist() == [2, 3]
    assert run(tf.sparse_retain(sp, [False])).values.tolist() == []
    with pytest.raises(ValueError, match="new_shape"):
        tf.sparse_reset_shape(sp, [2, 9])


def test_softmax_and_its_gradient():
    sp = tf.SparseTensor([[0, 0], [0, 2], [1, 1]], tf.constant([1.0, 3.0, 2.0]), [2, 3])
    values = tf.sparse_softmax(sp).values
    row = np.exp([1.0, 3.0]) / np.exp([1.0, 3.0]).sum()
    np.testing.assert_allclose(run(values), [*row, 1.0], rtol=1e-5)
    d = run(tf.gradients(values[1], sp.values)[0])
    np.testing.assert_allclose(d, [-row[0] * row[1], row[1] * (1 - row[1]), 0], atol=1e-6)


def test_gradient_of_matmul():
    values = tf.constant(A[A != 0])
    sp = tf.SparseTensor(np.argwhere(A), values, A.shape)
    b = tf.constant(B.T)
    weights = np.arange(16.0, dtype=np.float32).reshape(4, 4)
    loss = tf.reduce_sum(tf.sparse_tensor_dense_matmul(sp, b) * weights)
    dv, db = run([tf.convert_to_tensor(g) for g in tf.gradients(loss, [values, b])])
    np.testing.assert_allclose(dv, (weights @ B)[A != 0], rtol=1e-4)
    np.testing.assert_allclose(db, A.T @ weights, rtol=1e-4)


def test_gradients_go_to_the_elements():
    at = np.array([[1, 0], [0, 2], [0, 1]])  # not in order
    values = tf.constant([1.0, 2.0, 3.0])
    sp = tf.SparseTensor(at, values, [2, 3])
    weights = np.array([[0, 5, 7], [11, 0, 0]], np.float32)
    expected = weights[tuple(at.T)]
    other = tf.SparseTensor([[0, 1]], tf.constant([4.0]), [2, 3])
    for made, scale in [
        (tf.sparse_tensor_to_dense(tf.sparse_reorder(sp)), 1),
        (tf.sparse_tensor_to_dense(tf.sparse_add(sp, other)), 1),
        (tf.sparse_add(sp, np.zeros((2, 3), np.float32)), 1),
        (tf.sparse_tensor_to_dense(tf.sparse_concat(0, [sp, other]))[:2], 1),
        (tf.sparse_tensor_to_dense(tf.sparse_reorder(sp * np.float32(2))), 2),
        (tf.sparse_tensor_to_dense(tf.sparse_fill_empty_rows(tf.sparse_reorder(sp), 9.0)[0]), 1),
    ]:
        d = run(tf.gradients(tf.reduce_sum(made * weights), values)[0])
        np.testing.assert_allclose(d, scale * expected)


def test_static_shapes_of_what_is_fed():
    sp = tf.sparse_placeholder(tf.float32)
    sp.indices.set_shape([5, 2])
    assert tf.sparse_reshape(sp, [3, 4, -1]).indices.shape.as_list() == [5, 3]
    assert tf.sparse_reshape(sp, [3, 4, -1]).shape.as_list() == [3, 4, None]
    other = tf.sparse_placeholder(tf.float32)
    other.dense_shape.set_shape([2])
    assert tf.sparse_concat(0, [sp, other]).dense_shape.shape.as_list() == [2]


def test_sets():
    a, b = [[5, 1, 5], [2, 3, 4]], [[1, 9], [4, 2]]
    assert run(tf.sets.set_intersection(a, b)).values.tolist() == [1, 2, 4]
    assert run(tf.sets.set_difference(a, b)).values.tolist() == [5, 3]
    assert run(tf.sets.set_difference(tf.sparse.from_dense(a), b)).values.tolist() == [5, 3]
    assert run(tf.sets.set_union(a, b)).values.tolist() == [1, 5, 9, 2, 3, 4]
    assert run(tf.sets.set_size(tf.sparse.from_dense(a))).tolist() == [2, 3]
    with pytest.raises(TypeError, match="float32"):
        tf.sets.set_union([[1.0]], [[2.0]])


def test_strings_and_distances():
    rows = tf.serialize_many_sparse(sparse(A))
    back = tf.deserialize_many_sparse(rows, tf.float32, rank=2)
    np.testing.assert_array_equal(dense(back), A)
    said = tf.string_split(["c a t", "d o g"])
    meant = tf.string_split(["a t", "d i g s"])
    np.testing.assert_allclose(run(tf.edit_distance(said, meant, normalize=False)), [1, 2])
