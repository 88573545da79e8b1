"""Layers of convolutions."""

from typing import Any

import numpy as np

from millrace.compat.v1.layers.base import InputSpec, Layer
from millrace.compat.v1.layers.functional import applied_once
from millrace.compat.v1.layers.sizes import (  # fmt: skip
    conv_output_length,
    deconv_output_length,
    native_format,
    normalize_data_format,
    normalize_padding,
    normalize_tuple,
)
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.ops import array
from millrace.ops.nn import activations, conv, depthwise_conv, dilated_conv
from millrace.ops.sizes import sizes_of
from millrace.state.initializers import Zeros

_ZEROS = Zeros()


class _Conv(Layer):
    """A convolution of `rank` spatial dimensions: activation(convolution(inputs, kernel) + bias).

    Args:
      filters: the number of channels of the output.
      kernel_size, strides, dilation_rate: one size, or one per spatial dimension.
      padding: "valid" or "same".
      data_format: "channels_last" or "channels_first".
    """

    rank: int

    def __init__(
        self, filters: int, kernel_size: Any, strides: Any = 1, padding: str = "valid",
        data_format: str = "channels_last", dilation_rate: Any = 1, activation: Any = None,
        use_bias: bool = True, kernel_initializer: Any = None, bias_initializer: Any = _ZEROS,
        kernel_regularizer: Any = None, bias_regularizer: Any = None,
        activity_regularizer: Any = None, kernel_constraint: Any = None,
        bias_constraint: Any = None, trainable: bool = True, name: str | None = None,
        **kwargs: Any,
    ):  # fmt: skip
        super().__init__(
            trainable=trainable, name=name, activity_regularizer=activity_regularizer, **kwargs
        )
        rank = self.rank
        self.filters = filters
        self.kernel_size = normalize_tuple(kernel_size, rank, "kernel_size")
        self.strides = normalize_tuple(strides, rank, "strides")
        self.padding = normalize_padding(padding, causal=rank == 1)
        self.data_format = normalize_data_format(data_format)
        self.dilation_rate = normalize_tuple(dilation_rate, rank, "dilation_rate")
        self.activation = activation
        self.use_bias = use_bias
        self.kernel_initializer = kernel_initializer
        self.bias_initializer = bias_initializer
        self.kernel_regularizer = kernel_regularizer
        self.bias_regularizer = bias_regularizer
        self.kernel_constraint = kernel_constraint
        self.bias_constraint = bias_constraint
        self.input_spec = InputSpec(ndim=rank + 2)

    @property
    def _native_format(self) -> str:
        return native_format(self.data_format, self.rank + 2)

    def _channels(self, input_shape: Any) -> int:
        """The size of the channel dimension, which every input must then have."""
        shape = TensorShape(input_shape)
        axis = 1 if self.data_format == "channels_first" else -1
        size = shape._size_at(axis)
        if size is None:
            raise ValueError(
                "The channel dimension of the inputs should be defined. Found `None`: the layer "
                f"{self.name} got the shape {shape}"
            )
        self.input_spec = InputSpec(ndim=self.rank + 2, axes={axis: size})
        return size

    def _add_bias(self) -> None:
        self.bias = None
        if self.use_bias:
            self.bias = self.add_variable(
                "bias", shape=(self.filters,), initializer=self.bias_initializer,
                regularizer=self.bias_regularizer, constraint=self.bias_constraint,
            )  # fmt: skip

    def _finish(self, outputs: Tensor) -> Tensor:
        if self.use_bias:
            outputs = activations.bias_add(outputs, self.bias, data_format=self._native_format)
        return outputs if self.activation is None else self.activation(outputs)

    def build(self, input_shape: Any) -> None:
        """Makes the kernel and the bias."""
        channels = self._channels(input_shape)
        self.kernel = self.add_variable(
            "kernel", shape=(*self.kernel_size, channels, self.filters),
            initializer=self.kernel_initializer, regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )  # fmt: skip
        self._add_bias()
        self.built = True

    def call(self, inputs: Any) -> Tensor:
        """The layer's output for `inputs`."""
        inputs = convert_to_tensor(inputs)
        padding = self.padding.upper()
        if padding == "CAUSAL":
            before = self.dilation_rate[0] * (self.kernel_size[0] - 1)
            pads = [[0, 0], [0, 0], [0, 0]]
            pads[1 if self.data_format == "channels_last" else 2] = [before, 0]
            inputs, padding = array.pad(inputs, pads), "VALID"
        outputs = dilated_conv.convolve(
            inputs, self.kernel, padding, np.array(self.strides), np.array(self.dilation_rate),
            self._native_format, self.rank, None,
        )  # fmt: skip
        return self._finish(outputs)

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        """The shape of the convolution of an input of a shape."""
        sizes = TensorShape(input_shape).with_rank(self.rank + 2).as_list()
        first = self.data_format == "channels_first"
        space = sizes[2:] if first else sizes[1:-1]
        out = [
            conv_output_length(size, kernel, self.padding, stride, rate)
            for size, kernel, stride, rate in zip(
                space, self.kernel_size, self.strides, self.dilation_rate, strict=True
            )
        ]
        return TensorShape(
            [sizes[0], self.filters, *out] if first else [sizes[0], *out, self.filters]
        )


