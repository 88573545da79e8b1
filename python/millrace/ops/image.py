"""Images: sizes, crops, flips, colours, boxes."""

from typing import Any, Callable

import numpy as np

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.graph.convert import constant, convert_to_tensor
from millrace.graph.graph import Tensor, control_dependencies, name_scope
from millrace.graph.static_value import constant_value
from millrace.ops import array, check, control_flow, indexing, math, random, reduce

rgb_to_hsv = export("image.rgb_to_hsv")(gen_ops.rgb_to_hsv)
hsv_to_rgb = export("image.hsv_to_rgb")(gen_ops.hsv_to_rgb)


@export("image.ResizeMethod")
class ResizeMethod:
    """How `resize_images` interpolates."""

    BILINEAR = 0
    NEAREST_NEIGHBOR = 1
    BICUBIC = 2
    AREA = 3


# What an image must be.


def _check_rank(image: Tensor, ranks: tuple[int, ...], words: str) -> None:
    """ValueError unless the rank, where it is known, is one of `ranks` and no size is zero."""
    rank = image.shape.ndims
    if rank is None:
        return
    if rank not in ranks:
        raise ValueError(
            f"'image' (shape {image.shape}) must be {words}: '{image.name}' ({image.dtype.name})"
        )
    if any(size == 0 for size in image.shape.as_list()[-3:]):
        raise ValueError(f"all dims of 'image.shape' must be > 0: {image.shape}")


def _positive(image: Tensor) -> Tensor:
    if image.shape.is_fully_defined():
        return image
    sizes = array.shape(image)
    with control_dependencies(
        [check.assert_positive(sizes, message="all dims of 'image.shape' must be > 0.")]
    ):
        checked = array.identity(image)
    checked.set_shape(image.shape)
    return checked


def _image34(image: Any) -> Tensor:
    """A picture, or a batch of them."""
    image = convert_to_tensor(image, name="image")
    _check_rank(image, (3, 4), "three-dimensional, or a batch of such images")
    return _positive(image)


def _sizes(image: Tensor) -> list[Any]:
    """The size of each dimension: ints where known, tensors otherwise."""
    if image.shape.ndims is None:
        raise ValueError(f"'image' must have a known rank: '{image.name}' ({image.dtype.name})")
    return math.sizes_of(image)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor) or hasattr(value, "_as_graph_element")


def _require(condition: Any, message: str) -> list[Any]:
    """Assertions for a condition on tensors; ValueError for a known one that does not hold."""
    if _is_tensor(condition):
        return [control_flow.Assert(condition, [message])]
    if not condition:
        raise ValueError(message)
    return []


def _after(checks: list[Any], image: Tensor) -> Tensor:
    if not checks:
        return image
    with control_dependencies(checks):
        return array.identity(image)


# Flips and turns.


def _flip(image: Any, axis: int, name: str) -> Tensor:
    """`axis`: from the last, so that batches work too."""
    with name_scope(None, name, [image]):
        image = _image34(image)
        rank = image.shape.ndims
        at = (3 if rank is None else rank) + axis
        result = array.reverse(image, [at])
        result.set_shape([None] * 3 if rank is None else image.shape)
        return result


@export("image.flip_left_right")
def flip_left_right(image: Any) -> Tensor:
    """The picture, or batch of them, with left and right changed."""
    return _flip(image, -2, "flip_left_right")


@export("image.flip_up_down")
def flip_up_down(image: Any) -> Tensor:
    """The picture, or batch of them, upside down."""
    return _flip(image, -3, "flip_up_down")


def _random_flip(image: Any, axis: int, seed: int | None, name: str) -> Tensor:
    with name_scope(None, name, [image]) as scope:
        image = _image34(image)
        if image.shape.ndims in (None, 3):
            draw = random.random_uniform([], 0, 1.0, seed=seed)
            result = control_flow.cond(
                math.less(draw, 0.5), lambda: array.reverse(image, [3 + axis]),
                lambda: array.identity(image), name=scope,
            )  # fmt: skip
        else:
            batch = array.shape(image)[0]
            draws = random.random_uniform(array.stack([batch]), seed=seed)
            kept = math.cast(array.reshape(draws, array.stack([batch, 1, 1, 1])) < 0.5, image.dtype)
            result = kept * image + (1 - kept) * array.reverse(image, [4 + axis])
        result.set_shape([None] * 3 if image.shape.ndims is None else image.shape)
        return result


