"""Picking elements: by index, by condition, in another order."""

from typing import Any

import numpy as np

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.arguments import reordered
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import constant, convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.ops.array import concat, one_of, reshape, shape, zero_of


@export(v1=("gather", "manip.gather"))
def gather(
    params: Any, indices: Any, validate_indices: Any = None, name: str | None = None,
    axis: Any = None, batch_dims: int = 0,
) -> Tensor:  # fmt: skip
    """The slices of `params` at `indices` along `axis`.

    `batch_dims`: how many first dimensions of the two go together. Indices out of range are an
    error when the graph runs.
    """
    del validate_indices
    if axis is None:
        axis = batch_dims
    if isinstance(axis, (int, np.integer)) and axis == 0 and batch_dims == 0:
        read = getattr(params, "sparse_read", None)
        if read is not None:
            return read(indices, name=name)
        return gen_ops.gather(params, indices, name=name)
    return gen_ops.gather_v2(params, indices, axis, batch_dims=batch_dims, name=name)


gather_v2 = export(v2="gather")(
    reordered(gather, "params indices validate_indices axis batch_dims name")
)


@export(v1=("gather_nd", "manip.gather_nd"))
def gather_nd(params: Any, indices: Any, name: str | None = None, batch_dims: int = 0) -> Tensor:
    """The slices of `params` that the rows of `indices` point at.

    `batch_dims`: how many first dimensions of the two go together.
    """
    if batch_dims == 0:
        return gen_ops.gather_nd(params, indices, name=name)
    return _batch_gather_nd(params, indices, int(batch_dims), name)


gather_nd_v2 = export(v2="gather_nd")(reordered(gather_nd, "params indices batch_dims name"))


def _batch_gather_nd(params: Any, indices: Any, batch_dims: int, name: str | None) -> Tensor:
    with name_scope(name, "BatchGatherND", [params, indices]):
        params = convert_to_tensor(params, name="params")
        indices = convert_to_tensor(indices, name="indices")
        ndims = indices.shape.ndims
        if ndims is None:
            raise ValueError("batch_gather_nd needs indices of a known number of dimensions")
        if batch_dims >= ndims:
            raise ValueError(
                f"Argument `batch_dims` = {batch_dims} must be less than rank(`indices`) = {ndims}"
            )
        params_shape, indices_shape = shape(params), shape(indices)
        batch_shape = params_shape[:batch_dims]
        rows = [indices]
        # The place in the batch becomes the first columns of the indices.
        for i in range(batch_dims):
            ids = gen_ops.cast(gen_ops.range(0, batch_shape[i], 1), indices.dtype.base_dtype)
            ids = reshape(ids, [1] * i + [-1] + [1] * (ndims - 1 - i))
            like = concat([indices_shape[:-1], [1]], 0)
            rows.insert(i, gen_ops.broadcast_to(ids, like))
        return gen_ops.gather_nd(params, concat(rows, -1))


@export(v1="batch_gather")
def batch_gather(params: Any, indices: Any, name: str | None = None) -> Tensor:
    """Gathers along the last dimension of `indices`; the first ones go together."""
    with name_scope(name, "BatchGather", [params, indices]):
        indices = convert_to_tensor(indices, name="indices")
        params = convert_to_tensor(params, name="params")
        ndims = indices.shape.ndims
        if ndims is None:
            raise ValueError("batch_gather does not allow indices with unknown shape.")
        return gather(params, indices, axis=ndims - 1, batch_dims=ndims - 1)


unravel_index = export(v1="unravel_index", v2="unravel_index")(gen_ops.unravel_index)


@export(v1="one_hot", v2="one_hot")
def one_hot(
    indices: Any, depth: Any, on_value: Any = None, off_value: Any = None, axis: int | None = None,
    dtype: Any = None, name: str | None = None,
) -> Tensor:  # fmt: skip
    """Vectors of `depth` that are `on_value` (1) at the index and `off_value` (0) elsewhere.

    The new dimension stands at `axis`, the last by default. `dtype`: float32 unless a value says
    otherwise. TypeError when the types of the values and `dtype` differ.
    """
    with name_scope(name, "one_hot", [indices, depth, on_value, off_value]) as scope:
        hint = None if dtype is None else dtypes.as_dtype(dtype)
        given = {}
        for key, value in (("on_value", on_value), ("off_value", off_value)):
            if value is not None:
                given[key] = convert_to_tensor(value, name=key, preferred_dtype=hint)
                kind = given[key].dtype.base_dtype
                if hint is not None and kind is not hint:
                    raise TypeError(
                        f"dtype {kind.name} of {key} does not match dtype parameter {hint.name}"
                    )
        if hint is None:
            hint = next((t.dtype.base_dtype for t in given.values()), dtypes.float32)
        on = given.get("on_value")
        off = given.get("off_value")
        if on is None:
            on = constant(1 if hint is not dtypes.bool_ else True, hint, name="Const")
        if off is None:
            off = constant(zero_of(hint), hint, name="Const")
        if on.dtype.base_dtype is not off.dtype.base_dtype:
            raise TypeError(
                f"dtype {on.dtype.base_dtype.name} of on_value does not match dtype "
                f"{off.dtype.base_dtype.name} of off_value"
            )
        return gen_ops.one_hot(indices, depth, on, off, -1 if axis is None else axis, name=scope)


@export(v1="where")
def where(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Tensor:
    """The elements of `x` where the condition holds and of `y` elsewhere.

    The condition has the shape of x, or is a scalar, or a vector that chooses rows. Without x and
    y: the places of the true elements, one per row.
    """
    if x is None and y is None:
        with name_scope(name, "Where", [condition]) as scope:
            condition = convert_to_tensor(condition, preferred_dtype=dtypes.bool_, name="condition")
            return gen_ops.where(condition, name=scope)
    if x is None or y is None:
        raise ValueError("x and y must both be non-None or both be None.")
    return gen_ops.select(condition, x, y, name=name)


@export(v1="where_v2", v2="where")
def where_v2(condition: Any, x: Any = None, y: Any = None, name: str | None = None) -> Tensor:
    """As `where`, with the condition, x and y broadcast together."""
    if x is None and y is None:
        return where(condition, name=name)
    if x is None or y is None:
        raise ValueError("x and y must both be non-None or both be None.")
    return gen_ops.select_v2(condition, x, y, name=name)


@export(v1=("reverse", "reverse_v2", "manip.reverse"), v2="reverse")
def reverse(tensor: Any, axis: Any, name: str | None = None) -> Tensor:
    """Reverses the order of the elements along the dimensions `axis`."""
    return gen_ops.reverse_v2(tensor, axis, name=name)


@export(v1="reverse_sequence", v2="reverse_sequence")
def reverse_sequence(
    input: Any, seq_lengths: Any, seq_axis: int | None = None, batch_axis: int | None = None,
    name: str | None = None, seq_dim: int | None = None, batch_dim: int | None = None,
) -> Tensor:  # fmt: skip
    """Reverses the first `seq_lengths[i]` elements along `seq_axis` in part i of `batch_axis`."""
    seq_axis = one_of("seq_axis", seq_axis, "seq_dim", seq_dim)
    batch_axis = one_of("batch_axis", batch_axis, "batch_dim", batch_dim)
    if seq_axis is None:
        raise TypeError("reverse_sequence() missing the argument 'seq_axis'")
    return gen_ops.reverse_sequence(input, seq_lengths, seq_axis, batch_axis or 0, name=name)
