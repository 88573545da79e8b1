"""tf.data.experimental and tf.contrib.data: transformations for `Dataset.apply`."""

from typing import Any, Callable

import numpy as np

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.face import part_of_v2
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor
from millrace.data import structure
from millrace.data.dataset import Dataset, int64, seeds
from millrace.data.functions import ElementFunction, state_function
from millrace.data.structure import DatasetLeaf, RaggedLeaf, SparseLeaf, TensorLeaf, attrs_of
from millrace.graph.convert import convert_to_tensor
from millrace.ops.ragged.tensor import RaggedTensor
from millrace.ops.random import random_uniform

Transformation = Callable[[Dataset], Dataset]


@export(
    v1=(
        "data.experimental.map_and_batch",
        "data.experimental.map_and_batch_with_legacy_function",
        "contrib.data.map_and_batch",
    ),
    v2="data.experimental.map_and_batch",
)
def map_and_batch(
    map_func: Callable[..., Any], batch_size: Any, num_parallel_batches: Any = None,
    drop_remainder: Any = False, num_parallel_calls: Any = None,
) -> Transformation:  # fmt: skip
    """Batches of `map_func` of elements, made in parallel.

    Args:
      num_parallel_calls: how many calls at once; a batch's worth by default.
      num_parallel_batches: the same in batches.
    """
    if num_parallel_batches is not None and num_parallel_calls is not None:
        raise ValueError(
            "The `num_parallel_batches` and `num_parallel_calls` arguments are mutually exclusive."
        )
    calls = num_parallel_calls
    if calls is None:
        size = int64(batch_size)
        calls = size if num_parallel_batches is None else size * int64(num_parallel_batches)

    def apply(dataset: Dataset) -> Dataset:
        function = ElementFunction(map_func, dataset._spec, "map_and_batch")
        mapped = gen_ops.parallel_map_dataset_v2(
            dataset._variant_tensor, function.captured, int64(calls), f=function.name,
            preserve_cardinality=True, **attrs_of(function.result),
        )  # fmt: skip
        return dataset._of(mapped, function.result).batch(batch_size, drop_remainder)

    return apply


@export(
    v1=("data.experimental.shuffle_and_repeat", "contrib.data.shuffle_and_repeat"),
    v2="data.experimental.shuffle_and_repeat",
)
def shuffle_and_repeat(buffer_size: Any, count: Any = None, seed: Any = None) -> Transformation:
    """`shuffle`, then `repeat`."""
    return lambda dataset: dataset.shuffle(buffer_size, seed).repeat(count)


@export(
    v1=("data.experimental.parallel_interleave", "contrib.data.parallel_interleave"),
    v2="data.experimental.parallel_interleave",
)
def parallel_interleave(
    map_func: Callable[..., Any], cycle_length: Any, block_length: Any = 1, sloppy: Any = False,
    buffer_output_elements: Any = None, prefetch_input_elements: Any = None,
) -> Transformation:  # fmt: skip
    """As `interleave`, each dataset on a thread of its own. Elements come in order, `sloppy` or
    not."""
    del sloppy, buffer_output_elements, prefetch_input_elements
    return lambda dataset: dataset.interleave(
        map_func, cycle_length, block_length, num_parallel_calls=cycle_length
    )


@export(v1=("data.experimental.scan", "contrib.data.scan"), v2="data.experimental.scan")
def scan(initial_state: Any, scan_func: Callable[..., Any]) -> Transformation:
    """`scan_func(state, element)` gives the next state and an element of the result."""

    def apply(dataset: Dataset) -> Dataset:
        state = structure.leaf_values(initial_state)
        spec = structure.map_leaves(structure.leaf_of, state)
        function = state_function(scan_func, spec, dataset._spec, "scan")
        result = function.result[1]
        variant = gen_ops.scan_dataset(
            dataset._variant_tensor, structure.to_tensors(spec, state), function.captured,
            f=function.name, preserve_cardinality=True, **attrs_of(result),
        )  # fmt: skip
        return dataset._of(variant, result)

    return apply