@export("image.random_flip_left_right")
def random_flip_left_right(image: Any, seed: int | None = None) -> Tensor:
    """The picture with left and right changed, half of the times; each of a batch by itself."""
    return _random_flip(image, -2, seed, "random_flip_left_right")


@export("image.random_flip_up_down")
def random_flip_up_down(image: Any, seed: int | None = None) -> Tensor:
    """The picture upside down, half of the times; each of a batch by itself."""
    return _random_flip(image, -3, seed, "random_flip_up_down")


@export("image.transpose", "image.transpose_image")
def transpose_image(image: Any, name: str | None = None) -> Tensor:
    """The picture, or batch of them, with rows and columns exchanged."""
    with name_scope(name, "transpose", [image]):
        image = _image34(image)
        result = array.transpose(image, [1, 0, 2] if image.shape.ndims != 4 else [0, 2, 1, 3])
        if image.shape.ndims is None:
            result.set_shape([None] * 3)
        return result


@export("image.rot90")
def rot90(image: Any, k: Any = 1, name: str | None = None) -> Tensor:
    """The picture, or batch of them, turned by k quarters against the clock."""
    with name_scope(name, "rot90", [image, k]) as scope:
        image = _image34(image)
        k = convert_to_tensor(k, dtype=dtypes.int32, name="k")
        if k.shape.ndims not in (None, 0):
            raise ValueError(f"k must be a scalar, got '{k.name}' of shape {k.shape}")
        rows = 1 if image.shape.ndims == 4 else 0
        order = [0, 2, 1, 3] if rows else [1, 0, 2]
        turns: list[Callable[[], Tensor]] = [
            lambda: array.identity(image),
            lambda: array.transpose(array.reverse(image, [rows + 1]), order),
            lambda: array.reverse(image, [rows, rows + 1]),
            lambda: array.reverse(array.transpose(image, order), [rows + 1]),
        ]
        known = constant_value(k)
        if known is not None:
            result = turns[int(known) % 4]()
            if image.shape.ndims is None:
                result.set_shape([None] * 3)
            return result
        result = control_flow.switch_case(math.floormod(k, 4), turns, name=scope)
        sizes = image.shape.as_list() if image.shape.ndims is not None else [None]
        result.set_shape([*sizes[:rows], None, None, sizes[-1]])
        return result


# Crops and borders.


@export("image.central_crop")
def central_crop(image: Any, central_fraction: Any) -> Tensor:
    """The middle of the picture, or batch of them: `central_fraction` of each side.

    ValueError for a fraction outside of (0, 1].
    """
    with name_scope(None, "central_crop", [image]):
        image = convert_to_tensor(image, name="image")
        known = constant_value(convert_to_tensor(central_fraction))
        if known is not None and not 0.0 < float(known) <= 1.0:
            raise ValueError(f"central_fraction must be within (0, 1], got {central_fraction}")
        if known is not None and float(known) == 1.0:
            return image
        _check_rank(image, (3, 4), "three-dimensional, or a batch of such images")
        rank = image.shape.ndims
        if rank is None:
            raise ValueError("central_crop: the rank of the image must be known")
        sizes = _sizes(image)
        begin: list[Any] = [0] * rank
        size: list[Any] = [-1] * rank
        static = image.shape.as_list()
        for axis in (rank - 3, rank - 2):
            length = sizes[axis]
            if isinstance(length, int) and known is not None:
                start = int((length - length * float(known)) / 2)
                static[axis] = length - 2 * start
            else:
                whole = math.cast(length, dtypes.float64)
                share = math.cast(central_fraction, dtypes.float64)
                start = math.cast((whole - whole * share) / 2, dtypes.int32)
                static[axis] = None
            begin[axis], size[axis] = start, length - 2 * start
        result = indexing.slice(image, array.stack(begin), array.stack(size))
        result.set_shape(static)
        return result


