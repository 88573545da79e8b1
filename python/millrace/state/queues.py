"""Queues and accumulators: what operations of different runs hand to each other."""

import hashlib
from typing import Any

from millrace import _core, gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor, label_of, maker_name
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import get_default_graph, name_scope
from millrace.graph.operation import Operation
from millrace.graph.sparse import IndexedSlices
from millrace.graph.static_value import constant_value
from millrace.ops.random import get_seed


def _container() -> str:
    return get_default_graph()._container


def listed_types(types: Any) -> list[dtypes.DType]:
    return [dtypes.as_dtype(t) for t in (types if isinstance(types, (list, tuple)) else [types])]


def listed_shapes(
    shapes: Any, types: list[dtypes.DType], unknown_dims: bool = False, unknown_rank: bool = False
) -> list[TensorShape] | None:
    """Shapes of components, one for each type. ValueError for those that must be known and are
    not."""
    if shapes is None:
        return None
    if isinstance(shapes, TensorShape):
        shapes = [shapes]
    if not isinstance(shapes, (list, tuple)):
        raise TypeError(
            "shapes must be a TensorShape or a list or tuple of TensorShapes, got "
            f"{shapes!r} of type '{type(shapes).__name__}'"
        )
    if all(s is None or isinstance(s, int) for s in shapes):
        shapes = [shapes]  # a single one
    shapes = [TensorShape(s) for s in shapes]
    if len(shapes) != len(types):
        raise ValueError(
            f"A queue needs a shape for each of its {len(types)} components, got {len(shapes)}: "
            f"{', '.join(map(str, shapes))} for {', '.join(t.name for t in types)}"
        )
    if not unknown_dims and any(not s.is_fully_defined() for s in shapes):
        raise ValueError(f"All shapes must be fully defined: {shapes}")
    if not unknown_rank and any(s.ndims is None for s in shapes):
        raise ValueError(f"All shapes must have a defined rank: {shapes}")
    return shapes


def _name_list(names: Any, types: list[dtypes.DType]) -> list[str] | None:
    if names is None:
        return None
    if not isinstance(names, (list, tuple)):
        names = [names]
    if len(names) != len(types):
        raise ValueError(
            "List of names must have the same length as the list of dtypes: "
            f"{list(names)} for {', '.join(t.name for t in types)}"
        )
    return list(names)