@export(
    v1=("data.experimental.group_by_window", "contrib.data.group_by_window"),
    v2="data.experimental.group_by_window",
)
def group_by_window(
    key_func: Callable[..., Any], reduce_func: Callable[..., Any], window_size: Any = None,
    window_size_func: Callable[..., Any] | None = None,
) -> Transformation:  # fmt: skip
    """Gathers elements of one key, and gives what `reduce_func` makes of so many of them.

    Args:
      key_func: from an element to an int64.
      reduce_func: from a key and a dataset of elements to a dataset.
      window_size: how many elements of a key at a time, or
      window_size_func: the same as a function of the key.
    """
    if (window_size is None) == (window_size_func is None):
        raise ValueError("Must pass either window_size or window_size_func, and not both.")
    size_func = window_size_func or (lambda _: int64(window_size))

    def apply(dataset: Dataset) -> Dataset:
        def number(function: Callable[..., Any], what: str) -> Callable[..., Any]:
            def call(*args: Any) -> Tensor:
                made = convert_to_tensor(function(*args))
                if made.dtype != dtypes.int64:
                    made = gen_ops.cast(made, DstT=dtypes.int64)
                if not made.shape.is_compatible_with([]):
                    raise ValueError(f"`{what}` must return a single tf.int64 scalar.")
                return made

            return call

        key_leaf = TensorLeaf(dtypes.int64, [])
        key = ElementFunction(number(key_func, "key_func"), dataset._spec, "group_by_window")
        size = ElementFunction(number(size_func, "window_size_func"), key_leaf, "group_by_window")
        group = (key_leaf, DatasetLeaf(Dataset, dataset._spec))
        reduce = ElementFunction(reduce_func, group, "group_by_window")
        if not isinstance(reduce.result, DatasetLeaf):
            raise TypeError("`reduce_func` must return a `Dataset` object.")
        spec = reduce.result.spec
        variant = gen_ops.group_by_window_dataset(
            dataset._variant_tensor, key.captured, reduce.captured, size.captured,
            key_func=key.name, reduce_func=reduce.name, window_size_func=size.name,
            **attrs_of(spec),
        )  # fmt: skip
        return dataset._of(variant, spec)

    return apply


@export(
    v1=("data.experimental.bucket_by_sequence_length", "contrib.data.bucket_by_sequence_length"),
    v2="data.experimental.bucket_by_sequence_length",
)
def bucket_by_sequence_length(
    element_length_func: Callable[..., Any], bucket_boundaries: Any, bucket_batch_sizes: Any,
    padded_shapes: Any = None, padding_values: Any = None, pad_to_bucket_boundary: bool = False,
    no_padding: bool = False, drop_remainder: bool = False,
) -> Transformation:  # fmt: skip
    """Batches of elements of like length, padded.

    Args:
      element_length_func: from an element to its length.
      bucket_boundaries: upper bounds, not included, of the lengths of the buckets but the last.
      bucket_batch_sizes: how many elements a batch of each bucket has, one more than boundaries.
      pad_to_bucket_boundary: as long as the bucket allows, not as long as the longest.
      no_padding: elements have one length.
    """
    if len(bucket_batch_sizes) != len(bucket_boundaries) + 1:
        raise ValueError("len(bucket_batch_sizes) must equal len(bucket_boundaries) + 1")
    bounds = np.array(bucket_boundaries, np.int64)
    sizes = np.array(bucket_batch_sizes, np.int64)

    def key_func(*element: Any) -> Tensor:
        length = convert_to_tensor(element_length_func(*element))
        reached = gen_ops.less_equal(bounds, gen_ops.cast(length, DstT=dtypes.int64))
        return gen_ops.sum(gen_ops.cast(reached, DstT=dtypes.int64), [0])

    def size_of(bucket: Tensor) -> Tensor:
        return gen_ops.gather_v2(sizes, bucket, 0)

    def padded(spec: Any, bucket: Tensor) -> Any:
        if not pad_to_bucket_boundary:
            if padded_shapes is not None:
                return padded_shapes
            return structure.map_leaves(lambda leaf: leaf.shape, spec)
        longest = gen_ops.sub(gen_ops.gather_v2(np.append(bounds, 0), bucket, 0), np.int64(1))

        def fill(leaf: TensorLeaf) -> list[Any]:
            return [longest if size is None else size for size in leaf.shape.as_list()]

        if padded_shapes is None:
            return structure.map_leaves(fill, spec)
        shapes = structure.leaves_like(spec, padded_shapes, None, "padded_shapes")
        leaves = [TensorLeaf(dtypes.int64, TensorShape(shape)) for shape in shapes]
        return structure.pack(spec, [fill(leaf) for leaf in leaves])

    def reduce_func(bucket: Tensor, group: Dataset) -> Dataset:
        size = size_of(bucket)
        if no_padding:
            return group.batch(size, drop_remainder=drop_remainder)
        return group.padded_batch(
            size, padded(group._spec, bucket), padding_values, drop_remainder=drop_remainder
        )

    return lambda dataset: dataset.apply(
        group_by_window(key_func, reduce_func, window_size_func=size_of)
    )


