"""Moments, and normalisation by them."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.arguments import reordered
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.ops import array, gather, math, reduce

_SMALL = (dtypes.float16, dtypes.bfloat16)


def _squeezed(x: Tensor, axes: Any) -> Tensor:
    """Without the dimensions `axes`, which are of size one."""
    if isinstance(axes, Tensor):
        kept = reduce.reduction_dims(x, None)
        kept = gen_ops.list_diff(kept, axes % array.rank(x)).out
        return array.reshape(x, gather.gather(array.shape(x), kept))
    return array.squeeze(x, [axes] if isinstance(axes, int) else list(axes))


@export(v1="nn.moments")
def moments(
    x: Any, axes: Any, shift: Any = None, name: str | None = None, keep_dims: bool | None = None,
    keepdims: bool | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The mean and the variance of x over `axes`. `shift` is not used."""
    del shift
    keeps = reduce.keeps(keepdims, keep_dims)
    with name_scope(name, "moments", [x, axes]):
        x = convert_to_tensor(x, name="x")
        y = math.cast(x, dtypes.float32) if x.dtype.base_dtype in _SMALL else x
        mean = reduce.reduce_mean(y, axes, keepdims=True, name="mean")
        apart = math.squared_difference(y, gen_ops.stop_gradient(mean))
        variance = reduce.reduce_mean(apart, axes, keepdims=True, name="variance")
        if not keeps:
            mean, variance = _squeezed(mean, axes), _squeezed(variance, axes)
        if y is not x:
            mean, variance = math.cast(mean, x.dtype), math.cast(variance, x.dtype)
        return mean, variance


moments_v2 = export(v2="nn.moments")(reordered(moments, "x axes shift keepdims name"))


