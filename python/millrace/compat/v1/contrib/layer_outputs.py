"""What the layer functions of contrib share: collections, names of variables, a layer's end."""

from typing import Any, Callable

from millrace.compat.v1.contrib.regularizers import xavier_initializer
from millrace.compat.v1.contrib.variables import add_model_variable
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.default_graph import get_default_graph
from millrace.state.initializers import Ones, Zeros

ZEROS = Zeros()
ONES = Ones()
XAVIER = xavier_initializer()

DATA_FORMAT_NCHW = "NCHW"
DATA_FORMAT_NHWC = "NHWC"


@export(
    v1=("contrib.layers.utils.collect_named_outputs", "contrib.slim.utils.collect_named_outputs")
)
def collect_named_outputs(collections: Any, alias: str, outputs: Tensor) -> Tensor:
    """Adds outputs to collections under a name that `convert_collection_to_dict` finds."""
    if collections:
        outputs.aliases = [*getattr(outputs, "aliases", []), alias]
        get_default_graph().add_to_collections(collections, outputs)
    return outputs


@export(
    v1=(
        "contrib.layers.utils.convert_collection_to_dict",
        "contrib.slim.utils.convert_collection_to_dict",
    )
)
def convert_collection_to_dict(
    collection: str, clear_collection: bool = False
) -> dict[str, Tensor]:
    """The tensors of a collection by their names."""
    graph = get_default_graph()
    found = {}
    for tensor in graph.get_collection(collection):
        for alias in getattr(tensor, "aliases", None) or [tensor.op.name]:
            found[alias] = tensor
    if clear_collection:
        graph.clear_collection(collection)
    return found


@export(v1=("contrib.layers.utils.last_dimension", "contrib.slim.utils.last_dimension"))
def last_dimension(shape: Any, min_rank: int = 1) -> int:
    """The size of the last dimension. ValueError when it or the rank is not known or too small."""
    if shape.ndims is None or shape.ndims < min_rank or shape._size_at(-1) is None:
        raise ValueError(f"the last dimension of {shape} must be defined, of rank >= {min_rank}")
    return shape._size_at(-1)


def collection_of(collections: Any, name: str) -> Any:
    """The collections of a variable: of a list for all, or of a dict by name."""
    if collections is None:
        return None
    if isinstance(collections, dict):
        return collections.get(name)
    return collections


def variable_getter(rename: dict[str, str], variables_collections: Any) -> Callable[..., Any]:
    """Renames variables of layers, and makes them variables of models."""

    def custom(getter: Callable[..., Any], name: str, *args: Any, **kwargs: Any) -> Any:
        prefix, _, last = name.rpartition("/")
        last = rename.get(last, last)
        kwargs["collections"] = None
        variable = getter(f"{prefix}/{last}" if prefix else last, *args, **kwargs)
        for part in variable if hasattr(variable, "_get_variable_list") else [variable]:
            add_model_variable(part)
            for collection in _listed(collection_of(variables_collections, last)):
                present = get_default_graph().get_collection_ref(collection)
                if not any(part is p for p in present):
                    present.append(part)
        return variable

    return custom


def _listed(x: Any) -> list[Any]:
    if x is None:
        return []
    return [x] if isinstance(x, str) else list(x)


def finished(
    outputs: Tensor, scope: Any, activation_fn: Any, normalizer_fn: Any, normalizer_params: Any,
    outputs_collections: Any,
) -> Tensor:  # fmt: skip
    if normalizer_fn is not None:
        outputs = normalizer_fn(outputs, **(normalizer_params or {}))
    if activation_fn is not None:
        outputs = activation_fn(outputs)
    return collect_named_outputs(outputs_collections, scope.name, outputs)


RENAMED = {
    "kernel": "weights", "bias": "biases", "depthwise_kernel": "depthwise_weights",
    "pointwise_kernel": "pointwise_weights",
}  # fmt: skip
