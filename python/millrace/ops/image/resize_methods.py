"""tf.image.resize of TensorFlow 2: pixels are squares, whose centres lie at halves."""

import math as numbers
from typing import Any, Callable

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.static_value import constant_value
from millrace.ops import array, math
from millrace.ops.along import range as range_of
from millrace.ops.gather import where_v2
from millrace.ops.image.checks import as_batch, sizes_of
from millrace.ops.image.crop import pad_to_bounding_box
from millrace.ops.image.resize import resize_arguments
from millrace.ops.linalg import matmul
from millrace.ops.reduce import reduce_sum


@export(v2="image.ResizeMethod")
class ResizeMethod:
    """How `resize` interpolates."""

    BILINEAR = "bilinear"
    NEAREST_NEIGHBOR = "nearest"
    BICUBIC = "bicubic"
    AREA = "area"
    LANCZOS3 = "lanczos3"
    LANCZOS5 = "lanczos5"
    GAUSSIAN = "gaussian"
    MITCHELLCUBIC = "mitchellcubic"


def _lanczos(radius: float) -> Callable[[Tensor], Tensor]:
    def weight(x: Tensor) -> Tensor:
        near = x < 1e-3
        safe = where_v2(near, 1.0, x * numbers.pi)
        wave = radius * math.sin(safe) * math.sin(safe / radius) / (safe * safe)
        return where_v2(near, 1.0, wave)

    return weight


def _keys(x: Tensor) -> Tensor:
    far = ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
    return where_v2(x >= 1.0, far, (1.5 * x - 2.5) * x * x + 1.0)


def _mitchell(x: Tensor) -> Tensor:
    far = ((-7 / 18 * x + 2.0) * x - 10 / 3) * x + 16 / 9
    return where_v2(x >= 1.0, far, (7 / 6 * x - 2.0) * x * x + 8 / 9)


# How far a kernel reaches, and its weights at distances within.
_KERNELS: dict[str, tuple[float, Callable[[Tensor], Tensor]]] = {
    "bilinear": (1.0, lambda x: 1.0 - x),
    "bicubic": (2.0, _keys),
    "lanczos3": (3.0, _lanczos(3.0)),
    "lanczos5": (5.0, _lanczos(5.0)),
    "gaussian": (1.5, lambda x: math.exp(-2.0 * x * x)),
    "mitchellcubic": (2.0, _mitchell),
}


def _weights(before: Any, after: Any, method: str, antialias: bool) -> Tensor:
    """What each of `after` pixels in a row is made of: a matrix [after, before]."""
    radius, kernel = _KERNELS[method]
    old, new = math.cast(before, dtypes.float32), math.cast(after, dtypes.float32)
    step = old / new
    width = math.maximum(step, 1.0) if antialias else convert_to_tensor(1.0)
    centres = (math.cast(range_of(after), dtypes.float32) + 0.5) * step
    places = math.cast(range_of(before), dtypes.float32) + 0.5
    away = math.abs(array.expand_dims(places, 0) - array.expand_dims(centres, 1)) / width
    reached = away < radius
    weights = where_v2(reached, kernel(where_v2(reached, away, 0.0)), 0.0)
    return weights / reduce_sum(weights, [1], keepdims=True)


def _by_weights(images: Tensor, size: Tensor, method: str, antialias: bool) -> Tensor:
    batch, height, width, channels = sizes_of(images)
    images = math.cast(images, dtypes.float32)
    down = _weights(height, size[0], method, antialias)
    across = _weights(width, size[1], method, antialias)
    rows = array.reshape(images, array.stack([batch, height, width * channels]))
    rows = matmul(down, rows)
    rows = array.reshape(rows, array.stack([batch, size[0], width, channels]))
    return matmul(across, rows)


@export(v2="image.resize")
def resize(
    images: Any, size: Any, method: Any = ResizeMethod.BILINEAR,
    preserve_aspect_ratio: bool = False, antialias: bool = False, name: str | None = None,
) -> Tensor:  # fmt: skip
    """A picture, or a batch of them, of another size [height, width].

    Args:
      method: one of `ResizeMethod`.
      preserve_aspect_ratio: the size is the most that each side may have.
      antialias: a smaller picture takes all pixels into account; for all methods but nearest
        neighbours and areas, which it means nothing to.

    Returns: float32; the type of the images for nearest neighbours.
    """
    method = str(method).lower()
    with name_scope(name, "resize", [images, size]):
        images, size, rank = resize_arguments(images, size, preserve_aspect_ratio)
        if method == "nearest":
            made = gen_ops.resize_nearest_neighbor(images, size, half_pixel_centers=True)
        elif method == "area":
            made = gen_ops.resize_area(images, size)
        elif method == "bilinear" and not antialias:
            made = gen_ops.resize_bilinear(images, size, half_pixel_centers=True)
        elif method == "bicubic" and not antialias:
            made = gen_ops.resize_bicubic(images, size, half_pixel_centers=True)
        elif method in _KERNELS:
            made = _by_weights(images, size, method, antialias)
        else:
            raise ValueError(f"Resize method is not implemented: {method!r}")
        known = constant_value(size)
        sizes = [None, None] if known is None else [int(n) for n in known]
        made.set_shape([None, *sizes, None])
        return array.squeeze(made, [0]) if rank == 3 else made


@export(v2="image.resize_with_pad")
def resize_with_pad(
    image: Any, target_height: Any, target_width: Any, method: Any = ResizeMethod.BILINEAR,
    antialias: bool = False,
) -> Tensor:  # fmt: skip
    """A picture, or a batch of them, of another size, in its own proportions, with zeros around."""
    with name_scope(None, "resize_image_with_pad", [image]):
        image, is_batch = as_batch(convert_to_tensor(image, name="images"))
        _, height, width, _ = sizes_of(image)
        sides = [math.cast(side, dtypes.float32) for side in (height, width)]
        wanted = [math.cast(side, dtypes.float32) for side in (target_height, target_width)]
        ratio = math.maximum(sides[0] / wanted[0], sides[1] / wanted[1])
        made = [side / ratio for side in sides]
        new = array.stack([math.cast(gen_ops.floor(side), dtypes.int32) for side in made])
        top, left = (
            math.cast(gen_ops.maximum(gen_ops.floor((w - m) / 2), 0.0), dtypes.int32)
            for w, m in zip(wanted, made, strict=True)
        )
        resized = resize(image, new, method, antialias=antialias)
        padded = pad_to_bounding_box(resized, top, left, target_height, target_width)
        return padded if is_batch else array.squeeze(padded, [0])
