"""Convolutions."""

from typing import Any, Callable

import numpy as np

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.graph.convert import convert_to_tensor
from millrace.graph.graph import Tensor, name_scope
from millrace.graph.static_value import constant_value
from millrace.ops import array, math, reduce, space
from millrace.ops.nn.geometry import (  # fmt: skip
    is_channels_first,
    padding_attrs,
    sequence,
    spatial_sizes,
    strides_and_dilations,
)


@export("nn.conv2d")
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


@export("nn.conv2d_backprop_filter")
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


@export("nn.conv2d_backprop_input")
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


@export("nn.conv1d")
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


def _wide(sizes: list[int], data_format: str) -> list[int]:
    """Sizes of [batch, width, channels] for a height of one."""
    if is_channels_first(data_format):
        return [sizes[0], sizes[1], 1, sizes[2]]
    return [sizes[0], 1, sizes[1], sizes[2]]


@export("nn.conv1d_transpose")
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


def _transpose_sizes(
    what: str, value: Tensor, filter: Tensor, output_shape: Any, axis: int, padding: Any
) -> Tensor:
    """Checks the arguments of a transposed convolution; gives the shape asked for as a tensor."""
    rank = filter.shape.ndims
    if rank is None:
        rank = value.shape.ndims
    if value.shape.ndims is not None and rank is not None:
        value.shape.assert_has_rank(rank)
        channels, expected = value.shape[axis], filter.shape[-1] if filter.shape.ndims else None
        if expected is not None and not channels.is_compatible_with(expected):
            raise ValueError(
                f"{what}: input channels does not match filter's input channels, "
                f"{channels} != {expected}: '{value.name}' ({value.dtype.name}) has shape "
                f"{value.shape}, '{filter.name}' ({filter.dtype.name}) has shape {filter.shape}"
            )
    wanted = convert_to_tensor(output_shape, name="output_shape")
    if not wanted.shape.is_compatible_with([rank]):
        raise ValueError(f"{what}: output_shape must have shape ({rank},), got {wanted.shape}")
    if isinstance(output_shape, (list, tuple, np.ndarray)) and filter.shape.ndims:
        channels = output_shape[axis]
        known = isinstance(channels, (int, np.integer))
        if known and not filter.shape[-2].is_compatible_with(int(channels)):
            raise ValueError(
                f"{what}: output_shape does not match filter's output channels, "
                f"{channels} != {filter.shape[-2]}: '{filter.name}' has shape {filter.shape}"
            )
    if padding not in ("VALID", "SAME"):
        raise ValueError(f"{what}: padding must be either VALID or SAME: {padding}")
    return wanted


@export("nn.conv2d_transpose")
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
        sizes = _transpose_sizes("conv2d_transpose", value, filter, output_shape, axis, padding)
        return gen_ops.conv2d_backprop_input(
            sizes, filter, value, strides=sequence(strides, 2, data_format, "strides"),
            padding=padding, data_format=data_format,
            dilations=sequence(dilations, 2, data_format, "dilations"), name=scope,
        )  # fmt: skip


@export("nn.conv3d")
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


@export("nn.conv3d_transpose")
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
        sizes = _transpose_sizes("conv3d_transpose", value, filter, output_shape, axis, padding)
        return gen_ops.conv3d_backprop_input_v2(
            sizes, filter, value, strides=sequence(strides, 3, data_format, "strides"),
            padding=padding, data_format=data_format,
            dilations=sequence(dilations, 3, data_format, "dilations"), name=scope,
        )  # fmt: skip


@export("nn.conv3d_backprop_filter", "nn.conv3d_backprop_filter_v2")
def conv3d_backprop_filter(
    input: Any, filter_sizes: Any, out_backprop: Any, strides: Any, padding: str,
    data_format: str = "NDHWC", dilations: Any = (1, 1, 1, 1, 1), name: str | None = None,
) -> Tensor:  # fmt: skip
    """The gradient of `conv3d` with respect to its filters, of shape `filter_sizes`."""
    return gen_ops.conv3d_backprop_filter_v2(
        input, filter_sizes, out_backprop, strides=sequence(strides, 3, data_format, "strides"),
        padding=padding, data_format=data_format, dilations=list(dilations), name=name,
    )  # fmt: skip


