"""Convolutions."""

import functools
from typing import Any, Callable

import numpy as np

from millrace import gen_ops
from millrace.core.arguments import reordered
from millrace.core.export import export
from millrace.core.tensor import Tensor, label_of
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.ops import array
from millrace.ops.nn.geometry import (  # fmt: skip
    is_channels_first,
    padding_attrs,
    sequence,
)


def with_outer_batch(
    function: Callable[..., Tensor], inner_rank: Callable[[Any], int | None]
) -> Callable[..., Tensor]:
    """`function` of a batch of pictures, for pictures in a batch of any rank.

    `inner_rank`: how many dimensions a picture has, by the filters.
    """

    @functools.wraps(function)
    def call(input: Any, filters: Any, *args: Any, **kwargs: Any) -> Tensor:
        inner = inner_rank(filters)
        input = convert_to_tensor(input, name="input")
        rank = input.shape.ndims
        if rank is None or inner is None or rank <= inner + 1:
            return function(input, filters, *args, **kwargs)
        sizes = array.shape(input)
        flat = array.reshape(input, array.concat([[-1], sizes[rank - inner :]], 0))
        out = function(flat, filters, *args, **kwargs)
        result = array.reshape(out, array.concat([sizes[: rank - inner], array.shape(out)[1:]], 0))
        known = out.shape.as_list()[1:] if out.shape.ndims is not None else [None] * inner
        result.set_shape([*input.shape.as_list()[: rank - inner], *known])
        return result

    return call


@export(v1="nn.conv2d")
def conv2d(
    input: Any, filter: Any = None, strides: Any = None, padding: Any = None,
    use_cudnn_on_gpu: bool | None = True, data_format: str | None = "NHWC",
    dilations: Any = (1, 1, 1, 1), name: str | None = None, filters: Any = None,
) -> Tensor:  # fmt: skip
    """A two-dimensional convolution: images [batch, height, width, in] with filters
    [height, width, in, out].

    Args:
      strides: one, two or four sizes; four are in the order of `data_format`.
      padding: "SAME", "VALID", or four pairs of sizes.
      data_format: "NHWC" or "NCHW".
      dilations: how far apart the elements of a filter lie.
    """
    filter = filter if filters is None else filters
    padding, explicit = padding_attrs(padding)
    data_format = data_format or "NHWC"
    return gen_ops.conv2d(
        input, filter, strides=sequence(strides, 2, data_format, "strides"), padding=padding,
        use_cudnn_on_gpu=use_cudnn_on_gpu is not False, explicit_paddings=explicit,
        data_format=data_format, dilations=sequence(dilations, 2, data_format, "dilations"),
        name=name,
    )  # fmt: skip


conv2d_v2 = export(v2="nn.conv2d")(
    with_outer_batch(
        reordered(conv2d, "input filters strides padding data_format dilations name"), lambda _: 3
    )
)


@export(v1="nn.conv2d_backprop_filter")
def conv2d_backprop_filter(
    input: Any, filter_sizes: Any, out_backprop: Any, strides: Any, padding: Any,
    use_cudnn_on_gpu: bool | None = True, data_format: str | None = "NHWC",
    dilations: Any = (1, 1, 1, 1), name: str | None = None,
) -> Tensor:  # fmt: skip
    """The gradient of `conv2d` with respect to its filters, of shape `filter_sizes`."""
    padding, explicit = padding_attrs(padding)
    data_format = data_format or "NHWC"
    return gen_ops.conv2d_backprop_filter(
        input, filter_sizes, out_backprop, strides=sequence(strides, 2, data_format, "strides"),
        padding=padding, use_cudnn_on_gpu=use_cudnn_on_gpu is not False,
        explicit_paddings=explicit, data_format=data_format,
        dilations=sequence(dilations, 2, data_format, "dilations"), name=name,
    )  # fmt: skip


@export(v1="nn.conv2d_backprop_input")
def conv2d_backprop_input(
    input_sizes: Any, filter: Any = None, out_backprop: Any = None, strides: Any = None,
    padding: Any = None, use_cudnn_on_gpu: bool | None = True, data_format: str | None = "NHWC",
    dilations: Any = (1, 1, 1, 1), name: str | None = None, filters: Any = None,
) -> Tensor:  # fmt: skip
    """The gradient of `conv2d` with respect to its images, of shape `input_sizes`."""
    filter = filter if filters is None else filters
    padding, explicit = padding_attrs(padding)
    data_format = data_format or "NHWC"
    return gen_ops.conv2d_backprop_input(
        input_sizes, filter, out_backprop, strides=sequence(strides, 2, data_format, "strides"),
        padding=padding, use_cudnn_on_gpu=use_cudnn_on_gpu is not False,
        explicit_paddings=explicit, data_format=data_format,
        dilations=sequence(dilations, 2, data_format, "dilations"), name=name,
    )  # fmt: skip


