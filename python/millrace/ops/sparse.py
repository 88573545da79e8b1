"""Sparse tensors."""

from typing import Any

import numpy as np

from millrace import gen_ops
from millrace.core import dtypes, errors
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.graph.convert import constant, convert_to_tensor
from millrace.graph.graph import Tensor, control_dependencies, name_scope
from millrace.graph.sparse import SparseTensor, SparseTensorValue
from millrace.graph.static_value import constant_value, constant_value_as_shape
from millrace.ops import array
from millrace.ops import sparse_parts as parts


def _is_sparse(value: Any) -> bool:
    return isinstance(value, (SparseTensor, SparseTensorValue))


def _sparse(value: Any, name: str = "Input") -> SparseTensor:
    """The value as a SparseTensor. TypeError when it is not sparse."""
    if not _is_sparse(value):
        raise TypeError(f"{name} must be a SparseTensor, got {type(value).__name__}: {value!r}")
    return SparseTensor.from_value(value)


def _parts(value: SparseTensor) -> tuple[Tensor, Tensor, Tensor]:
    return value.indices, value.values, value.dense_shape


def _places(value: SparseTensor) -> Tensor:
    return parts.places(value.indices, value.dense_shape)


def _keep_dims(keepdims: bool | None, keep_dims: bool | None) -> bool:
    if keepdims is not None and keep_dims is not None:
        raise ValueError("Cannot specify both 'keepdims' and 'keep_dims'.")
    return bool(keepdims) or bool(keep_dims)


# Making them.


@export("sparse_placeholder", "sparse.placeholder")
def sparse_placeholder(dtype: Any, shape: Any = None, name: str | None = None) -> SparseTensor:
    """A sparse tensor whose value is fed: a SparseTensorValue, or its three parts.

    `shape`: what the values are held to; sizes may be None, and the whole too.
    """
    prefix = "" if name is None else name + "/"
    rank = None
    if shape is None:
        dense_shape = array.placeholder(dtypes.int64, [None], prefix + "shape" if name else None)
    elif isinstance(shape, Tensor):
        rank = shape.shape.as_list()[0] if shape.shape.ndims == 1 else None
        dense_shape = convert_to_tensor(shape, dtypes.int64)
    else:
        sizes = TensorShape(shape)
        rank = sizes.ndims
        label = prefix + "shape" if name else None
        if rank is None:
            dense_shape = array.placeholder(dtypes.int64, [None], label)
        else:
            known = np.array([-1 if d is None else d for d in sizes.as_list()], np.int64)
            dense_shape = convert_to_tensor(known, name=label)
            if not sizes.is_fully_defined():
                dense_shape = array.placeholder_with_default(dense_shape, [rank])
    return SparseTensor(
        array.placeholder(dtypes.int64, [None, rank], prefix + "indices" if name else None),
        array.placeholder(dtype, [None], prefix + "values" if name else None),
        dense_shape,
    )


@export("sparse.from_dense")
def from_dense(tensor: Any, name: str | None = None) -> SparseTensor:
    """The elements of a dense tensor that are not zero."""
    with name_scope(name, "dense_to_sparse", [tensor]):
        tensor = convert_to_tensor(tensor)
        indices = array.where(gen_ops.not_equal(tensor, array.zeros_like(tensor)))
        values = gen_ops.gather_nd(tensor, indices)
        return SparseTensor(indices, values, array.shape(tensor, out_type=dtypes.int64))


@export("sparse.eye")
def eye(
    num_rows: int, num_columns: int | None = None, dtype: Any = dtypes.float32,
    name: str | None = None,
) -> SparseTensor:  # fmt: skip
    """A matrix of ones on the diagonal."""
    with name_scope(name, "eye", []):
        columns = num_rows if num_columns is None else num_columns
        count = np.arange(min(num_rows, columns), dtype=np.int64)
        ones = array.ones([len(count)], dtype)
        return SparseTensor(np.stack([count, count], 1), ones, [num_rows, columns])


# To dense tensors.


@export("sparse_to_dense")
def sparse_to_dense(
    sparse_indices: Any, output_shape: Any, sparse_values: Any, default_value: Any = 0,
    validate_indices: bool = True, name: str | None = None,
) -> Tensor:  # fmt: skip
    """A dense tensor of `default_value`, with the values at the places given.

    `validate_indices`: indices that are out of order or come twice are an error.
    """
    return gen_ops.sparse_to_dense(
        sparse_indices, output_shape, sparse_values, default_value,
        validate_indices=validate_indices, name=name,
    )  # fmt: skip