@export(
    v1=("data.experimental.ignore_errors", "contrib.data.ignore_errors"),
    v2="data.experimental.ignore_errors",
)
def ignore_errors() -> Transformation:
    """The elements that can be made without an error."""
    return lambda dataset: dataset._of(
        gen_ops.ignore_errors_dataset(dataset._variant_tensor, **dataset._attrs)
    )


@export(v1=("data.experimental.unbatch", "contrib.data.unbatch"), v2="data.experimental.unbatch")
def unbatch() -> Transformation:
    """The rows of the elements."""
    return lambda dataset: dataset.unbatch()


@export(v1="contrib.data.sliding_window_batch")
def sliding_window_batch(
    window_size: Any, stride: Any = None, window_shift: Any = None, window_stride: Any = 1
) -> Transformation:
    """Batches of `window_size` elements, each beginning `window_shift` (or `stride`) after the one
    before; `window_stride` from element to element."""
    if stride is not None and window_shift is not None:
        raise ValueError("Cannot specify both `stride` and `window_shift`")
    shift = stride if window_shift is None else window_shift

    def batched(*windows: Any) -> Dataset:
        whole = windows[0] if len(windows) == 1 else windows
        return Dataset.zip(whole).batch(window_size, drop_remainder=True)

    def apply(dataset: Dataset) -> Dataset:
        moved = 1 if shift is None else shift
        return dataset.window(window_size, moved, window_stride, True).flat_map(batched)

    return apply


@export(
    v1=("data.experimental.dense_to_sparse_batch", "contrib.data.dense_to_sparse_batch"),
    v2="data.experimental.dense_to_sparse_batch",
)
def dense_to_sparse_batch(batch_size: Any, row_shape: Any) -> Transformation:
    """Batches of elements whose sizes differ, as sparse tensors with rows of `row_shape`."""
    shape = TensorShape(row_shape)
    sizes = [-1 if size is None else size for size in shape.as_list()]

    def apply(dataset: Dataset) -> Dataset:
        batch = TensorShape([None]).concatenate(shape)
        spec = SparseLeaf(dataset._spec.dtype, batch, form=dtypes.variant)
        variant = gen_ops.dense_to_sparse_batch_dataset(
            dataset._variant_tensor, int64(batch_size), np.array(sizes, np.int64), **attrs_of(spec)
        )
        return dataset._of(variant, spec)

    return apply


@export(v1="data.experimental.dense_to_ragged_batch", v2="data.experimental.dense_to_ragged_batch")
def dense_to_ragged_batch(
    batch_size: Any, drop_remainder: Any = False, row_splits_dtype: Any = dtypes.int64
) -> Transformation:
    """Batches of elements whose sizes differ, as ragged tensors; parts whose shape is known are
    batched as ever."""

    def apply(dataset: Dataset) -> Dataset:
        def ragged_rank(leaf: Any) -> int | None:
            fixed = type(leaf) is not TensorLeaf or leaf.shape.rank is None
            if fixed or leaf.shape.is_fully_defined():
                return None
            return max(i for i, size in enumerate(leaf.shape.as_list()) if size is None)

        leaves = structure.flatten(dataset._spec)
        ranks = [ragged_rank(leaf) for leaf in leaves]
        made = [
            leaf if rank is None else RaggedLeaf(leaf.dtype, leaf.shape, rank, row_splits_dtype)
            for leaf, rank in zip(leaves, ranks, strict=True)
        ]
        spec = structure.pack(dataset._spec, made)

        def packed(*element: Any) -> Any:
            whole = element if isinstance(dataset._spec, tuple) else element[0]
            parts = []
            for leaf, rank, part in zip(made, ranks, structure.flatten(whole), strict=True):
                if rank:
                    part = RaggedTensor.from_tensor(
                        part, ragged_rank=rank, row_splits_dtype=row_splits_dtype
                    )
                parts.append(leaf.to_tensor(part))
            return tuple(parts)

        variant = dataset.map(packed)._variant_tensor
        return dataset._of(variant, spec).batch(batch_size, drop_remainder)

    return apply


@export(v1="contrib.data.batch_and_drop_remainder")
def batch_and_drop_remainder(batch_size: Any) -> Transformation:
    """Batches, without a last one that is smaller."""
    return lambda dataset: dataset.batch(batch_size, drop_remainder=True)


@export(v1="contrib.data.padded_batch_and_drop_remainder")
def padded_batch_and_drop_remainder(
    batch_size: Any, padded_shapes: Any, padding_values: Any = None
) -> Transformation:
    """Padded batches, without a last one that is smaller."""
    return lambda dataset: dataset.padded_batch(batch_size, padded_shapes, padding_values, True)


