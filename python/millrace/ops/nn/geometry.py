"""Strides, windows and data formats: what convolutions and pooling share."""

from typing import Any

import numpy as np


def is_channels_first(data_format: str | None) -> bool:
    """Whether the channels come right after the batch: "NCW", "NCHW", "NCDHW"."""
    return data_format is not None and data_format.startswith("NC")


def sequence(value: Any, count: int, data_format: str | None, name: str) -> list[int]:
    """A size for every dimension of a batch, from one, `count` or `count` + 2 of them."""
    if value is None:
        value = [1]
    if not isinstance(value, (list, tuple, np.ndarray)):
        value = [value]
    value = [int(v) for v in value]
    if len(value) == count + 2:
        return value
    if len(value) == 1:
        value = value * count
    elif len(value) != count:
        raise ValueError(
            f"{name} should be of length 1, {count} or {count + 2} but was {len(value)}: {value}"
        )
    return [1, 1, *value] if is_channels_first(data_format) else [1, *value, 1]


def padding_attrs(padding: Any) -> tuple[str, list[int]]:
    """The padding attributes of an op: a kind, and the sizes where it is "EXPLICIT"."""
    if isinstance(padding, str):
        return padding.upper(), []
    if isinstance(padding, (list, tuple)):
        return "EXPLICIT", [int(p) for pair in padding for p in pair]
    raise ValueError(f'padding must be "SAME", "VALID" or a list of pairs, got {padding!r}')


def spatial_sizes(count: int, value: Any, name: str) -> np.ndarray:
    """`count` positive sizes: those given, or ones."""
    if value is None:
        return np.ones(count, dtype=np.int64)
    if isinstance(value, int):
        value = [value] * count
    if len(value) != count:
        raise ValueError(f"len({name})={len(value)} but should be {count}: {value}")
    sizes = np.array(value, dtype=np.int64)
    if (sizes < 1).any():
        raise ValueError(f"all values of {name} must be positive, got {list(value)}")
    return sizes


def strides_and_dilations(count: int, strides: Any, dilation_rate: Any) -> tuple[Any, Any]:
    """Both as arrays. ValueError when neither is all ones."""
    rate = spatial_sizes(count, dilation_rate, "dilation_rate")
    steps = spatial_sizes(count, strides, "strides")
    if (steps > 1).any() and (rate > 1).any():
        raise ValueError(
            "strides > 1 not supported in conjunction with dilation_rate > 1: "
            f"strides={steps.tolist()}, dilation_rate={rate.tolist()}"
        )
    return steps, rate
