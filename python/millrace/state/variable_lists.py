"""The variables of a graph, by what they are for, and what initialises them."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import constant, internal_convert
from millrace.graph.default_graph import get_default_graph, name_scope
from millrace.graph.keys import GraphKeys
from millrace.graph.operation import Operation
from millrace.ops.ordering import group
from millrace.state.initial_value import VARIABLE_OPS
from millrace.state.partitioned_variable import PartitionedVariable
from millrace.state.variable import Variable


@export(v1="global_variables")
def global_variables(scope: str | None = None) -> list[Any]:
    """The variables that are shared by all of a program; those whose names match `scope`."""
    return get_default_graph().get_collection(GraphKeys.GLOBAL_VARIABLES, scope)


@export(v1="all_variables")
def all_variables() -> list[Any]:
    """An older name of `global_variables`."""
    return global_variables()


@export(v1="local_variables")
def local_variables(scope: str | None = None) -> list[Any]:
    """The variables of this process alone, such as counters of epochs."""
    return get_default_graph().get_collection(GraphKeys.LOCAL_VARIABLES, scope)


@export(v1="model_variables")
def model_variables(scope: str | None = None) -> list[Any]:
    """The variables that a model needs to make predictions."""
    return get_default_graph().get_collection(GraphKeys.MODEL_VARIABLES, scope)


@export(v1="trainable_variables")
def trainable_variables(scope: str | None = None) -> list[Any]:
    """The variables that optimizers change by default."""
    return get_default_graph().get_collection(GraphKeys.TRAINABLE_VARIABLES, scope)


@export(v1="moving_average_variables")
def moving_average_variables(scope: str | None = None) -> list[Any]:
    """The variables that moving averages are kept of."""
    return get_default_graph().get_collection(GraphKeys.MOVING_AVERAGE_VARIABLES, scope)


def _all_saveable_objects(scope: str | None = None) -> list[Any]:
    graph = get_default_graph()
    return graph.get_collection(GraphKeys.GLOBAL_VARIABLES, scope) + graph.get_collection(
        GraphKeys.SAVEABLE_OBJECTS, scope
    )


def _flat(var_list: Any) -> list[Variable]:
    out: list[Variable] = []
    for v in var_list:
        if isinstance(v, PartitionedVariable):
            out += v._get_variable_list()
        else:
            out.append(v)
    return out


@export(v1=("variables_initializer", "initializers.variables"))
def variables_initializer(var_list: Any, name: str = "init") -> Operation:
    """An operation that runs the initializers of the variables, all at once."""
    return group(*[v.initializer for v in _flat(var_list or [])], name=name)


@export(v1="initialize_variables")
def initialize_variables(var_list: Any, name: str = "init") -> Operation:
    """An older name of `variables_initializer`."""
    return variables_initializer(var_list, name)


@export(v1=("global_variables_initializer", "initializers.global_variables"))
def global_variables_initializer() -> Operation:
    """An operation that initializes the global variables. Most programs run it first."""
    return variables_initializer(global_variables())


@export(v1="initialize_all_variables")
def initialize_all_variables() -> Operation:
    """An older name of `global_variables_initializer`."""
    return global_variables_initializer()


@export(v1=("local_variables_initializer", "initializers.local_variables"))
def local_variables_initializer() -> Operation:
    """An operation that initializes the local variables."""
    return variables_initializer(local_variables())


@export(v1="initialize_local_variables")
def initialize_local_variables() -> Operation:
    """An older name of `local_variables_initializer`."""
    return local_variables_initializer()


@export(v1=("tables_initializer", "initializers.tables_initializer", "initialize_all_tables"))
def tables_initializer(name: str = "init_all_tables") -> Operation:
    """An operation that initializes all tables of the graph."""
    ops = get_default_graph().get_collection(GraphKeys.TABLE_INITIALIZERS)
    return group(*ops, name=name) if ops else gen_ops.no_op(name=name)


def is_initialized(variable: Any, name: str | None = None) -> Tensor:
    """Whether a variable, or what a reference refers to, has a value."""
    if isinstance(variable, Variable):
        return variable._has_value(name)
    ref = internal_convert(variable, as_ref=True)
    with ref.graph.colocate_with(ref.op):
        return gen_ops.is_variable_initialized(ref, name=name)


@export(v1="is_variable_initialized")
def is_variable_initialized(variable: Any) -> Tensor:
    """Whether a variable has a value, as a tensor."""
    return is_initialized(variable)


@export(v1="assert_variables_initialized")
def assert_variables_initialized(var_list: Any = None) -> Any:
    """An operation that fails with FailedPreconditionError where a variable has no value.

    `var_list`: the variables to look at; all global and local ones by default. None when there are
    none.
    """
    variables = _chosen(var_list)
    if not variables:
        return None
    ranks = []
    for v in variables:
        with v.graph.colocate_with(v.op):
            ranks.append(gen_ops.rank(v.value()))
    return ranks[0] if len(ranks) == 1 else gen_ops.pack(ranks)


def _chosen(var_list: Any) -> list[Any]:
    if var_list is None:
        var_list = global_variables() + local_variables()
        if not var_list:
            wanted = VARIABLE_OPS
            var_list = [
                op.outputs[0] for op in get_default_graph().get_operations() if op.type in wanted
            ]
    return _flat(var_list)


@export(v1="report_uninitialized_variables")
def report_uninitialized_variables(
    var_list: Any = None, name: str = "report_uninitialized_variables"
) -> Tensor:
    """The names of the variables that have no value, as a vector of strings.

    `var_list`: the variables to look at; all global and local ones by default.
    """
    variables = _chosen(var_list)
    with name_scope(name):
        if not variables:
            return constant([], dtype=dtypes.string, shape=[0])
        missing = gen_ops.logical_not(gen_ops.pack([is_initialized(v) for v in variables]))
        names = constant([v.op.name for v in variables], dtype=dtypes.string)
        where = gen_ops.squeeze(gen_ops.where(missing), squeeze_dims=[1])
        return gen_ops.gather(names, where)
