"""Tables between words and their numbers."""

from __future__ import annotations

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import constant, convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.operation import Operation
from millrace.graph.sparse import SparseTensor
from millrace.ops.array import size as size_of
from millrace.ops.ordering import no_op
from millrace.ops.strings import (
    string_to_hash_bucket,
    string_to_hash_bucket_fast,
    string_to_hash_bucket_strong,
)
from millrace.state.tables import (
    FastHashSpec,
    HasherSpec,
    HashTable,
    KeyValueTensorInitializer,
    LookupInterface,
    TextFileIdTableInitializer,
    TextFileStringTableInitializer,
)


@export(v1="contrib.lookup.IdTableWithHashBuckets")
class IdTableWithHashBuckets(LookupInterface):
    """A table of words whose other words get one of `num_oov_buckets` numbers after the last."""

    def __init__(
        self, table: Any, num_oov_buckets: int, hasher_spec: Any = FastHashSpec,
        name: str | None = None, key_dtype: Any = None,
    ) -> None:  # fmt: skip
        if table is not None:
            key_dtype = table.key_dtype if key_dtype is None else key_dtype
            table.check_table_dtypes(table.key_dtype, dtypes.int64)
        elif num_oov_buckets <= 0:
            raise ValueError("oov_buckets must be > 0 if no table is supplied.")
        if not isinstance(hasher_spec, HasherSpec):
            raise TypeError(f"hasher_spec must be of type HasherSpec, got {hasher_spec}")
        self._table = table
        self._num_oov_buckets = num_oov_buckets
        self._hasher_spec = hasher_spec
        name = (name or (table.name if table is not None else "hash_bucket")).rstrip("/")
        super().__init__(key_dtype or dtypes.string, dtypes.int64, name.split("/")[-1])

    @property
    def init(self) -> Operation:
        """The operation that fills the table."""
        return no_op() if self._table is None else self._table.init

    def size(self, name: str | None = None) -> Tensor:
        """How many numbers there are, buckets included."""
        with name_scope(name, f"{self.name}_Size"):
            known = constant(0, dtypes.int64) if self._table is None else self._table.size()
            return gen_ops.add(known, constant(self._num_oov_buckets, dtypes.int64))

    def _buckets(self, words: Tensor) -> Tensor:
        hasher, key = self._hasher_spec
        count = self._num_oov_buckets
        if words.dtype.base_dtype != dtypes.string:
            words = gen_ops.as_string(words)
        if hasher == "fasthash":
            return string_to_hash_bucket_fast(words, count, name="hash_bucket")
        if hasher == "legacy":
            return string_to_hash_bucket(words, count, name="hash_bucket")
        if hasher == "stronghash":
            return string_to_hash_bucket_strong(words, count, key, name="hash_bucket")
        raise ValueError(f"Unknown hasher {hasher}")

    def lookup(self, keys: Any, name: str | None = None) -> Any:
        """The numbers of words; sparse for sparse keys."""
        if not isinstance(keys, (Tensor, SparseTensor)):
            keys = convert_to_tensor(keys, dtype=self._key_dtype)
        if keys.dtype.base_dtype != self._key_dtype:
            raise TypeError(
                f"Signature mismatch. Keys must be dtype {self._key_dtype.name}, "
                f"got {keys.dtype.name}."
            )
        words = keys.values if isinstance(keys, SparseTensor) else keys
        if self._num_oov_buckets == 0:
            ids = self._table.lookup(words, name=name)
        else:
            with name_scope(name, f"{self.name}_Lookup") as scope:
                ids = self._buckets(words)
                if self._table is not None:
                    known = self._table.lookup(words)
                    found = gen_ops.not_equal(known, self._table.default_value)
                    ids = gen_ops.select(
                        found, known, gen_ops.add(ids, self._table.size()), name=scope
                    )
        if isinstance(keys, SparseTensor):
            return SparseTensor(keys.indices, ids, keys.dense_shape)
        return ids


@export(v1="lookup.StaticVocabularyTable")
class StaticVocabularyTable(IdTableWithHashBuckets):
    """Words to numbers; words that the initializer does not have get a bucket."""

    def __init__(
        self, initializer: Any, num_oov_buckets: int, lookup_key_dtype: Any = None,
        name: str | None = None,
    ) -> None:  # fmt: skip
        if num_oov_buckets <= 0:
            raise ValueError("oov_buckets must be > 0.")
        table = None if initializer is None else HashTable(initializer, -1)
        super().__init__(table, num_oov_buckets, name=name, key_dtype=lookup_key_dtype)


def _check_counts(num_oov_buckets: int, vocab_size: int | None) -> None:
    if num_oov_buckets < 0:
        raise ValueError(f"num_oov_buckets must be greater or equal than 0, got {num_oov_buckets}.")
    if vocab_size is not None and vocab_size < 1:
        raise ValueError(f"vocab_size must be greater than 0, got {vocab_size}.")


