"""The collections of a graph, and the names of those that the library keeps."""

from typing import Any

from millrace.core.export import export
from millrace.graph.default_graph import get_default_graph


class _OldNames(type):
    @property
    def VARIABLES(cls) -> str:
        """An older name of GLOBAL_VARIABLES."""
        return GraphKeys.GLOBAL_VARIABLES


@export(v1="GraphKeys")
class GraphKeys(metaclass=_OldNames):
    """The names of the collections that the library itself adds to or reads."""

    # Variables by what they are for.
    GLOBAL_VARIABLES = "variables"
    LOCAL_VARIABLES = "local_variables"
    METRIC_VARIABLES = "metric_variables"
    MODEL_VARIABLES = "model_variables"
    TRAINABLE_VARIABLES = "trainable_variables"
    MOVING_AVERAGE_VARIABLES = "moving_average_variables"
    CONCATENATED_VARIABLES = "concatenated_variables"
    TRAINABLE_RESOURCE_VARIABLES = "trainable_resource_variables"
    # What layers and losses leave for others to find.
    WEIGHTS = "weights"
    BIASES = "biases"
    ACTIVATIONS = "activations"
    LOSSES = "losses"
    REGULARIZATION_LOSSES = "regularization_losses"
    UPDATE_OPS = "update_ops"
    SUMMARIES = "summaries"
    # What a session needs before and while it runs.
    QUEUE_RUNNERS = "queue_runners"
    TABLE_INITIALIZERS = "table_initializer"
    ASSET_FILEPATHS = "asset_filepaths"
    SAVERS = "savers"
    SAVEABLE_OBJECTS = "saveable_objects"
    RESOURCES = "resources"
    LOCAL_RESOURCES = "local_resources"
    INIT_OP = "init_op"
    LOCAL_INIT_OP = "local_init_op"
    READY_OP = "ready_op"
    READY_FOR_LOCAL_INIT_OP = "ready_for_local_init_op"
    SUMMARY_OP = "summary_op"
    GLOBAL_STEP = "global_step"
    EVAL_STEP = "eval_step"
    TRAIN_OP = "train_op"
    COND_CONTEXT = "cond_context"
    WHILE_CONTEXT = "while_context"
    _STREAMING_MODEL_PORTS = "streaming_model_ports"
    _VARIABLE_COLLECTIONS = (
        GLOBAL_VARIABLES, LOCAL_VARIABLES, METRIC_VARIABLES, MODEL_VARIABLES, TRAINABLE_VARIABLES,
        MOVING_AVERAGE_VARIABLES, CONCATENATED_VARIABLES, TRAINABLE_RESOURCE_VARIABLES,
    )  # fmt: skip


@export(v1="add_to_collection")
def add_to_collection(name: Any, value: Any) -> None:
    """As `Graph.add_to_collection`, for the default graph."""
    get_default_graph().add_to_collection(name, value)


@export(v1="add_to_collections")
def add_to_collections(names: Any, value: Any) -> None:
    """As `Graph.add_to_collections`, for the default graph."""
    get_default_graph().add_to_collections(names, value)


@export(v1="get_collection")
def get_collection(key: Any, scope: str | None = None) -> list[Any]:
    """As `Graph.get_collection`, for the default graph."""
    return get_default_graph().get_collection(key, scope)


@export(v1="get_collection_ref")
def get_collection_ref(key: Any) -> list[Any]:
    """As `Graph.get_collection_ref`, for the default graph."""
    return get_default_graph().get_collection_ref(key)


def prepend_name_scope(name: str, import_scope: str | None) -> str:
    """The name as it is after a graph was imported below a scope."""
    if not import_scope:
        return name
    for mark in ("loc:@", "^"):
        if name.startswith(mark):
            return f"{mark}{import_scope.rstrip('/')}/{name[len(mark) :]}"
    return f"{import_scope.rstrip('/')}/{name}"


def strip_name_scope(name: str, export_scope: str | None) -> str:
    """The name as it is in a graph that holds only what is below a scope."""
    if not export_scope:
        return name
    prefix = export_scope.rstrip("/") + "/"
    for mark in ("loc:@", "^", ""):
        if name.startswith(mark + prefix):
            return mark + name[len(mark) + len(prefix) :]
    return name
