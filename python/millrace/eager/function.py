"""tf.function: Python functions that are traced and run as graphs."""

import functools
import itertools
from typing import Any, Callable

import numpy as np

from millrace import _core
from millrace.core import nest
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.specs import TensorSpec
from millrace.core.tensor import Tensor
from millrace.core.trackable import Trackable
from millrace.eager.tape import accessed
from millrace.eager.tensor import EagerTensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.graph import Graph
from millrace.graph.sparse import IndexedSlices
from millrace.graph.tracing import leaf_of, tensors_of, wholes

_numbers = itertools.count()


@export(v2="function")
def function(
    func: Callable[..., Any] | None = None, input_signature: Any = None, autograph: bool = True,
    jit_compile: Any = None, reduce_retracing: bool = False, experimental_implements: Any = None,
    experimental_autograph_options: Any = None, experimental_attributes: Any = None,
    experimental_relax_shapes: Any = None, experimental_compile: Any = None,
    experimental_follow_type_hints: Any = None,
) -> Any:  # fmt: skip
    """Makes a Python function of tensors one that runs as a graph.

    It is traced once for each structure of arguments, types and shapes of tensors, and values that
    are none; a call of a traced function runs no Python. Python code in it runs while it is traced.
    Variables and tensors from outside are used as they are at each call, and what changes state
    runs in the order of the program.
    """
    del jit_compile, experimental_implements, experimental_autograph_options
    del experimental_attributes, experimental_compile, experimental_follow_type_hints, autograph

    def decorate(python_function: Callable[..., Any]) -> "Function":
        made = Function(python_function, input_signature, reduce_retracing)
        return functools.update_wrapper(made, python_function)

    return decorate if func is None else decorate(func)


class _Slot:
    """Where a tensor stands in the structure of arguments."""

    def __repr__(self) -> str:
        return "<tensor>"


_TENSOR = _Slot()


class Function(Trackable):
    """What `tf.function` makes of a Python function."""

    def __init__(self, python_function: Callable[..., Any], signature: Any, reduce_retracing: bool):
        self.python_function = python_function
        self.input_signature = None if signature is None else tuple(signature)
        self._reduce_retracing = reduce_retracing
        self._traced: dict[Any, ConcreteFunction] = {}
        # The same by types and shapes, of calls with tensors alone.
        self._of_tensors: dict[Any, ConcreteFunction] = {}

    def __get__(self, instance: Any, owner: Any) -> Any:
        if instance is None:
            return self
        name = f"_function_of_{self.python_function.__name__}_{id(self)}"
        known = instance.__dict__.get(name) if hasattr(instance, "__dict__") else None
        if known is None:
            bound = self.python_function.__get__(instance, owner)
            known = Function(bound, self.input_signature, self._reduce_retracing)
            if hasattr(instance, "__dict__"):
                instance.__dict__[name] = known
        return known

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not _core.executing_eagerly():
            return self.python_function(*args, **kwargs)  # part of what is being traced
        if kwargs or not all(type(arg) is EagerTensor for arg in args):
            concrete, tensors = self._find(args, kwargs)
            return concrete._run(tensors)
        # Most calls: tensors alone.
        kinds = tuple([(arg.dtype, arg._shape_tuple()) for arg in args])
        known = self._of_tensors.get(kinds)
        if known is None:
            known, _ = self._find(args, kwargs)
            self._of_tensors[kinds] = known
        return known._run(list(args))

    def get_concrete_function(self, *args: Any, **kwargs: Any) -> "ConcreteFunction":
        """The traced function for arguments like these, which may be TensorSpecs."""
        if self.input_signature is not None and not args and not kwargs:
            args = self.input_signature
        with _core.init_scope():
            return self._find(args, kwargs)[0]

    def experimental_get_tracing_count(self) -> int:
        """How often it was traced."""
        return len(self._traced)

    def _find(self, args: Any, kwargs: Any) -> "tuple[ConcreteFunction, list[Any]]":
        if self.input_signature is not None:
            args = tuple(
                nest.map_structure_up_to(spec, _as_specified, spec, arg)
                for spec, arg in zip(self.input_signature, args, strict=True)
            )
        leaves = nest.flatten((args, kwargs))
        tensors: list[Any] = []
        key: list[Any] = []
        for leaf in leaves:
            if isinstance(leaf, (np.ndarray, np.generic)):
                leaf = convert_to_tensor(leaf)
            if isinstance(leaf, Tensor):
                tensors.append(leaf)
                key.append((leaf.dtype, leaf._shape_tuple()))
            elif _is_spec(leaf):
                tensors.append(leaf)
                key.append((leaf.dtype, _sizes(leaf.shape)))
            else:
                key.append(_key_of(leaf))
        whole = (_structure_of((args, kwargs)), tuple(key))
        if self.input_signature is not None:
            specs = nest.flatten(self.input_signature)
            whole = ("signature",)
            shapes = [_sizes(s.shape) for s in specs]
        else:
            shapes = [_sizes(t.shape) for t in tensors]
        concrete = self._traced.get(whole)
        if concrete is None:
            concrete = self._trace(args, kwargs, tensors, shapes)
            self._traced[whole] = concrete
        return concrete, tensors

    def _trace(
        self, args: Any, kwargs: Any, tensors: list[Any], shapes: list[Any]
    ) -> "ConcreteFunction":
        structure = nest.map_structure(_placed, (args, kwargs))
        return ConcreteFunction(self.python_function, structure, [t.dtype for t in tensors], shapes)


