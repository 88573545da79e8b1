"""Input pipelines of queues: producers of single inputs, and batches of them."""

from typing import Any, Callable

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor
from millrace.graph.convert import constant, convert_to_tensor
from millrace.graph.default_graph import control_dependencies, name_scope
from millrace.graph.keys import GraphKeys
from millrace.graph.sparse import SparseTensor, convert_to_tensor_or_indexed_slices
from millrace.graph.static_value import constant_value
from millrace.ops.control_flow import cond
from millrace.ops.ordering import Assert
from millrace.ops.random import random_shuffle
from millrace.state.queue_runner import QueueRunner, add_queue_runner
from millrace.state.queues import FIFOQueue, PaddingFIFOQueue, QueueBase, RandomShuffleQueue
from millrace.state.variables import Variable
from millrace.summary.ops import scalar
from millrace.train.sparse_input import Kept, restore_sparse, sparse_components, store_sparse


@export(v1="train.match_filenames_once")
def match_filenames_once(pattern: Any, name: str | None = None) -> Variable:
    """The files that match a pattern, looked up once: a local variable."""
    with name_scope(name, "matching_filenames", [pattern]) as scope:
        return Variable(
            initial_value=gen_ops.matching_files(pattern),
            trainable=False,
            name=scope,
            validate_shape=False,
            collections=[GraphKeys.LOCAL_VARIABLES],
        )


@export(v1="train.limit_epochs")
def limit_epochs(tensor: Any, num_epochs: int | None = None, name: str | None = None) -> Tensor:
    """The tensor `num_epochs` times, then OutOfRangeError. Counted by a local variable, `epochs`.

    `num_epochs`: None for no limit.
    """
    if num_epochs is None:
        return tensor
    if num_epochs <= 0:
        raise ValueError(f"num_epochs must be > 0 not {num_epochs}.")
    with name_scope(name, "limit_epochs", [tensor]) as scope:
        epochs = Variable(
            constant(0, dtypes.int64),
            name="epochs",
            trainable=False,
            collections=[GraphKeys.LOCAL_VARIABLES],
        )
        with control_dependencies([epochs.count_up_to(num_epochs)]):
            return gen_ops.identity(tensor, name=scope)


def _fullness(queue: QueueBase, capacity: int, always: int = 0) -> Tensor:
    """How full a queue is, of what is above those that are always in it."""
    size = queue.size()
    if always:
        size = gen_ops.maximum(0, gen_ops.sub(size, always))
    return gen_ops.mul(gen_ops.cast(size, dtypes.float32), 1.0 / (capacity - always))


@export(v1="train.input_producer")
def input_producer(
    input_tensor: Any, element_shape: Any = None, num_epochs: int | None = None,
    shuffle: bool = True, seed: int | None = None, capacity: int = 32,
    shared_name: str | None = None, summary_name: str | None = None, name: str | None = None,
    cancel_op: Any = None,
) -> FIFOQueue:  # fmt: skip
    """A queue of the rows of `input_tensor`, over and over, filled by a QueueRunner.

    Args:
      element_shape: the shape of a row, where it is not known from the tensor.
      num_epochs: how many times each row comes; then OutOfRangeError. None: without end.
      shuffle, seed: whether rows come in a random order, another one in each epoch.
      capacity: how many rows the queue holds.

    ValueError when the shape of a row is not known.
    """
    with name_scope(name, "input_producer", [input_tensor]):
        input_tensor = convert_to_tensor(input_tensor, name="input_tensor")
        rows = input_tensor.shape.with_rank_at_least(1)[1:].merge_with(element_shape)
        if not rows.is_fully_defined():
            raise ValueError(
                "Either `input_tensor` must have a fully defined shape or `element_shape` must be "
                f"specified: '{input_tensor.name}' has shape {input_tensor.shape}"
            )
        if shuffle:
            input_tensor = random_shuffle(input_tensor, seed=seed)
        input_tensor = limit_epochs(input_tensor, num_epochs)
        queue = FIFOQueue(
            capacity=capacity,
            dtypes=[input_tensor.dtype.base_dtype],
            shapes=[rows],
            shared_name=shared_name,
            name=name or "fifo_queue",
        )
        add_queue_runner(
            QueueRunner(queue, [queue.enqueue_many([input_tensor])], cancel_op=cancel_op)
        )
        if summary_name is not None:
            scalar(summary_name, _fullness(queue, capacity))
        return queue


