"""Flips and turns."""

from typing import Any, Callable

from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor, label_of
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.static_value import constant_value
from millrace.ops import array, control_flow, gather, math, random
from millrace.ops.image.checks import image34


def _flip(image: Any, axis: int, name: str) -> Tensor:
    """`axis`: from the last, so that batches work too."""
    with name_scope(None, name, [image]):
        image = image34(image)
        rank = image.shape.ndims
        at = (3 if rank is None else rank) + axis
        result = gather.reverse(image, [at])
        result.set_shape([None] * 3 if rank is None else image.shape)
        return result


@export(v1="image.flip_left_right", v2="image.flip_left_right")
def flip_left_right(image: Any) -> Tensor:
    """The picture, or batch of them, with left and right changed."""
    return _flip(image, -2, "flip_left_right")


@export(v1="image.flip_up_down", v2="image.flip_up_down")
def flip_up_down(image: Any) -> Tensor:
    """The picture, or batch of them, upside down."""
    return _flip(image, -3, "flip_up_down")


def random_flip(image: Any, axis: int, draw: Callable[[Any], Tensor], name: str) -> Tensor:
    """The picture, or each of a batch, reversed along an axis (from the last) half of the times:
    `draw(shape)` gives numbers from 0 to 1."""
    with name_scope(None, name, [image]) as scope:
        image = image34(image)
        if image.shape.ndims in (None, 3):
            result = control_flow.cond(
                math.less(draw([]), 0.5), lambda: gather.reverse(image, [3 + axis]),
                lambda: array.identity(image), name=scope,
            )  # fmt: skip
        else:
            batch = array.shape(image)[0]
            draws = draw(array.stack([batch]))
            kept = math.cast(array.reshape(draws, array.stack([batch, 1, 1, 1])) < 0.5, image.dtype)
            result = kept * image + (1 - kept) * gather.reverse(image, [4 + axis])
        result.set_shape([None] * 3 if image.shape.ndims is None else image.shape)
        return result


@export(v1="image.random_flip_left_right", v2="image.random_flip_left_right")
def random_flip_left_right(image: Any, seed: int | None = None) -> Tensor:
    """The picture with left and right changed, half of the times; each of a batch by itself."""
    return random_flip(image, -2, _uniform(seed), "random_flip_left_right")


@export(v1="image.random_flip_up_down", v2="image.random_flip_up_down")
def random_flip_up_down(image: Any, seed: int | None = None) -> Tensor:
    """The picture upside down, half of the times; each of a batch by itself."""
    return random_flip(image, -3, _uniform(seed), "random_flip_up_down")


def _uniform(seed: int | None) -> Callable[[Any], Tensor]:
    return lambda shape: random.random_uniform(shape, seed=seed)


@export(v1=("image.transpose", "image.transpose_image"), v2="image.transpose")
def transpose_image(image: Any, name: str | None = None) -> Tensor:
    """The picture, or batch of them, with rows and columns exchanged."""
    with name_scope(name, "transpose", [image]):
        image = image34(image)
        result = array.transpose(image, [1, 0, 2] if image.shape.ndims != 4 else [0, 2, 1, 3])
        if image.shape.ndims is None:
            result.set_shape([None] * 3)
        return result


@export(v1="image.rot90", v2="image.rot90")
def rot90(image: Any, k: Any = 1, name: str | None = None) -> Tensor:
    """The picture, or batch of them, turned by k quarters against the clock."""
    with name_scope(name, "rot90", [image, k]) as scope:
        image = image34(image)
        k = convert_to_tensor(k, dtype=dtypes.int32, name="k")
        if k.shape.ndims not in (None, 0):
            raise ValueError(f"k must be a scalar, got '{label_of(k)}' of shape {k.shape}")
        rows = 1 if image.shape.ndims == 4 else 0
        order = [0, 2, 1, 3] if rows else [1, 0, 2]
        turns: list[Callable[[], Tensor]] = [
            lambda: array.identity(image),
            lambda: array.transpose(gather.reverse(image, [rows + 1]), order),
            lambda: gather.reverse(image, [rows, rows + 1]),
            lambda: gather.reverse(array.transpose(image, order), [rows + 1]),
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
