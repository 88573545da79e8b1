"""Shapes and parts of tensors: slicing, joining, filling, picking."""

from typing import Any

import numpy as np

from millrace import _core, gen_ops
from millrace.core import dtypes
from millrace.core.arguments import reordered
from millrace.core.export import export
from millrace.core.shapes import Dimension, TensorShape
from millrace.core.tensor import Tensor, label_of
from millrace.graph.convert import constant, convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.sparse import SparseTensor, SparseTensorValue

# Larger constants of one value are kept as a Fill rather than written out.
_SMALL = 1000


# Shapes.


def _is_sparse(value: Any) -> bool:
    return isinstance(value, (SparseTensor, SparseTensorValue))


@export(v1=("reshape", "manip.reshape"), v2="reshape")
def reshape(tensor: Any, shape: Any, name: str | None = None) -> Tensor:
    """The same elements in another shape. One size may be -1: what is left over."""
    return gen_ops.reshape(tensor, shape, name=name)


@export(v1="shape")
def shape(input: Any, name: str | None = None, out_type: Any = dtypes.int32) -> Tensor:
    """The shape of a tensor as a vector; a constant where it is known."""
    return shape_internal(input, name, True, out_type)


shape_v2 = export(v2="shape")(reordered(shape, "input out_type name"))


def shape_internal(
    input: Any, name: str | None = None, optimize: bool = True, out_type: Any = None
) -> Tensor:
    """`shape`, always as an operation when not `optimize`."""
    out_type = dtypes.int32 if out_type is None else dtypes.as_dtype(out_type)
    if _is_sparse(input):
        with name_scope(name, "Shape", [getattr(input, "values", None)]) as scope:
            return gen_ops.cast(input.dense_shape, out_type, name=scope)
    if optimize:
        with name_scope(name, "Shape", [input]) as scope:
            tensor = convert_to_tensor(input)
            dims = tensor._shape_tuple()
            if dims is not None and None not in dims:
                return _core.constant(np.array(dims, out_type.as_numpy_dtype), None, scope)
            return gen_ops.shape(tensor, out_type, name=scope)
    return gen_ops.shape(input, out_type, name=name)


@export(v1="shape_n", v2="shape_n")
def shape_n(input: Any, out_type: Any = dtypes.int32, name: str | None = None) -> list[Tensor]:
    """The shapes of several tensors of one type."""
    return gen_ops.shape_n(input, out_type, name=name)


@export(v1="size")
def size(input: Any, name: str | None = None, out_type: Any = dtypes.int32) -> Tensor:
    """How many elements a tensor has; a constant where it is known."""
    out_type = dtypes.as_dtype(out_type or dtypes.int32)
    if _is_sparse(input):
        with name_scope(name, "Size", [getattr(input, "values", None)]) as scope:
            sizes = gen_ops.cast(input.dense_shape, out_type)
            return gen_ops.prod(sizes, 0, name=scope)
    with name_scope(name, "Size", [input]) as scope:
        tensor = convert_to_tensor(input)
        count = tensor.shape.num_elements()
        if count is not None:
            return constant(count, out_type, name=scope)
        return gen_ops.size(tensor, out_type, name=scope)


size_v2 = export(v2="size")(reordered(size, "input out_type name"))


@export(v1="rank", v2="rank")
def rank(input: Any, name: str | None = None) -> Tensor:
    """How many dimensions a tensor has; a constant where it is known."""
    if _is_sparse(input):
        with name_scope(name, "Rank", [getattr(input, "values", None)]) as scope:
            return gen_ops.size(input.dense_shape, name=scope)
    with name_scope(name, "Rank", [input]) as scope:
        tensor = convert_to_tensor(input)
        ndims = tensor.shape.ndims
        if ndims is not None:
            return constant(ndims, dtypes.int32, name=scope)
        return gen_ops.rank(tensor, name=scope)


