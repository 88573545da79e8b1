"""Convolutions and pooling."""

from typing import Any

from millrace.compat.v1.contrib.arg_scope import add_arg_scope
from millrace.compat.v1.contrib.layer_outputs import (
    DATA_FORMAT_NHWC,
    RENAMED,
    XAVIER,
    ZEROS,
    collect_named_outputs,
    finished,
    variable_getter,
)
from millrace.compat.v1.layers import convolutional
from millrace.compat.v1.layers.sizes import normalize_tuple
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.ops.nn import activations, depthwise_conv, pool
from millrace.state.variable_scope import get_variable, variable_scope


def _channels(data_format: str | None) -> str:
    first = data_format is not None and data_format.startswith("NC")
    return "channels_first" if first else "channels_last"


@export(
    v1=(
        "contrib.layers.conv2d",
        "contrib.layers.convolution",
        "contrib.layers.convolution2d",
        "contrib.layers.conv1d",
        "contrib.layers.conv3d",
        "contrib.layers.convolution1d",
        "contrib.layers.convolution3d",
        "contrib.slim.conv2d",
        "contrib.slim.convolution",
        "contrib.slim.convolution2d",
        "contrib.slim.conv1d",
        "contrib.slim.conv3d",
        "contrib.slim.convolution1d",
        "contrib.slim.convolution3d",
    )
)
@add_arg_scope
def convolution(
    inputs: Any, num_outputs: int, kernel_size: Any, stride: Any = 1, padding: str = "SAME",
    data_format: str | None = None, rate: Any = 1, activation_fn: Any = activations.relu,
    normalizer_fn: Any = None, normalizer_params: Any = None,
    weights_initializer: Any = XAVIER, weights_regularizer: Any = None,
    biases_initializer: Any = ZEROS, biases_regularizer: Any = None, reuse: Any = None,
    variables_collections: Any = None, outputs_collections: Any = None, trainable: bool = True,
    scope: Any = None,
) -> Tensor:  # fmt: skip
    """A convolution of one, two or three spatial dimensions, by the rank of the inputs.

    Arguments as for `fully_connected`; `rate` is how far apart elements of the filters lie.
    """
    allowed = (None, "NWC", "NCW", "NHWC", "NCHW", "NDHWC", "NCDHW")
    if data_format not in allowed:
        raise ValueError(f"Invalid data_format: {data_format!r}")
    getter = variable_getter(RENAMED, variables_collections)
    with variable_scope(scope, "Conv", [inputs], reuse=reuse, custom_getter=getter) as sc:
        inputs = convert_to_tensor(inputs)
        layers = {
            3: convolutional.Conv1D, 4: convolutional.Conv2D, 5: convolutional.Conv3D
        }  # fmt: skip
        if inputs.shape.ndims not in layers:
            raise ValueError(
                f"Convolution not supported for input with rank {inputs.shape.ndims}: "
                f"'{inputs.name}' of shape {inputs.shape}"
            )
        layer = layers[inputs.shape.ndims](
            num_outputs, kernel_size, stride, padding, _channels(data_format), rate,
            use_bias=normalizer_fn is None and biases_initializer is not None,
            kernel_initializer=weights_initializer, bias_initializer=biases_initializer,
            kernel_regularizer=weights_regularizer, bias_regularizer=biases_regularizer,
            trainable=trainable, name=sc.name, dtype=inputs.dtype.base_dtype, _scope=sc,
            _reuse=reuse,
        )  # fmt: skip
        outputs = layer(inputs)
        return finished(outputs, sc, activation_fn, normalizer_fn, normalizer_params,
                       outputs_collections)  # fmt: skip


@export(
    v1=(
        "contrib.layers.conv2d_transpose",
        "contrib.layers.convolution2d_transpose",
        "contrib.slim.conv2d_transpose",
        "contrib.slim.convolution2d_transpose",
    )
)
@add_arg_scope
def convolution2d_transpose(
    inputs: Any, num_outputs: int, kernel_size: Any, stride: Any = 1, padding: str = "SAME",
    data_format: str = DATA_FORMAT_NHWC, activation_fn: Any = activations.relu,
    normalizer_fn: Any = None, normalizer_params: Any = None,
    weights_initializer: Any = XAVIER, weights_regularizer: Any = None,
    biases_initializer: Any = ZEROS, biases_regularizer: Any = None, reuse: Any = None,
    variables_collections: Any = None, outputs_collections: Any = None, trainable: bool = True,
    scope: Any = None,
) -> Tensor:  # fmt: skip
    """The transpose of a convolution of images; arguments as for `convolution`."""
    getter = variable_getter(RENAMED, variables_collections)
    with variable_scope(
        scope, "Conv2d_transpose", [inputs], reuse=reuse, custom_getter=getter
    ) as sc:
        inputs = convert_to_tensor(inputs)
        layer = convolutional.Conv2DTranspose(
            num_outputs, kernel_size, stride, padding, _channels(data_format),
            use_bias=normalizer_fn is None and biases_initializer is not None,
            kernel_initializer=weights_initializer, bias_initializer=biases_initializer,
            kernel_regularizer=weights_regularizer, bias_regularizer=biases_regularizer,
            trainable=trainable, name=sc.name, dtype=inputs.dtype.base_dtype, _scope=sc,
            _reuse=reuse,
        )  # fmt: skip
        outputs = layer(inputs)
        return finished(outputs, sc, activation_fn, normalizer_fn, normalizer_params,
                       outputs_collections)  # fmt: skip


