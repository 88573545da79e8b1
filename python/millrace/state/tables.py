"""Lookup tables: maps from keys to values that steps share."""

from __future__ import annotations

import functools
import itertools
from typing import Any, Callable, NamedTuple

from millrace import _core, gen_ops
from millrace.core import dtypes
from millrace.core.dtypes import DType
from millrace.core.export import export
from millrace.core.shapes import as_shape
from millrace.core.tensor import Tensor
from millrace.core.trackable import Trackable
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import get_default_graph, name_scope
from millrace.graph.graph import root_graph
from millrace.graph.keys import GraphKeys, add_to_collection
from millrace.graph.operation import Operation
from millrace.graph.sparse import SparseTensor
from millrace.ops.ordering import no_op
from millrace.state.asset import Asset
from millrace.state.resource import resource_functions

_numbers = itertools.count()


def _collect(key: str, value: Any) -> None:
    """Makes something known to the default graph. What runs at once has none."""
    if not _core.executing_eagerly():
        add_to_collection(key, value)


@export(v1="contrib.lookup.LookupInterface")
class LookupInterface(Trackable):
    """What tables of all kinds have."""

    def __init__(self, key_dtype: Any, value_dtype: Any, name: str) -> None:
        self._key_dtype = dtypes.as_dtype(key_dtype)
        self._value_dtype = dtypes.as_dtype(value_dtype)
        self._name = name

    @property
    def key_dtype(self) -> DType:
        """The type of keys."""
        return self._key_dtype

    @property
    def value_dtype(self) -> DType:
        """The type of values."""
        return self._value_dtype

    @property
    def name(self) -> str:
        """The table's name."""
        return self._name

    @property
    def init(self) -> Operation:
        """The operation that fills the table."""
        raise NotImplementedError

    @property
    def initializer(self) -> Operation:
        """The operation that fills the table."""
        return self.init

    def size(self, name: str | None = None) -> Tensor:
        """How many keys there are."""
        raise NotImplementedError

    def lookup(self, keys: Any, name: str | None = None) -> Any:
        """The values of keys."""
        raise NotImplementedError

    def __getitem__(self, keys: Any) -> Any:
        return self.lookup(keys)

    def check_table_dtypes(self, key_dtype: Any, value_dtype: Any) -> None:
        """TypeError unless keys and values have these types."""
        for what, expected, got in (
            ("key", self._key_dtype, key_dtype), ("value", self._value_dtype, value_dtype),
        ):  # fmt: skip
            if expected != dtypes.as_dtype(got):
                raise TypeError(
                    f"Invalid {what} dtype, expected {expected.name} but got "
                    f"{dtypes.as_dtype(got).name}."
                )


class _Table(LookupInterface):
    """A table that ops know by a handle."""

    _make: Callable[..., Any]  # makes the handle of another one for a shared_name

    def __init__(
        self, handle: Any, key_dtype: Any, value_dtype: Any, default_value: Any, name: str,
        is_shared: bool = False,
    ) -> None:  # fmt: skip
        if not _core.executing_eagerly():
            name = handle.op.name.split("/")[-1]
        super().__init__(key_dtype, value_dtype, name)
        # A table that was made at once goes with this object, unless others have it by its name.
        self._is_own = _core.executing_eagerly() and not is_shared
        self._table_ref = handle
        self._default_value = convert_to_tensor(default_value, dtype=self._value_dtype)

    def _create_resource(self) -> Tensor:
        """Makes a table like this one, empty, for a function that makes it again elsewhere."""
        return self._make(shared_name=f"{self._name}_{next(_numbers)}")

    def _initialize(self) -> Any:
        """Fills the table."""

    def _trackable_children(self, save_type: str = "checkpoint", **kwargs: Any) -> dict[str, Any]:
        children = super()._trackable_children(save_type, **kwargs)
        if save_type == "savedmodel":
            children.update(resource_functions(self))
        return children

    def __del__(self) -> None:
        if self.__dict__.get("_is_own") and _core is not None:  # as the interpreter ends
            _core.destroy_resource(self._table_ref)

    @property
    def table_ref(self) -> Tensor:
        """The table's handle."""
        return self._table_ref

    @property
    def resource_handle(self) -> Tensor:
        """The table's handle."""
        return self._table_ref

    @property
    def default_value(self) -> Tensor:
        """What keys that are not there are mapped to."""
        return self._default_value

    def size(self, name: str | None = None) -> Tensor:
        """How many keys there are."""
        with name_scope(name, f"{self._name}_Size") as scope:
            return gen_ops.lookup_table_size_v2(self._table_ref, name=scope)

    def _check_key(self, keys: Any) -> None:
        if keys.dtype.base_dtype != self._key_dtype:
            raise TypeError(
                f"Signature mismatch. Keys must be dtype {self._key_dtype.name}, "
                f"got {keys.dtype.name}."
            )

    def lookup(self, keys: Any, name: str | None = None) -> Any:
        """The values of keys, the default where there is none; sparse for sparse keys."""
        if not isinstance(keys, (Tensor, SparseTensor)):
            keys = convert_to_tensor(keys, dtype=self._key_dtype)
        self._check_key(keys)
        dense = keys.values if isinstance(keys, SparseTensor) else keys
        with name_scope(name, f"{self._name}_Lookup", [dense]) as scope:
            values = gen_ops.lookup_table_find_v2(
                self._table_ref, dense, self._default_value, name=scope
            )
        if isinstance(keys, SparseTensor):
            return SparseTensor(keys.indices, values, keys.dense_shape)
        return values


