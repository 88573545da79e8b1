"""Operations that all processes of a group take part in, each with a tensor of its own."""

import itertools
import weakref
from typing import Any, Iterator

import numpy as np

from millrace import gen_ops, protos
from millrace.core.tensor import Tensor
from millrace.distributed import world
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import get_default_graph

GROUP = 1  # of all processes
_MERGES = {
    "sum": ("Add", "Id"),
    "mean": ("Add", "Div"),
    "product": ("Mul", "Id"),
    "min": ("Min", "Id"),
    "max": ("Max", "Id"),
}
_instances: "weakref.WeakKeyDictionary[Any, Iterator[int]]" = weakref.WeakKeyDictionary()


def next_instance() -> int:
    """A number for what belongs together in all processes: the same for the n-th of each graph."""
    return next(_instances.setdefault(get_default_graph(), itertools.count(1)))


def all_reduce(
    value: Any, op: str = "mean", timeout_secs: float = 0, name: str | None = None
) -> Tensor:
    """The mean, "sum", "product", "min" or "max" of what all processes give, to the same bits.

    All build the same graph: the n-th collective operation of one belongs to the n-th of the
    others. A sum or mean has a gradient. A process that is lost, or gives another type or shape,
    ends the operation for all with an error that names it.

    Args:
      value: a tensor of floating-point numbers, int32 or int64; one shape in all processes.
      timeout_secs: DeadlineExceededError after so long; 0 for no limit.

    ValueError for another `op`, RuntimeError before `init`.
    """
    if op not in _MERGES:
        raise ValueError(f"op: expected one of {', '.join(_MERGES)}, got {op!r}")
    return reduce_instance(convert_to_tensor(value), next_instance(), op, timeout_secs, name)


def reduce_instance(
    value: Tensor, instance: int, op: str, timeout_secs: float = 0, name: str | None = None
) -> Tensor:
    """`all_reduce` with a number of the caller's: several ways to take part in one operation."""
    merge_op, final_op = _MERGES[op]
    reduced = gen_ops.collective_reduce(
        value, group_size=world.size(), group_key=GROUP, instance_key=instance, merge_op=merge_op,
        final_op=final_op, subdiv_offsets=[0], timeout_seconds=timeout_secs, name=name,
    )  # fmt: skip
    return _elastic(reduced)


def all_gather(value: Any, name: str | None = None) -> Tensor:
    """What all processes give, one after the other along the first dimension, by rank.

    They may differ in that dimension alone. Floating-point numbers but bfloat16, int32 or int64.
    RuntimeError before `init`.
    """
    gathered = gen_ops.collective_gather_v2(
        convert_to_tensor(value), world.size(), GROUP, next_instance(), [], name=name
    )
    return _elastic(gathered)


def members() -> Any:
    """How many processes take part: all, or as many as the group goes on with."""
    return all_reduce(np.int32(1), "sum") if world.min_size() > 0 else world.size()


def broadcast(value: Any, root: int = 0, name: str | None = None) -> Tensor:
    """The `value` that the process with rank `root` gives, in all of them.

    Its type and shape are the same in all. bool, floating-point numbers but bfloat16, int32 or
    int64. ValueError for no rank, RuntimeError before `init`.
    """
    if not 0 <= root < world.size():
        raise ValueError(f"root: expected a rank below {world.size()}, got {root}")
    return broadcast_parts(convert_to_tensor(value), name)[world.rank() != root]


def broadcast_parts(value: Tensor, name: str | None = None) -> tuple[Tensor, Tensor]:
    """What the process that sends runs, and what the others do: which they are is decided later."""
    instance = next_instance()
    if world.size() == 1:
        return value, value
    if not value.shape.is_fully_defined():
        raise ValueError(f"broadcast: expected a tensor of known shape, got {value}")
    shared = {
        "group_size": world.size(), "group_key": GROUP, "instance_key": instance,
        "shape": value.shape,
    }  # fmt: skip
    dtype = value.dtype.base_dtype
    sent = gen_ops.collective_bcast_send(value, **shared, name=name)
    received = gen_ops.collective_bcast_recv(T=dtype, **shared, name=name)
    return _elastic(sent), _elastic(received)


def _elastic(made: Tensor) -> Tensor:
    if world.min_size() > 0:
        made.op._set_attr("_min_group_size", protos.AttrValue(i=world.min_size()))
    return made
