"""Elements that may be missing, are counted, compared, reduced or written to files."""

import numpy as np
import pytest

import millrace.compat.v1 as tf
from millrace import raw_ops

Dataset = tf.data.Dataset
experimental = tf.data.experimental


def values(dataset):
    element = dataset.make_one_shot_iterator().get_next()
    out = []
    with tf.Session() as session:
        while True:
            try:
                out.append(np.asarray(session.run(element)).tolist())
            except tf.errors.OutOfRangeError:
                return out


def test_the_next_element_may_be_missing():
    iterator = Dataset.range(2).map(lambda x: {"x": x, "y": (x, 2 * x)}).make_one_shot_iterator()
    optional = experimental.get_next_as_optional(iterator)
    there, value = optional.has_value(), optional.get_value()
    with tf.Session() as session:
        assert session.run([there, value]) == [True, {"x": 0, "y": (0, 0)}]
        assert session.run([there, value]) == [True, {"x": 1, "y": (1, 2)}]
        assert session.run(there) is np.False_ or not session.run(there)
        with pytest.raises(tf.errors.InvalidArgumentError, match="does not have a value"):
            session.run(value)


def test_optionals_are_values():
    some = experimental.Optional.from_value((1.5, [1, 2]))
    none = experimental.Optional.none_from_structure(some)
    with tf.Session() as session:
        assert session.run([some.has_value(), none.has_value()]) == [True, False]
        one, two = session.run(some.get_value())
        assert one == 1.5 and two.tolist() == [1, 2]
    assert some.output_types == (tf.float32, tf.int32)


def test_iterators_without_a_name_live_for_a_step():
    kind = {"output_types": [tf.int64], "output_shapes": [tf.TensorShape([])]}
    handle, deleter = raw_ops.AnonymousIteratorV2(**kind)
    begin = raw_ops.MakeIterator(dataset=Dataset.range(3)._variant_tensor, iterator=handle)
    with tf.control_dependencies([begin]):
        first = raw_ops.IteratorGetNext(iterator=handle, **kind)[0]
    with tf.control_dependencies([first]):
        second = raw_ops.IteratorGetNext(iterator=handle, **kind)[0]
    with tf.control_dependencies([second]):
        end = raw_ops.DeleteIterator(handle=handle, deleter=deleter)
    with tf.Session() as session:
        for _ in range(2):
            assert session.run([first, second, end])[:2] == [0, 1]


def test_unique():
    numbers = Dataset.from_tensor_slices([3, 1, 3, 2, 1])
    assert values(numbers.apply(experimental.unique())) == [3, 1, 2]
    words = Dataset.from_tensor_slices(["a", "", "a", "b", ""])
    assert values(words.apply(experimental.unique())) == [b"a", b"", b"b"]
    with pytest.raises(TypeError, match="only supports inputs with a single"):
        Dataset.from_tensors(1.5).apply(experimental.unique())


def test_group_by_reducer():
    mean = experimental.Reducer(
        lambda _: (0.0, 0.0),
        lambda state, x: (state[0] + tf.cast(x, tf.float32), state[1] + 1),
        lambda total, count: total / count,
    )
    by_rest = experimental.group_by_reducer(lambda x: x % 3, mean)
    assert values(Dataset.range(10).apply(by_rest)) == [4.5, 4.0, 5.0]


def test_assert_cardinality():
    three = experimental.assert_cardinality(3)
    assert values(Dataset.range(3).apply(three)) == [0, 1, 2]
    with tf.Session() as session:
        assert session.run(experimental.cardinality(Dataset.range(9).apply(three))) == 3
    for count, said in ((2, "contained only 2 elements"), (4, "contained at least 4 elements")):
        with pytest.raises(tf.errors.FailedPreconditionError, match=said):
            values(Dataset.range(count).apply(three))


def test_record_writer(tmp_path):
    path = str(tmp_path / "records")
    words = Dataset.from_tensor_slices([b"one", b"two"])
    with tf.Session() as session:
        session.run(experimental.TFRecordWriter(path, "GZIP").write(words))
    assert values(tf.data.TFRecordDataset(path, "GZIP")) == [b"one", b"two"]
    with pytest.raises(TypeError, match="scalar `DT_STRING`"):
        experimental.TFRecordWriter(path).write(Dataset.range(3))
