"""Layers as functions, whose arguments scopes may give."""

from typing import Any, Callable

from millrace import gen_ops
from millrace.compat.v1.contrib.arg_scope import add_arg_scope
from millrace.compat.v1.contrib.regularizers import xavier_initializer
from millrace.compat.v1.contrib.variables import add_model_variable, model_variable
from millrace.compat.v1.layers import convolutional, core, normalization
from millrace.compat.v1.layers.sizes import normalize_tuple
from millrace.core import dtypes
from millrace.core.export import export
from millrace.graph.convert import convert_to_tensor
from millrace.graph.graph import Tensor, control_dependencies, get_default_graph, name_scope
from millrace.graph.keys import GraphKeys
from millrace.graph.sparse import SparseTensor
from millrace.ops import array, control_flow, math, reduce
from millrace.ops.nn import activations, conv, embedding, pool
from millrace.ops.nn import normalization as nn_normalization
from millrace.state.initializers import Ones, Zeros
from millrace.state.variable_scope import get_variable, variable_scope

_ZEROS = Zeros()
_ONES = Ones()
_XAVIER = xavier_initializer()

DATA_FORMAT_NCHW = "NCHW"
DATA_FORMAT_NHWC = "NHWC"


# Collections.


@export("contrib.layers.utils.collect_named_outputs", "contrib.slim.utils.collect_named_outputs")
def collect_named_outputs(collections: Any, alias: str, outputs: Tensor) -> Tensor:
    """Adds outputs to collections under a name that `convert_collection_to_dict` finds."""
    if collections:
        outputs.aliases = [*getattr(outputs, "aliases", []), alias]
        get_default_graph().add_to_collections(collections, outputs)
    return outputs


@export(
    "contrib.layers.utils.convert_collection_to_dict",
    "contrib.slim.utils.convert_collection_to_dict",
)
def convert_collection_to_dict(
    collection: str, clear_collection: bool = False
) -> dict[str, Tensor]:
    """The tensors of a collection by their names."""
    graph = get_default_graph()
    found = {}
    for tensor in graph.get_collection(collection):
        for alias in getattr(tensor, "aliases", None) or [tensor.op.name]:
            found[alias] = tensor
    if clear_collection:
        graph.clear_collection(collection)
    return found


@export("contrib.layers.utils.last_dimension", "contrib.slim.utils.last_dimension")
def last_dimension(shape: Any, min_rank: int = 1) -> int:
    """The size of the last dimension. ValueError when it or the rank is not known or too small."""
    if shape.ndims is None or shape.ndims < min_rank or shape[-1].value is None:
        raise ValueError(f"the last dimension of {shape} must be defined, of rank >= {min_rank}")
    return shape[-1].value


def _kind(collections: Any, name: str) -> Any:
    """The collections of a variable: of a list for all, or of a dict by name."""
    if collections is None:
        return None
    if isinstance(collections, dict):
        return collections.get(name)
    return collections


def _getter(rename: dict[str, str], variables_collections: Any) -> Callable[..., Any]:
    """Renames variables of layers, and makes them variables of models."""

    def custom(getter: Callable[..., Any], name: str, *args: Any, **kwargs: Any) -> Any:
        prefix, _, last = name.rpartition("/")
        last = rename.get(last, last)
        kwargs["collections"] = None
        variable = getter(f"{prefix}/{last}" if prefix else last, *args, **kwargs)
        for part in variable if hasattr(variable, "_get_variable_list") else [variable]:
            add_model_variable(part)
            for collection in _listed(_kind(variables_collections, last)):
                present = get_default_graph().get_collection_ref(collection)
                if not any(part is p for p in present):
                    present.append(part)
        return variable

    return custom


def _listed(x: Any) -> list[Any]:
    if x is None:
        return []
    return [x] if isinstance(x, str) else list(x)


def _finish(
    outputs: Tensor, scope: Any, activation_fn: Any, normalizer_fn: Any, normalizer_params: Any,
    outputs_collections: Any,
) -> Tensor:  # fmt: skip
    if normalizer_fn is not None:
        outputs = normalizer_fn(outputs, **(normalizer_params or {}))
    if activation_fn is not None:
        outputs = activation_fn(outputs)
    return collect_named_outputs(outputs_collections, scope.name, outputs)


