"""Words and their places in a list or a file."""

from typing import Any

from millrace.core import dtypes
from millrace.core.tensor import Tensor
from millrace.graph.convert import constant
from millrace.io import gfile
from millrace.ops import math
from millrace.state.vocabularies import index_table_from_file, index_table_from_tensor


def _kind(dtype: dtypes.DType) -> dtypes.DType:
    return dtypes.string if dtype == dtypes.string else dtypes.int64


def _found(table: Any, values: Tensor, kind: dtypes.DType) -> Tensor:
    return table.lookup(values if kind == dtypes.string else math.cast(values, kind))


def count_lines(path: str, size: int | None) -> int:
    """How many lines a file has, or `size` of them. ValueError where it has fewer."""
    with gfile.GFile(path, "rb") as file:
        lines = len(file.read().splitlines())
    if size is not None and lines < size:
        raise ValueError(f"Invalid vocabulary_size {size}: the file '{path}' has {lines} lines.")
    return lines if size is None else size


def ids_of_words(
    values: Tensor, words: tuple[Any, ...], dtype: dtypes.DType, default: int, oov_buckets: int
) -> Tensor:
    """The place of each value in `words`; `default`, or a hash after the words, for others."""
    kind = _kind(dtype)
    table = index_table_from_tensor(constant(list(words), kind), oov_buckets, default, dtype=kind)
    return _found(table, values, kind)


def ids_of_lines(
    values: Tensor, path: str, size: int, dtype: dtypes.DType, default: int, oov_buckets: int
) -> Tensor:
    """The line of each value among the first `size` of a file; see `ids_of_words`."""
    kind = _kind(dtype)
    table = index_table_from_file(path, oov_buckets, size, default, key_dtype=kind)
    return _found(table, values, kind)
