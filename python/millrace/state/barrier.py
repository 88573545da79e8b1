"""Barriers: elements whose components come from different places at different times."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import get_default_graph
from millrace.graph.operation import Operation
from millrace.graph.static_value import constant_value
from millrace.state.queues import listed_shapes, listed_types


@export(v1="Barrier")
class Barrier:
    """Gathers the components of elements under their keys.

    Each component is inserted by itself, for many keys at once. Elements that have all of them can
    be taken, those whose keys came first before the others.
    """

    def __init__(
        self, types: Any, shapes: Any = None, shared_name: str | None = None, name: str = "barrier"
    ):
        """A barrier for components of these types and, unless `shapes` is None, shapes.

        Elements can only be taken when shapes were given. ValueError for a shape that is not
        known in full or has no elements.
        """
        self._types = listed_types(types)
        shape_list = listed_shapes(shapes, self._types)
        for i, shape in enumerate(shape_list or []):
            if shape.num_elements() == 0:
                raise ValueError(
                    f"Empty tensors are not supported, but received shape '{shape}' at index {i}"
                )
        self._shapes = shape_list or [TensorShape(None) for _ in self._types]
        self._barrier_ref = gen_ops.barrier(
            component_types=self._types, shapes=shape_list or [], shared_name=shared_name,
            container=get_default_graph()._container, name=name,
        )  # fmt: skip
        self._name = self._barrier_ref.op.name.rpartition("/")[2]

    @property
    def barrier_ref(self) -> Tensor:
        """The handle of the barrier."""
        return self._barrier_ref

    @property
    def name(self) -> str:
        """The name of the operation that holds the barrier."""
        return self._barrier_ref.op.name

    @property
    def types(self) -> list[dtypes.DType]:
        """The types of the components."""
        return self._types

    def insert_many(
        self, component_index: int, keys: Any, values: Any, name: str | None = None
    ) -> Operation:
        """An operation that sets one component of the element of each key.

        `values` has a row for each of `keys`. In a run: InvalidArgumentError when one of the keys
        has this component, CancelledError for a new key when the barrier was closed.
        """
        return gen_ops.barrier_insert_many(
            self._barrier_ref, convert_to_tensor(keys, dtypes.string),
            convert_to_tensor(values, self._types[component_index]),
            component_index=component_index, name=name or f"{self._name}_BarrierInsertMany",
        )  # fmt: skip

    def take_many(
        self, num_elements: Any, allow_small_batch: bool = False, timeout: int | None = None,
        name: str | None = None,
    ) -> tuple[Tensor, Tensor, list[Tensor]]:  # fmt: skip
        """Complete elements: the numbers of their first insertions, their keys, their values.

        In a run it waits until there are enough. `allow_small_batch`: whether a closed barrier
        gives what it has. OutOfRangeError when a closed barrier can never have enough.
        """
        indices, keys, values = gen_ops.barrier_take_many(
            self._barrier_ref, num_elements, self._types, allow_small_batch=allow_small_batch,
            timeout_ms=-1 if timeout is None else timeout,
            name=name or f"{self._name}_BarrierTakeMany",
        )  # fmt: skip
        count = None if allow_small_batch else constant_value(indices.op.inputs[1])
        for value, shape in zip(values, self._shapes, strict=True):
            value.set_shape(TensorShape([None if count is None else int(count)]).concatenate(shape))
        return indices, keys, values

    def close(self, cancel_pending_enqueues: bool = False, name: str | None = None) -> Operation:
        """An operation after which no new key can come.

        `cancel_pending_enqueues`: whether elements that are not complete are dropped.
        """
        return gen_ops.barrier_close(
            self._barrier_ref, cancel_pending_enqueues=cancel_pending_enqueues,
            name=name or f"{self._name}_BarrierClose",
        )  # fmt: skip

    def ready_size(self, name: str | None = None) -> Tensor:
        """The number of complete elements."""
        return gen_ops.barrier_ready_size(
            self._barrier_ref, name=name or f"{self._name}_BarrierReadySize"
        )

    def incomplete_size(self, name: str | None = None) -> Tensor:
        """The number of elements that lack a component."""
        return gen_ops.barrier_incomplete_size(
            self._barrier_ref, name=name or f"{self._name}_BarrierIncompleteSize"
        )
