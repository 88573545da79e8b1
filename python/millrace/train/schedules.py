"""Learning rates that fall with the number of steps."""

import functools
import math
from typing import Any, Callable

from millrace import _core, gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.ops.random import random_normal


def _cast(value: Any, dtype: Any) -> Tensor:
    tensor = convert_to_tensor(value)
    return tensor if tensor.dtype.base_dtype is dtype else gen_ops.cast(tensor, dtype)


class _Schedule:
    """A context with what all schedules begin with: the rate, and other values in its type."""

    def __init__(self, name: str | None, default: str, learning_rate: Any, step: Any, *others: Any):
        if step is None:
            raise ValueError("global_step is required for " + _function_names[default] + ".")
        self._scope = name_scope(name, default, [learning_rate, step, *others])
        self._rate, self._values = learning_rate, (step, *others)

    def __enter__(self) -> tuple[Any, ...]:
        scope = self._scope.__enter__()
        rate = convert_to_tensor(self._rate, name="learning_rate")
        dtype = rate.dtype.base_dtype
        return (scope, rate, *(_cast(value, dtype) for value in self._values))

    def __exit__(self, *_: Any) -> None:
        self._scope.__exit__()


_function_names = {
    "ExponentialDecay": "exponential_decay",
    "NaturalExpDecay": "natural_exp_decay",
    "InverseTimeDecay": "inverse_time_decay",
    "PolynomialDecay": "polynomial_decay",
    "CosineDecay": "cosine_decay",
    "SGDRDecay": "cosine_decay_restarts",
    "LinearCosineDecay": "linear_cosine_decay",
    "NoisyLinearCosineDecay": "noisy_linear_cosine_decay",
}


def exponential_decay(
    learning_rate: Any, global_step: Any, decay_steps: Any, decay_rate: Any,
    staircase: bool = False, name: str | None = None,
) -> Tensor:  # fmt: skip
    """learning_rate * decay_rate ^ (global_step / decay_steps).

    `staircase`: whole numbers of `decay_steps` only.
    """
    with _Schedule(
        name, "ExponentialDecay", learning_rate, global_step, decay_steps, decay_rate
    ) as (scope, rate, step, steps, decay):
        p = step / steps
        if staircase:
            p = gen_ops.floor(p)
        return gen_ops.mul(rate, gen_ops.pow(decay, p), name=scope)


def natural_exp_decay(
    learning_rate: Any, global_step: Any, decay_steps: Any, decay_rate: Any,
    staircase: bool = False, name: str | None = None,
) -> Tensor:  # fmt: skip
    """learning_rate * exp(-decay_rate * global_step / decay_steps).

    `staircase`: whole numbers of `decay_steps` only.
    """
    with _Schedule(
        name, "NaturalExpDecay", learning_rate, global_step, decay_steps, decay_rate
    ) as (scope, rate, step, steps, decay):
        p = step / steps
        if staircase:
            p = gen_ops.floor(p)
        return gen_ops.mul(rate, gen_ops.exp(-decay * p), name=scope)


def inverse_time_decay(
    learning_rate: Any, global_step: Any, decay_steps: Any, decay_rate: Any,
    staircase: bool = False, name: str | None = None,
) -> Tensor:  # fmt: skip
    """learning_rate / (1 + decay_rate * global_step / decay_steps).

    `staircase`: whole numbers of `decay_steps` only.
    """
    with _Schedule(
        name, "InverseTimeDecay", learning_rate, global_step, decay_steps, decay_rate
    ) as (scope, rate, step, steps, decay):
        p = step / steps
        if staircase:
            p = gen_ops.floor(p)
        return gen_ops.real_div(rate, decay * p + 1, name=scope)


