"""Convolutions of any rank and dilation, by moving space into the batch."""

from typing import Any, Callable

import numpy as np

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.arguments import reordered
from millrace.core.export import export
from millrace.core.tensor import Tensor, label_of
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.static_value import constant_value
from millrace.ops import array, space
from millrace.ops.nn.conv import conv1d, conv2d, conv3d, transpose_sizes, with_outer_batch
from millrace.ops.nn.geometry import (  # fmt: skip
    is_channels_first,
    strides_and_dilations,
)


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


@export(v1="nn.with_space_to_batch", v2="nn.with_space_to_batch")
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
            f"input tensor '{label_of(input)}' must have rank {last + 1} at least, got shape "
            f"{input.shape}"
        )
    if (rate == 1).all():
        return op(input, count, padding)
    base = _base_paddings(padding, filter_shape, rate)
    sizes = input.shape
    if sizes.ndims is not None and all(sizes._size_at(d) is not None for d in dims):
        spatial: Any = np.array([sizes._size_at(d) for d in dims], np.int32)
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


@export(v1="nn.convolution")
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
                f"convolution: input tensor must have rank {rank}: '{label_of(input)}' "
                f"({input.dtype.name}) has shape {input.shape}, '{label_of(filter)}' has shape "
                f"{filter.shape}"
            ) from None
        count = rank - 2
        if not 1 <= count <= 3:
            raise ValueError(
                f"convolution: num_spatial_dims must be 1, 2 or 3, got {count}: "
                f"'{label_of(filter)}' "
                f"has shape {filter.shape}"
            )
        _check_format(data_format, count)
        _check_channels(input, filter, data_format)
        steps, rate = strides_and_dilations(count, strides, dilation_rate)
        return convolve(input, filter, padding, steps, rate, data_format, count, scope)


def _picture_rank(filters: Any) -> int | None:
    rank = convert_to_tensor(filters, name="filters").shape.ndims
    return None if rank is None else rank - 1


convolution_v2 = export(v2="nn.convolution")(
    with_outer_batch(
        reordered(convolution, "input filters strides padding data_format dilations name"),
        _picture_rank,
    )
)


def _check_format(data_format: str | None, count: int) -> None:
    formats = {1: ("NWC", "NCW"), 2: ("NHWC", "NCHW"), 3: ("NDHWC", "NCDHW")}[count]
    if data_format is not None and data_format not in formats:
        raise ValueError(f"data_format must be one of {formats}, got {data_format!r}")


def _check_channels(input: Tensor, filter: Tensor, data_format: str | None) -> None:
    if input.shape.ndims is None or filter.shape.ndims is None:
        return
    given = input.shape._size_at(1 if is_channels_first(data_format) else -1)
    expected = filter.shape._size_at(-2)
    if given is not None and expected and given % expected:
        raise ValueError(
            f"number of input channels does not match corresponding dimension of filter, {given} "
            f"!= {expected}: '{label_of(input)}' ({input.dtype.name}) has shape {input.shape}, "
            f"'{label_of(filter)}' has shape {filter.shape}"
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


@export(v1="nn.atrous_conv2d", v2="nn.atrous_conv2d")
def atrous_conv2d(
    value: Any, filters: Any, rate: int, padding: str, name: str | None = None
) -> Tensor:
    """`conv2d` with gaps of `rate` between the elements of the filters."""
    return convolution(value, filters, padding, dilation_rate=[rate, rate], name=name)


@export(v1="nn.atrous_conv2d_transpose", v2="nn.atrous_conv2d_transpose")
def atrous_conv2d_transpose(
    value: Any, filters: Any, output_shape: Any, rate: int, padding: str, name: str | None = None
) -> Tensor:
    """The transpose (gradient) of `atrous_conv2d`, of shape `output_shape`."""
    with name_scope(name, "atrous_conv2d_transpose", [value, filters, output_shape]) as scope:
        value = convert_to_tensor(value, name="value")
        filters = convert_to_tensor(filters, name="filters")
        if rate < 1:
            raise ValueError(f"rate {rate} cannot be less than one")
        sizes = transpose_sizes("atrous_conv2d_transpose", value, filters, output_shape, 3, padding)
        return gen_ops.conv2d_backprop_input(
            sizes, filters, value, strides=[1, 1, 1, 1], padding=padding,
            dilations=[1, rate, rate, 1], name=scope,
        )  # fmt: skip
