"""Normalisation and dropout."""

from typing import Any

from millrace.compat.v1.contrib.arg_scope import add_arg_scope
from millrace.compat.v1.contrib.layer_outputs import (
    DATA_FORMAT_NCHW,
    DATA_FORMAT_NHWC,
    ONES,
    ZEROS,
    collect_named_outputs,
    collection_of,
    finished,
    variable_getter,
)
from millrace.compat.v1.contrib.variables import model_variable
from millrace.compat.v1.layers import normalization
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor, is_tensor_like
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import control_dependencies, get_default_graph
from millrace.graph.keys import GraphKeys
from millrace.ops import array, control_flow, math, reduce
from millrace.ops.nn import activations
from millrace.ops.nn import normalization as nn_normalization
from millrace.state.variable_scope import variable_scope


@export(v1=("contrib.layers.batch_norm", "contrib.slim.batch_norm"))
@add_arg_scope
def batch_norm(
    inputs: Any, decay: float = 0.999, center: bool = True, scale: bool = False,
    epsilon: float = 0.001, activation_fn: Any = None, param_initializers: Any = None,
    param_regularizers: Any = None, updates_collections: Any = GraphKeys.UPDATE_OPS,
    is_training: Any = True, reuse: Any = None, variables_collections: Any = None,
    outputs_collections: Any = None, trainable: bool = True, batch_weights: Any = None,
    fused: bool | None = None, data_format: str = DATA_FORMAT_NHWC,
    zero_debias_moving_mean: bool = False, scope: Any = None, renorm: bool = False,
    renorm_clipping: Any = None, renorm_decay: float = 0.99, adjustment: Any = None,
) -> Tensor:  # fmt: skip
    """Normalises by the moments of the batch in training, by moving averages otherwise.

    Args:
      decay: how much of the averages is kept at each step.
      updates_collections: where the updates of the averages go; None to make the outputs wait for
        them.
      param_initializers, param_regularizers: dicts by "beta", "gamma", "moving_mean",
        "moving_variance".

    Errors: ValueError for `batch_weights` and `zero_debias_moving_mean`, which are not supported.
    """
    if batch_weights is not None or zero_debias_moving_mean:
        raise ValueError("batch_norm: batch_weights and zero_debias_moving_mean are not supported")
    if data_format not in (DATA_FORMAT_NCHW, DATA_FORMAT_NHWC):
        raise ValueError("data_format has to be either NCHW or NHWC.")
    getter = variable_getter({}, variables_collections)
    with variable_scope(scope, "BatchNorm", [inputs], reuse=reuse, custom_getter=getter) as sc:
        inputs = convert_to_tensor(inputs)
        begin = {
            "beta": ZEROS, "gamma": ONES, "moving_mean": ZEROS, "moving_variance": ONES,
            **(param_initializers or {}),
        }  # fmt: skip
        regularizers = param_regularizers or {}
        layer = normalization.BatchNormalization(
            axis=1 if data_format == DATA_FORMAT_NCHW else -1, momentum=decay, epsilon=epsilon,
            center=center, scale=scale, beta_initializer=begin["beta"],
            gamma_initializer=begin["gamma"], moving_mean_initializer=begin["moving_mean"],
            moving_variance_initializer=begin["moving_variance"],
            beta_regularizer=regularizers.get("beta"),
            gamma_regularizer=regularizers.get("gamma"), trainable=trainable, renorm=renorm,
            renorm_clipping=renorm_clipping, renorm_momentum=renorm_decay, fused=fused,
            adjustment=adjustment, name=sc.name, _scope=sc, _reuse=reuse,
        )  # fmt: skip
        outputs = layer(inputs, training=is_training)
        if updates_collections != GraphKeys.UPDATE_OPS:
            outputs = _update_elsewhere(layer.updates, updates_collections, outputs)
        return finished(outputs, sc, activation_fn, None, None, outputs_collections)