@export(v1="layers.Conv1D")
class Conv1D(_Conv):
    """A convolution of [batch, width, channels]; see `Conv2D`."""

    rank = 1


@export(v1="layers.Conv2D")
class Conv2D(_Conv):
    """A convolution of [batch, height, width, channels].

    Args:
      filters: the number of channels of the output.
      kernel_size, strides, dilation_rate: one size or two.
      padding: "valid" or "same".
      data_format: "channels_last" or "channels_first".
      activation: applied to the output; None for none.
    """

    rank = 2


@export(v1="layers.Conv3D")
class Conv3D(_Conv):
    """A convolution of [batch, depth, height, width, channels]; see `Conv2D`."""

    rank = 3


class _SeparableConv(_Conv):
    """A convolution of each channel by itself, then one across channels."""

    def __init__(
        self, filters: int, kernel_size: Any, strides: Any = 1, padding: str = "valid",
        data_format: str = "channels_last", dilation_rate: Any = 1, depth_multiplier: int = 1,
        activation: Any = None, use_bias: bool = True, depthwise_initializer: Any = None,
        pointwise_initializer: Any = None, bias_initializer: Any = _ZEROS,
        depthwise_regularizer: Any = None, pointwise_regularizer: Any = None,
        bias_regularizer: Any = None, activity_regularizer: Any = None,
        depthwise_constraint: Any = None, pointwise_constraint: Any = None,
        bias_constraint: Any = None, trainable: bool = True, name: str | None = None,
        **kwargs: Any,
    ):  # fmt: skip
        super().__init__(
            filters, kernel_size, strides, padding, data_format, dilation_rate, activation,
            use_bias, bias_initializer=bias_initializer, bias_regularizer=bias_regularizer,
            activity_regularizer=activity_regularizer, bias_constraint=bias_constraint,
            trainable=trainable, name=name, **kwargs,
        )  # fmt: skip
        self.depth_multiplier = depth_multiplier
        self.depthwise_initializer = depthwise_initializer
        self.pointwise_initializer = pointwise_initializer
        self.depthwise_regularizer = depthwise_regularizer
        self.pointwise_regularizer = pointwise_regularizer
        self.depthwise_constraint = depthwise_constraint
        self.pointwise_constraint = pointwise_constraint

    def build(self, input_shape: Any) -> None:
        """Makes both kernels and the bias."""
        channels = self._channels(input_shape)
        self.depthwise_kernel = self.add_variable(
            "depthwise_kernel", shape=(*self.kernel_size, channels, self.depth_multiplier),
            initializer=self.depthwise_initializer, regularizer=self.depthwise_regularizer,
            constraint=self.depthwise_constraint,
        )  # fmt: skip
        self.pointwise_kernel = self.add_variable(
            "pointwise_kernel",
            shape=(*(1,) * self.rank, self.depth_multiplier * channels, self.filters),
            initializer=self.pointwise_initializer, regularizer=self.pointwise_regularizer,
            constraint=self.pointwise_constraint,
        )  # fmt: skip
        self._add_bias()
        self.built = True

    def call(self, inputs: Any) -> Tensor:
        """The layer's output for `inputs`."""
        inputs = convert_to_tensor(inputs)
        first = self.data_format == "channels_first"
        depthwise, pointwise = self.depthwise_kernel, self.pointwise_kernel
        strides, rates = self.strides, self.dilation_rate
        padding = self.padding.upper()
        axis = 2 if first else 1
        if self.rank == 1:
            if padding == "CAUSAL":
                before = rates[0] * (self.kernel_size[0] - 1)
                pads = [[0, 0], [0, 0], [0, 0]]
                pads[axis] = [before, 0]
                inputs, padding = array.pad(inputs, pads), "VALID"
            inputs = array.expand_dims(inputs, axis)
            depthwise, pointwise = array.expand_dims(depthwise, 0), array.expand_dims(pointwise, 0)
            # A height of one is not dilated, and takes the width's stride: they must be equal.
            strides, rates = strides * 2, (1, *rates)
        outputs = depthwise_conv.separable_conv2d(
            inputs, depthwise, pointwise, strides, padding, rates,
            data_format="NCHW" if first else "NHWC",
        )  # fmt: skip
        if self.rank == 1:
            outputs = array.squeeze(outputs, [axis])
        return self._finish(outputs)


