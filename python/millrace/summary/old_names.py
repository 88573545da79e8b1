"""What summaries were called before TensorFlow 1.0, when tags were given apart from names."""

from typing import Any

from millrace import gen_ops
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.keys import GraphKeys, add_to_collections
from millrace.summary.ops import merge, merge_all


def _collected(summary: Tensor, collections: Any) -> Tensor:
    add_to_collections([GraphKeys.SUMMARIES] if collections is None else collections, summary)
    return summary


@export(v1="scalar_summary")
def scalar_summary(
    tags: Any, values: Any, collections: Any = None, name: str | None = None
) -> Tensor:
    """A summary of numbers, each under its tag; see `tf.summary.scalar`."""
    return _collected(gen_ops.scalar_summary(tags, values, name=name), collections)


@export(v1="histogram_summary")
def histogram_summary(
    tag: Any, values: Any, collections: Any = None, name: str | None = None
) -> Tensor:
    """A summary of how numbers are spread; see `tf.summary.histogram`."""
    return _collected(gen_ops.histogram_summary(tag, values, name=name), collections)


@export(v1="image_summary")
def image_summary(
    tag: Any, tensor: Any, max_images: int = 3, collections: Any = None, name: str | None = None
) -> Tensor:
    """A summary of images; see `tf.summary.image`."""
    return _collected(
        gen_ops.image_summary(tag, tensor, max_images=max_images, name=name), collections
    )


@export(v1="audio_summary")
def audio_summary(
    tag: Any, tensor: Any, sample_rate: Any, max_outputs: int = 3, collections: Any = None,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """A summary of sounds; see `tf.summary.audio`."""
    summary = gen_ops.audio_summary_v2(tag, tensor, sample_rate, max_outputs=max_outputs, name=name)
    return _collected(summary, collections)


@export(v1="merge_summary")
def merge_summary(inputs: Any, collections: Any = None, name: str | None = None) -> Tensor:
    """See `tf.summary.merge`."""
    return merge(inputs, collections, name)


@export(v1="merge_all_summaries")
def merge_all_summaries(key: str = GraphKeys.SUMMARIES) -> Tensor | None:
    """See `tf.summary.merge_all`."""
    return merge_all(key)