@export(v1="expand_dims", v2="expand_dims")
def expand_dims(input: Any, axis: Any = None, name: str | None = None, dim: Any = None) -> Tensor:
    """Adds a dimension of size 1 at `axis`; negative from the end. `dim`: an older name of axis."""
    axis = one_of("axis", axis, "dim", dim)
    if axis is None:
        raise ValueError("expand_dims: must specify an axis argument")
    return gen_ops.expand_dims(input, axis, name=name)


def one_of(name: str, value: Any, older: str, older_value: Any) -> Any:
    """The value of an argument that has an older name. ValueError when both are given."""
    if older_value is None:
        return value
    if value is not None:
        raise ValueError(f"Cannot specify both '{older}' and '{name}'.")
    return older_value


@export(v1="squeeze", v2="squeeze")
def squeeze(
    input: Any, axis: Any = None, name: str | None = None, squeeze_dims: Any = None
) -> Tensor:
    """Removes dimensions of size 1: those of `axis`, or all. `squeeze_dims`: an older name."""
    axis = one_of("axis", axis, "squeeze_dims", squeeze_dims)
    if axis is None:
        axis = []
    elif np.ndim(axis) == 0:
        axis = [axis]
    return gen_ops.squeeze(input, [int(a) for a in axis], name=name)


@export(v1="transpose")
def transpose(
    a: Any, perm: Any = None, name: str | None = "transpose", conjugate: bool = False
) -> Tensor:
    """Permutes the dimensions: dimension i of the result is dimension `perm[i]` of `a`.

    Without `perm` their order is reversed. `conjugate`: of complex elements as well.
    """
    with name_scope(name, "transpose", [a]) as scope:
        a = convert_to_tensor(a, name="a")
        swap = gen_ops.transpose
        if conjugate and a.dtype.base_dtype.is_complex:
            swap = gen_ops.conjugate_transpose
        if perm is None:
            ndims = a.shape.ndims
            if ndims and _core.is_eager_tensor(a):
                perm = list(range(ndims - 1, -1, -1))
            elif ndims is not None:
                perm = _core.constant(np.arange(ndims - 1, -1, -1, dtype=np.int32), None, "perm")
            else:
                count = gen_ops.rank(a)
                perm = (count - 1) - gen_ops.range(0, count, 1)
        return swap(a, perm, name=scope)


transpose_v2 = export(v2="transpose")(reordered(transpose, "a perm conjugate name"))


@export(
    v1=("matrix_transpose", "linalg.matrix_transpose", "linalg.transpose"),
    v2="linalg.matrix_transpose",
)
def matrix_transpose(
    a: Any, name: str | None = "matrix_transpose", conjugate: bool = False
) -> Tensor:
    """Swaps the last two dimensions. ValueError for a tensor of fewer."""
    with name_scope(name, "matrix_transpose", [a]):
        a = convert_to_tensor(a, name="a")
        ndims = a.shape.ndims
        if ndims is not None:
            if ndims < 2:
                raise ValueError(
                    "Argument 'a' should be a (batch) matrix with rank >= 2. Received "
                    f"'{label_of(a)}' with shape {a.shape}"
                )
            perm: Any = [*range(ndims - 2), ndims - 1, ndims - 2]
        else:
            count = gen_ops.rank(a)
            first = gen_ops.range(0, count - 2, 1)
            perm = concat([first, [count - 1, count - 2]], 0)
        return transpose(a, perm, conjugate=conjugate)


@export(v1="identity", v2="identity")
def identity(input: Any, name: str | None = None) -> Any:
    """A tensor of the same value; for a sparse tensor, one of its parts."""
    if isinstance(input, SparseTensor):
        with name_scope(name, "Identity", [input.values]):
            return SparseTensor(
                gen_ops.identity(input.indices),
                gen_ops.identity(input.values),
                gen_ops.identity(input.dense_shape),
            )
    made = gen_ops.identity(input, name=name)
    if hasattr(input, "_handle_data"):
        made._handle_data = input._handle_data
    return made


identity_n = export(v1="identity_n", v2="identity_n")(gen_ops.identity_n)


# Placeholders.