# Dilation by moving space into the batch.


def _base_paddings(padding: str, filter_shape: Any, rate: np.ndarray) -> Any:
    if padding == "VALID":
        return np.zeros([len(rate), 2], np.int32)
    if padding != "SAME":
        raise ValueError(f'Invalid padding method {padding!r}: expected "SAME" or "VALID"')
    if filter_shape is None:
        raise ValueError("filter_shape must be specified for SAME padding")
    sizes = convert_to_tensor(filter_shape, name="filter_shape")
    known = constant_value(sizes)
    if known is None:
        whole = sizes[: len(rate)] - 1
        extra = whole * convert_to_tensor(rate.astype(np.int32), dtype=whole.dtype)
        return array.stack([extra // 2, extra - extra // 2], 1)
    extra = (np.asarray(known)[: len(rate)] - 1) * rate
    return np.stack([extra // 2, extra - extra // 2], 1).astype(np.int32)


@export("nn.with_space_to_batch")
def with_space_to_batch(
    input: Any, dilation_rate: Any, padding: str, op: Callable[..., Tensor],
    filter_shape: Any = None, spatial_dims: Any = None, data_format: str | None = None,
) -> Tensor:  # fmt: skip
    """What `op` computes on the input with gaps of `dilation_rate` between its elements.

    Args:
      op: called with (input, number of spatial dimensions, "VALID" or `padding`).
      filter_shape: the spatial shape of the window first; needed for "SAME".
      spatial_dims: which dimensions the rates are for; the first after the batch by default.
    """
    input = convert_to_tensor(input, name="input")
    known_rate = constant_value(convert_to_tensor(dilation_rate, dtypes.int32, "dilation_rate"))
    if known_rate is None:
        raise ValueError("dilation_rate must be known when the graph is built")
    rate = np.asarray(known_rate)
    if rate.ndim != 1:
        raise ValueError(f"rate must be rank 1 but is {rate.ndim}, of shape {rate.shape}")
    if (rate < 1).any():
        raise ValueError(f"dilation_rate must be positive, got {rate.tolist()}")
    count = len(rate)
    first = 2 if is_channels_first(data_format) else 1
    if spatial_dims is None:
        spatial_dims = range(first, count + first)
    dims = sorted(set(int(d) for d in spatial_dims))
    if any(d < 1 for d in dims) or len(dims) != count:
        raise ValueError(
            f"spatial_dims must be {count} different positive integers, got {list(spatial_dims)}"
        )
    last = dims[-1]
    if input.shape.ndims is not None and input.shape.ndims < last + 1:
        raise ValueError(
            f"input tensor '{input.name}' must have rank {last + 1} at least, got shape "
            f"{input.shape}"
        )
    if (rate == 1).all():
        return op(input, count, padding)
    base = _base_paddings(padding, filter_shape, rate)
    sizes = input.shape
    if sizes.ndims is not None and all(sizes[d].value is not None for d in dims):
        spatial: Any = np.array([sizes[d].value for d in dims], np.int32)
    else:
        actual = array.shape(input)
        spatial = array.stack([actual[d] for d in dims])
    paddings, crops = space.required_space_to_batch_paddings(
        input_shape=spatial, base_paddings=base, block_shape=rate.astype(np.int32)
    )
    blocks = np.ones(last, np.int32)
    for d, r in zip(dims, rate, strict=True):
        blocks[d - 1] = r
    apart = space.space_to_batch_nd(input, blocks, _spread(paddings, dims, last))
    result = op(apart, count, "VALID")
    whole = space.batch_to_space_nd(result, blocks, _spread(crops, dims, last))
    if is_channels_first(data_format) and result.shape.ndims is not None:
        merged = whole.shape.with_rank(result.shape.ndims).as_list()
        merged[1] = result.shape.as_list()[1]
        whole.set_shape(merged)
    return whole


def _spread(pairs: Any, dims: list[int], last: int) -> Any:
    """Pairs for `dims`, with pairs of zeros for the other dimensions up to `last`."""
    if dims == list(range(1, last + 1)):
        return pairs
    pairs = convert_to_tensor(pairs)
    zero = array.zeros([2], pairs.dtype)
    return array.stack([pairs[dims.index(d)] if d in dims else zero for d in range(1, last + 1)])


@export("nn.convolution")
def convolution(
    input: Any, filter: Any = None, padding: Any = None, strides: Any = None,
    dilation_rate: Any = None, name: str | None = None, data_format: str | None = None,
    filters: Any = None, dilations: Any = None,
) -> Tensor:  # fmt: skip
    """A convolution of one, two or three spatial dimensions, by the rank of the filter.

    `strides` and `dilation_rate` have one size per spatial dimension; only one of the two may be
    above one. `data_format` begins with "NC" where channels come first.
    """
    filter = filter if filters is None else filters
    dilation_rate = dilation_rate if dilations is None else dilations
    with name_scope(name, "convolution", [input, filter]) as scope:
        input = convert_to_tensor(input, name="input")
        filter = convert_to_tensor(filter, name="filter")
        rank = filter.shape.ndims
        if rank is None:
            rank = input.shape.ndims
        if rank is None:
            raise ValueError("rank of input or filter must be known")
        filter.shape.assert_has_rank(rank)
        try:
            input.shape.assert_has_rank(rank)
        except ValueError:
            raise ValueError(
                f"convolution: input tensor must have rank {rank}: '{input.name}' "
                f"({input.dtype.name}) has shape {input.shape}, '{filter.name}' has shape "
                f"{filter.shape}"
            ) from None
        count = rank - 2
        if not 1 <= count <= 3:
            raise ValueError(
                f"convolution: num_spatial_dims must be 1, 2 or 3, got {count}: '{filter.name}' "
                f"has shape {filter.shape}"
            )
        _check_format(data_format, count)
        _check_channels(input, filter, data_format)
        steps, rate = strides_and_dilations(count, strides, dilation_rate)
        return convolve(input, filter, padding, steps, rate, data_format, count, scope)


def _check_format(data_format: str | None, count: int) -> None:
    formats = {1: ("NWC", "NCW"), 2: ("NHWC", "NCHW"), 3: ("NDHWC", "NCDHW")}[count]
    if data_format is not None and data_format not in formats:
        raise ValueError(f"data_format must be one of {formats}, got {data_format!r}")


def _check_channels(input: Tensor, filter: Tensor, data_format: str | None) -> None:
    if input.shape.ndims is None or filter.shape.ndims is None:
        return
    given = input.shape[1 if is_channels_first(data_format) else -1].value
    expected = filter.shape[-2].value
    if given is not None and expected and given % expected:
        raise ValueError(
            f"number of input channels does not match corresponding dimension of filter, {given} "
            f"!= {expected}: '{input.name}' ({input.dtype.name}) has shape {input.shape}, "
            f"'{filter.name}' has shape {filter.shape}"
        )


def convolve(
    input: Tensor, filter: Tensor, padding: Any, steps: Any, rate: Any, data_format: str | None,
    count: int, scope: str | None,
) -> Tensor:  # fmt: skip
    """`convolution` of arguments that are known to be good."""
    steps, rates = steps.tolist(), rate.tolist()
    if count == 1:
        return conv1d(
            input, filter, steps, padding, data_format=data_format, name=scope, dilations=rates
        )
    if count == 2:
        return conv2d(
            input, filter, steps, padding, data_format=data_format, dilations=rates, name=scope
        )

    def plain(x: Tensor, _: int, how: str) -> Tensor:
        return conv3d(x, filter, steps, how, data_format, name=scope)

    return with_space_to_batch(input, rate, padding, plain, array.shape(filter)[:3],
                               data_format=data_format)  # fmt: skip


@export("nn.atrous_conv2d")
def atrous_conv2d(
    value: Any, filters: Any, rate: int, padding: str, name: str | None = None
) -> Tensor:
    """`conv2d` with gaps of `rate` between the elements of the filters."""
    return convolution(value, filters, padding, dilation_rate=[rate, rate], name=name)


@export("nn.atrous_conv2d_transpose")
def atrous_conv2d_transpose(
    value: Any, filters: Any, output_shape: Any, rate: int, padding: str, name: str | None = None
) -> Tensor:
    """The transpose (gradient) of `atrous_conv2d`, of shape `output_shape`."""
    with name_scope(name, "atrous_conv2d_transpose", [value, filters, output_shape]) as scope:
        value = convert_to_tensor(value, name="value")
        filters = convert_to_tensor(filters, name="filters")
        if rate < 1:
            raise ValueError(f"rate {rate} cannot be less than one")
        sizes = _transpose_sizes(
            "atrous_conv2d_transpose", value, filters, output_shape, 3, padding
        )
        return gen_ops.conv2d_backprop_input(
            sizes, filters, value, strides=[1, 1, 1, 1], padding=padding,
            dilations=[1, rate, rate, 1], name=scope,
        )  # fmt: skip


# Convolutions of each channel by itself.


@export("nn.depthwise_conv2d_native")
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


@export("nn.depthwise_conv2d_native_backprop_input", "nn.depthwise_conv2d_backprop_input")
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


@export("nn.depthwise_conv2d_native_backprop_filter", "nn.depthwise_conv2d_backprop_filter")
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


@export("nn.depthwise_conv2d")
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


@export("nn.separable_conv2d")
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
        across[0].assert_is_compatible_with(1)
        across[1].assert_is_compatible_with(1)
        if depthwise_filter.shape.ndims == 4:
            channels, each = depthwise_filter.shape.as_list()[2:]
            if channels is not None and each is not None:
                made = TensorShape([1, 1, channels * each, None])
                if not across.is_compatible_with(made):
                    raise ValueError(
                        f"separable_conv2d: the pointwise filter '{pointwise_filter.name}' "
                        f"({pointwise_filter.dtype.name}) has shape {across}, expected {made} for "
                        f"the depthwise filter of shape {depthwise_filter.shape}"
                    )
        deep = _depthwise(input, depthwise_filter, strides, padding, rate, data_format, "depthwise")
        return conv2d(
            deep, pointwise_filter, [1, 1, 1, 1], "VALID", data_format=data_format, name=scope
        )


# Morphology.


@export("nn.dilation2d")
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
            sizes = math.sizes_of(input)
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


def _same_padding(size: Any, window: int, stride: int, rate: int) -> list[Any]:
    """Before and after, for an output of size / stride rounded up."""
    reach = (window - 1) * rate + 1
    whole = ((size + stride - 1) // stride - 1) * stride + reach - size
    extra = math.maximum(whole, 0) if isinstance(whole, Tensor) else max(whole, 0)
    return [extra // 2, extra - extra // 2]


@export("nn.erosion2d")
def erosion2d(
    value: Any, kernel: Any, strides: Any, rates: Any, padding: str, name: str | None = None
) -> Tensor:
    """The smallest of window minus kernel: a greyscale erosion of each channel."""
    with name_scope(name, "erosion2d", [value, kernel]) as scope:
        value = convert_to_tensor(value)
        turned = array.reverse(kernel, [0, 1])
        return gen_ops.neg(dilation2d(-value, turned, strides, rates, padding), name=scope)
