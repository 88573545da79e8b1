"""Lookup tables and vocabularies."""

import numpy as np
import pytest

import millrace.compat.v1 as tf

lookup = tf.contrib.lookup


@pytest.fixture
def session():
    with tf.Graph().as_default(), tf.Session() as session:
        yield session


def constant_table(default=-1):
    keys = tf.constant(["brain", "salad", "surgery"])
    values = tf.constant([0, 1, 2], tf.int64)
    return lookup.HashTable(lookup.KeyValueTensorInitializer(keys, values), default)


def test_a_table_is_filled_once(session):
    table = constant_table()
    found = table.lookup(tf.constant([["salad", "tank"]]))
    assert found.shape.as_list() == [1, 2]
    with pytest.raises(tf.errors.FailedPreconditionError, match="Table not initialized"):
        session.run(found)
    assert session.run(table.size()) == 0
    session.run(tf.tables_initializer())
    assert session.run(found).tolist() == [[1, -1]] and session.run(table.size()) == 3
    with pytest.raises(tf.errors.FailedPreconditionError, match="already initialized"):
        session.run(table.init)


def test_a_table_without_a_name_is_new_in_every_step(session):
    table = tf.raw_ops.AnonymousMutableHashTable(key_dtype=tf.int64, value_dtype=tf.float32)
    key = tf.placeholder(tf.int64, [1])
    insert = tf.raw_ops.LookupTableInsertV2(table_handle=table, keys=key, values=[1.5])
    with tf.control_dependencies([insert]):
        size = tf.raw_ops.LookupTableSizeV2(table_handle=table)
        found = tf.raw_ops.LookupTableFindV2(table_handle=table, keys=key, default_value=0.0)
    for i in range(3):
        number, value = session.run([size, found], {key: [i]})
        assert number == 1 and value.tolist() == [1.5]


def test_sparse_keys_give_sparse_values(session):
    table = constant_table()
    keys = tf.SparseTensor([[0, 0], [1, 2]], tf.constant(["brain", "x"]), [2, 3])
    session.run(table.init)
    found = session.run(table.lookup(keys))
    assert found.values.tolist() == [0, -1] and found.dense_shape.tolist() == [2, 3]


def test_types_are_checked_when_the_graph_is_built():
    table = constant_table()
    with pytest.raises(TypeError, match="Keys must be dtype string"):
        table.lookup(tf.constant([1, 2], tf.int64))
    with pytest.raises(TypeError):
        constant_table("UNK")
    with pytest.raises(TypeError, match="Invalid value dtype"):
        lookup.MutableHashTable(tf.string, tf.int64, -1).insert(["a"], [1.0])


def test_one_key_with_two_values_is_an_error(session):
    table = lookup.HashTable(lookup.KeyValueTensorInitializer([1, 1], [2, 3]), 0)
    with pytest.raises(tf.errors.InvalidArgumentError, match="different value for same key"):
        session.run(table.init)


@pytest.mark.parametrize("default", [-1, [-1, -2]])
def test_a_mutable_table_takes_and_gives(session, default):
    table = lookup.MutableHashTable(tf.string, tf.int64, default)
    rows = np.arange(3 * np.size(default)).reshape([3, *np.shape(default)])
    session.run(table.insert(["a", "b", "c"], tf.constant(rows, tf.int64)))
    session.run(table.insert(["b"], tf.constant(rows[2:] + 10, tf.int64)))
    session.run(table.remove(["a", "missing"]))
    got = session.run(table.lookup(["b", "a", "c"]))
    assert got.tolist() == [(rows[2] + 10).tolist(), default, rows[2].tolist()]
    keys, values = session.run(table.export())
    assert dict(zip(keys, values.tolist(), strict=True)) == {
        b"b": (rows[2] + 10).tolist(), b"c": rows[2].tolist()
    }  # fmt: skip
    assert session.run(table.size()) == 2
    with pytest.raises(tf.errors.InvalidArgumentError, match="Expected shape"):
        session.run(table.insert(["a"], tf.constant(np.ones([2, 2]), tf.int64)))


