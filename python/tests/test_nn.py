"""Functions of neural networks against NumPy."""

import itertools

import numpy as np
import pytest

import millrace.compat.v1 as tf


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default():
        yield


def run(*tensors, feed=None):
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        values = session.run(list(tensors), feed)
    return values[0] if len(values) == 1 else values


def values(*shape):
    return np.random.RandomState(sum(shape)).randn(*shape).astype(np.float32)


def convolved(x, k, rate=1):
    """A convolution without padding, element by element."""
    height = x.shape[1] - (k.shape[0] - 1) * rate
    width = x.shape[2] - (k.shape[1] - 1) * rate
    out = np.zeros((x.shape[0], height, width, k.shape[3]), np.float32)
    for i in range(k.shape[0]):
        for j in range(k.shape[1]):
            part = x[:, i * rate : i * rate + height, j * rate : j * rate + width]
            out += part @ k[i, j]
    return out


@pytest.mark.parametrize("rate", [1, 2, 3])
def test_convolution_with_gaps(rate):
    x, k = values(2, 9, 8, 3), values(3, 2, 3, 4)
    got = run(tf.nn.convolution(x, k, "VALID", dilation_rate=[rate, rate]))
    np.testing.assert_allclose(got, convolved(x, k, rate), rtol=1e-4, atol=1e-4)


def test_with_space_to_batch_is_a_convolution_with_gaps():
    x, k = values(2, 9, 8, 3), values(3, 2, 3, 4)

    def plain(part, _, padding):
        return tf.nn.conv2d(part, k, [1, 1, 1, 1], padding)

    for padding in ("SAME", "VALID"):
        apart = tf.nn.with_space_to_batch(x, [2, 2], padding, plain, filter_shape=[3, 2])
        gaps = tf.nn.atrous_conv2d(x, k, 2, padding)
        a, b = run(apart, gaps)
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_transposed_convolution_is_the_gradient():
    k = values(3, 3, 4, 2)
    y = tf.constant(values(1, 3, 3, 2))
    x = tf.zeros([1, 6, 6, 4])
    forward = tf.nn.conv2d(x, k, [1, 2, 2, 1], "SAME")
    gradient = tf.gradients(tf.reduce_sum(forward * y), x)[0]
    transposed = tf.nn.conv2d_transpose(y, k, [1, 6, 6, 4], [1, 2, 2, 1])
    a, b = run(gradient, transposed)
    np.testing.assert_allclose(a, b, rtol=1e-5)


def test_separable_convolution():
    x, deep, across = values(1, 5, 5, 2), values(3, 3, 2, 2), values(1, 1, 4, 3)
    got = run(tf.nn.separable_conv2d(x, deep, across, [1, 1, 1, 1], "VALID"))
    middle = np.concatenate(
        [convolved(x[..., c : c + 1], deep[:, :, c : c + 1]) for c in range(2)], -1
    )
    np.testing.assert_allclose(got, convolved(middle, across), rtol=1e-4, atol=1e-4)


def test_pool_of_one_dimension_with_gaps():
    x = values(1, 7, 1)
    got = run(tf.nn.pool(x, [2], "MAX", "VALID", dilation_rate=[3]))
    expected = np.maximum(x[:, :4], x[:, 3:])
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: tf.nn.convolution(x, np.zeros([2, 2, 9, 1]), "SAME"),
        lambda x: tf.nn.convolution(x, values(2, 2, 3, 1), "SAME", [2, 2], [2, 2]),
        lambda x: tf.nn.conv2d(x, values(2, 2, 3, 1), [1, 2, 3], "SAME"),
        lambda x: tf.nn.conv2d_transpose(x, values(2, 2, 1, 9), [1, 8, 8, 1], [1, 1, 1, 1]),
        lambda x: tf.nn.pool(x, [2, 2], "MIN", "SAME"),
        lambda x: tf.nn.dropout(x, 1.5),
        lambda x: tf.nn.embedding_lookup([], [1]),
        lambda x: tf.nn.embedding_lookup([x, x], [1], "other"),
    ],
)  # fmt: skip
def test_mistakes_are_value_errors(call):
    with pytest.raises(ValueError):
        call(tf.constant(values(1, 8, 8, 3)))


def test_moments_with_weights():
    x, w = values(3, 4), np.abs(values(3, 4))
    mean, variance = run(*tf.nn.weighted_moments(tf.constant(x), [0], w))
    np.testing.assert_allclose(mean, (w * x).sum(0) / w.sum(0), rtol=1e-5)
    expected = (w * (x - mean) ** 2).sum(0) / w.sum(0)
    np.testing.assert_allclose(variance, expected, rtol=1e-4)
    kept = tf.nn.moments(tf.constant(x), [1], keep_dims=True)[0]
    assert kept.shape.as_list() == [3, 1]


