"""Words and their places in a list."""

from typing import Any

from millrace.core import dtypes
from millrace.core.tensor import Tensor
from millrace.graph.convert import constant
from millrace.io import gfile
from millrace.ops import array, math
from millrace.ops.along import argmax
from millrace.ops.gather import where
from millrace.ops.reduce import reduce_any
from millrace.ops.strings import as_string, string_to_hash_bucket_fast


def words_of_file(path: str, size: int | None, dtype: dtypes.DType) -> tuple[Any, ...]:
    """The lines of a file, the first `size` of them. ValueError where it has fewer."""
    with gfile.GFile(path) as file:
        lines = file.read().splitlines()
    if size is not None:
        if len(lines) < size:
            raise ValueError(
                f"Invalid vocabulary_size {size}: the file '{path}' has {len(lines)} lines."
            )
        lines = lines[:size]
    return tuple(lines) if dtype == dtypes.string else tuple(int(line) for line in lines)


def ids_of_words(
    values: Tensor, words: tuple[Any, ...], dtype: dtypes.DType, default: int, oov_buckets: int
) -> Tensor:
    """The place of each value in `words`; `default`, or a hash after the words, for others."""
    kind = dtypes.string if dtype == dtypes.string else dtypes.int64
    if kind != dtypes.string:
        values = math.cast(values, kind)
    found = math.equal(array.expand_dims(values, -1), constant(list(words), kind))
    places = argmax(math.cast(found, dtypes.int32), -1)
    if oov_buckets:
        text = values if kind == dtypes.string else as_string(values)
        others = string_to_hash_bucket_fast(text, oov_buckets) + len(words)
    else:
        others = array.fill(array.shape(values), constant(default, dtypes.int64))
    return where(reduce_any(found, -1), places, others)