@export("sparse_tensor_to_dense", "sparse.to_dense")
def sparse_tensor_to_dense(
    sp_input: Any, default_value: Any = None, validate_indices: bool = True, name: str | None = None
) -> Tensor:
    """The sparse tensor as a dense one, with `default_value` (zero) where nothing is given."""
    sp_input = _sparse(sp_input)
    if default_value is None:
        default_value = array.zeros([], sp_input.dtype)
    return sparse_to_dense(
        sp_input.indices, sp_input.dense_shape, sp_input.values, default_value, validate_indices,
        name,
    )  # fmt: skip


@export("sparse_to_indicator", "sparse.to_indicator")
def sparse_to_indicator(sp_input: Any, vocab_size: Any, name: str | None = None) -> Tensor:
    """Booleans: whether number i is among the values of the last dimension."""
    sp_input = _sparse(sp_input)
    with name_scope(name, "SparseToIndicator", [sp_input.values]) as scope:
        true = array.fill(array.shape(sp_input.values), True)
        marks = SparseTensor(sp_input.indices, true, sp_input.dense_shape)
        merged = sparse_merge(sp_input, marks, vocab_size, name=scope)
        return sparse_tensor_to_dense(merged, False, validate_indices=False, name=scope)


# Rearranging.


@export("sparse_reorder", "sparse.reorder")
def sparse_reorder(sp_input: Any, name: str | None = None) -> SparseTensor:
    """The same elements, in the order in which they stand in the dense tensor."""
    sp_input = _sparse(sp_input)
    with name_scope(name, "SparseReorder", [sp_input.values]):
        order = parts.ascending(_places(sp_input))
        return SparseTensor(
            gen_ops.gather(sp_input.indices, order),
            gen_ops.gather(sp_input.values, order),
            gen_ops.identity(sp_input.dense_shape),
        )


@export("sparse_reshape", "sparse.reshape")
def sparse_reshape(sp_input: Any, shape: Any, name: str | None = None) -> SparseTensor:
    """The same elements in another shape; one size may be -1.

    ValueError when the numbers of elements differ, where they are known.
    """
    sp_input = _sparse(sp_input)
    with name_scope(name, "SparseReshape", [sp_input.values, shape]):
        shape = convert_to_tensor(shape, dtypes.int64)
        _check_reshape(sp_input.shape, shape)
        whole = gen_ops.prod(sp_input.dense_shape, 0)
        known = gen_ops.prod(gen_ops.abs(shape), 0)  # -1, of which there is one, counts as 1
        left = gen_ops.floor_div(whole, gen_ops.maximum(known, array.ones_like(known)))
        negative = gen_ops.less(shape, array.zeros_like(shape))
        dense_shape = gen_ops.select(negative, array.zeros_like(shape) + left, shape)
        fits = gen_ops.equal(gen_ops.prod(dense_shape, 0), whole)
        wanted = constant_value(shape)
        message = (
            "Input to reshape is a tensor whose number of dense values is not that of the "
            "requested shape"
        )
        if wanted is not None:
            inferred = np.flatnonzero(wanted == -1).tolist()
            if len(inferred) == 0:
                dense_shape = shape
            elif len(inferred) == 1:
                message = (
                    "Input to reshape is a tensor with dense values of which the requested shape "
                    f"requires a multiple of {int(np.prod(np.abs(wanted)))}"
                )
            else:
                message = (
                    "only one output shape size may be -1, not both "
                    f"{inferred[0]} and {inferred[1]}"
                )
        single = gen_ops.sum(gen_ops.cast(negative, dtypes.int32), [0])
        fits = gen_ops.logical_and(fits, gen_ops.less_equal(single, 1))
        at = parts.checked(_places(sp_input), fits, message, sp_input.dense_shape, shape)
        indices = parts.indices_of(at, dense_shape)
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