@export(v1="placeholder")
def placeholder(dtype: Any = dtypes.float32, shape: Any = None, name: str | None = None) -> Tensor:
    """A tensor whose value is fed: `sess.run(..., feed_dict={it: value})`.

    `shape`: what the values are held to; any shape when None.
    """
    if _core.executing_eagerly():
        raise RuntimeError(
            "tf.placeholder() is not compatible with eager execution: pass the value itself"
            f"{_core.user_line()}"
        )
    made = gen_ops.placeholder(dtypes.as_dtype(dtype).base_dtype, shape, name=name)
    if shape is not None and made.shape.ndims is None:
        made.set_shape(shape)  # in graphs, a scalar shape of this op means that none was given
    return made


@export(v1="placeholder_with_default")
def placeholder_with_default(input: Any, shape: Any, name: str | None = None) -> Tensor:
    """A placeholder that is `input` when nothing is fed."""
    return gen_ops.placeholder_with_default(input, shape, name=name)


# Constants of one value.


def zero_of(dtype: dtypes.DType) -> Any:
    if dtype is dtypes.bool_:
        return False
    return "" if dtype is dtypes.string else 0


def _filled(value: Any, dims: Any, dtype: dtypes.DType, scope: str) -> Tensor:
    """A tensor of one value; a constant where it is small and the shape known."""
    if not isinstance(dims, Tensor):
        known = None
        try:
            known = TensorShape(dims)
        except (TypeError, ValueError):
            dims = convert_to_tensor(dims, dtypes.int32)
        if known is not None:
            if not known.is_fully_defined():
                raise ValueError(
                    f"Cannot make a tensor of the partly known shape {known}: every size must be "
                    "known, or the shape be a tensor"
                )
            if known.num_elements() < _SMALL or dtype is dtypes.string:
                if dtype.is_quantized:
                    return constant(value, dtype, shape=known, name=scope)
                array = np.full(known.as_list(), value, dtype.as_numpy_dtype)
                return _core.constant(array, dtype, scope)
            dims = convert_to_tensor(known)
    elif dims.shape.ndims == 0:
        dims = gen_ops.reshape(dims, [-1])
    return gen_ops.fill(dims, constant(value, dtype), name=scope)


@export(v1="zeros", v2="zeros")
def zeros(shape: Any, dtype: Any = dtypes.float32, name: str | None = None) -> Tensor:
    """A tensor of zeros (False, empty strings)."""
    dtype = dtypes.as_dtype(dtype).base_dtype
    with name_scope(name, "zeros", [shape]) as scope:
        return _filled(zero_of(dtype), shape, dtype, scope)


@export(v1="ones", v2="ones")
def ones(shape: Any, dtype: Any = dtypes.float32, name: str | None = None) -> Tensor:
    """A tensor of ones (True)."""
    dtype = dtypes.as_dtype(dtype).base_dtype
    with name_scope(name, "ones", [shape]) as scope:
        return _filled(True if dtype is dtypes.bool_ else 1, shape, dtype, scope)


@export(v1="zeros_like")
def zeros_like(
    tensor: Any, dtype: Any = None, name: str | None = None, optimize: bool = True
) -> Tensor:
    """Zeros of the shape of another tensor, and of its type unless `dtype` says another.

    `optimize`: use the shape where it is known before anything runs.
    """
    with name_scope(name, "zeros_like", [tensor]) as scope:
        tensor = convert_to_tensor(tensor, name="tensor")
        own = tensor.dtype.base_dtype
        dtype = own if dtype is None else dtypes.as_dtype(dtype).base_dtype
        known = tensor.shape.is_fully_defined() and dtype is not dtypes.variant
        if optimize and known:
            return _filled(zero_of(dtype), tensor.shape, dtype, scope)
        if dtype is own:
            return gen_ops.zeros_like(tensor, name=scope)
        made = _filled(zero_of(dtype), shape_internal(tensor, optimize=optimize), dtype, scope)
        made.set_shape(tensor.shape)
        return made


