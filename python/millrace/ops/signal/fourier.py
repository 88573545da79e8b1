"""Fourier transforms."""

from typing import Any, Callable

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.static_value import constant_value_as_shape
from millrace.ops.along import range as range_of
from millrace.ops.array import concat, pad, rank, roll, shape
from millrace.ops.gather import where
from millrace.ops.math import cast


@export(v1=("fft", "signal.fft", "spectral.fft"), v2="signal.fft")
def fft(input: Any, name: str | None = None) -> Tensor:
    """The Fourier transform of the last dimension of complex numbers."""
    return gen_ops.fft(input, name=name)


@export(v1=("ifft", "signal.ifft", "spectral.ifft"), v2="signal.ifft")
def ifft(input: Any, name: str | None = None) -> Tensor:
    """The inverse of `fft`."""
    return gen_ops.ifft(input, name=name)


@export(v1=("fft2d", "signal.fft2d", "spectral.fft2d"), v2="signal.fft2d")
def fft2d(input: Any, name: str | None = None) -> Tensor:
    """The Fourier transform of the last two dimensions."""
    return gen_ops.fft2d(input, name=name)


@export(v1=("ifft2d", "signal.ifft2d", "spectral.ifft2d"), v2="signal.ifft2d")
def ifft2d(input: Any, name: str | None = None) -> Tensor:
    """The inverse of `fft2d`."""
    return gen_ops.ifft2d(input, name=name)


@export(v1=("fft3d", "signal.fft3d", "spectral.fft3d"), v2="signal.fft3d")
def fft3d(input: Any, name: str | None = None) -> Tensor:
    """The Fourier transform of the last three dimensions."""
    return gen_ops.fft3d(input, name=name)


@export(v1=("ifft3d", "signal.ifft3d", "spectral.ifft3d"), v2="signal.ifft3d")
def ifft3d(input: Any, name: str | None = None) -> Tensor:
    """The inverse of `fft3d`."""
    return gen_ops.ifft3d(input, name=name)