def test_statistics_make_the_moments():
    x = values(4, 5)
    for given in (tf.constant(x), tf.placeholder_with_default(x, [None, None])):
        parts = tf.nn.sufficient_statistics(given, [0], shift=0.5)
        mean, variance = run(*tf.nn.normalize_moments(*parts))
        np.testing.assert_allclose(mean, x.mean(0), atol=1e-5)
        np.testing.assert_allclose(variance, x.var(0), rtol=1e-4)


def test_softmax_along_any_axis_of_unknown_shape():
    x = values(2, 3, 4)
    for axis in (0, 1, -1, -2):
        got = run(tf.nn.softmax(tf.placeholder_with_default(x, None), axis=axis))
        e = np.exp(x)
        np.testing.assert_allclose(got, e / e.sum(axis, keepdims=True), rtol=1e-5)


def test_dropout_shares_its_choice_along_dimensions_of_one():
    x = tf.ones([50, 8])
    got = run(tf.nn.dropout(x, 0.5, noise_shape=[None, 1], seed=1))
    assert set(np.unique(got)) == {0.0, 2.0}
    assert (got == got[:, :1]).all()


@pytest.mark.parametrize("strategy", ["mod", "div"])
def test_embedding_of_shards(strategy):
    table = values(10, 3)
    if strategy == "mod":
        parts = [table[i::3] for i in range(3)]
    else:
        parts = [table[:4], table[4:7], table[7:]]
    ids = np.array([[0, 9, 5], [3, 7, 1]])
    got = tf.nn.embedding_lookup(parts, ids, strategy)
    assert got.shape.as_list() == [2, 3, 3]
    np.testing.assert_array_equal(run(got), table[ids])


def test_embedding_gradient_touches_only_its_rows():
    table = tf.Variable(values(6, 2))
    rows = tf.nn.embedding_lookup(table, [1, 4])
    gradient = tf.gradients(rows, table)[0]
    assert isinstance(gradient, tf.IndexedSlices)
    np.testing.assert_array_equal(run(gradient.indices), [1, 4])


def test_embedding_max_norm():
    got = run(tf.nn.embedding_lookup(values(5, 3) * 10, [1, 2], max_norm=1.0))
    np.testing.assert_allclose(np.linalg.norm(got, axis=1), [1, 1], rtol=1e-5)


def test_safe_embedding_fills_empty_rows():
    table = values(5, 2)
    ids = tf.SparseTensor([[0, 0], [0, 1], [2, 0]], tf.constant([1, -1, 3], tf.int64), [3, 2])
    got = run(tf.nn.safe_embedding_lookup_sparse([table], ids))
    np.testing.assert_allclose(got, [table[1], [0, 0], table[3]], rtol=1e-6)
    got = run(tf.nn.safe_embedding_lookup_sparse([table], ids, default_id=4))
    np.testing.assert_allclose(got, [table[1], table[4], table[3]], rtol=1e-6)


@pytest.mark.parametrize(
    "labels, logits", [((2, 3, 4), (6, 4)), ((6, 4), (2, 3, 4)), ((4,), (1, 4)), ((1, 4), (3, 4))]
)
def test_cross_entropy_compares_rows(labels, logits):
    given, scores = values(*labels), values(*logits)
    cost = tf.nn.softmax_cross_entropy_with_logits_v2(labels=given, logits=scores)
    rows = scores.reshape(-1, 4).astype(np.float64)
    expected = -(given.reshape(-1, 4) * (rows - np.log(np.exp(rows).sum(-1, keepdims=True)))).sum(
        -1
    )
    np.testing.assert_allclose(run(cost), expected.reshape(logits[:-1]), rtol=1e-4)


def test_sparse_cross_entropy_wants_the_shape_of_the_logits():
    with pytest.raises(ValueError, match=r"\(3, 2\).*\(2, 3, 4\)"):
        tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=np.zeros([3, 2], np.int32), logits=values(2, 3, 4)
        )


def test_sampled_softmax_of_all_classes_is_the_softmax():
    classes, batch = 7, 3
    weights, biases, inputs = values(classes, 4), values(classes), values(batch, 4)
    labels = np.array([[2], [0], [6]])
    everything = (np.arange(classes), np.ones([batch, 1], np.float32), np.ones(classes, np.float32))
    sampled = tf.nn.sampled_softmax_loss(
        weights, biases, labels, inputs, classes, classes, sampled_values=everything
    )
    whole = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=labels[:, 0], logits=inputs @ weights.T + biases
    )
    a, b = run(sampled, whole)
    np.testing.assert_allclose(a, b, rtol=1e-5)


