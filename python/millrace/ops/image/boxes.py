"""Boxes in images, and what they hold."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.arguments import reordered
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.ops import random


@export(v1="image.crop_and_resize")
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


crop_and_resize_v2 = export(v2="image.crop_and_resize")(
    reordered(crop_and_resize, "image boxes box_indices crop_size method extrapolation_value name")
)


@export(v1="image.extract_glimpse")
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


@export(v1="image.extract_patches", v2="image.extract_patches")
def extract_patches(
    images: Any, sizes: Any, strides: Any, rates: Any, padding: str, name: str | None = None
) -> Tensor:
    """Windows of images, each flattened into the last dimension."""
    return gen_ops.extract_image_patches(
        images, ksizes=list(sizes), strides=list(strides), rates=list(rates), padding=padding,
        name=name,
    )  # fmt: skip


@export(v1="image.draw_bounding_boxes")
def draw_bounding_boxes(
    images: Any, boxes: Any, name: str | None = None, colors: Any = None
) -> Tensor:
    """Images with boxes [batch, count, 4] of (y1, x1, y2, x2) drawn on them."""
    if colors is None:
        return gen_ops.draw_bounding_boxes(images, boxes, name=name)
    return gen_ops.draw_bounding_boxes_v2(images, boxes, colors, name=name)


draw_bounding_boxes_v2 = export(v2="image.draw_bounding_boxes")(
    reordered(draw_bounding_boxes, "images boxes colors name")
)


@export(v1="image.sample_distorted_bounding_box")
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


@export(v1="image.non_max_suppression", v2="image.non_max_suppression")
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


@export(v1="image.non_max_suppression_padded", v2="image.non_max_suppression_padded")
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
