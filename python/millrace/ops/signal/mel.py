"""Frequencies on the mel scale, which are as far apart as people hear them."""

import math
from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.static_value import constant_value
from millrace.ops.along import linspace
from millrace.ops.array import expand_dims, pad, shape
from millrace.ops.math import cast
from millrace.ops.signal.cosine import dct

_BREAK_HERTZ = 700.0
_HIGH_Q = 1127.0


def _to_mel(hertz: Tensor) -> Tensor:
    return _HIGH_Q * gen_ops.log1p(hertz / _BREAK_HERTZ)


@export(v1="signal.linear_to_mel_weight_matrix", v2="signal.linear_to_mel_weight_matrix")
def linear_to_mel_weight_matrix(
    num_mel_bins: int = 20, num_spectrogram_bins: Any = 129, sample_rate: Any = 8000,
    lower_edge_hertz: Any = 125.0, upper_edge_hertz: Any = 3800.0, dtype: Any = dtypes.float32,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """[num_spectrogram_bins, num_mel_bins]: the matrix that spectra are multiplied with for their
    bands on the mel scale, triangles that overlap.

    Args:
      num_spectrogram_bins: bins of the spectra, fft_size // 2 + 1, from 0 to sample_rate / 2.
      lower_edge_hertz, upper_edge_hertz: where the lowest band begins and the highest one ends.
    """
    with name_scope(name, "linear_to_mel_weight_matrix"):
        dtype = dtypes.as_dtype(dtype)
        rate = constant_value(sample_rate) if isinstance(sample_rate, Tensor) else sample_rate
        if num_mel_bins <= 0:
            raise ValueError(f"num_mel_bins must be positive. Got: {num_mel_bins}")
        if lower_edge_hertz < 0.0:
            raise ValueError(f"lower_edge_hertz must be non-negative. Got: {lower_edge_hertz}")
        if lower_edge_hertz >= upper_edge_hertz:
            raise ValueError(
                f"lower_edge_hertz {lower_edge_hertz:.1f} >= upper_edge_hertz "
                f"{upper_edge_hertz:.1f}"
            )
        if rate is not None:
            if rate <= 0.0:
                raise ValueError(f"sample_rate must be positive. Got: {rate}")
            if upper_edge_hertz > rate / 2:
                raise ValueError(
                    "upper_edge_hertz must not be larger than the Nyquist frequency (sample_rate "
                    f"/ 2). Got {upper_edge_hertz} for sample_rate: {rate}"
                )
        if not dtype.is_floating:
            raise ValueError(f"dtype must be a floating point type. Got: {dtype!r}")
        nyquist = cast(sample_rate, dtype) / 2.0
        lower = convert_to_tensor(lower_edge_hertz, dtype)
        upper = convert_to_tensor(upper_edge_hertz, dtype)
        zero = convert_to_tensor(0.0, dtype)
        # The bin of frequency zero is in no band.
        frequencies = linspace(zero, nyquist, num_spectrogram_bins)[1:]
        mels = expand_dims(_to_mel(frequencies), 1)
        edges = linspace(_to_mel(lower), _to_mel(upper), num_mel_bins + 2)
        left, middle, right = (expand_dims(edges[i : num_mel_bins + i], 0) for i in range(3))
        rising = (mels - left) / (middle - left)
        falling = (right - mels) / (right - middle)
        weights = gen_ops.maximum(zero, gen_ops.minimum(rising, falling))
        return pad(weights, [[1, 0], [0, 0]])


@export(v1="signal.mfccs_from_log_mel_spectrograms", v2="signal.mfccs_from_log_mel_spectrograms")
def mfccs_from_log_mel_spectrograms(log_mel_spectrograms: Any, name: str | None = None) -> Tensor:
    """The mel-frequency cepstral coefficients of logarithms of mel spectra, [..., bins]."""
    with name_scope(name, "mfccs_from_log_mel_spectrograms", [log_mel_spectrograms]):
        spectra = convert_to_tensor(log_mel_spectrograms)
        if spectra.shape.ndims and spectra.shape.as_list()[-1] is not None:
            bins = spectra.shape.as_list()[-1]
            if bins == 0:
                raise ValueError(
                    "num_mel_bins must be positive. Got: "
                    f"{spectra.shape} for log_mel_spectrograms"
                )
            return dct(spectra, type=2) * (1 / math.sqrt(bins * 2.0))
        return dct(spectra, type=2) * gen_ops.rsqrt(cast(shape(spectra)[-1], spectra.dtype) * 2.0)
