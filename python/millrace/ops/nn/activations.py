"""Activations, dropout, and sums with biases."""

import numbers
from typing import Any

from millrace import gen_ops
from millrace.core.arguments import reordered
from millrace.core.errors import InvalidArgumentError
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor, label_of
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.static_value import constant_value
from millrace.ops import along, array, linalg, math, random, reduce

relu = export(v1="nn.relu", v2="nn.relu")(gen_ops.relu)
relu6 = export(v1="nn.relu6", v2="nn.relu6")(gen_ops.relu6)
elu = export(v1="nn.elu", v2="nn.elu")(gen_ops.elu)
selu = export(v1="nn.selu", v2="nn.selu")(gen_ops.selu)
softplus = export(v1=("nn.softplus", "math.softplus"), v2=("nn.softplus", "math.softplus"))(
    gen_ops.softplus
)
softsign = export(v1="nn.softsign", v2=("nn.softsign", "math.softsign"))(gen_ops.softsign)


@export(v2="nn.gelu")
def gelu(features: Any, approximate: bool = False, name: str | None = None) -> Tensor:
    """x times the probability that a normal number is below x; `approximate`: by tanh."""
    with name_scope(name, "Gelu", [features]):
        x = convert_to_tensor(features, name="features")
        if not x.dtype.is_floating:
            raise ValueError(
                f"`features.dtype` must be a floating point tensor. Received: {x.dtype.name}"
            )
        if approximate:
            inner = 0.7978845608028654 * (x + 0.044715 * (x * x * x))
            return 0.5 * x * (1.0 + gen_ops.tanh(inner))
        return 0.5 * x * (1.0 + gen_ops.erf(x * 0.7071067811865476))


@export(v1="nn.leaky_relu", v2="nn.leaky_relu")
def leaky_relu(features: Any, alpha: float = 0.2, name: str | None = None) -> Tensor:
    """x where it is positive, alpha * x elsewhere."""
    with name_scope(name, "LeakyRelu", [features]) as scope:
        features = convert_to_tensor(features, name="features")
        if features.dtype.is_integer:
            features = math.cast(features, "float32")
        return gen_ops.maximum(alpha * features, features, name=scope)


@export(v1=("nn.swish", "nn.silu"), v2=("nn.swish", "nn.silu"))
def swish(features: Any, beta: Any = 1.0) -> Tensor:
    """x * sigmoid(beta * x)."""
    with name_scope(None, "swish", [features]):
        features = convert_to_tensor(features, name="features")
        beta = convert_to_tensor(beta, dtype=features.dtype.base_dtype, name="beta")
        return features * gen_ops.sigmoid(beta * features)


@export(v1="nn.crelu")
def crelu(features: Any, name: str | None = None, axis: int = -1) -> Tensor:
    """relu(x) and relu(-x), joined along an axis."""
    with name_scope(name, "CRelu", [features]) as scope:
        features = convert_to_tensor(features, name="features")
        both = array.concat([features, -features], axis, name=scope)
        return gen_ops.relu(both)


crelu_v2 = export(v2="nn.crelu")(reordered(crelu, "features axis name"))


def _last_axis(op: Any, logits: Any, dim: int, name: str | None, default: str) -> Tensor:
    """An op on rows, along any axis of any rank."""
    logits = convert_to_tensor(logits)
    rank = logits.shape.ndims
    is_last = dim == -1 or (rank is not None and dim == rank - 1)
    if rank is not None and not -rank <= dim < rank:
        raise InvalidArgumentError(
            None,
            None,
            f"{default}: dim is {dim}, but the logits '{label_of(logits)}' ({logits.dtype.name}) "
            "have "
            f"shape {logits.shape}: expected -{rank} <= dim < {rank}",
        )
    if is_last and rank is not None and rank >= 1:
        return op(logits, name=name)
    with name_scope(name, default, [logits]) as scope:
        if is_last:
            return op(logits, name=scope)
        count = array.rank(logits)
        axis = dim % count if rank is None or dim < 0 else dim
        order = array.concat(
            [along.range(axis), [count - 1], along.range(axis + 1, count - 1), [axis]], 0
        )
        swapped = array.transpose(logits, order)
        result = array.transpose(op(swapped), order, name=scope)
        result.set_shape(logits.shape)
        return result


@export(v1=("nn.softmax", "math.softmax"), v2=("nn.softmax", "math.softmax"))
def softmax(logits: Any, axis: Any = None, name: str | None = None, dim: Any = None) -> Tensor:
    """exp(logits) divided by its sum along an axis, the last one by default."""
    along = axis if axis is not None else dim
    return _last_axis(gen_ops.softmax, logits, -1 if along is None else along, name, "Softmax")


@export(v1=("nn.log_softmax", "math.log_softmax"), v2=("nn.log_softmax", "math.log_softmax"))
def log_softmax(logits: Any, axis: Any = None, name: str | None = None, dim: Any = None) -> Tensor:
    """The logarithm of `softmax`, accurate where that is small."""
    along = axis if axis is not None else dim
    return _last_axis(
        gen_ops.log_softmax, logits, -1 if along is None else along, name, "LogSoftmax"
    )