@export("sparse_transpose", "sparse.transpose")
def sparse_transpose(sp_input: Any, perm: Any = None, name: str | None = None) -> SparseTensor:
    """Permutes the dimensions; reverses their order without `perm`."""
    sp_input = _sparse(sp_input)
    with name_scope(name, "SparseTranspose", [sp_input.values]) as scope:
        if perm is None:
            ndims = sp_input.shape.ndims
            if ndims is not None:
                perm = np.arange(ndims - 1, -1, -1, dtype=np.int32)
            else:
                rank = array.rank(sp_input)
                perm = (rank - 1) - gen_ops.range(0, rank, 1)
        indices = array.gather(sp_input.indices, perm, axis=1)
        dense_shape = array.gather(sp_input.dense_shape, perm)
        return sparse_reorder(SparseTensor(indices, sp_input.values, dense_shape), name=scope)


@export("sparse.expand_dims")
def expand_dims(sp_input: Any, axis: int | None = None, name: str | None = None) -> SparseTensor:
    """Adds a dimension of size 1 at `axis` (the last)."""
    sp_input = _sparse(sp_input)
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


@export("sparse_concat", "sparse.concat")
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
    sp_inputs = _sparse_list(sp_inputs)
    if len(sp_inputs) == 1:
        return sp_inputs[0]
    _check_concat(sp_inputs, axis)
    with name_scope(name, "SparseConcat", [s.values for s in sp_inputs]):
        rank = gen_ops.size(sp_inputs[0].dense_shape)
        along = parts.unit(rank, axis)
        across = array.ones_like(along) - along
        shapes = array.stack([s.dense_shape for s in sp_inputs])
        others = gen_ops.max(shapes, 0)
        if not expand:
            others = parts.checked(
                others, gen_ops.equal(shapes * across, others * across),
                "Input shapes must match in all dimensions but that of the concatenation", shapes,
            )  # fmt: skip
        indices, start = [], array.zeros_like(along)
        for one in sp_inputs:
            indices.append(one.indices + start)
            start = start + one.dense_shape * along
        values = array.concat([s.values for s in sp_inputs], 0)
        joined = array.concat(indices, 0)
        for one in sp_inputs:
            if one.dense_shape.shape.ndims == 1:
                joined.set_shape([None, one.dense_shape.shape[0]])
        whole = SparseTensor(joined, values, others * across + start)
        return sparse_reorder(whole)


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


def _sparse_list(values: Any) -> list[SparseTensor]:
    if not isinstance(values, (list, tuple)):
        raise TypeError(f"Inputs must be a list of SparseTensors, got {type(values).__name__}")
    if not all(_is_sparse(v) for v in values):
        raise TypeError(
            "All inputs must be SparseTensors, got "
            + ", ".join(sorted({type(v).__name__ for v in values}))
        )
    return [SparseTensor.from_value(v) for v in values]


@export("sparse_split", "sparse.split")
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
    sp_input = _sparse(sp_input)
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


@export("sparse_slice", "sparse.slice")
def sparse_slice(sp_input: Any, start: Any, size: Any, name: str | None = None) -> SparseTensor:
    """The block of `size` from `start` on; a block that goes past the end is cut off there."""
    sp_input = _sparse(sp_input)
    with name_scope(name, "SparseSlice", [sp_input.values]):
        start = convert_to_tensor(start, dtypes.int64)
        size = convert_to_tensor(size, dtypes.int64)
        end = gen_ops.minimum(start + size, sp_input.dense_shape)
        inside = gen_ops.logical_and(sp_input.indices >= start, sp_input.indices < end)
        kept = sparse_retain(sp_input, gen_ops.all(inside, 1))
        zero = array.zeros_like(end)
        sizes = gen_ops.maximum(end - start, zero)
        return SparseTensor(kept.indices - start, kept.values, sizes)


@export("sparse_retain", "sparse.retain")
def sparse_retain(sp_input: Any, to_retain: Any) -> SparseTensor:
    """Only those elements for which the vector `to_retain` holds."""
    sp_input = _sparse(sp_input)
    to_retain = convert_to_tensor(to_retain)
    sp_input.values.shape[0].merge_with(to_retain.shape.with_rank(1)[0])
    places = array.reshape(gen_ops.where(to_retain), [-1])
    return SparseTensor(
        gen_ops.gather(sp_input.indices, places),
        gen_ops.gather(sp_input.values, places),
        gen_ops.identity(sp_input.dense_shape),
    )


@export("sparse_reset_shape", "sparse.reset_shape")
def sparse_reset_shape(sp_input: Any, new_shape: Any = None) -> SparseTensor:
    """The same elements in a larger shape, or without `new_shape` in the smallest that holds them.

    ValueError when the new shape is of another rank or smaller; an error when the graph runs where
    that is known only then.
    """
    sp_input = _sparse(sp_input)
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


