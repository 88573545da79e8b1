"""What a loss is multiplied by so that its gradients can be told from zero in half precision."""

from typing import Any

from millrace import _core, gen_ops
from millrace.core import dtypes, nest
from millrace.core.export import export
from millrace.core.trackable import Trackable
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import get_default_graph
from millrace.graph.sparse import IndexedSlices
from millrace.ops.ordering import group, no_op
from millrace.ops.reduce import reduce_all
from millrace.state.eager_variable import Variable as EagerVariable
from millrace.state.variables import Variable


@export(
    v1=(
        "mixed_precision.LossScale",
        "mixed_precision.experimental.LossScale",
        "train.experimental.LossScale",
    )
)
class LossScale(Trackable):
    """The base of loss scales.

    A loss is multiplied by its scale before gradients are computed, and these are divided by it
    afterwards: the same in exact arithmetic, but in half precision what would have become zero on
    the way does not. `loss_scale()` is the scale, a scalar of float32.
    """

    def __init__(self) -> None:
        # By name and graph; None for those outside of graphs.
        self._weights: dict[tuple[str, Any], Any] = {}

    def __call__(self) -> Any:
        """The scale as it is now."""
        raise NotImplementedError

    def update(self, grads: Any) -> tuple[Any, Any]:
        """Changes the scale as the gradients of a step demand, which were divided by it already.

        Gives the operation that does so (outside of graphs it has been done, and there is none),
        and whether the gradients are to be applied, a bool or a scalar tensor of bool.
        """
        raise NotImplementedError

    def get_config(self) -> dict[str, Any]:
        """The arguments that make such a scale."""
        raise NotImplementedError

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "LossScale":
        """The scale that `get_config` told of."""
        return cls(**config)

    def _add_weight(self, name: str, initial_value: Any, dtype: Any = None) -> Any:
        """A variable of the scale. RuntimeError for a second one of the name."""
        eager = _core.executing_eagerly()
        key = (name, None if eager else get_default_graph())
        if key in self._weights:
            raise RuntimeError(f"Duplicate variables detected. {key}")
        if eager:
            made: Any = EagerVariable(initial_value, name=name, dtype=dtype, trainable=False)
        else:
            made = Variable(
                initial_value, name=name, dtype=dtype, trainable=False, use_resource=True
            )
        self._weights[key] = made
        self._handle_deferred_dependencies(name, made)
        return made

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> dict[str, Any]:
        children = super()._trackable_children(save_type, **kwargs)
        here = None if _core.executing_eagerly() else get_default_graph()
        for (name, graph), variable in sorted(self._weights.items(), key=lambda e: e[0][0]):
            if graph is here:
                children[name] = variable
        return children


@export(
    v1=(
        "mixed_precision.FixedLossScale",
        "mixed_precision.experimental.FixedLossScale",
        "train.experimental.FixedLossScale",
    )
)
class FixedLossScale(LossScale):
    """A scale that stays as it is.

    Args:
      loss_scale_value: the scale, at least 1.
    """

    def __init__(self, loss_scale_value: float):
        super().__init__()
        if not isinstance(loss_scale_value, (int, float)):
            raise ValueError("loss_scale_value must be a Python int or float.")
        if not loss_scale_value >= 1:
            raise ValueError("loss_scale_value must be at least 1.")
        self._loss_scale_value = float(loss_scale_value)

    def __call__(self) -> Any:
        """The scale."""
        return convert_to_tensor(self._loss_scale_value)

    def update(self, grads: Any) -> tuple[Any, Any]:
        """Does nothing: gradients are always to be applied."""
        del grads
        return no_op(), True

    def __repr__(self) -> str:
        return f"FixedLossScale({self._loss_scale_value})"

    def get_config(self) -> dict[str, Any]:
        """The argument that makes it."""
        return {"loss_scale_value": self._loss_scale_value}