@export(v1="nn.dropout")
def dropout(
    x: Any, keep_prob: Any = None, noise_shape: Any = None, seed: Any = None,
    name: str | None = None, rate: Any = None,
) -> Tensor:  # fmt: skip
    """Keeps each element with probability `keep_prob`, scaled by 1 / keep_prob; zero otherwise.

    `noise_shape`: dimensions of size 1 share their choice. `rate` is 1 - keep_prob. ValueError for
    a probability outside of (0, 1].
    """
    if keep_prob is None:
        if rate is None:
            raise ValueError("dropout: give keep_prob or rate")
        keep_prob = 1 - rate
    with name_scope(name, "dropout", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        if not x.dtype.is_floating:
            raise ValueError(
                f"x has to be a floating point tensor since it's going to be scaled. Got a "
                f"{x.dtype.name} tensor instead ('{label_of(x)}', shape {x.shape})."
            )
        if isinstance(keep_prob, numbers.Real) and not 0 < keep_prob <= 1:
            raise ValueError(
                "keep_prob must be a scalar tensor or a float in the range (0, 1], got "
                f"{keep_prob:g}"
            )
        keep_prob = convert_to_tensor(keep_prob, dtype=x.dtype.base_dtype, name="keep_prob")
        keep_prob.shape.assert_is_compatible_with([])
        known = constant_value(keep_prob)
        if known is not None and known == 1:
            return x
        shape = _noise_shape(x, noise_shape)
        kept = keep_prob + random.random_uniform(shape, seed=seed, dtype=x.dtype.base_dtype)
        result = gen_ops.mul(gen_ops.real_div(x, keep_prob), gen_ops.floor(kept), name=scope)
        result.set_shape(x.shape)
        return result


dropout_v2 = export(v2="nn.dropout")(reordered(dropout, "x rate noise_shape seed name"))


def _noise_shape(x: Tensor, noise_shape: Any) -> Any:
    if noise_shape is None:
        return array.shape(x)
    if isinstance(noise_shape, (list, tuple, TensorShape)):
        sizes = [getattr(n, "value", n) for n in noise_shape]
        if any(n is None for n in sizes) and x.shape.ndims == len(sizes):
            actual = array.shape(x)
            return array.stack([actual[i] if n is None else n for i, n in enumerate(sizes)])
    return noise_shape


@export(v1="nn.bias_add", v2="nn.bias_add")
def bias_add(
    value: Any, bias: Any, data_format: str | None = None, name: str | None = None
) -> Tensor:
    """Adds a vector along the channels: the last dimension, or the second one for "NCHW"."""
    if data_format is not None:
        if data_format not in ("NHWC", "NCHW", "NWC", "NCW", "NDHWC", "NCDHW"):
            raise ValueError(
                f"data_format must be of the form `N...C` or `NC...`, got {data_format!r}"
            )
        data_format = "NCHW" if data_format.startswith("NC") else "NHWC"
    with name_scope(name, "BiasAdd", [value, bias]) as scope:
        value = convert_to_tensor(value, name="input")
        bias = convert_to_tensor(bias, dtype=value.dtype.base_dtype, name="bias")
        return gen_ops.bias_add(value, bias, data_format or "NHWC", name=scope)


@export(v1="nn.xw_plus_b")
def xw_plus_b(x: Any, weights: Any, biases: Any, name: str | None = None) -> Tensor:
    """x * weights + biases."""
    with name_scope(name, "xw_plus_b", [x, weights, biases]) as scope:
        return gen_ops.bias_add(linalg.matmul(x, weights), biases, name=scope)


@export(v1="nn.relu_layer")
def relu_layer(x: Any, weights: Any, biases: Any, name: str | None = None) -> Tensor:
    """relu(x * weights + biases)."""
    with name_scope(name, "relu_layer", [x, weights, biases]) as scope:
        return gen_ops.relu(gen_ops.bias_add(linalg.matmul(x, weights), biases), name=scope)


l2_loss = export(v1="nn.l2_loss", v2="nn.l2_loss")(gen_ops.l2_loss)


@export(
    v1=("nn.zero_fraction", "math.zero_fraction"), v2=("nn.zero_fraction", "math.zero_fraction")
)
def zero_fraction(value: Any, name: str | None = None) -> Tensor:
    """The share of elements that are zero."""
    with name_scope(name, "zero_fraction", [value]):
        value = convert_to_tensor(value, name="value")
        zero = convert_to_tensor(0, dtype=value.dtype.base_dtype, name="zero")
        return reduce.reduce_mean(math.cast(math.equal(value, zero), "float32"))


@export(v1=("nn.top_k", "math.top_k"), v2=("nn.top_k", "math.top_k"))
def top_k(input: Any, k: Any = 1, sorted: bool = True, name: str | None = None) -> Any:
    """The k largest elements of each row, and where they stand."""
    return gen_ops.top_kv2(input, k=k, sorted=sorted, name=name)


@export(v1=("nn.in_top_k", "math.in_top_k"))
def in_top_k(predictions: Any, targets: Any, k: Any, name: str | None = None) -> Tensor:
    """Whether the target is among the k largest predictions of its row."""
    with name_scope(name, "in_top_k"):
        return gen_ops.in_top_kv2(predictions, targets, k)


in_top_k_v2 = export(v2=("math.in_top_k", "nn.in_top_k"))(
    reordered(in_top_k, "targets predictions k name")
)
