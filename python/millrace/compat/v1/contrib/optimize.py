"""A training step made in one call."""

from typing import Any, Callable

from millrace.compat.v1.contrib.summaries import (
    OPTIMIZER_SUMMARIES,
    add_gradients_summaries,
    summarize_global_norm,
)
from millrace.compat.v1.contrib.summaries import (
    summarize_gradients as summarize_each_gradient,
)
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import control_dependencies, get_default_graph
from millrace.graph.keys import GraphKeys
from millrace.graph.sparse import IndexedSlices
from millrace.ops import array, clip, math, numerics, random
from millrace.state.initializers import Constant
from millrace.state.variable_lists import trainable_variables
from millrace.state.variable_scope import get_variable, variable_scope
from millrace.summary import ops as summary
from millrace.train import optimizers
from millrace.train.global_step import get_or_create_global_step

OPTIMIZER_CLS_NAMES = export(v1="contrib.layers.OPTIMIZER_CLS_NAMES")(
    {
        "Adagrad": optimizers.AdagradOptimizer,
        "Adam": optimizers.AdamOptimizer,
        "Ftrl": optimizers.FtrlOptimizer,
        "Momentum": lambda learning_rate: optimizers.MomentumOptimizer(learning_rate, 0.9),
        "RMSProp": optimizers.RMSPropOptimizer,
        "SGD": optimizers.GradientDescentOptimizer,
    }
)


def _learning_rate(learning_rate: Any, global_step: Any, decay: Any) -> Any:
    if learning_rate is None:
        return None
    if _is_tensor(learning_rate):
        if convert_to_tensor(learning_rate).shape.ndims != 0:
            raise ValueError(
                f"Invalid learning_rate: expected a scalar, got shape {learning_rate.shape}"
            )
        rate = learning_rate
    elif isinstance(learning_rate, (int, float)):
        if learning_rate < 0:
            raise ValueError(f"Invalid learning_rate {learning_rate}.")
        rate = get_variable(
            "learning_rate", [], trainable=False, initializer=Constant(float(learning_rate))
        )
    else:
        raise ValueError(
            "Learning rate should be 0d Tensor or float. Got "
            f"{learning_rate} of type {type(learning_rate).__name__}"
        )
    if decay is None:
        return rate
    if global_step is None:
        raise ValueError("global_step is required for learning_rate_decay_fn.")
    return decay(rate, global_step)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor) or hasattr(value, "_as_graph_element")


def _optimizer(optimizer: Any, rate: Any) -> Any:
    if isinstance(optimizer, str):
        if optimizer not in OPTIMIZER_CLS_NAMES:
            raise ValueError(
                f"Optimizer name should be one of [{', '.join(OPTIMIZER_CLS_NAMES)}], you "
                f"provided {optimizer}."
            )
        return OPTIMIZER_CLS_NAMES[optimizer](learning_rate=rate)
    if isinstance(optimizer, type):
        return optimizer(learning_rate=rate)
    if hasattr(optimizer, "apply_gradients"):
        return optimizer
    if callable(optimizer):
        made = optimizer() if rate is None else optimizer(rate)
        if hasattr(made, "apply_gradients"):
            return made
    raise ValueError(
        "Unrecognized optimizer: should be a name, an Optimizer, a subclass of it or a function "
        f"that makes one. Got {optimizer!r}."
    )


def _scaled(grads_and_vars: Any, multipliers: Any) -> list[Any]:
    """Gradients times the factors given for their variables, or for the names of these."""
    result = []
    for grad, var in grads_and_vars:
        by_name = var.op.name if var.op.name in multipliers else var.name
        factor = multipliers.get(var, multipliers.get(by_name))
        if grad is not None and factor is not None:
            if isinstance(grad, IndexedSlices):
                factor = math.cast(factor, grad.dtype)
                grad = IndexedSlices(grad.values * factor, grad.indices, grad.dense_shape)
            else:
                grad = grad * math.cast(factor, grad.dtype)
        result.append((grad, var))
    return result


