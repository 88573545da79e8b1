"""Places in sorted sequences."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.ops import array
from millrace.ops.gather import gather, where_v2


@export(v1="searchsorted", v2="searchsorted")
def searchsorted(
    sorted_sequence: Any, values: Any, side: str = "left", out_type: Any = dtypes.int32,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """Where values belong in the rows of a sorted tensor: before the first element that is not less
    than the value (`side="left"`), or than which the value is less (`"right"`).

    Both have the same dimensions but the last.
    """
    if side not in ("left", "right"):
        raise ValueError(
            f"Argument `side` must be either 'right' or 'left'. Received: `side` = '{side}'."
        )
    kind = dtypes.as_dtype(out_type)
    if kind not in (dtypes.int32, dtypes.int64):
        raise TypeError(f"`out_type` must be int32 or int64, got {kind.name}")
    with name_scope(name, "searchsorted", [sorted_sequence, values]):
        sequence = convert_to_tensor(sorted_sequence, name="sorted_sequence")
        values = convert_to_tensor(values, dtype=sequence.dtype, name="values")
        rank = sequence.shape.ndims
        if rank == 0 or values.shape.ndims == 0:
            raise ValueError("`sorted_sequence` and `values` must have rows, got a scalar")
        outer = array.shape(values, out_type=dtypes.int64)
        size = array.shape(sequence, out_type=dtypes.int64)[-1]
        rows = gen_ops.reshape(sequence, array.stack([gen_ops.prod(outer[:-1], [0]), size]))
        wanted = gen_ops.reshape(values, array.stack([gen_ops.prod(outer[:-1], [0]), outer[-1]]))
        known = sequence.shape.as_list()[-1] if rank else None
        # Half of what is left in each step: as many steps as the size has bits.
        steps = 63 if known is None else int(known).bit_length()
        if known is None:  # there may be none, which nothing can be read from
            rows = array.pad(rows, [[0, 0], [0, 1]])
        low = array.zeros_like(wanted, dtype=dtypes.int64)
        high = low + size
        for _ in range(steps):
            middle = (low + high) // 2
            inside = gen_ops.minimum(middle, gen_ops.maximum(size - 1, 0))
            found = gather(rows, inside, batch_dims=1)
            after = found < wanted if side == "left" else found <= wanted
            after = gen_ops.logical_and(after, low < high)
            low, high = where_v2(after, middle + 1, low), where_v2(after, high, middle)
        return gen_ops.cast(gen_ops.reshape(low, outer), DstT=kind)
