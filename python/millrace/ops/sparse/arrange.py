"""The elements of sparse tensors in other places."""

from typing import Any

import numpy as np

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.arguments import reordered
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.sparse import SparseTensor
from millrace.graph.static_value import constant_value, constant_value_as_shape
from millrace.ops import array, gather
from millrace.ops.sparse import parts
from millrace.ops.sparse.checks import as_sparse, parts_of, sparse_list


@export(v1=("sparse_reorder", "sparse.reorder"), v2="sparse.reorder")
def sparse_reorder(sp_input: Any, name: str | None = None) -> SparseTensor:
    """The same elements, in the order in which they stand in the dense tensor."""
    sp_input = as_sparse(sp_input)
    indices, values = gen_ops.sparse_reorder(*parts_of(sp_input), name=name)
    return SparseTensor(indices, values, gen_ops.identity(sp_input.dense_shape))


@export(v1=("sparse_reshape", "sparse.reshape"), v2="sparse.reshape")
def sparse_reshape(sp_input: Any, shape: Any, name: str | None = None) -> SparseTensor:
    """The same elements in another shape; one size may be -1.

    ValueError when the numbers of elements differ, where they are known.
    """
    sp_input = as_sparse(sp_input)
    with name_scope(name, "SparseReshape", [sp_input.values, shape]) as scope:
        shape = convert_to_tensor(shape, dtypes.int64)
        _check_reshape(sp_input.shape, shape)
        indices, dense_shape = gen_ops.sparse_reshape(
            sp_input.indices, sp_input.dense_shape, shape, name=scope
        )
        return SparseTensor(indices, gen_ops.identity(sp_input.values), dense_shape)


def _check_reshape(before: TensorShape, shape: Tensor) -> None:
    wanted = constant_value(shape)
    count = before.num_elements()
    if wanted is None or count is None:
        return
    inferred = int(np.sum(wanted == -1))
    product = int(np.prod(wanted[wanted != -1], dtype=np.int64))
    good = count == product if inferred == 0 else product > 0 and count % product == 0
    if inferred > 1 or not good:
        raise ValueError(
            f"Cannot reshape a tensor with {count} elements to shape {[int(w) for w in wanted]} "
            f"({product} elements)."
        )


@export(v1=("sparse_transpose", "sparse.transpose"), v2="sparse.transpose")
def sparse_transpose(sp_input: Any, perm: Any = None, name: str | None = None) -> SparseTensor:
    """Permutes the dimensions; reverses their order without `perm`."""
    sp_input = as_sparse(sp_input)
    with name_scope(name, "SparseTranspose", [sp_input.values]) as scope:
        if perm is None:
            ndims = sp_input.shape.ndims
            if ndims is not None:
                perm = np.arange(ndims - 1, -1, -1, dtype=np.int32)
            else:
                rank = array.rank(sp_input)
                perm = (rank - 1) - gen_ops.range(0, rank, 1)
        indices = gather.gather(sp_input.indices, perm, axis=1)
        dense_shape = gather.gather(sp_input.dense_shape, perm)
        return sparse_reorder(SparseTensor(indices, sp_input.values, dense_shape), name=scope)


@export(v1="sparse.expand_dims", v2="sparse.expand_dims")
def expand_dims(sp_input: Any, axis: int | None = None, name: str | None = None) -> SparseTensor:
    """Adds a dimension of size 1 at `axis` (the last)."""
    sp_input = as_sparse(sp_input)
    ndims = sp_input.shape.ndims
    if ndims is None:
        raise ValueError("sparse.expand_dims needs a sparse tensor of known rank")
    axis = -1 if axis is None else int(axis)
    at = axis + ndims + 1 if axis < 0 else axis
    if not 0 <= at <= ndims:
        raise ValueError(f"axis = {axis} not in [{-ndims - 1}, {ndims}]")
    with name_scope(name, "expand_dims", [sp_input.values]):
        column = array.zeros_like(sp_input.indices[:, :1])
        indices = array.concat([sp_input.indices[:, :at], column, sp_input.indices[:, at:]], 1)
        one = np.ones(1, np.int64)
        sizes = [sp_input.dense_shape[:at], one, sp_input.dense_shape[at:]]
        return SparseTensor(indices, sp_input.values, array.concat(sizes, 0))


@export(v1=("sparse_concat", "sparse.concat"))
def sparse_concat(
    axis: Any, sp_inputs: Any, name: str | None = None, expand_nonconcat_dim: bool = False,
    concat_dim: Any = None, expand_nonconcat_dims: bool | None = None,
) -> SparseTensor:  # fmt: skip
    """Joins sparse tensors along a dimension that they have.

    `expand_nonconcat_dims`: let the other sizes differ and take the largest of each.
    """
    axis = concat_dim if axis is None else axis
    if axis is None:
        raise TypeError("sparse_concat: the axis is missing")
    expand = expand_nonconcat_dim if expand_nonconcat_dims is None else expand_nonconcat_dims
    sp_inputs = sparse_list(sp_inputs)
    if len(sp_inputs) == 1:
        return sp_inputs[0]
    _check_concat(sp_inputs, axis)
    shapes = [s.dense_shape for s in sp_inputs]
    if expand:
        shapes = _widened(shapes, axis)
    made = gen_ops.sparse_concat(
        [s.indices for s in sp_inputs], [s.values for s in sp_inputs], shapes, concat_dim=axis,
        name=name,
    )  # fmt: skip
    return SparseTensor(*made)


