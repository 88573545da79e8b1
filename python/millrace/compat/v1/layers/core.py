"""Dense layers, dropout, flattening."""

from typing import Any

from millrace.compat.v1.layers.base import InputSpec, Layer
from millrace.compat.v1.layers.functional import applied_once
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.ops import array, control_flow, linalg
from millrace.ops.nn import activations
from millrace.ops.sizes import product_of, sizes_of
from millrace.state.initializers import Zeros

_ZEROS = Zeros()


@export(v1="layers.Dense")
class Dense(Layer):
    """activation(inputs * kernel + bias), along the last dimension.

    Args:
      units: the size of the last dimension of the output.
      activation: applied to the output; None for none.
      kernel_constraint, bias_constraint: applied to variables after an optimizer changed them.
    """

    def __init__(
        self, units: int, activation: Any = None, use_bias: bool = True,
        kernel_initializer: Any = None, bias_initializer: Any = _ZEROS,
        kernel_regularizer: Any = None, bias_regularizer: Any = None,
        activity_regularizer: Any = None, kernel_constraint: Any = None,
        bias_constraint: Any = None, trainable: bool = True, name: str | None = None,
        **kwargs: Any,
    ):  # fmt: skip
        super().__init__(
            trainable=trainable, name=name, activity_regularizer=activity_regularizer, **kwargs
        )
        self.units = int(units)
        self.activation = activation
        self.use_bias = use_bias
        self.kernel_initializer = kernel_initializer
        self.bias_initializer = bias_initializer
        self.kernel_regularizer = kernel_regularizer
        self.bias_regularizer = bias_regularizer
        self.kernel_constraint = kernel_constraint
        self.bias_constraint = bias_constraint
        self.input_spec = InputSpec(min_ndim=2)

    def build(self, input_shape: Any) -> None:
        """Makes the kernel and the bias."""
        input_shape = TensorShape(input_shape)
        size = input_shape._size_at(-1)
        if size is None:
            raise ValueError(
                "The last dimension of the inputs to a Dense layer should be defined. Found None. "
                f"Full input shape received: {input_shape}"
            )
        self.input_spec = InputSpec(min_ndim=2, axes={-1: size})
        self.kernel = self.add_variable(
            "kernel", shape=[size, self.units], initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer, constraint=self.kernel_constraint,
        )  # fmt: skip
        self.bias = None
        if self.use_bias:
            self.bias = self.add_variable(
                "bias", shape=[self.units], initializer=self.bias_initializer,
                regularizer=self.bias_regularizer, constraint=self.bias_constraint,
            )  # fmt: skip
        self.built = True

    def call(self, inputs: Any) -> Tensor:
        """The layer's output for `inputs`."""
        inputs = convert_to_tensor(inputs)
        rank = inputs.shape.ndims
        if rank is not None and rank > 2:
            outputs = linalg.tensordot(inputs, self.kernel, [[rank - 1], [0]])
            outputs.set_shape([*inputs.shape.as_list()[:-1], self.units])
        else:
            outputs = linalg.matmul(inputs, self.kernel)
        if self.use_bias:
            outputs = activations.bias_add(outputs, self.bias)
        return outputs if self.activation is None else self.activation(outputs)

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        """The input's shape with another last dimension."""
        shape = TensorShape(input_shape).with_rank_at_least(2)
        if shape._size_at(-1) is None:
            raise ValueError(f"The innermost dimension must be defined, but saw: {shape}")
        return shape[:-1].concatenate(self.units)


dense = export(v1="layers.dense")(applied_once(Dense, "dense"))


@export(v1="layers.Dropout")
class Dropout(Layer):
    """Sets a share `rate` of the elements to zero and scales the others up, in training only.

    Args:
      noise_shape: dimensions of size 1 share their choice.
      seed: for the random choice.
    """

    def __init__(
        self, rate: Any = 0.5, noise_shape: Any = None, seed: int | None = None,
        name: str | None = None, **kwargs: Any,
    ):  # fmt: skip
        super().__init__(name=name, **kwargs)
        if isinstance(rate, (int, float)) and not 0 <= rate <= 1:
            raise ValueError(f"`rate` must be between 0 and 1, got {rate}")
        self.rate = rate
        self.noise_shape = noise_shape
        self.seed = seed

    def _get_noise_shape(self, _: Any) -> Any:
        return self.noise_shape

    def call(self, inputs: Any, training: Any = False) -> Tensor:
        """Dropout where `training` (a bool or a tensor) is true, the inputs elsewhere."""
        inputs = convert_to_tensor(inputs)

        def dropped() -> Tensor:
            return activations.dropout(
                inputs, noise_shape=self._get_noise_shape(inputs), seed=self.seed, rate=self.rate
            )

        return control_flow.smart_cond(_known(training), dropped, lambda: array.identity(inputs))

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        """The input's shape."""
        return TensorShape(input_shape)


def _known(training: Any) -> Any:
    """A predicate: a bool, or a tensor of one."""
    if training is None:
        return False
    if isinstance(training, Tensor) or hasattr(training, "_as_graph_element"):
        return convert_to_tensor(training)
    return bool(training)


@export(v1="layers.dropout")
def dropout(
    inputs: Any, rate: Any = 0.5, noise_shape: Any = None, seed: int | None = None,
    training: Any = False, name: str | None = None,
) -> Tensor:  # fmt: skip
    """A `Dropout` layer applied once."""
    return Dropout(rate, noise_shape, seed, name)(inputs, training=training)


@export(v1="layers.Flatten")
class Flatten(Layer):
    """Makes one dimension of all but the batch."""

    def __init__(self, data_format: str | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.data_format = (data_format or "channels_last").lower()
        self.input_spec = InputSpec(min_ndim=1)

    def call(self, inputs: Any) -> Tensor:
        """The layer's output for `inputs`."""
        inputs = convert_to_tensor(inputs)
        rank = inputs.shape.ndims
        if self.data_format == "channels_first" and rank is not None and rank > 1:
            inputs = array.transpose(inputs, [0, *range(2, rank), 1])
        sizes = inputs.shape.as_list()
        if len(sizes) == 1:
            return array.expand_dims(inputs, 1)
        batch, rest = self.compute_output_shape(sizes).as_list()
        if rest:
            shape: Any = [-1, rest]
        elif batch:
            shape = [batch, -1]
        else:
            shape = array.stack([array.shape(inputs)[0], product_of(sizes_of(inputs)[1:])])
        outputs = array.reshape(inputs, shape)
        outputs.set_shape([batch, rest])
        return outputs

    def compute_output_shape(self, input_shape: Any) -> TensorShape:
        """[batch, product of the other sizes]."""
        sizes = TensorShape(input_shape).with_rank_at_least(1).as_list()
        rest = 1
        for size in sizes[1:]:
            rest = None if size is None or rest is None else rest * size
        return TensorShape([sizes[0], rest])


@export(v1="layers.flatten")
def flatten(inputs: Any, name: str | None = None, data_format: str = "channels_last") -> Tensor:
    """A `Flatten` layer applied once."""
    return Flatten(name=name, data_format=data_format)(inputs)
