"""Numbers rounded to the steps that quantised ones would have, for training what will be."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.errors import InvalidArgumentError
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.gradients import custom_gradient
from millrace.ops.gather import where_v2
from millrace.ops.reduce import reduce_sum


def _check_bits(num_bits: Any) -> None:
    if not isinstance(num_bits, int) or not 2 <= num_bits <= 16:
        raise InvalidArgumentError(
            None, None, f"num_bits must be between 2 and 16, inclusive, got {num_bits!r}"
        )


def _range(
    low: Tensor, high: Tensor, num_bits: int, narrow_range: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The range moved so that zero is a step of it, and the size of a step."""
    first, last = float(narrow_range), float(2**num_bits - 1)
    step = (high - low) / (last - first)
    zero = where_v2(step > 0, first - gen_ops.div_no_nan(low, step), first)
    # Halves go away from zero, as the standard library rounds.
    zero = gen_ops.floor(gen_ops.minimum(gen_ops.maximum(zero, first), last) + 0.5)
    return (first - zero) * step, (last - zero) * step, step


def _rounded(x: Tensor, low: Tensor, high: Tensor, step: Tensor) -> Tensor:
    zero = gen_ops.floor(gen_ops.div_no_nan(-low, step) + 0.5)
    kept = gen_ops.minimum(gen_ops.maximum(x, low), high)
    return gen_ops.floor(gen_ops.div_no_nan(kept - low, step) - zero + 0.5) * step


