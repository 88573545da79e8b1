"""tf.data.Dataset."""

from typing import Any, Callable

import numpy as np

from millrace import _core, gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor
from millrace.data import specs, structure
from millrace.data.batching import Padding, rows_of
from millrace.data.eager_iterator import NumpyIterator, OwnedIterator
from millrace.data.functions import ElementFunction, state_function, take_made
from millrace.data.generator import generator_dataset
from millrace.data.iterator import Iterator, begin_once
from millrace.data.optional import StagedIterator
from millrace.data.options import ExternalStatePolicy, Options
from millrace.data.structure import DatasetLeaf, TensorLeaf, attrs_of, flatten, map_leaves
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import get_default_graph
from millrace.graph.graph import root_graph
from millrace.ops.random import get_seed

AUTOTUNE = export(
    v1=("data.experimental.AUTOTUNE", "data.AUTOTUNE", "contrib.data.AUTOTUNE"),
    v2=("data.experimental.AUTOTUNE", "data.AUTOTUNE"),
)(-1)

# tensorflow.data.Options with `deterministic`.
_ORDER = {False: b"\x08\x00", True: b"\x08\x01"}


def int64(value: Any, default: int | None = None, name: str | None = None) -> Tensor:
    """A number that a dataset is given, which may be a tensor."""
    return convert_to_tensor(default if value is None else value, dtype=dtypes.int64, name=name)


def seeds(seed: Any) -> tuple[Tensor, Tensor]:
    """The two seeds of a dataset, zeros where none is set."""
    first, second = get_seed(seed) if not isinstance(seed, Tensor) else (0, seed)
    return int64(first, 0), int64(second, 0)


