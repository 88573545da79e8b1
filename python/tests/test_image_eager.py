"""TensorFlow 2's functions of images and a few more: values as TensorFlow 2.15 gives them."""

import math

import numpy as np
import pytest

import millrace as tf
from millrace import _core


@pytest.fixture(autouse=True, scope="module")
def _eager():
    before = _core.eager_enabled()
    _core.choose_eager(True)
    yield
    _core.choose_eager(before)


PICTURE = (np.arange(20).reshape(5, 4, 1) ** 1.5).astype(np.float32)
RESIZED = [
    ("bilinear", False, [3.5301, 8.2111, 24.8137, 34.0528, 59.4378, 71.4752]),
    ("bilinear", True, [4.8985, 8.8325, 26.7050, 33.8867, 58.5246, 67.8679]),
    ("nearest", False, [1.0000, 5.1962, 27.0000, 36.4829, 70.0928, 82.8191]),
    ("bicubic", False, [2.3017, 7.0951, 24.4132, 34.4677, 60.8937, 74.1561]),
    ("bicubic", True, [3.3820, 7.8000, 25.5596, 33.9796, 59.1382, 70.1286]),
    ("area", True, [4.1361, 9.0508, 25.6504, 34.8012, 57.9161, 69.8516]),
    ("lanczos3", False, [1.8332, 6.7143, 24.2381, 34.6636, 61.3422, 75.1511]),
    ("lanczos3", True, [2.8166, 7.3926, 24.8847, 33.8151, 59.5623, 71.1732]),
    ("lanczos5", False, [1.6707, 6.2294, 24.5580, 34.3643, 61.9696, 75.0199]),
    ("lanczos5", True, [2.9284, 7.6092, 24.5768, 33.7520, 59.5437, 71.3988]),
    ("gaussian", True, [6.7637, 10.6285, 27.5240, 34.0569, 56.1760, 64.5844]),
    ("mitchellcubic", True, [4.9258, 9.0936, 26.5080, 34.0000, 57.7624, 67.4805]),
]


class TestResize:
    @pytest.mark.parametrize(("method", "antialias", "expected"), RESIZED)
    def test_values(self, method, antialias, expected):
        made = tf.image.resize(PICTURE, [3, 2], method, antialias=antialias)
        assert made.shape.as_list() == [3, 2, 1] and made.dtype == tf.float32
        np.testing.assert_allclose(made.numpy().ravel(), expected, atol=1e-3)
        resize = tf.function(lambda x, n: tf.image.resize(x, n, method, antialias=antialias))
        staged = resize(tf.constant(PICTURE[None]), tf.constant([3, 2]))
        np.testing.assert_allclose(staged.numpy().ravel(), expected, atol=1e-3)

    def test_gradients(self):
        for method in ("bilinear", "bicubic", "lanczos3"):
            x = tf.Variable(PICTURE)
            with tf.GradientTape() as tape:
                total = tf.reduce_sum(tf.image.resize(x, [3, 2], method, antialias=True))
            slope = tape.gradient(total, x)
            # Each pixel of the result is a weighted mean: all weights together are one.
            assert slope.numpy().sum() == pytest.approx(6, abs=1e-4)

    def test_types_and_proportions(self):
        bytes_ = np.uint8(PICTURE)
        assert tf.image.resize(bytes_, [2, 2], "nearest").dtype == tf.uint8
        assert tf.image.resize(bytes_, [5, 4]).dtype == tf.float32
        kept = tf.image.resize(PICTURE, [10, 20], preserve_aspect_ratio=True)
        assert kept.shape.as_list() == [10, 8, 1]

    def test_with_pad(self):
        made = tf.image.resize_with_pad(PICTURE, 3, 4).numpy()
        assert made.shape == (3, 4, 1) and (made[:, 2:] == 0).all()
        np.testing.assert_allclose(made[:, :2].ravel(), RESIZED[0][2], atol=1e-3)

    def test_wrong_arguments(self):
        with pytest.raises(ValueError, match="not implemented"):
            tf.image.resize(PICTURE, [2, 2], "no such method")
        with pytest.raises(ValueError, match="3 or 4 dimensions"):
            tf.image.resize(np.zeros([2, 2], np.float32), [2, 2])
        for size in ([2], 2, "ab", [[2, 2]]):
            with pytest.raises(ValueError, match="'size' must be"):
                tf.image.resize(PICTURE, size)


class TestSimilarity:
    def pictures(self):
        random = np.random.RandomState(3)
        a = random.rand(1, 24, 20, 2).astype(np.float32)
        return a, np.clip(a + 0.2 * random.rand(1, 24, 20, 2), 0, 1).astype(np.float32)

    def test_values(self):
        a, b = self.pictures()
        assert tf.image.ssim(a, b, 1.0).numpy() == pytest.approx([0.964855], abs=1e-4)
        assert tf.image.ssim(a, a, 1.0).numpy() == pytest.approx([1.0], abs=1e-5)
        assert tf.image.ssim(a, b, 1.0, return_index_map=True).shape.as_list() == [1, 14, 10]
        scales = tf.image.ssim_multiscale(a, b, 1.0, power_factors=(0.3, 0.7), filter_size=5)
        assert scales.numpy() == pytest.approx([0.969782], abs=1e-4)

    def test_gradients(self):
        a, b = self.pictures()
        x = tf.constant(b)
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = 1 - tf.image.ssim(a, x, 1.0)
        slope = tape.gradient(loss, x)
        better = tf.image.ssim(a, x - 0.5 * slope, 1.0)
        assert better.numpy()[0] > 1 - loss.numpy()[0]

    def test_wrong_arguments(self):
        a, b = self.pictures()
        with pytest.raises(ValueError, match="one shape"):
            tf.image.ssim(a, b[:, :20], 1.0)
        with pytest.raises(ValueError, match="smaller than the filter"):
            tf.image.ssim(a[:, :8], b[:, :8], 1.0)
        with pytest.raises(ValueError, match="height"):
            tf.image.ssim(a[0, 0], b[0, 0], 1.0)