@export("sparse_fill_empty_rows", "sparse.fill_empty_rows")
def sparse_fill_empty_rows(
    sp_input: Any, default_value: Any, name: str | None = None
) -> tuple[SparseTensor, Tensor]:
    """Gives each row without elements one, `default_value`, in its first place.

    Also returns the vector of booleans that says which rows were empty.
    """
    sp_input = _sparse(sp_input)
    with name_scope(name, "SparseFillEmptyRows", [sp_input.values]):
        default = convert_to_tensor(default_value, sp_input.values.dtype.base_dtype)
        rows = sp_input.dense_shape[0]
        zero = constant(0, dtypes.int64)
        every = gen_ops.range(zero, rows, constant(1, dtypes.int64))
        empty, _ = gen_ops.list_diff(every, sp_input.indices[:, 0])
        indicator = gen_ops.sparse_to_dense(empty, array.reshape(rows, [1]), True, False)
        width = gen_ops.size(sp_input.dense_shape)
        missing = array.expand_dims(empty, 1)
        others = gen_ops.fill(array.stack([gen_ops.size(empty), width - 1]), zero)
        indices = array.concat([sp_input.indices, array.concat([missing, others], 1)], 0)
        added = gen_ops.fill(gen_ops.shape(empty), default)
        values = array.concat([sp_input.values, added], 0)
        whole = SparseTensor(indices, values, sp_input.dense_shape)
        return sparse_reorder(whole), indicator


@export("sparse_merge", "sparse.merge")
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
    ids_list = [_sparse(ids, "sp_ids") for ids in ids_list]
    sp_values = _sparse(sp_values, "sp_values")
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


# Arithmetic.


@export("sparse_add", "sparse.add")
def sparse_add(a: Any, b: Any, threshold: Any = None, thresh: Any = None) -> Any:
    """The sum of two tensors, at least one of which is sparse; sparse when both are.

    `threshold`: leave out sums that are not larger than it. TypeError when neither is sparse.
    """
    threshold = thresh if threshold is None else threshold
    if not _is_sparse(a) and not _is_sparse(b):
        raise TypeError(
            "At least one input should be SparseTensor; do you mean to use tf.add()? Got "
            f"{type(a).__name__} and {type(b).__name__}"
        )
    if _is_sparse(a) and _is_sparse(b):
        a, b = _sparse(a), _sparse(b)
        real = a.values.dtype.real_dtype.base_dtype
        limit = convert_to_tensor(0 if threshold is None else threshold, real, name="thresh")
        with name_scope(None, "SparseAdd", [a.values, b.values]):
            shape = _common_shape(a, b)
            at, of_a, of_b = parts.union(_places(a), _places(b))
            values = array.concat([a.values, b.values], 0)
            sums = parts.summed(values, array.concat([of_a, of_b], 0), parts.count(at))
            whole = SparseTensor(parts.indices_of(at, shape), sums, shape)
            if threshold is None:
                return whole
            size = gen_ops.complex_abs(sums) if sums.dtype.is_complex else gen_ops.abs(sums)
            return sparse_retain(whole, gen_ops.less_equal(limit, size))
    if _is_sparse(b):
        a, b = b, a
    a = _sparse(a)
    with name_scope(None, "SparseTensorDenseAdd", [a.values, b]) as scope:
        b = convert_to_tensor(b, a.dtype.base_dtype)
        a.shape.assert_is_compatible_with(b.shape)
        shape = parts.same_shape(
            a.dense_shape, array.shape(b, out_type=dtypes.int64),
            "Shapes of the sparse and the dense tensor must match",
        )  # fmt: skip
        return gen_ops.add(gen_ops.scatter_nd(a.indices, a.values, shape), b, name=scope)


def _common_shape(a: SparseTensor, b: SparseTensor) -> Tensor:
    """The shape of both; an error, now or when the graph runs, when they differ."""
    if not a.shape.is_compatible_with(b.shape):
        same_rank = a.shape.ndims == b.shape.ndims
        what = (
            "Operands' shapes do not match" if same_rank else "Operands do not have the same ranks"
        )
        raise errors.InvalidArgumentError(None, None, f"{what}: got {a.shape} and {b.shape}")
    if a.shape.is_fully_defined() and b.shape.is_fully_defined():
        return a.dense_shape
    return parts.same_shape(a.dense_shape, b.dense_shape, "Operands' shapes do not match")


