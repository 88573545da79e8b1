"""Losses, metrics and functions of images against NumPy."""

import numpy as np
import pytest

import millrace.compat.v1 as tf


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default():
        yield


def run(*tensors):
    with tf.Session() as session:
        values = session.run(list(tensors))
    return values[0] if len(values) == 1 else values


def test_reductions():
    labels, predictions = np.zeros([3, 2], np.float32), np.arange(6.0).reshape(3, 2)
    weights = np.array([[1.0], [0.0], [2.0]], np.float32)
    weighted = (predictions**2 * weights).sum()
    r = tf.losses.Reduction
    expected = {
        r.SUM: weighted, r.MEAN: weighted / 6, r.SUM_BY_NONZERO_WEIGHTS: weighted / 4,
        r.SUM_OVER_BATCH_SIZE: weighted / 6,
    }  # fmt: skip
    for reduction, value in expected.items():
        loss = tf.losses.mean_squared_error(labels, predictions, weights, reduction=reduction)
        np.testing.assert_allclose(run(loss), value, rtol=1e-6)
    none = tf.losses.mean_squared_error(labels, predictions, weights, reduction=r.NONE)
    assert none.shape.as_list() == [3, 2]
    assert len(tf.losses.get_losses()) == 5
    with pytest.raises(ValueError, match="Invalid Reduction"):
        tf.losses.mean_squared_error(labels, predictions, reduction="other")


def test_weights_that_do_not_fit():
    losses = np.ones([3, 2], np.float32)
    for weights in ([1.0, 2.0, 3.0], np.ones([3, 3]), np.ones([3, 2, 1])):
        with pytest.raises(ValueError, match="weights can not be broadcast to values"):
            tf.losses.compute_weighted_loss(losses, weights)
    fed = tf.placeholder(tf.float32)
    loss = tf.losses.compute_weighted_loss(losses, fed)
    with tf.Session() as session:
        assert session.run(loss, {fed: 2.0}) == 2.0
        with pytest.raises(tf.errors.InvalidArgumentError, match="weights can not be broadcast"):
            session.run(loss, {fed: [1.0, 2.0]})


def test_total_loss_has_regularization():
    tf.losses.absolute_difference([0.0], [3.0])
    tf.get_variable("w", [], initializer=tf.ones_initializer(), regularizer=lambda w: w * 10)
    total = tf.losses.get_total_loss()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(total) == 13.0


def test_gradient_is_zero_where_no_weight_is():
    x = tf.constant([1.0, 2.0])
    loss = tf.losses.mean_squared_error([0.0, 0.0], x, weights=0.0)
    np.testing.assert_array_equal(run(tf.gradients(loss, x)[0]), [0, 0])


def streamed(metric, batches, feeds):
    """The value after all batches, which the last update gives too."""
    value, update = metric
    with tf.Session() as session:
        session.run(tf.local_variables_initializer())
        for batch in batches:
            last = session.run(update, dict(zip(feeds, batch, strict=True)))
        got = session.run(value)
        np.testing.assert_allclose(got, last, rtol=1e-5)
        np.testing.assert_allclose(session.run(value), got)
    return got


def test_metrics_of_a_stream():
    rng = np.random.RandomState(0)
    batches = [(rng.randint(0, 2, 5), rng.rand(5).astype(np.float32)) for _ in range(4)]
    labels, scores = (np.concatenate(x) for x in zip(*batches, strict=True))
    feeds = tf.placeholder(tf.int64, [None]), tf.placeholder(tf.float32, [None])
    guesses = tf.cast(feeds[1] > 0.5, tf.int64)
    guessed = scores > 0.5
    hits = (labels * guessed).sum()
    cases = [
        (tf.metrics.accuracy(feeds[0], guesses), (labels == guessed).mean()),
        (tf.metrics.precision(feeds[0], guesses), hits / guessed.sum()),
        (tf.metrics.recall(feeds[0], guesses), hits / labels.sum()),
        (tf.metrics.false_positives(feeds[0], guesses), ((labels == 0) & guessed).sum()),
        (tf.metrics.mean(feeds[1]), scores.mean()),
        (tf.metrics.mean_absolute_error(feeds[0], feeds[1]), np.abs(labels - scores).mean()),
        (
            tf.metrics.root_mean_squared_error(feeds[0], feeds[1]),
            np.sqrt(((labels - scores) ** 2).mean()),
        ),
        (tf.metrics.percentage_below(feeds[1], 0.3), (scores < 0.3).mean()),
        (
            tf.metrics.recall_at_thresholds(feeds[0], feeds[1], [0.2, 0.7]),
            [(labels * (scores > t)).sum() / labels.sum() for t in (0.2, 0.7)],
        ),
    ]
    for metric, expected in cases:
        np.testing.assert_allclose(streamed(metric, batches, feeds), expected, rtol=1e-5)
    positive, negative = scores[labels == 1], scores[labels == 0]
    area = (positive[:, None] > negative[None]).mean()
    got = streamed(tf.metrics.auc(feeds[0], feeds[1]), batches, feeds)
    np.testing.assert_allclose(got, area, atol=0.01)