def _sizes(shape: Any) -> Any:
    shape = TensorShape(shape)
    return None if shape.ndims is None else tuple(shape.as_list())


def _is_spec(leaf: Any) -> bool:
    return isinstance(leaf, TensorSpec)


def _as_specified(spec: Any, arg: Any) -> Any:
    if _is_spec(arg):
        return arg
    tensor = convert_to_tensor(arg, dtype=spec.dtype)
    if not TensorShape(spec.shape).is_compatible_with(tensor.shape):
        raise ValueError(
            f"Python inputs incompatible with input_signature: expected {spec}, got a tensor of "
            f"shape {tensor.shape}"
        )
    return tensor


def _key_of(leaf: Any) -> Any:
    try:
        hash(leaf)
    except TypeError:
        return _Same(leaf)
    return type(leaf), leaf


class _Same:
    """Equal for one object alone, which lives as long as this does."""

    def __init__(self, of: Any):
        self._of = of

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, _Same) and other._of is self._of

    def __hash__(self) -> int:
        return id(self._of)


def _structure_of(value: Any) -> Any:
    if isinstance(value, dict):
        return type(value), tuple((k, _structure_of(v)) for k, v in sorted(value.items()))
    if isinstance(value, (list, tuple)):
        return type(value), tuple(_structure_of(v) for v in value)
    return None


def _placed(leaf: Any) -> Any:
    if isinstance(leaf, (Tensor, np.ndarray, np.generic)) or _is_spec(leaf):
        return _TENSOR
    return leaf


