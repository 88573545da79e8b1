"""Discrete cosine transforms."""

import math
from typing import Any

import numpy as np

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.ops.along import range as range_of
from millrace.ops.array import concat, expand_dims, pad, shape
from millrace.ops.gather import reverse
from millrace.ops.math import cast, complex, real
from millrace.ops.signal.fourier import irfft, rfft


def _check(what: str, x: Tensor, type: Any, n: Any, axis: Any, norm: Any) -> None:
    if axis != -1:
        raise NotImplementedError(f"axis must be -1. Got: {axis}")
    if n is not None and not (isinstance(n, (int, np.integer)) and n > 0):
        raise ValueError(f"n should be a positive integer or None, got {n!r}")
    if type not in (1, 2, 3, 4):
        raise ValueError(f"Types I, II, III and IV {what}s are supported. Got: {type}")
    if norm not in (None, "ortho"):
        raise ValueError(f"Unknown normalization. Expected None or 'ortho', got: {norm!r}")
    if type == 1 and norm == "ortho":
        raise ValueError("Normalization is not supported for the Type-I DCT.")
    if not x.dtype.is_floating:
        raise ValueError(f"{what} takes floating point numbers, got {x.dtype.name}")
    size = x.shape.as_list()[-1] if x.shape.ndims else None
    if type == 1 and size is not None and (n or size) < 2:
        raise ValueError(f"DCT-I requires the dimension to be greater than one, got {n or size}")


@export(v1=("signal.dct", "spectral.dct"), v2="signal.dct")
def dct(
    input: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """The discrete cosine transform of the last dimension.

    Args:
      type: 1, 2, 3 or 4.
      n: how many elements are transformed: more than there are stand for zeros.
      norm: None, or "ortho" for a transform that keeps lengths; not of type 1.
    """
    with name_scope(name, "dct", [input]):
        x = convert_to_tensor(input)
        _check("dct", x, type, n, axis, norm)
        x = _with_size(x, n)
        kind = x.dtype
        if kind in (dtypes.float16, dtypes.bfloat16):
            x = cast(x, dtypes.float32)
        size = shape(x)[-1]
        result = {1: _first, 2: _second, 3: _third, 4: _fourth}[type](x, size, norm)
        result.set_shape(x.shape)
        return cast(result, kind)


@export(v1=("signal.idct", "spectral.idct"), v2="signal.idct")
def idct(
    input: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """The inverse of `dct`, up to a factor where `norm` is None: 2 * (n - 1) of type 1, else 2 * n.
    Arguments as of `dct`."""
    with name_scope(name, "idct", [input]):
        x = convert_to_tensor(input)
        _check("idct", x, type, n, axis, norm)
        inverse = {1: 1, 2: 3, 3: 2, 4: 4}[type]
        return dct(x, type=inverse, n=n, norm=norm)


def _with_size(x: Tensor, n: int | None) -> Tensor:
    if n is None:
        return x
    sizes = x.shape.as_list() if x.shape.ndims is not None else None
    if sizes is None or sizes[-1] is None:
        raise ValueError("n needs an input whose last dimension is known")
    x = x[..., :n]
    if sizes[-1] < n:
        x = pad(x, [[0, 0]] * (len(sizes) - 1) + [[0, n - sizes[-1]]])
    return x


def _first(x: Tensor, size: Tensor, norm: str | None) -> Tensor:
    del size, norm
    return real(rfft(concat([x, reverse(x, [-1])[..., 1:-1]], -1)))


def _turn(places: Tensor, size: Tensor, dtype: Any, over: float) -> Tensor:
    """exp(-i pi places / (over size))."""
    angle = cast(places, dtype) * (-math.pi / over) / cast(size, dtype)
    return complex(gen_ops.cos(angle), gen_ops.sin(angle))


def _scales(size: Tensor, dtype: Any) -> Tensor:
    """What makes the rows of the second transform of length 1."""
    n = cast(size, dtype)
    first = expand_dims(0.5 * gen_ops.rsqrt(n), 0)
    others = gen_ops.fill(gen_ops.pack([size - 1]), 0.5 * gen_ops.rsqrt(n / 2))
    return concat([first, others], 0)


def _second(x: Tensor, size: Tensor, norm: str | None) -> Tensor:
    # Twice the real part of the first half of the transform of x with as many zeros, turned.
    turn = 2 * _turn(range_of(size), size, x.dtype, 2.0)
    spectrum = rfft(x, gen_ops.pack([2 * size]))[..., :size]
    result = real(spectrum * turn)
    return result * _scales(size, x.dtype) if norm == "ortho" else result


def _third(x: Tensor, size: Tensor, norm: str | None) -> Tensor:
    if norm == "ortho":
        n = cast(size, x.dtype)
        first = expand_dims(gen_ops.sqrt(n), 0)
        others = gen_ops.fill(gen_ops.pack([size - 1]), gen_ops.sqrt(n / 2))
        x = x * concat([first, others], 0)
    else:
        x = x * cast(size, x.dtype)
    turn = 2 * gen_ops.conj(_turn(range_of(size), size, x.dtype, 2.0))
    spectrum = complex(x, gen_ops.zeros_like(x)) * turn
    return irfft(spectrum, gen_ops.pack([2 * size]))[..., :size]


def _fourth(x: Tensor, size: Tensor, norm: str | None) -> Tensor:
    # The elements at odd places of the second transform of twice the size.
    padded = concat([x, gen_ops.zeros_like(x)], -1)
    result = _second(padded, 2 * size, None)[..., 1::2]
    if norm == "ortho":
        result = result * (math.sqrt(0.5) * gen_ops.rsqrt(cast(size, x.dtype)))
    return result
