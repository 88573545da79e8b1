"""Summaries of the parts of a network, made in one call."""

import functools
import re
from typing import Any

from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.default_graph import get_default_graph
from millrace.graph.keys import GraphKeys
from millrace.graph.sparse import IndexedSlices
from millrace.ops import clip
from millrace.ops.nn.activations import zero_fraction
from millrace.summary import ops as summary

OPTIMIZER_SUMMARIES = export(v1="contrib.layers.OPTIMIZER_SUMMARIES")(
    ["learning_rate", "loss", "gradients", "gradient_norm", "global_gradient_norm"]
)


@export(v1=("contrib.layers.summarize_tensor", "contrib.layers.summaries.summarize_tensor"))
def summarize_tensor(tensor: Any, tag: str | None = None) -> Tensor | None:
    """A scalar for a scalar, a histogram for anything else; None where there is one already."""
    graph = get_default_graph()
    name = tensor.op.name
    known = {s.op.name for s in graph.get_collection(GraphKeys.SUMMARIES)}
    if tag is None and any(re.fullmatch(re.escape(name) + r"(_\d+)?/summary", k) for k in known):
        return None
    make = summary.scalar if tensor.shape.ndims == 0 else summary.histogram
    return make(tag or f"{name}/summary", tensor)


@export(v1=("contrib.layers.summarize_activation", "contrib.layers.summaries.summarize_activation"))
def summarize_activation(op: Any) -> Tensor:
    """A histogram of what a layer gives; of a rectifier also how much of it is zero."""
    if op.op.type in ("Relu", "Softplus", "Relu6"):
        summary.scalar(f"{op.op.name}/zeros", zero_fraction(op))
    return summary.histogram(f"{op.op.name}/activation", op)


@export(v1=("contrib.layers.summarize_tensors", "contrib.layers.summaries.summarize_tensors"))
def summarize_tensors(tensors: Any, summarizer: Any = summarize_tensor) -> list[Any]:
    """`summarizer` of each of the tensors."""
    return [summarizer(tensor) for tensor in tensors]


@export(v1=("contrib.layers.summarize_collection", "contrib.layers.summaries.summarize_collection"))
def summarize_collection(
    collection: str, name_filter: str | None = None, summarizer: Any = summarize_tensor
) -> list[Any]:
    """`summarizer` of each tensor of a collection whose name matches `name_filter`."""
    tensors = [
        tensor
        for tensor in get_default_graph().get_collection(collection)
        if name_filter is None or re.match(name_filter, tensor.op.name)
    ]
    return summarize_tensors(tensors, summarizer)


summarize_variables = export(v1="contrib.layers.summarize_variables")(
    functools.partial(summarize_collection, GraphKeys.GLOBAL_VARIABLES)
)
summarize_weights = export(v1="contrib.layers.summarize_weights")(
    functools.partial(summarize_collection, GraphKeys.WEIGHTS)
)
summarize_biases = export(v1="contrib.layers.summarize_biases")(
    functools.partial(summarize_collection, GraphKeys.BIASES)
)


@export(v1="contrib.layers.summarize_activations")
def summarize_activations(
    name_filter: str | None = None, summarizer: Any = summarize_activation
) -> list[Any]:
    """Summaries of the outputs of all layers."""
    return summarize_collection(GraphKeys.ACTIVATIONS, name_filter, summarizer)


def values_of(gradient: Any) -> Any:
    """The numbers of a gradient, sparse or not."""
    return gradient.values if isinstance(gradient, IndexedSlices) else gradient


@export(
    v1=("contrib.slim.learning.add_gradients_summaries",
        "contrib.training.add_gradients_summaries")
)  # fmt: skip
def add_gradients_summaries(grads_and_vars: Any) -> list[Tensor]:
    """A histogram and the norm of each gradient."""
    made = []
    for gradient, variable in grads_and_vars:
        if gradient is not None:
            values = values_of(gradient)
            made.append(summary.histogram(variable.op.name + "/gradient", values))
            norm = clip.global_norm([values])
            made.append(summary.scalar(variable.op.name + "/gradient_norm", norm))
    return made


def summarize_gradients(gradients: Any, wanted: Any) -> None:
    """What `optimize_loss` writes of gradients, [(gradient, variable)]."""
    for gradient, variable in gradients:
        if gradient is None:
            continue
        name = variable.name.replace(":", "_")
        if "gradients" in wanted:
            summary.histogram(f"gradients/{name}", values_of(gradient))
        if "gradient_norm" in wanted:
            norm = clip.global_norm([values_of(gradient)])
            summary.scalar(f"gradient_norm/{name}", norm)


def summarize_global_norm(tag: str, gradients: Any, wanted: Any) -> None:
    """The norm of all gradients together, where it is wanted."""
    if "global_gradient_norm" in wanted or "gradient_norm" in wanted:
        norm = clip.global_norm([g for g, _ in gradients if g is not None])
        summary.scalar(f"global_norm/{tag}", norm)
