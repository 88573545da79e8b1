"""Sparse tensors in queues: kept aside under numbers, and the numbers queued."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor
from millrace.graph.default_graph import get_default_graph
from millrace.graph.sparse import SparseTensor
from millrace.ops.sparse.arrange import sparse_retain


class Kept:
    """A component of elements that is sparse: where its tensors are kept, and what they are."""

    def __init__(self, shared_name: str, dtype: dtypes.DType, rank: int | None):
        self.shared_name, self.dtype, self.rank = shared_name, dtype, rank


def sparse_components(lists: list[list[Any]], enqueue_many: bool) -> list[Kept | None]:
    """Which of the components of the lists are sparse. TypeError where lists differ in that."""
    kept: list[Kept | None] = []
    for i, column in enumerate(zip(*lists, strict=True)):
        sparse = [isinstance(t, SparseTensor) for t in column]
        if not any(sparse):
            kept.append(None)
            continue
        if not all(sparse):
            raise TypeError(f"Component {i} is sparse in one list and dense in another")
        ranks = [t.dense_shape.shape.with_rank(1).as_list()[0] for t in column]
        rank = ranks[0] if all(r == ranks[0] for r in ranks) else None
        if rank is not None and enqueue_many:
            rank -= 1
        name = get_default_graph().unique_name("sparse_tensors")
        kept.append(Kept(name, column[0].dtype.base_dtype, rank))
    return kept


def store_sparse(
    tensors: list[Any], kept: list[Kept | None], enqueue_many: bool, keep: Tensor
) -> list[Tensor]:
    """The tensors of an element (or of many), with numbers in the place of sparse ones."""
    out = []
    for t, what in zip(tensors, kept, strict=True):
        if what is None:
            out.append(t)
            continue
        if enqueue_many and keep.shape.ndims == 1:
            t = _kept_rows(t, keep)
        add = (
            gen_ops.add_many_sparse_to_tensors_map
            if enqueue_many
            else gen_ops.add_sparse_to_tensors_map
        )
        out.append(add(t.indices, t.values, t.dense_shape, shared_name=what.shared_name))
    return out


def _kept_rows(sparse: SparseTensor, keep: Tensor) -> SparseTensor:
    """The tensor without the values of rows that are not kept."""
    rows = gen_ops.strided_slice(
        sparse.indices, [0, 0], [0, 1], [1, 1], begin_mask=1, end_mask=1, shrink_axis_mask=2
    )
    return sparse_retain(sparse, gen_ops.gather(keep, rows))


def restore_sparse(batch: list[Tensor], kept: list[Kept | None]) -> list[Any]:
    """A batch, with the sparse tensors back in the place of their numbers."""
    out: list[Any] = []
    for tensor, what in zip(batch, kept, strict=True):
        if what is None:
            out.append(tensor)
            continue
        indices, values, shape = gen_ops.take_many_sparse_from_tensors_map(
            tensor, what.dtype, shared_name=what.shared_name
        )
        if what.rank is not None:
            indices.set_shape(TensorShape([None, what.rank + 1]))
            shape.set_shape([what.rank + 1])
        out.append(SparseTensor(indices, values, shape))
    return out
