"""Where iterators stand, in checkpoints."""

from typing import Any

from millrace import gen_ops
from millrace.checkpoint.saveable import SaveableObject, SaveSpec
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.data.iterator import Iterator
from millrace.graph.default_graph import control_dependencies


class _IteratorSaveable(SaveableObject):
    def __init__(self, iterator: Iterator):
        handle = iterator._iterator_resource
        self._begin = [] if iterator._initializer is None else [iterator._initializer]
        # As a string, which every checkpoint can hold.
        state = gen_ops.serialize_tensor(gen_ops.serialize_iterator(handle))
        name = f"{handle.op.name}-state"
        super().__init__(handle, [SaveSpec(state, "", name)], name)

    def restore(self, restored_tensors: list[Tensor], restored_shapes: Any) -> Any:
        """The operation that begins the iterator and lets it go on there."""
        del restored_shapes
        state = gen_ops.parse_tensor(restored_tensors[0], out_type=dtypes.variant)
        with control_dependencies(self._begin):
            return gen_ops.deserialize_iterator(self.op, state)


@export(
    v1=(
        "data.experimental.make_saveable_from_iterator",
        "contrib.data.make_saveable_from_iterator",
    ),
    v2="data.experimental.make_saveable_from_iterator",
)
def make_saveable_from_iterator(
    iterator: Iterator, external_state_policy: Any = None
) -> SaveableObject:
    """An object that a `tf.train.Saver` saves and restores: where the iterator stands.

    Add it to `tf.GraphKeys.SAVEABLE_OBJECTS` before the saver is made. Restoring runs the
    iterator's initializer where it has one; an iterator without a dataset of its own must have been
    given one.
    """
    del external_state_policy
    return _IteratorSaveable(iterator)