_RENAMED = {
    "kernel": "weights", "bias": "biases", "depthwise_kernel": "depthwise_weights",
    "pointwise_kernel": "pointwise_weights",
}  # fmt: skip


# Dense layers.


@export("contrib.layers.fully_connected", "contrib.slim.fully_connected")
@add_arg_scope
def fully_connected(
    inputs: Any, num_outputs: int, activation_fn: Any = activations.relu,
    normalizer_fn: Any = None, normalizer_params: Any = None,
    weights_initializer: Any = _XAVIER, weights_regularizer: Any = None,
    biases_initializer: Any = _ZEROS, biases_regularizer: Any = None, reuse: Any = None,
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
    getter = _getter(_RENAMED, variables_collections)
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
        return _finish(outputs, sc, activation_fn, normalizer_fn, normalizer_params,
                       outputs_collections)  # fmt: skip


def _fixed(activation: Any) -> Callable[..., Tensor]:
    def layer(*args: Any, **kwargs: Any) -> Tensor:
        """As `fully_connected`, with another activation."""
        kwargs.setdefault("activation_fn", activation)
        return fully_connected(*args, **kwargs)

    return layer


relu = export("contrib.layers.relu", "contrib.slim.relu")(_fixed(activations.relu))
relu6 = export("contrib.layers.relu6", "contrib.slim.relu6")(_fixed(activations.relu6))
linear = export("contrib.layers.linear", "contrib.slim.linear")(_fixed(None))


@export("contrib.layers.bias_add", "contrib.slim.bias_add")
@add_arg_scope
def bias_add(
    inputs: Any, activation_fn: Any = None, initializer: Any = _ZEROS, regularizer: Any = None,
    reuse: Any = None, variables_collections: Any = None, outputs_collections: Any = None,
    trainable: bool = True, data_format: str = DATA_FORMAT_NHWC, scope: Any = None,
) -> Tensor:  # fmt: skip
    """Adds a bias to each channel."""
    with variable_scope(scope, "BiasAdd", [inputs], reuse=reuse) as sc:
        inputs = convert_to_tensor(inputs)
        axis = 1 if data_format.startswith("NC") else -1
        size = inputs.shape[axis].value
        if size is None:
            raise ValueError(f"the number of channels must be known, got {inputs.shape}")
        biases = model_variable(
            "biases", shape=[size], dtype=inputs.dtype.base_dtype, initializer=initializer,
            regularizer=regularizer, trainable=trainable,
            collections=_kind(variables_collections, "biases"),
        )  # fmt: skip
        outputs = activations.bias_add(inputs, biases, data_format=data_format)
        return _finish(outputs, sc, activation_fn, None, None, outputs_collections)


# Convolutions.


def _channels(data_format: str | None) -> str:
    first = data_format is not None and data_format.startswith("NC")
    return "channels_first" if first else "channels_last"


@export(
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
@add_arg_scope
def convolution(
    inputs: Any, num_outputs: int, kernel_size: Any, stride: Any = 1, padding: str = "SAME",
    data_format: str | None = None, rate: Any = 1, activation_fn: Any = activations.relu,
    normalizer_fn: Any = None, normalizer_params: Any = None,
    weights_initializer: Any = _XAVIER, weights_regularizer: Any = None,
    biases_initializer: Any = _ZEROS, biases_regularizer: Any = None, reuse: Any = None,
    variables_collections: Any = None, outputs_collections: Any = None, trainable: bool = True,
    scope: Any = None,
) -> Tensor:  # fmt: skip
    """A convolution of one, two or three spatial dimensions, by the rank of the inputs.

    Arguments as for `fully_connected`; `rate` is how far apart elements of the filters lie.
    """
    allowed = (None, "NWC", "NCW", "NHWC", "NCHW", "NDHWC", "NCDHW")
    if data_format not in allowed:
        raise ValueError(f"Invalid data_format: {data_format!r}")
    getter = _getter(_RENAMED, variables_collections)
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
        return _finish(outputs, sc, activation_fn, normalizer_fn, normalizer_params,
                       outputs_collections)  # fmt: skip


conv2d = convolution


@export(
    "contrib.layers.conv2d_transpose",
    "contrib.layers.convolution2d_transpose",
    "contrib.slim.conv2d_transpose",
    "contrib.slim.convolution2d_transpose",
)
@add_arg_scope
def convolution2d_transpose(
    inputs: Any, num_outputs: int, kernel_size: Any, stride: Any = 1, padding: str = "SAME",
    data_format: str = DATA_FORMAT_NHWC, activation_fn: Any = activations.relu,
    normalizer_fn: Any = None, normalizer_params: Any = None,
    weights_initializer: Any = _XAVIER, weights_regularizer: Any = None,
    biases_initializer: Any = _ZEROS, biases_regularizer: Any = None, reuse: Any = None,
    variables_collections: Any = None, outputs_collections: Any = None, trainable: bool = True,
    scope: Any = None,
) -> Tensor:  # fmt: skip
    """The transpose of a convolution of images; arguments as for `convolution`."""
    getter = _getter(_RENAMED, variables_collections)
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
        return _finish(outputs, sc, activation_fn, normalizer_fn, normalizer_params,
                       outputs_collections)  # fmt: skip


@export(
    "contrib.layers.separable_conv2d",
    "contrib.layers.separable_convolution2d",
    "contrib.slim.separable_conv2d",
    "contrib.slim.separable_convolution2d",
)
@add_arg_scope
def separable_convolution2d(
    inputs: Any, num_outputs: int | None, kernel_size: Any, depth_multiplier: int = 1,
    stride: Any = 1, padding: str = "SAME", data_format: str = DATA_FORMAT_NHWC, rate: Any = 1,
    activation_fn: Any = activations.relu, normalizer_fn: Any = None,
    normalizer_params: Any = None, weights_initializer: Any = _XAVIER,
    pointwise_initializer: Any = None, weights_regularizer: Any = None,
    biases_initializer: Any = _ZEROS, biases_regularizer: Any = None, reuse: Any = None,
    variables_collections: Any = None, outputs_collections: Any = None, trainable: bool = True,
    scope: Any = None,
) -> Tensor:  # fmt: skip
    """A convolution of each channel, then one across channels unless `num_outputs` is None.

    Arguments as for `convolution`; `depth_multiplier` is how many channels come of each.
    """
    getter = _getter(_RENAMED, variables_collections)
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
            channels = inputs.shape[1 if data_format.startswith("NC") else -1].value
            weights = get_variable(
                "depthwise_weights", trainable=trainable, dtype=inputs.dtype.base_dtype,
                shape=[*normalize_tuple(kernel_size, 2, "kernel_size"), channels, depth_multiplier],
                initializer=weights_initializer, regularizer=weights_regularizer,
            )  # fmt: skip
            outputs = conv.depthwise_conv2d(
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
        return _finish(outputs, sc, activation_fn, normalizer_fn, normalizer_params,
                       outputs_collections)  # fmt: skip


# Pooling.


def _pooled(
    op: Any, default: str, inputs: Any, kernel_size: Any, stride: Any, padding: str,
    data_format: str, outputs_collections: Any, scope: Any,
) -> Tensor:  # fmt: skip
    with name_scope(scope, default, [inputs]) as sc:
        kernel = [kernel_size] * 2 if isinstance(kernel_size, int) else list(kernel_size)
        steps = [stride] * 2 if isinstance(stride, int) else list(stride)
        outputs = op(convert_to_tensor(inputs), kernel, steps, padding, data_format)
        return collect_named_outputs(outputs_collections, sc.rstrip("/"), outputs)


@export("contrib.layers.max_pool2d", "contrib.slim.max_pool2d")
@add_arg_scope
def max_pool2d(
    inputs: Any, kernel_size: Any, stride: Any = 2, padding: str = "VALID",
    data_format: str = DATA_FORMAT_NHWC, outputs_collections: Any = None, scope: Any = None,
) -> Tensor:  # fmt: skip
    """The largest element of each window of images."""
    return _pooled(pool.max_pool, "MaxPool2D", inputs, kernel_size, stride, padding, data_format,
                   outputs_collections, scope)  # fmt: skip


@export("contrib.layers.avg_pool2d", "contrib.slim.avg_pool2d")
@add_arg_scope
def avg_pool2d(
    inputs: Any, kernel_size: Any, stride: Any = 2, padding: str = "VALID",
    data_format: str = DATA_FORMAT_NHWC, outputs_collections: Any = None, scope: Any = None,
) -> Tensor:  # fmt: skip
    """The mean of each window of images."""
    return _pooled(pool.avg_pool, "AvgPool2D", inputs, kernel_size, stride, padding, data_format,
                   outputs_collections, scope)  # fmt: skip


# Normalisation and dropout.


@export("contrib.layers.batch_norm", "contrib.slim.batch_norm")
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
    getter = _getter({}, variables_collections)
    with variable_scope(scope, "BatchNorm", [inputs], reuse=reuse, custom_getter=getter) as sc:
        inputs = convert_to_tensor(inputs)
        begin = {
            "beta": _ZEROS, "gamma": _ONES, "moving_mean": _ZEROS, "moving_variance": _ONES,
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
        return _finish(outputs, sc, activation_fn, None, None, outputs_collections)


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


@export("contrib.layers.layer_norm", "contrib.slim.layer_norm")
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
                collections=_kind(variables_collections, name), trainable=trainable,
            )  # fmt: skip

        beta = parameter("beta", _ZEROS) if center else None
        gamma = parameter("gamma", _ONES) if scale else None
        mean, variance = nn_normalization.moments(
            inputs, list(range(norm_axis, rank)), keepdims=True
        )
        epsilon = 1e-12 if inputs.dtype.base_dtype != dtypes.float16 else 1e-3
        outputs = nn_normalization.batch_normalization(inputs, mean, variance, beta, gamma, epsilon)
        outputs.set_shape(shape)
        return _finish(outputs, sc, activation_fn, None, None, outputs_collections)


@export("contrib.layers.unit_norm", "contrib.slim.unit_norm")
@add_arg_scope
def unit_norm(inputs: Any, dim: int, epsilon: float = 1e-7, scope: Any = None) -> Tensor:
    """The inputs divided by their length along a dimension."""
    with variable_scope(scope, "UnitNorm", [inputs]):
        inputs = convert_to_tensor(inputs)
        lengths = math.sqrt(epsilon + reduce.reduce_sum(math.square(inputs), dim, keepdims=True))
        return math.divide(inputs, lengths)


@export("contrib.layers.dropout", "contrib.slim.dropout")
@add_arg_scope
def dropout(
    inputs: Any, keep_prob: Any = 0.5, noise_shape: Any = None, is_training: Any = True,
    outputs_collections: Any = None, scope: Any = None, seed: int | None = None,
) -> Tensor:  # fmt: skip
    """Keeps elements with a probability, scaled by its inverse, in training only."""
    with variable_scope(scope, "Dropout", [inputs]) as sc:
        inputs = convert_to_tensor(inputs)
        if _is_tensor(is_training):
            is_training = convert_to_tensor(is_training)
        outputs = control_flow.smart_cond(
            is_training,
            lambda: activations.dropout(inputs, keep_prob, noise_shape, seed),
            lambda: array.identity(inputs),
        )
        return collect_named_outputs(outputs_collections, sc.name, outputs)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor) or hasattr(value, "_as_graph_element")


# Shapes.


@export("contrib.layers.flatten", "contrib.slim.flatten")
@add_arg_scope
def flatten(inputs: Any, outputs_collections: Any = None, scope: Any = None) -> Tensor:
    """Makes one dimension of all but the batch. ValueError for a rank below 2 or unknown."""
    with name_scope(scope, "Flatten", [inputs]) as sc:
        inputs = convert_to_tensor(inputs)
        rank = inputs.shape.ndims
        if rank is None or rank < 2:
            raise ValueError(f"Inputs must have a least 2 dimensions, got {inputs.shape}")
        sizes = math.sizes_of(inputs)
        rest = math.product(sizes[1:])
        shape = [-1, rest] if isinstance(rest, int) and rest else [sizes[0], rest]
        outputs = array.reshape(inputs, array.stack(shape) if _is_mixed(shape) else shape)
        known = inputs.shape.as_list()
        outputs.set_shape([known[0], rest if isinstance(rest, int) else None])
        return collect_named_outputs(outputs_collections, sc.rstrip("/"), outputs)


def _is_mixed(sizes: list[Any]) -> bool:
    return any(isinstance(s, Tensor) for s in sizes)


@export("contrib.layers.one_hot_encoding", "contrib.slim.one_hot_encoding")
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
        outputs = array.one_hot(labels, num_classes, on_value=on_value, off_value=off_value)
        return collect_named_outputs(outputs_collections, sc.rstrip("/"), outputs)


@export("contrib.layers.softmax", "contrib.slim.softmax")
@add_arg_scope
def softmax(logits: Any, scope: Any = None) -> Tensor:
    """exp(logits) divided by its sum along the last dimension."""
    with variable_scope(scope, "softmax", [logits]):
        logits = convert_to_tensor(logits)
        last_dimension(logits.shape, min_rank=2)
        return activations.softmax(logits)


# Several layers at once.


@export("contrib.layers.repeat", "contrib.slim.repeat")
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


@export("contrib.layers.stack", "contrib.slim.stack")
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


# Embeddings.


@export("contrib.layers.embedding_lookup_unique")
def embedding_lookup_unique(params: Any, ids: Any, name: str | None = None) -> Tensor:
    """`embedding_lookup` that reads each row once, however often its id occurs."""
    with name_scope(name, "EmbeddingLookupUnique", [params, ids]):
        ids = convert_to_tensor(ids)
        flat = array.reshape(ids, [-1])
        unique, places = gen_ops.unique(flat)
        rows = array.gather(embedding.embedding_lookup(params, unique), places)
        result = array.reshape(rows, array.concat([array.shape(ids), array.shape(rows)[1:]], 0))
        result.set_shape(ids.shape.concatenate(rows.shape[1:]))
        return result


@export("contrib.layers.embed_sequence")
def embed_sequence(
    ids: Any, vocab_size: int | None = None, embed_dim: int | None = None, unique: bool = False,
    initializer: Any = None, regularizer: Any = None, trainable: bool = True, scope: Any = None,
    reuse: Any = None,
) -> Tensor:  # fmt: skip
    """Rows of a table [vocab_size, embed_dim] for ids [batch, length].

    ValueError unless both sizes are given, or `reuse` is.
    """
    if not (reuse or (vocab_size and embed_dim)):
        raise ValueError(f"Must specify vocab size and embedding dimension when not reusing. Got "
                         f"vocab_size={vocab_size} and embed_dim={embed_dim}")  # fmt: skip
    with variable_scope(scope, "EmbedSequence", [ids], reuse=reuse):
        table = model_variable(
            "embeddings", shape=[vocab_size, embed_dim], initializer=initializer,
            regularizer=regularizer, trainable=trainable,
        )  # fmt: skip
        if unique:
            return embedding_lookup_unique(table, ids)
        return embedding.embedding_lookup(table, ids)


@export("contrib.layers.bow_encoder")
def bow_encoder(
    ids: Any, vocab_size: int, embed_dim: int, sparse_lookup: bool = True, initializer: Any = None,
    regularizer: Any = None, trainable: bool = True, scope: Any = None, reuse: Any = None,
) -> Tensor:  # fmt: skip
    """The mean of the rows of a table for the ids [batch, length] of each example.

    `sparse_lookup`: leave out ids of 0.
    """
    with variable_scope(scope, "BagOfWordsEmbedding", [ids], reuse=reuse):
        table = model_variable(
            "embeddings", shape=[vocab_size, embed_dim], initializer=initializer,
            regularizer=regularizer, trainable=trainable,
        )  # fmt: skip
        if not sparse_lookup:
            return reduce.reduce_mean(embedding.embedding_lookup(table, ids), 1)
        if not isinstance(ids, SparseTensor):
            ids = convert_to_tensor(ids)
            places = gen_ops.where(math.not_equal(ids, array.zeros_like(ids)))
            ids = SparseTensor(
                places, array.gather_nd(ids, places), array.shape(ids, out_type=dtypes.int64)
            )
        return embedding.safe_embedding_lookup_sparse([table], ids, combiner="mean", default_id=0)