@export(v1="nn.weighted_moments")
def weighted_moments(
    x: Any, axes: Any, frequency_weights: Any, name: str | None = None,
    keep_dims: bool | None = None, keepdims: bool | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The mean and the variance of x over `axes`, each element counting as often as its weight."""
    keeps = reduce.keeps(keepdims, keep_dims)
    with name_scope(name, "weighted_moments", [x, frequency_weights, axes]):
        x = convert_to_tensor(x, name="x")
        weights = convert_to_tensor(frequency_weights, name="frequency_weights")
        small = x.dtype.base_dtype in _SMALL
        y = math.cast(x, dtypes.float32) if small else x
        if weights.dtype.base_dtype != y.dtype.base_dtype:
            weights = math.cast(weights, y.dtype.base_dtype)
        # Weights may be smaller than x: their sum is that of as many as x has.
        wide = weights + array.zeros_like(y)
        total = reduce.reduce_sum(wide, axes, keepdims=True, name="sum_of_weights")
        share = math.reciprocal(total)
        mean = reduce.reduce_sum(wide * y, axes, keepdims=True) * share
        apart = math.squared_difference(y, gen_ops.stop_gradient(mean))
        variance = reduce.reduce_sum(wide * apart, axes, keepdims=True) * share
        if not keeps:
            mean, variance = _squeezed(mean, axes), _squeezed(variance, axes)
        if small:
            mean, variance = math.cast(mean, x.dtype), math.cast(variance, x.dtype)
        return mean, variance


weighted_moments_v2 = export(v2="nn.weighted_moments")(
    reordered(weighted_moments, "x axes frequency_weights keepdims name")
)


@export(v1="nn.sufficient_statistics")
def sufficient_statistics(
    x: Any, axes: Any, shift: Any = None, keep_dims: bool | None = None, name: str | None = None,
    keepdims: bool | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:  # fmt: skip
    """What moments are made of: (count, sum, sum of squares, shift), x being taken less `shift`."""
    keeps = reduce.keeps(keepdims, keep_dims)
    axes = list({axes} if isinstance(axes, int) else dict.fromkeys(axes))
    with name_scope(name, "sufficient_statistics", [x, shift]):
        x = convert_to_tensor(x, name="x")
        known = x.shape
        if known.ndims is not None and all(known._size_at(d) is not None for d in axes):
            counted = 1
            for d in axes:
                counted *= known._size_at(d)
            counts = convert_to_tensor(counted, dtype=x.dtype, name="count")
        else:
            rank = array.rank(x)
            places = [d + rank if d < 0 else d for d in axes]
            sizes = gather.gather(math.cast(array.shape(x), x.dtype), places)
            counts = reduce.reduce_prod(sizes, name="count")
        if shift is not None:
            shift = convert_to_tensor(shift, name="shift")
            first = math.subtract(x, shift)
            second = math.squared_difference(x, shift)
        else:
            first, second = x, math.square(x)
        mean_ss = reduce.reduce_sum(first, axes, keepdims=keeps, name="mean_ss")
        variance_ss = reduce.reduce_sum(second, axes, keepdims=keeps, name="var_ss")
    return counts, mean_ss, variance_ss, shift


sufficient_statistics_v2 = export(v2="nn.sufficient_statistics")(
    reordered(sufficient_statistics, "x axes shift keepdims name")
)


@export(v1="nn.normalize_moments", v2="nn.normalize_moments")
def normalize_moments(
    counts: Any, mean_ss: Any, variance_ss: Any, shift: Any, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """The mean and the variance of what `sufficient_statistics` gave."""
    with name_scope(name, "normalize", [counts, mean_ss, variance_ss, shift]):
        share = math.reciprocal(counts, name="divisor")
        if shift is not None:
            shifted = math.multiply(mean_ss, share, name="shifted_mean")
            mean = math.add(shifted, shift, name="mean")
        else:
            shifted = math.multiply(mean_ss, share, name="mean")
            mean = shifted
        variance = math.subtract(
            math.multiply(variance_ss, share), math.square(shifted), name="variance"
        )
    return mean, variance


@export(v1="nn.batch_normalization", v2="nn.batch_normalization")
def batch_normalization(
    x: Any, mean: Any, variance: Any, offset: Any, scale: Any, variance_epsilon: Any,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """(x - mean) / sqrt(variance + epsilon) * scale + offset. Scale and offset may be None."""
    with name_scope(name, "batchnorm", [x, mean, variance, scale, offset]):
        x = convert_to_tensor(x)
        mean = convert_to_tensor(mean)
        inverse = math.rsqrt(convert_to_tensor(variance) + variance_epsilon)
        if scale is not None:
            inverse = inverse * scale
        centred = -mean * inverse if offset is None else offset - mean * inverse
        return x * math.cast(inverse, x.dtype) + math.cast(centred, x.dtype)


@export(v1="nn.fused_batch_norm")
def fused_batch_norm(
    x: Any, scale: Any, offset: Any, mean: Any = None, variance: Any = None,
    epsilon: float = 0.001, data_format: str = "NHWC", is_training: bool = True,
    name: str | None = None, exponential_avg_factor: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Batch normalisation of images by one op: (y, mean, variance).

    In training, the moments are those of the batch (averaged into `mean` and `variance` where
    `exponential_avg_factor` is below one); otherwise those given. ValueError when they are missing,
    or given without a use.
    """
    if is_training and exponential_avg_factor == 1.0:
        if mean is not None or variance is not None:
            raise ValueError(
                "Both 'mean' and 'variance' must be None when is_training is True and "
                "exponential_avg_factor == 1.0."
            )
    elif mean is None or variance is None:
        raise ValueError(
            "Both 'mean' and 'variance' must be a 1D tensor when is_training is False or "
            "exponential_avg_factor != 1.0."
        )
    x = convert_to_tensor(x, name="input")
    scale = convert_to_tensor(scale, name="scale")
    offset = convert_to_tensor(offset, name="offset")
    if mean is None:
        mean = convert_to_tensor([], dtype=scale.dtype.base_dtype)
    if variance is None:
        variance = convert_to_tensor([], dtype=scale.dtype.base_dtype)
    # Smaller values are raised, as libraries for GPUs demand.
    epsilon = max(epsilon, 1.001e-5)
    result = gen_ops.fused_batch_norm_v3(
        x, scale, offset, mean, variance, epsilon=epsilon,
        exponential_avg_factor=exponential_avg_factor, data_format=data_format,
        is_training=is_training, name=name,
    )  # fmt: skip
    return result[0], result[1], result[2]


@export(v1="nn.batch_norm_with_global_normalization")
def batch_norm_with_global_normalization(
    t: Any = None, m: Any = None, v: Any = None, beta: Any = None, gamma: Any = None,
    variance_epsilon: Any = None, scale_after_normalization: bool | None = None,
    name: str | None = None, input: Any = None, mean: Any = None, variance: Any = None,
) -> Tensor:  # fmt: skip
    """`batch_normalization`, multiplied by gamma only where `scale_after_normalization`."""
    t = t if input is None else input
    m = m if mean is None else mean
    v = v if variance is None else variance
    scale = gamma if scale_after_normalization else None
    return batch_normalization(t, m, v, beta, scale, variance_epsilon, name)


batch_norm_with_global_normalization_v2 = export(v2="nn.batch_norm_with_global_normalization")(
    reordered(
        batch_norm_with_global_normalization,
        "input mean variance beta gamma variance_epsilon scale_after_normalization name",
    )
)


@export(
    v1=("nn.lrn", "nn.local_response_normalization"),
    v2=("nn.lrn", "nn.local_response_normalization"),
)
def lrn(
    input: Any, depth_radius: int | None = 5, bias: float | None = 1.0,
    alpha: float | None = 1.0, beta: float | None = 0.5, name: str | None = None,
) -> Tensor:  # fmt: skip
    """Divides each element by (bias + alpha * sum of squares of its neighbours)^beta; neighbours
    are the channels within `depth_radius`."""
    return gen_ops.lrn(
        input, depth_radius=5 if depth_radius is None else depth_radius,
        bias=1.0 if bias is None else bias, alpha=1.0 if alpha is None else alpha,
        beta=0.5 if beta is None else beta, name=name,
    )  # fmt: skip


@export(
    v1=("nn.l2_normalize", "math.l2_normalize", "linalg.l2_normalize"),
    v2=("nn.l2_normalize", "math.l2_normalize", "linalg.l2_normalize"),
)
def l2_normalize(
    x: Any, axis: Any = None, epsilon: float = 1e-12, name: str | None = None, dim: Any = None
) -> Tensor:
    """x divided by its L2 norm along `axis`; by the root of epsilon at least."""
    along = axis if axis is not None else dim
    with name_scope(name, "l2_normalize", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        square = math.real(x * math.conj(x)) if x.dtype.is_complex else math.square(x)
        total = reduce.reduce_sum(square, along, keepdims=True)
        inverse = math.rsqrt(math.maximum(total, epsilon))
        if x.dtype.is_complex:
            return math.complex(math.real(x) * inverse, math.imag(x) * inverse, name=scope)
        return math.multiply(x, inverse, name=scope)