@export(v1=("contrib.slim.learning.multiply_gradients", "contrib.training.multiply_gradients"))
def multiply_gradients(grads_and_vars: Any, gradient_multipliers: Any) -> list[Any]:
    """Gradients of (gradient, variable) pairs times factors, by variable or its name.

    ValueError for what is no list or no dict, none at all, and a factor of a gradient that is None.
    """
    if not isinstance(grads_and_vars, list):
        raise ValueError("`grads_and_vars` must be a list.")
    if not gradient_multipliers:
        raise ValueError("`gradient_multipliers` is empty.")
    if not isinstance(gradient_multipliers, dict):
        raise ValueError("`gradient_multipliers` must be a dict.")
    for grad, var in grads_and_vars:
        named = var in gradient_multipliers or var.op.name in gradient_multipliers
        if grad is None and named:
            raise ValueError(f"Requested multiple of `None` gradient: {var.op.name}")
    return _scaled(grads_and_vars, gradient_multipliers)


@export(v1=("contrib.slim.learning.clip_gradient_norms", "contrib.training.clip_gradient_norms"))
def clip_gradient_norms(gradients_to_variables: Any, max_norm: float) -> list[Any]:
    """Gradients of (gradient, variable) pairs, each clipped to a norm."""
    return [
        (None if grad is None else _clip_one(grad, max_norm), var)
        for grad, var in gradients_to_variables
    ]


def _noisy(grads_and_vars: Any, scale: Any) -> list[Any]:
    result = []
    for grad, var in grads_and_vars:
        if grad is not None:
            plain = convert_to_tensor(grad)
            grad = plain + random.truncated_normal(array.shape(plain)) * scale
        result.append((grad, var))
    return result


def _clipped(grads_and_vars: Any, limit: float) -> list[Any]:
    grads, variables = zip(*grads_and_vars, strict=True)
    clipped, _ = clip.clip_by_global_norm(list(grads), limit)
    return list(zip(clipped, variables, strict=True))


@export(v1="contrib.layers.optimize_loss")
def optimize_loss(
    loss: Any, global_step: Any, learning_rate: Any, optimizer: Any,
    gradient_noise_scale: Any = None, gradient_multipliers: Any = None,
    clip_gradients: Any = None, learning_rate_decay_fn: Callable[..., Any] | None = None,
    update_ops: Any = None, variables: Any = None, name: str | None = None,
    summaries: Any = None, colocate_gradients_with_ops: bool = False,
    increment_global_step: bool = True,
) -> Tensor:  # fmt: skip
    """A tensor of the loss whose evaluation takes a training step.

    Args:
      learning_rate: a number, a scalar tensor, or None where the optimizer has its own.
      optimizer: a name ("Adagrad", "Adam", "Ftrl", "Momentum", "RMSProp", "SGD"), an optimizer, a
        class of them, or a function of the learning rate that makes one.
      gradient_multipliers: factors by variable or its name.
      clip_gradients: the greatest global norm, or a function of [(gradient, variable)].
      learning_rate_decay_fn: of the learning rate and the step.
      update_ops: run along with the step; those of UPDATE_OPS by default.
      summaries: some of `OPTIMIZER_SUMMARIES`; the loss, the learning rate and the norm of all
        gradients by default.
    """
    if summaries is None:
        summaries = ["loss", "learning_rate", "global_gradient_norm"]
    for wanted in summaries:
        if wanted not in OPTIMIZER_SUMMARIES:
            raise ValueError(
                f"Summaries should be one of [{', '.join(OPTIMIZER_SUMMARIES)}], you provided "
                f"{wanted}."
            )
    loss = convert_to_tensor(loss)
    with variable_scope(name, "OptimizeLoss", [loss, global_step]):
        graph = get_default_graph()
        if global_step is None and increment_global_step:
            global_step = get_or_create_global_step(graph)
        if update_ops is None:
            update_ops = graph.get_collection(GraphKeys.UPDATE_OPS)
        if update_ops:
            with control_dependencies(list(update_ops)):
                loss = array.identity(loss)
        rate = _learning_rate(learning_rate, global_step, learning_rate_decay_fn)
        if rate is not None and "learning_rate" in summaries:
            summary.scalar("learning_rate", rate)
        chosen = _optimizer(optimizer, rate)
        if variables is None:
            variables = trainable_variables()
        gradients = chosen.compute_gradients(
            loss, variables, colocate_gradients_with_ops=colocate_gradients_with_ops
        )
        if gradient_noise_scale is not None:
            gradients = _noisy(gradients, gradient_noise_scale)
        if gradient_multipliers is not None:
            gradients = _scaled(gradients, gradient_multipliers)
        summarize_global_norm("gradient_norm", gradients, summaries)
        if callable(clip_gradients):
            gradients = clip_gradients(gradients)
        elif isinstance(clip_gradients, (int, float)):
            gradients = _clipped(gradients, clip_gradients)
        elif clip_gradients is not None:
            raise ValueError(
                f"Unknown type {type(clip_gradients).__name__} for clip_gradients: expected a "
                "number or a function"
            )
        if "loss" in summaries:
            summary.scalar("loss", loss)
        summarize_each_gradient(gradients, summaries)
        if clip_gradients is not None:
            summarize_global_norm("clipped_gradient_norm", gradients, summaries)
        step = chosen.apply_gradients(
            gradients, global_step=global_step if increment_global_step else None, name="train"
        )
        with control_dependencies([step]):
            return array.identity(loss, name="train_op")