class ConcreteFunction(Trackable):
    """A traced function: its arguments are the tensors among those that it was traced with."""

    def __init__(
        self, python_function: Callable[..., Any], structure: Any, types: list[Any],
        shapes: list[Any],
    ):  # fmt: skip
        self._graph = Graph(True)
        self._variables: list[Any] = []
        name = getattr(python_function, "__name__", type(python_function).__name__)
        name = "".join(c if c.isalnum() else "_" for c in name).strip("_") or "function"
        self.name = f"__inference_{name}_{next(_numbers)}"

        def code(parameters: list[Tensor]) -> list[Tensor]:
            given = iter(parameters)
            args, kwargs = nest.map_structure(
                lambda leaf: next(given) if leaf is _TENSOR else leaf, structure
            )
            with _Accesses(self._variables):
                result = python_function(*args, **kwargs)
            self._result = result
            self._leaves = [_leaf(part) for part in nest.flatten(result)]
            out = [t for leaf in self._leaves for t in tensors_of(leaf)]
            return out or [convert_to_tensor(True)]

        with self._graph.as_default():
            made = _core.add_function(
                self._graph, self.name, types, shapes, [f"arg{i}" for i in range(len(types))], code
            )
        self._function, captures, self._result_types, self.output_shapes, self._stateful = made
        values = {placeholder: value for value, placeholder in self._graph._captured_values()}
        self.captured_inputs = [values[capture] for capture in captures]
        self._types = [*types, *(v.dtype for v in self.captured_inputs)]
        self._call = _core.FunctionCall(self._function, self._types, self._result_types)
        self._backward: Any = None

    @property
    def structured_outputs(self) -> Any:
        """What it returns, as it was traced."""
        return self._result

    @property
    def graph(self) -> Graph:
        """The graph around its body."""
        return self._graph

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tensors = [convert_to_tensor(a) for a in nest.flatten((args, kwargs)) if a is not None]
        return self._run(tensors)

    def _run(self, tensors: list[Any]) -> Any:
        for variable in self._variables:
            _core.variable_accessed(variable)
        inputs = [*tensors, *self.captured_inputs]
        outputs = self._call(inputs)
        if _core.any_tape():
            outputs = self._recorded(inputs, outputs)
        if isinstance(self._result, Tensor):
            return outputs[0]
        leaves = iter(wholes(self._leaves, outputs))
        return nest.pack_sequence_as(self._result, list(leaves))

    def _recorded(self, inputs: list[Any], outputs: list[Any]) -> list[Any]:
        def backward(*incoming: Any) -> list[Any]:
            dys = [
                _core.zeros_like(y) if g is None else convert_to_tensor(_dense(g))
                for g, y in zip(incoming, outputs, strict=True)
            ]
            found = self._gradient()([*inputs, *dys])
            return [
                g if x.dtype.is_floating or x.dtype.is_complex or x.dtype.name == "resource"
                else None
                for g, x in zip(found, inputs, strict=True)
            ]  # fmt: skip

        return _core.record_operation(inputs, outputs, backward)

    def _gradient(self) -> Any:
        """From arguments and gradients of the results to gradients of the arguments."""
        if self._backward is None:
            self._backward = _GradientCall(self)
        return self._backward


class _GradientCall:
    """Calls the gradient of a traced function. Itself differentiable."""

    def __init__(self, of: ConcreteFunction):
        with of._graph.as_default():
            name = _core.gradient_function(of._graph, of._function)
        results = [_held(t, x) for t, x in _with_values(of)]
        self._call = _core.FunctionCall(name, [*of._types, *of._result_types], results)

    def __call__(self, arguments: list[Any]) -> list[Any]:
        return self._call(arguments)


def _with_values(of: ConcreteFunction) -> list[tuple[Any, Any]]:
    count = len(of._types) - len(of.captured_inputs)
    return list(zip(of._types, [None] * count + list(of.captured_inputs), strict=True))


def _held(dtype: Any, value: Any) -> Any:
    """The type of the gradient of an argument: of what a handle holds."""
    if dtype.name != "resource" or value is None:
        return dtype
    return _core.held_type(value)


def _dense(gradient: Any) -> Any:
    return IndexedSlices(*gradient) if isinstance(gradient, tuple) else gradient


def _leaf(part: Any) -> Any:
    source = getattr(part, "_as_tensor", None)
    return leaf_of(source() if source is not None else part)


class _Accesses:
    """Collects the handles of trainable variables that are read inside."""

    def __init__(self, into: list[Any]):
        self._into = into

    def __enter__(self) -> None:
        accessed.append(self._into)

    def __exit__(self, *_: Any) -> None:
        accessed.pop()
