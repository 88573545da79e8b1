"""Elementwise functions, reductions, matrices, random values and assertions, against NumPy."""

import numpy as np
import pytest

import millrace.compat.v1 as tf


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def run(fetches, feeds=None):
    with tf.Session() as session:
        return session.run(fetches, feeds)


def names():
    return [op.name for op in tf.get_default_graph().get_operations()]


# Elementwise.


def test_division_rounds_as_its_name_says():
    x, y = tf.constant([7, -7]), tf.constant([2, 2])
    quotients = run([tf.div(x, y), tf.truediv(x, y), tf.floordiv(x, y), tf.truncatediv(x, y)])
    np.testing.assert_array_equal(quotients[0], [3, -4])
    np.testing.assert_array_equal(quotients[1], [3.5, -3.5])
    assert quotients[1].dtype == np.float64
    np.testing.assert_array_equal(quotients[2], [3, -4])
    np.testing.assert_array_equal(quotients[3], [3, -3])
    np.testing.assert_array_equal(run(tf.mod(x, y)), [1, 1])
    np.testing.assert_array_equal(run(tf.truncatemod(x, y)), [1, -1])


def test_operands_of_different_types_are_named():
    x, y = tf.constant(1, name="one"), tf.constant([2.0], name="two")
    with pytest.raises(TypeError, match=r"int32.*one.*float32.*two.*\(1,\)"):
        tf.truediv(x, y)


def test_sparse_tensors_keep_their_indices():
    sparse = tf.SparseTensor([[0, 1], [2, 0]], [-2.0, 3.0], [3, 3])
    for function, values in ((tf.abs, [2, 3]), (tf.sign, [-1, 1]), (tf.square, [4, 9])):
        out = run(function(sparse))
        np.testing.assert_array_equal(out.indices, [[0, 1], [2, 0]])
        np.testing.assert_array_equal(out.values, values)
    assert run(tf.cast(sparse, tf.int32)).values.dtype == np.int32


def test_casts():
    x = tf.constant([1.5])
    assert tf.cast(x, tf.float32) is x
    assert tf.to_int32(x).op.name == "ToInt32"
    big = run(tf.saturate_cast([1e20, -1e20, 300.0, 2.7], tf.uint8))
    np.testing.assert_array_equal(big, [255, 0, 255, 2])
    assert run(tf.saturate_cast([1e20], tf.int32))[0] == 2147483520
    np.testing.assert_array_equal(run(tf.to_int32([np.inf, np.nan])), [-(2**31)] * 2)


def test_complex_numbers():
    z = tf.complex([3.0], [4.0])
    assert z.dtype == tf.complex64
    np.testing.assert_array_equal(run(tf.abs(z)), [5])
    np.testing.assert_array_equal(run([tf.real(z), tf.imag(z)]), [[3], [4]])
    x = tf.constant([1.0])
    assert tf.conj(x) is x and tf.real(x) is x
    with pytest.raises(TypeError, match="float32.*float64"):
        tf.complex(x, tf.constant([1.0], tf.float64))
    with pytest.raises(TypeError, match="numeric"):
        tf.conj(["text"])


def test_ranges_take_the_widest_type():
    assert tf.range(3).dtype == tf.int32
    assert tf.range(0, 3.0).dtype == tf.float32
    assert tf.range(np.int64(3)).dtype == tf.int64
    assert tf.range(3, dtype=tf.float64).dtype == tf.float64
    np.testing.assert_array_equal(run(tf.range(10, 0, -3)), [10, 7, 4, 1])
    assert tf.range(5).shape == (5,)
    np.testing.assert_allclose(run(tf.linspace(1.0, 2.0, 3)), [1, 1.5, 2])


def test_sums_of_lists():
    x = tf.constant([1.0, 2.0])
    assert tf.add_n([x]) is x
    assert tf.add_n([x], name="same").op.type == "Identity"
    np.testing.assert_array_equal(run(tf.add_n([x, x, x])), [3, 6])
    np.testing.assert_array_equal(run(tf.accumulate_n([x, x], shape=[2])), [2, 4])
    with pytest.raises(ValueError, match="at least one"):
        tf.add_n([])
    with pytest.raises(ValueError):
        tf.accumulate_n([x, tf.constant([1.0])])