@export(v1=("QueueBase", "queue.QueueBase"), v2="queue.QueueBase")
class QueueBase:
    """What all queues can do.

    A queue holds elements, each a tuple of tensors: its components. Made by the classes of the
    kinds of queues, or by `from_list`.
    """

    def __init__(self, dtypes: Any, shapes: Any, names: Any, queue_ref: Tensor):
        self._dtypes = dtypes
        if shapes is not None:
            if len(shapes) != len(dtypes):
                raise ValueError(
                    "Queue shapes must have the same length as dtypes: "
                    f"{len(shapes)} shapes, {len(dtypes)} dtypes"
                )
            self._shapes = [TensorShape(s) for s in shapes]
        else:
            self._shapes = [TensorShape(None) for _ in dtypes]
        if names is not None:
            if len(names) != len(dtypes):
                raise ValueError(
                    "Queue names must have the same length as dtypes: "
                    f"{len(names)} names, {len(dtypes)} dtypes"
                )
            self._names = names
        else:
            self._names = None
        self._queue_ref = queue_ref
        self._full_name = maker_name(queue_ref, otherwise="queue")
        self._name = self._full_name.rpartition("/")[2]

    @staticmethod
    def from_list(index: Any, queues: Any) -> "QueueBase":
        """A queue that is, in each run, the one of the list that `index` says.

        TypeError when `queues` is no list of queues, ValueError when their components differ.
        """
        if not queues or not isinstance(queues, (list, tuple)):
            raise TypeError("A list of queues expected")
        if not all(isinstance(q, QueueBase) for q in queues):
            raise TypeError("A list of queues expected")
        if any(q.dtypes != queues[0].dtypes for q in queues):
            raise TypeError("Queues do not have matching component dtypes.")
        if any(q.names != queues[0].names for q in queues):
            raise TypeError("Queues do not have matching component names.")
        shapes = [
            _common_shape([q.shapes[i] for q in queues]) for i in range(len(queues[0].shapes))
        ]
        chosen = gen_ops.gather(gen_ops.pack([q.queue_ref for q in queues]), index)
        return QueueBase(queues[0].dtypes, shapes, queues[0].names, chosen)

    @property
    def queue_ref(self) -> Tensor:
        """The handle of the queue."""
        return self._queue_ref

    @property
    def name(self) -> str:
        """The name of the operation that holds the queue."""
        return self._full_name

    @property
    def dtypes(self) -> list[dtypes.DType]:
        """The types of the components."""
        return self._dtypes

    @property
    def shapes(self) -> list[TensorShape]:
        """The shapes of the components."""
        return self._shapes

    @property
    def names(self) -> list[str] | None:
        """The names of the components, or None."""
        return self._names

    def _components(self, vals: Any) -> list[Tensor]:
        """The values to enqueue, in the order of the components, as tensors of their types."""
        if isinstance(vals, dict):
            if not self._names:
                raise ValueError("Queue must have names to enqueue a dictionary")
            if sorted(self._names, key=str) != sorted(vals, key=str):
                raise ValueError(
                    "Keys in dictionary to enqueue do not match names of Queue.  Dictionary: "
                    f"{sorted(vals, key=str)}, Queue: {sorted(self._names, key=str)}"
                )
            vals = [vals[name] for name in self._names]
        else:
            if self._names:
                raise ValueError(
                    f"You must enqueue a dictionary in a Queue with names ({self._names})"
                )
            if not isinstance(vals, (list, tuple)):
                vals = [vals]
        if len(vals) != len(self._dtypes):
            raise ValueError(
                f"The queue '{self.name}' has {len(self._dtypes)} components "
                f"({', '.join(t.name for t in self._dtypes)}), got {len(vals)} values"
            )
        tensors = []
        for i, (val, dtype) in enumerate(zip(vals, self._dtypes, strict=True)):
            try:
                tensors.append(convert_to_tensor(val, dtype=dtype, name=f"component_{i}"))
            except (TypeError, ValueError) as error:
                kind = TypeError if isinstance(error, TypeError) else ValueError
                text = str(error).partition("\ndefined at ")[0]
                raise kind(f"{self._component(i)}: {text}{_core.user_line()}") from None
        return tensors

    def _component(self, i: int) -> str:
        return f"Component {i} of the queue '{self.name}' is {self._dtypes[i].name}"

    def _check_shape(self, i: int, value: Tensor, own: TensorShape) -> None:
        shape = self._shapes[i]
        if not own.is_compatible_with(shape):
            raise ValueError(
                f"{self._component(i)} of shape {shape}. Shapes {own} and {shape} are "
                f"incompatible: '{label_of(value)}' ({value.dtype.name}) cannot be enqueued."
                f"{_core.user_line()}"
            )

    def _scope_values(self, vals: Any) -> list[Any]:
        if isinstance(vals, (list, tuple)):
            return list(vals)
        return list(vals.values()) if isinstance(vals, dict) else [vals]

    def enqueue(self, vals: Any, name: str | None = None) -> Operation:
        """An operation that adds one element, waiting while the queue is full.

        `vals`: a tensor, a list of them, or a dictionary where components have names. In a run:
        CancelledError when the queue was closed.
        """
        with name_scope(name, f"{self._name}_enqueue", self._scope_values(vals)) as scope:
            components = self._components(vals)
            for i, value in enumerate(components):
                self._check_shape(i, value, value.shape)
            return gen_ops.queue_enqueue_v2(self._queue_ref, components, name=scope)

    def enqueue_many(self, vals: Any, name: str | None = None) -> Operation:
        """An operation that adds an element for each position of the first dimension of `vals`."""
        with name_scope(name, f"{self._name}_EnqueueMany", self._scope_values(vals)) as scope:
            components = self._components(vals)
            count = components[0].shape.with_rank_at_least(1)[:1]
            for i, value in enumerate(components):
                own = value.shape.with_rank_at_least(1)
                count = count.merge_with(own[:1])
                self._check_shape(i, value, own[1:])
            return gen_ops.queue_enqueue_many_v2(self._queue_ref, components, name=scope)

    def _returned(self, tensors: Any, leading: Any = ()) -> Any:
        if isinstance(tensors, Operation):  # of no components
            return tensors
        for tensor, shape in zip(tensors, self._shapes, strict=True):
            tensor.set_shape(TensorShape(leading).concatenate(shape))
        if self._names:
            return dict(zip(self._names, tensors, strict=True))
        return tensors[0] if len(tensors) == 1 else tensors

    def dequeue(self, name: str | None = None) -> Any:
        """The next element: a tensor, a list, or a dictionary where components have names.

        In a run it waits for one; OutOfRangeError when the queue is closed and empty.
        """
        return self._returned(
            gen_ops.queue_dequeue_v2(
                self._queue_ref, self._dtypes, name=name or f"{self._name}_Dequeue"
            )
        )

    def dequeue_many(self, n: Any, name: str | None = None) -> Any:
        """The next `n` elements, stacked along a new first dimension."""
        made = gen_ops.queue_dequeue_many_v2(
            self._queue_ref, n, self._dtypes, name=name or f"{self._name}_DequeueMany"
        )
        return self._returned(made, [_known(made)])

    def dequeue_up_to(self, n: Any, name: str | None = None) -> Any:
        """The next `n` elements, or those that are left in a queue that was closed."""
        made = gen_ops.queue_dequeue_up_to_v2(
            self._queue_ref, n, self._dtypes, name=name or f"{self._name}_DequeueUpTo"
        )
        return self._returned(made, [None])

    def close(self, cancel_pending_enqueues: bool = False, name: str | None = None) -> Operation:
        """An operation after which nothing can be added.

        `cancel_pending_enqueues`: whether those that wait for room fail too.
        """
        return gen_ops.queue_close_v2(
            self._queue_ref,
            cancel_pending_enqueues=cancel_pending_enqueues,
            name=name or f"{self._name}_Close",
        )

    def size(self, name: str | None = None) -> Tensor:
        """The number of elements."""
        return gen_ops.queue_size_v2(self._queue_ref, name=name or f"{self._name}_Size")

    def is_closed(self, name: str | None = None) -> Tensor:
        """Whether the queue was closed."""
        return gen_ops.queue_is_closed_v2(self._queue_ref, name=name or f"{self._name}_Is_Closed")