zeros_like_v2 = export(v2="zeros_like")(reordered(zeros_like, "input dtype name", input="tensor"))


@export(v1="ones_like")
def ones_like(
    tensor: Any, dtype: Any = None, name: str | None = None, optimize: bool = True
) -> Tensor:
    """Ones of the shape of another tensor, and of its type unless `dtype` says another."""
    with name_scope(name, "ones_like", [tensor]) as scope:
        tensor = convert_to_tensor(tensor, name="tensor")
        dtype = tensor.dtype.base_dtype if dtype is None else dtypes.as_dtype(dtype).base_dtype
        one = True if dtype is dtypes.bool_ else 1
        if optimize and tensor.shape.is_fully_defined():
            return _filled(one, tensor.shape, dtype, scope)
        made = _filled(one, shape_internal(tensor, optimize=optimize), dtype, scope)
        made.set_shape(tensor.shape)
        return made


ones_like_v2 = export(v2="ones_like")(reordered(ones_like, "input dtype name", input="tensor"))


@export(v1="fill", v2="fill")
def fill(dims: Any, value: Any, name: str | None = None) -> Tensor:
    """A tensor of shape `dims`, every element of which is the scalar `value`."""
    return gen_ops.fill(dims, value, name=name)


# Joining and splitting.


@export(v1=("concat", "concat_v2"), v2="concat")
def concat(values: Any, axis: Any, name: str | None = "concat") -> Tensor:
    """Joins tensors along a dimension that they have."""
    if not isinstance(values, (list, tuple)):
        values = [values]
    if len(values) == 1:
        with name_scope(name, "concat", list(values)) as scope:
            axis = convert_to_tensor(axis, dtypes.int32, name="concat_dim")
            axis.shape.assert_has_rank(0)
            return identity(values[0], name=scope)
    return gen_ops.concat_v2(values, axis, name=name or "concat")


@export(v1="stack", v2="stack")
def stack(values: Any, axis: int = 0, name: str | None = "stack") -> Tensor:
    """Joins tensors of one shape along a new dimension, which stands at `axis`.

    ValueError when the axis is out of range.
    """
    name = name or "stack"
    if axis == 0:
        try:
            return convert_to_tensor(values, name=name)
        except (TypeError, ValueError):
            pass
    if not isinstance(values, (list, tuple)):
        values = list(values) if not isinstance(values, Tensor) else unstack(values)
    dims = None
    if values:
        dims = convert_to_tensor(values[0], name=name)._shape_tuple()
    if dims is not None:
        count = len(dims) + 1
        if not -count <= axis < count:
            raise ValueError(
                f"axis = {axis} not in [{-count}, {count}): the parts have shape {dims}"
            )
    return gen_ops.pack(values, axis=axis, name=name)


@export(v1="parallel_stack", v2="parallel_stack")
def parallel_stack(values: Any, name: str | None = "parallel_stack") -> Tensor:
    """As `stack` along dimension 0, of tensors whose shapes are known."""
    with name_scope(name, "parallel_stack", list(values)) as scope:
        values = [convert_to_tensor(v) for v in values]
        values[0].shape.assert_is_fully_defined()
        return gen_ops.pack(values, name=scope)


@export(v1="unstack", v2="unstack")
def unstack(
    value: Any, num: int | None = None, axis: int = 0, name: str | None = "unstack"
) -> list[Tensor]:
    """The parts of a tensor along `axis`, as a list of `num`, each with that dimension removed.

    ValueError when the axis is out of range, or when `num` is needed and not given.
    """
    value = convert_to_tensor(value)
    if num is None:
        dims = value._shape_tuple()
        if dims is not None:
            if not -len(dims) <= axis < len(dims):
                raise ValueError(
                    f"axis = {axis} not in [{-len(dims)}, {len(dims)}): '{label_of(value)}' has "
                    f"shape {value.shape}"
                )
            num = dims[axis]
        if num is None:
            raise ValueError(
                f"Cannot infer num from shape {value.shape} of '{label_of(value)}': pass `num`"
            )
    made = gen_ops.unpack(value, num, axis=axis, name=name or "unstack")
    return made if isinstance(made, list) else []