@export(
    v1=("data.experimental.enumerate_dataset", "contrib.data.enumerate_dataset"),
    v2="data.experimental.enumerate_dataset",
)
def enumerate_dataset(start: Any = 0) -> Transformation:
    """Pairs of a number and an element."""
    return lambda dataset: dataset.enumerate(start)


@export(
    v1=("data.experimental.rejection_resample", "contrib.data.rejection_resample"),
    v2="data.experimental.rejection_resample",
)
def rejection_resample(
    class_func: Callable[..., Any], target_dist: Any, initial_dist: Any = None, seed: Any = None
) -> Transformation:
    """Pairs of a class and an element; elements are left out so that classes come as often as
    wanted.

    Args:
      class_func: from an element to its class, a number.
      target_dist: how often each class is to come, a vector of shares.
      initial_dist: how often each comes; counted on the way by default.
    """

    def acceptance(target: Tensor, initial: Tensor) -> Tensor:
        # A class that never comes need not be accepted.
        least = convert_to_tensor(np.finfo(np.float32).tiny, dtype=target.dtype)
        ratio = gen_ops.div_no_nan(target, gen_ops.maximum(initial, least))
        return gen_ops.div_no_nan(ratio, gen_ops.max(ratio, [0]))

    def apply(dataset: Dataset) -> Dataset:
        target = convert_to_tensor(target_dist, dtypes.float32)

        def classified(*element: Any) -> Any:
            kind = gen_ops.cast(convert_to_tensor(class_func(*element)), DstT=dtypes.int64)
            return kind, element[0] if len(element) == 1 else element

        pairs = dataset.map(classified)
        if initial_dist is not None:
            shares = convert_to_tensor(initial_dist, dtypes.float32)
            pairs = pairs.map(lambda kind, element: (kind, element, acceptance(target, shares)))
        else:

            def count(counts: Tensor, pair: Any) -> Any:
                kind, element = pair
                one = gen_ops.one_hot(kind, gen_ops.size(counts), 1.0, 0.0)
                new = counts + one
                return new, (kind, element, acceptance(target, new / gen_ops.sum(new, [0])))

            # As if each class had come a few times: the first shares mean little.
            few = gen_ops.zeros_like(target) + 10.0
            pairs = pairs.apply(scan(few, count))

        def accepted(kind: Tensor, element: Any, shares: Tensor) -> Tensor:
            del element
            drawn = random_uniform([], seed=seed)
            return gen_ops.less(drawn, gen_ops.gather_v2(shares, kind, 0))

        return pairs.filter(accepted).map(lambda kind, element, shares: (kind, element))

    return apply


@export(v1="data.experimental.take_while", v2="data.experimental.take_while")
def take_while(predicate: Callable[..., Any]) -> Transformation:
    """The elements before the first for which `predicate` is not true."""
    return lambda dataset: dataset.take_while(predicate)


@export(v1=("data.experimental.Counter", "contrib.data.Counter"), v2="data.experimental.Counter")
def Counter(start: Any = 0, step: Any = 1, dtype: Any = dtypes.int64) -> Dataset:
    """The numbers from `start` on, without end."""
    begin, width = convert_to_tensor(start, dtype), convert_to_tensor(step, dtype)
    return (
        Dataset.from_tensors(0).repeat().apply(scan(begin, lambda state, _: (state + width, state)))
    )


@export(
    v1=("data.experimental.RandomDataset", "contrib.data.RandomDataset"),
    v2="data.experimental.RandomDataset",
)
class RandomDataset(Dataset):
    """Random int64 numbers below 2^32, without end."""

    def __init__(self, seed: Any = None):
        spec = TensorLeaf(dtypes.int64, [])
        super().__init__(gen_ops.random_dataset(*seeds(seed), **attrs_of(spec)), spec)


@export(
    v1=("data.experimental.choose_from_datasets", "contrib.data.choose_from_datasets"),
    v2="data.experimental.choose_from_datasets",
)
def choose_from_datasets(
    datasets: Any, choice_dataset: Dataset, stop_on_empty_dataset: bool = False
) -> Dataset:
    """The next element of the dataset whose number `choice_dataset` gives."""
    leaves = structure.flatten(choice_dataset._spec)
    if len(leaves) != 1 or leaves[0].dtype != dtypes.int64 or leaves[0].shape.rank not in (None, 0):
        raise TypeError("`choice_dataset` must be a dataset of scalar `tf.int64` tensors.")
    return _directed(list(datasets), choice_dataset, stop_on_empty_dataset)