@export("sparse_tensor_dense_matmul", "sparse.matmul", "sparse.sparse_dense_matmul")
def sparse_tensor_dense_matmul(
    sp_a: Any, b: Any, adjoint_a: bool = False, adjoint_b: bool = False, name: str | None = None
) -> Tensor:
    """The product of a sparse and a dense matrix; `adjoint_*`: of the conjugate transpose."""
    sp_a = _sparse(sp_a)
    with name_scope(name, "SparseTensorDenseMatMul", [sp_a.values, b]) as scope:
        b = convert_to_tensor(b, name="b")
        b.shape.with_rank(2)
        if adjoint_b:
            b = array.transpose(b, [1, 0], conjugate=True)
        values, row, column = sp_a.values, 0, 1
        if adjoint_a:
            values, row, column = _conjugate(values), 1, 0
        inner = gen_ops.cast(array.shape(b)[0], dtypes.int64)
        size = sp_a.dense_shape[column]
        if not sp_a.shape.with_rank(2)[column].is_compatible_with(b.shape[0]):
            raise ValueError(
                "Dimensions must be equal: cannot multiply A and B because inner dimension does "
                f"not match: A has shape {sp_a.shape}, B has shape {b.shape} "
                f"(adjoint_a={adjoint_a}, "
                f"adjoint_b={adjoint_b})"
            )
        inner = parts.checked(
            inner, gen_ops.equal(inner, size),
            "Cannot multiply A and B because inner dimension does not match", size, inner,
        )  # fmt: skip
        with control_dependencies([inner]):
            picked = gen_ops.gather(b, sp_a.indices[:, column])
        products = array.expand_dims(values, 1) * picked
        rows = gen_ops.cast(sp_a.dense_shape[row], dtypes.int32)
        made = gen_ops.unsorted_segment_sum(products, sp_a.indices[:, row], rows, name=scope)
        made.set_shape([sp_a.shape[row], b.shape[1]])
        return made


def _conjugate(values: Tensor) -> Tensor:
    return gen_ops.conj(values) if values.dtype.base_dtype.is_complex else values


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
        indices = array.gather(sp_input.indices, kept, axis=1)
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


@export("sparse_reduce_sum", "sparse.reduce_sum")
def sparse_reduce_sum(
    sp_input: Any, axis: Any = None, keepdims: bool | None = None, reduction_axes: Any = None,
    keep_dims: bool | None = None,
) -> Tensor:  # fmt: skip
    """The sum over the dimensions `axis` (all), as a dense tensor."""
    sp_input = _sparse(sp_input)
    with name_scope(None, "SparseReduceSum", [sp_input.values]):
        axis = reduction_axes if axis is None else axis
        groups = _Reduction(sp_input, axis, _keep_dims(keepdims, keep_dims))
        return groups.dense(parts.summed(groups.values, groups.places, groups.size))


@export("sparse_reduce_sum_sparse", "sparse.reduce_sum_sparse")
def sparse_reduce_sum_sparse(
    sp_input: Any, axis: Any = None, keepdims: bool | None = None, reduction_axes: Any = None,
    keep_dims: bool | None = None,
) -> SparseTensor:  # fmt: skip
    """The sum over the dimensions `axis` (all), as a sparse tensor."""
    sp_input = _sparse(sp_input)
    with name_scope(None, "SparseReduceSumSparse", [sp_input.values]):
        axis = reduction_axes if axis is None else axis
        return _Reduction(sp_input, axis, _keep_dims(keepdims, keep_dims)).sparse(parts.summed)


@export("sparse_reduce_max", "sparse.reduce_max")
def sparse_reduce_max(
    sp_input: Any, axis: Any = None, keepdims: bool | None = None, reduction_axes: Any = None,
    keep_dims: bool | None = None,
) -> Tensor:  # fmt: skip
    """The largest element over the dimensions `axis` (all), of those that are given; zero where
    there are none."""
    sp_input = _sparse(sp_input)
    with name_scope(None, "SparseReduceMax", [sp_input.values]):
        axis = reduction_axes if axis is None else axis
        groups = _Reduction(sp_input, axis, _keep_dims(keepdims, keep_dims))
        found = parts.largest(groups.values, groups.places, groups.size)
        ones = array.ones_like(groups.values, dtypes.int32)
        number = parts.summed(ones, groups.places, groups.size)
        empty = gen_ops.equal(number, array.zeros_like(number))
        return groups.dense(gen_ops.select(empty, array.zeros_like(found), found))


