"""Sizes that no pipeline should have: an error or elements, at once."""

import numpy as np
import pytest

import millrace.compat.v1 as tf

Dataset = tf.data.Dataset
MOST = 2**63 - 1
SIZES = [0, -1, -2, -(2**63), 2**31, MOST]
PAD = tf.data.Dataset.padded_batch
STAGES = {
    "batch": lambda d, n: d.batch(n),
    "drop": lambda d, n: d.batch(n, drop_remainder=True),
    "padded_batch": lambda d, n: PAD(d, n, padded_shapes=[]),
    "padded_shape": lambda d, n: PAD(
        d.map(lambda x: x[tf.newaxis]), 2, padded_shapes=tf.constant([n], tf.int64)
    ),
    "window": lambda d, n: d.window(n).flat_map(lambda w: w),
    "shift": lambda d, n: d.window(2, shift=n).flat_map(lambda w: w),
    "stride": lambda d, n: d.window(2, stride=n).flat_map(lambda w: w),
    "span": lambda d, n: d.window(n, 1, n).flat_map(lambda w: w),
    "shuffle": lambda d, n: d.shuffle(n),
    "prefetch": lambda d, n: d.prefetch(n),
    "map": lambda d, n: d.map(lambda x: x, num_parallel_calls=n),
    "cycle": lambda d, n: d.interleave(lambda _: Dataset.range(2), n),
    "block": lambda d, n: d.interleave(lambda _: Dataset.range(2), 2, n),
    "parallel": lambda d, n: d.interleave(lambda _: Dataset.range(2), 2, 1, num_parallel_calls=n),
    "take": lambda d, n: d.take(n),
    "skip": lambda d, n: d.skip(n),
    "repeat": lambda d, n: d.repeat(n).take(9),
    "shard": lambda d, n: d.shard(n, 0),
    "index": lambda d, n: d.shard(2, n),
    "group": lambda d, n: d.apply(
        tf.data.experimental.group_by_window(lambda x: x, lambda _, w: w, window_size=n)
    ),
    "cardinality": lambda d, n: d.apply(tf.data.experimental.assert_cardinality(n)),
    "enumerate": lambda d, n: d.enumerate(n).map(lambda i, _: i),
}  # fmt: skip


@pytest.mark.parametrize("stage", STAGES)
def test_any_size_is_answered(stage):
    with tf.Graph().as_default(), tf.Session() as session:
        for size in SIZES:
            try:
                iterator = STAGES[stage](Dataset.range(4), size).make_initializable_iterator()
                element = iterator.get_next()
                session.run(iterator.initializer)
                for _ in range(12):
                    assert np.asarray(session.run(element)).size <= 4
            except tf.errors.OutOfRangeError:
                pass
            except (
                ValueError, tf.errors.InvalidArgumentError, tf.errors.FailedPreconditionError,
                tf.errors.ResourceExhaustedError, tf.errors.DataLossError,
            ):  # fmt: skip
                pass


def test_what_is_no_dataset_is_refused():
    with tf.Graph().as_default(), tf.Session() as session:
        numbers = Dataset.range(3)
        other = tf.data.experimental.Optional.from_value(1)._variant_tensor
        wrong = numbers._of(tf.placeholder_with_default(other, []))
        for dataset in (wrong.batch(2), wrong.map(lambda x: x), Dataset.zip((numbers, wrong))):
            iterator = dataset.make_initializable_iterator()
            with pytest.raises(tf.errors.InvalidArgumentError, match="expected a dataset"):
                session.run(iterator.initializer)
