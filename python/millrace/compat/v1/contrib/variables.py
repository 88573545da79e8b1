"""Variables of models, and how to find them."""

import functools
import re
from typing import Any

from millrace.compat.v1.contrib.arg_scope import add_arg_scope
from millrace.core import dtypes
from millrace.core.export import export
from millrace.graph.default_graph import device as device_scope
from millrace.graph.default_graph import get_default_graph
from millrace.graph.keys import GraphKeys
from millrace.state.variable_scope import VariableScope, get_variable
from millrace.train import global_step


def variable_function(
    name: str, shape: Any = None, dtype: Any = None, initializer: Any = None,
    regularizer: Any = None, trainable: bool = True, collections: Any = None,
    caching_device: Any = None, device: Any = None, partitioner: Any = None,
    custom_getter: Any = None, use_resource: bool | None = None, **_: Any,
) -> Any:  # fmt: skip
    """`get_variable` on a device, a global variable whatever its collections are."""
    collections = list(collections or [GraphKeys.GLOBAL_VARIABLES])
    collections = list(dict.fromkeys(collections))
    getter = get_variable if custom_getter is None else _bound(custom_getter)
    with device_scope(device or ""):
        return getter(
            name, shape=shape, dtype=dtype, initializer=initializer, regularizer=regularizer,
            trainable=trainable, collections=collections, caching_device=caching_device,
            partitioner=partitioner, use_resource=use_resource,
        )  # fmt: skip


def _bound(custom_getter: Any) -> Any:
    return functools.partial(custom_getter, get_variable)


variable = export(v1=("contrib.framework.variable", "contrib.slim.variable"))(
    add_arg_scope(variable_function)
)


@export(v1=("contrib.framework.model_variable", "contrib.slim.model_variable"))
@add_arg_scope
def model_variable(
    name: str, shape: Any = None, dtype: Any = dtypes.float32, initializer: Any = None,
    regularizer: Any = None, trainable: bool = True, collections: Any = None,
    caching_device: Any = None, device: Any = None, partitioner: Any = None,
    custom_getter: Any = None, use_resource: bool | None = None, **_: Any,
) -> Any:  # fmt: skip
    """A variable of the collection MODEL_VARIABLES too."""
    collections = list(collections or [])
    collections += [GraphKeys.GLOBAL_VARIABLES, GraphKeys.MODEL_VARIABLES]
    return variable(
        name, shape=shape, dtype=dtype, initializer=initializer, regularizer=regularizer,
        trainable=trainable, collections=collections, caching_device=caching_device,
        device=device, partitioner=partitioner, custom_getter=custom_getter,
        use_resource=use_resource,
    )  # fmt: skip


@export(v1=("contrib.framework.add_model_variable", "contrib.slim.add_model_variable"))
def add_model_variable(var: Any) -> None:
    """Adds a variable to MODEL_VARIABLES, once."""
    present = get_default_graph().get_collection_ref(GraphKeys.MODEL_VARIABLES)
    if not any(var is v for v in present):
        present.append(var)


@export(v1=("contrib.framework.get_variables", "contrib.slim.get_variables"))
def get_variables(
    scope: Any = None, suffix: str | None = None,
    collection: str = GraphKeys.GLOBAL_VARIABLES,
) -> list[Any]:  # fmt: skip
    """The variables of a collection, of a scope, whose names end with a suffix."""
    if isinstance(scope, VariableScope):
        scope = scope.name
    if suffix is not None:
        suffix = suffix if ":" in suffix else suffix + ":"
        scope = (scope or "") + ".*" + suffix
    return get_default_graph().get_collection(collection, scope)


@export(v1=("contrib.framework.get_model_variables", "contrib.slim.get_model_variables"))
def get_model_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """The variables of models."""
    return get_variables(scope, suffix, GraphKeys.MODEL_VARIABLES)


@export(v1=("contrib.framework.get_local_variables", "contrib.slim.get_local_variables"))
def get_local_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """The local variables."""
    return get_variables(scope, suffix, GraphKeys.LOCAL_VARIABLES)


@export(v1=("contrib.framework.get_trainable_variables", "contrib.slim.get_trainable_variables"))
def get_trainable_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """The trainable variables."""
    return get_variables(scope, suffix, GraphKeys.TRAINABLE_VARIABLES)


@export(v1=("contrib.framework.get_variables_by_suffix", "contrib.slim.get_variables_by_suffix"))
def get_variables_by_suffix(suffix: str, scope: Any = None) -> list[Any]:
    """The variables whose names end so."""
    return get_variables(scope=scope, suffix=suffix)


@export(v1=("contrib.framework.get_variables_by_name", "contrib.slim.get_variables_by_name"))
def get_variables_by_name(given_name: str, scope: Any = None) -> list[Any]:
    """The variables whose last part of the name is this."""
    suffix = f"/{given_name}:|^{given_name}:"
    return get_variables(scope=scope, suffix=suffix)


@export(v1=("contrib.framework.get_unique_variable", "contrib.slim.get_unique_variable"))
def get_unique_variable(var_op_name: str) -> Any:
    """The variable of this name. ValueError when there is none, or several."""
    found = get_variables(scope=var_op_name)
    exact = [v for v in found if v.op.name == var_op_name] or found
    if len(exact) == 1:
        return exact[0]
    if not exact:
        raise ValueError(f"Couldn't find variable {var_op_name}")
    raise ValueError(f"Variable {var_op_name} does not uniquely identify a variable")


@export(v1=("contrib.framework.filter_variables", "contrib.slim.filter_variables"))
def filter_variables(
    var_list: Any, include_patterns: Any = None, exclude_patterns: Any = None,
    reg_search: bool = True,
) -> list[Any]:  # fmt: skip
    """The variables whose names match one of some patterns and none of others."""
    match = re.search if reg_search else re.match

    def matches(variable: Any, patterns: Any) -> bool:
        return any(match(pattern, variable.op.name) for pattern in patterns)

    kept = list(var_list)
    if include_patterns is not None:
        kept = [v for v in kept if matches(v, include_patterns)]
    if exclude_patterns is not None:
        kept = [v for v in kept if not matches(v, exclude_patterns)]
    return kept


@export(v1=("contrib.framework.get_variables_to_restore", "contrib.slim.get_variables_to_restore"))
def get_variables_to_restore(include: Any = None, exclude: Any = None) -> list[Any]:
    """The global variables of some scopes, without those of others."""
    if include is not None and not isinstance(include, (list, tuple)):
        raise TypeError("include must be a list/tuple, or None for all variables")
    if exclude is not None and not isinstance(exclude, (list, tuple)):
        raise TypeError("exclude must be a list/tuple, or None for nothing")
    if include is None:
        kept = get_variables()
    else:
        kept = [v for scope in include for v in get_variables(scope)]
    without = {id(v) for scope in exclude or () for v in get_variables(scope)}
    return [v for v in kept if id(v) not in without]


create_global_step = export(v1="contrib.slim.create_global_step")(global_step.create_global_step)
get_global_step = export(v1="contrib.slim.get_global_step")(global_step.get_global_step)
get_or_create_global_step = export(v1="contrib.slim.get_or_create_global_step")(
    global_step.get_or_create_global_step
)
