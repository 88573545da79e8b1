"""Learning rates by step, as objects: what optimizers call with the number of steps."""

from typing import Any

from millrace.core.export import export
from millrace.graph.convert import convert_to_tensor
from millrace.train import schedules


@export(
    v2=(
        "optimizers.schedules.LearningRateSchedule",
        "keras.optimizers.schedules.LearningRateSchedule",
    )
)
class LearningRateSchedule:
    """A learning rate that follows the number of steps: `schedule(step)`."""

    _arguments: tuple[str, ...] = ()

    def __call__(self, step: Any) -> Any:
        raise NotImplementedError("a LearningRateSchedule has __call__(step)")

    def get_config(self) -> dict[str, Any]:
        """The arguments that make such a schedule."""
        return {name: getattr(self, name) for name in self._arguments}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "LearningRateSchedule":
        """The schedule of a configuration."""
        return cls(**config)


@export(v2=("optimizers.schedules.ExponentialDecay", "keras.optimizers.schedules.ExponentialDecay"))
class ExponentialDecay(LearningRateSchedule):
    """initial_learning_rate * decay_rate ^ (step / decay_steps)."""

    _arguments = ("initial_learning_rate", "decay_steps", "decay_rate", "staircase", "name")

    def __init__(
        self, initial_learning_rate: Any, decay_steps: Any, decay_rate: Any,
        staircase: bool = False, name: str | None = None,
    ):  # fmt: skip
        self.initial_learning_rate, self.decay_steps = initial_learning_rate, decay_steps
        self.decay_rate, self.staircase, self.name = decay_rate, staircase, name

    def __call__(self, step: Any) -> Any:
        return schedules.exponential_decay(
            self.initial_learning_rate, step, self.decay_steps, self.decay_rate, self.staircase,
            self.name,
        )  # fmt: skip


@export(v2=("optimizers.schedules.InverseTimeDecay", "keras.optimizers.schedules.InverseTimeDecay"))
class InverseTimeDecay(ExponentialDecay):
    """initial_learning_rate / (1 + decay_rate * step / decay_steps)."""

    def __call__(self, step: Any) -> Any:
        return schedules.inverse_time_decay(
            self.initial_learning_rate, step, self.decay_steps, self.decay_rate, self.staircase,
            self.name,
        )  # fmt: skip


@export(v2=("optimizers.schedules.PolynomialDecay", "keras.optimizers.schedules.PolynomialDecay"))
class PolynomialDecay(LearningRateSchedule):
    """From `initial_learning_rate` to `end_learning_rate` in `decay_steps`, along a polynomial."""

    _arguments = (
        "initial_learning_rate", "decay_steps", "end_learning_rate", "power", "cycle", "name",
    )  # fmt: skip

    def __init__(
        self, initial_learning_rate: Any, decay_steps: Any, end_learning_rate: Any = 0.0001,
        power: Any = 1.0, cycle: bool = False, name: str | None = None,
    ):  # fmt: skip
        self.initial_learning_rate, self.decay_steps = initial_learning_rate, decay_steps
        self.end_learning_rate, self.power = end_learning_rate, power
        self.cycle, self.name = cycle, name

    def __call__(self, step: Any) -> Any:
        return schedules.polynomial_decay(
            self.initial_learning_rate, step, self.decay_steps, self.end_learning_rate, self.power,
            self.cycle, self.name,
        )  # fmt: skip


@export(
    v2=(
        "optimizers.schedules.PiecewiseConstantDecay",
        "keras.optimizers.schedules.PiecewiseConstantDecay",
    )
)
class PiecewiseConstantDecay(LearningRateSchedule):
    """values[i] up to step boundaries[i], the last one after that."""

    _arguments = ("boundaries", "values", "name")

    def __init__(self, boundaries: Any, values: Any, name: str | None = None):
        if len(boundaries) != len(values) - 1:
            raise ValueError(
                "The length of boundaries should be 1 less than the length of values. Received: "
                f"boundaries={boundaries} of length {len(boundaries)}, and values={values} of "
                f"length {len(values)}."
            )
        self.boundaries, self.values, self.name = boundaries, values, name

    def __call__(self, step: Any) -> Any:
        step = convert_to_tensor(step)
        return schedules.piecewise_constant(step, list(self.boundaries), self.values, self.name)


@export(v2=("optimizers.schedules.CosineDecay", "keras.optimizers.schedules.CosineDecay"))
class CosineDecay(LearningRateSchedule):
    """From `initial_learning_rate` to `alpha` times that in `decay_steps`, along a cosine."""

    _arguments = ("initial_learning_rate", "decay_steps", "alpha", "name")

    def __init__(
        self, initial_learning_rate: Any, decay_steps: Any, alpha: Any = 0.0,
        name: str | None = None,
    ):  # fmt: skip
        self.initial_learning_rate, self.decay_steps = initial_learning_rate, decay_steps
        self.alpha, self.name = alpha, name

    def __call__(self, step: Any) -> Any:
        return schedules.cosine_decay(
            self.initial_learning_rate, step, self.decay_steps, self.alpha, self.name
        )


@export(
    v2=(
        "optimizers.schedules.CosineDecayRestarts",
        "keras.optimizers.schedules.CosineDecayRestarts",
    )
)
class CosineDecayRestarts(LearningRateSchedule):
    """CosineDecay again and again, each time `t_mul` times as long and from `m_mul` times as
    high."""

    _arguments = (
        "initial_learning_rate", "first_decay_steps", "t_mul", "m_mul", "alpha", "name",
    )  # fmt: skip

    def __init__(
        self, initial_learning_rate: Any, first_decay_steps: Any, t_mul: Any = 2.0,
        m_mul: Any = 1.0, alpha: Any = 0.0, name: str | None = None,
    ):  # fmt: skip
        self.initial_learning_rate = initial_learning_rate
        self.first_decay_steps = first_decay_steps
        self.t_mul, self.m_mul, self.alpha, self.name = t_mul, m_mul, alpha, name

    def __call__(self, step: Any) -> Any:
        return schedules.cosine_decay_restarts(
            self.initial_learning_rate, step, self.first_decay_steps, self.t_mul, self.m_mul,
            self.alpha, self.name,
        )  # fmt: skip