def test_nce_loss_trains():
    weights = tf.Variable(tf.zeros([20, 4]))
    biases = tf.Variable(tf.zeros([20]))
    loss = tf.reduce_mean(
        tf.nn.nce_loss(weights, biases, [[1], [2]], values(2, 4), num_sampled=5, num_classes=20)
    )
    step = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        first = session.run(loss)
        for _ in range(50):
            session.run(step)
        assert session.run(loss) < first


def labellings(times, classes):
    """The labels of every alignment: repeated classes merged, then blanks (the last) dropped."""
    for path in itertools.product(range(classes), repeat=times):
        merged = [c for i, c in enumerate(path) if i == 0 or c != path[i - 1]]
        yield path, tuple(c for c in merged if c != classes - 1)


def test_ctc_loss_is_the_sum_over_alignments():
    times, classes = 4, 3
    logits = values(times, 2, classes)
    wanted = [(0, 1), (1, 1)]
    labels = tf.SparseTensor([[0, 0], [0, 1], [1, 0], [1, 1]], tf.constant([0, 1, 1, 1]), [2, 2])
    given = tf.constant(logits)
    loss = tf.nn.ctc_loss(labels, given, [times, times])
    e = np.exp(logits)
    p = e / e.sum(-1, keepdims=True)
    expected = []
    for b, target in enumerate(wanted):
        total = sum(
            np.prod([p[t, b, c] for t, c in enumerate(path)])
            for path, found in labellings(times, classes)
            if found == target
        )
        expected.append(-np.log(total))
    got, gradient = run(loss, tf.gradients(loss, given)[0])
    np.testing.assert_allclose(got, expected, rtol=1e-4)
    np.testing.assert_allclose(gradient.sum(-1), np.zeros([times, 2]), atol=1e-5)


def test_ctc_needs_time_for_its_labels():
    labels = tf.SparseTensor([[0, 0], [0, 1]], tf.constant([1, 1]), [1, 2])
    with pytest.raises(tf.errors.InvalidArgumentError, match="Not enough time"):
        run(tf.nn.ctc_loss(labels, values(2, 1, 3), [2]))
    ignored = tf.nn.ctc_loss(labels, values(2, 1, 3), [2], ignore_longer_outputs_than_inputs=True)
    np.testing.assert_array_equal(run(ignored), [0])


def test_greedy_decoder():
    path = [0, 0, 2, 0, 1]
    logits = np.eye(3, dtype=np.float32)[path][:, None]
    (merged,), score = tf.nn.ctc_greedy_decoder(logits, [5])
    (plain,), _ = tf.nn.ctc_greedy_decoder(logits, [4], merge_repeated=False)
    a, b, s = run(merged, plain, score)
    np.testing.assert_array_equal(a.values, [0, 0, 1])
    np.testing.assert_array_equal(b.values, [0, 0, 0])
    np.testing.assert_array_equal(b.dense_shape, [1, 3])
    assert s == [[-5.0]]


def test_dilation_and_erosion_ignore_what_is_outside():
    x = -np.ones([1, 3, 3, 1], np.float32)
    x[0, 1, 1] = 5
    flat = np.zeros([3, 3, 1], np.float32)
    steps = [1, 1, 1, 1]
    grown = run(tf.nn.dilation2d(x, flat, steps, steps, "SAME"))
    np.testing.assert_array_equal(grown, np.full_like(x, 5))
    shrunk = run(tf.nn.erosion2d(-x, flat, steps, steps, "SAME"))
    np.testing.assert_array_equal(shrunk, np.full_like(x, -5))
    whole = run(tf.nn.dilation2d(x.astype(np.int32), flat.astype(np.int32), steps, steps, "SAME"))
    np.testing.assert_array_equal(whole, np.full([1, 3, 3, 1], 5))


def test_max_pool_across_depth():
    x = values(1, 2, 2, 6)
    got = run(tf.nn.max_pool(x, [1, 1, 1, 3], [1, 1, 1, 3], "SAME"))
    np.testing.assert_array_equal(got, x.reshape(1, 2, 2, 2, 3).max(-1))
    with pytest.raises(tf.errors.UnimplementedError, match="evenly divide"):
        tf.nn.max_pool(x, [1, 1, 1, 4], [1, 1, 1, 4], "SAME")