@export(v1="train.string_input_producer")
def string_input_producer(
    string_tensor: Any, num_epochs: int | None = None, shuffle: bool = True,
    seed: int | None = None, capacity: int = 32, shared_name: str | None = None,
    name: str | None = None, cancel_op: Any = None,
) -> FIFOQueue:  # fmt: skip
    """A queue of strings, such as names of files; as `input_producer`.

    ValueError for an empty list, and an error in the run for an empty tensor.
    """
    message = "string_input_producer requires a non-null input tensor"
    if not isinstance(string_tensor, (Tensor, Variable)) and not len(string_tensor):
        raise ValueError(message)
    with name_scope(name, "input_producer", [string_tensor]) as scope:
        string_tensor = convert_to_tensor(string_tensor, dtype=dtypes.string)
        full = Assert(gen_ops.greater(gen_ops.size(string_tensor), 0), [message])
        with control_dependencies([full]):
            string_tensor = gen_ops.identity(string_tensor)
        return input_producer(
            string_tensor, [], num_epochs, shuffle, seed, capacity, shared_name,
            f"fraction_of_{capacity}_full", scope, cancel_op,
        )  # fmt: skip


@export(v1="train.range_input_producer")
def range_input_producer(
    limit: Any, num_epochs: int | None = None, shuffle: bool = True, seed: int | None = None,
    capacity: int = 32, shared_name: str | None = None, name: str | None = None,
) -> FIFOQueue:  # fmt: skip
    """A queue of the integers from 0 to `limit` - 1; as `input_producer`."""
    with name_scope(name, "input_producer", [limit]) as scope:
        numbers = gen_ops.range(0, limit, 1)
        return input_producer(
            numbers, [], num_epochs, shuffle, seed, capacity, shared_name,
            f"fraction_of_{capacity}_full", scope,
        )  # fmt: skip


@export(v1="train.slice_input_producer")
def slice_input_producer(
    tensor_list: Any, num_epochs: int | None = None, shuffle: bool = True,
    seed: int | None = None, capacity: int = 32, shared_name: str | None = None,
    name: str | None = None,
) -> list[Tensor]:  # fmt: skip
    """One row of each of the tensors, the same for all; another one in each run.

    ValueError for an empty list.
    """
    with name_scope(name, "input_producer", tensor_list):
        tensors = [convert_to_tensor_or_indexed_slices(t) for t in tensor_list]
        if not tensors:
            raise ValueError("Expected at least one tensor in slice_input_producer().")
        count = gen_ops.strided_slice(gen_ops.shape(tensors[0]), [0], [1], [1], shrink_axis_mask=1)
        queue = range_input_producer(count, num_epochs, shuffle, seed, capacity, shared_name)
        index = queue.dequeue()
        return [gen_ops.gather(t, index) for t in tensors]


# Batches.


def _flatten(tensors: Any) -> list[Any]:
    """The tensors of a list or dictionary, the latter in the order of its keys."""
    if isinstance(tensors, dict):
        return [tensors[k] for k in sorted(tensors, key=str)]
    return list(tensors)


def _like(original: Any, tensors: list[Any]) -> Any:
    if isinstance(original, dict):
        if len(original) == 1:
            return {next(iter(original)): tensors[0]}
        return dict(zip(sorted(original, key=str), tensors, strict=True))
    return tensors[0] if len(tensors) == 1 else tensors


