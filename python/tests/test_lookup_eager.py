"""tf.lookup: tables that are filled when they are made."""

import gc
import weakref

import numpy as np
import pytest

import millrace as tf
from millrace import _core

Dataset = tf.data.Dataset


@pytest.fixture(autouse=True, scope="module")
def _eager():
    before = _core.eager_enabled()
    _core.choose_eager(True)
    yield
    _core.choose_eager(before)


def words():
    return tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([0, 1], tf.int64))


class TestStatic:
    def test_finds_keys_at_once_and_in_functions(self):
        table = tf.lookup.StaticHashTable(words(), -1, name="words")
        assert table["b"].numpy() == 1 and table.size().numpy() == 2 and table.name == "words"
        assert table.lookup(["a", "c"]).numpy().tolist() == [0, -1]

        @tf.function
        def find(keys):
            return table.lookup(keys)

        assert find(tf.constant(["b", "x"])).numpy().tolist() == [1, -1]
        dataset = Dataset.from_tensor_slices(["b", "q"]).map(table.lookup)
        assert [x.numpy() for x in dataset] == [1, -1]

    def test_goes_with_its_object(self):
        table = tf.lookup.StaticHashTable(words(), -1)
        handle, alive = table.resource_handle, weakref.ref(table)
        del table
        gc.collect()
        assert alive() is None
        with pytest.raises(tf.errors.NotFoundError):
            tf.raw_ops.LookupTableSizeV2(table_handle=handle)

    def test_stays_while_a_dataset_uses_it(self):
        def make():
            table = tf.lookup.StaticHashTable(words(), -1)
            return Dataset.from_tensor_slices(["b"]).map(lambda word: table.lookup(word))

        dataset = make()
        gc.collect()
        assert [x.numpy() for x in dataset] == [1]

    def test_vocabularies_have_buckets(self):
        table = tf.lookup.StaticVocabularyTable(words(), 3)
        known, other = table.lookup(["b", "zebra"]).numpy()
        assert known == 1 and 2 <= other < 5 and table.size().numpy() == 5
        assert 0 <= tf.lookup.StaticVocabularyTable(None, 2).lookup(["x"]).numpy()[0] < 2

    def test_wrong_arguments(self):
        with pytest.raises(ValueError, match="num_oov_buckets"):
            tf.lookup.StaticVocabularyTable(words(), 0)
        wrong = tf.lookup.KeyValueTensorInitializer(["a"], ["b"])
        with pytest.raises(TypeError, match="value_dtype"):
            tf.lookup.StaticVocabularyTable(wrong, 1)
        with pytest.raises(TypeError, match="string"):
            tf.lookup.StaticHashTable(words(), -1).lookup(tf.constant([1]))

    def test_files(self, tmp_path):
        (tmp_path / "words").write_text("x\ny\n")
        index = tf.lookup.TextFileIndex
        initializer = tf.lookup.TextFileInitializer(
            str(tmp_path / "words"), tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER,
            value_index_offset=10,
        )  # fmt: skip
        assert tf.lookup.StaticHashTable(initializer, -1).lookup(["y", "z"]).numpy().tolist() == [
            11, -1,
        ]  # fmt: skip


class TestMutable:
    def test_inserts_and_removes(self):
        table = tf.lookup.experimental.MutableHashTable(tf.string, tf.float32, [0.0, 0.0])
        table.insert(["a", "b"], [[1, 2], [3, 4]])
        table.remove(["a"])
        assert table.lookup(["a", "b"]).numpy().tolist() == [[0, 0], [3, 4]]
        keys, values = table.export()
        assert keys.numpy().tolist() == [b"b"] and values.numpy().tolist() == [[3, 4]]

    def test_dense(self):
        table = tf.lookup.experimental.DenseHashTable(
            tf.int64, tf.int64, -1, empty_key=0, deleted_key=-1
        )
        table.insert_or_assign([1, 2], [10, 20])
        table.erase([1])
        assert table.lookup([1, 2]).numpy().tolist() == [-1, 20] and table.size().numpy() == 1

    def test_checkpoints(self, tmp_path):
        table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
        table.insert(["a", "b"], [1, 2])
        path = tf.train.Checkpoint(t=table).save(tmp_path / "c")
        assert {name for name, _ in tf.train.list_variables(path)} >= {
            "t/.ATTRIBUTES/table-keys", "t/.ATTRIBUTES/table-values",
        }  # fmt: skip
        other = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
        other.insert(["z"], [3])
        tf.train.Checkpoint(t=other).restore(path).assert_consumed()
        assert other.lookup(["a", "b", "z"]).numpy().tolist() == [1, 2, -1]

    def test_without_checkpoints(self, tmp_path):
        table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1, checkpoint=False)
        path = tf.train.Checkpoint(t=table).save(tmp_path / "c")
        assert not any("table" in name for name, _ in tf.train.list_variables(path))


class TestOfDatasets:
    def test_pairs(self):
        pairs = Dataset.from_tensor_slices((["a", "b"], [3, 4]))
        table = tf.data.experimental.table_from_dataset(pairs)
        assert table.lookup(["b", "x"]).numpy().tolist() == [4, -1]
        initializer = tf.data.experimental.DatasetInitializer(pairs)
        assert tf.lookup.StaticHashTable(initializer, 0)["a"].numpy() == 3

    def test_places(self):
        dataset = Dataset.from_tensor_slices(["a", "b", "c"])
        table = tf.data.experimental.index_table_from_dataset(dataset, 2, vocab_size=2)
        a, b, c = table.lookup(["a", "b", "c"]).numpy()
        assert (a, b) == (0, 1) and 2 <= c < 4

    def test_of_none(self):
        dataset = Dataset.from_tensor_slices(np.array([], "S"))
        table = tf.data.experimental.index_table_from_dataset(dataset)
        assert table.size().numpy() == 0 and table["a"].numpy() == -1

    def test_wrong_arguments(self):
        make = tf.data.experimental.table_from_dataset
        with pytest.raises(TypeError, match="Dataset"):
            make(None)
        with pytest.raises(ValueError, match="pairs"):
            make(Dataset.range(2))
        with pytest.raises(ValueError, match="scalars"):
            make(Dataset.from_tensors(([1], [2])))
        pairs = Dataset.zip(Dataset.range(2), Dataset.range(2))
        with pytest.raises(TypeError, match="key_dtype"):
            make(pairs)
        with pytest.raises(ValueError, match="num_oov_buckets"):
            make(pairs, num_oov_buckets=-1, key_dtype=tf.int64)
        with pytest.raises(tf.errors.FailedPreconditionError):
            make(pairs, vocab_size=5, key_dtype=tf.int64)