class MutableTable(_Table):
    """A table that can be added to; savers save it as they do variables."""

    @property
    def init(self) -> Operation:
        """Does nothing: such a table is empty at first."""
        return no_op()

    def insert(self, keys: Any, values: Any, name: str | None = None) -> Operation:
        """Adds keys with their values, or replaces the values."""
        keys = convert_to_tensor(keys, preferred_dtype=self._key_dtype)
        values = convert_to_tensor(values, preferred_dtype=self._value_dtype)
        self.check_table_dtypes(keys.dtype.base_dtype, values.dtype.base_dtype)
        with name_scope(name, f"{self._name}_lookup_table_insert", [keys, values]) as scope:
            return gen_ops.lookup_table_insert_v2(self._table_ref, keys, values, name=scope)

    def remove(self, keys: Any, name: str | None = None) -> Operation:
        """Removes keys; those that are not there are fine."""
        keys = convert_to_tensor(keys, preferred_dtype=self._key_dtype)
        self._check_key(keys)
        return gen_ops.lookup_table_remove_v2(self._table_ref, keys, name=name)

    # In checkpoints.

    def _serialize_to_tensors(self) -> dict[str, Any]:
        keys, values = self.export()
        return {"-keys": keys, "-values": values}

    def _saved_names(self) -> list[str]:
        return ["-keys", "-values"]

    def _saves_tensors(self) -> bool:
        return self._is_saved

    def _restore_from_tensors(self, restored_tensors: dict[str, Any]) -> Any:
        return gen_ops.lookup_table_import_v2(
            self._table_ref, restored_tensors["-keys"], restored_tensors["-values"]
        )

    _attribute_name = "table"
    _is_saved = True  # whether checkpoints have it

    def export(self, name: str | None = None) -> tuple[Tensor, Tensor]:
        """All keys and all values."""
        with name_scope(name, f"{self._name}_lookup_table_export_values") as scope:
            keys, values = gen_ops.lookup_table_export_v2(
                self._table_ref, Tkeys=self._key_dtype, Tvalues=self._value_dtype, name=scope
            )
        keys.set_shape(as_shape([None]).concatenate(self._key_shape))
        values.set_shape(as_shape([None]).concatenate(self._default_value.shape))
        return keys, values

    _key_shape: Any = ()


@export(v1="contrib.lookup.TableInitializerBase")
class TableInitializerBase(Trackable):
    """What fills a table."""

    def __init__(self, key_dtype: Any, value_dtype: Any) -> None:
        self._key_dtype = dtypes.as_dtype(key_dtype)
        self._value_dtype = dtypes.as_dtype(value_dtype)

    @property
    def key_dtype(self) -> DType:
        """The type of keys."""
        return self._key_dtype

    @property
    def value_dtype(self) -> DType:
        """The type of values."""
        return self._value_dtype

    def initialize(self, table: Any) -> Operation:
        """The operation that fills `table`."""
        raise NotImplementedError


@export(v1="contrib.lookup.InitializableLookupTableBase")
class InitializableLookupTableBase(_Table):
    """A table that is filled once, by an initializer."""

    def __init__(
        self, table_ref: Any, default_value: Any, initializer: Any, name: str = "table",
        is_shared: bool = False,
    ) -> None:  # fmt: skip
        key_dtype, value_dtype = initializer.key_dtype, initializer.value_dtype
        super().__init__(table_ref, key_dtype, value_dtype, default_value, name, is_shared)
        if self._default_value.shape.ndims not in (None, 0):
            raise ValueError(f"default_value must be a scalar, got {self._default_value.shape}")
        self._initializer = self._track_trackable(initializer, "_initializer")
        self._init = initializer.initialize(self)

    def _initialize(self) -> Any:
        return self._initializer.initialize(self)

    @property
    def init(self) -> Operation:
        """The operation that fills the table."""
        return self._init


