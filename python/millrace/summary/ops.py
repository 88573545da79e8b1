"""Operations that make summaries of tensors: `tf.summary`."""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from millrace import gen_ops, protos
from millrace.core import dtypes, logging
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.keys import GraphKeys, add_to_collections, get_collection

_NOT_IN_NAMES = re.compile(r"[^-/\w.]")


def clean_tag(name: str) -> str:
    """The name with what operations cannot be called replaced."""
    cleaned = _NOT_IN_NAMES.sub("_", name).lstrip("/")
    if cleaned != name:
        logging.info("Summary name %s is illegal; using %s instead.", name, cleaned)
    return cleaned


@contextlib.contextmanager
def _tagged(name: str, family: str | None, values: list[Any]) -> Iterator[tuple[str, str]]:
    """Opens the scope of a summary; gives its tag and its name."""
    name = clean_tag(name)
    family = family and clean_tag(family)
    with name_scope(f"{family}/{name}" if family else name, None, values) as scope:
        tag = scope.rstrip("/")
        yield (f"{family}/{tag}" if family else tag), scope


def _collected(summary: Tensor, collections: Any, default: list[str]) -> Tensor:
    add_to_collections(default if collections is None else collections, summary)
    return summary


_SUMMARIES = [GraphKeys.SUMMARIES]


@export(v1="summary.scalar")
def scalar(name: str, tensor: Any, collections: Any = None, family: str | None = None) -> Tensor:
    """A summary of a number.

    Args:
      name: the tag, and the name of the operation.
      tensor: a scalar of numbers.
      collections: the graph collections that get the summary; `GraphKeys.SUMMARIES` by default.
      family: put before the tag, so that TensorBoard shows those of a family together.

    Returns:
      A string scalar, a serialised `Summary` message; so do all functions here.
    """
    with _tagged(name, family, [tensor]) as (tag, scope):
        summary = gen_ops.scalar_summary(tag, tensor, name=scope)
        return _collected(summary, collections, _SUMMARIES)


@export(v1="summary.histogram")
def histogram(name: str, values: Any, collections: Any = None, family: str | None = None) -> Tensor:
    """A summary of how numbers are spread; InvalidArgumentError when one is not finite.

    The other arguments are those of `scalar`.
    """
    with _tagged(name, family, [values]) as (tag, scope):
        summary = gen_ops.histogram_summary(tag, values, name=scope)
        return _collected(summary, collections, _SUMMARIES)


@export(v1="summary.image")
def image(
    name: str, tensor: Any, max_outputs: int = 3, collections: Any = None,
    family: str | None = None,
) -> Tensor:  # fmt: skip
    """A summary of images [batch, height, width, 1, 3 or 4 channels].

    Floating numbers are scaled to what can be seen: those of an image without negative ones so that
    the largest is white, others so that 0 is the middle. Pixels that are not finite are red. The
    other arguments are those of `scalar`.
    """
    with _tagged(name, family, [tensor]) as (tag, scope):
        summary = gen_ops.image_summary(tag, tensor, max_images=max_outputs, name=scope)
        return _collected(summary, collections, _SUMMARIES)


@export(v1="summary.audio")
def audio(
    name: str, tensor: Any, sample_rate: Any, max_outputs: int = 3, collections: Any = None,
    family: str | None = None,
) -> Tensor:  # fmt: skip
    """A summary of sounds [batch, frames] or [batch, frames, channels], from -1 to 1.

    `sample_rate` is the number of frames in a second. The other arguments are those of `scalar`.
    """
    with _tagged(name, family, [tensor]) as (tag, scope):
        rate = convert_to_tensor(sample_rate, dtype=dtypes.float32, name="sample_rate")
        summary = gen_ops.audio_summary_v2(
            tag, tensor, sample_rate=rate, max_outputs=max_outputs, name=scope
        )
        return _collected(summary, collections, _SUMMARIES)


@export(v1="summary.tensor_summary")
def tensor_summary(
    name: str, tensor: Any, summary_description: Any = None, collections: Any = None,
    summary_metadata: Any = None, family: str | None = None, display_name: str | None = None,
) -> Tensor:  # fmt: skip
    """A summary that holds a tensor of any type as it is.

    Args:
      name: the tag, and the name of the operation.
      tensor: what it holds.
      summary_description: a text about it.
      collections: as in `scalar`.
      summary_metadata: a `SummaryMetadata` message: which plugin of TensorBoard shows it.
      family: as in `scalar`.
      display_name: what TensorBoard calls it.
    """
    metadata = protos.SummaryMetadata()
    if summary_metadata is not None:
        metadata.CopyFrom(summary_metadata)
    if summary_description is not None:
        metadata.summary_description = str(summary_description)
    if display_name is not None:
        metadata.display_name = display_name
    with _tagged(name, family, [tensor]) as (tag, scope):
        summary = gen_ops.tensor_summary_v2(
            tag, tensor, serialized_summary_metadata=metadata.SerializeToString(), name=scope
        )
        return _collected(summary, collections, _SUMMARIES)


@export(v1="summary.text")
def text(name: str, tensor: Any, collections: Any = None) -> Tensor:
    """A summary of text, which TensorBoard shows as Markdown; a matrix of strings as a table."""
    tensor = convert_to_tensor(tensor)
    if tensor.dtype != dtypes.string:
        raise ValueError(f"Expected tensor {tensor.name} to have dtype string, got {tensor.dtype}")
    metadata = protos.SummaryMetadata()
    metadata.plugin_data.plugin_name = "text"
    return tensor_summary(name, tensor, collections=collections, summary_metadata=metadata)


@export(v1="summary.merge")
def merge(inputs: Any, collections: Any = None, name: str | None = None) -> Tensor:
    """One summary with the values of several. InvalidArgumentError when two have one tag.

    `collections`: the graph collections that get it; none by default.
    """
    inputs = list(inputs)
    if name is not None:
        name = clean_tag(name)
    with name_scope(name, "Merge", inputs):
        summary = gen_ops.merge_summary(inputs, name=name)
        return _collected(summary, collections, [])


@export(v1="summary.merge_all")
def merge_all(
    key: str = GraphKeys.SUMMARIES, scope: str | None = None, name: str | None = None
) -> Tensor | None:
    """All summaries of the default graph as one, or None where there is none.

    `key` is the collection they are in, `scope` a regular expression for the names of those that
    are wanted.
    """
    found = get_collection(key, scope=scope)
    return merge(found, name=name) if found else None


@export(v1="summary.get_summary_description")
def get_summary_description(node_def: Any) -> Any:
    """The `SummaryDescription` that a node of type TensorSummary carries. ValueError for others."""
    if node_def.op != "TensorSummary":
        raise ValueError(f"Can't get_summary_description on {node_def.op}")
    description = protos.SummaryDescription()
    json = node_def.attr["description"].s.decode()
    return protos.json_format.Parse(json, description) if json else description
