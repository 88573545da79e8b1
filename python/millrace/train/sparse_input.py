"""Sparse tensors in queues: kept aside under numbers, and the numbers queued."""

from typing import Any

from millrace import dtypes, gen_ops
from millrace.graph.graph import Tensor
from millrace.graph.sparse import SparseTensor
from millrace.shapes import TensorShape


class _Kept:
    """A component of elements that is sparse: where its tensors are kept, and what they are."""

    def __init__(self, map_op: Any, dtype: dtypes.DType, rank: int | None):
        self.map_op, self.dtype, self.rank = map_op, dtype, rank


def store_sparse(
    lists: list[list[Any]], enqueue_many: bool, keep: Tensor
) -> tuple[list[list[Tensor]], list[_Kept | None]]:
    """The lists with a number in the place of each sparse tensor, and what each component is."""
    del keep
    kept: list[_Kept | None] = [None] * len(lists[0])
    out = []
    for tensors in lists:
        if len(tensors) != len(kept):
            raise ValueError("Expected the same number of tensors in all lists")
        stored = []
        for i, t in enumerate(tensors):
            if not isinstance(t, SparseTensor):
                if kept[i] is not None:
                    raise TypeError(f"Component {i} is sparse in one list and dense in another")
                stored.append(t)
                continue
            shared = None if kept[i] is None else kept[i].map_op.name
            add = (
                gen_ops.add_many_sparse_to_tensors_map
                if enqueue_many
                else gen_ops.add_sparse_to_tensors_map
            )
            handle = add(t.indices, t.values, t.dense_shape, shared_name=shared)
            if kept[i] is None:
                rank = t.dense_shape.shape.with_rank(1).as_list()[0]
                if rank is not None and enqueue_many:
                    rank -= 1
                kept[i] = _Kept(handle.op, t.dtype, rank)
            handle.set_shape([None] if enqueue_many else [])
            stored.append(handle)
        out.append(stored)
    return out, kept


def restore_sparse(batch: list[Tensor], kept: list[_Kept | None]) -> list[Any]:
    """A batch, with the sparse tensors back in the place of their numbers."""
    out: list[Any] = []
    for tensor, what in zip(batch, kept, strict=True):
        if what is None:
            out.append(tensor)
            continue
        indices, values, shape = gen_ops.take_many_sparse_from_tensors_map(
            tensor, what.dtype, shared_name=what.map_op.name
        )
        if what.rank is not None:
            indices.set_shape(TensorShape([None, what.rank + 1]))
            shape.set_shape([what.rank + 1])
        out.append(SparseTensor(indices, values, shape))
    return out