def polynomial_decay(
    learning_rate: Any, global_step: Any, decay_steps: Any, end_learning_rate: Any = 0.0001,
    power: Any = 1.0, cycle: bool = False, name: str | None = None,
) -> Tensor:  # fmt: skip
    """From `learning_rate` to `end_learning_rate` in `decay_steps`, along a polynomial.

    Args:
      power: 1 for a line.
      cycle: whether it starts again after that, over a time as much longer as the steps done; else
        it stays at the end.
    """
    with _Schedule(
        name, "PolynomialDecay", learning_rate, global_step, decay_steps, end_learning_rate, power
    ) as (scope, rate, step, steps, end, power_tensor):
        if cycle:
            rounds = gen_ops.ceil(step / steps)
            one = gen_ops.ones_like(rounds)
            steps = steps * gen_ops.select(gen_ops.equal(step, 0), one, rounds)
        else:
            step = gen_ops.minimum(step, steps)
        p = step / steps
        return gen_ops.add((rate - end) * gen_ops.pow(1 - p, power_tensor), end, name=scope)


def piecewise_constant(x: Any, boundaries: Any, values: Any, name: str | None = None) -> Tensor:
    """values[0] up to boundaries[0], values[1] from there to boundaries[1], and so on.

    Args:
      x: a scalar, such as the global step.
      boundaries: numbers or tensors of the type of x, in increasing order.
      values: one more than boundaries.

    ValueError where the types or the numbers of these do not fit.
    """
    if len(boundaries) != len(values) - 1:
        raise ValueError(
            "The length of boundaries should be 1 less than the length of values: got "
            f"{len(boundaries)} boundaries and {len(values)} values"
        )
    with name_scope(name, "PiecewiseConstant", [x, boundaries, values]) as scope:
        given = list(boundaries)
        x = convert_to_tensor(x)
        limits = [convert_to_tensor(b) for b in given]
        choices = [convert_to_tensor(v) for v in values]
        dtype = x.dtype.base_dtype
        for i, limit in enumerate(limits):
            own = limit.dtype.base_dtype
            if own is dtype:
                continue
            if own is not dtypes.int32 or dtype is not dtypes.int64:
                raise ValueError(
                    f"Boundaries ({own.name}) must have the same dtype as x ({dtype.name})."
                )
            limits[i] = gen_ops.cast(limit, dtype)
        for choice in choices[1:]:
            if choice.dtype.base_dtype is not choices[0].dtype.base_dtype:
                raise ValueError(
                    "Values must have elements all with the same dtype "
                    f"({choices[0].dtype.name} vs {choice.dtype.name})."
                )
        if not limits:
            return gen_ops.identity(choices[0], name=scope)
        passed = gen_ops.cast(gen_ops.greater(x, gen_ops.pack(limits)), dtypes.int32)
        which = gen_ops.sum(passed, 0)
        return gen_ops.gather_v2(gen_ops.pack(choices), which, 0, name=scope)


