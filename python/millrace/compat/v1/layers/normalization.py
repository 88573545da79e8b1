"""Batch normalisation."""

from typing import Any

from millrace.compat.v1.layers.base import InputSpec, Layer
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import colocate_with, name_scope
from millrace.graph.operation import Operation
from millrace.ops import array, clip, control_flow, gather, math, reduce
from millrace.ops.nn import normalization
from millrace.state import assign as state
from millrace.state.initializers import Ones, Zeros

_ZEROS, _ONES = Zeros(), Ones()


@export(v1="layers.BatchNormalization")
class BatchNormalization(Layer):
    """Normalises by the moments of the batch in training, and by moving averages of them otherwise.

    The averages are changed by operations in the collection UPDATE_OPS: make the training step wait
    for them.

    Args:
      axis: the dimension, or dimensions, of which every index is normalised by itself.
      momentum: how much of the averages is kept at each step.
      epsilon: added to the variance.
      center, scale: whether there is an offset `beta`, a factor `gamma`.
      renorm: corrects the batch's moments towards the averages, within `renorm_clipping`, a dict of
        "rmax", "rmin" and "dmax".
      fused: one op for all of it; the default where the input allows it.
    """

    def __init__(
        self, axis: Any = -1, momentum: float = 0.99, epsilon: float = 1e-3, center: bool = True,
        scale: bool = True, beta_initializer: Any = _ZEROS, gamma_initializer: Any = _ONES,
        moving_mean_initializer: Any = _ZEROS, moving_variance_initializer: Any = _ONES,
        beta_regularizer: Any = None, gamma_regularizer: Any = None, beta_constraint: Any = None,
        gamma_constraint: Any = None, renorm: bool = False, renorm_clipping: Any = None,
        renorm_momentum: float = 0.99, fused: bool | None = None, trainable: bool = True,
        virtual_batch_size: int | None = None, adjustment: Any = None, name: str | None = None,
        **kwargs: Any,
    ):  # fmt: skip
        super().__init__(trainable=trainable, name=name, **kwargs)
        self.axis = list(axis) if isinstance(axis, (list, tuple)) else axis
        self.momentum = momentum
        self.epsilon = epsilon
        self.center = center
        self.scale = scale
        self.beta_initializer = beta_initializer
        self.gamma_initializer = gamma_initializer
        self.moving_mean_initializer = moving_mean_initializer
        self.moving_variance_initializer = moving_variance_initializer
        self.beta_regularizer = beta_regularizer
        self.gamma_regularizer = gamma_regularizer
        self.beta_constraint = beta_constraint
        self.gamma_constraint = gamma_constraint
        self.renorm = renorm
        self.renorm_clipping = renorm_clipping or {}
        self.renorm_momentum = renorm_momentum
        self.fused = fused
        self.virtual_batch_size = virtual_batch_size
        self.adjustment = adjustment
        unknown = set(self.renorm_clipping) - {"rmax", "rmin", "dmax"}
        if unknown:
            raise ValueError(f"renorm_clipping {renorm_clipping} contains keys {sorted(unknown)}")
        if fused and (renorm or virtual_batch_size is not None or adjustment is not None):
            raise ValueError(
                "Passing fused=True is not supported when renorm, virtual_batch_size or "
                "adjustment is specified."
            )

    def build(self, input_shape: Any) -> None:
        """Makes gamma, beta and the moving averages."""
        shape = TensorShape(input_shape)
        rank = shape.ndims
        if rank is None:
            raise ValueError(f"Input has undefined rank: {shape}")
        axes = self.axis if isinstance(self.axis, list) else [self.axis]
        axes = [a + rank if a < 0 else a for a in axes]
        if any(not 0 <= a < rank for a in axes) or len(set(axes)) != len(axes):
            raise ValueError(f"Invalid axis {self.axis} for an input of shape {shape}")
        self.axis = axes
        if self.virtual_batch_size is not None:
            if self.virtual_batch_size <= 0:
                raise ValueError("virtual_batch_size must be a positive integer")
            if 0 in axes:
                raise ValueError("virtual_batch_size does not go with axis 0")
        fusible = rank == 4 and axes in ([1], [3]) and not self.renorm
        fusible = fusible and self.virtual_batch_size is None and self.adjustment is None
        if self.fused is None:
            self.fused = fusible
        elif self.fused and not fusible:
            raise ValueError(
                "Only axis 1 and 3 of inputs of rank 4 are supported by fused batch normalization, "
                f"got axis {axes} and shape {shape}"
            )
        sizes = {a: shape._size_at(a) for a in axes}
        if any(s is None for s in sizes.values()):
            raise ValueError(f"Input has undefined `axis` dimension: {axes} of shape {shape}")
        self.input_spec = InputSpec(ndim=rank, axes=sizes)
        param_shape = [sizes[a] for a in axes]
        if len(axes) > 1 or self.virtual_batch_size is not None:
            param_shape = [sizes.get(i, 1) for i in range(rank)]
        if self.virtual_batch_size is not None:
            param_shape.insert(1, 1)
        param_type = self.dtype or dtypes.float32
        if param_type in (dtypes.float16, dtypes.bfloat16):
            param_type = dtypes.float32
        self.gamma = self.beta = None
        if self.scale:
            self.gamma = self.add_variable(
                "gamma", param_shape, param_type, self.gamma_initializer, self.gamma_regularizer,
                constraint=self.gamma_constraint,
            )  # fmt: skip
        if self.center:
            self.beta = self.add_variable(
                "beta", param_shape, param_type, self.beta_initializer, self.beta_regularizer,
                constraint=self.beta_constraint,
            )  # fmt: skip

        def average(name: str, initializer: Any) -> Any:
            return self.add_variable(name, param_shape, param_type, initializer, trainable=False)

        self._set_scope(None)
        partitioner = self._scope.partitioner
        self._scope.set_partitioner(None)  # averages are assigned whole
        try:
            self.moving_mean = average("moving_mean", self.moving_mean_initializer)
            self.moving_variance = average("moving_variance", self.moving_variance_initializer)
            if self.renorm:
                self.renorm_mean = average("renorm_mean", self.moving_mean_initializer)
                self.renorm_stddev = average("renorm_stddev", self.moving_variance_initializer)
        finally:
            self._scope.set_partitioner(partitioner)
        self._param_shape = param_shape
        self.built = True

    def _move(self, variable: Any, value: Tensor, momentum: Any) -> Operation:
        """Moves an average towards a value."""
        with name_scope("AssignMovingAvg") as scope, colocate_with(variable):
            rest = convert_to_tensor(1.0 - momentum, dtype=variable.dtype.base_dtype)
            read = convert_to_tensor(variable)
            return state.assign_sub(variable, (read - math.cast(value, read.dtype)) * rest,
                                    name=scope)  # fmt: skip

    def _momentum(self, training: Any, momentum: float) -> Any:
        """The momentum in training; 1, which changes nothing, otherwise."""
        known = control_flow.smart_constant_value(training)
        if known is not None:
            return momentum if known else 1.0
        return gather.where(training, momentum, 1.0)

    def call(self, inputs: Any, training: Any = False) -> Tensor:
        """The layer's output for `inputs`; `training` is a bool or a tensor."""
        inputs = convert_to_tensor(inputs)
        if training is None:
            training = False
        if hasattr(training, "_as_graph_element"):
            training = convert_to_tensor(training)
            if training.dtype is not dtypes.bool_:
                training = math.cast(training, dtypes.bool_)
        else:
            training = bool(training)
        if self.virtual_batch_size is not None:
            return self._virtual(inputs, training)
        if self.fused:
            return self._fused(inputs, training)
        return self._normalise(inputs, training, self.axis)

    def _fused(self, inputs: Tensor, training: Any) -> Tensor:
        channels = self._param_shape
        beta = self.beta if self.center else array.zeros(channels, self.moving_mean.dtype)
        gamma = self.gamma if self.scale else array.ones(channels, self.moving_mean.dtype)
        data_format = "NCHW" if self.axis == [1] else "NHWC"

        def by_batch() -> Any:
            return normalization.fused_batch_norm(
                inputs, gamma, beta, epsilon=self.epsilon, data_format=data_format
            )

        def by_averages() -> Any:
            return normalization.fused_batch_norm(
                inputs, gamma, beta, mean=self.moving_mean, variance=self.moving_variance,
                epsilon=self.epsilon, data_format=data_format, is_training=False,
            )  # fmt: skip

        output, mean, variance = control_flow.smart_cond(training, by_batch, by_averages)
        output.set_shape(inputs.shape)
        if control_flow.smart_constant_value(training) is not False:
            momentum = self._momentum(training, self.momentum)
            self.add_update(self._move(self.moving_mean, mean, momentum))
            self.add_update(self._move(self.moving_variance, variance, momentum))
        return output

    def _virtual(self, inputs: Tensor, training: Any) -> Tensor:
        """Normalises groups of `virtual_batch_size` examples each by itself: example i is in group
        i % (batch / size)."""
        sizes = inputs.shape.as_list()
        shape = array.shape(inputs)
        grouped = array.concat([[self.virtual_batch_size, -1], shape[1:]], 0)
        groups = array.reshape(inputs, grouped)
        groups.set_shape([self.virtual_batch_size, None, *sizes[1:]])
        output = self._normalise(groups, training, [a + 1 for a in self.axis])
        output = array.reshape(output, shape)
        output.set_shape(sizes)
        return output

    def _normalise(self, inputs: Tensor, training: Any, axes: list[int]) -> Tensor:
        rank = inputs.shape.ndims
        over = [i for i in range(rank) if i not in axes]
        grouped = self.virtual_batch_size is not None
        if grouped:
            over.remove(1)
        wide = [inputs.shape._size_at(i) if i in axes else 1 for i in range(rank)]

        def broadcast(x: Any) -> Any:
            if x is None or (len(axes) == 1 and axes[0] == rank - 1 and not grouped):
                return x
            x = convert_to_tensor(x)
            return array.reshape(x, wide) if x.shape.ndims != rank else x

        gamma, beta = broadcast(self.gamma), broadcast(self.beta)
        if self.adjustment is not None:
            gamma, beta = self._adjusted(inputs, training, gamma, beta)
        known = control_flow.smart_constant_value(training)
        moving_mean, moving_variance = self.moving_mean, self.moving_variance
        if known is False:
            mean, variance = convert_to_tensor(moving_mean), convert_to_tensor(moving_variance)
        else:
            keep = len(self.axis) > 1 or grouped
            mean, variance = normalization.moments(inputs, over, keepdims=keep)
            if grouped:
                # One average serves all groups: it follows the mean of their moments.
                overall = [reduce.reduce_mean(m, 1, keepdims=True) for m in (mean, variance)]
            else:
                overall = [mean, variance]
            if self.renorm:
                gamma, beta, overall = self._renormalised(
                    mean, variance, gamma, beta, training, broadcast
                )
            momentum = self._momentum(training, self.momentum)
            self.add_update(self._move(moving_mean, overall[0], momentum))
            self.add_update(self._move(moving_variance, overall[1], momentum))
            if known is None:
                batch = [mean, variance]
                mean, variance = control_flow.cond(
                    training, lambda: batch,
                    lambda: [convert_to_tensor(moving_mean), convert_to_tensor(moving_variance)],
                )  # fmt: skip
        mean, variance = math.cast(mean, inputs.dtype), math.cast(variance, inputs.dtype)
        output = normalization.batch_normalization(
            inputs, broadcast(mean), broadcast(variance), _like(beta, inputs),
            _like(gamma, inputs), self.epsilon,
        )  # fmt: skip
        output.set_shape(inputs.shape)
        return output

    def _adjusted(self, inputs: Tensor, training: Any, gamma: Any, beta: Any) -> tuple[Any, Any]:
        scale, bias = control_flow.smart_cond(
            training, lambda: self.adjustment(array.shape(inputs)),
            lambda: (array.ones_like(inputs), array.zeros_like(inputs)),
        )  # fmt: skip
        gamma = scale if gamma is None else gamma * scale
        beta = bias if beta is None else beta + bias
        return gamma, beta

    def _renormalised(
        self, mean: Tensor, variance: Tensor, gamma: Any, beta: Any, training: Any, broadcast: Any
    ) -> Any:
        """Scale and offset that take the batch's moments to the averages, and the moments that the
        averages are to follow."""
        stddev = math.sqrt(variance + self.epsilon)
        average_mean = convert_to_tensor(self.renorm_mean)
        average_stddev = math.maximum(convert_to_tensor(self.renorm_stddev), self.epsilon**0.5)
        r = stddev / average_stddev
        d = (mean - average_mean) / average_stddev
        rmin, rmax = self.renorm_clipping.get("rmin"), self.renorm_clipping.get("rmax")
        dmax = self.renorm_clipping.get("dmax")
        if rmin is not None:
            r = math.maximum(r, rmin)
        if rmax is not None:
            r = math.minimum(r, rmax)
        if dmax is not None:
            d = clip.clip_by_value(d, -dmax, dmax)
        r, d = control_flow.smart_cond(
            training, lambda: (array.identity(r), array.identity(d)),
            lambda: (array.ones_like(r), array.zeros_like(d)),
        )  # fmt: skip
        r, d = broadcast(array.stop_gradient(r)), broadcast(array.stop_gradient(d))
        new_gamma = r if gamma is None else r * gamma
        new_beta = d if gamma is None else d * gamma
        if beta is not None:
            new_beta = new_beta + beta
        momentum = self._momentum(training, self.renorm_momentum)
        self.add_update(self._move(self.renorm_mean, mean, momentum))
        self.add_update(self._move(self.renorm_stddev, stddev, momentum))
        return new_gamma, new_beta, [mean, variance]

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        """The input's shape."""
        return TensorShape(input_shape)


