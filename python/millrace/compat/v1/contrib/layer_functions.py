"""Layers as functions, whose arguments scopes may give."""

from typing import Any, Callable

from millrace.compat.v1.contrib.arg_scope import add_arg_scope
from millrace.compat.v1.contrib.convolutions import convolution
from millrace.compat.v1.contrib.layer_outputs import (
    DATA_FORMAT_NHWC,
    RENAMED,
    XAVIER,
    ZEROS,
    collect_named_outputs,
    collection_of,
    finished,
    last_dimension,
    variable_getter,
)
from millrace.compat.v1.contrib.variables import model_variable
from millrace.compat.v1.layers import core
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.ops import array, gather, math
from millrace.ops.nn import activations
from millrace.ops.sizes import product_of, sizes_of
from millrace.state.variable_scope import variable_scope

# Dense layers.


@export(v1=("contrib.layers.fully_connected", "contrib.slim.fully_connected"))
@add_arg_scope
def fully_connected(
    inputs: Any, num_outputs: int, activation_fn: Any = activations.relu,
    normalizer_fn: Any = None, normalizer_params: Any = None,
    weights_initializer: Any = XAVIER, weights_regularizer: Any = None,
    biases_initializer: Any = ZEROS, biases_regularizer: Any = None, reuse: Any = None,
    variables_collections: Any = None, outputs_collections: Any = None, trainable: bool = True,
    scope: Any = None,
) -> Tensor:  # fmt: skip
    """activation_fn(inputs * weights + biases), along the last dimension.

    Args:
      activation_fn: None for none.
      normalizer_fn: applied instead of biases, with `normalizer_params`.
      biases_initializer: None for no biases.
      variables_collections: collections for all variables, or a dict of them by "weights" and
        "biases".
    """
    if not isinstance(num_outputs, int) and not hasattr(num_outputs, "__index__"):
        raise ValueError(f"num_outputs should be int or long, got {num_outputs}.")
    getter = variable_getter(RENAMED, variables_collections)
    with variable_scope(
        scope, "fully_connected", [inputs], reuse=reuse, custom_getter=getter
    ) as sc:
        inputs = convert_to_tensor(inputs)
        layer = core.Dense(
            num_outputs, use_bias=normalizer_fn is None and biases_initializer is not None,
            kernel_initializer=weights_initializer, bias_initializer=biases_initializer,
            kernel_regularizer=weights_regularizer, bias_regularizer=biases_regularizer,
            trainable=trainable, name=sc.name, dtype=inputs.dtype.base_dtype, _scope=sc,
            _reuse=reuse,
        )  # fmt: skip
        outputs = layer(inputs)
        return finished(outputs, sc, activation_fn, normalizer_fn, normalizer_params,
                       outputs_collections)  # fmt: skip


def _fixed(activation: Any) -> Callable[..., Tensor]:
    def layer(*args: Any, **kwargs: Any) -> Tensor:
        """As `fully_connected`, with another activation."""
        kwargs.setdefault("activation_fn", activation)
        return fully_connected(*args, **kwargs)

    return layer


relu = export(v1=("contrib.layers.relu", "contrib.slim.relu"))(_fixed(activations.relu))
relu6 = export(v1=("contrib.layers.relu6", "contrib.slim.relu6"))(_fixed(activations.relu6))
linear = export(v1=("contrib.layers.linear", "contrib.slim.linear"))(_fixed(None))


@export(v1=("contrib.layers.bias_add", "contrib.slim.bias_add"))
@add_arg_scope
def bias_add(
    inputs: Any, activation_fn: Any = None, initializer: Any = ZEROS, regularizer: Any = None,
    reuse: Any = None, variables_collections: Any = None, outputs_collections: Any = None,
    trainable: bool = True, data_format: str = DATA_FORMAT_NHWC, scope: Any = None,
) -> Tensor:  # fmt: skip
    """Adds a bias to each channel."""
    with variable_scope(scope, "BiasAdd", [inputs], reuse=reuse) as sc:
        inputs = convert_to_tensor(inputs)
        axis = 1 if data_format.startswith("NC") else -1
        size = inputs.shape._size_at(axis)
        if size is None:
            raise ValueError(f"the number of channels must be known, got {inputs.shape}")
        biases = model_variable(
            "biases", shape=[size], dtype=inputs.dtype.base_dtype, initializer=initializer,
            regularizer=regularizer, trainable=trainable,
            collections=collection_of(variables_collections, "biases"),
        )  # fmt: skip
        outputs = activations.bias_add(inputs, biases, data_format=data_format)
        return finished(outputs, sc, activation_fn, None, None, outputs_collections)