@export(v1="split", v2="split")
def split(
    value: Any, num_or_size_splits: Any, axis: Any = 0, num: int | None = None,
    name: str | None = "split",
) -> list[Tensor]:  # fmt: skip
    """Splits a tensor along `axis`.

    `num_or_size_splits`: into how many equal parts, or the vector of their sizes (one may be -1:
    what is left). `num`: how many sizes there are, where that is not known.
    """
    name = name or "split"
    if isinstance(num_or_size_splits, Dimension):
        num_or_size_splits = num_or_size_splits.value
    if isinstance(num_or_size_splits, (int, np.integer)):
        return gen_ops.split(axis, value, int(num_or_size_splits), name=name)
    sizes = convert_to_tensor(num_or_size_splits)
    dims = sizes._shape_tuple()
    if dims == ():
        raise ValueError(
            "Rank-0 tensors are not supported as the num_or_size_splits argument to split. "
            f"Argument provided: {num_or_size_splits}"
        )
    if num is None:
        num = dims[0] if dims else None
        if num is None:
            raise ValueError(
                f"Cannot infer num from shape {sizes.shape} of num_or_size_splits: pass `num`"
            )
    return gen_ops.split_v(value, sizes, axis, num, name=name)


@export(v1=("tile", "manip.tile"), v2="tile")
def tile(input: Any, multiples: Any, name: str | None = None) -> Tensor:
    """Repeats a tensor `multiples[i]` times along dimension i."""
    return gen_ops.tile(input, multiples, name=name)


@export(v1="pad")
def pad(
    tensor: Any, paddings: Any, mode: str = "CONSTANT", name: str | None = None,
    constant_values: Any = 0,
) -> Tensor:  # fmt: skip
    """Adds `paddings[i][0]` elements before and `paddings[i][1]` after those of dimension i.

    `mode`: "CONSTANT" (of `constant_values`), "REFLECT" (mirrored without the border) or
    "SYMMETRIC" (with it). ValueError for another.
    """
    kind = mode.upper() if isinstance(mode, str) else mode
    if kind == "CONSTANT":
        if isinstance(constant_values, (int, float)) and constant_values == 0:
            return gen_ops.pad(tensor, paddings, name=name)
        return gen_ops.pad_v2(tensor, paddings, constant_values, name=name)
    if kind in ("REFLECT", "SYMMETRIC"):
        return gen_ops.mirror_pad(tensor, paddings, kind, name=name)
    raise ValueError(
        f"Unknown padding mode: {mode}. Expected 'CONSTANT', 'REFLECT' or 'SYMMETRIC'."
    )


pad_v2 = export(v2="pad")(reordered(pad, "tensor paddings mode constant_values name"))


stop_gradient = export(v1="stop_gradient", v2="stop_gradient")(gen_ops.stop_gradient)
prevent_gradient = gen_ops.prevent_gradient
bitcast = export(v1="bitcast", v2="bitcast")(gen_ops.bitcast)


@export(v1="guarantee_const", v2="guarantee_const")
def guarantee_const(input: Any, name: str | None = None) -> Tensor:
    """The tensor itself; says that its value never changes."""
    return gen_ops.identity(input, name=name or "GuaranteeConst")


# Broadcasting.

broadcast_to = export(v1="broadcast_to", v2="broadcast_to")(gen_ops.broadcast_to)


@export(v1="broadcast_dynamic_shape", v2="broadcast_dynamic_shape")
def broadcast_dynamic_shape(shape_x: Any, shape_y: Any) -> Tensor:
    """The shape, as a vector, of what two tensors of these shapes make together."""
    return gen_ops.broadcast_args(shape_x, shape_y)


