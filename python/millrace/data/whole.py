"""Datasets as wholes: made of lists, padded, read by number, kept in files."""

import os
from typing import Any, Callable

from millrace import _core
from millrace.core import errors
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.core.text import as_str, path_to_str
from millrace.data import structure
from millrace.data.dataset import Dataset
from millrace.data.specs import leaves_of_spec
from millrace.io import gfile
from millrace.ops.array import zeros

Transformation = Callable[[Dataset], Dataset]


@export(v1="data.experimental.from_list", v2="data.experimental.from_list")
def from_list(elements: list[Any], name: str | None = None) -> Dataset:
    """A dataset of the elements of a list, which have one structure and one type for each part."""
    del name
    if not isinstance(elements, list) or not elements:
        raise ValueError("`elements` should be a non-empty list.")
    parts = [Dataset.from_tensors(element) for element in elements]
    while len(parts) > 1:
        pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
        parts = [p[0] if len(p) == 1 else p[0].concatenate(p[1]) for p in pairs]
    return parts[0]


@export(v1="data.experimental.pad_to_cardinality", v2="data.experimental.pad_to_cardinality")
def pad_to_cardinality(cardinality: int, mask_key: str = "valid") -> Transformation:
    """A dataset of dictionaries made so long with zeros. `mask_key` is put into each: whether it
    was there before.

    The dataset's size is known, and not larger; the shapes of its elements are known, too.
    """

    def apply(dataset: Dataset) -> Dataset:
        count = int(dataset.cardinality())
        if count < 0:
            raise ValueError(f"The dataset passed into `pad_to_cardinality` has {_SIZES[count]}.")
        if count > cardinality:
            raise ValueError(
                f"The dataset passed into `pad_to_cardinality` has {count} elements, more than "
                f"{cardinality}."
            )
        spec = dataset._spec
        if not isinstance(spec, dict):
            raise ValueError(
                f"`pad_to_cardinality` needs elements that are dictionaries, got {spec!r}."
            )
        if mask_key in spec:
            raise ValueError(f"The elements have a part {mask_key!r} already.")
        filler = structure.map_leaves(lambda leaf: zeros(leaf.shape, leaf.dtype), spec)
        padding = Dataset.from_tensors({**filler, mask_key: False}).repeat(cardinality - count)
        return dataset.map(lambda element: {**element, mask_key: True}).concatenate(padding)

    return apply


_SIZES = {-1: "no end", -2: "a size that is not known"}


@export(v1="data.experimental.at", v2="data.experimental.at")
def at(dataset: Dataset, index: Any) -> Any:
    """The element of that number; those before it are made, too. OutOfRangeError where there is
    none."""
    if not isinstance(dataset, Dataset):
        raise TypeError(f"`dataset` must be a `tf.data.Dataset` object, got {dataset!r}")
    if not _core.executing_eagerly():
        raise RuntimeError("`tf.data.experimental.at` is only supported in eager mode.")
    number = int(index)
    for element in dataset.skip(max(number, 0)).take(1 if number >= 0 else 0):
        return element
    raise errors.OutOfRangeError(None, None, f"Index out of range: there is no element {number}")


@export(v1="data.experimental.to_variant", v2="data.experimental.to_variant")
def to_variant(dataset: Dataset) -> Tensor:
    """The tensor that stands for a dataset."""
    return dataset._variant_tensor


@export(v1="data.experimental.from_variant", v2="data.experimental.from_variant")
def from_variant(variant: Tensor, structure: Any) -> Dataset:
    """The dataset that a tensor stands for; `structure` is the spec of its elements."""
    return Dataset(variant, leaves_of_spec(structure))


@export(v1="data.experimental.snapshot", v2="data.experimental.snapshot")
def snapshot(
    path: Any, compression: Any = "AUTO", reader_func: Callable[[Dataset], Dataset] | None = None,
    shard_func: Callable[..., Any] | None = None,
) -> Transformation:  # fmt: skip
    """The elements, written into a folder when they are first made, and read from there afterwards,
    by other programs too.

    Args:
      compression: taken and not used.
      reader_func: from a dataset of datasets, the shards of which there is one, to a dataset.
      shard_func: taken and not used.
    """
    del compression, shard_func
    folder = as_str(path_to_str(path))

    def apply(dataset: Dataset) -> Dataset:
        gfile.MakeDirs(folder)
        kept = dataset.cache(os.path.join(folder, "snapshot"))
        return kept if reader_func is None else reader_func(Dataset.from_tensors(kept))

    return apply