def _fitted(x: Tensor, lengths: Tensor, count: int, inverse: bool) -> Tensor:
    """`x` with zeros at the ends of its last dimensions, up to what a transform of these lengths
    reads."""
    static = constant_value_as_shape(lengths)
    if static.ndims is not None and static.ndims != count:
        raise ValueError(f"fft_length must be a vector of {count} elements, got {static}")
    dims = x.shape.with_rank_at_least(count)
    last = dims[-count:]
    if dims.ndims is not None and last.is_fully_defined() and static.is_fully_defined():
        sizes = static.as_list()
        if inverse:
            sizes[-1] = sizes[-1] // 2 + 1 if sizes[-1] else 0
        missing = [max(n - d, 0) for n, d in zip(sizes, last.as_list(), strict=True)]
        if any(missing):
            x = pad(x, [[0, 0]] * (dims.ndims - count) + [[0, m] for m in missing])
        return x
    wanted = lengths
    if inverse:
        last = where(lengths[-1:] > 0, lengths[-1:] // 2 + 1, lengths[-1:])
        wanted = concat([lengths[:-1], last], 0)
    missing = gen_ops.maximum(wanted - shape(x)[-count:], 0)
    zeros = gen_ops.fill(gen_ops.pack([rank(x) - count]), 0)
    ends = concat([zeros, missing], 0)
    return pad(x, gen_ops.pack([gen_ops.zeros_like(ends), ends], axis=1))


def _forward(what: str, op: Callable[..., Tensor], count: int) -> Callable[..., Tensor]:
    def transform(input_tensor: Any, fft_length: Any, name: str | None) -> Tensor:
        with name_scope(name, what, [input_tensor, fft_length]) as scope:
            x = convert_to_tensor(input_tensor, preferred_dtype=dtypes.float32)
            if x.dtype not in (dtypes.float32, dtypes.float64):
                raise ValueError(
                    f"RFFT requires tf.float32 or tf.float64 inputs, got: {x.dtype.name}"
                )
            if fft_length is None:
                fft_length = shape(x)[-count:]
            else:
                fft_length = convert_to_tensor(fft_length, dtype=dtypes.int32, name="fft_length")
                x = _fitted(x, fft_length, count, False)
            kind = dtypes.complex64 if x.dtype == dtypes.float32 else dtypes.complex128
            return op(x, fft_length, Tcomplex=kind, name=scope)

    return transform


def _backward(what: str, op: Callable[..., Tensor], count: int) -> Callable[..., Tensor]:
    def transform(input_tensor: Any, fft_length: Any, name: str | None) -> Tensor:
        with name_scope(name, what, [input_tensor, fft_length]) as scope:
            x = convert_to_tensor(input_tensor, preferred_dtype=dtypes.complex64)
            if fft_length is None:
                sizes = shape(x)[-count:]
                last = gen_ops.maximum(2 * (sizes[-1:] - 1), 0)
                fft_length = concat([sizes[:-1], last], 0)
            else:
                fft_length = convert_to_tensor(fft_length, dtype=dtypes.int32, name="fft_length")
                x = _fitted(x, fft_length, count, True)
            kind = dtypes.float32 if x.dtype == dtypes.complex64 else dtypes.float64
            return op(x, fft_length, Treal=kind, name=scope)

    return transform


_rfft = _forward("rfft", gen_ops.rfft, 1)
_rfft2d = _forward("rfft2d", gen_ops.rfft2d, 2)
_rfft3d = _forward("rfft3d", gen_ops.rfft3d, 3)
_irfft = _backward("irfft", gen_ops.irfft, 1)
_irfft2d = _backward("irfft2d", gen_ops.irfft2d, 2)
_irfft3d = _backward("irfft3d", gen_ops.irfft3d, 3)


@export(v1=("signal.rfft", "spectral.rfft"), v2="signal.rfft")
def rfft(input_tensor: Any, fft_length: Any = None, name: str | None = None) -> Tensor:
    """The first half of the Fourier transform of the last dimension of real numbers.

    Args:
      fft_length: a vector of one element: what is transformed is cut, or filled with zeros, to it.
    """
    return _rfft(input_tensor, fft_length, name)


@export(v1=("signal.rfft2d", "spectral.rfft2d"), v2="signal.rfft2d")
def rfft2d(input_tensor: Any, fft_length: Any = None, name: str | None = None) -> Tensor:
    """As `rfft`, of the last two dimensions."""
    return _rfft2d(input_tensor, fft_length, name)


@export(v1=("signal.rfft3d", "spectral.rfft3d"), v2="signal.rfft3d")
def rfft3d(input_tensor: Any, fft_length: Any = None, name: str | None = None) -> Tensor:
    """As `rfft`, of the last three dimensions."""
    return _rfft3d(input_tensor, fft_length, name)


@export(v1=("signal.irfft", "spectral.irfft"), v2="signal.irfft")
def irfft(input_tensor: Any, fft_length: Any = None, name: str | None = None) -> Tensor:
    """The inverse of `rfft`; of an even length unless `fft_length` says otherwise."""
    return _irfft(input_tensor, fft_length, name)


@export(v1=("signal.irfft2d", "spectral.irfft2d"), v2="signal.irfft2d")
def irfft2d(input_tensor: Any, fft_length: Any = None, name: str | None = None) -> Tensor:
    """The inverse of `rfft2d`."""
    return _irfft2d(input_tensor, fft_length, name)


@export(v1=("signal.irfft3d", "spectral.irfft3d"), v2="signal.irfft3d")
def irfft3d(input_tensor: Any, fft_length: Any = None, name: str | None = None) -> Tensor:
    """The inverse of `rfft3d`."""
    return _irfft3d(input_tensor, fft_length, name)


@export(v1="signal.fftshift", v2="signal.fftshift")
def fftshift(x: Any, axes: Any = None, name: str | None = None) -> Tensor:
    """Frequency zero moved to the middle of the dimensions `axes` (a number, several, or all)."""
    with name_scope(name, "fftshift", [x]):
        return _shifted(x, axes, 1)


@export(v1="signal.ifftshift", v2="signal.ifftshift")
def ifftshift(x: Any, axes: Any = None, name: str | None = None) -> Tensor:
    """The inverse of `fftshift`."""
    with name_scope(name, "ifftshift", [x]):
        return _shifted(x, axes, -1)


def _shifted(x: Any, axes: Any, sign: int) -> Tensor:
    x = convert_to_tensor(x)
    if axes is None:
        axes = range_of(rank(x))
    sizes = gen_ops.gather_v2(shape(x), axes, 0)
    return roll(x, sizes // 2 if sign > 0 else -(sizes // 2), cast(axes, dtypes.int32))
