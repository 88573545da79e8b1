"""What the processes of a group tell each other: in each step, after a loss, and at their end.

All of it is one operation, whatever a process does, so that nobody waits where nobody comes: who is
at its end meets those who make a step, and those who have lost a process.
"""

from typing import Any, NamedTuple

import numpy as np

from millrace import gen_ops
from millrace.core.tensor import Tensor
from millrace.distributed import world
from millrace.distributed.collective import reduce_instance
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import control_dependencies
from millrace.graph.operation import Operation

# What others of a graph are numbered from 1 on.
_INSTANCE = 0
_RANK_BITS = 16
_LAST_RANK = (1 << _RANK_BITS) - 1


class Meeting(NamedTuple):
    """What all processes have said together."""

    furthest: int  # the lowest rank of those with the highest step
    behind: bool  # whether one needs variables
    ending: bool  # whether one is at its end
    all_ending: bool

    @classmethod
    def read(cls, met: Any) -> "Meeting":
        """From the value of `meet`."""
        furthest, behind, ending, some_go_on = (int(word) for word in met)
        rank = _LAST_RANK - (furthest & _LAST_RANK)
        return cls(rank, behind > 0, ending > 0, some_go_on == 0)


def words(step: Tensor, behind: Tensor, ending: Tensor) -> Tensor:
    """What this process says; all are int64 scalars."""
    place = step * np.int64(1 << _RANK_BITS) + np.int64(_LAST_RANK - world.rank())
    return gen_ops.pack([place, behind, ending, np.int64(1) - ending])


def meet(said: Tensor, timeout_secs: float = 0) -> Tensor:
    """The highest of each of the words of all processes."""
    return reduce_instance(said, _INSTANCE, "max", timeout_secs)


def ended_in_step(made: Tensor) -> Operation:
    """OutOfRangeError where another process is at its end; asked once `made` is there."""
    with control_dependencies([made]):
        said = convert_to_tensor(np.array([0, 0, 0, 1], np.int64))
    met = meet(said)
    ending = gen_ops.strided_slice(met, [2], [3], [1], shrink_axis_mask=1)
    return gen_ops.collective_end_of_data(gen_ops.greater(ending, np.int64(0)))