@export(
    v1=(
        "mixed_precision.DynamicLossScale",
        "mixed_precision.experimental.DynamicLossScale",
        "train.experimental.DynamicLossScale",
    )
)
class DynamicLossScale(LossScale):
    """A scale as large as gradients allow. Where one of them is infinite or no number, the step's
    gradients are not applied, and the scale is divided by `multiplier`, though not below 1; after
    `increment_period` steps without that it is multiplied by it.

    Args:
      initial_loss_scale: what it begins with. One that is too large gets smaller soon.
      increment_period: how many steps without such gradients make it larger.
      multiplier: by how much it changes.
    """

    def __init__(
        self,
        initial_loss_scale: float = 2**15,
        increment_period: int = 2000,
        multiplier: float = 2.0,
    ):
        super().__init__()
        self._initial_loss_scale = float(initial_loss_scale)
        self._increment_period = int(increment_period)
        self._multiplier = float(multiplier)
        self._current_loss_scale = self._add_weight(
            "current_loss_scale", self._initial_loss_scale, dtypes.float32
        )
        self._num_good_steps = self._add_weight("good_steps", 0, dtypes.int64)

    @property
    def initial_loss_scale(self) -> float:
        """What it begins with."""
        return self._initial_loss_scale

    @property
    def increment_period(self) -> int:
        """How many steps with finite gradients make it larger."""
        return self._increment_period

    @property
    def multiplier(self) -> float:
        """By how much it changes."""
        return self._multiplier

    def __call__(self) -> Any:
        """The scale as it is now."""
        return convert_to_tensor(self._current_loss_scale)

    def update(self, grads: Any) -> tuple[Any, Any]:
        """Counts a step with these gradients."""
        finite = _are_finite(nest.flatten(grads))
        scale = convert_to_tensor(self._current_loss_scale)
        steps = convert_to_tensor(self._num_good_steps) + 1
        enough = gen_ops.greater_equal(
            steps, convert_to_tensor(self._increment_period, dtype=dtypes.int64)
        )
        larger = scale * self._multiplier
        larger = gen_ops.select_v2(
            gen_ops.logical_and(enough, gen_ops.is_finite(larger)), larger, scale
        )
        smaller = gen_ops.maximum(scale / self._multiplier, 1.0)
        none = convert_to_tensor(0, dtype=dtypes.int64)
        kept = gen_ops.logical_and(finite, gen_ops.logical_not(enough))
        changes = [
            self._current_loss_scale.assign(gen_ops.select_v2(finite, larger, smaller)),
            self._num_good_steps.assign(gen_ops.select_v2(kept, steps, none)),
        ]
        return None if _core.executing_eagerly() else group(*changes), finite

    def __repr__(self) -> str:
        now = ""
        if _core.executing_eagerly():
            now = (
                f"current_loss_scale={self._current_loss_scale.numpy()}, "
                f"num_good_steps={self._num_good_steps.numpy()}, "
            )
        return (
            f"DynamicLossScale({now}initial_loss_scale={self.initial_loss_scale}, "
            f"increment_period={self.increment_period}, multiplier={self.multiplier})"
        )

    def get_config(self) -> dict[str, Any]:
        """The arguments that make it."""
        return {
            "initial_loss_scale": self.initial_loss_scale,
            "increment_period": self.increment_period,
            "multiplier": self.multiplier,
        }


def _are_finite(grads: list[Any]) -> Any:
    """Whether all elements of all gradients are, a scalar tensor of bool."""
    finite = [
        reduce_all(gen_ops.is_finite(g.values if isinstance(g, IndexedSlices) else g))
        for g in grads
        if g is not None
    ]
    return reduce_all(convert_to_tensor(finite)) if finite else convert_to_tensor(True)


def loss_scale_of(identifier: Any) -> LossScale:
    """The LossScale that a number, "dynamic" or a LossScale stands for. ValueError for others."""
    if isinstance(identifier, (int, float)):
        return FixedLossScale(identifier)
    if identifier == "dynamic":
        return DynamicLossScale()
    if isinstance(identifier, LossScale):
        return identifier
    raise ValueError(f"Could not interpret loss scale identifier: {identifier}")