def test_older_names_of_arguments():
    x = tf.constant([[1.0, 5.0], [7.0, 2.0]])
    np.testing.assert_array_equal(run(tf.argmax(x, dimension=1)), [1, 0])
    np.testing.assert_array_equal(run(tf.reduce_sum(x, reduction_indices=0)), [8, 7])
    assert run(tf.reduce_max(x, 1, keep_dims=True)).shape == (2, 1)
    for bad in ({"axis": 0, "dimension": 0},):
        with pytest.raises(ValueError, match="both"):
            tf.argmax(x, **bad)
    with pytest.raises(ValueError, match="both"):
        tf.reduce_sum(x, axis=0, reduction_indices=0)


def test_node_names():
    x = tf.constant([1.0], name="x")
    tf.reduce_mean(x), tf.add(x, x), tf.divide(x, x), tf.reduce_sum(x, 0)
    assert {"x", "Mean", "Const", "Add", "truediv", "Sum", "Sum/reduction_indices"} <= set(names())


# Reductions.


def test_reductions_of_unknown_rank():
    x = tf.placeholder(tf.float32)
    total = tf.reduce_sum(x)
    assert total.shape == ()
    assert run(total, {x: np.ones((2, 3))}) == 6


def test_logsumexp_neither_overflows_nor_makes_nan():
    x = np.array([[1000.0, 1000.0], [-np.inf, -np.inf], [np.inf, 0]], np.float32)
    out = run(tf.reduce_logsumexp(x, 1))
    np.testing.assert_allclose(out, [1000 + np.log(2), -np.inf, np.inf])
    assert run(tf.reduce_logsumexp(x[:1], keep_dims=True)).shape == (1, 1)


def test_counts():
    assert run(tf.count_nonzero([[0, 1], [2, 0]])) == 2
    np.testing.assert_array_equal(run(tf.count_nonzero([["a", ""]], axis=0)), [1, 0])
    np.testing.assert_array_equal(run(tf.bincount([1, 1, 3])), [0, 2, 0, 1])
    np.testing.assert_array_equal(run(tf.bincount([1, 1, 3], maxlength=2)), [0, 2])
    np.testing.assert_array_equal(
        run(tf.bincount([1], minlength=3, weights=[0.5])), [0, 0.5, 0][:3]
    )
    histogram = tf.histogram_fixed_width([-1.0, 0.0, 1.5, 2.0, 5.0, 15.0], [0.0, 5.0], 5)
    np.testing.assert_array_equal(run(histogram), [2, 1, 1, 0, 2])
    matrix = tf.confusion_matrix([1, 2, 2], [1, 2, 0])
    np.testing.assert_array_equal(run(matrix), [[0, 0, 0], [0, 1, 0], [1, 0, 1]])


# Matrices.


def test_matmul_transposes_and_conjugates():
    rng = np.random.RandomState(3)
    a = rng.randn(2, 3) + 1j * rng.randn(2, 3)
    b = rng.randn(2, 3) + 1j * rng.randn(2, 3)
    np.testing.assert_allclose(run(tf.matmul(a, b, transpose_b=True)), a @ b.T)
    np.testing.assert_allclose(run(tf.matmul(a, b, adjoint_a=True)), a.conj().T @ b)
    batch = np.stack([a, b])
    np.testing.assert_allclose(
        run(tf.matmul(batch, batch, transpose_b=True)), batch @ batch.transpose(0, 2, 1)
    )
    with pytest.raises(ValueError, match="Only one"):
        tf.matmul(a, b, transpose_a=True, adjoint_a=True)
    with pytest.raises(ValueError, match=r"Dimensions must be equal.*\[2,3\].*\[2,3\]"):
        tf.matmul(a, b)