_CURRENT = object()


@export(v1=("contrib.slim.learning.create_train_op", "contrib.training.create_train_op"))
def create_train_op(
    total_loss: Any, optimizer: Any, global_step: Any = _CURRENT, update_ops: Any = None,
    variables_to_train: Any = None, clip_gradient_norm: float = 0,
    summarize_gradients: bool = False, gate_gradients: int = 1, aggregation_method: Any = None,
    colocate_gradients_with_ops: bool = False, gradient_multipliers: Any = None,
    check_numerics: bool = True,
) -> Tensor:  # fmt: skip
    """A tensor of the loss whose evaluation takes a training step.

    Args:
      global_step: the program's own by default, None for none.
      update_ops: run along with the step; those of UPDATE_OPS by default.
      clip_gradient_norm: above 0, the greatest norm of each gradient.
      gradient_multipliers: factors by variable or its name.
      summarize_gradients: whether to add summaries of the gradients.
      check_numerics: fail where the loss is not finite.
    """
    if global_step is _CURRENT:
        global_step = get_or_create_global_step()
    graph = get_default_graph()
    if update_ops is None:
        update_ops = graph.get_collection(GraphKeys.UPDATE_OPS)
    total_loss = convert_to_tensor(total_loss)
    if update_ops:
        with control_dependencies(list(update_ops)):
            total_loss = array.identity(total_loss)
    if variables_to_train is None:
        variables_to_train = trainable_variables()
    gradients = optimizer.compute_gradients(
        total_loss, variables_to_train, gate_gradients=gate_gradients,
        aggregation_method=aggregation_method,
        colocate_gradients_with_ops=colocate_gradients_with_ops,
    )  # fmt: skip
    if gradient_multipliers:
        gradients = _scaled(gradients, gradient_multipliers)
    if clip_gradient_norm > 0:
        gradients = clip_gradient_norms(gradients, clip_gradient_norm)
    if summarize_gradients:
        add_gradients_summaries(gradients)
    step = optimizer.apply_gradients(gradients, global_step=global_step)
    if check_numerics:
        total_loss = numerics.check_numerics(total_loss, "LossTensor is inf or nan")
    with control_dependencies([step]):
        train_op = array.identity(total_loss, name="train_op")
    present = graph.get_collection_ref(GraphKeys.TRAIN_OP)
    if not any(train_op is op for op in present):
        present.append(train_op)
    return train_op


def _clip_one(grad: Any, limit: float) -> Any:
    if isinstance(grad, IndexedSlices):
        return IndexedSlices(clip.clip_by_norm(grad.values, limit), grad.indices, grad.dense_shape)
    return clip.clip_by_norm(grad, limit)
