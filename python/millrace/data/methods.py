"""The methods of Dataset that are made of others, and the public name of the class that has all."""

from typing import Any, Callable

from millrace.core import dtypes
from millrace.core.export import export
from millrace.data import experimental, reducers, stored, whole
from millrace.data.dataset import Dataset
from millrace.data.eager_iterator import OwnedIterator
from millrace.data.optional import Optional, get_next_as_optional


def scan(
    self: Dataset, initial_state: Any, scan_func: Callable[..., Any], name: str | None = None
) -> Dataset:
    """`scan_func(state, element)` gives the next state and an element of the result."""
    del name
    return self.apply(experimental.scan(initial_state, scan_func))


def ignore_errors(self: Dataset, log_warning: bool = False, name: str | None = None) -> Dataset:
    """The elements that can be made without an error."""
    del log_warning, name
    return self.apply(experimental.ignore_errors())


def group_by_window(
    self: Dataset, key_func: Callable[..., Any], reduce_func: Callable[..., Any],
    window_size: Any = None, window_size_func: Any = None, name: str | None = None,
) -> Dataset:  # fmt: skip
    """Gathers elements of one key, and gives what `reduce_func` makes of so many of them."""
    del name
    return self.apply(
        experimental.group_by_window(key_func, reduce_func, window_size, window_size_func)
    )


def bucket_by_sequence_length(
    self: Dataset, element_length_func: Callable[..., Any], bucket_boundaries: Any,
    bucket_batch_sizes: Any, padded_shapes: Any = None, padding_values: Any = None,
    pad_to_bucket_boundary: bool = False, no_padding: bool = False, drop_remainder: bool = False,
    name: str | None = None,
) -> Dataset:  # fmt: skip
    """Batches of elements of like length, padded."""
    del name
    return self.apply(
        experimental.bucket_by_sequence_length(
            element_length_func,
            bucket_boundaries,
            bucket_batch_sizes,
            padded_shapes,
            padding_values,
            pad_to_bucket_boundary,
            no_padding,
            drop_remainder,
        )  # fmt: skip
    )


def unique(self: Dataset, name: str | None = None) -> Dataset:
    """Each element once."""
    del name
    return self.apply(reducers.unique())


def rejection_resample(
    self: Dataset, class_func: Callable[..., Any], target_dist: Any, initial_dist: Any = None,
    seed: Any = None, name: str | None = None,
) -> Dataset:  # fmt: skip
    """Pairs of a class and an element, left out so often that classes are as `target_dist` says."""
    del name
    return self.apply(experimental.rejection_resample(class_func, target_dist, initial_dist, seed))


def random(
    seed: Any = None, rerandomize_each_iteration: bool | None = None, name: str | None = None
) -> Dataset:
    """Random int64 numbers below 2^32, without end."""
    del rerandomize_each_iteration, name
    return experimental.RandomDataset(seed)


def sparse_batch(
    self: Dataset, batch_size: Any, row_shape: Any, name: str | None = None
) -> Dataset:
    """Batches of elements whose sizes differ, as sparse tensors with rows of `row_shape`."""
    del name
    return self.apply(experimental.dense_to_sparse_batch(batch_size, row_shape))


def ragged_batch(
    self: Dataset, batch_size: Any, drop_remainder: Any = False,
    row_splits_dtype: Any = dtypes.int64, name: str | None = None,
) -> Dataset:  # fmt: skip
    """Batches of elements whose sizes differ, as ragged tensors."""
    del name
    return self.apply(
        experimental.dense_to_ragged_batch(batch_size, drop_remainder, row_splits_dtype)
    )


def save(
    self: Dataset, path: Any, compression: str | None = None, shard_func: Any = None,
    checkpoint_args: Any = None,
) -> None:  # fmt: skip
    """Writes the elements into a folder, for `Dataset.load`."""
    del checkpoint_args
    stored.save(self, path, compression, shard_func)


def snapshot(
    self: Dataset, path: Any, compression: Any = "AUTO", reader_func: Any = None,
    shard_func: Any = None, name: str | None = None,
) -> Dataset:  # fmt: skip
    """The elements, written into a folder when they are first made, and read from it afterwards."""
    del name
    return self.apply(whole.snapshot(path, compression, reader_func, shard_func))


def next_as_optional(self: OwnedIterator) -> Optional:
    """The next element, without a value where there is none."""
    return get_next_as_optional(self)


def counter(
    start: Any = 0, step: Any = 1, dtype: Any = dtypes.int64, name: str | None = None
) -> Dataset:
    """The numbers from `start` on, without end."""
    del name
    return experimental.Counter(start, step, dtype)


for _method in (
    scan, ignore_errors, group_by_window, bucket_by_sequence_length, unique, rejection_resample,
    sparse_batch, ragged_batch, save, snapshot,
):  # fmt: skip
    setattr(Dataset, _method.__name__, _method)
for _function in (
    random, counter, experimental.choose_from_datasets, experimental.sample_from_datasets,
    stored.load,
):  # fmt: skip
    setattr(Dataset, _function.__name__, staticmethod(_function))
OwnedIterator.get_next_as_optional = next_as_optional

export(v1=("data.Dataset", "contrib.data.Dataset"), v2="data.Dataset")(Dataset)
