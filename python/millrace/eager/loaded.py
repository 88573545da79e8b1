"""LoadedFunction: a function of the library that was traced elsewhere, by another program."""

from typing import Any, NamedTuple

import numpy as np

from millrace import _core
from millrace.core import nest
from millrace.core.shapes import TensorShape
from millrace.core.specs import TensorSpec
from millrace.core.tensor import Tensor
from millrace.eager import tape
from millrace.eager.arguments import Leaf, Signature, shape_of, sizes_of
from millrace.eager.calls import Callee
from millrace.eager.concrete import ConcreteFunction, FuncGraph
from millrace.graph.convert import convert_to_tensor


class Capture(NamedTuple):
    """A tensor from outside that a function is given behind its arguments."""

    tensor: Any
    # (type, shape) of what a variable's handle names, or None.
    holds: Any


class LoadedFunction(ConcreteFunction):
    """A ConcreteFunction made of a function that the library has already.

    Args:
      root: a graph over the library.
      name: the function's name there.
      types: those of its arguments, captures included.
      signature: its parameters.
      structure: (args, kwargs) that it was traced with: a TensorSpec for each tensor.
      names: what the tensors among the arguments are called, in their order.
      captures: what it is given behind the arguments.
      results: the structure that it returns, a TensorSpec for each tensor.

    ValueError where these do not fit the function.
    """

    def __init__(
        self, root: Any, name: str, types: list[Any], signature: Signature, structure: Any,
        names: list[str], captures: list[Capture], results: Any,
    ):  # fmt: skip
        self._signature, self._root, self.name = signature, root, name
        given = iter(names)
        self._structure = nest.map_structure(lambda leaf: _slot(leaf, given), structure)
        slots = self._slots()
        self._shapes = [sizes_of(slot.value.shape) for slot in slots]
        self._captured = [capture.tensor for capture in captures]
        self._deferred: dict[int, Any] = {}
        own = [*(slot.value.dtype for slot in slots), *(t.dtype for t in self._captured)]
        if own != list(types):
            raise ValueError(f"function {name} takes {_types(types)}, but is given {_types(own)}")
        self.is_free = all(map(_core.is_eager_tensor, self._captured))
        facts = [(shape, None) for shape in self._shapes]
        facts += [(shape_of(capture.tensor), capture.holds) for capture in captures]
        body = _core.function_body(root, name, facts)
        graph, arguments, outputs, self._stateful = body
        self._result_types = [output.dtype for output in outputs]
        self._callee = Callee(root, name, list(types), self._result_types)
        self._take_graph(graph, arguments, outputs)
        self._take_results(results, outputs)
        variables = [tape.variable_of(handle) for handle in graph._handles]
        self._trainable = [
            handle for handle, variable in zip(graph._handles, variables, strict=True)
            if variable is not None and variable.trainable
        ]  # fmt: skip

    def _take_graph(self, graph: Any, arguments: list[Any], outputs: list[Any]) -> None:
        graph.__class__ = FuncGraph
        graph._begin(self._signature.name)
        graph.inputs = arguments
        inside = arguments[len(arguments) - len(self._captured) :]
        graph.captures = list(zip(self._captured, inside, strict=True))
        graph._handles = [t for t in self._captured if t.dtype.name == "resource"]
        self.graph: Any = graph

    def _take_results(self, results: Any, outputs: list[Any]) -> None:
        left = iter(outputs)
        self._leaves = [_result(leaf, left, self.name) for leaf in nest.flatten(results)]
        self._result_shapes = [shape_of(output) for output in outputs]
        self._result = nest.pack_sequence_as(results, self._leaves)
        self.graph.outputs = [leaf for leaf in self._leaves if leaf is not None]
        self.graph.structured_outputs = self._result

    def matching(self, args: Any, kwargs: Any, convert: bool) -> list[Any] | None:
        """The tensors of a call with arguments as `structure` has them; None for others.

        `convert`: numbers, lists and so on are made tensors where those are wanted.
        """
        try:
            given = nest.flatten_up_to(self._structure, (args, kwargs))
        except (TypeError, ValueError):
            return None
        tensors = []
        for leaf, value in zip(nest.flatten(self._structure), given, strict=True):
            if isinstance(leaf, Leaf):
                tensor = _fitting(leaf.value, value, convert)
                if tensor is None:
                    return None
                tensors.append(tensor)
            elif not _same(leaf, value):
                return None
        return tensors


def _types(types: Any) -> str:
    return "(" + ", ".join(t.name for t in types) + ")"


def _slot(leaf: Any, names: Any) -> Any:
    if not isinstance(leaf, TensorSpec):
        return leaf
    name = next(names, None) or leaf.name or "argument"
    return Leaf(TensorSpec(leaf.shape, leaf.dtype, name), 1, name)


def _result(leaf: Any, outputs: Any, function: str) -> Any:
    if leaf is None:
        return None
    output = next(outputs, None)
    if output is None or not isinstance(leaf, TensorSpec) or output.dtype != leaf.dtype:
        raise ValueError(f"function {function} has no result {leaf!r}, but {output!r}")
    output.set_shape(leaf.shape)
    return output


def _fitting(spec: TensorSpec, value: Any, convert: bool) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        value = convert_to_tensor(value)
    elif convert and not isinstance(value, (Tensor, TensorSpec)):
        try:
            value = convert_to_tensor(value, dtype=spec.dtype)
        except (TypeError, ValueError):
            return None
    if not isinstance(value, (Tensor, TensorSpec)) or value.dtype != spec.dtype:
        return None
    return value if spec.shape.is_compatible_with(TensorShape(value.shape)) else None


def _same(leaf: Any, value: Any) -> bool:
    if leaf is value:
        return True
    if isinstance(value, (Tensor, TensorSpec)) or isinstance(leaf, (Tensor, TensorSpec)):
        return False
    return type(leaf) is type(value) and bool(np.all(leaf == value))
