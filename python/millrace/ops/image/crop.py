"""Crops and borders."""

from typing import Any

from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor, is_tensor_like
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.static_value import constant_value
from millrace.ops import array, indexing, math
from millrace.ops.image.checks import (
    after_checks,
    as_batch,
    check_rank,
    checked_positive,
    require,
    sizes_of,
    static_sizes,
)


@export(v1="image.central_crop", v2="image.central_crop")
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
        check_rank(image, (3, 4), "three-dimensional, or a batch of such images")
        rank = image.shape.ndims
        if rank is None:
            raise ValueError("central_crop: the rank of the image must be known")
        sizes = sizes_of(image)
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


@export(v1="image.crop_to_bounding_box", v2="image.crop_to_bounding_box")
def crop_to_bounding_box(
    image: Any, offset_height: Any, offset_width: Any, target_height: Any, target_width: Any
) -> Tensor:
    """The part of the picture, or batch of them, of a size that begins at an offset.

    ValueError, or an error when the graph runs, for a part that is not within.
    """
    with name_scope(None, "crop_to_bounding_box", [image]):
        image, is_batch = as_batch(image)
        check_rank(image, (4,), "three-dimensional, or a batch of such images")
        image = checked_positive(image)
        batch, height, width, depth = sizes_of(image)
        checks = (
            require(offset_width >= 0, "offset_width must be >= 0.")
            + require(offset_height >= 0, "offset_height must be >= 0.")
            + require(target_width > 0, "target_width must be > 0.")
            + require(target_height > 0, "target_height must be > 0.")
            + require(width >= target_width + offset_width, "width must be >= target + offset.")
            + require(height >= target_height + offset_height, "height must be >= target + offset.")
        )
        image = after_checks(checks, image)
        cropped = indexing.slice(
            image, array.stack([0, offset_height, offset_width, 0]),
            array.stack([-1, target_height, target_width, -1]),
        )  # fmt: skip
        cropped.set_shape(static_sizes([batch, target_height, target_width, depth]))
        return cropped if is_batch else array.squeeze(cropped, [0])


@export(v1="image.pad_to_bounding_box", v2="image.pad_to_bounding_box")
def pad_to_bounding_box(
    image: Any, offset_height: Any, offset_width: Any, target_height: Any, target_width: Any
) -> Tensor:
    """The picture, or batch of them, at an offset within zeros of a size.

    ValueError, or an error when the graph runs, where it does not fit.
    """
    with name_scope(None, "pad_to_bounding_box", [image]):
        image, is_batch = as_batch(image)
        check_rank(image, (4,), "three-dimensional, or a batch of such images")
        image = checked_positive(image)
        batch, height, width, depth = sizes_of(image)
        after_width = target_width - offset_width - width
        after_height = target_height - offset_height - height
        checks = (
            require(offset_height >= 0, "offset_height must be >= 0")
            + require(offset_width >= 0, "offset_width must be >= 0")
            + require(after_width >= 0, "width must be <= target - offset")
            + require(after_height >= 0, "height must be <= target - offset")
        )
        image = after_checks(checks, image)
        paddings = array.reshape(
            array.stack([0, 0, offset_height, after_height, offset_width, after_width, 0, 0]),
            [4, 2],
        )
        padded = array.pad(image, paddings)
        padded.set_shape(static_sizes([batch, target_height, target_width, depth]))
        return padded if is_batch else array.squeeze(padded, [0])


def _larger(a: Any, b: Any) -> Any:
    return math.maximum(a, b) if is_tensor_like(a) or is_tensor_like(b) else max(a, b)


def _smaller(a: Any, b: Any) -> Any:
    return math.minimum(a, b) if is_tensor_like(a) or is_tensor_like(b) else min(a, b)


@export(
    v1=("image.resize_image_with_crop_or_pad", "image.resize_with_crop_or_pad"),
    v2="image.resize_with_crop_or_pad",
)
def resize_image_with_crop_or_pad(image: Any, target_height: Any, target_width: Any) -> Tensor:
    """The picture, or batch of them, cut at its sides or put within zeros to be of a size."""
    with name_scope(None, "resize_image_with_crop_or_pad", [image]):
        image, is_batch = as_batch(image)
        check_rank(image, (4,), "three-dimensional, or a batch of such images")
        image = checked_positive(image)
        checks = require(target_width > 0, "target_width must be > 0.") + require(
            target_height > 0, "target_height must be > 0."
        )
        image = after_checks(checks, image)
        batch, height, width, depth = sizes_of(image)
        over_width, over_height = target_width - width, target_height - height
        cropped = crop_to_bounding_box(
            image, _larger(-over_height // 2, 0), _larger(-over_width // 2, 0),
            _smaller(target_height, height), _smaller(target_width, width),
        )  # fmt: skip
        padded = pad_to_bounding_box(
            cropped, _larger(over_height // 2, 0), _larger(over_width // 2, 0), target_height,
            target_width,
        )  # fmt: skip
        padded.set_shape(static_sizes([batch, target_height, target_width, depth]))
        return padded if is_batch else array.squeeze(padded, [0])
