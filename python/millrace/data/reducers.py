"""tf.data.experimental: elements counted, compared and reduced."""

from typing import Any, Callable

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.data import structure
from millrace.data.dataset import Dataset, int64
from millrace.data.functions import ElementFunction, state_function
from millrace.data.structure import TensorLeaf, attrs_of
from millrace.graph.convert import convert_to_tensor
from millrace.graph.operation import Operation

Transformation = Callable[[Dataset], Dataset]


@export(v1="data.experimental.Reducer", v2="data.experimental.Reducer")
class Reducer:
    """How to reduce the elements of a group.

    Args:
      init_func: from a key, an int64, to the first state.
      reduce_func: from a state and an element to the next state.
      finalize_func: from the last state to an element.
    """

    def __init__(
        self,
        init_func: Callable[..., Any],
        reduce_func: Callable[..., Any],
        finalize_func: Callable[..., Any],
    ):
        self.init_func = init_func
        self.reduce_func = reduce_func
        self.finalize_func = finalize_func


@export(v1="data.experimental.group_by_reducer", v2="data.experimental.group_by_reducer")
def group_by_reducer(key_func: Callable[..., Any], reducer: Reducer) -> Transformation:
    """What `reducer` makes of all elements of one key, in the order of keys.

    Args:
      key_func: from an element to an int64.
    """

    def apply(dataset: Dataset) -> Dataset:
        what = "group_by_reducer"
        key = ElementFunction(key_func, dataset._spec, what)
        if not isinstance(key.result, TensorLeaf) or key.result.dtype != dtypes.int64:
            raise ValueError("`key_func` must return a single tf.int64 tensor.")
        init = ElementFunction(reducer.init_func, TensorLeaf(dtypes.int64, []), what)
        reduce = state_function(reducer.reduce_func, init.result, dataset._spec, "reduce")
        finalize = ElementFunction(reducer.finalize_func, reduce.result, what)
        variant = gen_ops.group_by_reducer_dataset(
            dataset._variant_tensor, key.captured, init.captured, reduce.captured,
            finalize.captured, key_func=key.name, init_func=init.name, reduce_func=reduce.name,
            finalize_func=finalize.name, **attrs_of(finalize.result),
        )  # fmt: skip
        return dataset._of(variant, finalize.result)

    return apply


@export(v1=("data.experimental.unique", "contrib.data.unique"), v2="data.experimental.unique")
def unique() -> Transformation:
    """The elements, scalars of int32, int64 or string, each once."""

    def apply(dataset: Dataset) -> Dataset:
        leaf = dataset._spec
        allowed = (dtypes.int32, dtypes.int64, dtypes.string)
        if not isinstance(leaf, TensorLeaf) or leaf.dtype not in allowed:
            raise TypeError(
                "`tf.data.Dataset.unique` only supports inputs with a single `tf.int32`, "
                "`tf.int64`, or `tf.string` component."
            )
        return dataset._of(gen_ops.unique_dataset(dataset._variant_tensor, **dataset._attrs))

    return apply


@export(v1="data.experimental.assert_cardinality", v2="data.experimental.assert_cardinality")
def assert_cardinality(expected_cardinality: Any) -> Transformation:
    """The dataset, said to have so many elements: FailedPreconditionError where it has not."""

    def apply(dataset: Dataset) -> Dataset:
        variant = gen_ops.assert_cardinality_dataset(
            dataset._variant_tensor, int64(expected_cardinality), **dataset._attrs
        )
        return dataset._of(variant)

    return apply


@export(v1="data.experimental.TFRecordWriter", v2="data.experimental.TFRecordWriter")
class TFRecordWriter:
    """Writes a dataset of strings to a TFRecord file.

    Args:
      compression_type: "", "ZLIB" or "GZIP".
    """

    def __init__(self, filename: Any, compression_type: Any = None):
        self._filename = filename
        self._compression = compression_type or ""

    def write(self, dataset: Dataset) -> Operation:
        """An operation that writes all elements, scalars of strings."""
        if not isinstance(dataset, Dataset):
            raise TypeError(f"`dataset` must be a `tf.data.Dataset` object, got {dataset!r}")
        leaves = structure.flatten(dataset._spec)
        if [leaf.dtype for leaf in leaves] != [dtypes.string] or leaves[0].shape.rank != 0:
            raise TypeError(
                "`dataset` must produce scalar `DT_STRING` tensors whereas it produces shape "
                f"{dataset.output_shapes} and types {dataset.output_types}"
            )
        return gen_ops.dataset_to_tf_record(
            dataset._variant_tensor,
            convert_to_tensor(self._filename, dtype=dtypes.string),
            convert_to_tensor(self._compression, dtype=dtypes.string),
        )