@export(v1=("contrib.lookup.HashTable", "lookup.StaticHashTable"))
class HashTable(InitializableLookupTableBase):
    """A map that is filled once, by `table.init` or `tf.tables_initializer()`."""

    def __init__(
        self, initializer: Any, default_value: Any, shared_name: str | None = None,
        name: str | None = None,
    ) -> None:  # fmt: skip
        with name_scope(name, "hash_table") as scope:
            self._make = functools.partial(
                gen_ops.hash_table_v2, initializer.key_dtype, initializer.value_dtype
            )
            handle = self._make(shared_name=shared_name or "", name=scope)
            own = name or "hash_table"
            super().__init__(handle, default_value, initializer, own, bool(shared_name))


@export(v1=("contrib.lookup.KeyValueTensorInitializer", "lookup.KeyValueTensorInitializer"))
class KeyValueTensorInitializer(TableInitializerBase):
    """Fills a table from a tensor of keys and one of values."""

    def __init__(
        self, keys: Any, values: Any, key_dtype: Any = None, value_dtype: Any = None,
        name: str | None = None,
    ) -> None:  # fmt: skip
        with name_scope(name, "key_value_init", [keys, values]) as scope:
            self._keys = convert_to_tensor(keys, dtype=key_dtype, name="keys")
            self._values = convert_to_tensor(values, dtype=value_dtype, name="values")
            self._scope = scope
        self._keys.shape.assert_is_compatible_with(self._values.shape)
        super().__init__(self._keys.dtype, self._values.dtype)

    def initialize(self, table: Any) -> Operation:
        """The operation that fills `table`; one of `tf.tables_initializer()` too."""
        table.check_table_dtypes(self._keys.dtype, self._values.dtype)
        init = gen_ops.initialize_table_v2(
            table.table_ref, self._keys, self._values, name=self._scope
        )
        _collect(GraphKeys.TABLE_INITIALIZERS, init)
        return init


@export(v1=("contrib.lookup.TextFileIndex", "lookup.TextFileIndex"), v2="lookup.TextFileIndex")
class TextFileIndex:
    """Parts of a line that are no column."""

    WHOLE_LINE = -2
    LINE_NUMBER = -1


