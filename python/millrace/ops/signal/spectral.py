"""Spectra of overlapping frames: short-time Fourier and modified cosine transforms."""

import functools
from typing import Any, Callable

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.static_value import constant_value
from millrace.ops.array import concat, pad, rank, reshape, shape, tile
from millrace.ops.gather import reverse
from millrace.ops.math import cast
from millrace.ops.reduce import reduce_sum
from millrace.ops.signal.cosine import dct
from millrace.ops.signal.fourier import irfft, rfft
from millrace.ops.signal.frames import frame, overlap_and_add
from millrace.ops.signal.windows import hann_window, vorbis_window

Window = Callable[..., Any] | None


def _number(value: Any, name: str) -> Tensor:
    value = convert_to_tensor(value, dtype=dtypes.int32, name=name)
    value.shape.assert_has_rank(0)
    return value


def _enclosing_power_of_two(value: Tensor) -> Tensor:
    known = constant_value(value)
    if known is not None:
        return convert_to_tensor(1 << max(int(known) - 1, 0).bit_length(), dtype=value.dtype)
    exponent = gen_ops.ceil(gen_ops.log(cast(value, dtypes.float32)) / 0.6931471805599453)
    return cast(gen_ops.pow(2.0, exponent), value.dtype)


@export(v1="signal.stft", v2="signal.stft")
def stft(
    signals: Any, frame_length: Any, frame_step: Any, fft_length: Any = None,
    window_fn: Window = hann_window, pad_end: bool = False, name: str | None = None,
) -> Tensor:  # fmt: skip
    """The short-time Fourier transform [..., frames, fft_length // 2 + 1] of signals [..., n].

    Args:
      frame_length, frame_step: as of `frame`.
      fft_length: what the frames are filled to; by default the next power of two.
      window_fn: window_fn(frame_length, dtype=) is what the frames are multiplied with.
      pad_end: as of `frame`.
    """
    with name_scope(name, "stft", [signals, frame_length, frame_step]):
        signals = convert_to_tensor(signals, name="signals")
        signals.shape.with_rank_at_least(1)
        frame_length = _number(frame_length, "frame_length")
        frame_step = _number(frame_step, "frame_step")
        if fft_length is None:
            fft_length = _enclosing_power_of_two(frame_length)
        else:
            fft_length = _number(fft_length, "fft_length")
        frames = frame(signals, frame_length, frame_step, pad_end=pad_end)
        if window_fn is not None:
            frames = frames * window_fn(frame_length, dtype=frames.dtype)
        return rfft(frames, gen_ops.pack([fft_length]))


