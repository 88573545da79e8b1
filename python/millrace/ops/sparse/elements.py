"""Functions of the elements that sparse tensors give."""

from typing import Any, Callable

from millrace import _core, gen_ops
from millrace.core import nest
from millrace.core.export import export
from millrace.graph.default_graph import control_dependencies
from millrace.graph.sparse import SparseTensor
from millrace.ops import check


@export(v1="sparse.map_values", v2="sparse.map_values")
def map_values(op: Callable[..., Any], *args: Any, **kwargs: Any) -> SparseTensor:
    """op(*args, **kwargs) with the sparse tensors among the arguments, in lists too, replaced by
    the elements that they give: the sparse tensor of these, at the same places.

    All of them must give the same elements. ValueError where there is none.
    """
    found: list[SparseTensor] = []

    def elements(value: Any) -> Any:
        if not isinstance(value, SparseTensor):
            return value
        found.append(value)
        return value.values

    given, named = nest.map_structure(elements, (args, kwargs))
    if not found:
        raise ValueError("No SparseTensor in argument list of map_values")
    first = found[0]
    indices, shape = first.indices, first.dense_shape
    checks = []
    for other in found[1:]:
        checks.append(check.assert_equal(shape, other.dense_shape))
        checks.append(check.assert_equal(indices, other.indices))
    if checks and not _core.executing_eagerly():
        with control_dependencies(checks):
            indices = gen_ops.identity(indices)
    return SparseTensor(indices, op(*given, **named), shape)