@export(v1=("contrib.lookup.TextFileInitializer", "lookup.TextFileInitializer"))
class TextFileInitializer(TableInitializerBase):
    """Fills a table from the lines of a file.

    `key_index`, `value_index`: a column, `TextFileIndex.WHOLE_LINE` or `LINE_NUMBER`; `vocab_size`:
    how many lines to read, all by default; `delimiter`: between columns.
    """

    def __init__(
        self, filename: Any, key_dtype: Any, key_index: int, value_dtype: Any, value_index: int,
        vocab_size: int | None = None, delimiter: str = "\t", name: str | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(filename, Tensor) and not filename:
            raise ValueError(f"Filename required for {name}.")
        key_dtype, value_dtype = dtypes.as_dtype(key_dtype), dtypes.as_dtype(value_dtype)
        for what, index, dtype in (
            ("Keys", key_index, key_dtype), ("Values", value_index, value_dtype)
        ):  # fmt: skip
            if index < -2:
                raise ValueError(f"Invalid index {index} for {what.lower()}.")
            expected = {-1: dtypes.int64, -2: dtypes.string}.get(index, dtype)
            if dtype != expected and not (index == -2 and dtype.is_integer):
                raise ValueError(
                    f"Signature mismatch. {what} must be dtype {expected.name}, got {dtype.name}."
                )
        if vocab_size is not None and vocab_size <= 0:
            raise ValueError(f"Invalid vocab_size {vocab_size}.")
        self._filename = filename
        if _core.executing_eagerly() or root_graph(get_default_graph())._captures_values:
            # A file that models take along.
            self._filename = self._track_trackable(Asset(filename), "_filename")
        self._attrs = {
            "key_index": key_index, "value_index": value_index,
            "vocab_size": -1 if vocab_size is None else vocab_size, "delimiter": delimiter,
        }  # fmt: skip
        self._name = name
        super().__init__(key_dtype, value_dtype)

    def initialize(self, table: Any) -> Operation:
        """The operation that fills `table`; one of `tf.tables_initializer()` too."""
        table.check_table_dtypes(self.key_dtype, self.value_dtype)
        with name_scope(self._name, "text_file_init", [table.table_ref]) as scope:
            path = self._filename
            path = path.asset_path if isinstance(path, Asset) else path
            filename = convert_to_tensor(path, dtypes.string, name="asset_filepath")
            init = gen_ops.initialize_table_from_text_file_v2(
                table.table_ref, filename, **self._attrs, name=scope
            )
        _collect(GraphKeys.TABLE_INITIALIZERS, init)
        if not isinstance(self._filename, Asset):
            _collect(GraphKeys.ASSET_FILEPATHS, filename)
        return init


@export(v1="contrib.lookup.TextFileStringTableInitializer")
class TextFileStringTableInitializer(TextFileInitializer):
    """Fills a table from numbers of lines to lines."""

    def __init__(
        self, filename: Any, key_column_index: int = TextFileIndex.LINE_NUMBER,
        value_column_index: int = TextFileIndex.WHOLE_LINE, vocab_size: int | None = None,
        delimiter: str = "\t", name: str = "text_file_string_table_init",
    ) -> None:  # fmt: skip
        super().__init__(
            filename, dtypes.int64, key_column_index, dtypes.string, value_column_index,
            vocab_size=vocab_size, delimiter=delimiter, name=name,
        )  # fmt: skip


@export(v1="contrib.lookup.TextFileIdTableInitializer")
class TextFileIdTableInitializer(TextFileInitializer):
    """Fills a table from lines to their numbers."""

    def __init__(
        self, filename: Any, key_column_index: int = TextFileIndex.WHOLE_LINE,
        value_column_index: int = TextFileIndex.LINE_NUMBER, vocab_size: int | None = None,
        delimiter: str = "\t", name: str = "text_file_id_table_init",
        key_dtype: Any = dtypes.string,
    ) -> None:  # fmt: skip
        super().__init__(
            filename, key_dtype, key_column_index, dtypes.int64, value_column_index,
            vocab_size=vocab_size, delimiter=delimiter, name=name,
        )  # fmt: skip


@export(v1="contrib.lookup.HasherSpec")
class HasherSpec(NamedTuple):
    """How words that are in no vocabulary get their buckets."""

    hasher: str
    key: Any


FastHashSpec = export(v1="contrib.lookup.FastHashSpec")(HasherSpec("fasthash", None))


@export(v1="contrib.lookup.StrongHashSpec")
def StrongHashSpec(key: Any) -> HasherSpec:
    """A keyed hash, with two integers as its key."""
    if len(key) != 2:
        raise ValueError(f"key must have size 2, got {len(key)}.")
    if not all(isinstance(part, int) and part >= 0 for part in key):
        raise TypeError(f"Invalid key {key}. Must be unsigned integer values.")
    return HasherSpec("stronghash", list(key))


@export(v1="contrib.lookup.MutableHashTable")
class MutableHashTable(MutableTable):
    """A map that can be added to; values are scalars or vectors, as the default is."""

    def __init__(
        self, key_dtype: Any, value_dtype: Any, default_value: Any,
        shared_name: str | None = None, name: str = "MutableHashTable", checkpoint: bool = True,
    ) -> None:  # fmt: skip
        default = convert_to_tensor(default_value, dtype=value_dtype)
        make = gen_ops.mutable_hash_table_v2
        if default.shape.ndims != 0:
            of_tensors = gen_ops.mutable_hash_table_of_tensors_v2
            make = functools.partial(of_tensors, value_shape=default.shape)
        self._make = functools.partial(make, key_dtype=key_dtype, value_dtype=value_dtype)
        handle = self._make(shared_name=shared_name or "", name=name)
        super().__init__(handle, key_dtype, value_dtype, default, name, bool(shared_name))
        self._is_saved = checkpoint
        if checkpoint:
            _collect(GraphKeys.SAVEABLE_OBJECTS, self)


@export(v1="contrib.lookup.MutableDenseHashTable")
class MutableDenseHashTable(MutableTable):
    """A map between tensors of fixed shapes, that can be added to. `empty_key` and `deleted_key`
    are keys that nobody uses."""

    def __init__(
        self, key_dtype: Any, value_dtype: Any, default_value: Any, empty_key: Any,
        initial_num_buckets: int | None = None, shared_name: str | None = None,
        name: str = "MutableDenseHashTable", checkpoint: bool = True, deleted_key: Any = None,
    ) -> None:  # fmt: skip
        default = convert_to_tensor(default_value, dtype=value_dtype)
        empty = convert_to_tensor(empty_key, dtype=key_dtype)
        deleted = empty if deleted_key is None else convert_to_tensor(deleted_key, dtype=key_dtype)
        self._key_shape = empty.shape
        self._make = functools.partial(
            gen_ops.mutable_dense_hash_table_v2, empty, deleted, value_dtype=value_dtype,
            value_shape=default.shape,
            initial_num_buckets=131072 if initial_num_buckets is None else initial_num_buckets,
        )  # fmt: skip
        handle = self._make(shared_name=shared_name or "", name=name)
        super().__init__(handle, key_dtype, value_dtype, default, name, bool(shared_name))
        self._is_saved = checkpoint
        if checkpoint:
            _collect(GraphKeys.SAVEABLE_OBJECTS, self)