def _converted(tensors: list[Any]) -> list[Any]:
    out = []
    for i, t in enumerate(tensors):
        if isinstance(t, SparseTensor):
            out.append(t)
        else:
            out.append(convert_to_tensor(t, name=f"tensor_{i}"))
    if not out:
        raise ValueError("Expected at least one tensor in batch().")
    return out


def _converted_lists(tensors_list: Any) -> list[list[Any]]:
    if tensors_list and isinstance(tensors_list[0], dict):
        for tensors in tensors_list[1:]:
            if not isinstance(tensors, dict) or set(tensors) != set(tensors_list[0]):
                raise ValueError(
                    "All dictionaries of batch_join must have the same keys: "
                    f"{sorted(tensors_list[0], key=str)}, got {tensors}"
                )
    lists = [_converted(_flatten(tensors)) for tensors in tensors_list]
    if not lists:
        raise ValueError("Expected at least one input in batch_join().")
    return lists


def _keep(keep_input: Any, enqueue_many: bool) -> Tensor:
    keep = convert_to_tensor(keep_input, dtype=dtypes.bool_, name="keep_input")
    rank = keep.shape.ndims
    if rank is None:
        raise ValueError("`keep_input` dimensions must be known at graph construction.")
    if not enqueue_many and rank == 1:
        raise ValueError(
            "`keep_input` cannot be a vector when `enqueue_many=False`, got shape "
            f"{keep.shape} ('{keep.name}')"
        )
    if rank > 1:
        raise ValueError(
            f"`keep_input` must be 0 or 1 dimensions, got shape {keep.shape} ('{keep.name}')"
        )
    return keep


def _queued_type(tensor: Any) -> dtypes.DType:
    """The type in the queue: of numbers, for sparse tensors."""
    return dtypes.int64 if isinstance(tensor, SparseTensor) else tensor.dtype.base_dtype


def _types(lists: list[list[Any]]) -> list[dtypes.DType]:
    types = [_queued_type(t) for t in lists[0]]
    for other in lists[1:]:
        if len(other) != len(types):
            raise ValueError("Expected the same number of tensors in all lists")
        for i, t in enumerate(other):
            if _queued_type(t) is not types[i]:
                raise TypeError(
                    f"Expected types to be consistent: component {i} is {types[i].name} in the "
                    f"first list and {_queued_type(t).name} in another ({t})"
                )
    return types


def _component_shapes(lists: list[list[Any]], shapes: Any, enqueue_many: bool) -> list[TensorShape]:
    """The shapes of the components of elements: those given, or what all lists have in common."""
    if shapes is not None:
        return list(shapes)
    out = []
    for column in zip(*lists, strict=True):
        if isinstance(column[0], SparseTensor):
            out.append(TensorShape([]))
            continue
        own = [t.shape.with_rank_at_least(1)[1:] if enqueue_many else t.shape for t in column]
        merged = own[0]
        for other in own[1:]:
            merged = _common(merged, other)
        if merged.ndims is None:
            named = ", ".join(f"'{t.name}'" for t in column)
            raise ValueError(
                "Cannot infer Tensor's rank: "
                f"{named}. Set the shape of the tensors, or pass `shapes`."
            )
        out.append(merged)
    return out


def _common(a: TensorShape, b: TensorShape) -> TensorShape:
    """What two shapes have in common."""
    if a.ndims is None or b.ndims is None or a.ndims != b.ndims:
        return TensorShape(None)
    pairs = zip(a.as_list(), b.as_list(), strict=True)
    return TensorShape([x if x == y else None for x, y in pairs])


def _enqueue_op(
    queue: QueueBase,
    tensors: list[Any],
    sparse: list[Kept | None],
    enqueue_many: bool,
    keep: Tensor,
) -> Any:
    """An operation that adds the tensors, where they are to be kept."""

    def enqueue() -> Any:
        parts = store_sparse(tensors, sparse, enqueue_many, keep)
        if keep.shape.ndims == 1:
            chosen = gen_ops.cast(keep, dtypes.int32)
            parts = [gen_ops.dynamic_partition(t, chosen, 2)[1] for t in parts]
        return queue.enqueue_many(parts) if enqueue_many else queue.enqueue(parts)

    known = constant_value(keep) if keep.shape.ndims == 0 else True
    if known is not None:
        return enqueue() if known else gen_ops.no_op()
    return cond(keep, enqueue, lambda: gen_ops.no_op())


