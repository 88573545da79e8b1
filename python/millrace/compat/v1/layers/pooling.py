"""Layers of pooling."""

from typing import Any

from millrace.compat.v1.layers.base import InputSpec, Layer
from millrace.compat.v1.layers.functional import applied_once
from millrace.compat.v1.layers.sizes import (  # fmt: skip
    conv_output_length,
    native_format,
    normalize_data_format,
    normalize_padding,
    normalize_tuple,
)
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.ops.nn import pool


class _Pooling(Layer):
    """Pooling over `rank` spatial dimensions."""

    _op: Any
    _rank: int

    def __init__(
        self, pool_size: Any, strides: Any, padding: str = "valid",
        data_format: str = "channels_last", name: str | None = None, **kwargs: Any,
    ):  # fmt: skip
        if strides is None:
            raise ValueError("Argument `strides` must not be None.")
        super().__init__(name=name, **kwargs)
        self.pool_size = normalize_tuple(pool_size, self._rank, "pool_size")
        self.strides = normalize_tuple(strides, self._rank, "strides")
        self.padding = normalize_padding(padding)
        self.data_format = normalize_data_format(data_format)
        self.input_spec = InputSpec(ndim=self._rank + 2)

    def call(self, inputs: Any) -> Tensor:
        """The layer's output for `inputs`."""
        return type(self)._op(
            convert_to_tensor(inputs), list(self.pool_size), list(self.strides),
            self.padding.upper(), native_format(self.data_format, self._rank + 2),
        )  # fmt: skip

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        """The shape of the output for an input of a shape."""
        sizes = TensorShape(input_shape).with_rank(self._rank + 2).as_list()
        start = 2 if self.data_format == "channels_first" else 1
        for i, (size, stride) in enumerate(zip(self.pool_size, self.strides, strict=True)):
            sizes[start + i] = conv_output_length(sizes[start + i], size, self.padding, stride)
        return TensorShape(sizes)


@export(v1="layers.MaxPooling1D")
class MaxPooling1D(_Pooling):
    """The largest element of each window of [batch, width, channels]."""

    _op, _rank = staticmethod(pool.max_pool1d), 1


@export(v1="layers.AveragePooling1D")
class AveragePooling1D(_Pooling):
    """The mean of each window of [batch, width, channels]."""

    _op, _rank = staticmethod(pool.avg_pool1d), 1


@export(v1="layers.MaxPooling2D")
class MaxPooling2D(_Pooling):
    """The largest element of each window of [batch, height, width, channels].

    Args:
      pool_size, strides: one size or two.
      padding: "valid" or "same".
      data_format: "channels_last" or "channels_first".
    """

    _op, _rank = staticmethod(pool.max_pool), 2


@export(v1="layers.AveragePooling2D")
class AveragePooling2D(_Pooling):
    """The mean of each window of [batch, height, width, channels]; see `MaxPooling2D`."""

    _op, _rank = staticmethod(pool.avg_pool), 2


@export(v1="layers.MaxPooling3D")
class MaxPooling3D(_Pooling):
    """The largest element of each window of [batch, depth, height, width, channels]."""

    _op, _rank = staticmethod(pool.max_pool3d), 3


@export(v1="layers.AveragePooling3D")
class AveragePooling3D(_Pooling):
    """The mean of each window of [batch, depth, height, width, channels]."""

    _op, _rank = staticmethod(pool.avg_pool3d), 3


max_pooling1d = export(v1="layers.max_pooling1d")(
    applied_once(MaxPooling1D, "max_pooling1d", reuse=False)
)
average_pooling1d = export(v1="layers.average_pooling1d")(
    applied_once(AveragePooling1D, "average_pooling1d", reuse=False)
)
max_pooling2d = export(v1="layers.max_pooling2d")(
    applied_once(MaxPooling2D, "max_pooling2d", reuse=False)
)
average_pooling2d = export(v1="layers.average_pooling2d")(
    applied_once(AveragePooling2D, "average_pooling2d", reuse=False)
)
max_pooling3d = export(v1="layers.max_pooling3d")(
    applied_once(MaxPooling3D, "max_pooling3d", reuse=False)
)
average_pooling3d = export(v1="layers.average_pooling3d")(
    applied_once(AveragePooling3D, "average_pooling3d", reuse=False)
)