class Dataset:
    """A sequence of elements, which are structures of tensors: what a program reads.

    A dataset is a value of the graph. Methods make others of it; an iterator runs it.
    """

    def __init__(
        self, variant_tensor: Tensor, spec: Any, options: Options | None = None, inputs: Any = ()
    ):
        self._variant_tensor = variant_tensor
        self._spec = spec
        self._options = options
        # What it needs of Python when it is iterated outside of graphs.
        self._keeps = (*inputs, *take_made())

    # What elements are.

    @property
    def output_types(self) -> Any:
        """The types of the parts of an element."""
        return map_leaves(lambda leaf: leaf.dtype, self._spec)

    @property
    def output_shapes(self) -> Any:
        """The shapes of the parts of an element."""
        return map_leaves(lambda leaf: leaf.shape, self._spec)

    @property
    def output_classes(self) -> Any:
        """The classes of the parts of an element: Tensor or SparseTensor."""
        return map_leaves(lambda leaf: leaf.cls, self._spec)

    def __repr__(self) -> str:
        shapes = map_leaves(lambda leaf: tuple(as_list(leaf.shape)), self._spec)
        types = map_leaves(lambda leaf: leaf.dtype.name, self._spec)
        return f"<{type(self).__name__} shapes: {shapes}, types: {types}>"

    def __iter__(self) -> Any:
        if not _core.executing_eagerly() and not root_graph(get_default_graph())._captures_values:
            raise RuntimeError(
                "__iter__() is only supported when eager execution is enabled: make an iterator, "
                "iterator = dataset.make_one_shot_iterator(), and run iterator.get_next()"
            )
        return OwnedIterator(self)

    def __bool__(self) -> bool:
        return True

    __nonzero__ = __bool__

    def __len__(self) -> int:
        """The number of elements. TypeError where it is infinite or not known."""
        if not _core.executing_eagerly():
            raise TypeError(
                "`tf.data.Dataset` only supports `len` in eager mode. Use "
                "`tf.data.Dataset.cardinality()` instead."
            )
        count = int(self.cardinality())
        if count == -1:
            raise TypeError("The dataset is infinite.")
        if count == -2:
            raise TypeError("The dataset length is unknown.")
        return count

    @property
    def element_spec(self) -> Any:
        """What the parts of an element are: a structure of TensorSpecs and such."""
        return specs.spec_of_leaves(self._spec)

    @property
    def _type_spec(self) -> Any:
        return specs.DatasetSpec(self.element_spec)

    def _may_save_state(self) -> bool:
        """Whether the place of an iterator says all that it is to go on with."""
        options = self.options()
        policy = options.experimental_external_state_policy or options.external_state_policy
        if policy in (ExternalStatePolicy.WARN, ExternalStatePolicy.IGNORE):
            return True
        todo: list[Any] = [self]
        seen = set()
        for kept in todo:
            if isinstance(kept, Dataset) and id(kept) not in seen:
                seen.add(id(kept))
                todo += kept._keeps
            elif isinstance(kept, ElementFunction) and kept.stateful:
                return False
        return True

    def as_numpy_iterator(self) -> NumpyIterator:
        """An iterator that gives arrays in place of tensors. Outside of graphs only."""
        if not _core.executing_eagerly():
            raise RuntimeError(
                "`tf.data.Dataset.as_numpy_iterator()` is only supported in eager mode."
            )
        return NumpyIterator(self)

    def cardinality(self) -> Tensor:
        """The number of elements: -1 for a dataset without end, -2 when it is not known."""
        return gen_ops.dataset_cardinality(self._variant_tensor)

    def get_single_element(self, name: str | None = None) -> Any:
        """The only element; InvalidArgumentError where there is another number of them."""
        values = gen_ops.dataset_to_single_element(self._variant_tensor, name=name, **self._attrs)
        values = list(values) if isinstance(values, (list, tuple)) else [values]
        return structure.from_tensors(self._spec, values)

    def _staged_iterator(self) -> StagedIterator:
        return StagedIterator.over(self)

    def _as_leaf(self) -> DatasetLeaf:
        return DatasetLeaf(Dataset, self._spec)

    def _as_variant_tensor(self) -> Tensor:
        return self._variant_tensor

    def _of(self, variant_tensor: Tensor, spec: Any = None) -> "Dataset":
        spec = self._spec if spec is None else spec
        return Dataset(variant_tensor, spec, self._options, (self,))

    @property
    def _attrs(self) -> dict[str, Any]:
        return attrs_of(self._spec)

    def options(self) -> Options:
        """The options of this dataset and those it is made of."""
        return Options() if self._options is None else self._options

    def with_options(self, options: Options, name: str | None = None) -> "Dataset":
        """This dataset with options; those set before stay where `options` does not set them."""
        merged = self.options().merge(options)
        budget = merged.autotune.ram_budget
        variant = self._variant_tensor
        if budget:
            variant = gen_ops.model_dataset(variant, ram_budget=int(budget), **self._attrs)
        if options._deterministic is not None:
            variant = gen_ops.options_dataset(
                variant, serialized_options=_ORDER[options._deterministic], **self._attrs
            )
        return Dataset(variant, self._spec, merged, (self,))

    # Where elements come from.

    @staticmethod
    def from_tensors(tensors: Any, name: str | None = None) -> "Dataset":
        """A dataset of one element."""
        value = structure.leaf_values(tensors)
        spec = map_leaves(structure.leaf_of, value)
        parts = structure.to_tensors(spec, value)
        shapes = attrs_of(spec)["output_shapes"]
        return Dataset(gen_ops.tensor_dataset(parts, output_shapes=shapes), spec)

    @staticmethod
    def from_tensor_slices(tensors: Any, name: str | None = None) -> "Dataset":
        """A dataset of the rows of tensors, which have as many rows each."""
        value = structure.leaf_values(tensors)
        wholes = flatten(map_leaves(structure.leaf_of, value))
        rows = None
        leaves = []
        for leaf in wholes:
            if leaf.shape.rank == 0:
                raise ValueError("from_tensor_slices: a scalar has no rows, use from_tensors")
            count = as_list(leaf.shape)[0] if leaf.shape.rank else None
            if rows is not None and count is not None and rows != count:
                raise ValueError(f"from_tensor_slices: Dimensions {rows} and {count} are not equal")
            rows = count if rows is None else rows
            leaves.append(leaf.unbatched())
        spec = structure.pack(value, leaves)
        parts = [leaf.to_rows(v) for leaf, v in zip(leaves, flatten(value), strict=True)]
        shapes = attrs_of(spec)["output_shapes"]
        return Dataset(gen_ops.tensor_slice_dataset(parts, output_shapes=shapes), spec)

    @staticmethod
    def from_sparse_tensor_slices(sparse_tensor: Any) -> "Dataset":
        """A dataset of the rows of a sparse tensor, each as indices, values and shape."""
        rank = sparse_tensor.shape.rank
        inner = None if rank is None else rank - 1
        variant = gen_ops.sparse_tensor_slice_dataset(
            sparse_tensor.indices, sparse_tensor.values, sparse_tensor.dense_shape
        )
        return Dataset(
            variant,
            (
                TensorLeaf(dtypes.int64, [None, inner]), TensorLeaf(sparse_tensor.dtype, [None]),
                TensorLeaf(dtypes.int64, [inner]),
            ),
        )  # fmt: skip

    @staticmethod
    def from_generator(
        generator: Callable[..., Any],
        output_types: Any = None,
        output_shapes: Any = None,
        args: Any = None,
        output_signature: Any = None,
        name: str | None = None,
    ) -> "Dataset":
        """A dataset of what a generator gives.

        Args:
          generator: a function that gives something to iterate over, each time anew.
          output_types: the types of an element's parts; its structure is that of elements.
          output_shapes: their shapes, in the same structure; unknown by default.
          args: tensors whose values the function is called with.
          output_signature: what elements are, in place of types and shapes: TensorSpecs and such.
        """
        del name
        if not callable(generator):
            raise TypeError("`generator` must be callable.")
        if output_signature is not None:
            if output_types is not None or output_shapes is not None:
                given = "output_types" if output_types is not None else "output_shapes"
                raise TypeError(
                    f"The `{given}` argument can not be used together with the "
                    "`output_signature` argument."
                )
            spec = specs.leaves_of_spec(output_signature)
        elif output_types is None:
            raise TypeError("Either `output_signature` or `output_types` must be specified.")
        else:
            spec = structure.spec_of(output_types, output_shapes)
        variant, spec, calls = generator_dataset(generator, spec, args)
        # Its functions are run again up to the same place: no state to save.
        return Dataset(variant, spec, inputs=((calls, take_made()),))

    @staticmethod
    def range(*args: Any, output_type: Any = dtypes.int64, name: str | None = None) -> "Dataset":
        """A dataset of numbers: range(stop), range(start, stop) or range(start, stop, step)."""
        del name
        if not 1 <= len(args) <= 3:
            raise ValueError(f"Invalid arguments to range: {args}; expected one to three numbers")
        start, stop, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
        spec = TensorLeaf(dtypes.int64, [])
        variant = gen_ops.range_dataset(int64(start), int64(stop), int64(step), **attrs_of(spec))
        wanted = dtypes.as_dtype(output_type)
        numbers = Dataset(variant, spec)
        if wanted is dtypes.int64:
            return numbers
        return numbers.map(lambda i: gen_ops.cast(i, wanted))

    @staticmethod
    def zip(*args: Any, datasets: Any = None, name: str | None = None) -> "Dataset":
        """A dataset of elements made of one of each; as long as the shortest. The datasets are one
        structure, or several arguments."""
        del name
        if not args and datasets is None:
            raise TypeError("Must pass at least one dataset to `zip`.")
        if args and datasets is not None:
            raise TypeError("Both `*args` and `datasets` cannot be set.")
        if args:
            datasets = args[0] if len(args) == 1 else args
        parts = flatten(datasets)
        for part in parts:
            if isinstance(part, list):
                raise TypeError(
                    "The argument to `Dataset.zip()` must be a nested structure of `Dataset` "
                    "objects. Nested structures do not support Python lists; use a tuple instead."
                )
            if not isinstance(part, Dataset):
                raise TypeError(f"zip takes a structure of datasets, got {part!r}")
        spec = structure.pack(datasets, [part._spec for part in parts])
        variant = gen_ops.zip_dataset([p._variant_tensor for p in parts], **attrs_of(spec))
        return Dataset(variant, spec, inputs=parts)

    @staticmethod
    def list_files(
        file_pattern: Any, shuffle: bool | None = None, seed: Any = None, name: str | None = None
    ) -> "Dataset":
        """A dataset of the names of files that match a pattern, in random order unless `shuffle` is
        False."""
        names = gen_ops.matching_files(convert_to_tensor(file_pattern, dtype=dtypes.string))
        dataset = Dataset.from_tensor_slices(names)
        if shuffle is False:
            return dataset
        count = gen_ops.maximum(gen_ops.size(names, out_type=dtypes.int64), int64(1))
        return dataset.shuffle(count, seed=seed)

    # Which elements there are, and how often.

    def repeat(self, count: Any = None, name: str | None = None) -> "Dataset":
        """This dataset `count` times; without end by default, and for -1."""
        variant = gen_ops.repeat_dataset(self._variant_tensor, int64(count, -1), **self._attrs)
        return self._of(variant)

    def take(self, count: Any, name: str | None = None) -> "Dataset":
        """The first elements, all for -1."""
        return self._of(gen_ops.take_dataset(self._variant_tensor, int64(count), **self._attrs))

    def skip(self, count: Any, name: str | None = None) -> "Dataset":
        """All but the first elements, none for -1."""
        return self._of(gen_ops.skip_dataset(self._variant_tensor, int64(count), **self._attrs))

    def shard(self, num_shards: Any, index: Any, name: str | None = None) -> "Dataset":
        """Every num_shards-th element, from number `index` on, which must be one of [0,
        num_shards): InvalidArgumentError, when the dataset is run, for others."""
        variant = gen_ops.shard_dataset(
            self._variant_tensor, int64(num_shards), int64(index), **self._attrs
        )
        return self._of(variant)

    def filter(self, predicate: Callable[..., Any], name: str | None = None) -> "Dataset":
        """The elements for which `predicate` is true."""
        function = self._predicate(predicate, "filter")
        variant = gen_ops.filter_dataset(
            self._variant_tensor, function.captured, predicate=function.name, **self._attrs
        )
        return self._of(variant)

    def take_while(self, predicate: Callable[..., Any], name: str | None = None) -> "Dataset":
        """The elements before the first for which `predicate` is not true."""
        function = self._predicate(predicate, "take_while")
        variant = gen_ops.take_while_dataset(
            self._variant_tensor, function.captured, predicate=function.name, **self._attrs
        )
        return self._of(variant)

    def _predicate(self, predicate: Callable[..., Any], what: str) -> ElementFunction:
        function = ElementFunction(predicate, self._spec, what)
        leaf = function.result
        if (
            not isinstance(leaf, TensorLeaf)
            or leaf.dtype != dtypes.bool_
            or not leaf.shape.is_compatible_with([])
        ):
            raise ValueError(f"`predicate` of {what} must return a scalar boolean tensor.")
        return function

    def shuffle(
        self, buffer_size: Any, seed: Any = None, reshuffle_each_iteration: bool | None = None,
        name: str | None = None,
    ) -> "Dataset":  # fmt: skip
        """The elements in random order, drawn from a buffer of `buffer_size`.

        `reshuffle_each_iteration`: another order each time the dataset is repeated, by default.
        """
        reshuffle = True if reshuffle_each_iteration is None else bool(reshuffle_each_iteration)
        variant = gen_ops.shuffle_dataset(
            self._variant_tensor, int64(buffer_size), *seeds(seed),
            reshuffle_each_iteration=reshuffle, **self._attrs,
        )  # fmt: skip
        return self._of(variant)

    def concatenate(self, dataset: "Dataset", name: str | None = None) -> "Dataset":
        """The elements of this dataset, then those of another of the same types."""
        types = (self.output_types, dataset.output_types)
        if types[0] != types[1]:
            raise TypeError(
                "Two datasets to concatenate have different types " f"{types[0]} and {types[1]}"
            )
        if self.output_classes != dataset.output_classes:
            raise TypeError(
                "Two datasets to concatenate have different classes "
                f"{self.output_classes} and {dataset.output_classes}"
            )
        pairs = zip(flatten(self._spec), flatten(dataset._spec), strict=True)
        spec = structure.pack(self._spec, [a.common(b) for a, b in pairs])
        variant = gen_ops.concatenate_dataset(
            self._variant_tensor, dataset._variant_tensor, **attrs_of(spec)
        )
        return Dataset(variant, spec, self._options, (self, dataset))

    def enumerate(self, start: Any = 0, name: str | None = None) -> "Dataset":
        """Pairs of a number, from `start` on, and an element."""
        most = np.iinfo(np.int64).max
        return Dataset.zip((Dataset.range(start, most), self))

    # What is made of elements.

    def map(
        self, map_func: Callable[..., Any], num_parallel_calls: Any = None,
        deterministic: bool | None = None, name: str | None = None,
    ) -> "Dataset":  # fmt: skip
        """`map_func` of every element.

        Args:
          map_func: gets the parts of an element that is a tuple, else the element.
          num_parallel_calls: how many calls at once; `tf.data.experimental.AUTOTUNE`: as many as
            keep the processors busy. By default one after the other, on the thread that asks.
          deterministic: False: elements come as calls end.
        """
        function = ElementFunction(map_func, self._spec, "map")
        if num_parallel_calls is None:
            variant = gen_ops.map_dataset(
                self._variant_tensor, function.captured, f=function.name,
                preserve_cardinality=_core.eager_enabled(), **attrs_of(function.result),
            )  # fmt: skip
            return self._of(variant, function.result)
        if deterministic is None and self.options()._deterministic is False:
            deterministic = False
        variant = gen_ops.parallel_map_dataset_v2(
            self._variant_tensor, function.captured, int64(num_parallel_calls), f=function.name,
            deterministic="default" if deterministic is None else str(bool(deterministic)).lower(),
            preserve_cardinality=_core.eager_enabled(), **attrs_of(function.result),
        )  # fmt: skip
        return self._of(variant, function.result)

    def map_with_legacy_function(
        self, map_func: Callable[..., Any], num_parallel_calls: Any = None,
        deterministic: bool | None = None,
    ) -> "Dataset":  # fmt: skip
        """As `map`."""
        return self.map(map_func, num_parallel_calls, deterministic)

    def filter_with_legacy_function(self, predicate: Callable[..., Any]) -> "Dataset":
        """As `filter`."""
        return self.filter(predicate)

    def flat_map(self, map_func: Callable[..., Any], name: str | None = None) -> "Dataset":
        """The elements of the datasets that `map_func` makes of elements, one after the other."""
        function, spec = self._nested(map_func, "flat_map")
        variant = gen_ops.flat_map_dataset(
            self._variant_tensor, function.captured, f=function.name, **attrs_of(spec)
        )
        return self._of(variant, spec)

    def interleave(
        self, map_func: Callable[..., Any], cycle_length: Any = None, block_length: Any = None,
        num_parallel_calls: Any = None, deterministic: bool | None = None, name: str | None = None,
    ) -> "Dataset":  # fmt: skip
        """The elements of the datasets that `map_func` makes of elements, in turns.

        Args:
          cycle_length: how many datasets at a time.
          block_length: how many elements of one before it is the turn of the next.
          num_parallel_calls: not None: each of them works ahead on a thread of its own.
        """
        del deterministic  # elements come in order
        function, spec = self._nested(map_func, "interleave")
        numbers = [int64(cycle_length, AUTOTUNE), int64(block_length, 1)]
        if num_parallel_calls is None:
            variant = gen_ops.interleave_dataset(
                self._variant_tensor, function.captured, *numbers, f=function.name,
                **attrs_of(spec),
            )  # fmt: skip
        else:
            variant = gen_ops.parallel_interleave_dataset_v3(
                self._variant_tensor, function.captured, *numbers, int64(num_parallel_calls),
                f=function.name, **attrs_of(spec),
            )  # fmt: skip
        return self._of(variant, spec)

    def _nested(self, map_func: Callable[..., Any], what: str) -> tuple[ElementFunction, Any]:
        function = ElementFunction(map_func, self._spec, what)
        if not isinstance(function.result, DatasetLeaf):
            raise TypeError(f"`map_func` of {what} must return a `Dataset` object.")
        return function, function.result.spec

    def batch(
        self, batch_size: Any, drop_remainder: Any = False, num_parallel_calls: Any = None,
        deterministic: bool | None = None, name: str | None = None,
    ) -> "Dataset":  # fmt: skip
        """Batches of elements of one shape; the last may be smaller unless `drop_remainder`."""
        rows = rows_of(batch_size, drop_remainder)
        spec = map_leaves(lambda leaf: leaf.batched(rows), self._spec)
        variant = gen_ops.batch_dataset_v2(
            self._variant_tensor, int64(batch_size),
            convert_to_tensor(drop_remainder, dtype=dtypes.bool_), **attrs_of(spec),
        )  # fmt: skip
        return self._of(variant, spec)

    def padded_batch(
        self, batch_size: Any, padded_shapes: Any = None, padding_values: Any = None,
        drop_remainder: Any = False, name: str | None = None,
    ) -> "Dataset":  # fmt: skip
        """Batches of elements whose sizes differ, made as large as the largest.

        Args:
          padded_shapes: what each part is made to; None (or -1) as a size: as large as the largest.
            By default the shapes of the parts, as far as they are known.
          padding_values: what is filled in; zeros and empty strings by default.
        """
        padding = Padding(
            self._spec, padded_shapes, padding_values, rows_of(batch_size, drop_remainder)
        )
        variant = gen_ops.padded_batch_dataset_v2(
            self._variant_tensor, int64(batch_size), padding.shapes, padding.values,
            convert_to_tensor(drop_remainder, dtype=dtypes.bool_),
            output_shapes=attrs_of(padding.spec)["output_shapes"],
        )  # fmt: skip
        return self._of(variant, padding.spec)

    def unbatch(self, name: str | None = None) -> "Dataset":
        """The rows of the elements."""
        spec = map_leaves(lambda leaf: leaf.unbatched(), self._spec)
        leaves = flatten(self._spec)
        wholes = self
        if any(leaf.in_rows().component[1].rank != leaf.component[1].rank for leaf in leaves):

            def rows(*element: Any) -> Any:
                values = flatten(element if isinstance(self._spec, tuple) else element[0])
                return tuple(leaf.to_rows(v) for leaf, v in zip(leaves, values, strict=True))

            wholes = self.map(rows)
        variant = gen_ops.unbatch_dataset(wholes._variant_tensor, **attrs_of(spec))
        return self._of(variant, spec)

    def window(
        self, size: Any, shift: Any = None, stride: Any = 1, drop_remainder: Any = False,
        name: str | None = None,
    ) -> "Dataset":  # fmt: skip
        """Datasets of `size` elements each, for each part of an element.

        Args:
          shift: from the beginning of one to that of the next; `size` by default.
          stride: from one element to the next within one.
        """
        spec = map_leaves(lambda leaf: DatasetLeaf(Dataset, leaf), self._spec)
        variant = gen_ops.window_dataset(
            self._variant_tensor, int64(size), int64(size if shift is None else shift),
            int64(stride), convert_to_tensor(drop_remainder, dtype=dtypes.bool_), **attrs_of(spec),
        )  # fmt: skip
        return self._of(variant, spec)

    def reduce(
        self, initial_state: Any, reduce_func: Callable[..., Any], name: str | None = None
    ) -> Any:
        """What `reduce_func(state, element)` makes of the state, one element after the other."""
        state = structure.leaf_values(initial_state)
        spec = map_leaves(structure.leaf_of, state)
        function = state_function(reduce_func, spec, self._spec, "reduce")
        results = gen_ops.reduce_dataset(
            self._variant_tensor, structure.to_tensors(spec, state), function.captured,
            f=function.name, **attrs_of(function.result),
        )  # fmt: skip
        results = results if isinstance(results, (list, tuple)) else [results]
        return structure.from_tensors(function.result, results)

    def apply(self, transformation_func: Callable[["Dataset"], "Dataset"]) -> "Dataset":
        """transformation_func(self)."""
        dataset = transformation_func(self)
        if not isinstance(dataset, Dataset):
            raise TypeError(
                f"`transformation_func` must return a Dataset, got {type(dataset).__name__}"
            )
        return dataset

    # How elements are kept.

    def prefetch(self, buffer_size: Any, name: str | None = None) -> "Dataset":
        """The elements, made ahead on another thread: as many as `buffer_size`, or as it takes
        (`tf.data.experimental.AUTOTUNE`)."""
        variant = gen_ops.prefetch_dataset(
            self._variant_tensor, int64(buffer_size, -1), **self._attrs
        )
        return self._of(variant)

    def cache(self, filename: Any = "", name: str | None = None) -> "Dataset":
        """The elements, made once and kept when all have been asked for: in memory, or in the file
        `filename`, where another program finds them."""
        variant = gen_ops.cache_dataset(
            self._variant_tensor, convert_to_tensor(filename, dtype=dtypes.string), **self._attrs
        )
        return self._of(variant)

    # Iterators.

    def make_one_shot_iterator(self) -> Any:
        """An iterator over this dataset that needs no initialisation and goes through it once.

        In a graph the dataset becomes part of the iterator, so it cannot use what has state:
        variables, placeholders, tables.
        """
        return iter(self) if _core.executing_eagerly() else begin_once(self)

    def make_initializable_iterator(self, shared_name: str | None = None) -> Iterator:
        """An iterator that begins whenever its `initializer` runs."""
        iterator = Iterator.from_spec(self._spec, shared_name)
        iterator._initializer = iterator.make_initializer(self)
        return iterator


