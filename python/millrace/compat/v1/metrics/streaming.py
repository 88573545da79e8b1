"""What metrics are made of: (value, update_op), with their counts in local variables."""

from typing import Any

from millrace.core import dtypes
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import get_default_graph
from millrace.graph.keys import GraphKeys
from millrace.ops import array, math
from millrace.state.variables import Variable


def metric_variable(
    shape: Any, dtype: Any, validate_shape: bool = True, name: str | None = None
) -> Variable:
    """A local variable of zeros, in the collection of metrics too."""
    return Variable(
        lambda: array.zeros(shape, dtype), trainable=False, validate_shape=validate_shape,
        collections=[GraphKeys.LOCAL_VARIABLES, GraphKeys.METRIC_VARIABLES], name=name,
    )  # fmt: skip


def collected(value: Any, update: Any, metrics: Any, updates: Any) -> tuple[Any, Any]:
    graph = get_default_graph()
    if metrics:
        graph.add_to_collections(metrics, value)
    if updates:
        graph.add_to_collections(updates, update)
    return value, update


def as_float(x: Any) -> Tensor:
    return math.cast(convert_to_tensor(x), dtypes.float32)
