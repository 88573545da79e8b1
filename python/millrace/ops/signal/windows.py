"""Windows: what frames of a signal are multiplied with."""

from typing import Any

import numpy as np

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.static_value import constant_value
from millrace.ops.along import cumsum
from millrace.ops.along import range as range_of
from millrace.ops.array import concat, ones
from millrace.ops.control_flow import cond
from millrace.ops.gather import reverse
from millrace.ops.math import cast


def _checked(what: str, window_length: Any, dtype: Any) -> tuple[Tensor, dtypes.DType]:
    dtype = dtypes.as_dtype(dtype)
    if not dtype.is_floating:
        raise ValueError(f"{what} only supports floating point types. Found dtype={dtype!r}")
    window_length = convert_to_tensor(window_length, dtype=dtypes.int32, name="window_length")
    window_length.shape.assert_has_rank(0)
    return window_length, dtype


@export(v1="signal.kaiser_window", v2="signal.kaiser_window")
def kaiser_window(
    window_length: Any, beta: Any = 12.0, dtype: Any = dtypes.float32, name: str | None = None
) -> Tensor:
    """The Kaiser window, whose side lobes are the lower the larger `beta` is."""
    with name_scope(name, "kaiser_window"):
        window_length, dtype = _checked("kaiser_window", window_length, dtype)
        if constant_value(window_length) == 1:
            return ones([1], dtype=dtype)
        # Halves have too few digits for the sum.
        kind = dtypes.float32 if dtype in (dtypes.float16, dtypes.bfloat16) else dtype
        half = cast(window_length - 1, kind) / 2
        place = cast(range_of(window_length), kind) - half
        beta = cast(convert_to_tensor(beta, name="beta"), kind)
        argument = beta * gen_ops.sqrt(gen_ops.maximum(1 - gen_ops.square(place / half), 0))
        # exp(argument - beta) goes to infinity later than I0 itself.
        window = gen_ops.exp(argument - beta) * (
            gen_ops.bessel_i0e(argument) / gen_ops.bessel_i0e(beta)
        )
        return cast(window, dtype)


@export(v1="signal.kaiser_bessel_derived_window", v2="signal.kaiser_bessel_derived_window")
def kaiser_bessel_derived_window(
    window_length: Any, beta: Any = 12.0, dtype: Any = dtypes.float32, name: str | None = None
) -> Tensor:
    """The window that the Kaiser window's running sums give: squares half a window apart add up
    to 1. `window_length` is even."""
    with name_scope(name, "kaiser_bessel_derived_window"):
        window_length, dtype = _checked("kaiser_bessel_derived_window", window_length, dtype)
        half = window_length // 2
        sums = cumsum(kaiser_window(half + 1, beta, dtype=dtype))
        rising = gen_ops.sqrt(sums[:-1] / sums[-1])
        return concat([rising, reverse(rising, [0])], 0)


@export(v1="signal.vorbis_window", v2="signal.vorbis_window")
def vorbis_window(
    window_length: Any, dtype: Any = dtypes.float32, name: str | None = None
) -> Tensor:
    """The power complementary window of the Vorbis codec. `window_length` is even."""
    with name_scope(name, "vorbis_window"):
        window_length, dtype = _checked("vorbis_window", window_length, dtype)
        place = cast(range_of(window_length), dtype)
        phase = gen_ops.sin(np.pi / cast(window_length, dtype) * (place + 0.5))
        return gen_ops.sin(np.pi / 2 * gen_ops.square(phase))


@export(v1="signal.hann_window", v2="signal.hann_window")
def hann_window(
    window_length: Any, periodic: bool = True, dtype: Any = dtypes.float32, name: str | None = None
) -> Tensor:
    """A period of a cosine raised to between 0 and 1.

    Args:
      periodic: whether the element after the last one would be the first one again; otherwise the
        window is symmetric.
    """
    return _raised_cosine("hann_window", window_length, periodic, dtype, 0.5, 0.5, name)


@export(v1="signal.hamming_window", v2="signal.hamming_window")
def hamming_window(
    window_length: Any, periodic: bool = True, dtype: Any = dtypes.float32, name: str | None = None
) -> Tensor:
    """As `hann_window`, raised to between 0.08 and 1."""
    return _raised_cosine("hamming_window", window_length, periodic, dtype, 0.54, 0.46, name)


def _raised_cosine(
    what: str, window_length: Any, periodic: Any, dtype: Any, middle: float, size: float,
    name: str | None,
) -> Tensor:  # fmt: skip
    with name_scope(name, what, [window_length, periodic]):
        window_length, dtype = _checked(what, window_length, dtype)
        if constant_value(window_length) == 1:
            return ones([1], dtype=dtype)

        def window() -> Tensor:
            even = 1 - window_length % 2
            whole = cast(convert_to_tensor(periodic, dtype=dtypes.bool_), dtypes.int32)
            period = cast(window_length + whole * even - 1, dtype)
            place = cast(range_of(window_length), dtype)
            return middle - size * gen_ops.cos(2 * np.pi * place / period)

        if constant_value(window_length) is not None:
            return cast(window(), dtype)
        return cond(gen_ops.equal(window_length, 1), lambda: ones([1], dtype=dtype), window)