def _update_elsewhere(updates: list[Any], collections: Any, outputs: Tensor) -> Tensor:
    """Takes updates out of UPDATE_OPS into other collections, or makes the outputs wait."""
    graph = get_default_graph()
    ours = {id(u) for u in updates}
    present = graph.get_collection_ref(GraphKeys.UPDATE_OPS)
    present[:] = [u for u in present if id(u) not in ours]
    if collections is None:
        with control_dependencies(updates):
            return array.identity(outputs)
    for update in updates:
        graph.add_to_collections(collections, update)
    return outputs


@export(v1=("contrib.layers.layer_norm", "contrib.slim.layer_norm"))
@add_arg_scope
def layer_norm(
    inputs: Any, center: bool = True, scale: bool = True, activation_fn: Any = None,
    reuse: Any = None, variables_collections: Any = None, outputs_collections: Any = None,
    trainable: bool = True, begin_norm_axis: int = 1, begin_params_axis: int = -1,
    scope: Any = None,
) -> Tensor:  # fmt: skip
    """Normalises each example by the moments of its dimensions from `begin_norm_axis` on."""
    with variable_scope(scope, "LayerNorm", [inputs], reuse=reuse) as sc:
        inputs = convert_to_tensor(inputs)
        shape = inputs.shape
        rank = shape.ndims
        if rank is None:
            raise ValueError(f"Inputs {inputs.name} has undefined rank.")
        norm_axis = begin_norm_axis + rank if begin_norm_axis < 0 else begin_norm_axis
        params_axis = begin_params_axis + rank if begin_params_axis < 0 else begin_params_axis
        if norm_axis >= rank or params_axis >= rank:
            raise ValueError(
                f"begin_params_axis ({params_axis}) and begin_norm_axis ({norm_axis}) must be < "
                f"rank(inputs) ({rank})"
            )
        params = shape[params_axis:]
        if not params.is_fully_defined():
            raise ValueError(
                f"Inputs {inputs.name}: shape(inputs)[{params_axis}:] is not fully defined: {shape}"
            )

        def parameter(name: str, initializer: Any) -> Any:
            return model_variable(
                name, shape=params, dtype=inputs.dtype.base_dtype, initializer=initializer,
                collections=collection_of(variables_collections, name), trainable=trainable,
            )  # fmt: skip

        beta = parameter("beta", ZEROS) if center else None
        gamma = parameter("gamma", ONES) if scale else None
        mean, variance = nn_normalization.moments(
            inputs, list(range(norm_axis, rank)), keepdims=True
        )
        epsilon = 1e-12 if inputs.dtype.base_dtype != dtypes.float16 else 1e-3
        outputs = nn_normalization.batch_normalization(inputs, mean, variance, beta, gamma, epsilon)
        outputs.set_shape(shape)
        return finished(outputs, sc, activation_fn, None, None, outputs_collections)


@export(v1=("contrib.layers.unit_norm", "contrib.slim.unit_norm"))
@add_arg_scope
def unit_norm(inputs: Any, dim: int, epsilon: float = 1e-7, scope: Any = None) -> Tensor:
    """The inputs divided by their length along a dimension."""
    with variable_scope(scope, "UnitNorm", [inputs]):
        inputs = convert_to_tensor(inputs)
        lengths = math.sqrt(epsilon + reduce.reduce_sum(math.square(inputs), dim, keepdims=True))
        return math.divide(inputs, lengths)


@export(v1=("contrib.layers.dropout", "contrib.slim.dropout"))
@add_arg_scope
def dropout(
    inputs: Any, keep_prob: Any = 0.5, noise_shape: Any = None, is_training: Any = True,
    outputs_collections: Any = None, scope: Any = None, seed: int | None = None,
) -> Tensor:  # fmt: skip
    """Keeps elements with a probability, scaled by its inverse, in training only."""
    with variable_scope(scope, "Dropout", [inputs]) as sc:
        inputs = convert_to_tensor(inputs)
        if is_tensor_like(is_training):
            is_training = convert_to_tensor(is_training)
        outputs = control_flow.smart_cond(
            is_training,
            lambda: activations.dropout(inputs, keep_prob, noise_shape, seed),
            lambda: array.identity(inputs),
        )
        return collect_named_outputs(outputs_collections, sc.name, outputs)