sparse_concat_v2 = export(v2="sparse.concat")(
    reordered(sparse_concat, "axis sp_inputs expand_nonconcat_dims name")
)


def _widened(shapes: list[Tensor], axis: int) -> list[Tensor]:
    """Each shape with the largest size that any has, but for the dimension `axis`."""
    along = parts.unit(gen_ops.size(shapes[0]), axis)
    across = array.ones_like(along) - along
    others = gen_ops.max(array.stack(shapes), 0) * across
    return [others + shape * along for shape in shapes]


def _check_concat(sp_inputs: list[SparseTensor], axis: int) -> None:
    """ValueError for what is known not to go together."""
    shapes = [s.shape for s in sp_inputs]
    ranks = {s.ndims for s in shapes if s.ndims is not None}
    if len(ranks) > 1:
        raise ValueError(
            "Shapes must be equal rank: the sparse tensors to concatenate have shapes "
            + ", ".join(str(s) for s in shapes)
        )
    if ranks and not -min(ranks) <= axis < min(ranks):
        rank = min(ranks)
        raise ValueError(
            f"Concat dimension must be in range [{-rank}, {rank}), got {axis} for shapes "
            + ", ".join(str(s) for s in shapes)
        )


@export(v1=("sparse_split", "sparse.split"))
def sparse_split(
    keyword_required: Any = None, sp_input: Any = None, num_split: int | None = None,
    axis: Any = None, name: str | None = None, split_dim: Any = None,
) -> list[SparseTensor]:  # fmt: skip
    """Splits a sparse tensor into `num_split` along `axis`. All arguments go by keyword."""
    if keyword_required is not None:
        raise ValueError("Keyword arguments are required for this function.")
    axis = split_dim if axis is None else axis
    for key, value in (("sp_input", sp_input), ("num_split", num_split), ("axis", axis)):
        if value is None:
            raise ValueError(f"{key} is required")
    sp_input = as_sparse(sp_input)
    with name_scope(name, "SparseSplit", [sp_input.values]):
        along = parts.unit(gen_ops.size(sp_input.dense_shape), axis)
        size = gen_ops.sum(sp_input.dense_shape * along, 0)
        number = np.int64(num_split)
        size = parts.checked(
            size, gen_ops.less_equal(number, size),
            "Number of ways to split should not be larger than the dimension", number, size,
        )  # fmt: skip
        least, more = gen_ops.floor_div(size, number), gen_ops.floor_mod(size, number)
        across = array.ones_like(along) - along
        made = []
        for i in range(num_split):
            # The first ones take one more each where the size is not a multiple.
            begin = gen_ops.minimum(np.int64(i), more) + least * np.int64(i)
            end = gen_ops.minimum(np.int64(i + 1), more) + least * np.int64(i + 1)
            sizes = sp_input.dense_shape * across + along * (end - begin)
            made.append(sparse_slice(sp_input, along * begin, sizes))
        return made


sparse_split_v2 = export(v2="sparse.split")(reordered(sparse_split, "sp_input num_split axis name"))


@export(v1=("sparse_slice", "sparse.slice"), v2="sparse.slice")
def sparse_slice(sp_input: Any, start: Any, size: Any, name: str | None = None) -> SparseTensor:
    """The block of `size` from `start` on; a block that goes past the end is cut off there."""
    sp_input = as_sparse(sp_input)
    with name_scope(name, "SparseSlice", [sp_input.values]):
        start = convert_to_tensor(start, dtypes.int64)
        size = convert_to_tensor(size, dtypes.int64)
        end = gen_ops.minimum(start + size, sp_input.dense_shape)
        inside = gen_ops.logical_and(sp_input.indices >= start, sp_input.indices < end)
        kept = sparse_retain(sp_input, gen_ops.all(inside, 1))
        zero = array.zeros_like(end)
        sizes = gen_ops.maximum(end - start, zero)
        return SparseTensor(kept.indices - start, kept.values, sizes)


@export(v1=("sparse_retain", "sparse.retain"), v2="sparse.retain")
def sparse_retain(sp_input: Any, to_retain: Any) -> SparseTensor:
    """Only those elements for which the vector `to_retain` holds."""
    sp_input = as_sparse(sp_input)
    to_retain = convert_to_tensor(to_retain)
    sp_input.values.shape.merge_with(to_retain.shape.with_rank(1))
    places = array.reshape(gen_ops.where(to_retain), [-1])
    return SparseTensor(
        gen_ops.gather(sp_input.indices, places),
        gen_ops.gather(sp_input.values, places),
        gen_ops.identity(sp_input.dense_shape),
    )