def _known(tensors: Any) -> int | None:
    """How many elements `dequeue_many` gives, where its count is a constant."""
    if isinstance(tensors, Operation) or not tensors or hasattr(tensors[0], "numpy"):
        return None
    count = constant_value(tensors[0].op.inputs[1])
    return None if count is None else int(count)


def _common_shape(shapes: list[TensorShape]) -> TensorShape:
    """What is known of all the shapes."""
    if any(s.ndims is None or s.ndims != shapes[0].ndims for s in shapes):
        return TensorShape(None)
    dims = [s.as_list() for s in shapes]
    return TensorShape(
        [
            column[0] if all(d == column[0] for d in column) else None
            for column in zip(*dims, strict=False)
        ]
    )


@export(v1=("FIFOQueue", "queue.FIFOQueue"), v2="queue.FIFOQueue")
class FIFOQueue(QueueBase):
    """A queue whose elements come out in the order they went in.

    Args:
      capacity: how many elements it holds at most; -1: any number.
      dtypes: the types of the components.
      shapes: their shapes, fully known; required for `dequeue_many`.
      names: their names, to enqueue and dequeue dictionaries.
      shared_name: a name under which other sessions share it.
    """

    def __init__(
        self, capacity: int, dtypes: Any, shapes: Any = None, names: Any = None,
        shared_name: str | None = None, name: str = "fifo_queue",
    ):  # fmt: skip
        types = listed_types(dtypes)
        shape_list = listed_shapes(shapes, types)
        ref = gen_ops.fifo_queue_v2(
            types,
            shapes=shape_list,
            capacity=capacity,
            shared_name=shared_name,
            container=_container(),
            name=name,
        )
        super().__init__(types, shape_list, _name_list(names, types), ref)