@export(
    v1=("data.experimental.sample_from_datasets", "contrib.data.sample_from_datasets"),
    v2="data.experimental.sample_from_datasets",
)
def sample_from_datasets(datasets: Any, weights: Any = None, seed: Any = None) -> Dataset:
    """Elements of datasets chosen at random.

    `weights`: how likely each is, all alike by default; a vector, or a dataset of vectors.
    """
    datasets = list(datasets)
    count = len(datasets)
    if isinstance(weights, Dataset):
        likely = weights.map(lambda w: gen_ops.log(convert_to_tensor(w)))
    else:
        if weights is not None and not isinstance(weights, Tensor) and len(weights) != count:
            raise ValueError("`weights` must be `None` or a list of length `len(datasets)`.")
        shares = np.ones(count) if weights is None else weights
        likely = Dataset.from_tensors(gen_ops.log(convert_to_tensor(shares))).repeat()

    def draw(weight: Tensor, number: Tensor) -> Tensor:
        # A uniform number, compared with the sums of the shares.
        shares = gen_ops.softmax(gen_ops.expand_dims(gen_ops.cast(weight, DstT=dtypes.float64), 0))
        sums = gen_ops.cumsum(gen_ops.squeeze(shares, [0]), 0)
        place = gen_ops.cast(number, DstT=dtypes.float64) * (1.0 / 2**32)
        passed = gen_ops.cast(gen_ops.less_equal(sums, place), DstT=dtypes.int64)
        return gen_ops.minimum(gen_ops.sum(passed, [0]), np.int64(count - 1))

    selector = Dataset.zip((likely, RandomDataset(seed))).map(draw)
    return _directed(datasets, selector, False)


def _directed(datasets: list[Dataset], selector: Dataset, stop_on_empty: bool) -> Dataset:
    if not datasets:
        raise ValueError("expected at least one dataset, got none")
    for other in datasets[1:]:
        if other.output_types != datasets[0].output_types:
            raise TypeError(
                f"datasets must have the same type, got {datasets[0].output_types} and "
                f"{other.output_types}"
            )
    leaves = structure.flatten(datasets[0]._spec)
    for other in datasets[1:]:
        leaves = [a.common(b) for a, b in zip(leaves, structure.flatten(other._spec), strict=True)]
    spec = structure.pack(datasets[0]._spec, leaves)
    variant = gen_ops.directed_interleave_dataset(
        selector._variant_tensor, [d._variant_tensor for d in datasets],
        stop_on_empty_dataset=stop_on_empty, **attrs_of(spec),
    )  # fmt: skip
    return Dataset(variant, spec)


@export(
    v1=("data.experimental.get_single_element", "contrib.data.get_single_element"),
    v2="data.experimental.get_single_element",
)
def get_single_element(dataset: Dataset) -> Any:
    """The only element of a dataset."""
    if not isinstance(dataset, Dataset):
        raise TypeError("`dataset` must be a `tf.data.Dataset` object.")
    return dataset.get_single_element()


@export(
    v1=("data.experimental.cardinality", "data.experimental.dataset_cardinality"),
    v2="data.experimental.cardinality",
)
def cardinality(dataset: Dataset) -> Tensor:
    """The number of elements: -1 for a dataset without end, -2 when it is not known."""
    return dataset.cardinality()


INFINITE_CARDINALITY = export(
    v1=("data.experimental.INFINITE_CARDINALITY", "data.INFINITE_CARDINALITY"),
    v2=("data.experimental.INFINITE_CARDINALITY", "data.INFINITE_CARDINALITY"),
)(-1)
UNKNOWN_CARDINALITY = export(
    v1=("data.experimental.UNKNOWN_CARDINALITY", "data.UNKNOWN_CARDINALITY"),
    v2=("data.experimental.UNKNOWN_CARDINALITY", "data.UNKNOWN_CARDINALITY"),
)(-2)


@export(
    v1=("data.experimental.prefetch_to_device", "contrib.data.prefetch_to_device"),
    v2="data.experimental.prefetch_to_device",
)
def prefetch_to_device(device: Any, buffer_size: Any = None) -> Transformation:
    """`prefetch`: elements are copied to a device when they are used there."""
    del device
    return lambda dataset: dataset.prefetch(buffer_size)


@export(v1="data.experimental.copy_to_device", v2="data.experimental.copy_to_device")
def copy_to_device(target_device: Any, source_device: Any = "/cpu:0") -> Transformation:
    """The dataset as it is: elements are copied to a device when they are used there."""
    del target_device, source_device
    return lambda dataset: dataset


__getattr__ = part_of_v2("data.experimental")
