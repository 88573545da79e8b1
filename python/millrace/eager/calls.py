"""Calls of functions of the runtime's library, and their gradients."""

from typing import Any

import numpy as np

from millrace import _core
from millrace.core import dtypes
from millrace.graph.convert import convert_to_tensor
from millrace.graph.sparse import IndexedSlices

# Gradients up to this order run nothing of a function again.
_MOST_ORDERS = 4


def _flows(dtype: Any) -> bool:
    """Whether gradients of results of the type come in."""
    return dtype.is_floating or dtype.is_complex or dtype is dtypes.variant


class Callee:
    """A function of the library of `graph`, with the types of its arguments and results."""

    def __init__(self, graph: Any, name: str, inputs: list[Any], outputs: list[Any]):
        self.graph, self.name = graph, name
        self.inputs, self.outputs = inputs, outputs
        self.code = _core.FunctionCall(name, inputs, outputs)
        # By the arguments whose gradients are wanted: see _Splits.
        self._splits: dict[Any, list[_Split]] = {}

    def __call__(self, inputs: list[Any]) -> list[Any]:
        """The results for tensors with values. Tapes record it."""
        if not _core.any_tape():
            return self.code(inputs)
        orders, followed = _core.orders_followed(inputs)
        if orders == 0 or not any(_flows(t) for t in self.outputs):
            return self.code(inputs)
        return self._recorded(inputs, min(orders, _MOST_ORDERS), tuple(followed))

    def split(self, order: int, wanted: tuple[bool, ...]) -> "_Split":
        """The halves for gradients of an order: those of the forward half for the order before."""
        splits = self._splits.setdefault(wanted, [])
        while len(splits) < order:
            if splits and not splits[-1].saves:
                return splits[-1]
            splits.append(_Split(splits[-1].forward if splits else self, wanted))
        return splits[order - 1]

    def _recorded(self, inputs: list[Any], orders: int, wanted: tuple[bool, ...]) -> list[Any]:
        try:
            forward = self.split(orders, wanted).forward
        except (LookupError, ValueError) as error:
            return self._without_gradient(inputs, error)
        results = forward.code(inputs)
        values: list[Any] = results
        # What the backward function reads. Gradients of it, of higher orders, find the results by
        # their places on tapes; without these the results need not stay.
        if orders == 1:
            kept = self.split(1, wanted).kept(inputs, results)
            like = [_like(y) for y in results]

        def backward(*incoming: Any) -> list[Any]:
            if orders == 1:
                return self.split(1, wanted).gradients(len(inputs), kept, like, incoming)
            last = max(i for i, g in enumerate(incoming) if g is not None)
            order = 1
            while last >= len(self.split(order, wanted).of.outputs):
                if order == orders:  # of more orders than tapes were there for
                    whole = forward.split(1, wanted)
                    again = whole.forward.code(inputs)
                    return whole.gradients(
                        len(inputs), whole.kept(inputs, again), [_like(y) for y in again], incoming
                    )
                order += 1
            half = self.split(order, wanted)
            return half.gradients(
                len(inputs), half.kept(inputs, values), [_like(y) for y in values], incoming
            )

        recorded = _core.record_operation(inputs, results, backward)
        if orders > 1:
            values = recorded
        return recorded[: len(self.outputs)]

    def _without_gradient(self, inputs: list[Any], error: Exception) -> list[Any]:
        """The call of a function that cannot be differentiated: whoever asks for that is told so,
        and nobody else."""

        def backward(*_: Any) -> list[Any]:
            raise error

        return _core.record_operation(inputs, self.code(inputs), backward)


def _like(tensor: Any) -> Any:
    """What zeros like a tensor are made from."""
    if tensor.dtype is dtypes.variant:
        return tensor
    return tensor.dtype, tensor._shape_tuple()


def _zeros(like: Any) -> Any:
    if not isinstance(like, tuple):
        return _core.zeros_like(like)
    dtype, shape = like
    return convert_to_tensor(np.zeros(shape, dtype.as_numpy_dtype), dtype=dtype)


class _Split:
    """A function in two halves (see SplitFunction in the runtime)."""

    def __init__(self, of: Callee, wanted: tuple[bool, ...]):
        self.of = of
        self._given = [_flows(t) for t in of.outputs]
        forward, saved, backward, self._sources, self._targets, results = _core.split_function(
            of.graph, of.name, self._given, wanted
        )
        self.saves = bool(saved)
        types = [*of.outputs, *saved]
        self.forward = Callee(of.graph, forward, of.inputs, types) if saved else of
        given = [t for t, flows in zip(of.outputs, self._given, strict=True) if flows]
        places = [*of.inputs, *types]
        self._backward = Callee(
            of.graph, backward, [*given, *(places[i] for i in self._sources)], results
        )

    def kept(self, inputs: list[Any], outputs: list[Any]) -> list[Any]:
        """What the backward half reads of a call."""
        count = len(inputs)
        return [inputs[i] if i < count else outputs[i - count] for i in self._sources]

    def gradients(self, count: int, kept: list[Any], like: list[Any], incoming: Any) -> list[Any]:
        """The gradients of the inputs."""
        dys = []
        for i, flows in enumerate(self._given):
            if not flows:
                continue
            g = incoming[i]
            if isinstance(g, tuple):
                g = convert_to_tensor(IndexedSlices(*g))
            dys.append(_zeros(like[i]) if g is None else g)
        found = iter(self._backward([*dys, *kept]) if self._targets else ())
        out: list[Any] = [None] * count
        for argument, rows in self._targets:
            values = next(found)
            out[argument] = (values, next(found), next(found)) if rows else values
        return out