def _dequeue(queue: QueueBase, batch_size: Any, smaller: bool, name: str) -> list[Tensor]:
    take = queue.dequeue_up_to if smaller else queue.dequeue_many
    batch = take(batch_size, name=name)
    return [batch] if isinstance(batch, Tensor) else batch


def _make_batches(
    lists: list[list[Any]], original: Any, batch_size: Any, keep_input: Any, num_threads: int,
    make_queue: Callable[..., QueueBase], shapes: Any, enqueue_many: bool,
    allow_smaller_final_batch: bool, summary: str, capacity: int, always: int, scope: str,
) -> Any:  # fmt: skip
    """Queues the tensors of the lists, each with threads of its own, and takes batches out."""
    keep = _keep(keep_input, enqueue_many)
    types = _types(lists)
    sparse = sparse_components(lists, enqueue_many)
    queue = make_queue(dtypes=types, shapes=_component_shapes(lists, shapes, enqueue_many))

    def add(tensors: list[Any]) -> Any:
        return _enqueue_op(queue, tensors, sparse, enqueue_many, keep)

    ops = [op for tensors in lists for op in [add(tensors)] * num_threads]
    add_queue_runner(QueueRunner(queue, ops))
    scalar(summary, _fullness(queue, capacity, always))
    batch = _dequeue(queue, batch_size, allow_smaller_final_batch, scope)
    return _like(original, restore_sparse(batch, sparse))


def _batch(
    tensors: Any, batch_size: Any, keep_input: Any, num_threads: int, capacity: int,
    enqueue_many: bool, shapes: Any, dynamic_pad: bool, allow_smaller_final_batch: bool,
    shared_name: str | None, name: str | None,
) -> Any:  # fmt: skip
    flat = _flatten(tensors)
    with name_scope(name, "batch", [*flat, keep_input]) as scope:
        return _make_batches(
            [_converted(flat)], tensors, batch_size, keep_input, num_threads,
            _fifo(dynamic_pad, capacity, shared_name), shapes, enqueue_many,
            allow_smaller_final_batch, f"fraction_of_{capacity}_full", capacity, 0, scope,
        )  # fmt: skip


def _batch_join(
    tensors_list: Any, batch_size: Any, keep_input: Any, capacity: int, enqueue_many: bool,
    shapes: Any, dynamic_pad: bool, allow_smaller_final_batch: bool, shared_name: str | None,
    name: str | None,
) -> Any:  # fmt: skip
    tensors_list = list(tensors_list)
    with name_scope(name, "batch_join", _all_values(tensors_list, keep_input)) as scope:
        return _make_batches(
            _converted_lists(tensors_list), tensors_list[0], batch_size, keep_input, 1,
            _fifo(dynamic_pad, capacity, shared_name), shapes, enqueue_many,
            allow_smaller_final_batch, f"fraction_of_{capacity}_full", capacity, 0, scope,
        )  # fmt: skip


def _all_values(tensors_list: list[Any], keep_input: Any) -> list[Any]:
    return [t for tensors in tensors_list for t in _flatten(tensors)] + [keep_input]


def _fifo(dynamic_pad: bool, capacity: int, shared_name: str | None) -> Callable[..., QueueBase]:
    kind = PaddingFIFOQueue if dynamic_pad else FIFOQueue
    return lambda **components: kind(capacity, shared_name=shared_name, **components)