@export(v1="layers.SeparableConv1D")
class SeparableConv1D(_SeparableConv):
    """A convolution of each channel of [batch, width, channels], then one across channels."""

    rank = 1


@export(v1="layers.SeparableConv2D")
class SeparableConv2D(_SeparableConv):
    """A convolution of each channel by itself, then one across channels.

    `depth_multiplier`: how many channels the first makes of each; the rest as for `Conv2D`.
    """

    rank = 2


class _ConvTranspose(_Conv):
    """The transpose (gradient) of a convolution."""

    def __init__(
        self, filters: int, kernel_size: Any, strides: Any = 1, padding: str = "valid",
        data_format: str = "channels_last", activation: Any = None, use_bias: bool = True,
        kernel_initializer: Any = None, bias_initializer: Any = _ZEROS,
        kernel_regularizer: Any = None, bias_regularizer: Any = None,
        activity_regularizer: Any = None, kernel_constraint: Any = None,
        bias_constraint: Any = None, trainable: bool = True, name: str | None = None,
        **kwargs: Any,
    ):  # fmt: skip
        super().__init__(
            filters, kernel_size, strides, padding, data_format, 1, activation, use_bias,
            kernel_initializer, bias_initializer, kernel_regularizer, bias_regularizer,
            activity_regularizer, kernel_constraint, bias_constraint, trainable, name, **kwargs,
        )  # fmt: skip

    def build(self, input_shape: Any) -> None:
        """Makes the kernel and the bias."""
        channels = self._channels(input_shape)
        self.kernel = self.add_variable(
            "kernel", shape=(*self.kernel_size, self.filters, channels),
            initializer=self.kernel_initializer, regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )  # fmt: skip
        self._add_bias()
        self.built = True

    def _grown(self, sizes: list[Any]) -> list[Any]:
        """The sizes of the output for an input's, in the order of the data format."""
        first = self.data_format == "channels_first"
        space = sizes[2:] if first else sizes[1:-1]
        out = [
            deconv_output_length(size, kernel, self.padding, stride)
            for size, kernel, stride in zip(space, self.kernel_size, self.strides, strict=True)
        ]
        return [sizes[0], self.filters, *out] if first else [sizes[0], *out, self.filters]

    def call(self, inputs: Any) -> Tensor:
        """The layer's output for `inputs`."""
        inputs = convert_to_tensor(inputs)
        op = conv.conv2d_transpose if self.rank == 2 else conv.conv3d_transpose
        outputs = op(
            inputs, self.kernel, array.stack(self._grown(sizes_of(inputs))),
            list(self.strides), self.padding.upper(), self._native_format,
        )  # fmt: skip
        outputs.set_shape(self._grown(inputs.shape.as_list()))
        return self._finish(outputs)

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        """The shape of the output for an input of a shape."""
        return TensorShape(self._grown(TensorShape(input_shape).as_list()))


@export(v1="layers.Conv2DTranspose")
class Conv2DTranspose(_ConvTranspose):
    """The transpose of a `Conv2D`: makes images larger by the strides."""

    rank = 2


@export(v1="layers.Conv3DTranspose")
class Conv3DTranspose(_ConvTranspose):
    """The transpose of a `Conv3D`: makes volumes larger by the strides."""

    rank = 3


conv1d = export(v1="layers.conv1d")(applied_once(Conv1D, "conv1d"))
conv2d = export(v1="layers.conv2d")(applied_once(Conv2D, "conv2d"))
conv3d = export(v1="layers.conv3d")(applied_once(Conv3D, "conv3d"))
separable_conv1d = export(v1="layers.separable_conv1d")(
    applied_once(SeparableConv1D, "separable_conv1d")
)
separable_conv2d = export(v1="layers.separable_conv2d")(
    applied_once(SeparableConv2D, "separable_conv2d")
)
conv2d_transpose = export(v1="layers.conv2d_transpose")(
    applied_once(Conv2DTranspose, "conv2d_transpose")
)
conv3d_transpose = export(v1="layers.conv3d_transpose")(
    applied_once(Conv3DTranspose, "conv3d_transpose")
)