def _like(x: Any, inputs: Tensor) -> Any:
    return None if x is None else math.cast(x, inputs.dtype)


@export(v1="layers.batch_normalization")
def batch_normalization(
    inputs: Any, axis: Any = -1, momentum: float = 0.99, epsilon: float = 1e-3,
    center: bool = True, scale: bool = True, beta_initializer: Any = _ZEROS,
    gamma_initializer: Any = _ONES, moving_mean_initializer: Any = _ZEROS,
    moving_variance_initializer: Any = _ONES, beta_regularizer: Any = None,
    gamma_regularizer: Any = None, beta_constraint: Any = None, gamma_constraint: Any = None,
    training: Any = False, trainable: bool = True, name: str | None = None, reuse: Any = None,
    renorm: bool = False, renorm_clipping: Any = None, renorm_momentum: float = 0.99,
    fused: bool | None = None, virtual_batch_size: int | None = None, adjustment: Any = None,
) -> Tensor:  # fmt: skip
    """A `BatchNormalization` layer applied once.

    `training`: whether to use the batch's own moments. The moving averages change only where the
    operations of the collection UPDATE_OPS run.
    """
    layer = BatchNormalization(
        axis, momentum, epsilon, center, scale, beta_initializer, gamma_initializer,
        moving_mean_initializer, moving_variance_initializer, beta_regularizer,
        gamma_regularizer, beta_constraint, gamma_constraint, renorm, renorm_clipping,
        renorm_momentum, fused, trainable, virtual_batch_size, adjustment, name, _scope=name,
        _reuse=reuse,
    )  # fmt: skip
    return layer(inputs, training=training)
