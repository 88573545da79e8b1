"""Iterators outside of graphs: Python's `for` over a dataset."""

from typing import Any

import numpy as np

from millrace import _core, gen_ops
from millrace.core import dtypes, errors
from millrace.core.export import export
from millrace.core.trackable import Trackable
from millrace.data import structure
from millrace.data.iterator import Iterator
from millrace.data.structure import ArrayLeaf, DatasetLeaf, OptionalLeaf, SparseLeaf, attrs_of
from millrace.ops.ragged.tensor import RaggedTensor

_STATE = "ITERATOR_STATE"


class OwnedIterator(Trackable, Iterator):
    """A place in a dataset. `next(iterator)` gives the next element, StopIteration where there is
    none; `get_next()` raises OutOfRangeError then.

    `tf.train.Checkpoint(iterator=iterator)` saves where it stands.
    """

    def __init__(self, dataset: Any):
        handle = gen_ops.iterator_v2(shared_name="", container="", **attrs_of(dataset._spec))
        super().__init__(handle, None, dataset._spec)
        self._dataset = dataset  # which has the functions
        self._attrs = attrs_of(dataset._spec)
        gen_ops.make_iterator(dataset._variant_tensor, handle)

    def __iter__(self) -> "OwnedIterator":
        return self

    def __next__(self) -> Any:
        if not _core.executing_eagerly():
            return self.get_next()
        try:
            return self.get_next()
        except errors.OutOfRangeError:
            raise StopIteration from None

    next = __next__

    def get_next(self, name: str | None = None) -> Any:
        """The next element; OutOfRangeError where there is none."""
        values = gen_ops.iterator_get_next(self._iterator_resource, name=name, **self._attrs)
        values = list(values) if isinstance(values, (list, tuple)) else [values]
        return structure.from_tensors(self._spec, values)

    def __del__(self) -> None:
        handle = self.__dict__.get("_iterator_resource")
        if handle is not None and _core is not None:  # as the interpreter ends
            _core.destroy_iterator(handle)

    # In checkpoints.

    def _saved_names(self) -> list[str]:
        return [_STATE]

    def _serialize_to_tensors(self) -> dict[str, Any]:
        # What random ops in functions would give next is saved too, what others hold is not.
        if not self._dataset._may_save_state():
            raise errors.FailedPreconditionError(
                None, None,
                "the iterator cannot be saved: a function of its dataset has state of its own. "
                "With `options.experimental_external_state_policy = tf.data.experimental."
                "ExternalStatePolicy.WARN` (or IGNORE), given to the dataset by with_options, all "
                "but what such functions hold is saved.",
            )  # fmt: skip
        state = gen_ops.serialize_iterator(self._iterator_resource)
        return {_STATE: gen_ops.serialize_tensor(state)}

    def _restore_from_tensors(self, restored_tensors: dict[str, Any]) -> Any:
        state = gen_ops.parse_tensor(restored_tensors[_STATE], out_type=dtypes.variant)
        return gen_ops.deserialize_iterator(self._iterator_resource, state)


@export(v2="data.NumpyIterator")
class NumpyIterator:
    """As an iterator, with arrays for tensors."""

    def __init__(self, dataset: Any):
        for leaf in structure.flatten(dataset._spec):
            if isinstance(leaf, (ArrayLeaf, DatasetLeaf, OptionalLeaf, SparseLeaf)):
                kind = getattr(leaf.cls, "__name__", leaf.cls)
                raise TypeError(
                    f"`tf.data.Dataset.as_numpy_iterator()` does not support datasets containing "
                    f"{kind}."
                )
        self._iterator = iter(dataset)

    def __iter__(self) -> "NumpyIterator":
        return self

    def __next__(self) -> Any:
        return structure.map_leaves(_array, next(self._iterator))

    next = __next__


def _array(tensor: Any) -> Any:
    if tensor is None:
        return None
    if isinstance(tensor, RaggedTensor):
        return tensor._value()
    value = tensor.numpy()
    if isinstance(value, np.ndarray):
        value.setflags(write=False)
    return value
