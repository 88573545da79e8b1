"""Bits of integers."""

from typing import Any

from millrace import gen_ops
from millrace.core.export import export
from millrace.core.tensor import Tensor


@export(v1="bitwise.bitwise_and", v2="bitwise.bitwise_and")
def bitwise_and(x: Any, y: Any, name: str | None = None) -> Tensor:
    """The bits that x and y have."""
    return gen_ops.bitwise_and(x, y, name=name)


@export(v1="bitwise.bitwise_or", v2="bitwise.bitwise_or")
def bitwise_or(x: Any, y: Any, name: str | None = None) -> Tensor:
    """The bits that x or y has."""
    return gen_ops.bitwise_or(x, y, name=name)


@export(v1="bitwise.bitwise_xor", v2="bitwise.bitwise_xor")
def bitwise_xor(x: Any, y: Any, name: str | None = None) -> Tensor:
    """The bits that x and y differ in."""
    return gen_ops.bitwise_xor(x, y, name=name)


@export(v1="bitwise.invert", v2="bitwise.invert")
def invert(x: Any, name: str | None = None) -> Tensor:
    """x with every bit the other way."""
    return gen_ops.invert(x, name=name)


@export(v1="bitwise.left_shift", v2="bitwise.left_shift")
def left_shift(x: Any, y: Any, name: str | None = None) -> Tensor:
    """x with its bits y places further up."""
    return gen_ops.left_shift(x, y, name=name)


@export(v1="bitwise.right_shift", v2="bitwise.right_shift")
def right_shift(x: Any, y: Any, name: str | None = None) -> Tensor:
    """x with its bits y places further down; the sign is kept."""
    return gen_ops.right_shift(x, y, name=name)
