"""Variables: tensors that keep their values between runs.

Who makes a variable takes the class from here, where it knows its kinds.
"""

from typing import Any

from millrace import _core, protos
from millrace.core.export import export
from millrace.graph.default_graph import get_default_graph
from millrace.graph.graph import root_graph
from millrace.graph.keys import GraphKeys
from millrace.graph.proto_functions import register_proto_function
from millrace.state.reference_variable import RefVariable
from millrace.state.resource_variable import ResourceVariable
from millrace.state.variable import Variable


def outside_of_sessions() -> bool:
    """Whether new variables belong to no graph for sessions, and have a value from the beginning:
    operations run at once, or are traced to."""
    return _core.executing_eagerly() or root_graph(get_default_graph())._captures_values


def _create(**arguments: Any) -> "Variable":
    """The innermost creator: chooses the kind of variable."""
    if outside_of_sessions():
        from millrace.state import eager_variable  # late: graphs do without

        for name in ("collections", "expected_shape", "use_resource"):
            arguments.pop(name, None)
        return eager_variable.Variable(**arguments)  # type: ignore[no-any-return]
    use_resource = arguments.pop("use_resource", None)
    if use_resource is None:
        store = root_graph(get_default_graph())._variable_store
        use_resource = None if store is None else store.scope.use_resource
        if use_resource is None:
            use_resource = resource_variables_enabled()
    variable_def = arguments.get("variable_def")
    if variable_def is not None:
        use_resource = variable_def.is_resource
    return (ResourceVariable if use_resource else RefVariable)(**arguments)


Variable._create = staticmethod(_create)
export(v1="Variable")(Variable)


_use_resource_by_default = False


@export(v1="enable_resource_variables")
def enable_resource_variables() -> None:
    """Makes new variables resources unless `use_resource` or the scope says otherwise."""
    global _use_resource_by_default
    _use_resource_by_default = True


@export(v1="disable_resource_variables")
def disable_resource_variables() -> None:
    """Makes new variables references unless `use_resource` or the scope says otherwise."""
    global _use_resource_by_default
    _use_resource_by_default = False


@export(v1="resource_variables_enabled")
def resource_variables_enabled() -> bool:
    """Whether new variables are resources by default."""
    return _use_resource_by_default


def _to_proto(variable: Any, export_scope: str | None = None) -> Any:
    return variable.to_proto(export_scope)


for _collection in (*GraphKeys._VARIABLE_COLLECTIONS, GraphKeys.GLOBAL_STEP):
    register_proto_function(_collection, protos.VariableDef, _to_proto, Variable.from_proto)
