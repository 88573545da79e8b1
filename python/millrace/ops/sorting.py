"""Sorting."""

from typing import Any

from millrace import gen_ops
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import constant, convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.static_value import constant_value
from millrace.ops import array


@export(v1=("sort", "contrib.framework.sort"), v2="sort")
def sort(
    values: Any, axis: int = -1, direction: str = "ASCENDING", name: str | None = None
) -> Tensor:
    """The elements in order along `axis`. `direction`: "ASCENDING" or "DESCENDING"."""
    with name_scope(name, "sort", [values]):
        return _along_axis(values, axis, direction, 0)


@export(v1=("argsort", "contrib.framework.argsort"), v2="argsort")
def argsort(
    values: Any, axis: int = -1, direction: str = "ASCENDING", stable: bool = False,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """The places that the elements have, in the order of the elements, along `axis`.

    Equal elements stay in their order, whether or not `stable` asks for it.
    """
    del stable
    with name_scope(name, "argsort", [values]):
        return _along_axis(values, axis, direction, 1)


def _reversed_order(values: Tensor) -> Tensor:
    """Numbers that are larger where the values are smaller; its own inverse."""
    dtype = values.dtype.base_dtype
    if dtype.is_floating:
        return gen_ops.neg(values)
    # -1 - x is there for every x of a type with a sign, -x is not.
    from_value = int(dtype.max) if dtype.is_unsigned else -1
    return gen_ops.sub(constant(from_value, dtype), values)


def _along_axis(values: Any, axis: Any, direction: str, output: int) -> Tensor:
    if direction not in ("ASCENDING", "DESCENDING"):
        raise ValueError(
            f"Argument `direction` should be one of 'ASCENDING' or 'DESCENDING'. Received: "
            f"direction={direction!r}"
        )
    at = constant_value(axis)
    if at is None:
        raise ValueError("Argument `axis` must be known before the graph runs")
    values = convert_to_tensor(values, name="values")
    ndims = values.shape.ndims
    at = int(at)
    if at in (-1, None) or (ndims is not None and at == ndims - 1):
        return _last(values, direction, output)
    rank = array.rank(values)
    axis = at if at >= 0 else rank + at
    order = gen_ops.range(0, rank, 1)
    last = rank - 1
    # Swapping the axis with the last one undoes itself.
    swap = gen_ops.select(
        gen_ops.equal(order, axis),
        array.zeros_like(order) + last,
        gen_ops.select(gen_ops.equal(order, last), array.zeros_like(order) + axis, order),
    )
    made = gen_ops.transpose(_last(gen_ops.transpose(values, swap), direction, output), swap)
    made.set_shape(values.shape)
    return made


def _last(values: Tensor, direction: str, output: int) -> Tensor:
    ascending = direction == "ASCENDING"
    keys = _reversed_order(values) if ascending else values
    made = gen_ops.top_kv2(keys, array.shape(values)[-1])[output]
    if output == 0 and ascending:
        made = _reversed_order(made)
    made.set_shape(values.shape)
    return made
