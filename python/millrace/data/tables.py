"""Lookup tables that datasets fill."""

from typing import Any

from millrace import _core, gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.data.dataset import Dataset
from millrace.data.reducers import assert_cardinality
from millrace.data.structure import TensorLeaf
from millrace.graph.operation import Operation
from millrace.ops.array import zeros
from millrace.state.tables import FastHashSpec, HashTable, TableInitializerBase
from millrace.state.vocabularies import IdTableWithHashBuckets

_ALL = 1 << 40  # more elements than fit anywhere


@export(v1="data.experimental.DatasetInitializer", v2="data.experimental.DatasetInitializer")
class DatasetInitializer(TableInitializerBase):
    """Fills a table from a dataset of pairs of a key and a value, scalars, all of which are read
    when the table is made."""

    def __init__(self, dataset: Dataset):
        if not isinstance(dataset, Dataset):
            raise TypeError(f"`dataset` must be a `tf.data.Dataset` object, got {dataset!r}")
        keys, values = _pair(dataset)
        self.dataset = dataset
        super().__init__(keys.dtype, values.dtype)

    def initialize(self, table: Any) -> Operation:
        """The operation that fills `table`."""
        table.check_table_dtypes(self.key_dtype, self.value_dtype)
        # Where the dataset is empty, so is the batch that there is after none.
        none = Dataset.from_tensors((zeros([0], self.key_dtype), zeros([0], self.value_dtype)))
        batch = self.dataset.batch(_ALL).concatenate(none).take(1)
        keys, values = batch.get_single_element()
        return gen_ops.initialize_table_v2(table.table_ref, keys, values)


def _pair(dataset: Dataset) -> Any:
    spec = dataset._spec
    if not isinstance(spec, tuple) or len(spec) != 2:
        raise ValueError(
            "The `dataset` of a table must have elements that are pairs of a key and a value, got "
            f"{dataset.element_spec}."
        )
    for leaf in spec:
        if type(leaf) is not TensorLeaf or not leaf.shape.is_compatible_with([]):
            raise ValueError(
                f"Keys and values of a table must be scalars, got {dataset.element_spec}."
            )
    return spec


def _default_of(dtype: dtypes.DType) -> Any:
    if dtype.is_integer or dtype.is_floating:
        return -1
    if dtype == dtypes.string:
        return ""
    if dtype == dtypes.bool_:
        return False
    raise TypeError(f"A `default_value` is needed for values of type {dtype.name}.")


@export(v1="data.experimental.table_from_dataset", v2="data.experimental.table_from_dataset")
def table_from_dataset(
    dataset: Any = None, num_oov_buckets: int = 0, vocab_size: int | None = None,
    default_value: Any = None, hasher_spec: Any = FastHashSpec, key_dtype: Any = dtypes.string,
    name: str | None = None,
) -> Any:  # fmt: skip
    """A table from a dataset of pairs of a key and a value.

    Args:
      num_oov_buckets: how many numbers keys that are not there share, after the last; with 0 they
        all get `default_value`. Values are int64 then.
      vocab_size: how many elements the dataset has at least: the first ones are taken.
      default_value: -1, "" or False where it is None.
      key_dtype: string, int32 or int64.
    """
    if not isinstance(dataset, Dataset):
        raise TypeError(f"`dataset` must be a `tf.data.Dataset` object, got {dataset!r}")
    keys, values = _pair(dataset)
    wanted = dtypes.as_dtype(key_dtype)
    if wanted not in (dtypes.string, dtypes.int32, dtypes.int64):
        raise TypeError(f"`key_dtype` must be string, int32 or int64, got {wanted.name}.")
    if wanted.is_integer != keys.dtype.is_integer:
        raise TypeError(f"Keys of {keys.dtype.name} are given, but `key_dtype` is {wanted.name}.")
    if num_oov_buckets < 0:
        raise ValueError(f"`num_oov_buckets` must be non-negative, got {num_oov_buckets}.")
    if num_oov_buckets and values.dtype != dtypes.int64:
        raise TypeError(f"Values must be int64 with `num_oov_buckets`, got {values.dtype.name}.")
    if vocab_size is not None:
        if vocab_size < 0:
            raise ValueError(f"`vocab_size` must be non-negative, got {vocab_size}.")
        dataset = dataset.take(vocab_size).apply(assert_cardinality(vocab_size))
    default = _default_of(values.dtype) if default_value is None else default_value
    with _core.init_scope():
        table = HashTable(DatasetInitializer(dataset), default, name=name)
    if not num_oov_buckets:
        return table
    return IdTableWithHashBuckets(table, num_oov_buckets, hasher_spec, name, wanted)


@export(
    v1="data.experimental.index_table_from_dataset",
    v2="data.experimental.index_table_from_dataset",
)
def index_table_from_dataset(
    dataset: Any = None, num_oov_buckets: int = 0, vocab_size: int | None = None,
    default_value: int = -1, hasher_spec: Any = FastHashSpec, key_dtype: Any = dtypes.string,
    name: str | None = None,
) -> Any:  # fmt: skip
    """A table from the elements of a dataset, scalars, to their places in it. The arguments are
    those of `table_from_dataset`."""
    if not isinstance(dataset, Dataset):
        raise TypeError(f"`dataset` must be a `tf.data.Dataset` object, got {dataset!r}")
    pairs = dataset.enumerate().map(lambda place, key: (key, place))
    return table_from_dataset(
        pairs, num_oov_buckets, vocab_size, default_value, hasher_spec, key_dtype, name
    )
