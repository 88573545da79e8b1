"""Ranges, and what runs along one dimension: positions of extremes, running sums."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.arguments import reordered
from millrace.core.export import export
from millrace.core.tensor import Tensor, label_of
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.ops.math import cast

_RANGE_TYPES = (dtypes.int32, dtypes.int64, dtypes.float32, dtypes.float64)


@export(v1="range", v2="range")
def range(
    start: Any, limit: Any = None, delta: Any = 1, dtype: Any = None, name: str | None = "range"
) -> Tensor:
    """start, start + delta, ... up to but without `limit`. `range(n)` begins at 0.

    `dtype`: the widest type of the arguments by default.
    """
    if limit is None:
        start, limit = 0, start
    with name_scope(name, "Range", [start, limit, delta]) as scope:
        names = ("start", "limit", "delta")
        given = (start, limit, delta)
        if dtype is None and all(type(v) in (int, float) for v in given):
            # Constants of one type, so that the length is known.
            dtype = dtypes.float32 if any(type(v) is float for v in given) else None
        parts = [
            value if isinstance(value, Tensor) else convert_to_tensor(value, dtype, name=part)
            for part, value in zip(names, given, strict=True)
        ]
        if dtype is None:
            for part in parts:
                if part.dtype.base_dtype not in _RANGE_TYPES:
                    raise TypeError(
                        f"range takes {', '.join(t.name for t in _RANGE_TYPES)}, got "
                        f"{part.dtype.base_dtype.name} ('{label_of(part)}')"
                    )
            dtype = max((p.dtype.base_dtype for p in parts), key=_RANGE_TYPES.index)
        return gen_ops.range(*[cast(p, dtype) for p in parts], name=scope)


@export(v1=("lin_space", "linspace"), v2="linspace")
def linspace(start: Any, stop: Any, num: Any, name: str | None = None) -> Tensor:
    """`num` values from start to stop at equal distances, both ends included."""
    return gen_ops.lin_space(start, stop, num, name=name)


def either(axis: Any, other: Any, other_name: str, axis_name: str = "axis") -> Any:
    """The one that is given of an argument and its older name. ValueError for both."""
    if other is None:
        return axis
    if axis is not None:
        raise ValueError(f"Cannot specify both '{other_name}' and '{axis_name}'.")
    return other


@export(v1=("argmax", "math.argmax"))
def argmax(
    input: Any, axis: Any = None, name: str | None = None, dimension: Any = None,
    output_type: Any = dtypes.int64,
) -> Tensor:  # fmt: skip
    """The index of the greatest element along `axis` (the first by default)."""
    axis = either(axis, dimension, "dimension")
    return gen_ops.arg_max(input, 0 if axis is None else axis, output_type=output_type, name=name)


argmax_v2 = export(v2=("argmax", "math.argmax"))(reordered(argmax, "input axis output_type name"))


@export(v1=("argmin", "math.argmin"))
def argmin(
    input: Any, axis: Any = None, name: str | None = None, dimension: Any = None,
    output_type: Any = dtypes.int64,
) -> Tensor:  # fmt: skip
    """The index of the least element along `axis` (the first by default)."""
    axis = either(axis, dimension, "dimension")
    return gen_ops.arg_min(input, 0 if axis is None else axis, output_type=output_type, name=name)


argmin_v2 = export(v2=("argmin", "math.argmin"))(reordered(argmin, "input axis output_type name"))


@export(v1=("cumsum", "math.cumsum"), v2=("cumsum", "math.cumsum"))
def cumsum(
    x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Tensor:
    """Running sums along `axis`; `exclusive`: without the element, `reverse`: from the end."""
    with name_scope(name, "Cumsum", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        return gen_ops.cumsum(x, axis, exclusive=exclusive, reverse=reverse, name=scope)


@export(v1=("cumprod", "math.cumprod"), v2="math.cumprod")
def cumprod(
    x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Tensor:
    """Running products along `axis`. `exclusive`: without the element itself."""
    with name_scope(name, "Cumprod", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        return gen_ops.cumprod(x, axis, exclusive=exclusive, reverse=reverse, name=scope)
