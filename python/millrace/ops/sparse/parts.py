"""What operations on sparse tensors are made of: places, their order, and their union.

The place of an element is its number in the dense tensor, counted row by row.
"""

from typing import Any

import numpy as np

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.tensor import Tensor
from millrace.graph.default_graph import control_dependencies
from millrace.ops import array


def strides(shape: Tensor) -> Tensor:
    """How far apart elements are that are neighbours in each dimension, [rank] int64."""
    return gen_ops.cumprod(shape, 0, exclusive=True, reverse=True)


def places(indices: Tensor, shape: Tensor) -> Tensor:
    """The places of elements: [N] of [N, rank]."""
    made = gen_ops.sum(indices * strides(shape), 1)
    made.set_shape([None])
    return made


def indices_of(at: Tensor, shape: Tensor) -> Tensor:
    """The indices of places: [N, rank] of [N]."""
    made = gen_ops.floor_mod(gen_ops.floor_div(array.expand_dims(at, 1), strides(shape)), shape)
    made.set_shape([None, shape.shape.with_rank(1)[0]])
    return made


def ascending(at: Tensor) -> Tensor:
    """The permutation that sorts places; what is equal stays in its order."""
    return gen_ops.top_kv2(-at, gen_ops.size(at)).indices


def count(at: Tensor) -> Tensor:
    """How many there are, int32."""
    return gen_ops.size(at)


def union(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The places of either, sorted, and where in them the elements of a and of b stand."""
    found, number = gen_ops.unique(array.concat([a, b], 0))
    order = ascending(found)
    back = gen_ops.gather(gen_ops.invert_permutation(order), number)
    split = gen_ops.size(a)
    return gen_ops.gather(found, order), back[:split], back[split:]


def summed(values: Tensor, segments: Tensor, number: Tensor) -> Tensor:
    """The sums of the values of each segment."""
    return gen_ops.unsorted_segment_sum(values, segments, gen_ops.cast(number, dtypes.int32))


def largest(values: Tensor, segments: Tensor, number: Tensor) -> Tensor:
    """The largest value of each segment."""
    return gen_ops.unsorted_segment_max(values, segments, gen_ops.cast(number, dtypes.int32))


def checked(value: Tensor, condition: Tensor, message: str, *data: Any) -> Tensor:
    """The value, and an error with the message when the condition does not hold everywhere."""
    whole = gen_ops.all(array.reshape(condition, [-1]), [0])
    with control_dependencies([gen_ops.assert_(whole, [message, *data])]):
        return gen_ops.identity(value)


def same_shape(a: Tensor, b: Tensor, message: str) -> Tensor:
    """The shape a, and an error when b is another."""
    rank = gen_ops.equal(gen_ops.size(a), gen_ops.size(b))
    a = checked(a, rank, message, a, b)
    return checked(a, gen_ops.equal(a, b), message, a, b)


def unit(rank: Tensor, axis: Any) -> Tensor:
    """[rank] int64: 1 at the axis, 0 elsewhere."""
    axis = gen_ops.floor_mod(gen_ops.cast(axis, dtypes.int32), rank)
    return gen_ops.one_hot(axis, rank, np.int64(1), np.int64(0))