@export(v1=("RandomShuffleQueue", "queue.RandomShuffleQueue"), v2="queue.RandomShuffleQueue")
class RandomShuffleQueue(QueueBase):
    """A queue whose elements come out in random order.

    Args:
      min_after_dequeue: how many elements stay in it, so that there is something to choose from.
      seed: for the order.
      capacity, dtypes, shapes, names, shared_name: as of FIFOQueue.
    """

    def __init__(
        self, capacity: int, min_after_dequeue: int, dtypes: Any, shapes: Any = None,
        names: Any = None, seed: int | None = None, shared_name: str | None = None,
        name: str = "random_shuffle_queue",
    ):  # fmt: skip
        types = listed_types(dtypes)
        shape_list = listed_shapes(shapes, types)
        graph_seed, op_seed = get_seed(seed)
        if graph_seed is None and op_seed is None:
            graph_seed, op_seed = 0, 0
        elif seed is None and shared_name is not None:
            # Those who share the queue agree on the seed, wherever in their graphs it stands.
            text = f"{graph_seed}{shared_name}".encode()
            op_seed = int(hashlib.md5(text).hexdigest()[:8], 16) & 0x7FFFFFFF
        ref = gen_ops.random_shuffle_queue_v2(
            types, shapes=shape_list, capacity=capacity, min_after_dequeue=min_after_dequeue,
            seed=graph_seed, seed2=op_seed, shared_name=shared_name,
            container=_container(), name=name,
        )  # fmt: skip
        super().__init__(types, shape_list, _name_list(names, types), ref)


@export(v1=("PaddingFIFOQueue", "queue.PaddingFIFOQueue"), v2="queue.PaddingFIFOQueue")
class PaddingFIFOQueue(QueueBase):
    """A FIFOQueue whose components may have unknown dimensions (None in `shapes`).

    `dequeue_many` pads them to the longest of the elements.
    """

    def __init__(
        self, capacity: int, dtypes: Any, shapes: Any, names: Any = None,
        shared_name: str | None = None, name: str = "padding_fifo_queue",
    ):  # fmt: skip
        types = listed_types(dtypes)
        shape_list = listed_shapes(shapes, types, unknown_dims=True)
        if shape_list is None:
            raise ValueError(
                "When providing partial shapes, a list of shapes must be provided: a "
                f"PaddingFIFOQueue of {len(types)} components got none"
            )
        ref = gen_ops.padding_fifo_queue_v2(
            types,
            shapes=shape_list,
            capacity=capacity,
            shared_name=shared_name,
            container=_container(),
            name=name,
        )
        super().__init__(types, shape_list, _name_list(names, types), ref)


@export(v1=("PriorityQueue", "queue.PriorityQueue", "io.PriorityQueue"), v2="queue.PriorityQueue")
class PriorityQueue(QueueBase):
    """A queue whose elements come out in the order of their priorities, smallest first.

    Its first component, before those of `types`, is the priority: an int64.
    """

    def __init__(
        self, capacity: int, types: Any, shapes: Any = None, names: Any = None,
        shared_name: str | None = None, name: str = "priority_queue",
    ):  # fmt: skip
        own = listed_types(types)
        shape_list = listed_shapes(shapes, own)
        ref = gen_ops.priority_queue_v2(
            shape_list or [], component_types=own, capacity=capacity, shared_name=shared_name,
            container=_container(), name=name,
        )  # fmt: skip
        every = [dtypes.int64, *own]
        every_shape = [TensorShape([]), *shape_list] if shape_list else shape_list
        super().__init__(every, every_shape, _name_list(names, every), ref)


# Accumulators.