def cosine_decay(
    learning_rate: Any, global_step: Any, decay_steps: Any, alpha: float = 0.0,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """From `learning_rate` to `alpha` times that in `decay_steps`, along half a cosine."""
    with _Schedule(name, "CosineDecay", learning_rate, global_step, decay_steps) as (
        scope, rate, step, steps,
    ):  # fmt: skip
        done = gen_ops.minimum(step, steps) / steps
        decayed = (1 - alpha) * _half_cosine(done) + alpha
        return gen_ops.mul(rate, decayed, name=scope)


def _half_cosine(fraction: Tensor) -> Tensor:
    return 0.5 * (1.0 + gen_ops.cos(math.pi * fraction))


def cosine_decay_restarts(
    learning_rate: Any, global_step: Any, first_decay_steps: Any, t_mul: Any = 2.0,
    m_mul: Any = 1.0, alpha: Any = 0.0, name: str | None = None,
) -> Tensor:  # fmt: skip
    """As `cosine_decay`, over and over.

    Args:
      first_decay_steps: how long the first time takes.
      t_mul: how much longer each time takes than the one before.
      m_mul: how much less each begins with.
    """
    with _Schedule(
        name, "SGDRDecay", learning_rate, global_step, first_decay_steps, t_mul, m_mul, alpha
    ) as (scope, rate, step, steps, longer, less, floor):
        done = step / steps
        # The formula of a geometric row has no value where all times are as long as the first.
        equal = gen_ops.equal(longer, 1.0)
        ratio = gen_ops.select(equal, 2.0 * gen_ops.ones_like(longer), longer)
        geometric = gen_ops.floor(gen_ops.log(1.0 - done * (1.0 - ratio)) / gen_ops.log(ratio))
        before = (1.0 - gen_ops.pow(ratio, geometric)) / (1.0 - ratio)
        inside = (done - before) / gen_ops.pow(ratio, geometric)
        restarts = gen_ops.select(equal, gen_ops.floor(done), geometric)
        fraction = gen_ops.select(equal, done - gen_ops.floor(done), inside)
        decayed = (1 - floor) * gen_ops.pow(less, restarts) * _half_cosine(fraction) + floor
        return gen_ops.mul(rate, decayed, name=scope)


def linear_cosine_decay(
    learning_rate: Any, global_step: Any, decay_steps: Any, num_periods: Any = 0.5,
    alpha: Any = 0.0, beta: Any = 0.001, name: str | None = None,
) -> Tensor:  # fmt: skip
    """learning_rate * ((alpha + linear) * cosine + beta): a line to zero in `decay_steps`, times
    `num_periods` of a cosine."""
    with _Schedule(
        name, "LinearCosineDecay", learning_rate, global_step, decay_steps, num_periods, alpha, beta
    ) as (scope, rate, step, steps, periods, a, b):
        step = gen_ops.minimum(step, steps)
        linear = (steps - step) / steps
        cosine = _half_cosine(2.0 * periods * (step / steps))
        return gen_ops.mul(rate, (a + linear) * cosine + b, name=scope)


def noisy_linear_cosine_decay(
    learning_rate: Any, global_step: Any, decay_steps: Any, initial_variance: Any = 1.0,
    variance_decay: Any = 0.55, num_periods: Any = 0.5, alpha: Any = 0.0, beta: Any = 0.001,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """As `linear_cosine_decay`, with noise on the line.

    Its variance is initial_variance / (1 + global_step) ^ variance_decay.
    """
    with _Schedule(
        name, "NoisyLinearCosineDecay", learning_rate, global_step, decay_steps, initial_variance,
        variance_decay, num_periods, alpha, beta,
    ) as (scope, rate, step, steps, initial, decay, periods, a, b):  # fmt: skip
        step = gen_ops.minimum(step, steps)
        linear = (steps - step) / steps
        deviation = gen_ops.sqrt(initial / gen_ops.pow(1.0 + step, decay))
        noise = random_normal(linear.shape, stddev=deviation, dtype=rate.dtype.base_dtype)
        cosine = _half_cosine(2.0 * periods * (step / steps))
        return gen_ops.mul(rate, (a + linear + noise) * cosine + b, name=scope)


def _later(schedule: Callable[..., Tensor]) -> Callable[..., Any]:
    """As TensorFlow 1's names have it: where operations run at once, a function of no arguments
    that gives the rate when it is called."""

    @functools.wraps(schedule)
    def run(*args: Any, **kwargs: Any) -> Any:
        if _core.executing_eagerly():
            return functools.partial(schedule, *args, **kwargs)
        return schedule(*args, **kwargs)

    return run


exponential_decay_v1 = export(v1="train.exponential_decay")(_later(exponential_decay))
natural_exp_decay_v1 = export(v1="train.natural_exp_decay")(_later(natural_exp_decay))
inverse_time_decay_v1 = export(v1="train.inverse_time_decay")(_later(inverse_time_decay))
polynomial_decay_v1 = export(v1="train.polynomial_decay")(_later(polynomial_decay))
piecewise_constant_v1 = export(v1=("train.piecewise_constant", "train.piecewise_constant_decay"))(
    _later(piecewise_constant)
)
cosine_decay_v1 = export(v1="train.cosine_decay")(_later(cosine_decay))
cosine_decay_restarts_v1 = export(v1="train.cosine_decay_restarts")(_later(cosine_decay_restarts))
linear_cosine_decay_v1 = export(v1="train.linear_cosine_decay")(_later(linear_cosine_decay))
noisy_linear_cosine_decay_v1 = export(v1="train.noisy_linear_cosine_decay")(
    _later(noisy_linear_cosine_decay)
)