def _gradients(
    dy: Tensor, x: Tensor, low: Tensor, high: Tensor, axes: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """By x, which passes where it is within the range, and by the ends of that."""
    below, above = x < low, x > high
    none = gen_ops.zeros_like(dy)
    passed = where_v2(gen_ops.logical_or(below, above), none, dy)
    ends = [reduce_sum(where_v2(side, dy, none), axes) for side in (below, above)]
    return passed, ends[0], ends[1]


def _floats(**values: Any) -> list[Tensor]:
    return [convert_to_tensor(v, dtype=dtypes.float32, name=k) for k, v in values.items()]


def _fake_quant(
    inputs: Any, low: Any, high: Any, num_bits: int, narrow_range: bool, per_channel: bool
) -> Tensor:
    _check_bits(num_bits)
    x, low, high = _floats(inputs=inputs, min=low, max=high)
    _check_shapes(x, low, high, per_channel)

    @custom_gradient
    def rounded(x: Tensor, low: Tensor, high: Tensor) -> Any:
        ends = _range(low, high, num_bits, narrow_range)

        def grad(dy: Tensor) -> Any:
            return _gradients(dy, x, *ends[:2], _axes(x, per_channel))

        return _rounded(x, *ends), grad

    return rounded(x, low, high)


def _axes(x: Tensor, per_channel: bool) -> Any:
    return list(range((x.shape.ndims or 1) - 1)) if per_channel else None


def _check_shapes(x: Tensor, low: Tensor, high: Tensor, per_channel: bool) -> None:
    rank = 1 if per_channel else 0
    for name, end in (("min", low), ("max", high)):
        if end.shape.ndims not in (None, rank):
            raise InvalidArgumentError(
                None, None, f"`{name}` must be rank {rank} but is rank {end.shape.ndims}"
            )
    if per_channel:
        if not x.shape.ndims:
            raise ValueError(f"inputs of channels must have a known rank, got shape {x.shape}")
        for end in (low, high):
            if not x.shape[-1:].is_compatible_with(end.shape):
                raise InvalidArgumentError(
                    None, None, f"inputs of shape {x.shape} do not have the channels of {end.shape}"
                )


@export(
    v1=("quantization.fake_quant_with_min_max_args", "fake_quant_with_min_max_args"),
    v2="quantization.fake_quant_with_min_max_args",
)
def fake_quant_with_min_max_args(
    inputs: Any, min: float = -6, max: float = 6, num_bits: int = 8, narrow_range: bool = False,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """float32 numbers rounded to 2^num_bits steps from `min` to `max`, of which zero is one; those
    outside become the ends.

    `narrow_range`: one step less. The gradient passes within the range.
    """
    _check_args(min, max)
    with name_scope(name, "FakeQuantWithMinMaxArgs", [inputs]):
        return _fake_quant(inputs, float(min), float(max), num_bits, narrow_range, False)


def _check_args(low: float, high: float) -> None:
    if not low < high:
        raise InvalidArgumentError(
            None, None, f"min has to be smaller than max, was: {low} >= {high}"
        )


@export(
    v1=(
        "quantization.fake_quant_with_min_max_args_gradient",
        "fake_quant_with_min_max_args_gradient",
    ),
    v2="quantization.fake_quant_with_min_max_args_gradient",
)
def fake_quant_with_min_max_args_gradient(
    gradients: Any, inputs: Any, min: float = -6, max: float = 6, num_bits: int = 8,
    narrow_range: bool = False, name: str | None = None,
) -> Tensor:  # fmt: skip
    """The gradient of `fake_quant_with_min_max_args` by its inputs."""
    _check_args(min, max)
    with name_scope(name, "FakeQuantWithMinMaxArgsGradient", [gradients, inputs]):
        return fake_quant_with_min_max_vars_gradient(
            gradients, inputs, float(min), float(max), num_bits, narrow_range
        )[0]


@export(
    v1=("quantization.fake_quant_with_min_max_vars", "fake_quant_with_min_max_vars"),
    v2="quantization.fake_quant_with_min_max_vars",
)
def fake_quant_with_min_max_vars(
    inputs: Any, min: Any, max: Any, num_bits: int = 8, narrow_range: bool = False,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """As `fake_quant_with_min_max_args`, with ends that are scalar tensors and have gradients."""
    with name_scope(name, "FakeQuantWithMinMaxVars", [inputs, min, max]):
        return _fake_quant(inputs, min, max, num_bits, narrow_range, False)


@export(
    v1=(
        "quantization.fake_quant_with_min_max_vars_gradient",
        "fake_quant_with_min_max_vars_gradient",
    ),
    v2="quantization.fake_quant_with_min_max_vars_gradient",
)
def fake_quant_with_min_max_vars_gradient(
    gradients: Any, inputs: Any, min: Any, max: Any, num_bits: int = 8,
    narrow_range: bool = False, name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of `fake_quant_with_min_max_vars` by its inputs, `min` and `max`."""
    with name_scope(name, "FakeQuantWithMinMaxVarsGradient", [gradients, inputs, min, max]):
        return _gradient(gradients, inputs, min, max, num_bits, narrow_range, False)


def _gradient(
    gradients: Any, inputs: Any, low: Any, high: Any, num_bits: int, narrow_range: bool,
    per_channel: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    _check_bits(num_bits)
    dy, x, low, high = _floats(gradients=gradients, inputs=inputs, min=low, max=high)
    _check_shapes(x, low, high, per_channel)
    ends = _range(low, high, num_bits, narrow_range)
    return _gradients(dy, x, *ends[:2], _axes(x, per_channel))


@export(
    v1=(
        "quantization.fake_quant_with_min_max_vars_per_channel",
        "fake_quant_with_min_max_vars_per_channel",
    ),
    v2="quantization.fake_quant_with_min_max_vars_per_channel",
)
def fake_quant_with_min_max_vars_per_channel(
    inputs: Any, min: Any, max: Any, num_bits: int = 8, narrow_range: bool = False,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """As `fake_quant_with_min_max_vars`, with ends for each place of the last dimension."""
    with name_scope(name, "FakeQuantWithMinMaxVarsPerChannel", [inputs, min, max]):
        return _fake_quant(inputs, min, max, num_bits, narrow_range, True)


@export(
    v1=(
        "quantization.fake_quant_with_min_max_vars_per_channel_gradient",
        "fake_quant_with_min_max_vars_per_channel_gradient",
    ),
    v2="quantization.fake_quant_with_min_max_vars_per_channel_gradient",
)
def fake_quant_with_min_max_vars_per_channel_gradient(
    gradients: Any, inputs: Any, min: Any, max: Any, num_bits: int = 8,
    narrow_range: bool = False, name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of `fake_quant_with_min_max_vars_per_channel` by inputs, `min` and `max`."""
    with name_scope(name, "FakeQuantWithMinMaxVarsPerChannelGradient", [gradients, inputs]):
        return _gradient(gradients, inputs, min, max, num_bits, narrow_range, True)
