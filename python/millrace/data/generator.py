"""Generators of Python as datasets: what the operations of such a dataset call."""

from typing import Any, Callable

import numpy as np

from millrace import _core, gen_ops
from millrace.core import dtypes
from millrace.core.tensor import Tensor
from millrace.data import structure
from millrace.data.functions import ElementFunction
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import get_default_graph
from millrace.graph.graph import Graph, root_graph
from millrace.ops.py_func import py_func


class Calls:
    """The generators of one dataset that are running, by number."""

    def __init__(self, function: Callable[..., Any], spec: Any):
        self._function = function
        self._spec = spec
        self._leaves = structure.flatten(spec)
        # A leaf that is no tensor comes in parts.
        self._parts = [leaf.parts for leaf in self._leaves]
        flat = [part for parts in self._parts for part in parts]
        self._part_types = [dtype for dtype, _ in flat]
        self._part_shapes = [shape for _, shape in flat]
        self._plain = [type(leaf) is structure.TensorLeaf for leaf in self._leaves]
        self._types = [
            np.dtype(object if leaf.dtype == dtypes.string else leaf.dtype.as_numpy_dtype)
            for leaf in self._leaves
        ]
        # Of leaves whose shape is known, for a quick look.
        self._shapes = [
            tuple(leaf.shape.as_list()) if leaf.shape.is_fully_defined() else None
            for leaf in self._leaves
        ]
        self._running: dict[int, Any] = {}
        self._count = 0

    def keep(self, graph: Graph) -> None:
        """Keeps them as long as the graph lives."""
        root_graph(graph)._local.setdefault("generators", []).append(self)

    # In the graph.

    def begin_op(self, *args: Tensor) -> Tensor:
        """Starts a generator: its number."""
        return py_func(self._begin, list(args), dtypes.int64)

    def next_op(self, number: Tensor) -> Any:
        """The next element of a generator."""
        values = py_func(self._next, [number], self._part_types)
        for value, shape in zip(values, self._part_shapes, strict=True):
            value.set_shape(shape)
        rest = iter(values)
        wholes = [
            leaf.from_parts([next(rest) for _ in parts])
            for leaf, parts in zip(self._leaves, self._parts, strict=True)
        ]
        return structure.pack(self._spec, wholes)

    def end_op(self, number: Tensor) -> Tensor:
        """Drops a generator."""
        return py_func(self._end, [number], dtypes.int64)

    # When it runs.

    def _begin(self, *args: Any) -> np.int64:
        self._count += 1
        self._running[self._count] = iter(self._function(*args))
        return np.int64(self._count)

    def _next(self, number: Any) -> list[np.ndarray]:
        value = next(self._running[number.item()])
        parts = [value] if self._spec is self._leaves[0] else self._flat(value)
        if all(self._plain):
            return [self._array(i, v) for i, v in enumerate(parts)]
        return [array for i, v in enumerate(parts) for array in self._arrays(i, v)]

    def _end(self, number: Any) -> np.int64:
        self._running.pop(int(number), None)
        return np.int64(0)

    def _flat(self, value: Any) -> list[Any]:
        try:
            parts = structure.leaves_like(self._spec, value, None, "an element")
        except TypeError:
            parts = []
        if len(parts) != len(self._leaves):
            types = structure.map_leaves(lambda leaf: leaf.dtype.name, self._spec)
            raise TypeError(
                "`generator` yielded an element that did not match the expected structure. The "
                f"expected structure was {types}, but the yielded element was {value!r}."
            )
        return parts

    def _array(self, i: int, value: Any) -> np.ndarray:
        try:
            array = np.asarray(value, dtype=self._types[i])
        except (TypeError, ValueError):
            leaf = self._leaves[i]
            raise TypeError(
                "`generator` yielded an element that could not be converted to the expected type. "
                f"The expected type was {leaf.dtype.name}, but the yielded element was {value!r}."
            ) from None
        if array.shape != self._shapes[i]:
            leaf = self._leaves[i]
            if not leaf.shape.is_compatible_with(array.shape):
                raise TypeError(
                    f"`generator` yielded an element of shape {array.shape} where an element of "
                    f"shape {leaf.shape} was expected."
                )
        return array

    def _arrays(self, i: int, value: Any) -> list[np.ndarray]:
        if self._plain[i]:
            return [self._array(i, value)]
        leaf = self._leaves[i]
        try:
            value = structure.leaf_values(value)
            own = structure.leaf_of(value)
            fits = type(own) is type(leaf) and own.dtype == leaf.dtype
            if not fits or not own.shape.is_compatible_with(leaf.shape):
                raise TypeError
            return [part.numpy() for part in leaf.to_parts(value)]
        except (AttributeError, TypeError, ValueError):
            raise TypeError(
                f"`generator` yielded an element that is no {leaf.cls.__name__} of "
                f"{leaf.dtype.name} and shape {leaf.shape}: {value!r}."
            ) from None


def generator_dataset(
    function: Callable[..., Any], spec: Any, args: Any
) -> tuple[Tensor, Any, Calls]:
    """A dataset of what generators give, as a tensor, what its elements are, and what a dataset
    outside of graphs keeps."""
    if not callable(function):
        raise TypeError("`generator` must be callable.")
    values = tuple(convert_to_tensor(a) for a in (args or ()))
    calls = Calls(function, spec)
    init = ElementFunction(calls.begin_op, tuple(map(structure.leaf_of, values)), "generator")
    number = structure.TensorLeaf(dtypes.int64, [])
    step = ElementFunction(calls.next_op, number, "generator")
    last = ElementFunction(calls.end_op, number, "generator")
    if not _core.executing_eagerly():
        calls.keep(get_default_graph())
    variant = gen_ops.generator_dataset(
        [*values, *init.captured], step.captured, last.captured, init_func=init.name,
        next_func=step.name, finalize_func=last.name, **structure.attrs_of(spec),
    )  # fmt: skip
    return variant, spec, calls
