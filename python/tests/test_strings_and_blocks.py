"""Strings, diagonals and blocks of space, against NumPy."""

import numpy as np
import pytest

import millrace.compat.v1 as tf


@pytest.fixture(autouse=True)
def _fresh_graph():
    tf.reset_default_graph()


def run(fetches):
    with tf.Session() as sess:
        return sess.run(fetches)


def test_joining():
    assert run(tf.string_join(["a", ["x", "y"]], "-")).tolist() == [b"a-x", b"a-y"]
    words = [["a", "b"], ["c", "d"]]
    assert run(tf.reduce_join(words)) == b"abcd"
    assert run(tf.reduce_join(words, 0)).tolist() == [b"ac", b"bd"]
    assert run(tf.reduce_join(words, [0, 1], separator="+")) == b"a+c+b+d"
    assert run(tf.reduce_join(words, 1, keep_dims=True)).tolist() == [[b"ab"], [b"cd"]]


def test_splitting_and_cutting():
    parts = run(tf.string_split(["one two", "", "three"]))
    assert parts.values.tolist() == [b"one", b"two", b"three"]
    assert parts.indices.tolist() == [[0, 0], [0, 1], [2, 0]]
    assert run(tf.string_split(["a|b"], delimiter="|")).values.tolist() == [b"a", b"b"]
    assert run(tf.substr(["hello", "world"], 1, 3)).tolist() == [b"ell", b"orl"]


def test_regular_expressions():
    words = tf.constant(["cat", "concatenate", "dog"])
    assert run(tf.strings.regex_full_match(words, ".*cat.*")).tolist() == [True, True, False]
    assert run(tf.strings.regex_replace(words, "(c)(a)", r"\2\1")).tolist() == [
        b"act", b"conactenate", b"dog"
    ]  # fmt: skip
    pattern = tf.placeholder(tf.string)
    first = tf.regex_replace(words, pattern, "_", replace_global=False)
    full = tf.strings.regex_full_match(words, pattern)
    with tf.Session() as sess:
        assert sess.run(first, {pattern: "[ao]"}).tolist() == [b"c_t", b"c_ncatenate", b"d_g"]
        assert sess.run(full, {pattern: "(?i)DOG"}).tolist() == [False, False, True]
        with pytest.raises(tf.errors.InvalidArgumentError, match="missing ]"):
            sess.run(first, {pattern: "[a"})


def test_quantised_numbers():
    steps = tf.constant(np.array([0, 51, 255], np.uint8), dtype=tf.quint8)
    np.testing.assert_allclose(run(tf.dequantize(steps, 0.0, 5.0)), [0, 1, 5], rtol=1e-6)
    image = tf.constant(np.ones((1, 2, 2, 1), np.uint8), dtype=tf.quint8)
    product = tf.nn.quantized_conv2d(
        image,
        tf.reshape(image, [2, 2, 1, 1]),
        0.0,
        255.0,
        0.0,
        255.0,
        strides=[1, 1, 1, 1],
        padding="VALID",
    )
    assert [t.dtype for t in product] == [tf.qint32, tf.float32, tf.float32]
    assert product[0].shape.as_list() == [1, 1, 1, 1]
    total, *_ = run(product)
    assert total.dtype == np.int32 and total.tolist() == [[[[4]]]]  # a plain number


def test_bytes_as_numbers_of_one_length():
    padded = tf.raw_ops.DecodePaddedRaw(
        input_bytes=["a", "bcd"], fixed_length=2, out_type=tf.uint8, little_endian=True
    )
    assert padded.shape.as_list() == [2, 2]
    assert run(padded).tolist() == [[97, 0], [98, 99]]


def test_numbers():
    assert run(tf.as_string([1.5, 2.25], precision=1)).tolist() == [b"1.5", b"2.2"]
    assert run(tf.string_to_number(["1", "2"], tf.int32)).tolist() == [1, 2]
    with pytest.raises(tf.errors.InvalidArgumentError, match="abc"):
        run(tf.string_to_number("abc"))


def test_buckets_and_base64():
    buckets = run(tf.string_to_hash_bucket_fast(["a", "b", "a"], 10))
    assert buckets[0] == buckets[2]
    assert all(0 <= b < 10 for b in buckets)
    assert run(tf.decode_base64(tf.encode_base64("any text"))) == b"any text"


def test_diagonals():
    x = np.arange(12.0, dtype=np.float32).reshape(2, 2, 3)
    np.testing.assert_array_equal(run(tf.diag([1, 2])), np.diag([1, 2]))
    np.testing.assert_array_equal(run(tf.diag_part(np.diag([1, 2]))), [1, 2])
    np.testing.assert_array_equal(run(tf.matrix_diag([1, 2], k=1)), np.diag([1, 2], 1))
    np.testing.assert_array_equal(run(tf.matrix_diag_part(x)), np.diagonal(x, axis1=1, axis2=2))
    zeroed = x * (1 - np.eye(2, 3, dtype=np.float32))
    np.testing.assert_array_equal(run(tf.matrix_set_diag(x, np.zeros((2, 2), np.float32))), zeroed)
    np.testing.assert_array_equal(run(tf.matrix_band_part(x, 0, -1)), np.triu(x))


def test_blocks():
    x = np.arange(16).reshape(1, 4, 4, 1)
    batches = tf.space_to_batch(x, [[0, 0], [0, 0]], 2)
    expected = [x[0, i::2, j::2] for i in range(2) for j in range(2)]
    np.testing.assert_array_equal(run(batches), expected)
    np.testing.assert_array_equal(run(tf.batch_to_space(batches, [[0, 0], [0, 0]], 2)), x)
    deep = tf.space_to_depth(x, 2)
    assert run(deep)[0, 0, 0].tolist() == [0, 1, 4, 5]
    np.testing.assert_array_equal(run(tf.depth_to_space(deep, 2)), x)
    paddings, crops = run(tf.required_space_to_batch_paddings([5, 6], [2, 3]))
    assert (paddings.tolist(), crops.tolist()) == ([[0, 1], [0, 0]], [[0, 1], [0, 0]])
    patches = run(tf.extract_image_patches(x, [1, 2, 2, 1], [1, 2, 2, 1], [1, 1, 1, 1], "VALID"))
    assert patches[0, 1, 1].tolist() == [10, 11, 14, 15]
