"""What is known of a tensor before anything runs."""

from typing import Any

import numpy as np

from millrace import _core
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor
from millrace.graph.graph import Graph

# What has no elements that NumPy knows.
_OPAQUE = (dtypes.resource, dtypes.variant)


@export(v1=("get_static_value", "contrib.util.constant_value"), v2="get_static_value")
def constant_value(tensor: Any, partial: bool = False) -> Any:
    """The value of a tensor as an array, where it is known before anything runs; None elsewhere.

    With `partial`, a vector may have None for the elements that are not known, and so may what is
    packed of tensors for those.
    """
    if not isinstance(tensor, Tensor):
        if isinstance(tensor, (np.ndarray, np.generic)):
            return tensor
        if hasattr(tensor, "_as_graph_element"):
            return None
        return tensor
    if _core.is_eager_tensor(tensor):
        return None if tensor.dtype.base_dtype in _OPAQUE else np.asarray(tensor)
    graph: Graph = tensor.graph
    value = graph._constant_value(tensor._id, tensor._index)
    if value is not None:
        return np.asarray(value, dtype=object if isinstance(value, bytes) else None)
    value = graph._partial_value(tensor._id, tensor._index)
    if value is None:
        return _folded_value(tensor, partial)
    array_type = tensor.dtype.base_dtype.as_numpy_dtype
    if isinstance(value, list) and None in value:
        return np.array(value, dtype=object) if partial else None
    return np.array(value, array_type)


def constant_value_as_shape(tensor: Tensor) -> TensorShape:
    """The shape that a vector of sizes describes, as far as it is known."""
    if _core.is_eager_tensor(tensor):
        return TensorShape([None if v < 0 else int(v) for v in np.atleast_1d(np.asarray(tensor))])
    value = tensor.graph._partial_value(tensor._id, tensor._index)
    if value is None:
        static = tensor.graph._constant_value(tensor._id, tensor._index)
        if static is not None:
            value = [int(v) for v in np.atleast_1d(static)]
    if value is None:
        count = tensor.shape.with_rank(1).as_list()[0]
        return TensorShape(None if count is None else [None] * count)
    return TensorShape([None if v is None or v < 0 else v for v in value])


def _folded_value(tensor: Tensor, partial: bool) -> Any:
    """The value of a tensor that is computed from tensors whose values are known, or None."""
    op = tensor.op
    if op.type in ("Pack", "Unpack"):
        if op.get_attr("axis") != 0:
            return None
        parts = [constant_value(source, partial) for source in op.inputs]
        if op.type == "Unpack":
            return None if parts[0] is None else parts[0][tensor.value_index]
        return _packed(parts) if partial or not any(p is None for p in parts) else None
    if op.type == "Split":
        dim, value = constant_value(op.inputs[0]), constant_value(op.inputs[1], partial)
        if dim is None or value is None:
            return None
        return np.split(value, op.get_attr("num_split"), int(dim))[tensor.value_index]
    fold = _FOLDS.get(op.type)
    if fold is None:
        return None
    given = []
    for source in op.inputs:
        value = constant_value(source)
        if value is None:
            return None
        given.append(np.asarray(value))
    return fold(tensor, given)


def _packed(parts: list[Any]) -> Any:
    if not any(p is None for p in parts):
        return np.stack(parts)
    out = np.empty(len(parts), dtype=object)
    for i, part in enumerate(parts):
        out[i] = part
    return out


_FOLDS = {
    "Cast": lambda t, given: given[0].astype(t.dtype.base_dtype.as_numpy_dtype),
    "Concat": lambda t, given: np.concatenate(given[1:], int(given[0])),
    "ConcatV2": lambda t, given: np.concatenate(given[:-1], int(given[-1])),
    "Equal": lambda t, given: np.equal(*given),
    "Fill": lambda t, given: np.full(given[0], given[1], given[1].dtype),
    "NotEqual": lambda t, given: np.not_equal(*given),
}
