"""Other values: types, brightness, contrast, and spaces of colours."""

from typing import Any, Callable

import numpy as np

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import constant, convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.ops import array, math, random, reduce
from millrace.ops.image.checks import after_checks, image34, require

rgb_to_hsv = export(v1="image.rgb_to_hsv", v2="image.rgb_to_hsv")(gen_ops.rgb_to_hsv)
hsv_to_rgb = export(v1="image.hsv_to_rgb", v2="image.hsv_to_rgb")(gen_ops.hsv_to_rgb)


@export(v1="image.per_image_standardization", v2="image.per_image_standardization")
def per_image_standardization(image: Any) -> Tensor:
    """(image - mean) / deviation of each picture; by 1 / sqrt(number of elements) at least."""
    with name_scope(None, "per_image_standardization", [image]) as scope:
        image = image34(image)
        pixels = reduce.reduce_prod(array.shape(image)[-3:])
        image = math.cast(image, dtypes.float32)
        axes = [-1, -2, -3]
        mean = reduce.reduce_mean(image, axes, keepdims=True)
        variance = reduce.reduce_mean(math.square(image - mean), axes, keepdims=True)
        least = math.rsqrt(math.cast(pixels, dtypes.float32))
        scale = math.maximum(math.sqrt(variance), least)
        return math.divide(image - mean, scale, name=scope)


@export(v1="image.convert_image_dtype", v2="image.convert_image_dtype")
def convert_image_dtype(
    image: Any, dtype: Any, saturate: bool = False, name: str | None = None
) -> Tensor:
    """The image in another type, scaled: floats are within [0, 1], integers up to the greatest.

    `saturate`: values out of range become the nearest ones within.
    """
    image = convert_to_tensor(image, name="image")
    dtype = dtypes.as_dtype(dtype).base_dtype
    if dtype == image.dtype.base_dtype:
        return array.identity(image, name=name)
    with name_scope(name, "convert_image", [image]) as scope:
        source = image.dtype.base_dtype

        def cast(x: Tensor) -> Tensor:
            return math.saturate_cast(x, dtype) if saturate else math.cast(x, dtype)

        if source.is_integer and dtype.is_integer:
            if source.max > dtype.max:
                scale = (source.max + 1) // (dtype.max + 1)
                scaled = math.floordiv(image, convert_to_tensor(scale, dtype=source))
                return cast(scaled)
            scale = (dtype.max + 1) // (source.max + 1)
            wide = cast(image)
            return math.multiply(wide, convert_to_tensor(scale, dtype=dtype), name=scope)
        if source.is_floating and dtype.is_floating:
            return math.cast(image, dtype, name=scope)
        if source.is_integer:
            return math.multiply(math.cast(image, dtype), 1.0 / source.max, name=scope)
        return cast(math.multiply(image, dtype.max + 0.5))


def _through_float(image: Any, change: Callable[[Tensor], Tensor], name: str) -> Tensor:
    """`change` of the image as floats within [0, 1], in the image's own type."""
    with name_scope(None, name, [image]) as scope:
        image = convert_to_tensor(image, name="image")
        own = image.dtype.base_dtype
        floating = own if own in (dtypes.float16, dtypes.float32) else dtypes.float32
        changed = change(convert_image_dtype(image, floating))
        return convert_image_dtype(changed, own, saturate=True, name=scope)


@export(v1="image.adjust_brightness", v2="image.adjust_brightness")
def adjust_brightness(image: Any, delta: Any) -> Tensor:
    """Adds delta to each element, of an image as floats within [0, 1]."""
    return _through_float(
        image, lambda x: math.add(x, math.cast(delta, x.dtype)), "adjust_brightness"
    )


@export(v1="image.random_brightness", v2="image.random_brightness")
def random_brightness(image: Any, max_delta: float, seed: int | None = None) -> Tensor:
    """`adjust_brightness` by a random value within [-max_delta, max_delta)."""
    if max_delta < 0:
        raise ValueError(f"max_delta must be non-negative, got {max_delta}")
    return adjust_brightness(image, random.random_uniform([], -max_delta, max_delta, seed=seed))


@export(v1="image.adjust_contrast", v2="image.adjust_contrast")
def adjust_contrast(images: Any, contrast_factor: Any) -> Tensor:
    """Multiplies what each channel of each picture differs from its mean by."""

    def change(x: Tensor) -> Tensor:
        plain = math.cast(x, dtypes.float32)
        return math.cast(gen_ops.adjust_contrastv2(plain, contrast_factor), x.dtype)

    return _through_float(images, change, "adjust_contrast")


def check_range(lower: float, upper: float) -> None:
    """ValueError unless numbers from `lower` to `upper` can be factors."""
    if upper <= lower:
        raise ValueError(f"upper must be > lower, got lower={lower}, upper={upper}.")
    if lower < 0:
        raise ValueError(f"lower must be non-negative, got {lower}.")


@export(v1="image.random_contrast", v2="image.random_contrast")
def random_contrast(image: Any, lower: float, upper: float, seed: int | None = None) -> Tensor:
    """`adjust_contrast` by a random factor within [lower, upper)."""
    check_range(lower, upper)
    return adjust_contrast(image, random.random_uniform([], lower, upper, seed=seed))


