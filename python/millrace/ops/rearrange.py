"""Elements repeated, and places found in sorted rows."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.ops.array import concat, expand_dims, reshape, sequence_mask, shape, tile
from millrace.ops.partition import boolean_mask
from millrace.ops.reduce import reduce_max


@export(v1="ensure_shape", v2="ensure_shape")
def ensure_shape(x: Any, shape: Any, name: str | None = None) -> Tensor:
    """The tensor itself, which has the shape; it fails where it has not."""
    shape = shape if isinstance(shape, TensorShape) else TensorShape(shape)
    return gen_ops.ensure_shape(x, shape, name=name)


@export(v1="repeat", v2="repeat")
def repeat(input: Any, repeats: Any, axis: int | None = None, name: str | None = None) -> Tensor:
    """The elements along `axis`, each as often as `repeats` says: one number for all, or one each.

    Args:
      axis: None for the elements in a row.
    """
    with name_scope(name, "Repeat", [input, repeats]):
        data = convert_to_tensor(input, name="data")
        if axis is None:
            data = reshape(data, [-1])
            axis = 0
        repeats = convert_to_tensor(repeats, name="repeats")
        if repeats.dtype not in (dtypes.int32, dtypes.int64):
            repeats = gen_ops.cast(repeats, dtypes.int32)
        repeats.shape.with_rank_at_most(1)
        rank = data.shape.ndims
        if rank is None:
            raise ValueError("repeat needs data of known rank")
        if rank == 0:
            data = reshape(data, [1])
            rank = 1
        if not -rank <= axis < rank:
            raise ValueError(f"axis={axis} out of bounds: expected {-rank}<=axis<{rank}")
        axis %= rank
        sizes = shape(data)
        if repeats.shape.num_elements() == 1:
            # The same for all.
            times = reshape(repeats, [])
            expanded = expand_dims(data, axis + 1)
            ones = [1] * (axis + 1)
            after = [1] * (rank - axis - 1)
            times32 = gen_ops.cast(times, dtypes.int32)
            tiled = tile(expanded, gen_ops.pack([*ones, times32, *after]))
            wanted = (
                concat(
                    [sizes[:axis], [-1 if rank == 1 else sizes[axis] * times32], sizes[axis + 1 :]],
                    0,
                )
                if rank > 1
                else [-1]
            )
            return reshape(tiled, wanted)
        if not repeats.shape.is_compatible_with(data.shape[axis : axis + 1]):
            raise ValueError(
                f"Dimensions {data.shape[axis]} and {repeats.shape[0]} are not compatible: repeats "
                f"has shape {repeats.shape}, the dimension another size"
            )
        most = reduce_max(concat([repeats, gen_ops.zeros_like(repeats[:1])], 0))
        most = gen_ops.maximum(most, gen_ops.zeros_like(most))
        mask = sequence_mask(repeats, most)
        multiples = [1] * (rank + 1)
        parts: list[Any] = list(multiples)
        parts[axis + 1] = gen_ops.cast(most, dtypes.int32)
        tiled = tile(expand_dims(data, axis + 1), gen_ops.pack(parts))
        return boolean_mask(tiled, mask, axis=axis)
