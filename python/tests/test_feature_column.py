"""Feature columns: their values, which TensorFlow's are, their variables and their mistakes."""

import numpy as np
import pytest

import millrace.compat.v1 as tf

column = tf.feature_column


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default():
        yield


def features():
    """Three examples with features of all kinds."""
    places = [[0, 0], [0, 1], [2, 0]]
    return {
        "x": [[1.0, 2.0], [3.0, 4.0], [5.0, -6.0]],
        "age": [3.0, 25.0, 60.0],
        "word": [["a"], ["b"], ["zz"]],
        "id": [[0], [2], [1]],
        "tags": tf.SparseTensor(places, ["q", "r", "q"], [3, 2]),
        "weights": tf.SparseTensor(places, [0.5, 2.0, 3.0], [3, 2]),
        "letters": [["a", "", "c"], ["", "", ""], ["b", "a", "a"]],
    }


def layer(*columns):
    """The input layer of columns."""
    out = column.input_layer(features(), columns)
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.tables_initializer()])
        return sess.run(out)


def hot(out):
    """[row, column, value] of what is not zero."""
    return [[int(r), int(c), float(out[r, c])] for r, c in np.argwhere(out)]


def words(**kwargs):
    return column.categorical_column_with_vocabulary_list("word", ["a", "b", "k"], **kwargs)


def test_numbers_are_normalised_and_sorted_by_name():
    doubled = column.numeric_column("x", shape=2, normalizer_fn=lambda x: x * 2)
    out = layer(doubled, column.numeric_column("age"))
    assert out.tolist() == [[3, 2, 4], [25, 6, 8], [60, 10, -12]]


