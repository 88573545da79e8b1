"""Ragged tensors as parts of elements of datasets."""

import numpy as np
import pytest

import millrace as tf
from millrace import _core

Dataset = tf.data.Dataset
ROWS = [[1, 2], [3], [], [4, 5, 6]]


@pytest.fixture(autouse=True, scope="module")
def _eager():
    before = _core.eager_enabled()
    _core.choose_eager(True)
    yield
    _core.choose_eager(before)


def ragged(splits=tf.int64):
    return tf.ragged.constant(ROWS, tf.int32, row_splits_dtype=splits)


class TestElements:
    @pytest.mark.parametrize("splits", [tf.int32, tf.int64])
    def test_whole(self, splits):
        dataset = Dataset.from_tensors(ragged(splits)).map(lambda rows: rows * 2)
        assert dataset.element_spec == tf.RaggedTensorSpec([4, None], tf.int32, 1, splits)
        (whole,) = dataset
        assert whole.to_list() == [[2, 4], [6], [], [8, 10, 12]]
        (value,) = dataset.as_numpy_iterator()
        assert value.row_splits.tolist() == [0, 2, 3, 3, 6]

    def test_rows(self):
        dataset = Dataset.from_tensor_slices((ragged(), [1, 2, 3, 4]))
        assert dataset.element_spec[0] == tf.RaggedTensorSpec([None], tf.int32, 0)
        assert [row.numpy().tolist() for row, _ in dataset] == ROWS
        assert [row.tolist() for row, _ in dataset.as_numpy_iterator()] == ROWS

    def test_batches_are_ragged_again(self):
        batches = Dataset.from_tensor_slices(ragged()).batch(3)
        assert [b.to_list() for b in batches] == [ROWS[:3], ROWS[3:]]
        assert batches.element_spec == tf.RaggedTensorSpec([None, None], tf.int32, 1)
        assert [row.numpy().tolist() for row in batches.unbatch()] == ROWS
        pairs = Dataset.from_tensor_slices(ragged()).batch(2).batch(2)
        assert [b.to_list() for b in pairs] == [[ROWS[:2], ROWS[2:]]]
        assert [b.to_list() for b in batches.map(lambda b: b + 1)] == [
            [[2, 3], [4], []], [[5, 6, 7]],
        ]  # fmt: skip

    def test_deep(self):
        deep = tf.ragged.constant([[[1], []], [], [[2, 3]]])
        dataset = Dataset.from_tensor_slices(deep)
        assert [e.to_list() for e in dataset] == deep.to_list()
        assert [e.to_list() for e in dataset.batch(2)] == [[[[1], []], []], [[[2, 3]]]]

    def test_wholes_have_rows(self):
        rows = Dataset.from_tensors(ragged()).unbatch()
        assert [row.numpy().tolist() for row in rows] == ROWS
        sparse = Dataset.from_tensors(tf.sparse.from_dense([[1, 0], [0, 2]])).unbatch()
        assert [tf.sparse.to_dense(row).numpy().tolist() for row in sparse] == [[1, 0], [0, 2]]

    def test_generators(self):
        def give():
            yield ragged()
            yield tf.ragged.constant([[7], [], [], []])

        dataset = Dataset.from_generator(
            give, output_signature=tf.RaggedTensorSpec([4, None], tf.int32)
        )
        assert [e.to_list() for e in dataset] == [ROWS, [[7], [], [], []]]
        wrong = Dataset.from_generator(
            give, output_signature=tf.RaggedTensorSpec([3, None], tf.int32)
        )
        with pytest.raises(tf.errors.OpError, match="no RaggedTensor of int32 and shape"):
            next(iter(wrong))

    def test_loops_of_functions(self):
        @tf.function
        def total(rows):
            found = 0
            for batch in Dataset.from_tensor_slices(rows).batch(2):
                found += tf.reduce_sum(batch.flat_values)
            return found

        assert total(ragged()).numpy() == 21

    def test_go_on_where_they_stood(self, tmp_path):
        def begin():
            return iter(Dataset.from_tensor_slices(ragged()).batch(2).prefetch(1))

        iterator = begin()
        next(iterator)
        path = tf.train.Checkpoint(iterator=iterator).save(tmp_path / "c")
        other = begin()
        tf.train.Checkpoint(iterator=other).restore(path).assert_consumed()
        assert next(other).to_list() == ROWS[2:]