@export(v1="nn.conv1d")
def conv1d(
    value: Any = None, filters: Any = None, stride: Any = None, padding: Any = None,
    use_cudnn_on_gpu: bool | None = None, data_format: str | None = None,
    name: str | None = None, input: Any = None, dilations: Any = None,
) -> Tensor:  # fmt: skip
    """A one-dimensional convolution: [batch, width, in] with filters [width, in, out].

    `data_format`: "NWC" (or "NHWC"), or "NCW" (or "NCHW"). ValueError for any other.
    """
    value = value if input is None else input
    with name_scope(name, "conv1d", [value, filters]) as scope:
        if data_format in (None, "NHWC", "NWC"):
            data_format, axis = "NHWC", 1
        elif data_format in ("NCHW", "NCW"):
            data_format, axis = "NCHW", 2
        else:
            raise ValueError(f'data_format must be "NWC" or "NCW", got {data_format!r}')
        strides = _wide(sequence(stride, 1, data_format, "stride"), data_format)
        rates = _wide(sequence(dilations, 1, data_format, "dilations"), data_format)
        value = array.expand_dims(value, axis)
        filters = array.expand_dims(filters, 0)
        result = conv2d(
            value, filters, strides, padding, use_cudnn_on_gpu, data_format, rates, name=scope
        )
        return array.squeeze(result, [axis])


conv1d_v2 = export(v2="nn.conv1d")(
    with_outer_batch(
        reordered(conv1d, "input filters stride padding data_format dilations name"), lambda _: 2
    )
)


def _wide(sizes: list[int], data_format: str) -> list[int]:
    """Sizes of [batch, width, channels] for a height of one."""
    if is_channels_first(data_format):
        return [sizes[0], sizes[1], 1, sizes[2]]
    return [sizes[0], 1, sizes[1], sizes[2]]


@export(v1="nn.conv1d_transpose", v2="nn.conv1d_transpose")
def conv1d_transpose(
    input: Any, filters: Any, output_shape: Any, strides: Any, padding: str = "SAME",
    data_format: str = "NWC", dilations: Any = None, name: str | None = None,
) -> Tensor:  # fmt: skip
    """The transpose (gradient) of `conv1d`: filters are [width, out, in]."""
    with name_scope(name, "conv1d_transpose", [input, filters, output_shape]) as scope:
        data_format = data_format or "NWC"
        if data_format not in ("NWC", "NCW"):
            raise ValueError(f'data_format must be "NWC" or "NCW", got {data_format!r}')
        first = data_format == "NCW"
        axis = 2 if first else 1
        four = "NCHW" if first else "NHWC"
        steps = _wide(sequence(strides, 1, data_format, "strides"), data_format)
        rates = _wide(sequence(dilations, 1, data_format, "dilations"), data_format)
        output_shape = convert_to_tensor(output_shape)
        output_shape = array.concat([output_shape[:axis], [1], output_shape[axis:]], 0)
        result = gen_ops.conv2d_backprop_input(
            output_shape, array.expand_dims(filters, 0), array.expand_dims(input, axis),
            strides=steps, padding=padding, data_format=four, dilations=rates, name=scope,
        )  # fmt: skip
        return array.squeeze(result, [axis])


def transpose_sizes(
    what: str, value: Tensor, filter: Tensor, output_shape: Any, axis: int, padding: Any
) -> Tensor:
    """Checks the arguments of a transposed convolution; gives the shape asked for as a tensor."""
    rank = filter.shape.ndims
    if rank is None:
        rank = value.shape.ndims
    if value.shape.ndims is not None and rank is not None:
        value.shape.assert_has_rank(rank)
        channels = value.shape._size_at(axis)
        expected = filter.shape._size_at(-1) if filter.shape.ndims else None
        if None not in (channels, expected) and channels != expected:
            raise ValueError(
                f"{what}: input channels does not match filter's input channels, "
                f"{channels} != {expected}: '{label_of(value)}' ({value.dtype.name}) has shape "
                f"{value.shape}, '{label_of(filter)}' ({filter.dtype.name}) has shape "
                f"{filter.shape}"
            )
    wanted = convert_to_tensor(output_shape, name="output_shape")
    if not wanted.shape.is_compatible_with([rank]):
        raise ValueError(f"{what}: output_shape must have shape ({rank},), got {wanted.shape}")
    if isinstance(output_shape, (list, tuple, np.ndarray)) and filter.shape.ndims:
        channels = output_shape[axis]
        known = isinstance(channels, (int, np.integer))
        if known and filter.shape._size_at(-2) not in (None, int(channels)):
            raise ValueError(
                f"{what}: output_shape does not match filter's output channels, "
                f"{channels} != {filter.shape._size_at(-2)}: '{label_of(filter)}' has shape "
                f"{filter.shape}"
            )
    if padding not in ("VALID", "SAME"):
        raise ValueError(f"{what}: padding must be either VALID or SAME: {padding}")
    return wanted


