"""Convolutions of each channel by itself."""

from typing import Any

from millrace import gen_ops
from millrace.core.arguments import reordered
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor, label_of
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.ops import array
from millrace.ops.nn.conv import conv2d
from millrace.ops.nn.dilated_conv import with_space_to_batch
from millrace.ops.nn.geometry import (  # fmt: skip
    padding_attrs,
    sequence,
    spatial_sizes,
)


@export(v1="nn.depthwise_conv2d_native")
def depthwise_conv2d_native(
    input: Any, filter: Any, strides: Any, padding: Any, data_format: str | None = "NHWC",
    dilations: Any = (1, 1, 1, 1), name: str | None = None,
) -> Tensor:  # fmt: skip
    """Convolves each channel with its own filters [height, width, in, multiplier]."""
    padding, explicit = padding_attrs(padding)
    return gen_ops.depthwise_conv2d_native(
        input, filter, strides=list(strides), padding=padding, explicit_paddings=explicit,
        data_format=data_format or "NHWC", dilations=list(dilations), name=name,
    )  # fmt: skip


@export(
    v1=("nn.depthwise_conv2d_native_backprop_input", "nn.depthwise_conv2d_backprop_input"),
    v2="nn.depthwise_conv2d_backprop_input",
)
def depthwise_conv2d_native_backprop_input(
    input_sizes: Any, filter: Any, out_backprop: Any, strides: Any, padding: Any,
    data_format: str | None = "NHWC", dilations: Any = (1, 1, 1, 1), name: str | None = None,
) -> Tensor:  # fmt: skip
    """The gradient of `depthwise_conv2d_native` with respect to its images."""
    padding, explicit = padding_attrs(padding)
    return gen_ops.depthwise_conv2d_native_backprop_input(
        input_sizes, filter, out_backprop, strides=list(strides), padding=padding,
        explicit_paddings=explicit, data_format=data_format or "NHWC", dilations=list(dilations),
        name=name,
    )  # fmt: skip


@export(
    v1=("nn.depthwise_conv2d_native_backprop_filter", "nn.depthwise_conv2d_backprop_filter"),
    v2="nn.depthwise_conv2d_backprop_filter",
)
def depthwise_conv2d_native_backprop_filter(
    input: Any, filter_sizes: Any, out_backprop: Any, strides: Any, padding: Any,
    data_format: str | None = "NHWC", dilations: Any = (1, 1, 1, 1), name: str | None = None,
) -> Tensor:  # fmt: skip
    """The gradient of `depthwise_conv2d_native` with respect to its filters."""
    padding, explicit = padding_attrs(padding)
    return gen_ops.depthwise_conv2d_native_backprop_filter(
        input, filter_sizes, out_backprop, strides=list(strides), padding=padding,
        explicit_paddings=explicit, data_format=data_format or "NHWC", dilations=list(dilations),
        name=name,
    )  # fmt: skip


def _depthwise(
    input: Tensor, filter: Tensor, strides: Any, padding: Any, rate: Any,
    data_format: str | None, name: str | None,
) -> Tensor:  # fmt: skip
    strides = sequence(strides, 2, data_format, "strides")
    rates = spatial_sizes(2, rate, "rate")

    def plain(x: Tensor, _: int, how: Any) -> Tensor:
        return depthwise_conv2d_native(x, filter, strides, how, data_format, name=name)

    return with_space_to_batch(input, rates, padding, plain, array.shape(filter)[:2],
                               data_format=data_format)  # fmt: skip


@export(v1="nn.depthwise_conv2d")
def depthwise_conv2d(
    input: Any, filter: Any, strides: Any, padding: Any, rate: Any = None, name: str | None = None,
    data_format: str | None = None, dilations: Any = None,
) -> Tensor:  # fmt: skip
    """Convolves each channel with its own filters [height, width, in, multiplier], which lie
    `rate` apart."""
    rate = rate if dilations is None else dilations
    with name_scope(name, "depthwise", [input, filter]) as scope:
        input = convert_to_tensor(input, name="tensor_in")
        filter = convert_to_tensor(filter, name="filter_in")
        return _depthwise(input, filter, strides, padding, rate, data_format, scope)


depthwise_conv2d_v2 = export(v2="nn.depthwise_conv2d")(
    reordered(depthwise_conv2d, "input filter strides padding data_format dilations name")
)


@export(v1="nn.separable_conv2d")
def separable_conv2d(
    input: Any, depthwise_filter: Any, pointwise_filter: Any, strides: Any, padding: Any,
    rate: Any = None, name: str | None = None, data_format: str | None = None,
    dilations: Any = None,
) -> Tensor:  # fmt: skip
    """`depthwise_conv2d`, then a convolution across channels with [1, 1, in * multiplier, out].

    ValueError when the pointwise filter is not of that shape.
    """
    rate = rate if dilations is None else dilations
    with name_scope(name, "separable_conv2d", [input, depthwise_filter, pointwise_filter]) as scope:
        input = convert_to_tensor(input, name="tensor_in")
        depthwise_filter = convert_to_tensor(depthwise_filter, name="depthwise_filter")
        pointwise_filter = convert_to_tensor(pointwise_filter, name="pointwise_filter")
        across = pointwise_filter.shape.with_rank(4)
        across[:2].assert_is_compatible_with([1, 1])
        if depthwise_filter.shape.ndims == 4:
            channels, each = depthwise_filter.shape.as_list()[2:]
            if channels is not None and each is not None:
                made = TensorShape([1, 1, channels * each, None])
                if not across.is_compatible_with(made):
                    raise ValueError(
                        f"separable_conv2d: the pointwise filter '{label_of(pointwise_filter)}' "
                        f"({pointwise_filter.dtype.name}) has shape {across}, expected {made} for "
                        f"the depthwise filter of shape {depthwise_filter.shape}"
                    )
        deep = _depthwise(input, depthwise_filter, strides, padding, rate, data_format, "depthwise")
        return conv2d(
            deep, pointwise_filter, [1, 1, 1, 1], "VALID", data_format=data_format, name=scope
        )


separable_conv2d_v2 = export(v2="nn.separable_conv2d")(
    reordered(
        separable_conv2d,
        "input depthwise_filter pointwise_filter strides padding data_format dilations name",
    )
)
