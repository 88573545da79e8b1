"""Signals cut into frames that may overlap, and put together again."""

from typing import Any

from millrace import gen_ops
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.static_value import constant_value
from millrace.ops.along import range as range_of
from millrace.ops.array import concat, expand_dims, pad, rank, reshape, shape, transpose


def _number(value: Any, name: str) -> Tensor:
    value = convert_to_tensor(value, name=name)
    value.shape.assert_has_rank(0)
    return value


def _known(*values: Any) -> list[int] | None:
    """The numbers as Python has them, where all are known."""
    numbers = [constant_value(v) for v in values]
    return None if any(n is None for n in numbers) else [int(n) for n in numbers]


@export(v1="signal.frame", v2="signal.frame")
def frame(
    signal: Any, frame_length: Any, frame_step: Any, pad_end: bool = False, pad_value: Any = 0,
    axis: Any = -1, name: str | None = None,
) -> Tensor:  # fmt: skip
    """The frames of a signal: dimension `axis` becomes two, [frames, frame_length].

    Args:
      frame_length: how many elements a frame has.
      frame_step: how far the next frame begins after the one before.
      pad_end: whether the last frames go beyond the end, where `pad_value` stands.
    """
    with name_scope(name, "frame", [signal, frame_length, frame_step, pad_value]):
        signal = convert_to_tensor(signal, name="signal")
        frame_length = _number(frame_length, "frame_length")
        frame_step = _number(frame_step, "frame_step")
        pad_value = convert_to_tensor(pad_value, dtype=signal.dtype, name="pad_value")
        pad_value.shape.assert_has_rank(0)
        dims = signal.shape.with_rank_at_least(1)
        if dims.ndims is None:
            ndims = rank(signal)
            axis = gen_ops.floor_mod(convert_to_tensor(axis, name="axis"), ndims)
        else:
            if not -dims.ndims <= axis < dims.ndims:
                raise ValueError(f"axis {axis} is not one of {dims.ndims} dimensions")
            axis %= dims.ndims
        sizes = shape(signal)
        length = sizes[axis]
        numbers = _known(frame_length, frame_step)
        if numbers is not None and numbers[1] <= 0:
            raise ValueError(f"frame_step must be positive, got {numbers[1]}")
        if numbers is not None and numbers[0] < 0:
            raise ValueError(f"frame_length must not be negative, got {numbers[0]}")
        if pad_end:
            count = -(-length // frame_step)
            end = (count - 1) * frame_step + frame_length
            missing = gen_ops.maximum(end - length, 0)
            before = gen_ops.fill(gen_ops.pack([axis]), 0)
            after = gen_ops.fill(gen_ops.pack([rank(signal) - axis - 1]), 0)
            ends = concat([before, gen_ops.pack([missing]), after], 0)
            edges = gen_ops.pack([gen_ops.zeros_like(ends), ends], axis=1)
            signal = pad(signal, edges, constant_values=pad_value)
        else:
            count = gen_ops.maximum(1 + (length - frame_length) // frame_step, 0)
        starts = expand_dims(range_of(count) * frame_step, 1)
        places = starts + expand_dims(range_of(frame_length), 0)
        frames = gen_ops.gather_v2(signal, places, axis)
        if dims.ndims is not None:
            frames.set_shape(_static_shape(dims, axis, length, numbers, pad_end))
        return frames


def _static_shape(dims: Any, axis: int, length: Any, numbers: Any, pad_end: bool) -> list[Any]:
    outer, inner = dims.as_list()[:axis], dims.as_list()[axis + 1 :]
    size = dims.as_list()[axis]
    if numbers is None:
        return [*outer, None, None, *inner]
    frame_length, step = numbers
    count = None
    if size is not None:
        count = -(-size // step) if pad_end else max(0, 1 + (size - frame_length) // step)
    return [*outer, count, frame_length, *inner]


@export(v1="signal.overlap_and_add", v2="signal.overlap_and_add")
def overlap_and_add(signal: Any, frame_step: Any, name: str | None = None) -> Tensor:
    """The signal [..., length] that frames [..., frames, frame_length] add up to.

    Args:
      frame_step: how far the next frame begins after the one before.
    """
    with name_scope(name, "overlap_and_add", [signal, frame_step]):
        signal = convert_to_tensor(signal, name="signal")
        signal.shape.with_rank_at_least(2)
        frame_step = convert_to_tensor(frame_step, name="frame_step")
        frame_step.shape.assert_has_rank(0)
        if not frame_step.dtype.is_integer:
            raise ValueError(f"frame_step must be an integer. Got {frame_step.dtype.name}")
        sizes = shape(signal)
        outer, frames, length = sizes[:-2], sizes[-2], sizes[-1]
        size = length + frame_step * (frames - 1)
        # Where each element of a frame belongs. Segments are along the first dimension.
        places = expand_dims(range_of(frames) * frame_step, 1) + expand_dims(range_of(length), 0)
        places = reshape(places, [-1])
        flat = reshape(signal, [-1, frames * length])
        total = gen_ops.unsorted_segment_sum(transpose(flat), places, size)
        result = reshape(transpose(total), concat([outer, gen_ops.pack([size])], 0))
        known = signal.shape.as_list() if signal.shape.ndims is not None else None
        step = constant_value(frame_step)
        if known is not None:
            last = None
            if step is not None and known[-1] is not None and known[-2] is not None:
                last = known[-1] + int(step) * (known[-2] - 1)
            result.set_shape([*known[:-2], last])
        return result
