"""Losses of weights, and how weights begin."""

import numbers
from typing import Any, Callable

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import constant, convert_to_tensor
from millrace.graph.default_graph import get_default_graph, name_scope
from millrace.graph.keys import GraphKeys
from millrace.ops import math, random, reduce
from millrace.state.initializers import Initializer


def _check_scale(scale: Any) -> None:
    if isinstance(scale, numbers.Integral):
        raise ValueError(f"scale cannot be an integer: {scale}")
    if isinstance(scale, numbers.Real) and scale < 0.0:
        raise ValueError(f"Setting a scale less than 0 on a regularizer: {scale:g}")


def _nothing(_: Any) -> None:
    """No loss."""


@export(v1=("contrib.layers.l1_regularizer", "contrib.slim.l1_regularizer"))
def l1_regularizer(scale: float, scope: str | None = None) -> Callable[[Any], Any]:
    """A function that gives scale * sum |weights|. ValueError for a negative scale."""
    _check_scale(scale)
    if scale == 0.0:
        return _nothing

    def l1(weights: Any, name: str | None = None) -> Tensor:
        with name_scope(scope or name, "l1_regularizer", [weights]) as opened:
            weights = convert_to_tensor(weights)
            factor = convert_to_tensor(scale, dtype=weights.dtype.base_dtype, name="scale")
            return math.multiply(factor, reduce.reduce_sum(math.abs(weights)), name=opened)

    return l1


@export(v1=("contrib.layers.l2_regularizer", "contrib.slim.l2_regularizer"))
def l2_regularizer(scale: float, scope: str | None = None) -> Callable[[Any], Any]:
    """A function that gives scale * sum weights^2 / 2. ValueError for a negative scale."""
    _check_scale(scale)
    if scale == 0.0:
        return _nothing

    def l2(weights: Any) -> Tensor:
        with name_scope(scope, "l2_regularizer", [weights]) as opened:
            weights = convert_to_tensor(weights)
            factor = convert_to_tensor(scale, dtype=weights.dtype.base_dtype, name="scale")
            return math.multiply(factor, gen_ops.l2_loss(weights), name=opened)

    return l2


@export(v1=("contrib.layers.sum_regularizer", "contrib.slim.sum_regularizer"))
def sum_regularizer(regularizer_list: Any, scope: str | None = None) -> Any:
    """A function that gives the sum of what others do; None of no others."""
    regularizers = [r for r in regularizer_list if r is not None]
    if not regularizers:
        return None

    def total(weights: Any) -> Any:
        with name_scope(scope, "sum_regularizer", [weights]) as opened:
            losses = [regularizer(weights) for regularizer in regularizers]
            losses = [loss for loss in losses if loss is not None]
            return math.add_n(losses, name=opened) if losses else None

    return total


@export(v1=("contrib.layers.l1_l2_regularizer", "contrib.slim.l1_l2_regularizer"))
def l1_l2_regularizer(
    scale_l1: float = 1.0, scale_l2: float = 1.0, scope: str | None = None
) -> Callable[[Any], Any]:
    """A function that gives the losses of `l1_regularizer` and `l2_regularizer` together."""
    scope = scope or "l1_l2_regularizer"
    if scale_l1 == 0.0:
        return l2_regularizer(scale_l2, scope)
    if scale_l2 == 0.0:
        return l1_regularizer(scale_l1, scope)
    return sum_regularizer([l1_regularizer(scale_l1), l2_regularizer(scale_l2)], scope=scope)


@export(v1=("contrib.layers.apply_regularization", "contrib.slim.apply_regularization"))
def apply_regularization(regularizer: Callable[[Any], Any], weights_list: Any = None) -> Tensor:
    """The sum of a regularizer's losses of weights, those of the collection WEIGHTS by default."""
    graph = get_default_graph()
    if not weights_list:
        weights_list = graph.get_collection(GraphKeys.WEIGHTS)
    if not weights_list:
        raise ValueError("No weights to regularize.")
    with name_scope(None, "get_regularization_penalty", weights_list) as scope:
        losses = [regularizer(w) for w in weights_list]
        losses = [constant(0.0) if loss is None else loss for loss in losses]
        if any(loss.shape.ndims != 0 for loss in losses):
            raise ValueError("regularizer must return a scalar Tensor instead of a Tensor.")
        total = math.add_n(losses, name=scope)
        graph.add_to_collection(GraphKeys.REGULARIZATION_LOSSES, total)
        return total


@export(
    v1=(
        "contrib.layers.variance_scaling_initializer",
        "contrib.slim.variance_scaling_initializer",
        "contrib.slim.initializers.variance_scaling_initializer",
    )
)
def variance_scaling_initializer(
    factor: float = 2.0, mode: str = "FAN_IN", uniform: bool = False, seed: int | None = None,
    dtype: Any = dtypes.float32,
) -> Any:  # fmt: skip
    """Random values of a variance of factor / n; n is what `mode` says: "FAN_IN", "FAN_OUT" or
    "FAN_AVG"."""
    if not dtypes.as_dtype(dtype).is_floating:
        raise TypeError("Cannot create initializer for non-floating point type.")
    if mode not in ("FAN_IN", "FAN_OUT", "FAN_AVG"):
        raise TypeError(f"Unknown mode {mode} [FAN_IN, FAN_OUT, FAN_AVG]")
    return _Scaled(factor, mode, uniform, seed, dtypes.as_dtype(dtype))


class _Scaled(Initializer):
    """Its truncated normal distribution has a deviation of sqrt(1.3 * factor / n) before it is
    cut, which is narrower after."""

    def __init__(self, factor: float, mode: str, uniform: bool, seed: Any, dtype: Any):
        self._arguments = (factor, mode, uniform, seed)
        self.dtype = dtype

    def __call__(self, shape: Any, dtype: Any = None, partition_info: Any = None) -> Any:
        factor, mode, uniform, seed = self._arguments
        dtype = dtypes.as_dtype(self.dtype if dtype is None else dtype)
        whole = shape if partition_info is None else partition_info.full_shape
        sizes = [float(n) for n in whole]
        fan_in = sizes[-2] if len(sizes) > 1 else (sizes[-1] if sizes else 1.0)
        fan_out = sizes[-1] if sizes else 1.0
        for size in sizes[:-2]:
            fan_in, fan_out = fan_in * size, fan_out * size
        n = {"FAN_IN": fan_in, "FAN_OUT": fan_out, "FAN_AVG": (fan_in + fan_out) / 2.0}[mode]
        if uniform:
            limit = (3.0 * factor / n) ** 0.5
            return random.random_uniform(shape, -limit, limit, dtype, seed=seed)
        return random.truncated_normal(shape, 0.0, (1.3 * factor / n) ** 0.5, dtype, seed=seed)


@export(
    v1=(
        "contrib.layers.xavier_initializer",
        "contrib.layers.xavier_initializer_conv2d",
        "contrib.slim.xavier_initializer",
        "contrib.slim.xavier_initializer_conv2d",
        "contrib.slim.initializers.xavier_initializer",
    )
)
def xavier_initializer(
    uniform: bool = True, seed: int | None = None, dtype: Any = dtypes.float32
) -> Any:
    """Random values whose variance is 2 / (inputs + outputs)."""
    return variance_scaling_initializer(1.0, "FAN_AVG", uniform, seed, dtype)