structure.dataset_class.append(Dataset)


# `name` in the methods is taken for programs that give one: stages have none.


@export(v1="data.get_output_types")
def get_output_types(dataset_or_iterator: Any) -> Any:
    """The types of the parts of an element."""
    return dataset_or_iterator.output_types


@export(v1="data.get_output_shapes")
def get_output_shapes(dataset_or_iterator: Any) -> Any:
    """The shapes of the parts of an element."""
    return dataset_or_iterator.output_shapes


@export(v1="data.get_output_classes")
def get_output_classes(dataset_or_iterator: Any) -> Any:
    """The classes of the parts of an element."""
    return dataset_or_iterator.output_classes


@export(v1="data.make_one_shot_iterator")
def make_one_shot_iterator(dataset: Dataset) -> Iterator:
    """An iterator that goes through a dataset once."""
    return dataset.make_one_shot_iterator()


@export(v1="data.make_initializable_iterator")
def make_initializable_iterator(dataset: Dataset, shared_name: str | None = None) -> Iterator:
    """An iterator that begins whenever its `initializer` runs."""
    return dataset.make_initializable_iterator(shared_name)


def as_list(shape: TensorShape) -> list[int | None]:
    """The sizes of a shape; none for one of unknown rank."""
    return [] if shape.rank is None else shape.as_list()