@export(v1=("sparse_reset_shape", "sparse.reset_shape"), v2="sparse.reset_shape")
def sparse_reset_shape(sp_input: Any, new_shape: Any = None) -> SparseTensor:
    """The same elements in a larger shape, or without `new_shape` in the smallest that holds them.

    ValueError when the new shape is of another rank or smaller; an error when the graph runs where
    that is known only then.
    """
    sp_input = as_sparse(sp_input)
    indices = gen_ops.identity(sp_input.indices)
    values = gen_ops.identity(sp_input.values)
    before = gen_ops.identity(sp_input.dense_shape)
    if new_shape is None:
        one = array.ones_like(before)
        shape = gen_ops.maximum(array.zeros_like(before), gen_ops.max(indices, 0) + one)
        return SparseTensor(indices, values, shape)
    shape = convert_to_tensor(new_shape, dtypes.int64)
    shape.shape.with_rank(1)
    known_before = constant_value_as_shape(sp_input.dense_shape)
    known = constant_value_as_shape(shape)
    if known_before.ndims is not None and known.ndims is not None:
        if known.ndims != known_before.ndims:
            raise ValueError(
                f"Shapes {known} and {known_before} are incompatible: the new shape must have as "
                "many dimensions"
            )
        pairs = zip(known_before.as_list(), known.as_list(), strict=True)
        if any(a is not None and b is not None and a > b for a, b in pairs):
            raise ValueError(
                "Requested new_shape should have dimension sizes >= sp_input.shape. Found "
                f"new_shape {known} and sp_input.shape {known_before}."
            )
    if not (known.is_fully_defined() and known_before.is_fully_defined()):
        before = parts.checked(
            before,
            gen_ops.equal(gen_ops.shape(before), gen_ops.shape(shape)),
            "Condition x == y did not hold element-wise: the ranks differ",
            before,
            shape,
        )
        shape = parts.checked(
            shape,
            gen_ops.less_equal(before, shape),
            "Condition x <= y did not hold element-wise: the new shape is smaller",
            before,
            shape,
        )
    return SparseTensor(indices, values, shape)


@export(v1=("sparse_fill_empty_rows", "sparse.fill_empty_rows"), v2="sparse.fill_empty_rows")
def sparse_fill_empty_rows(
    sp_input: Any, default_value: Any, name: str | None = None
) -> tuple[SparseTensor, Tensor]:
    """Gives each row without elements one, `default_value`, in its first place.

    Also returns the vector of booleans that says which rows were empty.
    """
    sp_input = as_sparse(sp_input)
    default = convert_to_tensor(default_value, sp_input.values.dtype.base_dtype)
    indices, values, empty, _ = gen_ops.sparse_fill_empty_rows(
        *parts_of(sp_input), default, name=name
    )
    return SparseTensor(indices, values, sp_input.dense_shape), empty


@export(v1=("sparse_merge", "sparse.merge"))
def sparse_merge(
    sp_ids: Any, sp_values: Any, vocab_size: Any, name: str | None = None,
    already_sorted: bool = False,
) -> SparseTensor:  # fmt: skip
    """Replaces the last dimension by the numbers that `sp_ids` holds: element sp_values[i] goes to
    place sp_ids[i] of `vocab_size`. Lists of ids and sizes make several dimensions."""
    ids_list = sp_ids if isinstance(sp_ids, list) else [sp_ids]
    sizes = vocab_size if isinstance(sp_ids, list) else [vocab_size]
    if isinstance(sp_ids, list) and not isinstance(vocab_size, (list, tuple)):
        raise TypeError("vocab_size has to be a list of Tensors or Python ints")
    if len(ids_list) != len(sizes):
        raise ValueError("sp_ids and vocab_size have to have equal lengths.")
    ids_list = [as_sparse(ids, "sp_ids") for ids in ids_list]
    sp_values = as_sparse(sp_values, "sp_values")
    with name_scope(name, "SparseMerge", [ids_list[0].values, sp_values.values]):
        columns = [ids_list[0].indices[:, :-1]]
        for ids in ids_list:
            numbers = ids.values
            if numbers.dtype.base_dtype is not dtypes.int64:
                numbers = gen_ops.cast(numbers, dtypes.int64)
            columns.append(array.expand_dims(numbers, 1))
        lengths = [
            array.reshape(gen_ops.cast(convert_to_tensor(size), dtypes.int64), [1])
            for size in sizes
        ]
        shape = array.concat([ids_list[0].dense_shape[:-1], *lengths], 0)
        result = SparseTensor(array.concat(columns, 1), sp_values.values, shape)
        if already_sorted:
            return result
        ordered = sparse_reorder(result)
        return SparseTensor(ordered.indices, ordered.values, shape)
