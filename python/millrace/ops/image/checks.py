"""What an image must be."""

from typing import Any

import numpy as np

from millrace.core.tensor import Tensor, is_tensor_like, label_of
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import control_dependencies
from millrace.ops import array, check, ordering, sizes


def check_rank(image: Tensor, ranks: tuple[int, ...], words: str) -> None:
    """ValueError unless the rank, where it is known, is one of `ranks` and no size is zero."""
    rank = image.shape.ndims
    if rank is None:
        return
    if rank not in ranks:
        raise ValueError(
            f"'image' (shape {image.shape}) must be {words}: '{label_of(image)}' "
            f"({image.dtype.name})"
        )
    if any(size == 0 for size in image.shape.as_list()[-3:]):
        raise ValueError(f"all dims of 'image.shape' must be > 0: {image.shape}")


def checked_positive(image: Tensor) -> Tensor:
    if image.shape.is_fully_defined():
        return image
    sizes = array.shape(image)
    with control_dependencies(
        [check.assert_positive(sizes, message="all dims of 'image.shape' must be > 0.")]
    ):
        checked = array.identity(image)
    checked.set_shape(image.shape)
    return checked


def image34(image: Any) -> Tensor:
    """A picture, or a batch of them."""
    image = convert_to_tensor(image, name="image")
    check_rank(image, (3, 4), "three-dimensional, or a batch of such images")
    return checked_positive(image)


def sizes_of(image: Tensor) -> list[Any]:
    """The size of each dimension: ints where known, tensors otherwise."""
    if image.shape.ndims is None:
        raise ValueError(
            f"'image' must have a known rank: '{label_of(image)}' ({image.dtype.name})"
        )
    return sizes.sizes_of(image)


def require(condition: Any, message: str) -> list[Any]:
    """Assertions for a condition on tensors; ValueError for a known one that does not hold."""
    if is_tensor_like(condition):
        return [ordering.Assert(condition, [message])]
    if not condition:
        raise ValueError(message)
    return []


def after_checks(checks: list[Any], image: Tensor) -> Tensor:
    if not checks:
        return image
    with control_dependencies(checks):
        return array.identity(image)


def as_batch(image: Any) -> tuple[Tensor, bool]:
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
            f"'image' (shape {image.shape}) must have either 3 or 4 dimensions: "
            f"'{label_of(image)}' "
            f"({image.dtype.name})"
        )
    return image, True


def static_sizes(values: list[Any]) -> list[int | None]:
    return [int(v) if isinstance(v, (int, np.integer)) else None for v in values]