@export(v1="ConditionalAccumulatorBase")
class ConditionalAccumulatorBase:
    """What both kinds of accumulators can do: gather gradients until there are enough."""

    def __init__(self, dtype: Any, shape: Any, accumulator_ref: Tensor):
        self._dtype = dtypes.as_dtype(dtype)
        self._shape = TensorShape(shape)
        self._accumulator_ref = accumulator_ref
        self._full_name = maker_name(accumulator_ref, otherwise="accumulator")
        self._name = self._full_name.rpartition("/")[2]

    @property
    def accumulator_ref(self) -> Tensor:
        """The handle of the accumulator."""
        return self._accumulator_ref

    @property
    def name(self) -> str:
        """The name of the operation that holds it."""
        return self._full_name

    @property
    def dtype(self) -> dtypes.DType:
        """The type of the gradients."""
        return self._dtype

    _count = staticmethod(gen_ops.accumulator_num_accumulated)
    _set_step = staticmethod(gen_ops.accumulator_set_global_step)
    _begin = staticmethod(gen_ops.accumulator_begin)

    def num_accumulated(self, name: str | None = None) -> Tensor:
        """The number of gradients that were gathered."""
        return self._count(self._accumulator_ref, name=name or f"{self._name}_NumAccumulated")

    def set_global_step(self, new_global_step: Any, name: str | None = None) -> Operation:
        """An operation that sets the step: gradients of earlier steps are dropped from then on."""
        return self._set_step(
            self._accumulator_ref,
            _int64(new_global_step),
            name=name or f"{self._name}_SetGlobalStep",
        )

    def begin(self, era: Any, step: Any, name: str | None = None) -> Operation:
        """An operation that empties the accumulator, which is at a step of an era then.

        A training whose tasks may be lost lives in eras: one lasts until the model is set back, and
        is known by a random number above 0. Nothing happens in an era that has begun already.
        0 stands for whichever it is, and begins each time.
        """
        return self._begin(self._accumulator_ref, _int64(era), _int64(step), name=name)


def _int64(value: Any) -> Tensor:
    tensor = convert_to_tensor(value)
    return tensor if tensor.dtype is dtypes.int64 else gen_ops.cast(tensor, dtypes.int64)


@export(v1="ConditionalAccumulator")
class ConditionalAccumulator(ConditionalAccumulatorBase):
    """Gathers dense gradients; `take_grad` gives their mean (or sum) once there are enough.

    Args:
      dtype, shape: of the gradients; the shape may be unknown.
      shared_name: a name under which other sessions share it.
      reduction_type: "MEAN" or "SUM".
    """

    _count = staticmethod(gen_ops.resource_accumulator_num_accumulated)
    _set_step = staticmethod(gen_ops.resource_accumulator_set_global_step)
    _begin = staticmethod(gen_ops.resource_accumulator_begin)

    def __init__(
        self, dtype: Any, shape: Any = None, shared_name: str | None = None,
        name: str = "conditional_accumulator", reduction_type: str = "MEAN",
    ):  # fmt: skip
        ref = gen_ops.resource_conditional_accumulator(
            dtype, TensorShape(shape), shared_name=shared_name, reduction_type=reduction_type,
            container=_container(), name=name,
        )  # fmt: skip
        super().__init__(dtype, shape, ref)

    def apply_grad(self, grad: Any, local_step: Any = 0, name: str | None = None) -> Operation:
        """An operation that adds a gradient, unless `local_step` is before the current step."""
        grad = convert_to_tensor(grad, self._dtype)
        grad.shape.assert_is_compatible_with(self._shape)
        return gen_ops.resource_accumulator_apply_gradient(
            self._accumulator_ref, _int64(local_step), grad, name=name
        )

    def give_grad(
        self, grad: Any, local_step: Any, giver: str, era: Any = 0, name: str | None = None
    ) -> Tensor:
        """Adds a gradient as `apply_grad` does, once for each `giver` between two takes, unless it
        is of another era than the accumulator.

        Gives whether it was added. Gradients of nobody, "", all count.
        """
        grad = convert_to_tensor(grad, self._dtype)
        grad.shape.assert_is_compatible_with(self._shape)
        return gen_ops.resource_accumulator_give_gradient(
            self._accumulator_ref, _int64(era), _int64(local_step), giver, grad, name=name
        )

    def take_step(self, era: Any, step: Any, num_required: Any, name: str | None = None) -> Tensor:
        """As `take_grad` for a step of an era: gives again what was taken for it, until a gradient
        of the next step comes. In era 0, as `take_grad`."""
        out = gen_ops.resource_accumulator_take_step(
            self._accumulator_ref, _int64(era), _int64(step), num_required, self._dtype, name=name
        )
        out.set_shape(self._shape)
        return out

    def take_grad(self, num_required: Any, name: str | None = None) -> Tensor:
        """The mean of the gradients, once there are `num_required`; empties the accumulator."""
        out = gen_ops.resource_accumulator_take_gradient(
            self._accumulator_ref, num_required, self._dtype, name=name
        )
        out.set_shape(self._shape)
        return out


