"""Strings of ragged tensors joined."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.ops import array, sorting, strings
from millrace.ops import gather as dense
from millrace.ops.ragged.broadcast import broadcast_together, rank_of, same_rows
from millrace.ops.ragged.reduce import reduced
from millrace.ops.ragged.tensor import RaggedTensor, as_ragged_or_tensor, is_ragged, places_in_rows


def string_join(inputs: Any, separator: str = "", name: Any = None) -> Any:
    """The ragged form of strings.join: the parts are broadcast together."""
    parts = [
        as_ragged_or_tensor(x) if is_ragged(x) else convert_to_tensor(x, dtype=dtypes.string)
        for x in inputs
    ]
    first = next(p for p in parts if isinstance(p, RaggedTensor))
    if all(same_rows(p, first) if isinstance(p, RaggedTensor) else rank_of(p) == 0 for p in parts):
        flats = [p.flat_values if isinstance(p, RaggedTensor) else p for p in parts]
        return first.with_flat_values(strings.string_join(flats, separator, name))
    flats, wrap = broadcast_together(parts)
    return wrap(strings.string_join(flats, separator, name))


def reduce_join_v2(
    inputs: Any, axis: Any = None, keepdims: bool = False, separator: str = "", name: Any = None
) -> Any:
    """The ragged form of strings.reduce_join."""
    del name

    def combine(data: Tensor, ids: Tensor, count: Tensor) -> Tensor:
        order = sorting.argsort(ids, stable=True)
        rows = RaggedTensor.from_value_rowids(
            dense.gather(data, order), dense.gather(ids, order), nrows=count, validate=False
        )
        begins = gen_ops.equal(places_in_rows(rows), 0)
        for _ in range(rank_of(data) - 1):
            begins = array.expand_dims(begins, -1)
        pieces = dense.where_v2(begins, rows.values, strings.string_join([separator, rows.values]))
        return strings.reduce_join(rows.with_values(pieces).to_tensor(), 1)

    def whole(data: Tensor, axes: Any) -> Tensor:
        return strings.reduce_join(data, axes, separator=separator)

    return reduced(combine, whole, inputs, axis, keepdims)


def reduce_join(
    inputs: Any, axis: Any = None, keep_dims: Any = None, separator: str = "", name: Any = None,
    reduction_indices: Any = None, keepdims: Any = None,
) -> Any:  # fmt: skip
    """The same for TensorFlow 1's reduce_join."""
    axis = reduction_indices if axis is None else axis
    return reduce_join_v2(inputs, axis, bool(keepdims) or bool(keep_dims), separator, name)