def _as_batch(image: Any) -> tuple[Tensor, bool]:
    """A picture as a batch of one; and whether it was a batch already."""
    image = convert_to_tensor(image, name="image")
    rank = image.shape.ndims
    if rank is None:
        image = array.expand_dims(image, 0)
        image.set_shape([None] * 4)
        return image, False
    if rank == 3:
        return array.expand_dims(image, 0), False
    if rank != 4:
        raise ValueError(
            f"'image' (shape {image.shape}) must have either 3 or 4 dimensions: '{image.name}' "
            f"({image.dtype.name})"
        )
    return image, True


def _static(values: list[Any]) -> list[int | None]:
    return [int(v) if isinstance(v, (int, np.integer)) else None for v in values]


@export("image.crop_to_bounding_box")
def crop_to_bounding_box(
    image: Any, offset_height: Any, offset_width: Any, target_height: Any, target_width: Any
) -> Tensor:
    """The part of the picture, or batch of them, of a size that begins at an offset.

    ValueError, or an error when the graph runs, for a part that is not within.
    """
    with name_scope(None, "crop_to_bounding_box", [image]):
        image, is_batch = _as_batch(image)
        _check_rank(image, (4,), "three-dimensional, or a batch of such images")
        image = _positive(image)
        batch, height, width, depth = _sizes(image)
        checks = (
            _require(offset_width >= 0, "offset_width must be >= 0.")
            + _require(offset_height >= 0, "offset_height must be >= 0.")
            + _require(target_width > 0, "target_width must be > 0.")
            + _require(target_height > 0, "target_height must be > 0.")
            + _require(width >= target_width + offset_width, "width must be >= target + offset.")
            + _require(
                height >= target_height + offset_height, "height must be >= target + offset."
            )
        )
        image = _after(checks, image)
        cropped = indexing.slice(
            image, array.stack([0, offset_height, offset_width, 0]),
            array.stack([-1, target_height, target_width, -1]),
        )  # fmt: skip
        cropped.set_shape(_static([batch, target_height, target_width, depth]))
        return cropped if is_batch else array.squeeze(cropped, [0])


@export("image.pad_to_bounding_box")
def pad_to_bounding_box(
    image: Any, offset_height: Any, offset_width: Any, target_height: Any, target_width: Any
) -> Tensor:
    """The picture, or batch of them, at an offset within zeros of a size.

    ValueError, or an error when the graph runs, where it does not fit.
    """
    with name_scope(None, "pad_to_bounding_box", [image]):
        image, is_batch = _as_batch(image)
        _check_rank(image, (4,), "three-dimensional, or a batch of such images")
        image = _positive(image)
        batch, height, width, depth = _sizes(image)
        after_width = target_width - offset_width - width
        after_height = target_height - offset_height - height
        checks = (
            _require(offset_height >= 0, "offset_height must be >= 0")
            + _require(offset_width >= 0, "offset_width must be >= 0")
            + _require(after_width >= 0, "width must be <= target - offset")
            + _require(after_height >= 0, "height must be <= target - offset")
        )
        image = _after(checks, image)
        paddings = array.reshape(
            array.stack([0, 0, offset_height, after_height, offset_width, after_width, 0, 0]),
            [4, 2],
        )
        padded = array.pad(image, paddings)
        padded.set_shape(_static([batch, target_height, target_width, depth]))
        return padded if is_batch else array.squeeze(padded, [0])


def _larger(a: Any, b: Any) -> Any:
    return math.maximum(a, b) if _is_tensor(a) or _is_tensor(b) else max(a, b)


def _smaller(a: Any, b: Any) -> Any:
    return math.minimum(a, b) if _is_tensor(a) or _is_tensor(b) else min(a, b)


