"""Order inside functions: what changes state runs in the order of the program."""

from typing import Any

from millrace import _core, gen_ops
from millrace.core import dtypes
from millrace.graph.default_graph import control_dependencies

# Ops that only look at what a handle names: they wait for changes, not for each other.
_READS = frozenset(
    {"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VarIsInitializedOp", "VariableShape"}
)
# Ops that run functions: what these do beside what the handles name is not seen here.
_CALLS = frozenset({"StatefulPartitionedCall", "If", "Case", "While"})
_known: dict[str, tuple[bool, bool]] = {}


def has_effect(op_type: str) -> bool:
    """Whether an op has effects, or may change what its inputs name."""
    known = _known.get(op_type)
    if known is None:
        described = _core.describe_op(op_type) if op_type in _names() else {"stateful": True}
        draws = any(attr["name"] == "seed" for attr in described.get("attrs", ()))
        known = _known[op_type] = (described["stateful"], draws)
    return known[0] and not known[1]


def _names() -> Any:
    if not _all_names:
        _all_names.update(_core.op_names())
    return _all_names


_all_names: set[str] = set()


def in_order(graph: Any, results: list[Any]) -> list[Any]:
    """Makes operations of a finished body that change the same state wait for each other, and the
    results for all of them. The bindings call it."""
    changed: dict[Any, Any] = {}  # by what is changed: the last operation that did
    read: dict[Any, list[Any]] = {}
    for op in graph.get_operations():
        if not has_effect(op.type):
            continue
        handles = [(t.op.name, t.value_index) for t in op.inputs if t.dtype == dtypes.resource]
        only_reads = op.type in _READS
        others = [] if handles and op.type not in _CALLS else ["effects"]
        for key in [*dict.fromkeys(handles), *others]:
            before = [changed[key]] if key in changed else []
            if not only_reads:
                before += read.pop(key, [])
                changed[key] = op
            else:
                read.setdefault(key, []).append(op)
            inputs = {t.op for t in op.inputs}
            op._add_control_inputs([b for b in before if b not in inputs and b is not op])
    effects = list(dict.fromkeys(changed.values()))
    if not effects:
        return results
    with control_dependencies(effects):
        return [gen_ops.identity(result) for result in results]