@pytest.mark.parametrize("order", ["euclidean", 1, 2, 3.5, np.inf])
def test_norms_of_vectors(order):
    x = np.random.RandomState(0).randn(3, 4)
    numbers = None if order == "euclidean" else order
    np.testing.assert_allclose(run(tf.norm(x, order, axis=1)), np.linalg.norm(x, numbers, 1))
    np.testing.assert_allclose(run(tf.norm(x, order)), np.linalg.norm(x.ravel(), numbers))


def test_norms_of_matrices():
    x = np.random.RandomState(0).randn(2, 3, 4)
    for order in ("fro", 1, np.inf):
        out = run(tf.norm(x, order, axis=[0, 2], keep_dims=True))
        np.testing.assert_allclose(out, np.linalg.norm(x, order, (0, 2), keepdims=True))
    for bad in ("fro", -1, "other"):
        with pytest.raises(ValueError, match="'ord' must be a supported vector norm"):
            tf.norm(x, bad, axis=0)
    with pytest.raises(ValueError, match="'axis' must be"):
        tf.norm(x, axis=[1, 1])


EQUATIONS = [
    "ij,jk->ik", "ij,jk", "ij->ji", "ii->i", "ii", "iij->j", "ab,bc,cd->ad", "abc,abd->acd",
    "i,j->ij", "ab,ab->", "ab,cd->", "abc->", "abc,ac->b", "a,ab,abc->abc", "ba,b",
]  # fmt: skip


@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum(equation):
    rng = np.random.RandomState(1)
    operands = [
        rng.randn(*[2 + ord(c) % 3 for c in labels])
        for labels in equation.split("->")[0].split(",")
    ]
    expected = np.einsum(equation, *operands)
    np.testing.assert_allclose(run(tf.einsum(equation, *operands)), expected)
    open_operands = [tf.placeholder(tf.float64, [None] * x.ndim) for x in operands]
    out = tf.einsum(equation, *open_operands)
    feeds = dict(zip(open_operands, operands, strict=True))
    np.testing.assert_allclose(run(out, feeds), expected)


def test_einsum_broadcasts_dots():
    rng = np.random.RandomState(1)
    a, b = rng.randn(6, 1, 3, 4), rng.randn(2, 4, 5)
    np.testing.assert_allclose(
        run(tf.einsum("...ij,...jk->...ik", a, b)), np.einsum("...ij,...jk->...ik", a, b)
    )


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk", [(2, 3)]),
        ("ij,jk", [(2, 3), (4, 5)]),
        ("ij->ik", [(2, 3)]),
        ("ij->ii", [(2, 3)]),
        ("ijk->i", [(2, 3)]),
        ("i!j->i", [(2, 3)]),
    ],
)
def test_einsum_refuses(equation, shapes):
    with pytest.raises(ValueError, match="einsum"):
        tf.einsum(equation, *[np.zeros(s) for s in shapes])


@pytest.mark.parametrize("axes", [0, 1, ([1, 2], [1, 0]), ([-1], [0])])
def test_tensordot(axes):
    rng = np.random.RandomState(2)
    a, b = rng.randn(2, 3, 4), rng.randn(4, 3, 5)
    expected = np.tensordot(a, b, axes)
    out = tf.tensordot(a, b, axes)
    assert out.shape == expected.shape
    np.testing.assert_allclose(run(out), expected)
    pa, pb = tf.placeholder(tf.float64), tf.placeholder(tf.float64)
    np.testing.assert_allclose(run(tf.tensordot(pa, pb, axes), {pa: a, pb: b}), expected)


def test_eye():
    np.testing.assert_array_equal(run(tf.eye(2, 3)), np.eye(2, 3))
    assert run(tf.eye(2, batch_shape=[3, 1], dtype=tf.int32)).shape == (3, 1, 2, 2)


# Random values.


def test_seeds_come_from_the_graph_and_the_operation():
    assert tf.get_seed(None) == (None, None)
    assert tf.get_seed(5) == (87654321, 5)
    tf.set_random_seed(7)
    tf.constant(1)
    assert tf.get_seed(None) == (7, 1)
    assert tf.get_seed(0) == (7, 0)
    tf.set_random_seed(0)
    assert tf.get_seed(0) == (0, 2**31 - 1)