def _with_buckets(table: HashTable, num_oov_buckets: int, hasher_spec: Any, scope: str) -> Any:
    if not num_oov_buckets:
        return table
    return IdTableWithHashBuckets(
        table, num_oov_buckets, hasher_spec=hasher_spec, name=scope, key_dtype=table.key_dtype
    )


@export(v1=("contrib.lookup.string_to_index_table_from_file",
            "contrib.lookup.index_table_from_file"))  # fmt: skip
def index_table_from_file(
    vocabulary_file: Any = None, num_oov_buckets: int = 0, vocab_size: int | None = None,
    default_value: int = -1, hasher_spec: Any = FastHashSpec, key_dtype: Any = dtypes.string,
    name: str | None = None, key_column_index: int = -2, value_column_index: int = -1,
    delimiter: str = "\t",
) -> Any:  # fmt: skip
    """A table from the lines of a file to their numbers.

    Args:
      num_oov_buckets: how many numbers words that are not in the file share; with 0 they all get
        `default_value`.
      vocab_size: how many lines to read; all by default.
    """
    if not isinstance(vocabulary_file, Tensor) and not vocabulary_file:
        raise ValueError("vocabulary_file must be specified.")
    _check_counts(num_oov_buckets, vocab_size)
    with name_scope(name, "string_to_index") as scope, name_scope(None, "hash_table"):
        initializer = TextFileIdTableInitializer(
            vocabulary_file, vocab_size=vocab_size, name="table_init", key_dtype=key_dtype,
            key_column_index=key_column_index, value_column_index=value_column_index,
            delimiter=delimiter,
        )  # fmt: skip
        table = HashTable(initializer, default_value)
        return _with_buckets(table, num_oov_buckets, hasher_spec, scope)


@export(v1=("contrib.lookup.string_to_index_table_from_tensor",
            "contrib.lookup.index_table_from_tensor"))  # fmt: skip
def index_table_from_tensor(
    mapping: Any, num_oov_buckets: int = 0, default_value: int = -1,
    hasher_spec: Any = FastHashSpec, dtype: Any = dtypes.string, name: str | None = None,
) -> Any:  # fmt: skip
    """A table from the words of a vector to their places in it; as `index_table_from_file`."""
    if mapping is None:
        raise ValueError("mapping must be specified.")
    _check_counts(num_oov_buckets, None)
    with name_scope(name, "string_to_index") as scope:
        keys = convert_to_tensor(mapping, dtype=dtype)
        values = gen_ops.cast(gen_ops.range(0, size_of(keys), 1), dtypes.int64)
        with name_scope(None, "hash_table"):
            initializer = KeyValueTensorInitializer(keys, values, name="table_init")
            table = HashTable(initializer, default_value)
            return _with_buckets(table, num_oov_buckets, hasher_spec, scope)


@export(v1="contrib.lookup.string_to_index")
def string_to_index(
    tensor: Any, mapping: Any, default_value: int = -1, name: str | None = None
) -> Tensor:
    """The places of words in a vector."""
    return index_table_from_tensor(mapping, default_value=default_value, name=name).lookup(tensor)


@export(v1="contrib.lookup.index_to_string_table_from_file")
def index_to_string_table_from_file(
    vocabulary_file: Any, vocab_size: int | None = None, default_value: str = "UNK",
    name: str | None = None, key_column_index: int = -1, value_column_index: int = -2,
    delimiter: str = "\t",
) -> HashTable:  # fmt: skip
    """A table from numbers of lines of a file to the lines."""
    if not isinstance(vocabulary_file, Tensor) and not vocabulary_file:
        raise ValueError("vocabulary_file must be specified.")
    _check_counts(0, vocab_size)
    with name_scope(name, "index_to_string"):
        initializer = TextFileStringTableInitializer(
            vocabulary_file, vocab_size=vocab_size, name="table_init",
            key_column_index=key_column_index, value_column_index=value_column_index,
            delimiter=delimiter,
        )  # fmt: skip
        return HashTable(initializer, default_value)


@export(v1="contrib.lookup.index_to_string_table_from_tensor")
def index_to_string_table_from_tensor(
    mapping: Any, default_value: str = "UNK", name: str | None = None
) -> HashTable:
    """A table from places in a vector of words to the words."""
    if mapping is None:
        raise ValueError("mapping must be specified.")
    with name_scope(name, "index_to_string"):
        values = convert_to_tensor(mapping, dtype=dtypes.string)
        keys = gen_ops.cast(gen_ops.range(0, size_of(values), 1), dtypes.int64)
        initializer = KeyValueTensorInitializer(keys, values, name="table_init")
        return HashTable(initializer, default_value)


@export(v1="contrib.lookup.index_to_string")
def index_to_string(
    tensor: Any, mapping: Any, default_value: str = "UNK", name: str | None = None
) -> Tensor:
    """The words at places of a vector."""
    table = index_to_string_table_from_tensor(mapping, default_value=default_value, name=name)
    return table.lookup(tensor)