conv2d = convolution


# Shapes.


@export(v1=("contrib.layers.flatten", "contrib.slim.flatten"))
@add_arg_scope
def flatten(inputs: Any, outputs_collections: Any = None, scope: Any = None) -> Tensor:
    """Makes one dimension of all but the batch. ValueError for a rank below 2 or unknown."""
    with name_scope(scope, "Flatten", [inputs]) as sc:
        inputs = convert_to_tensor(inputs)
        rank = inputs.shape.ndims
        if rank is None or rank < 2:
            raise ValueError(f"Inputs must have a least 2 dimensions, got {inputs.shape}")
        sizes = sizes_of(inputs)
        rest = product_of(sizes[1:])
        shape = [-1, rest] if isinstance(rest, int) and rest else [sizes[0], rest]
        outputs = array.reshape(inputs, array.stack(shape) if _is_mixed(shape) else shape)
        known = inputs.shape.as_list()
        outputs.set_shape([known[0], rest if isinstance(rest, int) else None])
        return collect_named_outputs(outputs_collections, sc.rstrip("/"), outputs)


def _is_mixed(sizes: list[Any]) -> bool:
    return any(isinstance(s, Tensor) for s in sizes)


@export(v1=("contrib.layers.one_hot_encoding", "contrib.slim.one_hot_encoding"))
@add_arg_scope
def one_hot_encoding(
    labels: Any, num_classes: int, on_value: float = 1.0, off_value: float = 0.0,
    outputs_collections: Any = None, scope: Any = None,
) -> Tensor:  # fmt: skip
    """Classes as vectors that are `on_value` at the class."""
    with name_scope(scope, "OneHotEncoding", [labels]) as sc:
        labels = convert_to_tensor(labels)
        if labels.dtype == dtypes.int32:
            labels = math.cast(labels, dtypes.int64)
        outputs = gather.one_hot(labels, num_classes, on_value=on_value, off_value=off_value)
        return collect_named_outputs(outputs_collections, sc.rstrip("/"), outputs)


@export(v1=("contrib.layers.softmax", "contrib.slim.softmax"))
@add_arg_scope
def softmax(logits: Any, scope: Any = None) -> Tensor:
    """exp(logits) divided by its sum along the last dimension."""
    with variable_scope(scope, "softmax", [logits]):
        logits = convert_to_tensor(logits)
        last_dimension(logits.shape, min_rank=2)
        return activations.softmax(logits)


# Several layers at once.


@export(v1=("contrib.layers.repeat", "contrib.slim.repeat"))
@add_arg_scope
def repeat(inputs: Any, repetitions: int, layer: Any, *args: Any, **kwargs: Any) -> Tensor:
    """A layer of the same arguments several times over: scope/scope_1, scope/scope_2 and so on."""
    scope = kwargs.pop("scope", None)
    with variable_scope(scope, "Repeat", [inputs]):
        if scope is None:
            scope = getattr(layer, "__name__", "repeat")
        outputs = convert_to_tensor(inputs)
        for number in range(1, repetitions + 1):
            outputs = layer(outputs, *args, scope=f"{scope}_{number}", **kwargs)
        return outputs


@export(v1=("contrib.layers.stack", "contrib.slim.stack"))
def stack(inputs: Any, layer: Any, stack_args: Any, **kwargs: Any) -> Tensor:
    """A layer over and over, each time with other arguments of `stack_args`."""
    scope = kwargs.pop("scope", None)
    if not isinstance(stack_args, (list, tuple)):
        raise ValueError(f"stack_args need to be a list or tuple, got {stack_args!r}")
    with variable_scope(scope, "Stack", [inputs]):
        if scope is None:
            scope = getattr(layer, "__name__", "stack")
        outputs = convert_to_tensor(inputs)
        for number, given in enumerate(stack_args, 1):
            arguments = given if isinstance(given, (list, tuple)) else [given]
            outputs = layer(outputs, *arguments, scope=f"{scope}_{number}", **kwargs)
        return outputs
