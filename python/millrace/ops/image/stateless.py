"""Random changes of images that follow from a seed alone: the same seed, the same change."""

from typing import Any, Callable

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.ops import array, check
from millrace.ops.image.color import (
    adjust_brightness,
    adjust_contrast,
    adjust_hue,
    adjust_saturation,
    check_range,
)
from millrace.ops.image.flip import random_flip
from millrace.ops.stateless_random import stateless_random_uniform

# `seed` everywhere: two integers, [2] int32 or int64.


@export(v2="image.stateless_random_brightness")
def stateless_random_brightness(image: Any, max_delta: float, seed: Any) -> Tensor:
    """The picture, brighter or darker by up to `max_delta`."""
    if max_delta < 0:
        raise ValueError("max_delta must be non-negative.")
    return adjust_brightness(image, stateless_random_uniform([], seed, -max_delta, max_delta))


@export(v2="image.stateless_random_contrast")
def stateless_random_contrast(image: Any, lower: float, upper: float, seed: Any) -> Tensor:
    """The picture with its contrast times a number from `lower` to `upper`."""
    check_range(lower, upper)
    return adjust_contrast(image, stateless_random_uniform([], seed, lower, upper))


@export(v2="image.stateless_random_hue")
def stateless_random_hue(image: Any, max_delta: float, seed: Any) -> Tensor:
    """The picture with its hue turned by up to `max_delta`, at most 0.5."""
    if max_delta > 0.5:
        raise ValueError("max_delta must be <= 0.5.")
    if max_delta < 0:
        raise ValueError("max_delta must be non-negative.")
    return adjust_hue(image, stateless_random_uniform([], seed, -max_delta, max_delta))


@export(v2="image.stateless_random_saturation")
def stateless_random_saturation(image: Any, lower: float, upper: float, seed: Any = None) -> Tensor:
    """The picture with its saturation times a number from `lower` to `upper`."""
    check_range(lower, upper)
    return adjust_saturation(image, stateless_random_uniform([], seed, lower, upper))


def _uniform(seed: Any) -> Callable[[Any], Tensor]:
    return lambda shape: stateless_random_uniform(shape, seed)


@export(v2="image.stateless_random_flip_left_right")
def stateless_random_flip_left_right(image: Any, seed: Any) -> Tensor:
    """The picture with left and right changed, half of the times; each of a batch by itself."""
    return random_flip(image, -2, _uniform(seed), "random_flip_left_right")


@export(v2="image.stateless_random_flip_up_down")
def stateless_random_flip_up_down(image: Any, seed: Any) -> Tensor:
    """The picture upside down, half of the times; each of a batch by itself."""
    return random_flip(image, -3, _uniform(seed), "random_flip_up_down")


@export(v2="image.stateless_random_crop")
def stateless_random_crop(value: Any, size: Any, seed: Any, name: str | None = None) -> Tensor:
    """A part of `size` from somewhere in a tensor. InvalidArgumentError where it is too large."""
    value = convert_to_tensor(value, name="value")
    size = convert_to_tensor(size, dtype=dtypes.int32, name="size")
    whole = array.shape(value)
    check.assert_greater_equal(whole, size, message="Need value.shape >= size, got ")
    limit = whole - size + 1
    most = dtypes.int32.max
    offset = stateless_random_uniform(array.shape(whole), seed, 0, most, dtypes.int32) % limit
    return gen_ops.slice(value, offset, size, name=name)