def test_the_same_seeds_give_the_same_values():
    def values():
        with tf.Graph().as_default():
            tf.set_random_seed(1)
            return run(
                [tf.random_uniform([4]), tf.random_normal([4]), tf.truncated_normal([4], 5.0)]
            )

    first, second = values(), values()
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(first[0], first[1])
    assert np.all(np.abs(first[2] - 5) <= 2)


def test_random_integers_and_errors():
    x = run(tf.random_uniform([1000], 3, 6, tf.int32, seed=1))
    assert set(x) == {3, 4, 5}
    with pytest.raises(ValueError, match="maxval"):
        tf.random_uniform([2], dtype=tf.int32)
    with pytest.raises(ValueError, match="uint8"):
        tf.random_uniform([2], dtype=tf.uint8)


def test_random_crops_and_shuffles():
    x = np.arange(20).reshape(4, 5)
    crop = run(tf.random_crop(x, [2, 3], seed=3))
    assert crop.shape == (2, 3) and crop[0, 1] == crop[0, 0] + 1 and crop[1, 0] == crop[0, 0] + 5
    shuffled = run(tf.random_shuffle(x, seed=3))
    np.testing.assert_array_equal(np.sort(shuffled[:, 0]), x[:, 0])
    with pytest.raises(tf.errors.InvalidArgumentError, match="value.shape >= size"):
        run(tf.random_crop(x, [5, 5]))


# Bounds.


def test_clips():
    x = np.array([[3.0, 4.0], [0.3, 0.4]], np.float32)
    np.testing.assert_array_equal(run(tf.clip_by_value(x, 1.0, 3.5)), np.clip(x, 1, 3.5))
    np.testing.assert_allclose(
        run(tf.clip_by_norm(x, 1.0, axes=[1])), [[0.6, 0.8], [0.3, 0.4]], rtol=1e-6
    )
    (a, none, b), norm = tf.clip_by_global_norm([x, None, tf.constant([12.0])], 6.5)
    assert none is None
    total = np.sqrt(np.sum(x * x) + 144)
    np.testing.assert_allclose(run(norm), total)
    np.testing.assert_allclose(run(b), [12 * 6.5 / total], rtol=1e-6)
    np.testing.assert_allclose(run(a), x * 6.5 / total, rtol=1e-6)
    with pytest.raises(ValueError, match="clip_by_value"):
        tf.clip_by_value(x, np.zeros((3, 2, 2), np.float32), 1.0)


def test_the_gradient_of_clip_by_norm_at_zero_is_finite():
    x = tf.constant([0.0, 0.0])
    np.testing.assert_array_equal(run(tf.gradients(tf.clip_by_norm(x, 1.0), x)[0]), [1, 1])


def test_nan_is_found():
    x = tf.placeholder(tf.float32, [2])
    checked = tf.verify_tensor_all_finite(x, "the message")
    np.testing.assert_array_equal(run(checked, {x: [1, 2]}), [1, 2])
    with pytest.raises(tf.errors.InvalidArgumentError, match="the message"):
        run(checked, {x: [1, np.nan]})
    y = tf.log(x, name="logarithm")
    check = tf.add_check_numerics_ops()
    with pytest.raises(tf.errors.InvalidArgumentError, match="logarithm:0"):
        run([y, check], {x: [1, -1]})


# Assertions.


def test_known_values_are_checked_at_once():
    with pytest.raises(tf.errors.InvalidArgumentError, match="(?s)why.*x == y"):
        tf.assert_equal([1, 2], [1, 3], message="why")
    with pytest.raises(tf.errors.InvalidArgumentError, match="x > 0"):
        tf.assert_positive([1, 0])
    run([tf.assert_less([1], [2]), tf.assert_non_negative([0, 1]), tf.assert_none_equal([1], [2])])


def test_values_are_checked_when_run():
    x = tf.placeholder(tf.int32, [None])
    check = tf.assert_less(x, 3, message="why")
    run(check, {x: [1, 2]})
    with pytest.raises(tf.errors.InvalidArgumentError, match="why.*x < y"):
        run(check, {x: [1, 3]})