@export("image.resize_image_with_crop_or_pad", "image.resize_with_crop_or_pad")
def resize_image_with_crop_or_pad(image: Any, target_height: Any, target_width: Any) -> Tensor:
    """The picture, or batch of them, cut at its sides or put within zeros to be of a size."""
    with name_scope(None, "resize_image_with_crop_or_pad", [image]):
        image, is_batch = _as_batch(image)
        _check_rank(image, (4,), "three-dimensional, or a batch of such images")
        image = _positive(image)
        checks = _require(target_width > 0, "target_width must be > 0.") + _require(
            target_height > 0, "target_height must be > 0."
        )
        image = _after(checks, image)
        batch, height, width, depth = _sizes(image)
        over_width, over_height = target_width - width, target_height - height
        cropped = crop_to_bounding_box(
            image, _larger(-over_height // 2, 0), _larger(-over_width // 2, 0),
            _smaller(target_height, height), _smaller(target_width, width),
        )  # fmt: skip
        padded = pad_to_bounding_box(
            cropped, _larger(over_height // 2, 0), _larger(over_width // 2, 0), target_height,
            target_width,
        )  # fmt: skip
        padded.set_shape(_static([batch, target_height, target_width, depth]))
        return padded if is_batch else array.squeeze(padded, [0])


# Sizes.


@export("image.resize_bilinear")
def resize_bilinear(
    images: Any, size: Any, align_corners: bool | None = False, name: str | None = None,
    half_pixel_centers: bool = False,
) -> Tensor:  # fmt: skip
    """Images [batch, height, width, channels] of another size, as float32."""
    return gen_ops.resize_bilinear(
        images, size, align_corners=bool(align_corners), half_pixel_centers=half_pixel_centers,
        name=name,
    )  # fmt: skip


@export("image.resize_nearest_neighbor")
def resize_nearest_neighbor(
    images: Any, size: Any, align_corners: bool | None = False, name: str | None = None,
    half_pixel_centers: bool = False,
) -> Tensor:  # fmt: skip
    """Images of another size, each element that of the nearest place; of the same type."""
    return gen_ops.resize_nearest_neighbor(
        images, size, align_corners=bool(align_corners), half_pixel_centers=half_pixel_centers,
        name=name,
    )  # fmt: skip


@export("image.resize_bicubic")
def resize_bicubic(
    images: Any, size: Any, align_corners: bool | None = False, name: str | None = None,
    half_pixel_centers: bool = False,
) -> Tensor:  # fmt: skip
    """Images of another size, as float32."""
    return gen_ops.resize_bicubic(
        images, size, align_corners=bool(align_corners), half_pixel_centers=half_pixel_centers,
        name=name,
    )  # fmt: skip


@export("image.resize_area")
def resize_area(
    images: Any, size: Any, align_corners: bool | None = False, name: str | None = None
) -> Tensor:
    """Images of another size, each element the mean of the area that it covers; float32."""
    return gen_ops.resize_area(images, size, align_corners=bool(align_corners), name=name)


@export("image.resize_images", "image.resize")
def resize_images(
    images: Any, size: Any, method: Any = ResizeMethod.BILINEAR, align_corners: bool = False,
    preserve_aspect_ratio: bool = False, name: str | None = None,
) -> Tensor:  # fmt: skip
    """A picture, or a batch of them, of another size [height, width].

    Args:
      method: one of `ResizeMethod`.
      align_corners: the centres of corners stay where they are.
      preserve_aspect_ratio: the size is the most that each side may have.

    Returns: float32; the type of the images for nearest neighbours or the same size.
    """
    with name_scope(name, "resize", [images, size]):
        images = convert_to_tensor(images, name="images")
        rank = images.shape.ndims
        if rank is None:
            raise ValueError("'images' contains no shape.")
        if rank not in (3, 4):
            raise ValueError(
                f"'images' must have either 3 or 4 dimensions, got '{images.name}' of shape "
                f"{images.shape}"
            )
        if rank == 3:
            images = array.expand_dims(images, 0)
        _, height, width, _ = images.shape.as_list()
        try:
            size = convert_to_tensor(size, dtype=dtypes.int32, name="size")
        except (TypeError, ValueError):
            raise ValueError(
                f"'size' must be a 1-D int32 Tensor of 2 elements, got {size!r}"
            ) from None
        if not size.shape.is_compatible_with([2]):
            raise ValueError(
                "'size' must be a 1-D Tensor of 2 elements: new_height, new_width; got shape "
                f"{size.shape}"
            )
        if preserve_aspect_ratio:
            size = _within(images, size)
        known = constant_value(size)
        new_height, new_width = (None, None) if known is None else (int(n) for n in known)
        if known is not None and (new_height, new_width) == (height, width):
            result = images
        else:
            ops = {
                ResizeMethod.BILINEAR: resize_bilinear,
                ResizeMethod.NEAREST_NEIGHBOR: resize_nearest_neighbor,
                ResizeMethod.BICUBIC: resize_bicubic,
                ResizeMethod.AREA: resize_area,
            }
            if method not in ops:
                raise ValueError(f"Resize method is not implemented: {method!r}")
            result = ops[method](images, size, align_corners=align_corners)
            result.set_shape([None, new_height, new_width, None])
        return array.squeeze(result, [0]) if rank == 3 else result


def _within(images: Tensor, size: Tensor) -> Tensor:
    """The largest size of the images' proportions that is within `size`."""
    _, height, width, _ = _sizes(images)
    height, width = math.cast(height, dtypes.float32), math.cast(width, dtypes.float32)
    scale = math.minimum(
        math.cast(size[0], dtypes.float32) / height, math.cast(size[1], dtypes.float32) / width
    )
    return math.cast(
        array.stack([math.round(scale * height), math.round(scale * width)]), dtypes.int32
    )


@export("image.resize_image_with_pad")
def resize_image_with_pad(
    image: Any, target_height: Any, target_width: Any, method: Any = ResizeMethod.BILINEAR,
    align_corners: bool = False,
) -> Tensor:  # fmt: skip
    """The picture, or batch of them, resized in its proportions and put within zeros."""
    with name_scope(None, "resize_image_with_pad", [image]):
        image, is_batch = _as_batch(image)
        resized = resize_images(
            image, array.stack([target_height, target_width]), method, align_corners, True
        )
        _, height, width, _ = _sizes(resized)
        padded = pad_to_bounding_box(
            resized, (target_height - height) // 2, (target_width - width) // 2, target_height,
            target_width,
        )  # fmt: skip
        return padded if is_batch else array.squeeze(padded, [0])


# Values.


@export("image.per_image_standardization")
def per_image_standardization(image: Any) -> Tensor:
    """(image - mean) / deviation of each picture; by 1 / sqrt(number of elements) at least."""
    with name_scope(None, "per_image_standardization", [image]) as scope:
        image = _image34(image)
        pixels = reduce.reduce_prod(array.shape(image)[-3:])
        image = math.cast(image, dtypes.float32)
        axes = [-1, -2, -3]
        mean = reduce.reduce_mean(image, axes, keepdims=True)
        variance = reduce.reduce_mean(math.square(image - mean), axes, keepdims=True)
        least = math.rsqrt(math.cast(pixels, dtypes.float32))
        scale = math.maximum(math.sqrt(variance), least)
        return math.divide(image - mean, scale, name=scope)


@export("image.convert_image_dtype")
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


@export("image.adjust_brightness")
def adjust_brightness(image: Any, delta: Any) -> Tensor:
    """Adds delta to each element, of an image as floats within [0, 1]."""
    return _through_float(
        image, lambda x: math.add(x, math.cast(delta, x.dtype)), "adjust_brightness"
    )


@export("image.random_brightness")
def random_brightness(image: Any, max_delta: float, seed: int | None = None) -> Tensor:
    """`adjust_brightness` by a random value within [-max_delta, max_delta)."""
    if max_delta < 0:
        raise ValueError(f"max_delta must be non-negative, got {max_delta}")
    return adjust_brightness(image, random.random_uniform([], -max_delta, max_delta, seed=seed))


@export("image.adjust_contrast")
def adjust_contrast(images: Any, contrast_factor: Any) -> Tensor:
    """Multiplies what each channel of each picture differs from its mean by."""

    def change(x: Tensor) -> Tensor:
        plain = math.cast(x, dtypes.float32)
        return math.cast(gen_ops.adjust_contrastv2(plain, contrast_factor), x.dtype)

    return _through_float(images, change, "adjust_contrast")


def _check_range(lower: float, upper: float) -> None:
    if upper <= lower:
        raise ValueError(f"upper must be > lower, got lower={lower}, upper={upper}.")
    if lower < 0:
        raise ValueError(f"lower must be non-negative, got {lower}.")


@export("image.random_contrast")
def random_contrast(image: Any, lower: float, upper: float, seed: int | None = None) -> Tensor:
    """`adjust_contrast` by a random factor within [lower, upper)."""
    _check_range(lower, upper)
    return adjust_contrast(image, random.random_uniform([], lower, upper, seed=seed))


@export("image.adjust_gamma")
def adjust_gamma(image: Any, gamma: Any = 1, gain: Any = 1) -> Tensor:
    """gain * image^gamma, of an image as floats within [0, 1]. ValueError for a negative gamma."""

    def change(x: Tensor) -> Tensor:
        checks = _require(gamma >= 0, "Gamma should be a non-negative real number.")
        return gain * _after(checks, x) ** gamma

    return _through_float(image, change, "adjust_gamma")


@export("image.adjust_hue")
def adjust_hue(image: Any, delta: Any, name: str | None = None) -> Tensor:
    """Turns the hue of RGB colours by delta, of which 1 is the whole circle."""

    def change(x: Tensor) -> Tensor:
        plain = math.cast(x, dtypes.float32)
        return math.cast(gen_ops.adjust_hue(plain, delta), x.dtype)

    return _through_float(image, change, name or "adjust_hue")


@export("image.random_hue")
def random_hue(image: Any, max_delta: float, seed: int | None = None) -> Tensor:
    """`adjust_hue` by a random value within [-max_delta, max_delta), at most half the circle."""
    if max_delta > 0.5:
        raise ValueError(f"max_delta must be <= 0.5, got {max_delta}.")
    if max_delta < 0:
        raise ValueError(f"max_delta must be non-negative, got {max_delta}.")
    return adjust_hue(image, random.random_uniform([], -max_delta, max_delta, seed=seed))


@export("image.adjust_saturation")
def adjust_saturation(image: Any, saturation_factor: Any, name: str | None = None) -> Tensor:
    """Multiplies the saturation of RGB colours."""

    def change(x: Tensor) -> Tensor:
        plain = math.cast(x, dtypes.float32)
        return math.cast(gen_ops.adjust_saturation(plain, saturation_factor), x.dtype)

    return _through_float(image, change, name or "adjust_saturation")


@export("image.random_saturation")
def random_saturation(image: Any, lower: float, upper: float, seed: int | None = None) -> Tensor:
    """`adjust_saturation` by a random factor within [lower, upper)."""
    _check_range(lower, upper)
    return adjust_saturation(image, random.random_uniform([], lower, upper, seed=seed))


@export("image.rgb_to_grayscale")
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


@export("image.grayscale_to_rgb")
def grayscale_to_rgb(images: Any, name: str | None = None) -> Tensor:
    """RGB of grey: the last dimension, of size 1, three times."""
    with name_scope(name, "grayscale_to_rgb", [images]) as scope:
        images = convert_to_tensor(images, name="images")
        if images.shape.ndims is not None and images.shape[-1].value not in (None, 1):
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


@export("image.rgb_to_yiq")
def rgb_to_yiq(images: Any) -> Tensor:
    """RGB colours in the YIQ space."""
    return _colours(images, _YIQ)


@export("image.yiq_to_rgb")
def yiq_to_rgb(images: Any) -> Tensor:
    """YIQ colours in the RGB space."""
    return _colours(images, np.linalg.inv(_YIQ))


@export("image.rgb_to_yuv")
def rgb_to_yuv(images: Any) -> Tensor:
    """RGB colours in the YUV space."""
    return _colours(images, _YUV)


@export("image.yuv_to_rgb")
def yuv_to_rgb(images: Any) -> Tensor:
    """YUV colours in the RGB space."""
    return _colours(images, np.linalg.inv(_YUV))


# Measures.


@export("image.total_variation")
def total_variation(images: Any, name: str | None = None) -> Tensor:
    """The sum of the absolute differences of neighbours; one per picture of a batch."""
    with name_scope(name, "total_variation", [images]):
        images = convert_to_tensor(images)
        rank = images.shape.ndims
        if rank == 3:
            down, right, axes = images[1:] - images[:-1], images[:, 1:] - images[:, :-1], None
        elif rank == 4:
            down = images[:, 1:] - images[:, :-1]
            right = images[:, :, 1:] - images[:, :, :-1]
            axes = [1, 2, 3]
        else:
            raise ValueError(
                f"'images' must be either 3 or 4-dimensional, got shape {images.shape}"
            )
        return reduce.reduce_sum(math.abs(down), axes) + reduce.reduce_sum(math.abs(right), axes)


@export("image.psnr")
def psnr(a: Any, b: Any, max_val: Any, name: str | None = None) -> Tensor:
    """The peak signal-to-noise ratio of two images, in decibels."""
    with name_scope(name, "PSNR", [a, b]):
        a, b = convert_to_tensor(a), convert_to_tensor(b)
        most = convert_image_dtype(
            convert_to_tensor(max_val, dtype=a.dtype.base_dtype), dtypes.float32
        )
        a, b = convert_image_dtype(a, dtypes.float32), convert_image_dtype(b, dtypes.float32)
        error = reduce.reduce_mean(math.squared_difference(a, b), [-3, -2, -1])
        return (20 * math.log(most) - 10 * math.log(error)) / np.float32(np.log(10.0))


@export("image.image_gradients")
def image_gradients(image: Any) -> tuple[Tensor, Tensor]:
    """(dy, dx): how much each element differs from the next; zeros at the ends."""
    image = convert_to_tensor(image)
    if image.shape.ndims != 4:
        raise ValueError(
            f"image_gradients expects a 4D tensor [batch_size, h, w, d], not {image.shape}."
        )
    down = image[:, 1:] - image[:, :-1]
    right = image[:, :, 1:] - image[:, :, :-1]
    return (
        array.pad(down, [[0, 0], [0, 1], [0, 0], [0, 0]]),
        array.pad(right, [[0, 0], [0, 0], [0, 1], [0, 0]]),
    )


@export("image.sobel_edges")
def sobel_edges(image: Any) -> Tensor:
    """Sobel's edges of each channel: a last dimension of (dy, dx)."""
    image = convert_to_tensor(image)
    static = image.shape
    sizes = array.shape(image)
    across = np.array([[-1, -2, -1], [0, 0, 0], [1, 2, 1]], np.float32)
    kernels = np.stack([across, across.T], -1)[:, :, None, :]
    kernels = array.tile(constant(kernels), array.stack([1, 1, sizes[-1], 1]))
    padded = gen_ops.mirror_pad(image, [[0, 0], [1, 1], [1, 1], [0, 0]], mode="REFLECT")
    edges = gen_ops.depthwise_conv2d_native(padded, kernels, strides=[1, 1, 1, 1], padding="VALID")
    edges = array.reshape(edges, array.concat([sizes, [2]], 0))
    edges.set_shape(static.concatenate([2]))
    return edges


# Boxes and parts.


@export("image.crop_and_resize")
def crop_and_resize(
    image: Any, boxes: Any, box_ind: Any = None, crop_size: Any = None,
    method: str | None = "bilinear", extrapolation_value: float | None = 0,
    name: str | None = None, box_indices: Any = None,
) -> Tensor:  # fmt: skip
    """Parts of images, resized to one size.

    Args:
      boxes: [count, 4] of (y1, x1, y2, x2), where 1 is the last row or column.
      box_ind: which image each is of.
      extrapolation_value: for what lies outside.
    """
    box_ind = box_ind if box_indices is None else box_indices
    return gen_ops.crop_and_resize(
        image, boxes, box_ind, crop_size, method=method or "bilinear",
        extrapolation_value=extrapolation_value or 0.0, name=name,
    )  # fmt: skip


@export("image.extract_glimpse")
def extract_glimpse(
    input: Any, size: Any, offsets: Any, centered: bool | None = True,
    normalized: bool | None = True, uniform_noise: bool | None = True, name: str | None = None,
) -> Tensor:  # fmt: skip
    """A window of each image of a batch; noise where it lies outside.

    Args:
      offsets: [batch, 2] of (y, x), within [-1, 1] where `normalized`.
      centered: offsets are from the centre of the image.
      uniform_noise: uniform rather than normal noise.
    """
    return gen_ops.extract_glimpse(
        input, size, offsets, centered=centered is not False, normalized=normalized is not False,
        uniform_noise=uniform_noise is not False, name=name,
    )  # fmt: skip


@export("image.extract_patches")
def extract_patches(
    images: Any, sizes: Any, strides: Any, rates: Any, padding: str, name: str | None = None
) -> Tensor:
    """Windows of images, each flattened into the last dimension."""
    return gen_ops.extract_image_patches(
        images, ksizes=list(sizes), strides=list(strides), rates=list(rates), padding=padding,
        name=name,
    )  # fmt: skip


@export("image.draw_bounding_boxes")
def draw_bounding_boxes(
    images: Any, boxes: Any, name: str | None = None, colors: Any = None
) -> Tensor:
    """Images with boxes [batch, count, 4] of (y1, x1, y2, x2) drawn on them."""
    if colors is None:
        return gen_ops.draw_bounding_boxes(images, boxes, name=name)
    return gen_ops.draw_bounding_boxes_v2(images, boxes, colors, name=name)


@export("image.sample_distorted_bounding_box")
def sample_distorted_bounding_box(
    image_size: Any, bounding_boxes: Any, seed: int | None = None, seed2: int | None = None,
    min_object_covered: Any = 0.1, aspect_ratio_range: Any = None, area_range: Any = None,
    max_attempts: int | None = None, use_image_if_no_bounding_boxes: bool | None = None,
    name: str | None = None,
) -> Any:  # fmt: skip
    """A random part of an image that shows enough of what its boxes hold.

    Args:
      min_object_covered: how much of a box must be inside.
      aspect_ratio_range, area_range: what the part may be.

    Returns: (begin, size, bboxes), the first two for `slice`.
    """
    if not seed and not seed2:
        first, second = random.get_seed(seed)
        seed, seed2 = first or 0, second or 0
    ranges = {}
    if aspect_ratio_range is not None:
        ranges["aspect_ratio_range"] = [float(r) for r in aspect_ratio_range]
    if area_range is not None:
        ranges["area_range"] = [float(r) for r in area_range]
    return gen_ops.sample_distorted_bounding_box_v2(
        image_size, bounding_boxes, 0.1 if min_object_covered is None else min_object_covered,
        seed=seed or 0, seed2=seed2 or 0, max_attempts=max_attempts or 100,
        use_image_if_no_bounding_boxes=bool(use_image_if_no_bounding_boxes), name=name, **ranges,
    )  # fmt: skip


@export("image.non_max_suppression")
def non_max_suppression(
    boxes: Any, scores: Any, max_output_size: Any, iou_threshold: Any = 0.5,
    score_threshold: Any = float("-inf"), name: str | None = None,
) -> Tensor:  # fmt: skip
    """Which boxes to keep: the best, without those that overlap a better one too much."""
    with name_scope(name, "non_max_suppression", []):
        return gen_ops.non_max_suppression_v3(
            boxes, scores, max_output_size, convert_to_tensor(iou_threshold, dtypes.float32),
            convert_to_tensor(score_threshold, dtypes.float32),
        )  # fmt: skip


@export("image.non_max_suppression_padded")
def non_max_suppression_padded(
    boxes: Any, scores: Any, max_output_size: Any, iou_threshold: Any = 0.5,
    score_threshold: Any = float("-inf"), pad_to_max_output_size: bool = False,
    name: str | None = None,
) -> Any:  # fmt: skip
    """As `non_max_suppression`, followed by zeros up to the most; (indices, how many)."""
    with name_scope(name, "non_max_suppression_padded", []):
        return gen_ops.non_max_suppression_v4(
            boxes, scores, max_output_size, convert_to_tensor(iou_threshold, dtypes.float32),
            convert_to_tensor(score_threshold, dtypes.float32),
            pad_to_max_output_size=pad_to_max_output_size,
        )  # fmt: skip
