"""Pooling."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.arguments import reordered
from millrace.core.errors import UnimplementedError
from millrace.core.export import export
from millrace.core.tensor import Tensor, label_of
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.ops import array, reduce
from millrace.ops.nn.dilated_conv import with_space_to_batch
from millrace.ops.nn.geometry import (  # fmt: skip
    is_channels_first,
    padding_attrs,
    sequence,
    spatial_sizes,
    strides_and_dilations,
)


@export(v1="nn.max_pool")
def max_pool(
    value: Any = None, ksize: Any = None, strides: Any = None, padding: Any = None,
    data_format: str | None = "NHWC", name: str | None = None, input: Any = None,
) -> Tensor:  # fmt: skip
    """The largest element of each window of images [batch, height, width, channels].

    `ksize` and `strides` are one, two or four sizes; four are in the order of `data_format`.
    """
    value = value if input is None else input
    with name_scope(name, "MaxPool", [value]) as scope:
        value = convert_to_tensor(value, name="input")
        ksize = sequence(ksize, 2, data_format, "ksize")
        strides = sequence(strides, 2, data_format, "strides")
        _check_batch(ksize, strides)
        _check_fits(value, ksize, padding)
        if not is_channels_first(data_format) and (ksize[3], strides[3]) != (1, 1):
            return _max_pool_depth(value, ksize, strides, scope)
        return gen_ops.max_pool(
            value, ksize=ksize, strides=strides, padding=_plain(padding),
            data_format=data_format or "NHWC", name=scope,
        )  # fmt: skip


max_pool_v2 = export(v2="nn.max_pool")(
    reordered(max_pool, "input ksize strides padding data_format name")
)


def _check_batch(ksize: list[int], strides: list[int]) -> None:
    if ksize[0] != 1 or strides[0] != 1:
        raise UnimplementedError(
            None, None,
            "Pooling is not yet supported on the batch dimension: ksize is "
            f"{ksize}, strides are {strides}",
        )  # fmt: skip


def _check_fits(value: Tensor, ksize: list[int], padding: Any) -> None:
    """ValueError when a window is known to be larger than what it slides over."""
    sizes = value.shape.as_list() if value.shape.ndims == 4 else [None] * 4
    for size, window in zip(sizes, ksize, strict=True):
        if padding == "VALID" and size is not None and window > size:
            raise ValueError(
                f"Negative dimension size caused by subtracting {window} from {size}: the window "
                f"{ksize} is larger than '{label_of(value)}' ({value.dtype.name}) of shape "
                f"{value.shape}"
            )


def _max_pool_depth(value: Tensor, ksize: list[int], strides: list[int], name: str) -> Tensor:
    """The largest of each group of channels. UnimplementedError for anything but whole groups."""
    size, depth = ksize[3], value.shape._size_at(-1) if value.shape.ndims else None
    why = None
    if ksize[1:3] != [1, 1] or strides[1:3] != [1, 1]:
        why = "supports exactly one of pooling across depth or pooling across width/height"
    elif size != strides[3]:
        why = "across depth requires the depth window to equal the depth stride"
    elif depth is None or depth % size:
        why = f"across depth requires the depth window to evenly divide the input depth, {depth}"
    if why is not None:
        raise UnimplementedError(
            None, None, f"MaxPooling {why}: ksize is {ksize}, strides are {strides}"
        )
    groups = array.reshape(value, array.concat([array.shape(value)[:-1], [depth // size, size]], 0))
    result = reduce.reduce_max(groups, -1, name=name)
    result.set_shape([*value.shape.as_list()[:-1], depth // size])
    return result


@export(v1=("nn.avg_pool", "nn.avg_pool2d"))
def avg_pool(
    value: Any = None, ksize: Any = None, strides: Any = None, padding: Any = None,
    data_format: str | None = "NHWC", name: str | None = None, input: Any = None,
) -> Tensor:  # fmt: skip
    """The mean of each window, of those elements that are there."""
    value = value if input is None else input
    with name_scope(name, "AvgPool", [value]) as scope:
        value = convert_to_tensor(value, name="input")
        ksize = sequence(ksize, 2, data_format, "ksize")
        strides = sequence(strides, 2, data_format, "strides")
        _check_batch(ksize, strides)
        _check_fits(value, ksize, padding)
        return gen_ops.avg_pool(
            value, ksize=ksize, strides=strides, padding=_plain(padding),
            data_format=data_format or "NHWC", name=scope,
        )  # fmt: skip


avg_pool_v2 = export(v2=("nn.avg_pool", "nn.avg_pool2d"))(
    reordered(avg_pool, "input ksize strides padding data_format name")
)


def _plain(padding: Any) -> str:
    kind, _ = padding_attrs(padding)
    if kind == "EXPLICIT":
        raise ValueError('Pooling takes the paddings "SAME" and "VALID", not sizes')
    return kind


@export(v1="nn.max_pool2d", v2="nn.max_pool2d")
def max_pool2d(
    input: Any, ksize: Any, strides: Any, padding: Any, data_format: str = "NHWC",
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """As `max_pool`."""
    with name_scope(name, "MaxPool2d", [input]) as scope:
        return max_pool(input, ksize, strides, padding, data_format, scope)


def _pool1d(op: Any, default: str, input: Any, ksize: Any, strides: Any, padding: Any,
            data_format: str | None, name: str | None) -> Tensor:  # fmt: skip
    with name_scope(name, default, [input]) as scope:
        first = is_channels_first(data_format)
        axis = 2 if first else 1
        sizes = sequence(ksize, 1, data_format, "ksize")
        steps = sequence(strides, 1, data_format, "strides")
        result = op(
            array.expand_dims(input, axis), [*sizes[:axis], 1, *sizes[axis:]],
            [*steps[:axis], 1, *steps[axis:]], padding, "NCHW" if first else "NHWC",
        )  # fmt: skip
        return array.squeeze(result, [axis], name=scope)


@export(v1="nn.max_pool1d", v2="nn.max_pool1d")
def max_pool1d(
    input: Any, ksize: Any, strides: Any, padding: Any, data_format: str = "NWC",
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """The largest element of each window of [batch, width, channels]."""
    return _pool1d(max_pool, "MaxPool1d", input, ksize, strides, padding, data_format, name)


@export(v1="nn.avg_pool1d", v2="nn.avg_pool1d")
def avg_pool1d(
    input: Any, ksize: Any, strides: Any, padding: Any, data_format: str = "NWC",
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """The mean of each window of [batch, width, channels]."""
    return _pool1d(avg_pool, "AvgPool1D", input, ksize, strides, padding, data_format, name)


@export(v1="nn.max_pool3d", v2="nn.max_pool3d")
def max_pool3d(
    input: Any, ksize: Any, strides: Any, padding: Any, data_format: str | None = "NDHWC",
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """The largest element of each window of [batch, depth, height, width, channels]."""
    with name_scope(name, "MaxPool3D", [input]) as scope:
        return gen_ops.max_pool3d(
            convert_to_tensor(input, name="input"),
            ksize=sequence(ksize, 3, data_format, "ksize"),
            strides=sequence(strides, 3, data_format, "strides"), padding=_plain(padding),
            data_format=data_format or "NDHWC", name=scope,
        )  # fmt: skip


@export(v1="nn.avg_pool3d", v2="nn.avg_pool3d")
def avg_pool3d(
    input: Any, ksize: Any, strides: Any, padding: Any, data_format: str | None = "NDHWC",
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """The mean of each window of [batch, depth, height, width, channels]."""
    with name_scope(name, "AvgPool3D", [input]) as scope:
        return gen_ops.avg_pool3d(
            convert_to_tensor(input, name="input"),
            ksize=sequence(ksize, 3, data_format, "ksize"),
            strides=sequence(strides, 3, data_format, "strides"), padding=_plain(padding),
            data_format=data_format or "NDHWC", name=scope,
        )  # fmt: skip


@export(v1="nn.max_pool_with_argmax")
def max_pool_with_argmax(
    input: Any, ksize: Any, strides: Any, padding: Any, data_format: str | None = "NHWC",
    Targmax: Any = None, name: str | None = None, output_dtype: Any = None,
    include_batch_in_index: bool = False,
) -> Any:  # fmt: skip
    """The largest element of each window, and where in its image it stands."""
    if data_format not in (None, "NHWC"):
        raise ValueError(f"max_pool_with_argmax: data_format must be NHWC, got {data_format!r}")
    kind = Targmax if output_dtype is None else output_dtype
    return gen_ops.max_pool_with_argmax(
        input, ksize=sequence(ksize, 2, data_format, "ksize"),
        strides=sequence(strides, 2, data_format, "strides"),
        Targmax=dtypes.int64 if kind is None else kind, padding=_plain(padding),
        include_batch_in_index=include_batch_in_index, name=name,
    )  # fmt: skip


max_pool_with_argmax_v2 = export(v2="nn.max_pool_with_argmax")(
    reordered(
        max_pool_with_argmax,
        "input ksize strides padding data_format output_dtype include_batch_in_index name",
    )
)


def _fractional(op: str, value: Any, ratio: Any, pseudo_random: Any, overlapping: Any,
                deterministic: Any, seed: Any, seed2: Any, name: str | None) -> Any:  # fmt: skip
    return getattr(gen_ops, op)(
        value, pooling_ratio=[float(r) for r in ratio], pseudo_random=bool(pseudo_random),
        overlapping=bool(overlapping), deterministic=bool(deterministic), seed=seed or 0,
        seed2=seed2 or 0, name=name,
    )  # fmt: skip


@export(v1="nn.fractional_max_pool")
def fractional_max_pool(
    value: Any, pooling_ratio: Any, pseudo_random: bool | None = False,
    overlapping: bool | None = False, deterministic: bool | None = False, seed: int | None = 0,
    seed2: int | None = 0, name: str | None = None,
) -> Any:  # fmt: skip
    """Max pooling by ratios that need not be whole, over windows placed at random."""
    return _fractional("fractional_max_pool", value, pooling_ratio, pseudo_random, overlapping,
                       deterministic, seed, seed2, name)  # fmt: skip


fractional_max_pool_v2 = export(v2="nn.fractional_max_pool")(
    reordered(fractional_max_pool, "value pooling_ratio pseudo_random overlapping seed name")
)


@export(v1="nn.fractional_avg_pool")
def fractional_avg_pool(
    value: Any, pooling_ratio: Any, pseudo_random: bool | None = False,
    overlapping: bool | None = False, deterministic: bool | None = False, seed: int | None = 0,
    seed2: int | None = 0, name: str | None = None,
) -> Any:  # fmt: skip
    """Average pooling by ratios that need not be whole, over windows placed at random."""
    return _fractional("fractional_avg_pool", value, pooling_ratio, pseudo_random, overlapping,
                       deterministic, seed, seed2, name)  # fmt: skip


fractional_avg_pool_v2 = export(v2="nn.fractional_avg_pool")(
    reordered(fractional_avg_pool, "value pooling_ratio pseudo_random overlapping seed name")
)


@export(v1="nn.pool")
def pool(
    input: Any, window_shape: Any, pooling_type: str, padding: str, dilation_rate: Any = None,
    strides: Any = None, name: str | None = None, data_format: str | None = None,
    dilations: Any = None,
) -> Tensor:  # fmt: skip
    """Pooling over one, two or three spatial dimensions: `pooling_type` is "AVG" or "MAX".

    `strides` and `dilation_rate` have one size per spatial dimension; only one of the two may be
    above one, and "SAME" goes without dilation.
    """
    dilation_rate = dilation_rate if dilations is None else dilations
    if pooling_type not in ("AVG", "MAX"):
        raise ValueError(f'pooling_type must be "AVG" or "MAX", got {pooling_type!r}')
    with name_scope(name, f"{pooling_type.lower()}_pool", [input]) as scope:
        input = convert_to_tensor(input, name="input")
        count = len(window_shape)
        if not 1 <= count <= 3:
            raise ValueError(f"It is required that 1 <= num_spatial_dims <= 3, got {count}")
        input.shape.assert_has_rank(count + 2)
        steps, rate = strides_and_dilations(count, strides, dilation_rate)
        if padding == "SAME" and (rate > 1).any():
            raise ValueError("pooling with SAME padding is not implemented for dilation_rate > 1")
        window = spatial_sizes(count, window_shape, "window_shape")
        if (steps > window).any():
            raise ValueError(
                "strides > window_shape not supported due to inconsistency between CPU and GPU "
                f"implementations: strides={steps.tolist()}, window_shape={window.tolist()}"
            )
        ops = {
            ("AVG", 1): avg_pool1d, ("AVG", 2): avg_pool, ("AVG", 3): avg_pool3d,
            ("MAX", 1): max_pool1d, ("MAX", 2): max_pool, ("MAX", 3): max_pool3d,
        }  # fmt: skip
        op = ops[(pooling_type, count)]
        default = {1: "NWC", 2: "NHWC", 3: "NDHWC"}[count]

        def plain(x: Tensor, _: int, how: str) -> Tensor:
            return op(x, window.tolist(), steps.tolist(), how, data_format or default, name=scope)

        return with_space_to_batch(
            input, rate, padding, plain, window.tolist(), data_format=data_format
        )


pool_v2 = export(v2="nn.pool")(
    reordered(pool, "input window_shape pooling_type strides padding data_format dilations name")
)