def test_a_dense_table_has_keys_of_several_elements(session):
    table = lookup.MutableDenseHashTable(tf.int64, tf.int64, -1, empty_key=[0, 0])
    session.run(
        table.insert(tf.constant([[1, 2], [1, 3]], tf.int64), tf.constant([5, 6], tf.int64))
    )
    assert session.run(table.lookup(tf.constant([[1, 3], [4, 4]], tf.int64))).tolist() == [6, -1]
    for keys, message in (
        ([[0, 0]], "empty_key"), ([[1, 2, 3]], "Expected key shape"),
        ([[[1, 2]]], "Expected key shape"),
    ):  # fmt: skip
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            session.run(table.lookup(tf.constant(keys, tf.int64)))
    bad = lookup.MutableDenseHashTable(tf.int64, tf.int64, -1, empty_key=0, initial_num_buckets=12)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Number of buckets must be"):
        session.run(bad.size())


@pytest.fixture
def vocabulary(tmp_path):
    path = tmp_path / "vocabulary"
    path.write_text("brain\nsalad\nsurgery\n")
    return str(path)


def test_a_vocabulary_file(session, vocabulary):
    words = tf.constant(["salad", "surgery", "tarkus"])
    table = lookup.index_table_from_file(vocabulary, vocab_size=2)
    buckets = lookup.index_table_from_file(vocabulary, num_oov_buckets=1)
    back = lookup.index_to_string_table_from_file(vocabulary)
    for _ in range(2):  # the second time changes nothing
        session.run(tf.tables_initializer())
    assert session.run(table.lookup(words)).tolist() == [1, -1, -1]
    assert session.run(buckets.lookup(words)).tolist() == [1, 2, 3]
    assert session.run([table.size(), buckets.size()]) == [2, 4]
    assert session.run(back.lookup(tf.constant([2, 9], tf.int64))).tolist() == [b"surgery", b"UNK"]
    assert [t.op.type for t in tf.get_collection(tf.GraphKeys.ASSET_FILEPATHS)] == ["Const"] * 3


def test_columns_of_a_file(session, tmp_path):
    path = tmp_path / "pairs"
    path.write_text("a;1.5\nb;2.5\n")

    def table(value_index):
        return lookup.HashTable(
            lookup.TextFileInitializer(
                str(path), tf.string, 0, tf.float32, value_index, delimiter=";"
            ),
            0.0,
        )

    good = table(1)
    session.run(good.init)
    assert session.run(good.lookup(["b", "c"])).tolist() == [2.5, 0.0]
    with pytest.raises(tf.errors.InvalidArgumentError, match="Invalid number of columns in line 0"):
        session.run(table(2).init)
    with pytest.raises(ValueError, match="a column's number must be at most"):
        table(2**63 - 1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="not a valid float"):
        session.run(table(0).init)
    with pytest.raises(tf.errors.InvalidArgumentError, match="Invalid vocab_size"):
        session.run(lookup.index_table_from_file(str(path), vocab_size=3).init)


def test_words_of_a_tensor(session):
    table = lookup.index_table_from_tensor(["brain", "salad"], num_oov_buckets=3)
    static = tf.lookup.StaticVocabularyTable(
        tf.lookup.KeyValueTensorInitializer(["x"], tf.constant([0], tf.int64)), 2
    )
    words = lookup.index_to_string(tf.constant([1, 5], tf.int64), ["brain", "salad"])
    session.run(tf.tables_initializer())
    assert session.run(table.lookup(tf.constant(["salad"]))).tolist() == [1]
    assert 2 <= session.run(table.lookup(tf.constant(["other"])))[0] < 5
    assert session.run(static.lookup(["x"])).tolist() == [0]
    assert session.run(words).tolist() == [b"salad", b"UNK"]


def test_mutable_tables_are_saved_and_restored(session, tmp_path):
    table = lookup.MutableHashTable(tf.string, tf.float32, [0.0, 0.0], name="words")
    dense = lookup.MutableDenseHashTable(tf.int64, tf.string, "none", empty_key=-1, name="ids")
    saver = tf.train.Saver()
    session.run(table.insert(["a", "b"], [[1.0, 2.0], [3.0, 4.0]]))
    session.run(dense.insert(tf.constant([7], tf.int64), ["seven"]))
    path = saver.save(session, str(tmp_path / "tables"))
    session.run(table.insert(["a", "c"], [[9.0, 9.0], [9.0, 9.0]]))
    session.run(dense.remove(tf.constant([7], tf.int64)))
    saver.restore(session, path)
    assert session.run(table.lookup(["a", "b", "c"])).tolist() == [[1, 2], [3, 4], [0, 0]]
    assert session.run(dense.lookup(tf.constant([7], tf.int64))).tolist() == [b"seven"]