@export(v1="image.adjust_gamma", v2="image.adjust_gamma")
def adjust_gamma(image: Any, gamma: Any = 1, gain: Any = 1) -> Tensor:
    """gain * image^gamma, of an image as floats within [0, 1]. ValueError for a negative gamma."""

    def change(x: Tensor) -> Tensor:
        checks = require(gamma >= 0, "Gamma should be a non-negative real number.")
        return gain * after_checks(checks, x) ** gamma

    return _through_float(image, change, "adjust_gamma")


@export(v1="image.adjust_hue", v2="image.adjust_hue")
def adjust_hue(image: Any, delta: Any, name: str | None = None) -> Tensor:
    """Turns the hue of RGB colours by delta, of which 1 is the whole circle."""

    def change(x: Tensor) -> Tensor:
        plain = math.cast(x, dtypes.float32)
        return math.cast(gen_ops.adjust_hue(plain, delta), x.dtype)

    return _through_float(image, change, name or "adjust_hue")


@export(v1="image.random_hue", v2="image.random_hue")
def random_hue(image: Any, max_delta: float, seed: int | None = None) -> Tensor:
    """`adjust_hue` by a random value within [-max_delta, max_delta), at most half the circle."""
    if max_delta > 0.5:
        raise ValueError(f"max_delta must be <= 0.5, got {max_delta}.")
    if max_delta < 0:
        raise ValueError(f"max_delta must be non-negative, got {max_delta}.")
    return adjust_hue(image, random.random_uniform([], -max_delta, max_delta, seed=seed))


@export(v1="image.adjust_saturation", v2="image.adjust_saturation")
def adjust_saturation(image: Any, saturation_factor: Any, name: str | None = None) -> Tensor:
    """Multiplies the saturation of RGB colours."""

    def change(x: Tensor) -> Tensor:
        plain = math.cast(x, dtypes.float32)
        return math.cast(gen_ops.adjust_saturation(plain, saturation_factor), x.dtype)

    return _through_float(image, change, name or "adjust_saturation")


@export(v1="image.random_saturation", v2="image.random_saturation")
def random_saturation(image: Any, lower: float, upper: float, seed: int | None = None) -> Tensor:
    """`adjust_saturation` by a random factor within [lower, upper)."""
    check_range(lower, upper)
    return adjust_saturation(image, random.random_uniform([], lower, upper, seed=seed))


@export(v1="image.rgb_to_grayscale", v2="image.rgb_to_grayscale")
def rgb_to_grayscale(images: Any, name: str | None = None) -> Tensor:
    """The brightness of RGB colours, in a last dimension of size 1."""
    with name_scope(name, "rgb_to_grayscale", [images]) as scope:
        images = convert_to_tensor(images, name="images")
        own = images.dtype.base_dtype
        floats = convert_image_dtype(images, dtypes.float32)
        grey = reduce.reduce_sum(
            floats * constant([0.2989, 0.5870, 0.1140], dtypes.float32), -1, keepdims=True
        )
        return convert_image_dtype(grey, own, name=scope)


@export(v1="image.grayscale_to_rgb", v2="image.grayscale_to_rgb")
def grayscale_to_rgb(images: Any, name: str | None = None) -> Tensor:
    """RGB of grey: the last dimension, of size 1, three times."""
    with name_scope(name, "grayscale_to_rgb", [images]) as scope:
        images = convert_to_tensor(images, name="images")
        if images.shape.ndims is not None and images.shape._size_at(-1) not in (None, 1):
            raise ValueError(f"Last dimension of a grayscale image should be size 1: {images}")
        before = array.rank(images) - 1
        ones = array.ones(array.expand_dims(before, 0), dtypes.int32)
        result = array.tile(images, array.concat([ones, [3]], 0), name=scope)
        if images.shape.ndims is not None:
            result.set_shape([*images.shape.as_list()[:-1], 3])
        return result


def _colours(images: Any, matrix: Any) -> Tensor:
    """Each colour times a matrix."""
    images = convert_to_tensor(images, name="images")
    kernel = constant(matrix, images.dtype.base_dtype)
    product = reduce.reduce_sum(array.expand_dims(images, -1) * kernel, -2)
    product.set_shape(images.shape)
    return product


_YIQ = np.array(
    [[0.299, 0.59590059, 0.2115],
     [0.587, -0.27455667, -0.52273617],
     [0.114, -0.32134392, 0.31119955]]
)  # fmt: skip
_YUV = np.array(
    [[0.299, -0.14714119, 0.61497538],
     [0.587, -0.28886916, -0.51496512],
     [0.114, 0.43601035, -0.10001026]]
)  # fmt: skip


@export(v1="image.rgb_to_yiq", v2="image.rgb_to_yiq")
def rgb_to_yiq(images: Any) -> Tensor:
    """RGB colours in the YIQ space."""
    return _colours(images, _YIQ)


@export(v1="image.yiq_to_rgb", v2="image.yiq_to_rgb")
def yiq_to_rgb(images: Any) -> Tensor:
    """YIQ colours in the RGB space."""
    return _colours(images, np.linalg.inv(_YIQ))


@export(v1="image.rgb_to_yuv", v2="image.rgb_to_yuv")
def rgb_to_yuv(images: Any) -> Tensor:
    """RGB colours in the YUV space."""
    return _colours(images, _YUV)


@export(v1="image.yuv_to_rgb", v2="image.yuv_to_rgb")
def yuv_to_rgb(images: Any) -> Tensor:
    """YUV colours in the RGB space."""
    return _colours(images, np.linalg.inv(_YUV))