@export(
    v1=(
        "contrib.layers.separable_conv2d",
        "contrib.layers.separable_convolution2d",
        "contrib.slim.separable_conv2d",
        "contrib.slim.separable_convolution2d",
    )
)
@add_arg_scope
def separable_convolution2d(
    inputs: Any, num_outputs: int | None, kernel_size: Any, depth_multiplier: int = 1,
    stride: Any = 1, padding: str = "SAME", data_format: str = DATA_FORMAT_NHWC, rate: Any = 1,
    activation_fn: Any = activations.relu, normalizer_fn: Any = None,
    normalizer_params: Any = None, weights_initializer: Any = XAVIER,
    pointwise_initializer: Any = None, weights_regularizer: Any = None,
    biases_initializer: Any = ZEROS, biases_regularizer: Any = None, reuse: Any = None,
    variables_collections: Any = None, outputs_collections: Any = None, trainable: bool = True,
    scope: Any = None,
) -> Tensor:  # fmt: skip
    """A convolution of each channel, then one across channels unless `num_outputs` is None.

    Arguments as for `convolution`; `depth_multiplier` is how many channels come of each.
    """
    getter = variable_getter(RENAMED, variables_collections)
    with variable_scope(
        scope, "SeparableConv2d", [inputs], reuse=reuse, custom_getter=getter
    ) as sc:
        inputs = convert_to_tensor(inputs)
        with_bias = normalizer_fn is None and biases_initializer is not None
        if num_outputs is not None:
            layer = convolutional.SeparableConv2D(
                num_outputs, kernel_size, stride, padding, _channels(data_format), rate,
                depth_multiplier, use_bias=with_bias,
                depthwise_initializer=weights_initializer,
                pointwise_initializer=pointwise_initializer or weights_initializer,
                bias_initializer=biases_initializer, depthwise_regularizer=weights_regularizer,
                pointwise_regularizer=weights_regularizer, bias_regularizer=biases_regularizer,
                trainable=trainable, name=sc.name, dtype=inputs.dtype.base_dtype, _scope=sc,
                _reuse=reuse,
            )  # fmt: skip
            outputs = layer(inputs)
        else:
            channels = inputs.shape._size_at(1 if data_format.startswith("NC") else -1)
            weights = get_variable(
                "depthwise_weights", trainable=trainable, dtype=inputs.dtype.base_dtype,
                shape=[*normalize_tuple(kernel_size, 2, "kernel_size"), channels, depth_multiplier],
                initializer=weights_initializer, regularizer=weights_regularizer,
            )  # fmt: skip
            outputs = depthwise_conv.depthwise_conv2d(
                inputs, weights, normalize_tuple(stride, 2, "stride"), padding,
                rate=normalize_tuple(rate, 2, "rate"), data_format=data_format,
            )  # fmt: skip
            if with_bias:
                biases = get_variable(
                    "biases", shape=[channels * depth_multiplier], trainable=trainable,
                    dtype=inputs.dtype.base_dtype, initializer=biases_initializer,
                    regularizer=biases_regularizer,
                )  # fmt: skip
                outputs = activations.bias_add(outputs, biases, data_format=data_format)
        return finished(outputs, sc, activation_fn, normalizer_fn, normalizer_params,
                       outputs_collections)  # fmt: skip


def _pooled(
    op: Any, default: str, inputs: Any, kernel_size: Any, stride: Any, padding: str,
    data_format: str, outputs_collections: Any, scope: Any,
) -> Tensor:  # fmt: skip
    with name_scope(scope, default, [inputs]) as sc:
        kernel = [kernel_size] * 2 if isinstance(kernel_size, int) else list(kernel_size)
        steps = [stride] * 2 if isinstance(stride, int) else list(stride)
        outputs = op(convert_to_tensor(inputs), kernel, steps, padding, data_format)
        return collect_named_outputs(outputs_collections, sc.rstrip("/"), outputs)


@export(v1=("contrib.layers.max_pool2d", "contrib.slim.max_pool2d"))
@add_arg_scope
def max_pool2d(
    inputs: Any, kernel_size: Any, stride: Any = 2, padding: str = "VALID",
    data_format: str = DATA_FORMAT_NHWC, outputs_collections: Any = None, scope: Any = None,
) -> Tensor:  # fmt: skip
    """The largest element of each window of images."""
    return _pooled(pool.max_pool, "MaxPool2D", inputs, kernel_size, stride, padding, data_format,
                   outputs_collections, scope)  # fmt: skip


@export(v1=("contrib.layers.avg_pool2d", "contrib.slim.avg_pool2d"))
@add_arg_scope
def avg_pool2d(
    inputs: Any, kernel_size: Any, stride: Any = 2, padding: str = "VALID",
    data_format: str = DATA_FORMAT_NHWC, outputs_collections: Any = None, scope: Any = None,
) -> Tensor:  # fmt: skip
    """The mean of each window of images."""
    return _pooled(pool.avg_pool, "AvgPool2D", inputs, kernel_size, stride, padding, data_format,
                   outputs_collections, scope)  # fmt: skip
