"""Other sizes."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor, label_of
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.static_value import constant_value
from millrace.ops import array, math
from millrace.ops.image.checks import as_batch, sizes_of
from millrace.ops.image.crop import pad_to_bounding_box


@export(v1="image.ResizeMethod")
class ResizeMethod:
    """How `resize_images` interpolates."""

    BILINEAR = 0
    NEAREST_NEIGHBOR = 1
    BICUBIC = 2
    AREA = 3


@export(v1="image.resize_bilinear")
def resize_bilinear(
    images: Any, size: Any, align_corners: bool | None = False, name: str | None = None,
    half_pixel_centers: bool = False,
) -> Tensor:  # fmt: skip
    """Images [batch, height, width, channels] of another size, as float32."""
    return gen_ops.resize_bilinear(
        images, size, align_corners=bool(align_corners), half_pixel_centers=half_pixel_centers,
        name=name,
    )  # fmt: skip


@export(v1="image.resize_nearest_neighbor")
def resize_nearest_neighbor(
    images: Any, size: Any, align_corners: bool | None = False, name: str | None = None,
    half_pixel_centers: bool = False,
) -> Tensor:  # fmt: skip
    """Images of another size, each element that of the nearest place; of the same type."""
    return gen_ops.resize_nearest_neighbor(
        images, size, align_corners=bool(align_corners), half_pixel_centers=half_pixel_centers,
        name=name,
    )  # fmt: skip


@export(v1="image.resize_bicubic")
def resize_bicubic(
    images: Any, size: Any, align_corners: bool | None = False, name: str | None = None,
    half_pixel_centers: bool = False,
) -> Tensor:  # fmt: skip
    """Images of another size, as float32."""
    return gen_ops.resize_bicubic(
        images, size, align_corners=bool(align_corners), half_pixel_centers=half_pixel_centers,
        name=name,
    )  # fmt: skip


@export(v1="image.resize_area")
def resize_area(
    images: Any, size: Any, align_corners: bool | None = False, name: str | None = None
) -> Tensor:
    """Images of another size, each element the mean of the area that it covers; float32."""
    return gen_ops.resize_area(images, size, align_corners=bool(align_corners), name=name)


def resize_arguments(images: Any, size: Any, keep_proportions: bool) -> tuple[Tensor, Tensor, int]:
    """Images as a batch, the size that they are to have as a tensor, and the rank they came with.
    ValueError for what cannot be resized."""
    images = convert_to_tensor(images, name="images")
    rank = images.shape.ndims
    if rank is None:
        raise ValueError("'images' contains no shape.")
    if rank not in (3, 4):
        raise ValueError(
            f"'images' must have either 3 or 4 dimensions, got '{label_of(images)}' of shape "
            f"{images.shape}"
        )
    if rank == 3:
        images = array.expand_dims(images, 0)
    try:
        size = convert_to_tensor(size, dtype=dtypes.int32, name="size")
    except (TypeError, ValueError):
        raise ValueError(f"'size' must be a 1-D int32 Tensor of 2 elements, got {size!r}") from None
    if not size.shape.is_compatible_with([2]):
        raise ValueError(
            "'size' must be a 1-D Tensor of 2 elements: new_height, new_width; got shape "
            f"{size.shape}"
        )
    return images, _within(images, size) if keep_proportions else size, rank


@export(v1=("image.resize_images", "image.resize"))
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
        images, size, rank = resize_arguments(images, size, preserve_aspect_ratio)
        _, height, width, _ = images.shape.as_list()
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
    _, height, width, _ = sizes_of(images)
    height, width = math.cast(height, dtypes.float32), math.cast(width, dtypes.float32)
    scale = math.minimum(
        math.cast(size[0], dtypes.float32) / height, math.cast(size[1], dtypes.float32) / width
    )
    return math.cast(
        array.stack([math.round(scale * height), math.round(scale * width)]), dtypes.int32
    )


@export(v1="image.resize_image_with_pad")
def resize_image_with_pad(
    image: Any, target_height: Any, target_width: Any, method: Any = ResizeMethod.BILINEAR,
    align_corners: bool = False,
) -> Tensor:  # fmt: skip
    """The picture, or batch of them, resized in its proportions and put within zeros."""
    with name_scope(None, "resize_image_with_pad", [image]):
        image, is_batch = as_batch(image)
        resized = resize_images(
            image, array.stack([target_height, target_width]), method, align_corners, True
        )
        _, height, width, _ = sizes_of(resized)
        padded = pad_to_bounding_box(
            resized, (target_height - height) // 2, (target_width - width) // 2, target_height,
            target_width,
        )  # fmt: skip
        return padded if is_batch else array.squeeze(padded, [0])
