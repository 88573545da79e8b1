"""Greyscale dilation and erosion."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.ops import array, gather, math, reduce
from millrace.ops.nn.geometry import (  # fmt: skip
    sequence,
)
from millrace.ops.sizes import sizes_of


@export(v1="nn.dilation2d")
def dilation2d(
    input: Any, filter: Any = None, strides: Any = None, rates: Any = None, padding: Any = None,
    name: str | None = None, filters: Any = None, dilations: Any = None,
) -> Tensor:  # fmt: skip
    """The largest of window plus filter: a greyscale dilation of each channel.

    Args:
      input: [batch, height, width, channels]; filter: [height, width, channels].
      strides, rates: four sizes; the first and the last are 1.
      padding: "SAME" or "VALID". What lies outside of the input does not count.
    """
    filter = filter if filters is None else filters
    rates = rates if dilations is None else dilations
    with name_scope(name, "Dilation2D", [input, filter]) as scope:
        input = convert_to_tensor(input, name="input")
        filter = convert_to_tensor(filter, name="filter")
        strides = sequence(strides, 2, "NHWC", "strides")
        rates = sequence(rates, 2, "NHWC", "rates")
        height, width, depth = filter.shape.with_rank(3).as_list()
        own = input.dtype.base_dtype
        if own.is_floating:
            lowest = own.min
        else:
            input, filter = math.cast(input, dtypes.int64), math.cast(filter, dtypes.int64)
            lowest = -(2**40)
        if padding == "SAME":
            sizes = sizes_of(input)
            pads = [[0, 0]]
            for axis, window in ((1, height), (2, width)):
                pads.append(_same_padding(sizes[axis], window, strides[axis], rates[axis]))
            least = convert_to_tensor(lowest, dtype=input.dtype)
            input = gen_ops.pad_v2(input, array.stack([*pads, [0, 0]]), least)
        elif padding != "VALID":
            raise ValueError(f'padding must be "SAME" or "VALID", got {padding!r}')
        windows = gen_ops.extract_image_patches(
            input, ksizes=[1, height, width, 1], strides=strides, rates=rates, padding="VALID"
        )
        around = array.shape(windows)[:3]
        windows = array.reshape(windows, array.concat([around, [height * width, depth]], 0))
        sums = windows + array.reshape(filter, [height * width, depth])
        result = reduce.reduce_max(sums, 3, name=scope)
        return math.cast(result, own)


@export(v2="nn.dilation2d")
def dilation2d_v2(
    input: Any, filters: Any, strides: Any, padding: str, data_format: str, dilations: Any,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """As TensorFlow 1's, the pictures' dimensions in the order of `data_format`, "NHWC"."""
    if data_format != "NHWC":
        raise ValueError("Data formats other than NHWC are not yet supported")
    return dilation2d(input, filters, strides, dilations, padding, name)


def _same_padding(size: Any, window: int, stride: int, rate: int) -> list[Any]:
    """Before and after, for an output of size / stride rounded up."""
    reach = (window - 1) * rate + 1
    whole = ((size + stride - 1) // stride - 1) * stride + reach - size
    extra = math.maximum(whole, 0) if isinstance(whole, Tensor) else max(whole, 0)
    return [extra // 2, extra - extra // 2]


@export(v1="nn.erosion2d")
def erosion2d(
    value: Any, kernel: Any, strides: Any, rates: Any, padding: str, name: str | None = None
) -> Tensor:
    """The smallest of window minus kernel: a greyscale erosion of each channel."""
    with name_scope(name, "erosion2d", [value, kernel]) as scope:
        value = convert_to_tensor(value)
        turned = gather.reverse(kernel, [0, 1])
        return gen_ops.neg(dilation2d(-value, turned, strides, rates, padding), name=scope)


@export(v2="nn.erosion2d")
def erosion2d_v2(
    value: Any, filters: Any, strides: Any, padding: str, data_format: str, dilations: Any,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """As TensorFlow 1's, the pictures' dimensions in the order of `data_format`, "NHWC"."""
    if data_format != "NHWC":
        raise ValueError("Data formats other than NHWC are not yet supported")
    return erosion2d(value, filters, strides, dilations, padding, name)
