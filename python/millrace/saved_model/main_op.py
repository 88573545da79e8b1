"""Operations that make a loaded model ready."""

from millrace.core.export import export
from millrace.graph.default_graph import control_dependencies, get_default_graph
from millrace.graph.keys import GraphKeys
from millrace.graph.operation import Operation
from millrace.ops.ordering import group
from millrace.state.variable_lists import (
    global_variables_initializer,
    local_variables_initializer,
)


def _tables() -> list[Operation]:
    return get_default_graph().get_collection(GraphKeys.TABLE_INITIALIZERS)


@export(v1="saved_model.main_op.main_op")
def main_op() -> Operation:
    """Initialises all variables and tables."""
    return group(global_variables_initializer(), local_variables_initializer(), *_tables())


@export(v1=("saved_model.main_op_with_restore", "saved_model.main_op.main_op_with_restore"))
def main_op_with_restore(restore_op_name: str) -> Operation:
    """As `main_op`, and restores variables after that."""
    with control_dependencies([main_op()]):
        restore = get_default_graph().get_operation_by_name(restore_op_name)
        return group(restore)