@export("sparse_reduce_max_sparse", "sparse.reduce_max_sparse")
def sparse_reduce_max_sparse(
    sp_input: Any, axis: Any = None, keepdims: bool | None = None, reduction_axes: Any = None,
    keep_dims: bool | None = None,
) -> SparseTensor:  # fmt: skip
    """As `sparse_reduce_max`, as a sparse tensor."""
    sp_input = _sparse(sp_input)
    with name_scope(None, "SparseReduceMaxSparse", [sp_input.values]):
        axis = reduction_axes if axis is None else axis
        return _Reduction(sp_input, axis, _keep_dims(keepdims, keep_dims)).sparse(parts.largest)


@export("sparse_softmax", "sparse.softmax")
def sparse_softmax(sp_input: Any, name: str | None = None) -> SparseTensor:
    """Softmax over the last dimension, among the elements that are given."""
    sp_input = _sparse(sp_input)
    with name_scope(name, "SparseSoftmax", [sp_input.indices, sp_input.values]) as scope:
        row = gen_ops.floor_div(_places(sp_input), sp_input.dense_shape[-1])
        rows, number = gen_ops.unique(row)
        values, size = sp_input.values, parts.count(rows)
        top = gen_ops.stop_gradient(parts.largest(values, number, size))
        powers = gen_ops.exp(values - gen_ops.gather(top, number))
        sums = gen_ops.gather(parts.summed(powers, number, size), number)
        values = gen_ops.real_div(powers, sums, name=scope)
        return SparseTensor(sp_input.indices, values, sp_input.dense_shape)


def _merged(sp_a: Any, sp_b: Any, choose: Any, name: str | None, default: str) -> SparseTensor:
    """choose(a, b) of the elements that either gives; what is not given counts as zero."""
    a, b = _sparse(sp_a), _sparse(sp_b)
    with name_scope(name, default, [a.values, b.values]) as scope:
        shape = _common_shape(a, b)
        at, of_a, of_b = parts.union(_places(a), _places(b))
        size = parts.count(at)
        values = choose(
            parts.summed(a.values, of_a, size), parts.summed(b.values, of_b, size), name=scope
        )
        return SparseTensor(parts.indices_of(at, shape), values, shape)


@export("sparse_maximum", "sparse.maximum")
def sparse_maximum(sp_a: Any, sp_b: Any, name: str | None = None) -> SparseTensor:
    """The larger of two sparse tensors' elements; what is not given counts as zero."""
    return _merged(sp_a, sp_b, gen_ops.maximum, name, "SparseSparseMaximum")


@export("sparse_minimum", "sparse.minimum")
def sparse_minimum(sp_a: Any, sp_b: Any, name: str | None = None) -> SparseTensor:
    """The smaller of two sparse tensors' elements; what is not given counts as zero."""
    return _merged(sp_a, sp_b, gen_ops.minimum, name, "SparseSparseMinimum")


# As strings.


@export("serialize_sparse", "io.serialize_sparse")
def serialize_sparse(
    sp_input: Any, name: str | None = None, out_type: Any = dtypes.string
) -> Tensor:
    """A sparse tensor as three strings."""
    del out_type
    return gen_ops.serialize_sparse(*_parts(_sparse(sp_input)), name=name)


@export("serialize_many_sparse", "io.serialize_many_sparse")
def serialize_many_sparse(
    sp_input: Any, name: str | None = None, out_type: Any = dtypes.string
) -> Tensor:
    """The rows of a sparse tensor, each as three strings."""
    del out_type
    return gen_ops.serialize_many_sparse(*_parts(_sparse(sp_input)), name=name)


@export("deserialize_many_sparse", "io.deserialize_many_sparse")
def deserialize_many_sparse(
    serialized_sparse: Any, dtype: Any, rank: int | None = None, name: str | None = None
) -> SparseTensor:
    """Joins the rows that `serialize_many_sparse` wrote. `rank`: of the rows, where it is known."""
    indices, values, shape = gen_ops.deserialize_many_sparse(serialized_sparse, dtype, name=name)
    indices.set_shape([None, rank])
    shape.set_shape([rank])
    return SparseTensor(indices, values, shape)
