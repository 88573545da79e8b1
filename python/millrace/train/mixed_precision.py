"""Training with half precision: the rewrite of graphs, and an optimiser that scales losses."""

from typing import Any

from millrace import _core, gen_ops
from millrace.core.export import export
from millrace.graph import mixed_precision
from millrace.graph.default_graph import get_default_graph
from millrace.graph.keys import GraphKeys
from millrace.graph.sparse import IndexedSlices
from millrace.ops.control_flow import smart_cond
from millrace.ops.ordering import group, no_op
from millrace.train.loss_scale import DynamicLossScale, LossScale, loss_scale_of
from millrace.train.optimizer import Optimizer
from millrace.train.wrapped_optimizer import WrappedOptimizer


@export(
    v1=(
        "mixed_precision.MixedPrecisionLossScaleOptimizer",
        "train.experimental.MixedPrecisionLossScaleOptimizer",
    )
)
class MixedPrecisionLossScaleOptimizer(WrappedOptimizer):
    """An optimiser that multiplies the loss by a scale before it computes gradients, and divides
    these by it. With a dynamic scale, steps whose gradients are infinite or no numbers change
    neither variables nor the global step.

    Args:
      opt: the optimiser that makes the updates.
      loss_scale: a number, "dynamic", or a LossScale.
    """

    def __init__(self, opt: Optimizer, loss_scale: Any):
        if not isinstance(opt, Optimizer):
            raise ValueError(f'"opt" must be an instance of Optimizer, but got: {type(opt)}')
        super().__init__(opt, opt.get_name(), opt._use_locking)
        if loss_scale is None:
            raise ValueError("loss_scale cannot be None")
        self._loss_scale: LossScale = loss_scale_of(loss_scale)
        self._track_trackable(self._opt, "base_optimizer")
        self._track_trackable(self._loss_scale, "loss_scale")

    def compute_gradients(self, loss: Any, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """[(gradient, variable)] as the optimiser inside computes them of the loss times the scale,
        divided by that again."""
        pairs = self._opt.compute_gradients(self._scaled(loss), *args, **kwargs)
        inverse = 1 / self._loss_scale()
        return [(None if g is None else _times(g, inverse), v) for g, v in pairs]

    def _scaled(self, loss: Any) -> Any:
        scale = self._loss_scale()
        if callable(loss):
            return lambda: _times(loss(), scale)
        return _times(loss, scale)

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: str | None = None
    ) -> Any:
        """As of the optimiser inside, in steps whose gradients are finite."""
        if not isinstance(self._loss_scale, DynamicLossScale):
            return self._opt.apply_gradients(grads_and_vars, global_step, name)
        pairs = tuple(grads_and_vars)
        name = name if name is not None else self.get_name()
        changed, finite = self._loss_scale.update([g for g, _ in pairs])

        def apply() -> Any:
            return self._opt.apply_gradients(pairs, global_step, name + "-wrapped")

        if _core.executing_eagerly():
            return apply() if finite else None
        before = list(get_default_graph().get_collection(GraphKeys.TRAIN_OP))
        done = group(smart_cond(finite, apply, no_op), changed, name=name)
        # What the branch does is no training step without the other.
        get_default_graph().get_collection_ref(GraphKeys.TRAIN_OP)[:] = [*before, done]
        return done

    def variables(self) -> list[Any]:
        """Those of the optimiser inside, and of the loss scale."""
        return self._opt.variables() + list(self._loss_scale._weights.values())


def _times(value: Any, scale: Any) -> Any:
    if isinstance(value, IndexedSlices):
        return IndexedSlices(_times(value.values, scale), value.indices, value.dense_shape)
    return value * gen_ops.cast(scale, value.dtype.base_dtype)


@export(
    v1=(
        "mixed_precision.enable_mixed_precision_graph_rewrite",
        "train.experimental.enable_mixed_precision_graph_rewrite",
    )
)
def enable_mixed_precision_graph_rewrite(opt: Optimizer, loss_scale: Any = "dynamic") -> Any:
    """Lets sessions that are made from now on compute in half precision on GPUs what does well with
    that, as if `graph_options.rewrite_options.auto_mixed_precision` were ON in their ConfigProto,
    unless it is OFF there. Gives `opt` with its loss scaled, so that gradients can be told from
    zero.

    Args:
      opt: a tf.train.Optimizer.
      loss_scale: a number, "dynamic", or a LossScale.

    ValueError for what is no optimiser, or scales its loss already.
    """
    if isinstance(opt, MixedPrecisionLossScaleOptimizer):
        raise ValueError(
            '"opt" must not already be an instance of a MixedPrecisionLossScaleOptimizer. '
            "`enable_mixed_precision_graph_rewrite` will automatically wrap the optimizer with a "
            "MixedPrecisionLossScaleOptimizer."
        )
    if not isinstance(opt, Optimizer):
        raise ValueError(f'"opt" must be an instance of a tf.train.Optimizer, but got: {opt}')
    wrapped = MixedPrecisionLossScaleOptimizer(opt, loss_scale)
    mixed_precision.set_enabled(True)
    return wrapped


@export(
    v1=(
        "mixed_precision.disable_mixed_precision_graph_rewrite",
        "train.experimental.disable_mixed_precision_graph_rewrite",
    )
)
def disable_mixed_precision_graph_rewrite() -> None:
    """Ends what `enable_mixed_precision_graph_rewrite` began, for sessions that are made from now
    on. Optimisers that it gave go on scaling."""
    mixed_precision.set_enabled(False)
