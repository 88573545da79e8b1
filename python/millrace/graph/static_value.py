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

    With `partial`, a vector may have None for the elements that are not known.
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
        return _folded_value(tensor)
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


def _folded_value(tensor: Tensor) -> Any:
    """The value of a tensor that is computed from tensors whose values are known, or None."""
    op = tensor.op
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


_FOLDS = {
    "Cast": lambda t, given: given[0].astype(t.dtype.base_dtype.as_numpy_dtype),
    "Concat": lambda t, given: np.concatenate(given[1:], int(given[0])),
    "ConcatV2": lambda t, given: np.concatenate(given[:-1], int(given[-1])),
    "Equal": lambda t, given: np.equal(*given),
    "Fill": lambda t, given: np.full(given[0], given[1], given[1].dtype),
    "NotEqual": lambda t, given: np.not_equal(*given),
    "Pack": lambda t, given: np.stack(given, t.op.get_attr("axis")),
}