def test_ranges():
    age = column.bucketized_column(column.numeric_column("age"), [18, 25, 50])
    assert layer(age).tolist() == [[1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    both = column.bucketized_column(column.numeric_column("x", shape=2), [0, 2.5])
    assert both.variable_shape == (2, 3) and both.num_buckets == 6


def test_words_have_ids():
    assert hot(layer(column.indicator_column(words()))) == [[0, 0, 1], [1, 1, 1]]
    assert hot(layer(column.indicator_column(words(default_value=2))))[-1] == [2, 2, 1]
    others = layer(column.indicator_column(words(num_oov_buckets=4)))
    assert others.shape == (3, 7) and others[2, 3:].sum() == 1
    letters = column.categorical_column_with_vocabulary_list("letters", ["a", "b", "c"])
    assert layer(column.indicator_column(letters)).tolist() == [[1, 0, 1], [0, 0, 0], [2, 1, 0]]


def test_words_of_a_file(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("b\na\nzz\n")
    file = column.categorical_column_with_vocabulary_file("word", str(path), 2)
    assert hot(layer(column.indicator_column(file))) == [[0, 1, 1], [1, 0, 1]]
    with pytest.raises(ValueError, match="has 3 lines"):
        column.categorical_column_with_vocabulary_file("word", str(path), 4)


def test_ids_and_hashes():
    ids = column.categorical_column_with_identity("id", 3)
    assert hot(layer(column.indicator_column(ids))) == [[0, 0, 1], [1, 2, 1], [2, 1, 1]]
    with pytest.raises(tf.errors.InvalidArgumentError, match="below num_buckets"):
        layer(column.indicator_column(column.categorical_column_with_identity("id", 2)))
    kept = column.categorical_column_with_identity("id", 2, default_value=0)
    assert hot(layer(column.indicator_column(kept)))[1] == [1, 0, 1]
    tags = column.categorical_column_with_hash_bucket("tags", 1000)
    counts = layer(column.indicator_column(tags))
    weighted = layer(column.indicator_column(column.weighted_categorical_column(tags, "weights")))
    assert counts.sum() == 3 and weighted.sum() == 5.5
    assert (counts[0] + counts[2]).max() == 2  # "q" has one id


def test_crossed_ids_are_tensorflows():
    age = column.bucketized_column(column.numeric_column("age"), [18, 30, 50])
    ids = column.categorical_column_with_identity("id", 4)
    two = column.crossed_column(["word", age], 100)
    assert two.name == "age_bucketized_X_word"
    assert [c for _, c, _ in hot(layer(column.indicator_column(two)))] == WORD_AND_AGE
    three = column.crossed_column(["tags", "letters", "id"], 1000)
    found = hot(layer(column.indicator_column(three)))
    assert sum(value for *_, value in found) == 9  # the second example has no tags
    assert [c for _, c, _ in found] == TAGS_LETTERS_IDS
    numbers = column.crossed_column([age, ids], 50, hash_key=5)
    assert [c for _, c, _ in hot(layer(column.indicator_column(numbers)))] == AGE_AND_ID


# What TensorFlow 2.15 gives for the columns above.
WORD_AND_AGE = [95, 57, 99]
TAGS_LETTERS_IDS = [126, 135, 341, 490, 576, 748, 383, 777]
AGE_AND_ID = [42, 0, 14]


def test_embeddings():
    start = tf.constant_initializer([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    letters = column.categorical_column_with_vocabulary_list("letters", ["a", "b", "c"])
    out = layer(column.embedding_column(letters, 2, initializer=start))
    np.testing.assert_allclose(out, [[2, 20], [0, 0], [4 / 3, 40 / 3]], rtol=1e-6)
    out = layer(column.embedding_column(letters, 2, combiner="sum", initializer=start))
    assert out[2].tolist() == [4, 40]
    shared = column.shared_embedding_columns([words(), letters], 2, initializer=start)
    assert layer(*shared)[0].tolist() == [2, 20, 1, 10]  # in the order of their names
    names = [v.op.name for v in tf.global_variables()]
    assert names == [
        "input_layer/letters_embedding/embedding_weights",
        "input_layer_1/letters_embedding/embedding_weights",
        "input_layer_2/letters_word_shared_embedding/embedding_weights",
    ]


def test_linear_model_learns_a_weight_per_id():
    variables = {}
    x = column.numeric_column("x", shape=2)
    out = column.linear_model(features(), [x, words()], units=2, cols_to_vars=variables)
    train = tf.train.GradientDescentOptimizer(1.0).minimize(tf.reduce_sum(out))
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.tables_initializer()])
        assert not sess.run(out).any()
        sess.run(train)
        assert sess.run(variables[words()][0]).tolist() == [[-1, -1], [-1, -1], [0, 0]]
        assert sess.run(variables[x][0]).tolist() == [[-9, -9], [0, 0]]
        assert sess.run(variables["bias"][0]).tolist() == [-3, -3]
    assert {v.op.name for v in tf.global_variables()} == {
        "linear_model/x/weights", "linear_model/word/weights", "linear_model/bias_weights",
    }  # fmt: skip


def test_parse_spec():
    weighted = column.weighted_categorical_column(words(), "weights")
    x = column.numeric_column("x", shape=2, default_value=0)
    spec = column.make_parse_example_spec([x, weighted])
    assert spec == {
        "x": tf.FixedLenFeature((2,), tf.float32, (0, 0)),
        "word": tf.VarLenFeature(tf.string),
        "weights": tf.VarLenFeature(tf.float32),
    }
    with pytest.raises(ValueError, match="different parse_spec"):
        column.make_parse_example_spec([x, column.numeric_column("x")])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: column.numeric_column(1), "key must be a string"),
        (lambda: column.numeric_column("x", shape=0), "greater than 0"),
        (lambda: column.numeric_column("x", dtype=tf.string), "convertible to float"),
        (lambda: column.numeric_column("x", shape=2, default_value=[1]), "equal to given shape"),
        (lambda: column.bucketized_column(words(), [1]), "numeric_column"),
        (lambda: column.bucketized_column(column.numeric_column("x"), [2, 1]), "sorted"),
        (lambda: column.categorical_column_with_hash_bucket("a", 0), "at least 1"),
        (lambda: column.categorical_column_with_identity("a", 3, 3), "not in range"),
        (lambda: words(default_value=1, num_oov_buckets=1), "both"),
        (lambda: column.crossed_column(["a"], 5), "length > 1"),
        (lambda: column.embedding_column(words(), 0), "Invalid dimension"),
        (lambda: column.indicator_column(column.numeric_column("x")), "categorical"),
        (lambda: layer(words()), "indicator_column"),
        (lambda: layer(), "empty"),
        (lambda: layer(column.numeric_column("none")), "not in features dictionary"),
        (lambda: layer(column.numeric_column("age"), column.numeric_column("age", 2)), "Duplicate"),
        (lambda: layer(column.numeric_column("tags")), "must be a Tensor"),
    ],
)
def test_mistakes(call, message):
    with pytest.raises(ValueError, match=message):
        call()