def test_variables_of_metrics_are_local():
    tf.metrics.accuracy([1], [1], name="mine")
    assert [v.name for v in tf.local_variables()] == ["mine/total:0", "mine/count:0"]
    assert tf.global_variables() == []
    assert tf.get_collection(tf.GraphKeys.METRIC_VARIABLES) == tf.local_variables()


def test_best_k():
    scores = np.array([[0.1, 0.5, 0.3, 0.1], [0.6, 0.1, 0.2, 0.1]], np.float32)
    dense = np.array([[1, 3], [2, 2]])
    sparse = tf.SparseTensor([[0, 0], [0, 1], [1, 0]], tf.constant([1, 3, 2], tf.int64), [2, 2])
    for labels in (dense, sparse):
        for k, recall, precision in ((1, 1 / 3, 1 / 2), (2, 2 / 3, 2 / 4)):
            got = streamed(tf.metrics.recall_at_k(labels, scores, k), [()], ())
            np.testing.assert_allclose(got, recall)
            got = streamed(tf.metrics.precision_at_k(labels, scores, k), [()], ())
            np.testing.assert_allclose(got, precision)
        only = tf.metrics.recall_at_k(labels, scores, 2, class_id=2)
        np.testing.assert_allclose(streamed(only, [()], ()), 1.0)


def test_mean_iou():
    value, update = tf.metrics.mean_iou([0, 1, 1, 0], [0, 1, 0, 0], 2)
    with tf.Session() as session:
        session.run(tf.local_variables_initializer())
        np.testing.assert_array_equal(session.run(update), [[2, 0], [1, 1]])
        np.testing.assert_allclose(session.run(value), (2 / 3 + 1 / 2) / 2)


def test_crops_and_borders():
    x = np.arange(5 * 6 * 2).reshape(5, 6, 2)
    fed = tf.placeholder_with_default(x, [None, None, None])
    for image in (tf.constant(x), fed):
        np.testing.assert_array_equal(
            run(tf.image.crop_to_bounding_box(image, 1, 2, 3, 4)), x[1:4, 2:6]
        )
        padded = run(tf.image.pad_to_bounding_box(image, 1, 2, 8, 9))
        np.testing.assert_array_equal(padded, np.pad(x, [[1, 2], [2, 1], [0, 0]]))
        np.testing.assert_array_equal(run(tf.image.central_crop(image, 0.5)), x[1:4, 1:5])
        resized = run(tf.image.resize_image_with_crop_or_pad(image, 3, 8))
        np.testing.assert_array_equal(resized, np.pad(x[1:4], [[0, 0], [1, 1], [0, 0]]))
    with pytest.raises(ValueError, match="width must be >="):
        tf.image.crop_to_bounding_box(x, 0, 3, 1, 4)
    with pytest.raises(tf.errors.InvalidArgumentError):
        run(tf.image.crop_to_bounding_box(fed, 0, 3, 1, 4))


def test_turns():
    x = np.arange(12).reshape(2, 3, 2)
    np.testing.assert_array_equal(run(tf.image.flip_left_right(x)), x[:, ::-1])
    np.testing.assert_array_equal(run(tf.image.flip_up_down(x)), x[::-1])
    k = tf.placeholder(tf.int32, [])
    turned = tf.image.rot90(x, k)
    with tf.Session() as session:
        for quarters in range(-1, 5):
            expected = np.rot90(x, quarters)
            np.testing.assert_array_equal(run(tf.image.rot90(x, quarters)), expected)
            np.testing.assert_array_equal(session.run(turned, {k: quarters}), expected)


def test_types_and_standards():
    x = np.array([[[0, 128, 255]]], np.uint8)
    floats = tf.image.convert_image_dtype(x, tf.float32)
    np.testing.assert_allclose(run(floats), x / 255.0, rtol=1e-6)
    np.testing.assert_array_equal(run(tf.image.convert_image_dtype(floats, tf.uint8)), x)
    bright = run(tf.image.adjust_brightness(x, 0.5))
    np.testing.assert_array_equal(bright, [[[127, 255, 255]]])
    standard = run(tf.image.per_image_standardization(x))
    np.testing.assert_allclose([standard.mean(), standard.std()], [0, 1], atol=1e-5)
    assert run(tf.image.rgb_to_grayscale(x)).shape == (1, 1, 1)
    grown = tf.image.resize_images(x, [4, 2], tf.image.ResizeMethod.NEAREST_NEIGHBOR)
    np.testing.assert_array_equal(run(grown), np.tile(x, [4, 2, 1]))
    with pytest.raises(ValueError, match="2 elements"):
        tf.image.resize_images(x, [4])
    with pytest.raises(ValueError, match="upper"):
        tf.image.random_contrast(x, 2.0, 1.0)
