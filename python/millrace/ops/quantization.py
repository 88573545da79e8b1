"""Quantised numbers: steps of a range that is given beside them."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor


@export(v1=("dequantize", "quantization.dequantize"), v2="quantization.dequantize")
def dequantize(
    input: Any, min_range: Any, max_range: Any, mode: str = "MIN_COMBINED",
    name: str | None = None, axis: int | None = None, narrow_range: bool = False,
    dtype: Any = dtypes.float32,
) -> Tensor:  # fmt: skip
    """The numbers that quantised ones stand for.

    `min_range`, `max_range`: what the least and the greatest of the type stand for, numbers, or
    vectors with one for each place of the dimension `axis`. `mode`: "MIN_COMBINED", "MIN_FIRST" or
    "SCALED", as they were quantised.
    """
    if axis is not None and axis < -1:
        rank = convert_to_tensor(input).shape.ndims
        if rank is None or axis < -rank:
            raise ValueError(f"axis {axis} is no dimension of a tensor of rank {rank}")
        axis += rank
    elif axis == -1 and convert_to_tensor(min_range).shape.ndims == 1:
        axis = (convert_to_tensor(input).shape.ndims or 0) - 1
    return gen_ops.dequantize(
        input, min_range, max_range, mode=mode, axis=-1 if axis is None else axis,
        narrow_range=narrow_range, dtype=dtypes.as_dtype(dtype), name=name,
    )  # fmt: skip


@export(v1="nn.quantized_conv2d")
def quantized_conv2d(
    input: Any, filter: Any, min_input: Any, max_input: Any, min_filter: Any, max_filter: Any,
    strides: Any, padding: str, out_type: Any = dtypes.qint32, dilations: Any = (1, 1, 1, 1),
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The convolution of quantised images [batch, height, width, channels] with quantised filters,
    and the range that its numbers have: the output, its minimum and its maximum."""
    return gen_ops.quantized_conv2d(
        input, filter, min_input, max_input, min_filter, max_filter,
        out_type=dtypes.as_dtype(out_type), strides=list(strides), padding=padding,
        dilations=list(dilations), name=name,
    )  # fmt: skip
