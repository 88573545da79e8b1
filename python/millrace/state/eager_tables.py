"""Lookup tables as TensorFlow 2 has them: filled when they are made."""

from typing import Any

from millrace import _core
from millrace.core import dtypes
from millrace.core.export import export
from millrace.graph.operation import Operation
from millrace.state import tables, vocabularies


@export(v2="lookup.StaticHashTable")
class StaticHashTable(tables.HashTable):
    """A map that its initializer fills.

    Made in a function, it is made at once, outside of its graph, as variables are.

    Args:
      default_value: what keys that are not there are mapped to.
    """

    def __init__(
        self, initializer: Any, default_value: Any, name: str | None = None,
        experimental_is_anonymous: bool = False,
    ):  # fmt: skip
        del experimental_is_anonymous  # all of them are
        with _core.init_scope():
            super().__init__(initializer, default_value, name=name)


@export(v2="lookup.StaticVocabularyTable")
class StaticVocabularyTable(vocabularies.IdTableWithHashBuckets):
    """Words to numbers; words that the initializer does not have get one of `num_oov_buckets`
    numbers after the last. Without an initializer all words do."""

    def __init__(
        self, initializer: Any, num_oov_buckets: int, lookup_key_dtype: Any = None,
        name: str | None = None, experimental_is_anonymous: bool = False,
    ):  # fmt: skip
        del experimental_is_anonymous
        if num_oov_buckets <= 0:
            raise ValueError(f"`num_oov_buckets` must be > 0; got {num_oov_buckets}.")
        key_dtype = lookup_key_dtype
        if initializer is not None:
            if initializer.value_dtype != dtypes.int64:
                raise TypeError(
                    f"Invalid `value_dtype`, expected {dtypes.int64} but got "
                    f"{initializer.value_dtype}."
                )
            kinds = {dtypes.string, dtypes.int32, dtypes.int64}
            key_dtype = dtypes.as_dtype(key_dtype or initializer.key_dtype)
            if key_dtype not in kinds:
                raise TypeError(
                    f"Invalid `key_dtype`, expected string or integers, got {key_dtype}"
                )
        table = None if initializer is None else StaticHashTable(initializer, -1)
        super().__init__(table, num_oov_buckets, name=name, key_dtype=key_dtype)
        if table is not None:
            self._track_trackable(table, "_table")


@export(v2="lookup.TextFileInitializer")
class TextFileInitializer(tables.TextFileInitializer):
    """Fills a table from the lines of a file.

    `key_index`, `value_index`: a column, `TextFileIndex.WHOLE_LINE` or `LINE_NUMBER`; `vocab_size`:
    how many lines to read, all by default; `delimiter`: between columns; `value_index_offset` is
    added to line numbers.
    """

    def __init__(
        self, filename: Any, key_dtype: Any, key_index: int, value_dtype: Any, value_index: int,
        vocab_size: int | None = None, delimiter: str = "\t", name: str | None = None,
        value_index_offset: int = 0,
    ):  # fmt: skip
        super().__init__(
            filename, key_dtype, key_index, value_dtype, value_index, vocab_size, delimiter, name
        )
        self._attrs["offset"] = value_index_offset


@export(v2="lookup.experimental.MutableHashTable")
class MutableHashTable(tables.MutableHashTable):
    """A map that can be added to; values are scalars or vectors, as the default is."""

    def __init__(
        self, key_dtype: Any, value_dtype: Any, default_value: Any,
        name: str = "MutableHashTable", checkpoint: bool = True,
        experimental_is_anonymous: bool = False,
    ):  # fmt: skip
        del experimental_is_anonymous
        with _core.init_scope():
            super().__init__(
                key_dtype, value_dtype, default_value, name=name, checkpoint=checkpoint
            )


@export(v2="lookup.experimental.DenseHashTable")
class DenseHashTable(tables.MutableDenseHashTable):
    """A map between tensors of fixed shapes, that can be added to. `empty_key` and `deleted_key`
    are keys that nobody uses."""

    def __init__(
        self, key_dtype: Any, value_dtype: Any, default_value: Any, empty_key: Any,
        deleted_key: Any, initial_num_buckets: int | None = None,
        name: str = "MutableDenseHashTable", checkpoint: bool = True,
        experimental_is_anonymous: bool = False,
    ):  # fmt: skip
        del experimental_is_anonymous
        with _core.init_scope():
            super().__init__(
                key_dtype, value_dtype, default_value, empty_key, initial_num_buckets, name=name,
                checkpoint=checkpoint, deleted_key=deleted_key,
            )  # fmt: skip

    def insert_or_assign(self, keys: Any, values: Any, name: str | None = None) -> Operation:
        """Adds keys with their values, or replaces the values."""
        return self.insert(keys, values, name)

    def erase(self, keys: Any, name: str | None = None) -> Operation:
        """Removes keys; those that are not there are fine."""
        return self.remove(keys, name)


@export(v2="lookup.KeyValueTensorInitializer")
class KeyValueTensorInitializer(tables.KeyValueTensorInitializer):
    """Fills a table from a tensor of keys and one of values."""

    def __init__(
        self, keys: Any, values: Any, key_dtype: Any = None, value_dtype: Any = None,
        name: str | None = None,
    ):  # fmt: skip
        with _core.init_scope():
            super().__init__(keys, values, key_dtype, value_dtype, name)