@export(v1="nn.conv2d_transpose")
def conv2d_transpose(
    value: Any = None, filter: Any = None, output_shape: Any = None, strides: Any = None,
    padding: str = "SAME", data_format: str | None = "NHWC", name: str | None = None,
    input: Any = None, filters: Any = None, dilations: Any = None,
) -> Tensor:  # fmt: skip
    """The transpose (gradient) of `conv2d`, of shape `output_shape`: filters are
    [height, width, out, in].

    ValueError when the channels of value, filter and output_shape do not fit together.
    """
    value = value if input is None else input
    filter = filter if filters is None else filters
    with name_scope(name, "conv2d_transpose", [value, filter, output_shape]) as scope:
        data_format = data_format or "NHWC"
        if data_format not in ("NCHW", "NHWC"):
            raise ValueError("data_format has to be either NCHW or NHWC.")
        value = convert_to_tensor(value, name="value")
        filter = convert_to_tensor(filter, name="filter")
        axis = 3 if data_format == "NHWC" else 1
        sizes = transpose_sizes("conv2d_transpose", value, filter, output_shape, axis, padding)
        return gen_ops.conv2d_backprop_input(
            sizes, filter, value, strides=sequence(strides, 2, data_format, "strides"),
            padding=padding, data_format=data_format,
            dilations=sequence(dilations, 2, data_format, "dilations"), name=scope,
        )  # fmt: skip


conv2d_transpose_v2 = export(v2="nn.conv2d_transpose")(
    reordered(
        conv2d_transpose,
        "input filters output_shape strides padding data_format dilations name",
    )
)


@export(v1="nn.conv3d")
def conv3d(
    input: Any, filter: Any = None, strides: Any = None, padding: Any = None,
    data_format: str | None = "NDHWC", dilations: Any = (1, 1, 1, 1, 1), name: str | None = None,
    filters: Any = None,
) -> Tensor:  # fmt: skip
    """A three-dimensional convolution: [batch, depth, height, width, in] with filters
    [depth, height, width, in, out]."""
    filter = filter if filters is None else filters
    return gen_ops.conv3d(
        input, filter, strides=sequence(strides, 3, data_format, "strides"), padding=padding,
        data_format=data_format or "NDHWC",
        dilations=sequence(dilations, 3, data_format, "dilations"), name=name,
    )  # fmt: skip


conv3d_v2 = export(v2="nn.conv3d")(
    with_outer_batch(
        reordered(conv3d, "input filters strides padding data_format dilations name"), lambda _: 4
    )
)


@export(v1="nn.conv3d_transpose")
def conv3d_transpose(
    value: Any = None, filter: Any = None, output_shape: Any = None, strides: Any = None,
    padding: str = "SAME", data_format: str | None = "NDHWC", name: str | None = None,
    input: Any = None, filters: Any = None, dilations: Any = None,
) -> Tensor:  # fmt: skip
    """The transpose (gradient) of `conv3d`, of shape `output_shape`: filters are
    [depth, height, width, out, in]."""
    value = value if input is None else input
    filter = filter if filters is None else filters
    with name_scope(name, "conv3d_transpose", [value, filter, output_shape]) as scope:
        data_format = data_format or "NDHWC"
        value = convert_to_tensor(value, name="value")
        filter = convert_to_tensor(filter, name="filter")
        axis = 1 if data_format == "NCDHW" else 4
        sizes = transpose_sizes("conv3d_transpose", value, filter, output_shape, axis, padding)
        return gen_ops.conv3d_backprop_input_v2(
            sizes, filter, value, strides=sequence(strides, 3, data_format, "strides"),
            padding=padding, data_format=data_format,
            dilations=sequence(dilations, 3, data_format, "dilations"), name=scope,
        )  # fmt: skip


conv3d_transpose_v2 = export(v2="nn.conv3d_transpose")(
    reordered(
        conv3d_transpose,
        "input filters output_shape strides padding data_format dilations name",
    )
)


@export(v1=("nn.conv3d_backprop_filter", "nn.conv3d_backprop_filter_v2"))
def conv3d_backprop_filter(
    input: Any, filter_sizes: Any, out_backprop: Any, strides: Any, padding: str,
    data_format: str = "NDHWC", dilations: Any = (1, 1, 1, 1, 1), name: str | None = None,
) -> Tensor:  # fmt: skip
    """The gradient of `conv3d` with respect to its filters, of shape `filter_sizes`."""
    return gen_ops.conv3d_backprop_filter_v2(
        input, filter_sizes, out_backprop, strides=sequence(strides, 3, data_format, "strides"),
        padding=padding, data_format=data_format, dilations=list(dilations), name=name,
    )  # fmt: skip