def _shuffled(
    capacity: int, min_after_dequeue: int, seed: int | None, shared_name: str | None
) -> Callable[..., QueueBase]:
    if capacity <= min_after_dequeue:
        raise ValueError(
            f"capacity {capacity} must be bigger than min_after_dequeue {min_after_dequeue}."
        )
    return lambda **components: RandomShuffleQueue(
        capacity, min_after_dequeue, seed=seed, shared_name=shared_name, **components
    )


def _shuffle_batch(
    tensors: Any, batch_size: Any, capacity: int, min_after_dequeue: int, keep_input: Any,
    num_threads: int, seed: int | None, enqueue_many: bool, shapes: Any,
    allow_smaller_final_batch: bool, shared_name: str | None, name: str | None,
) -> Any:  # fmt: skip
    flat = _flatten(tensors)
    with name_scope(name, "shuffle_batch", [*flat, keep_input]) as scope:
        return _make_batches(
            [_converted(flat)], tensors, batch_size, keep_input, num_threads,
            _shuffled(capacity, min_after_dequeue, seed, shared_name), shapes, enqueue_many,
            allow_smaller_final_batch, f"fraction_over_{min_after_dequeue}_of_{capacity}_full",
            capacity, min_after_dequeue, scope,
        )  # fmt: skip


def _shuffle_batch_join(
    tensors_list: Any, batch_size: Any, capacity: int, min_after_dequeue: int, keep_input: Any,
    seed: int | None, enqueue_many: bool, shapes: Any, allow_smaller_final_batch: bool,
    shared_name: str | None, name: str | None,
) -> Any:  # fmt: skip
    tensors_list = list(tensors_list)
    with name_scope(name, "shuffle_batch_join", _all_values(tensors_list, keep_input)) as scope:
        return _make_batches(
            _converted_lists(tensors_list), tensors_list[0], batch_size, keep_input, 1,
            _shuffled(capacity, min_after_dequeue, seed, shared_name), shapes, enqueue_many,
            allow_smaller_final_batch, f"fraction_over_{min_after_dequeue}_of_{capacity}_full",
            capacity, min_after_dequeue, scope,
        )  # fmt: skip


@export(v1="train.batch")
def batch(
    tensors: Any, batch_size: Any, num_threads: int = 1, capacity: int = 32,
    enqueue_many: bool = False, shapes: Any = None, dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False, shared_name: str | None = None,
    name: str | None = None,
) -> Any:  # fmt: skip
    """Batches of tensors, gathered by a queue that a QueueRunner fills.

    Args:
      tensors: a list or dictionary of tensors; each run of them makes an element.
      batch_size: how many elements a batch has.
      num_threads: how many threads run the tensors.
      capacity: how many elements the queue holds.
      enqueue_many: whether the first dimension of `tensors` counts elements.
      shapes: the shapes of elements, where they are not known from the tensors.
      dynamic_pad: whether to pad elements of different sizes to the longest of a batch.
      allow_smaller_final_batch: whether the last batch may have fewer elements.

    The batches come as a list or dictionary like `tensors`.
    """
    return _batch(
        tensors, batch_size, True, num_threads, capacity, enqueue_many, shapes, dynamic_pad,
        allow_smaller_final_batch, shared_name, name,
    )  # fmt: skip


@export(v1="train.maybe_batch")
def maybe_batch(
    tensors: Any, keep_input: Any, batch_size: Any, num_threads: int = 1, capacity: int = 32,
    enqueue_many: bool = False, shapes: Any = None, dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False, shared_name: str | None = None,
    name: str | None = None,
) -> Any:  # fmt: skip
    """As `batch`, of the elements for which the boolean `keep_input` is true."""
    return _batch(
        tensors, batch_size, keep_input, num_threads, capacity, enqueue_many, shapes, dynamic_pad,
        allow_smaller_final_batch, shared_name, name,
    )  # fmt: skip