class TestStateless:
    COLOURS = np.float32([[[0.1, 0.5, 0.9]], [[0.3, 0.3, 0.6]]])

    @pytest.mark.parametrize(
        ("name", "args", "expected"),
        [
            ("brightness", (0.3,), [0.30644, 0.70644, 1.10644, 0.50644, 0.50644, 0.80644]),
            ("contrast", (0.2, 0.7), [0.1378, 0.4622, 0.8433, 0.2622, 0.3378, 0.6567]),
            ("hue", (0.2,), [0.3606, 0.1, 0.9, 0.54772, 0.3, 0.6]),
            ("saturation", (0.3, 2.0), [0.0, 0.45, 0.9, 0.07953, 0.07953, 0.6]),
        ],
    )
    def test_colours(self, name, args, expected):
        change = getattr(tf.image, f"stateless_random_{name}")
        made = change(self.COLOURS, *args, seed=(1, 2)).numpy()
        np.testing.assert_allclose(made.ravel(), expected, atol=1e-4)

    def test_flips(self):
        picture = np.float32([[[1], [2]]])
        flip = tf.image.stateless_random_flip_left_right
        assert [int(flip(picture, seed=(s, 2)).numpy()[0, 0, 0]) for s in range(8)] == [
            2, 1, 1, 1, 2, 2, 2, 2,
        ]  # fmt: skip
        upside = tf.image.stateless_random_flip_up_down(np.zeros([3, 4, 5, 1]), seed=(1, 2))
        assert upside.shape.as_list() == [3, 4, 5, 1]

    def test_crops(self):
        whole = np.arange(30).reshape(5, 6)
        part = tf.image.stateless_random_crop(whole, [2, 3], seed=(1, 2))
        assert part.numpy().tolist() == [[1, 2, 3], [7, 8, 9]]
        with pytest.raises(tf.errors.InvalidArgumentError, match="value.shape >= size"):
            tf.image.stateless_random_crop(whole, [6, 3], seed=(1, 2))

    def test_wrong_arguments(self):
        for change, args in (
            (tf.image.stateless_random_brightness, (-1,)),
            (tf.image.stateless_random_contrast, (0.5, 0.5)),
            (tf.image.stateless_random_hue, (0.6,)),
            (tf.image.stateless_random_saturation, (-1, 1)),
        ):
            with pytest.raises(ValueError, match="must be"):
                change(self.COLOURS, *args, seed=(1, 2))


class TestGelu:
    def test_values_and_gradients(self):
        x = tf.constant([-1.0, 0.0, 2.0], tf.float64)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            exact, close = tf.nn.gelu(x), tf.nn.gelu(x, approximate=True)
        expected = [v * 0.5 * (1 + math.erf(v / math.sqrt(2))) for v in (-1.0, 0.0, 2.0)]
        np.testing.assert_allclose(exact.numpy(), expected, atol=1e-12)
        np.testing.assert_allclose(close.numpy(), expected, atol=1e-3)
        np.testing.assert_allclose(tape.gradient(exact, x).numpy()[1], 0.5)
        with pytest.raises(ValueError, match="floating point"):
            tf.nn.gelu([1, 2])


class TestSearch:
    @pytest.mark.parametrize("side", ["left", "right"])
    @pytest.mark.parametrize("size", [0, 1, 2, 7, 8])
    def test_as_numpy(self, side, size):
        random = np.random.RandomState(size)
        rows = np.sort(random.randint(0, 9, (3, size)))
        values = random.randint(-1, 11, (3, 6))
        found = tf.searchsorted(rows, values, side, tf.int64)
        expected = [np.searchsorted(r, v, side) for r, v in zip(rows, values, strict=True)]
        np.testing.assert_array_equal(found.numpy(), expected)
        any_size = tf.function(
            lambda r, v: tf.searchsorted(r, v, side),
            input_signature=[tf.TensorSpec([None, None], tf.int64)] * 2,
        )
        np.testing.assert_array_equal(any_size(rows, values).numpy(), expected)

    def test_vectors(self):
        found = tf.searchsorted([1.0, 3.0, 5.0], [0.0, 3.0, 9.0])
        assert found.dtype == tf.int32 and found.numpy().tolist() == [0, 1, 3]

    def test_wrong_arguments(self):
        with pytest.raises(ValueError, match="side"):
            tf.searchsorted([1], [1], side="middle")
        with pytest.raises(ValueError, match="rows"):
            tf.searchsorted(1, [1])
        with pytest.raises(TypeError, match="out_type"):
            tf.searchsorted([1], [1], out_type=tf.float32)


class TestOthers:
    def test_norms_may_be_numbers(self):
        (clipped,), norm = tf.clip_by_global_norm([tf.constant([3.0, 4.0])], 1.0, use_norm=10.0)
        assert clipped.numpy() == pytest.approx([0.3, 0.4]) and float(norm) == 10.0

    def test_constant_initializers(self):
        made = tf.constant_initializer([1, 2, 3, 4])([2, 2], tf.float32)
        assert made.dtype == tf.float32 and made.numpy().tolist() == [[1, 2], [3, 4]]
        assert tf.constant_initializer(7)([2]).numpy().tolist() == [7, 7]
        with pytest.raises((ValueError, tf.errors.InvalidArgumentError)):
            tf.constant_initializer([1, 2])([3])

    def test_loggers(self):
        assert tf.get_logger() is tf.get_logger() and tf.get_logger().name == "tensorflow"