@export(v1=("SparseConditionalAccumulator", "sparse.SparseConditionalAccumulator"))
class SparseConditionalAccumulator(ConditionalAccumulatorBase):
    """Gathers gradients of which only some slices are there; as ConditionalAccumulator."""

    def __init__(
        self, dtype: Any, shape: Any = None, shared_name: str | None = None,
        name: str = "sparse_conditional_accumulator", reduction_type: str = "MEAN",
    ):  # fmt: skip
        ref = gen_ops.sparse_conditional_accumulator(
            dtype, TensorShape(shape), shared_name=shared_name, reduction_type=reduction_type,
            container=_container(), name=name,
        )  # fmt: skip
        super().__init__(dtype, shape, ref)

    def apply_indexed_slices_grad(
        self, grad: IndexedSlices, local_step: Any = 0, name: str | None = None
    ) -> Operation:
        """An operation that adds a gradient, unless `local_step` is before the current step."""
        return self.apply_grad(grad.indices, grad.values, grad.dense_shape, local_step, name)

    def apply_grad(
        self, grad_indices: Any, grad_values: Any, grad_shape: Any = None, local_step: Any = 0,
        name: str | None = None,
    ) -> Operation:  # fmt: skip
        """An operation that adds a gradient: slices at indices of the first dimension, of a tensor
        of shape `grad_shape`."""
        known = grad_shape is not None
        return gen_ops.sparse_accumulator_apply_gradient(
            self._accumulator_ref,
            _int64(local_step),
            _int64(grad_indices),
            convert_to_tensor(grad_values, self._dtype),
            _int64(grad_shape if known else convert_to_tensor([], dtypes.int64)),
            known,
            name=name,
        )

    def give_indexed_slices_grad(
        self, grad: IndexedSlices, local_step: Any, giver: str, era: Any = 0,
        name: str | None = None,
    ) -> Tensor:  # fmt: skip
        """Adds a gradient as `apply_grad` does, once for each `giver` between two takes, unless it
        is of another era than the accumulator.

        Gives whether it was added. Gradients of nobody, "", all count.
        """
        known = grad.dense_shape is not None
        return gen_ops.sparse_accumulator_give_gradient(
            self._accumulator_ref,
            _int64(era),
            _int64(local_step),
            giver,
            _int64(grad.indices),
            convert_to_tensor(grad.values, self._dtype),
            _int64(grad.dense_shape if known else convert_to_tensor([], dtypes.int64)),
            known,
            name=name,
        )

    def take_grad(self, num_required: Any, name: str | None = None) -> Any:
        """The mean of the gradients as (indices, values, shape), once there are `num_required`."""
        return gen_ops.sparse_accumulator_take_gradient(
            self._accumulator_ref, num_required, self._dtype, name=name
        )

    def take_indexed_slices_grad(self, num_required: Any, name: str | None = None) -> IndexedSlices:
        """The mean of the gradients as IndexedSlices, once there are `num_required`."""
        indices, values, shape = self.take_grad(num_required, name)
        return IndexedSlices(values=values, indices=indices, dense_shape=shape)

    def take_step(
        self, era: Any, step: Any, num_required: Any, name: str | None = None
    ) -> IndexedSlices:
        """As `take_indexed_slices_grad` for a step of an era: gives again what was taken for it,
        until a gradient of the next step comes. In era 0, as that."""
        indices, values, shape = gen_ops.sparse_accumulator_take_step(
            self._accumulator_ref, _int64(era), _int64(step), num_required, self._dtype, name=name
        )
        return IndexedSlices(values=values, indices=indices, dense_shape=shape)
