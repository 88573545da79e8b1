"""Examples, SequenceExamples and CSV into tensors."""

import numpy as np
import pytest

import millrace.compat.v1 as tf


def feature(values):
    kinds = {
        int: lambda: tf.train.Feature(int64_list=tf.train.Int64List(value=values)),
        float: lambda: tf.train.Feature(float_list=tf.train.FloatList(value=values)),
        bytes: lambda: tf.train.Feature(bytes_list=tf.train.BytesList(value=values)),
    }
    return kinds[type(values[0])]()


def example(**features):
    made = {key: feature(values) for key, values in features.items()}
    return tf.train.Example(features=tf.train.Features(feature=made)).SerializeToString()


def sequence(context, **lists):
    message = tf.train.SequenceExample(
        context=tf.train.Features(feature={k: feature(v) for k, v in context.items()}),
        feature_lists=tf.train.FeatureLists(
            feature_list={
                key: tf.train.FeatureList(feature=[feature(step) for step in steps])
                for key, steps in lists.items()
            }
        ),
    )
    return message.SerializeToString()


def run(tensors):
    with tf.Session() as session:
        return session.run(tensors)


BATCH = [example(a=[1, 2], s=[b"x"], f=[0.5]), example(a=[3, 4], s=[b"y", b"z"], f=[1.5, 2.5])]
FEATURES = {
    "a": tf.FixedLenFeature([2], tf.int64),
    "s": tf.VarLenFeature(tf.string),
    "f": tf.FixedLenSequenceFeature([], tf.float32, allow_missing=True, default_value=-1.0),
    "missing": tf.FixedLenFeature([], tf.string, default_value="none"),
}


def test_a_batch_of_examples():
    parsed = tf.parse_example(BATCH, FEATURES)
    assert parsed["a"].shape.as_list() == [2, 2]
    assert parsed["f"].shape.as_list() == [2, None]
    got = run(parsed)
    assert got["a"].tolist() == [[1, 2], [3, 4]]
    assert got["f"].tolist() == [[0.5, -1.0], [1.5, 2.5]]
    assert got["missing"].tolist() == [b"none", b"none"]
    assert got["s"].indices.tolist() == [[0, 0], [1, 0], [1, 1]]
    assert got["s"].values.tolist() == [b"x", b"y", b"z"]
    assert got["s"].dense_shape.tolist() == [2, 2]


@pytest.mark.parametrize("name", [None, "second"])
def test_a_single_example(name):
    parsed = tf.parse_single_example(BATCH[1], FEATURES, example_names=name)
    assert parsed["a"].shape.as_list() == [2]
    got = run(parsed)
    assert got["a"].tolist() == [3, 4] and got["f"].tolist() == [1.5, 2.5]
    assert got["missing"] == b"none"
    assert got["s"].indices.tolist() == [[0], [1]] and got["s"].dense_shape.tolist() == [2]


def test_sparse_features_join_indices_and_values():
    examples = [example(i=[3, 1], v=[0.5, 1.5]), example(i=[2], v=[2.5])]
    got = run(tf.parse_example(examples, {"x": tf.SparseFeature("i", "v", tf.float32, 5)}))["x"]
    assert got.indices.tolist() == [[0, 1], [0, 3], [1, 2]]
    assert got.values.tolist() == [1.5, 0.5, 2.5] and got.dense_shape.tolist() == [2, 5]


def test_errors_name_example_and_key():
    with pytest.raises(tf.errors.InvalidArgumentError, match="Name: two, Key: a, Index: 1"):
        features = {"a": tf.FixedLenFeature([2], tf.int64)}
        run(tf.parse_example([BATCH[0], example(a=[1])], features, example_names=["one", "two"]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="Feature: b .data type: int64"):
        run(tf.parse_example(BATCH, {"b": tf.FixedLenFeature([], tf.int64)}))
    with pytest.raises(ValueError, match="Missing shape for feature a"):
        tf.parse_example(BATCH, {"a": tf.FixedLenFeature(None, tf.int64)})
    with pytest.raises(ValueError, match="default of dense feature 0"):
        tf.parse_example(
            BATCH, {"a": tf.FixedLenFeature([2], tf.int64, tf.constant([1, 2, 3], tf.int64))}
        )


def test_sequences_of_a_batch_and_one():
    batch = [
        sequence({"id": [7]}, x=[[1.0], [2.0]], w=[[b"a", b"b"], [b"c"]]),
        sequence({"id": [8]}, w=[[b"d"]]),
    ]
    context = {"id": tf.FixedLenFeature([], tf.int64)}
    lists = {
        "x": tf.FixedLenSequenceFeature([1], tf.float32, allow_missing=True),
        "w": tf.VarLenFeature(tf.string),
    }
    got_context, got, lengths = run(tf.io.parse_sequence_example(batch, context, lists))
    assert got_context["id"].tolist() == [7, 8]
    assert got["x"].tolist() == [[[1.0], [2.0]], [[0.0], [0.0]]]
    assert lengths["x"].tolist() == [2, 0]
    assert got["w"].indices.tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0]]
    assert got["w"].dense_shape.tolist() == [2, 2, 2]
    got_context, got = run(tf.parse_single_sequence_example(batch[0], context, lists))
    assert got_context["id"] == 7 and got["x"].tolist() == [[1.0], [2.0]]
    assert got["w"].indices.tolist() == [[0, 0], [0, 1], [1, 0]]


def test_json_examples():
    json = '{"features": {"feature": {"a": {"int64List": {"value": ["5"]}}}}}'
    parsed = tf.parse_single_example(
        tf.decode_json_example(json), {"a": tf.FixedLenFeature([], tf.int64)}
    )
    assert run(parsed)["a"] == 5
    with pytest.raises(tf.errors.InvalidArgumentError, match="Error while parsing JSON"):
        run(tf.decode_json_example('{"features": 3'))


def test_csv_fields_defaults_and_quotes():
    defaults = [[0], [1.5], ["none"], tf.constant([], tf.int64)]
    columns = run(tf.decode_csv(['1,,"a ""b"", c",4', "2,0.5,,5"], defaults))
    assert [column.tolist() for column in columns] == [
        [1, 2], [1.5, 0.5], [b'a "b", c', b"none"], [4, 5]
    ]  # fmt: skip
    assert run(tf.decode_csv(["a;NA;c"], [["x"], ["y"]], ";", na_value="NA", select_cols=[0, 1]))[
        1
    ].tolist() == [b"y"]
    for record, message in (
        ("1", "Expect 4 fields but have 1 in record 0"),
        ("1,2,3,", "Field 3 is required but missing in record 0"),
        ("x,2,3,4", "Field 0 in record 0 is not a valid int32: x"),
        ('1,2,"3,4', "Quoted field has to end with quote"),
        ('1,2,3"3,4', "Unquoted fields cannot have quotes"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            run(tf.decode_csv([record], defaults))


def test_a_large_batch_is_the_same_on_any_number_of_threads():
    rng = np.random.RandomState(5)
    examples = [
        example(v=rng.randint(-(2**40), 2**40, rng.randint(1, 9)).tolist()) for _ in range(2000)
    ]
    parsed = tf.parse_example(examples, {"v": tf.VarLenFeature(tf.int64)})["v"]
    single = tf.Session(config=tf.ConfigProto(intra_op_parallelism_threads=1))
    for one, many in zip(single.run(parsed), run(parsed), strict=True):
        np.testing.assert_array_equal(one, many)