def test_ranks():
    x, unknown = tf.placeholder(tf.float32, [2, 3]), tf.placeholder(tf.float32)
    tf.assert_rank(x, 2), tf.assert_rank_at_least(x, 1), tf.assert_rank_in(x, [1, 2])
    for check in (
        lambda: tf.assert_rank(x, 1),
        lambda: tf.assert_rank_at_least(x, 3),
        lambda: tf.assert_rank_in(x, [0, 1]),
    ):
        with pytest.raises(ValueError, match="must have rank"):
            check()
    with pytest.raises(tf.errors.InvalidArgumentError, match="must have rank"):
        run(tf.assert_rank(unknown, 1), {unknown: 1.0})


def test_types():
    tf.assert_integer(1)
    with pytest.raises(TypeError, match="integer"):
        tf.assert_integer(1.0)
    with pytest.raises(TypeError, match="float32"):
        tf.assert_type(tf.constant(1), tf.float32)
    assert tf.is_numeric_tensor(tf.constant(1.0)) and not tf.is_numeric_tensor(tf.constant("a"))
    with pytest.raises(TypeError, match="proper"):
        tf.assert_proper_iterable(tf.constant([1]))


def test_orders():
    assert run([tf.is_non_decreasing(x) for x in ([1, 2, 2], [2, 1], [1])]) == [True, False, True]
    assert run([tf.is_strictly_increasing(x) for x in ([1, 2, 2], [1, 2])]) == [False, True]


# Segments.


def test_segments_of_numbers():
    data = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], np.float32)
    np.testing.assert_array_equal(run(tf.segment_sum(data, [0, 0, 1])), [[4, 6], [5, 6]])
    np.testing.assert_array_equal(
        run(tf.unsorted_segment_mean(data, [2, 2, 0], 3)), [[5, 6], [0, 0], [2, 3]]
    )
    np.testing.assert_array_equal(
        run(tf.sparse_segment_mean(data, [2, 0], [0, 0], num_segments=2)), [[3, 4], [0, 0]]
    )


def test_what_is_drawn_from_a_gamma_distribution_has_a_gradient():
    alpha, beta = tf.constant([0.3, 2.5]), tf.constant([1.0, 2.0])
    drawn = tf.random_gamma([2000], alpha, beta, seed=3)
    slopes = tf.gradients(tf.reduce_mean(drawn, 0), [alpha, beta])
    means, (by_alpha, by_beta) = run([tf.reduce_mean(drawn, 0), slopes])
    # The mean is alpha / beta.
    np.testing.assert_allclose(means, [0.3, 1.25], rtol=0.1)
    np.testing.assert_allclose(by_alpha, [1, 0.5], rtol=0.1)
    np.testing.assert_allclose(by_beta, -means / [1.0, 2.0], rtol=1e-5)


def test_the_incomplete_gamma_functions_have_gradients_by_both_arguments():
    a, x = tf.constant([0.5, 3.0], tf.float64), tf.constant([0.9, 2.0], tf.float64)
    for f in (tf.igamma, tf.igammac):
        by_a, by_x = run(tf.gradients(f(a, x), [a, x]))
        step = 1e-5
        np.testing.assert_allclose(
            by_a, run(f(a + step, x) - f(a - step, x)) / (2 * step), rtol=1e-7
        )
        np.testing.assert_allclose(
            by_x, run(f(a, x + step) - f(a, x - step)) / (2 * step), rtol=1e-7
        )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_angles_of_points_with_zeros_and_infinities(dtype):
    values = np.array([0.0, -0.0, 1.5, -1.5, np.inf, -np.inf], dtype)
    y, x = (part.ravel() for part in np.meshgrid(values, values))
    angles, expected = run(tf.atan2(tf.constant(y), tf.constant(x))), np.arctan2(y, x)
    np.testing.assert_allclose(angles, expected, rtol=1e-6)
    assert np.array_equal(np.signbit(angles), np.signbit(expected))
    origin = tf.zeros([], dtype)
    assert run(tf.gradients(tf.atan2(origin, origin), [origin])) == [0]
