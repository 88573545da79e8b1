"""Contexts of branches and loops made of primitives, as TensorFlow's MetaGraphs have them.

Here branches and loops are operations with bodies, and nobody needs contexts. Those of an imported
graph are kept as the messages they are, so that a graph that is exported again has them.
"""

from typing import Any, Callable

from millrace import protos
from millrace.graph.keys import GraphKeys, prepend_name_scope, strip_name_scope
from millrace.graph.proto_functions import register_proto_function

_NAMES = ("context_name", "pred_name", "pivot_name", "pivot_for_pred_name", "pivot_for_body_name",
          "maximum_iterations_name")  # fmt: skip
_LISTS_OF_NAMES = ("loop_exit_names", "loop_enter_names")


def _renamed(context: Any, rename: Callable[[str], str]) -> Any:
    """A copy of a context in which every name is another."""
    out = type(context)()
    out.CopyFrom(context)
    fields = {field.name for field in context.DESCRIPTOR.fields}
    for field in fields.intersection(_NAMES):
        if getattr(context, field):
            setattr(out, field, rename(getattr(context, field)))
    for field in fields.intersection(_LISTS_OF_NAMES):
        del getattr(out, field)[:]
        getattr(out, field).extend([rename(name) for name in getattr(context, field)])
    if context.HasField("values_def"):
        values = context.values_def
        out.values_def.Clear()
        out.values_def.values.extend([rename(name) for name in values.values])
        for key, value in values.external_values.items():
            out.values_def.external_values[rename(key)] = rename(value)
    del out.nested_contexts[:]
    for nested in context.nested_contexts:
        kind = nested.WhichOneof("ctxt")
        made = out.nested_contexts.add()
        if kind is not None:
            getattr(made, kind).CopyFrom(_renamed(getattr(nested, kind), rename))
    return out


def _to_proto(context: Any, export_scope: str | None = None) -> Any:
    if export_scope and not context.context_name.startswith(export_scope):
        return None
    return _renamed(context, lambda name: strip_name_scope(name, export_scope))


def _from_proto(context: Any, import_scope: str | None = None) -> Any:
    return _renamed(context, lambda name: prepend_name_scope(name, import_scope))


register_proto_function(GraphKeys.COND_CONTEXT, protos.CondContextDef, _to_proto, _from_proto)
register_proto_function(GraphKeys.WHILE_CONTEXT, protos.WhileContextDef, _to_proto, _from_proto)
