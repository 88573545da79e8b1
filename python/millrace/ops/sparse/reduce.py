"""Sums and maxima along dimensions."""

from typing import Any

import numpy as np

from millrace import gen_ops
from millrace.core import dtypes, errors
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.sparse import SparseTensor
from millrace.graph.static_value import constant_value
from millrace.ops import array, gather
from millrace.ops.sparse import parts
from millrace.ops.sparse.checks import as_sparse, one_keepdims


class _Reduction:
    """The elements of a sparse tensor by what is left of their indices when axes are removed."""

    def __init__(self, sp_input: SparseTensor, axis: Any, keep_dims: bool):
        rank = gen_ops.size(sp_input.dense_shape)
        every = gen_ops.range(0, rank, 1)
        if axis is None:
            axis = every
        else:
            _check_axes(axis, sp_input.shape.ndims)
            axis = array.reshape(convert_to_tensor(axis, dtypes.int32), [-1])
            axis = gen_ops.floor_mod(axis, rank)
        kept, _ = gen_ops.list_diff(every, axis)
        self.shape = gen_ops.gather(sp_input.dense_shape, kept)
        indices = gather.gather(sp_input.indices, kept, axis=1)
        self.values = sp_input.values
        self.places = parts.places(indices, self.shape)
        self.size = gen_ops.prod(self.shape, 0)
        if keep_dims:
            ones = gen_ops.fill(array.expand_dims(rank, 0), np.int64(1))
            self.shape = gen_ops.dynamic_stitch([every, kept], [ones, self.shape])
        static = sp_input.shape
        known = constant_value(axis)
        self.static = TensorShape(None)
        if static.ndims is not None and known is not None:
            gone = set(np.reshape(known, [-1]).tolist())
            dims = [
                1 if i in gone else d
                for i, d in enumerate(static.as_list())
                if keep_dims or i not in gone
            ]
            self.static = TensorShape(dims)

    def dense(self, values: Tensor) -> Tensor:
        """One value for each place, as a dense tensor."""
        made = gen_ops.reshape(values, self.shape)
        made.set_shape(self.static)
        return made

    def sparse(self, fold: Any) -> SparseTensor:
        """The values folded, for the places that have some."""
        found, number = gen_ops.unique(self.places)
        folded = fold(self.values, number, parts.count(found))
        order = parts.ascending(found)
        at = gen_ops.gather(found, order)
        indices = parts.indices_of(at, self.shape)
        return SparseTensor(indices, gen_ops.gather(folded, order), self.shape)


def _check_axes(axis: Any, rank: int | None) -> None:
    known = constant_value(axis)
    if known is None or rank is None:
        return
    for a in np.reshape(known, [-1]).tolist():
        if not -rank <= a < rank:
            raise errors.InvalidArgumentError(
                None, None, f"Invalid reduction dimension {a}, for input with {rank} dimensions."
            )


@export(v1=("sparse_reduce_sum", "sparse.reduce_sum"))
def sparse_reduce_sum(
    sp_input: Any, axis: Any = None, keepdims: bool | None = None, reduction_axes: Any = None,
    keep_dims: bool | None = None,
) -> Tensor:  # fmt: skip
    """The sum over the dimensions `axis` (all), as a dense tensor."""
    sp_input = as_sparse(sp_input)
    with name_scope(None, "SparseReduceSum", [sp_input.values]):
        axis = reduction_axes if axis is None else axis
        groups = _Reduction(sp_input, axis, one_keepdims(keepdims, keep_dims))
        return groups.dense(parts.summed(groups.values, groups.places, groups.size))


@export(v2="sparse.reduce_sum")
def sparse_reduce_sum_v2(
    sp_input: Any, axis: Any = None, keepdims: bool | None = None, output_is_sparse: bool = False,
    name: str | None = None,
) -> Any:  # fmt: skip
    """Sums along axes, as a dense tensor or a sparse one."""
    function = sparse_reduce_sum_sparse if output_is_sparse else sparse_reduce_sum
    with name_scope(name, "SparseReduceSum", [sp_input]):
        return function(sp_input, axis, keepdims)


@export(v1=("sparse_reduce_sum_sparse", "sparse.reduce_sum_sparse"))
def sparse_reduce_sum_sparse(
    sp_input: Any, axis: Any = None, keepdims: bool | None = None, reduction_axes: Any = None,
    keep_dims: bool | None = None,
) -> SparseTensor:  # fmt: skip
    """The sum over the dimensions `axis` (all), as a sparse tensor."""
    sp_input = as_sparse(sp_input)
    with name_scope(None, "SparseReduceSumSparse", [sp_input.values]):
        axis = reduction_axes if axis is None else axis
        return _Reduction(sp_input, axis, one_keepdims(keepdims, keep_dims)).sparse(parts.summed)


@export(v1=("sparse_reduce_max", "sparse.reduce_max"))
def sparse_reduce_max(
    sp_input: Any, axis: Any = None, keepdims: bool | None = None, reduction_axes: Any = None,
    keep_dims: bool | None = None,
) -> Tensor:  # fmt: skip
    """The largest element over the dimensions `axis` (all), of those that are given; zero where
    there are none."""
    sp_input = as_sparse(sp_input)
    with name_scope(None, "SparseReduceMax", [sp_input.values]):
        axis = reduction_axes if axis is None else axis
        groups = _Reduction(sp_input, axis, one_keepdims(keepdims, keep_dims))
        found = parts.largest(groups.values, groups.places, groups.size)
        ones = array.ones_like(groups.values, dtypes.int32)
        number = parts.summed(ones, groups.places, groups.size)
        empty = gen_ops.equal(number, array.zeros_like(number))
        return groups.dense(gen_ops.select(empty, array.zeros_like(found), found))


@export(v2="sparse.reduce_max")
def sparse_reduce_max_v2(
    sp_input: Any, axis: Any = None, keepdims: bool | None = None, output_is_sparse: bool = False,
    name: str | None = None,
) -> Any:  # fmt: skip
    """The largest elements along axes, as a dense tensor or a sparse one."""
    function = sparse_reduce_max_sparse if output_is_sparse else sparse_reduce_max
    with name_scope(name, "SparseReduceMax", [sp_input]):
        return function(sp_input, axis, keepdims)


@export(v1=("sparse_reduce_max_sparse", "sparse.reduce_max_sparse"))
def sparse_reduce_max_sparse(
    sp_input: Any, axis: Any = None, keepdims: bool | None = None, reduction_axes: Any = None,
    keep_dims: bool | None = None,
) -> SparseTensor:  # fmt: skip
    """As `sparse_reduce_max`, as a sparse tensor."""
    sp_input = as_sparse(sp_input)
    with name_scope(None, "SparseReduceMaxSparse", [sp_input.values]):
        axis = reduction_axes if axis is None else axis
        return _Reduction(sp_input, axis, one_keepdims(keepdims, keep_dims)).sparse(parts.largest)