class TestRaggedBatches:
    def test_sizes_differ(self):
        dataset = Dataset.range(4).map(lambda n: (tf.fill([n], n), n))
        batches = dataset.ragged_batch(3)
        first, second = batches
        assert first[0].to_list() == [[], [1], [2, 2]] and second[0].to_list() == [[3, 3, 3]]
        assert first[1].numpy().tolist() == [0, 1, 2]
        assert batches.element_spec == (
            tf.RaggedTensorSpec([None, None], tf.int64, 1), tf.TensorSpec([None], tf.int64),
        )  # fmt: skip
        assert len(list(dataset.ragged_batch(3, drop_remainder=True))) == 1

    def test_several_dimensions(self):
        dataset = Dataset.range(1, 3).map(lambda n: tf.fill([n, 2, n], n))
        (batch,) = dataset.apply(
            tf.data.experimental.dense_to_ragged_batch(2, row_splits_dtype=tf.int32)
        )
        assert batch.to_list() == [[[[1], [1]]], [[[2, 2], [2, 2]]] * 2]
        assert batch.row_splits.dtype == tf.int32 and batch.ragged_rank == 3


class TestVariants:
    """The two ops behind it."""

    def pack(self, splits, values, rows=False):
        return tf.raw_ops.RaggedTensorToVariant(
            rt_nested_splits=splits, rt_dense_values=values, batched_input=rows
        )

    def unpack(self, packed, inner, outer, dtype=tf.float32, splits=tf.int64):
        return tf.raw_ops.RaggedTensorFromVariant(
            encoded_ragged=packed, input_ragged_rank=inner, output_ragged_rank=outer,
            Tvalues=dtype, Tsplits=splits,
        )  # fmt: skip

    def test_there_and_back(self):
        splits, values = np.array([0, 2, 2, 3]), np.float32([[1, 2], [3, 4], [5, 6]])
        (back,), same = self.unpack(self.pack([splits], values), 1, 1)
        assert back.numpy().tolist() == splits.tolist()
        assert same.numpy().tolist() == values.tolist()
        packed = self.pack([splits], values, rows=True)
        assert packed.shape.as_list() == [3]
        (back,), same = self.unpack(packed, -1, 1)
        assert back.numpy().tolist() == splits.tolist()
        assert same.numpy().tolist() == values.tolist()

    def test_a_great_many_rows_without_elements(self):
        empty = self.pack([], np.zeros([0, 1], np.float32), rows=True)
        (outer, inner), values = self.unpack(tf.reshape(empty, [3, 0]), 0, 2)
        assert outer.numpy().tolist() == [0] * 4 and inner.numpy().tolist() == [0]
        assert values.shape.as_list() == [0]
        for shape in ([1 << 60, 0], [1 << 40, 1 << 40, 0], [(1 << 63) - 1, 0]):
            with pytest.raises((tf.errors.InvalidArgumentError, tf.errors.ResourceExhaustedError)):
                self.unpack(tf.reshape(empty, np.int64(shape)), 0, len(shape))
        wide = self.pack([], tf.reshape(tf.zeros([0]), np.int64([1 << 62, 0])))
        with pytest.raises(tf.errors.InvalidArgumentError, match="too many to join"):
            self.unpack(tf.stack([wide, wide, wide]), 0, 1)
        with pytest.raises(
            (ValueError, tf.errors.InvalidArgumentError), match="output_ragged_rank"
        ):
            self.unpack(empty, (1 << 63) - 1, 2)

    def test_matrices_of_variants(self):
        packed = tf.reshape(self.pack([], np.float32([[1], [2], [3], [4]]), rows=True), [2, 2])
        (outer, inner), values = self.unpack(packed, 0, 2)
        assert outer.numpy().tolist() == [0, 2, 4] and inner.numpy().tolist() == [0, 1, 2, 3, 4]
        assert values.numpy().tolist() == [1, 2, 3, 4]

    @pytest.mark.parametrize("splits", [[1, 3], [0, 2], [0, 2, 1, 3], []])
    def test_wrong_splits(self, splits):
        with pytest.raises((tf.errors.InvalidArgumentError, ValueError), match="[Ss]plits"):
            self.pack([np.array(splits, np.int64)], np.zeros(3, np.float32))

    def test_what_does_not_fit(self):
        packed = self.pack([np.array([0, 1])], np.float32([1]))
        wrong = pytest.raises((tf.errors.InvalidArgumentError, ValueError), match="expected|rank")
        for call in (
            lambda: self.unpack(packed, 1, 1, tf.int32),
            lambda: self.unpack(packed, 1, 1, splits=tf.int32),
            lambda: self.unpack(packed, 0, 0),
            lambda: self.unpack(packed, 1, 2),
            lambda: self.unpack(Dataset.range(1)._variant_tensor, 1, 1),
        ):
            with wrong:
                call()
        mixed = tf.stack(
            [self.pack([], np.zeros([1, n], np.float32)) for n in (1, 2)]
        )  # fmt: skip
        with pytest.raises(tf.errors.InvalidArgumentError, match="rows of one shape"):
            self.unpack(mixed, 0, 1)
