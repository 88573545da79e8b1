"""Images from bytes and back."""

import struct

import numpy as np
import pytest
from tensorflow_twin import FILES

import millrace.compat.v1 as tf


@pytest.fixture
def run():
    with tf.Graph().as_default(), tf.Session() as session:
        yield session.run


def ramp(channels=3, dtype="uint8"):
    x, y = np.meshgrid(np.arange(30), np.arange(20))
    planes = [(x * 3 + y * (c + 2)) % 256 for c in range(channels)]
    return np.stack(planes, axis=-1).astype(dtype)


def bmp(image):
    """A BMP file of colours, rows from the bottom."""
    height, width, _ = image.shape
    rows = b"".join(row[:, ::-1].tobytes() + b"\0" * (-3 * width % 4) for row in image[::-1])
    head = struct.pack("<2sIHHI", b"BM", 54 + len(rows), 0, 0, 54)
    return head + struct.pack("<IiiHH24x", 40, width, height, 1, 24) + rows


def test_png_keeps_images(run):
    for channels in (1, 2, 3, 4):
        for dtype in ("uint8", "uint16"):
            image = ramp(channels, dtype)
            png = tf.image.encode_png(image, compression=7)
            decoded = tf.image.decode_png(png, dtype=tf.as_dtype(dtype))
            assert decoded.shape.as_list() == [None, None, None]
            np.testing.assert_array_equal(run(decoded), image)
    batch = np.stack([ramp(), ramp()[::-1]])
    files = run(tf.image.encode_png(batch))
    assert files.shape == (2,)
    np.testing.assert_array_equal(run(tf.image.decode_png(files[1])), batch[1])


def test_jpeg_comes_near(run):
    image = ramp()
    jpeg = run(tf.image.encode_jpeg(image, quality=100, chroma_downsampling=False))
    decoded = tf.image.decode_jpeg(jpeg, channels=3, dct_method="INTEGER_ACCURATE")
    assert decoded.shape.as_list() == [None, None, 3]
    assert np.abs(run(decoded).astype(int) - image).mean() < 1
    fast, default = run([
        tf.image.decode_jpeg(jpeg, dct_method="INTEGER_FAST"), tf.image.decode_jpeg(jpeg)
    ])  # fmt: skip
    np.testing.assert_array_equal(fast, default)
    assert run(tf.image.decode_jpeg(jpeg, ratio=2)).shape == (10, 15, 3)
    assert run(tf.image.decode_jpeg(jpeg, channels=1)).shape == (20, 30, 1)
    assert run(tf.image.extract_jpeg_shape(jpeg)).tolist() == [20, 30, 3]
    assert run(tf.image.extract_jpeg_shape(jpeg, tf.int64)).dtype == np.int64
    assert run([tf.image.is_jpeg(jpeg), tf.image.is_jpeg(b"no image")]) == [True, False]
    window = run(tf.image.decode_and_crop_jpeg(jpeg, [3, 5, 8, 10]))
    np.testing.assert_array_equal(window, default[3:11, 5:15])
    rough = run(tf.image.adjust_jpeg_quality(image, 1))
    assert rough.shape == image.shape and (rough != image).any()


def test_every_format_by_its_first_bytes(run):
    image = ramp()
    contents = tf.placeholder(tf.string, [])
    decode = tf.image.decode_image(contents)
    assert decode.shape.ndims is None
    png = run(tf.image.encode_png(image))
    jpeg = run(tf.image.encode_jpeg(image))
    np.testing.assert_array_equal(run(decode, {contents: png}), image)
    np.testing.assert_array_equal(run(decode, {contents: bmp(image)}), image)
    np.testing.assert_array_equal(run(tf.image.decode_bmp(bmp(image))), image)
    np.testing.assert_array_equal(run(decode, {contents: jpeg}), run(tf.image.decode_jpeg(jpeg)))
    floats = run(tf.image.decode_image(png, dtype=tf.float32, expand_animations=False))
    np.testing.assert_allclose(floats, image / 255, atol=1e-6)
    assert run(tf.image.decode_gif(png)).shape == (1, 20, 30, 3)
    assert run(tf.image.decode_png(jpeg)).shape == (20, 30, 3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tf.image.decode_image(b"no image"), "Unknown image file format"),
        (lambda: tf.image.decode_jpeg(b"\xff\xd8\xff\xe0 and so on"), "Invalid JPEG data"),
        (lambda: tf.image.decode_png(b"\x89PNG\r\n\x1a\n and so on"), "Invalid PNG data"),
        (lambda: tf.image.decode_gif(b"GIF89a and so on"), "GIF"),
        (lambda: tf.image.decode_bmp(b"BM"), "bmp"),
        (lambda: tf.image.decode_png(b"BM" + b"0" * 60), "decode_bmp"),
        (lambda: tf.image.decode_png(b""), "empty"),
    ],
)
def test_mistakes(run, make, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        run(make())


def test_mistakes_in_graphs():
    with tf.Graph().as_default():
        with pytest.raises(ValueError, match="channels"):
            tf.image.decode_image(b"x", channels=2)
        with pytest.raises(ValueError, match="channels"):
            tf.image.decode_png(b"x", channels=5)
        with pytest.raises(ValueError, match="rank"):
            tf.image.decode_png([b"x"])
        with pytest.raises(ValueError, match="ratio"):
            tf.image.decode_jpeg(b"x", ratio=3)
        with pytest.raises(ValueError, match="dct_method"):
            tf.image.decode_jpeg(b"x", dct_method="SLOW")
        with pytest.raises(ValueError, match="1 or 3"):
            tf.image.encode_jpeg(np.zeros([2, 2, 2], "uint8"))
        with pytest.raises(ValueError, match="rgb"):
            tf.image.encode_jpeg(ramp(1), format="rgb")
        with pytest.raises(ValueError, match="channels"):
            tf.image.encode_png(np.zeros([2, 2, 5], "uint8"))
        with pytest.raises(ValueError, match="empty"):
            tf.image.encode_png(np.zeros([0, 2, 3], "uint8"))


def test_what_tensorflow_makes_of_images(run):
    expected = np.load(FILES / "images" / "expected.npz")
    for name in expected.files:
        file, _, half = name.partition(" ")
        contents = (FILES / "images" / file).read_bytes()
        if half:
            image = run(tf.image.decode_jpeg(contents, ratio=2))
        else:
            image = run(tf.image.decode_image(contents))
        assert image.shape == expected[name].shape
        # Equal with libjpeg-turbo; other libraries round otherwise.
        assert np.abs(image.astype(int) - expected[name]).max() <= 8, name
