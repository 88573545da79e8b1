"""Operations that change variables."""

from typing import Any, Callable

import numpy as np

from millrace import _core, gen_ops
from millrace.core.export import export
from millrace.core.tensor import Tensor, label_of
from millrace.graph.convert import convert_to_tensor, internal_convert
from millrace.graph.default_graph import name_scope
from millrace.graph.sparse import IndexedSlices
from millrace.state.reference_variable import beside


def _is_reference(ref: Any) -> bool:
    """Whether a variable is changed through a reference. Plain tensors count: ops refuse them."""
    return not hasattr(ref, "_handle")


def _change(op: Callable[..., Any], ref: Any, *args: Any, **options: Any) -> Any:
    """Calls an op that changes what a reference refers to, beside it."""
    if _core.is_eager_tensor(ref):
        raise TypeError(f"expected a variable, which can be changed, got {ref!r}")
    ref = internal_convert(ref, as_ref=True)
    with beside(ref):
        return op(ref, *args, **options)


@export(v1="assign")
def assign(
    ref: Any, value: Any, validate_shape: bool | None = None, use_locking: bool | None = None,
    name: str | None = None,
) -> Any:  # fmt: skip
    """Sets a variable. Gives its tensor after that.

    `validate_shape=False` lets the value have another shape, which becomes the variable's.
    TypeError when `ref` is no variable, ValueError for a value of the wrong shape.
    """
    if not _is_reference(ref):
        return ref.assign(value, name=name)
    return _change(
        gen_ops.assign,
        ref,
        value,
        validate_shape=validate_shape,
        use_locking=use_locking,
        name=name,
    )


@export(v1="assign_add")
def assign_add(
    ref: Any, value: Any, use_locking: bool | None = None, name: str | None = None
) -> Any:
    """Adds to a variable. Gives its tensor after that."""
    if not _is_reference(ref):
        return ref.assign_add(value, name=name)
    return _change(gen_ops.assign_add, ref, value, use_locking=use_locking, name=name)


@export(v1="assign_sub")
def assign_sub(
    ref: Any, value: Any, use_locking: bool | None = None, name: str | None = None
) -> Any:
    """Subtracts from a variable. Gives its tensor after that."""
    if not _is_reference(ref):
        return ref.assign_sub(value, name=name)
    return _change(gen_ops.assign_sub, ref, value, use_locking=use_locking, name=name)


@export(v1="count_up_to")
def count_up_to(ref: Any, limit: int, name: str | None = None) -> Tensor:
    """Adds one to an integer variable and gives the value from before.

    OutOfRangeError when the value is the limit already.
    """
    if not _is_reference(ref):
        return gen_ops.resource_count_up_to(ref.handle, limit, T=ref.dtype, name=name)
    return _change(gen_ops.count_up_to, ref, limit, name=name)


def _scatter(kind: str) -> Callable[..., Any]:
    def scatter(ref: Any, indices: Any, updates: Any, use_locking: Any, name: Any) -> Any:
        if _is_reference(ref):
            change = getattr(gen_ops, "scatter_" + kind)
            return _change(change, ref, indices, updates, use_locking=use_locking, name=name)
        change = getattr(ref, "scatter_" + kind)
        updates = convert_to_tensor(updates, dtype=ref.dtype)
        if kind.startswith("nd_"):
            return change(indices, updates, name=name)
        return change(IndexedSlices(updates, convert_to_tensor(indices)), name=name)

    return scatter


_update, _add, _sub = _scatter("update"), _scatter("add"), _scatter("sub")
_mul, _div, _min, _max = _scatter("mul"), _scatter("div"), _scatter("min"), _scatter("max")
_nd_update, _nd_add, _nd_sub = _scatter("nd_update"), _scatter("nd_add"), _scatter("nd_sub")


@export(v1="scatter_update")
def scatter_update(
    ref: Any, indices: Any, updates: Any, use_locking: bool = True, name: str | None = None
) -> Any:
    """Sets slices of a variable: `ref[indices[i]] = updates[i]`. Gives its tensor after that.

    `updates` has the shape `indices.shape + ref.shape[1:]`, or none.
    """
    return _update(ref, indices, updates, use_locking, name)


@export(v1="scatter_add")
def scatter_add(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Any:
    """Adds to slices of a variable; slices named several times are added to as often."""
    return _add(ref, indices, updates, use_locking, name)


@export(v1="scatter_sub")
def scatter_sub(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Any:
    """Subtracts from slices of a variable, as `scatter_add` adds."""
    return _sub(ref, indices, updates, use_locking, name)


@export(v1="scatter_mul")
def scatter_mul(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Any:
    """Multiplies slices of a variable, as `scatter_add` adds."""
    return _mul(ref, indices, updates, use_locking, name)


@export(v1="scatter_div")
def scatter_div(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Any:
    """Divides slices of a variable, as `scatter_add` adds."""
    return _div(ref, indices, updates, use_locking, name)


@export(v1="scatter_min")
def scatter_min(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Any:
    """Keeps the smaller of the slices of a variable and the updates."""
    return _min(ref, indices, updates, use_locking, name)


@export(v1="scatter_max")
def scatter_max(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Any:
    """Keeps the larger of the slices of a variable and the updates."""
    return _max(ref, indices, updates, use_locking, name)


@export(v1="scatter_nd_update")
def scatter_nd_update(
    ref: Any, indices: Any, updates: Any, use_locking: bool = True, name: str | None = None
) -> Any:
    """Sets parts of a variable; the last dimension of `indices` says where each part is."""
    return _nd_update(ref, indices, updates, use_locking, name)


@export(v1="scatter_nd_add")
def scatter_nd_add(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Any:
    """Adds to parts of a variable; the last dimension of `indices` says where each part is."""
    return _nd_add(ref, indices, updates, use_locking, name)


@export(v1="scatter_nd_sub")
def scatter_nd_sub(
    ref: Any, indices: Any, updates: Any, use_locking: bool = False, name: str | None = None
) -> Any:
    """Subtracts from parts of a variable; the last dimension of `indices` says where each is."""
    return _nd_sub(ref, indices, updates, use_locking, name)


@export(v1="batch_scatter_update")
def batch_scatter_update(
    ref: Any, indices: Any, updates: Any, use_locking: bool = True, name: str | None = None
) -> Any:
    """Sets slices of each part of a variable: `ref[b, indices[b, i]] = updates[b, i]`, for indices
    of any number of leading dimensions b."""
    with name_scope(name, "batch_scatter_update"):
        indices = convert_to_tensor(indices, name="indices")
        dims = indices.shape.as_list()
        if None in dims[:-1]:
            raise ValueError(
                f"batch_scatter_update: the leading dimensions of '{label_of(indices)}' must be "
                "known, "
                f"got shape {indices.shape} ({indices.dtype.name})"
            )
        dtype = indices.dtype.base_dtype
        last = gen_ops.expand_dims(indices, -1)
        parts = []
        for axis, size in enumerate(dims[:-1]):
            grid = np.arange(size, dtype=dtype.as_numpy_dtype).reshape(
                [size if i == axis else 1 for i in range(len(dims) + 1)]
            )
            like = gen_ops.zeros_like(last)
            parts.append(gen_ops.add(like, convert_to_tensor(grid)))
        final = gen_ops.concat_v2([*parts, last], len(dims)) if parts else last
        return scatter_nd_update(ref, final, updates, use_locking=use_locking)
