"""Tensors that stay in a session between runs, known by handles."""

from typing import Any

import numpy as np

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.default_graph import colocate_with, device
from millrace.graph.graph import Graph
from millrace.graph.operation import Operation

# Handles that nobody holds any more are deleted when there are so many.
_MAX_DEAD = 10


@export(v1="TensorHandle")
class TensorHandle:
    """What a run gives for a `get_session_handle`: the name of a tensor that the session keeps.

    The tensor is kept while the handle lives. A handle may be fed where its name is expected.
    """

    def __init__(self, handle: Any, dtype: dtypes.DType, session: Any):
        self._handle = _text(handle)
        self._dtype = dtype
        self._session = session
        self._owns = True

    def __del__(self) -> None:
        if self._owns:
            self._session._dead_handles.append(self._handle)

    def __str__(self) -> str:
        return self._handle

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(self._handle, dtype=object)

    @property
    def handle(self) -> str:
        """The name."""
        return self._handle

    def get_raw_handle(self) -> str:
        """The name; the tensor is kept from now on until it is deleted by it."""
        self._owns = False
        return self._handle

    def eval(self) -> Any:
        """The value of the tensor. TypeError when it was deleted or left to its raw handle."""
        self._check_owned()
        graph = self._session.graph
        kept = graph.__dict__.setdefault("_handle_readers", {})
        key = (_device_of(self._handle), self._dtype)
        if key not in kept:
            with graph.as_default():
                kept[key] = get_session_tensor(self._handle, self._dtype)
        holder, value = kept[key]
        return self._session.run(value, feed_dict={holder: self._handle})

    def delete(self) -> None:
        """Lets the session keep the tensor no longer. TypeError when it was deleted or left to its
        raw handle."""
        self._check_owned()
        self._owns = False
        _delete(self._session, self._handle)

    def _check_owned(self) -> None:
        if not self._owns:
            raise TypeError(f"Persistent tensor {self._handle} may have already been deleted.")


def fetched_handle(session: Any, handle: Any, dtype: dtypes.DType) -> TensorHandle:
    """What `session` gives for a handle that was fetched. Deletes tensors that nobody knows."""
    dead = session._dead_handles
    if len(dead) >= _MAX_DEAD and not session.graph.finalized:
        for _ in range(len(dead)):
            _delete(session, dead.pop())
    return TensorHandle(handle, dtype, session)


def _delete(session: Any, handle: str) -> None:
    graph: Graph = session.graph
    kept = graph.__dict__.setdefault("_handle_deleters", {})
    key = _device_of(handle)
    if key not in kept:
        with graph.as_default():
            kept[key] = delete_session_tensor(handle)
    holder, deleter = kept[key]
    session.run(deleter, feed_dict={holder: handle})


def _text(handle: Any) -> str:
    if isinstance(handle, TensorHandle):
        return handle.handle
    if isinstance(handle, np.ndarray):
        handle = handle.item()
    return handle.decode() if isinstance(handle, bytes) else str(handle)


def _device_of(handle: Any) -> str:
    return _text(handle).rpartition(";")[2]


@export(v1="get_session_handle")
def get_session_handle(data: Tensor, name: str | None = None) -> Tensor:
    """Keeps the value of a tensor in the session: a run gives a `TensorHandle` for the result.

    TypeError when `data` is no tensor.
    """
    if not isinstance(data, Tensor):
        raise TypeError("`data` must be of type Tensor.")
    with colocate_with(data):
        return gen_ops.get_session_handle(data, name=name)


@export(v1="get_session_tensor")
def get_session_tensor(handle: Any, dtype: Any, name: str | None = None) -> tuple[Tensor, Tensor]:
    """A placeholder for handles, and the tensor that the session keeps under what is fed.

    `handle`: one of those that will be fed; it tells where the tensors are.
    """
    with device(_device_of(handle)):
        holder = gen_ops.placeholder(dtypes.string)
        return holder, gen_ops.get_session_tensor(holder, dtypes.as_dtype(dtype), name=name)


@export(v1="delete_session_tensor")
def delete_session_tensor(handle: Any, name: str | None = None) -> tuple[Tensor, Operation]:
    """A placeholder for handles, and an operation that deletes the tensor of the one that is fed.

    `handle`: one of those that will be fed; it tells where the tensors are.
    """
    with device(_device_of(handle)):
        holder = gen_ops.placeholder(dtypes.string)
        return holder, gen_ops.delete_session_tensor(holder, name=name)
