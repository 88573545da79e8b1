"""Rearranging space, batch and depth."""

from typing import Any

import numpy as np

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.arguments import reordered
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import constant, convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.static_value import constant_value
from millrace.ops import array


@export(
    v1=("space_to_batch_nd", "manip.space_to_batch_nd"),
    v2=("space_to_batch_nd", "space_to_batch", "nn.space_to_batch"),
)
def space_to_batch_nd(
    input: Any, block_shape: Any, paddings: Any, name: str | None = None
) -> Tensor:
    """Pads the dimensions after the first, and moves blocks of `block_shape` to the batch."""
    return gen_ops.space_to_batch_nd(input, block_shape, paddings, name=name)


@export(v1=("batch_to_space_nd", "manip.batch_to_space_nd"), v2="batch_to_space")
def batch_to_space_nd(input: Any, block_shape: Any, crops: Any, name: str | None = None) -> Tensor:
    """Undoes `space_to_batch_nd`, and crops what was padded."""
    return gen_ops.batch_to_space_nd(input, block_shape, crops, name=name)


def _block(block_size: Any, block_shape: Any) -> int:
    size = block_shape if block_size is None else block_size
    if size is None or np.ndim(size) != 0:
        raise ValueError(f"block_size must be one integer, got {size!r}")
    return int(size)


@export(v1=("space_to_batch", "nn.space_to_batch"))
def space_to_batch(
    input: Any, paddings: Any, block_size: int | None = None, name: str | None = None,
    block_shape: Any = None,
) -> Tensor:  # fmt: skip
    """`space_to_batch_nd` of images, with square blocks."""
    size = _block(block_size, block_shape)
    made = space_to_batch_nd(input, np.array([size, size], np.int64), paddings, name)
    made.set_shape(made.shape.with_rank(4))
    return made


@export(v1="batch_to_space")
def batch_to_space(
    input: Any, crops: Any, block_size: int | None = None, name: str | None = None,
    block_shape: Any = None,
) -> Tensor:  # fmt: skip
    """`batch_to_space_nd` of images, with square blocks."""
    size = _block(block_size, block_shape)
    made = batch_to_space_nd(input, np.array([size, size], np.int64), crops, name)
    made.set_shape(made.shape.with_rank(4))
    return made


@export(v1="required_space_to_batch_paddings", v2="required_space_to_batch_paddings")
def required_space_to_batch_paddings(
    input_shape: Any, block_shape: Any, base_paddings: Any = None, name: str | None = None
) -> tuple[Any, Any]:
    """The (paddings, crops) that make `input_shape` a multiple of `block_shape`.

    `base_paddings`: what is to be padded at least, [N, 2].
    """
    with name_scope(name, "required_space_to_batch_paddings", [input_shape, block_shape]):
        input_shape = convert_to_tensor(input_shape, dtypes.int32, name="input_shape")
        block_shape = convert_to_tensor(block_shape, dtypes.int32, name="block_shape")
        block_shape.shape.assert_is_fully_defined()
        block_shape.shape.assert_has_rank(1)
        count = block_shape.shape.as_list()[0]
        if count == 0:
            empty = array.zeros([0, 2], dtypes.int32)
            return empty, empty
        input_shape.shape.assert_is_compatible_with([count])
        if base_paddings is not None:
            base_paddings = convert_to_tensor(base_paddings, dtypes.int32, name="base_paddings")
            base_paddings.shape.assert_is_compatible_with([count, 2])
        else:
            base_paddings = array.zeros([count, 2], dtypes.int32)
        known = [constant_value(t) for t in (input_shape, block_shape, base_paddings)]
        if all(k is not None for k in known):
            sizes, blocks, base = known
            start, end = base[:, 0], base[:, 1]
            extra = (blocks - (sizes + start + end) % blocks) % blocks
            paddings = np.stack([start, end + extra], 1).astype(np.int32)
            crops = np.stack([np.zeros_like(extra), extra], 1).astype(np.int32)
            return (
                constant(paddings, dtypes.int32, name="paddings"),
                constant(crops, dtypes.int32, name="crops"),
            )
        start, end = base_paddings[:, 0], base_paddings[:, 1]
        extra = (block_shape - (input_shape + start + end) % block_shape) % block_shape
        paddings = array.stack([start, end + extra], 1, name="paddings")
        crops = array.stack([array.zeros_like(extra), extra], 1, name="crops")
        return paddings, crops


@export(v1=("space_to_depth", "nn.space_to_depth"))
def space_to_depth(
    input: Any, block_size: int, name: str | None = None, data_format: str = "NHWC"
) -> Tensor:
    """Moves blocks of `block_size` x `block_size` pixels of images to their channels."""
    return gen_ops.space_to_depth(input, block_size, **_format(data_format), name=name)


space_to_depth_v2 = export(v2="nn.space_to_depth")(
    reordered(space_to_depth, "input block_size data_format name")
)


@export(v1=("depth_to_space", "nn.depth_to_space"))
def depth_to_space(
    input: Any, block_size: int, name: str | None = None, data_format: str = "NHWC"
) -> Tensor:
    """Undoes `space_to_depth`."""
    return gen_ops.depth_to_space(input, block_size, **_format(data_format), name=name)


depth_to_space_v2 = export(v2="nn.depth_to_space")(
    reordered(depth_to_space, "input block_size data_format name")
)


def _format(data_format: str) -> dict[str, str]:
    return {} if data_format == "NHWC" else {"data_format": data_format}


@export(v1=("extract_image_patches", "image.extract_image_patches"))
def extract_image_patches(
    images: Any, ksizes: Any = None, strides: Any = None, rates: Any = None,
    padding: str | None = None, name: str | None = None, sizes: Any = None,
) -> Tensor:  # fmt: skip
    """The patches of images, each written out along the channels.

    `ksizes` (`sizes`): of the patches, [1, rows, columns, 1]; `strides`: how far apart they start;
    `rates`: the steps between the pixels of a patch. `padding`: "VALID" or "SAME".
    """
    return gen_ops.extract_image_patches(
        images, ksizes if ksizes is not None else sizes, strides, rates, padding, name=name
    )


@export(v1="extract_volume_patches", v2="extract_volume_patches")
def extract_volume_patches(
    input: Any, ksizes: Any, strides: Any, padding: str, name: str | None = None
) -> Tensor:
    """Every window of volumes [batch, planes, rows, columns, channels] as one long pixel.

    Args:
      ksizes, strides: [1, planes, rows, columns, 1].
    """
    return gen_ops.extract_volume_patches(
        input, ksizes=ksizes, strides=strides, padding=padding, name=name
    )
