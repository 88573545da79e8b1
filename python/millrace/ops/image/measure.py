"""Measures of images, and their edges."""

from typing import Any

import numpy as np

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import constant, convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.ops import array, math, reduce
from millrace.ops.image.color import convert_image_dtype


@export(v1="image.total_variation", v2="image.total_variation")
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


@export(v1="image.psnr", v2="image.psnr")
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


@export(v1="image.image_gradients", v2="image.image_gradients")
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


@export(v1="image.sobel_edges", v2="image.sobel_edges")
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