@export(v1="broadcast_static_shape", v2="broadcast_static_shape")
def broadcast_static_shape(shape_x: TensorShape, shape_y: TensorShape) -> TensorShape:
    """As `broadcast_dynamic_shape`, of TensorShapes. ValueError when they do not go together."""
    shape_x, shape_y = TensorShape(shape_x), TensorShape(shape_y)
    if shape_x.ndims is None or shape_y.ndims is None:
        return TensorShape(None)
    x, y = shape_x.as_list(), shape_y.as_list()
    count = max(len(x), len(y))
    x, y = [1] * (count - len(x)) + x, [1] * (count - len(y)) + y
    dims = []
    for a, b in zip(x, y, strict=True):
        if a == 1 or b == 1:
            dims.append(b if a == 1 else a)
        elif a is None or b is None:
            dims.append(b if a is None else a)
        elif a == b:
            dims.append(a)
        else:
            raise ValueError(
                f"Incompatible shapes for broadcasting: {shape_x} and {shape_y}. Two shapes are "
                "compatible if for each dimension pair they are either equal or one of them is 1."
            )
    return TensorShape(dims)


@export(v1="meshgrid", v2="meshgrid")
def meshgrid(*args: Any, **kwargs: Any) -> list[Tensor]:
    """Grids of coordinates from vectors, as numpy.meshgrid.

    `indexing`: "xy" (the first two dimensions swapped) or "ij". `name`: of the scope.
    """
    indexing = kwargs.pop("indexing", "xy")
    name = kwargs.pop("name", "meshgrid")
    if kwargs:
        key = next(iter(kwargs))
        raise TypeError(f"'{key}' is an invalid keyword argument for this function")
    if indexing not in ("xy", "ij"):
        raise ValueError(f"indexing must be 'xy' or 'ij', got {indexing!r}")
    with name_scope(name, "meshgrid", list(args)):
        count = len(args)
        if count == 0:
            return []
        grids = []
        for i, vector in enumerate(args):
            dims = [1] * count
            dims[i] = -1
            grids.append(reshape(stack(vector), dims))
        sizes = [size(vector) for vector in args]
        if indexing == "xy" and count > 1:
            grids[0] = reshape(grids[0], [1, -1] + [1] * (count - 2))
            grids[1] = reshape(grids[1], [-1, 1] + [1] * (count - 2))
            sizes[0], sizes[1] = sizes[1], sizes[0]
        whole = ones(stack(sizes), grids[0].dtype.base_dtype)
        return [grid * whole for grid in grids]


@export(v1="sequence_mask", v2="sequence_mask")
def sequence_mask(
    lengths: Any, maxlen: Any = None, dtype: Any = dtypes.bool_, name: str | None = None
) -> Tensor:
    """Rows that are true in their first `lengths[i]` of `maxlen` (the largest length) places."""
    with name_scope(name, "SequenceMask", [lengths, maxlen]):
        lengths = convert_to_tensor(lengths)
        if maxlen is None:
            axes = gen_ops.range(0, rank(lengths), 1)
            maxlen = gen_ops.max(lengths, axes)
            maxlen = gen_ops.maximum(constant(0, maxlen.dtype.base_dtype), maxlen)
        else:
            maxlen = convert_to_tensor(maxlen)
        if maxlen.shape.ndims not in (None, 0):
            raise ValueError(
                f"Argument `maxlen` must be scalar for sequence_mask, got shape {maxlen.shape}"
            )
        kind = maxlen.dtype.base_dtype
        row = gen_ops.range(constant(0, kind), maxlen, constant(1, kind))
        column = gen_ops.cast(expand_dims(lengths, -1), kind)
        mask = gen_ops.less(row, column)
        dtype = None if dtype is None else dtypes.as_dtype(dtype)
        if dtype is None or dtype.is_compatible_with(mask.dtype):
            return mask
        return gen_ops.cast(mask, dtype)


@export(v1=("roll", "manip.roll"), v2="roll")
def roll(input: Any, shift: Any, axis: Any, name: str | None = None) -> Tensor:
    """Moves the elements by `shift` along `axis`; what leaves at one end comes in at the other.

    Both may be lists, for several dimensions.
    """
    return gen_ops.roll(input, shift, axis, name=name)