@export(v1="train.batch_join")
def batch_join(
    tensors_list: Any, batch_size: Any, capacity: int = 32, enqueue_many: bool = False,
    shapes: Any = None, dynamic_pad: bool = False, allow_smaller_final_batch: bool = False,
    shared_name: str | None = None, name: str | None = None,
) -> Any:  # fmt: skip
    """As `batch`, of several lists of tensors, a thread for each."""
    return _batch_join(
        tensors_list, batch_size, True, capacity, enqueue_many, shapes, dynamic_pad,
        allow_smaller_final_batch, shared_name, name,
    )  # fmt: skip


@export(v1="train.maybe_batch_join")
def maybe_batch_join(
    tensors_list: Any, keep_input: Any, batch_size: Any, capacity: int = 32,
    enqueue_many: bool = False, shapes: Any = None, dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False, shared_name: str | None = None,
    name: str | None = None,
) -> Any:  # fmt: skip
    """As `batch_join`, of the elements for which the boolean `keep_input` is true."""
    return _batch_join(
        tensors_list, batch_size, keep_input, capacity, enqueue_many, shapes, dynamic_pad,
        allow_smaller_final_batch, shared_name, name,
    )  # fmt: skip


@export(v1="train.shuffle_batch")
def shuffle_batch(
    tensors: Any, batch_size: Any, capacity: int, min_after_dequeue: int, num_threads: int = 1,
    seed: int | None = None, enqueue_many: bool = False, shapes: Any = None,
    allow_smaller_final_batch: bool = False, shared_name: str | None = None,
    name: str | None = None,
) -> Any:  # fmt: skip
    """As `batch`, in random order: each element is chosen from at least `min_after_dequeue`."""
    return _shuffle_batch(
        tensors, batch_size, capacity, min_after_dequeue, True, num_threads, seed, enqueue_many,
        shapes, allow_smaller_final_batch, shared_name, name,
    )  # fmt: skip


@export(v1="train.maybe_shuffle_batch")
def maybe_shuffle_batch(
    tensors: Any, batch_size: Any, capacity: int, min_after_dequeue: int, keep_input: Any,
    num_threads: int = 1, seed: int | None = None, enqueue_many: bool = False, shapes: Any = None,
    allow_smaller_final_batch: bool = False, shared_name: str | None = None,
    name: str | None = None,
) -> Any:  # fmt: skip
    """As `shuffle_batch`, of the elements for which the boolean `keep_input` is true."""
    return _shuffle_batch(
        tensors, batch_size, capacity, min_after_dequeue, keep_input, num_threads, seed,
        enqueue_many, shapes, allow_smaller_final_batch, shared_name, name,
    )  # fmt: skip


@export(v1="train.shuffle_batch_join")
def shuffle_batch_join(
    tensors_list: Any, batch_size: Any, capacity: int, min_after_dequeue: int,
    seed: int | None = None, enqueue_many: bool = False, shapes: Any = None,
    allow_smaller_final_batch: bool = False, shared_name: str | None = None,
    name: str | None = None,
) -> Any:  # fmt: skip
    """As `shuffle_batch`, of several lists of tensors, a thread for each."""
    return _shuffle_batch_join(
        tensors_list, batch_size, capacity, min_after_dequeue, True, seed, enqueue_many, shapes,
        allow_smaller_final_batch, shared_name, name,
    )  # fmt: skip


@export(v1="train.maybe_shuffle_batch_join")
def maybe_shuffle_batch_join(
    tensors_list: Any, batch_size: Any, capacity: int, min_after_dequeue: int, keep_input: Any,
    seed: int | None = None, enqueue_many: bool = False, shapes: Any = None,
    allow_smaller_final_batch: bool = False, shared_name: str | None = None,
    name: str | None = None,
) -> Any:  # fmt: skip
    """As `shuffle_batch_join`, of the elements for which the boolean `keep_input` is true."""
    return _shuffle_batch_join(
        tensors_list, batch_size, capacity, min_after_dequeue, keep_input, seed, enqueue_many,
        shapes, allow_smaller_final_batch, shared_name, name,
    )  # fmt: skip