@export(v1="signal.inverse_stft_window_fn", v2="signal.inverse_stft_window_fn")
def inverse_stft_window_fn(
    frame_step: Any, forward_window_fn: Callable[..., Any] = hann_window, name: str | None = None
) -> Callable[..., Tensor]:
    """A window function for `inverse_stft` with which it is the exact inverse of an `stft` with
    `forward_window_fn`."""

    def inverse_window(frame_length: Any, dtype: Any) -> Tensor:
        with name_scope(name, "inverse_stft_window_fn", [forward_window_fn]):
            length = _number(frame_length, "frame_length")
            step = _number(frame_step, "frame_step")
            forward = forward_window_fn(length, dtype=dtype)
            # What the squares of the windows that overlap at each place add up to.
            overlaps = -(-length // step)
            squares = pad(gen_ops.square(forward), gen_ops.pack([[0, overlaps * step - length]]))
            sums = reduce_sum(reshape(squares, gen_ops.pack([overlaps, step])), 0, keepdims=True)
            sums = reshape(tile(sums, gen_ops.pack([overlaps, 1])), [-1])
            return forward / sums[:length]

    return inverse_window


@export(v1="signal.inverse_stft", v2="signal.inverse_stft")
def inverse_stft(
    stfts: Any, frame_length: Any, frame_step: Any, fft_length: Any = None,
    window_fn: Window = hann_window, name: str | None = None,
) -> Tensor:  # fmt: skip
    """Signals [..., n] of short-time Fourier transforms. Arguments as of `stft`; for the signal
    that was transformed `window_fn` is one of `inverse_stft_window_fn`."""
    with name_scope(name, "inverse_stft", [stfts]):
        stfts = convert_to_tensor(stfts, name="stfts")
        stfts.shape.with_rank_at_least(2)
        frame_length = _number(frame_length, "frame_length")
        frame_step = _number(frame_step, "frame_step")
        if fft_length is None:
            fft_length = _enclosing_power_of_two(frame_length)
        else:
            fft_length = _number(fft_length, "fft_length")
        frames = irfft(stfts, gen_ops.pack([fft_length]))
        # As long as frames are, cut or with zeros at the end.
        frames = frames[..., :frame_length]
        missing = gen_ops.maximum(frame_length - shape(frames)[-1], 0)
        zeros = gen_ops.fill(gen_ops.pack([rank(frames) - 1]), 0)
        ends = concat([zeros, gen_ops.pack([missing])], 0)
        frames = pad(frames, gen_ops.pack([gen_ops.zeros_like(ends), ends], axis=1))
        known = constant_value(frame_length)
        if known is not None and stfts.shape.ndims is not None:
            frames.set_shape([*stfts.shape.as_list()[:-1], int(known)])
        if window_fn is not None:
            frames = frames * window_fn(frame_length, dtype=frames.dtype)
        return overlap_and_add(frames, frame_step)


@export(v1="signal.mdct", v2="signal.mdct")
def mdct(
    signals: Any, frame_length: Any, window_fn: Window = vorbis_window, pad_end: bool = False,
    norm: str | None = None, name: str | None = None,
) -> Tensor:  # fmt: skip
    """The modified discrete cosine transform [..., frames, frame_length // 2] of signals [..., n]:
    each frame overlaps half of the next.

    Args:
      frame_length: a multiple of four.
      window_fn: as of `stft`; None for a window of sqrt(1/2).
      norm: None or "ortho".
    """
    with name_scope(name, "mdct", [signals, frame_length]):
        signals = convert_to_tensor(signals, name="signals")
        signals.shape.with_rank_at_least(1)
        frame_length = _number(frame_length, "frame_length")
        _check_multiple_of_four(frame_length)
        half = frame_length // 2
        quarter = frame_length // 4
        frames = frame(signals, frame_length, half, pad_end=pad_end)
        if window_fn is not None:
            frames = frames * window_fn(frame_length, dtype=frames.dtype)
        else:
            frames = frames * gen_ops.rsqrt(cast(2.0, frames.dtype))
        a, b = frames[..., :quarter], frames[..., quarter:half]
        c, d = frames[..., half : half + quarter], frames[..., half + quarter :]
        backwards = functools.partial(reverse, axis=[-1])
        folded = concat([-backwards(c) - d, a - backwards(b)], -1)
        return dct(folded, type=4, norm=norm)


@export(v1="signal.inverse_mdct", v2="signal.inverse_mdct")
def inverse_mdct(
    mdcts: Any, window_fn: Window = vorbis_window, norm: str | None = None, name: str | None = None
) -> Tensor:
    """Signals [..., n] of modified discrete cosine transforms. Arguments as of `mdct`."""
    with name_scope(name, "inverse_mdct", [mdcts]):
        mdcts = convert_to_tensor(mdcts, name="mdcts")
        mdcts.shape.with_rank_at_least(2)
        half = shape(mdcts)[-1]
        if norm is None:
            scale = 0.5 / cast(half, mdcts.dtype)
            result = dct(mdcts, type=4, norm=None) * scale
        else:
            result = dct(mdcts, type=4, norm="ortho")
        quarter = half // 2
        first, second = result[..., :quarter], result[..., quarter:]
        backwards = functools.partial(reverse, axis=[-1])
        unfolded = concat([second, -backwards(second), -backwards(first), -first], -1)
        if window_fn is not None:
            unfolded = unfolded * window_fn(2 * half, dtype=mdcts.dtype)
        else:
            unfolded = unfolded * gen_ops.rsqrt(cast(2.0, mdcts.dtype))
        return overlap_and_add(unfolded, half)


def _check_multiple_of_four(frame_length: Tensor) -> None:
    known = constant_value(frame_length)
    if known is not None and int(known) % 4 != 0:
        raise ValueError(f"The frame length must be a multiple of 4, got {int(known)}.")
