"""Figures about the elements of a tensor, with no second copy of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

_CHUNK = 1 << 18


def statistics(array: np.ndarray) -> dict[str, Any]:
    """min, max, mean and std of the finite elements, and how many are NaN or infinite.

    Of complex numbers, their magnitudes; of strings, their lengths. None where there is no element
    to ask.
    """
    flat = array.reshape(-1)
    if flat.dtype.names:  # a quantised type
        flat = flat.view(flat.dtype[0])
    total, mean, squares = 0, 0.0, 0.0
    low: Any = None
    high: Any = None
    nan = inf = 0
    for begin in range(0, flat.size, _CHUNK):
        chunk = flat[begin : begin + _CHUNK]
        if chunk.dtype == object:
            chunk = np.fromiter((len(each) for each in chunk), np.int64, chunk.size)
        elif chunk.dtype.kind == "c":
            chunk = np.abs(chunk)
        if chunk.dtype.kind == "f":
            finite = np.isfinite(chunk)
            bad = chunk.size - int(np.count_nonzero(finite))
            if bad:
                missing = int(np.count_nonzero(np.isnan(chunk)))
                nan, inf, chunk = nan + missing, inf + bad - missing, chunk[finite]
        if not chunk.size:
            continue
        least, most = chunk.min().item(), chunk.max().item()
        low = least if low is None else min(low, least)
        high = most if high is None else max(high, most)
        numbers = chunk.astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            own_mean = float(numbers.mean())
            own_squares = float(np.square(numbers - own_mean).sum())
        # Chan's formula: moments of two sets, of their union.
        delta, union = own_mean - mean, total + chunk.size
        squares += own_squares + delta * delta * total * chunk.size / union
        mean += delta * chunk.size / union
        total = union
    return {
        "min": low,
        "max": high,
        "mean": mean if total else None,
        "std": math.sqrt(squares / total) if total else None,
        "nan": nan,
        "inf": inf,
    }
