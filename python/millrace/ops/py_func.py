"""Python functions as operations."""

from typing import Any, Callable
from weakref import WeakValueDictionary

import numpy as np

from millrace import _core, gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.eager.tape import GradientTape
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import get_default_graph
from millrace.graph.gradients import UnconnectedGradients
from millrace.graph.graph import root_graph


class _Function:
    """A function that operations of a graph call; lives as long as the graph."""

    def __init__(self, function: Callable[..., Any], stateful: bool):
        self.function = function
        self.stateful = stateful
        self._constant: Any = None

    def __call__(self, args: list[Any]) -> Any:
        if args or self.stateful:
            return self.function(*args)
        if self._constant is None:  # depends on nothing: a constant
            self._constant = (self.function(),)
        return self._constant[0]

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)


_functions: "WeakValueDictionary[str, _Function]" = WeakValueDictionary()
_count = 0


def _register(function: Callable[..., Any], stateful: bool) -> str:
    """A token for the function, which the default graph keeps from now on."""
    global _count
    token = f"pyfunc_{_count}"
    _count += 1
    known = _Function(function, stateful)
    _functions[token] = known
    root_graph(get_default_graph())._local.setdefault("py_funcs", []).append(known)
    return token


@export(v1="py_func")
def py_func(
    func: Callable[..., Any], inp: Any, Tout: Any, stateful: bool = True, name: str | None = None
) -> Any:
    """An operation that calls `func` with the values of `inp`, as NumPy arrays, when it runs.

    Args:
      func: returns an array or a list of them, of the types that `Tout` says.
      Tout: a type, or a list of them.
      stateful: False: the result depends on the arguments alone, so that equal calls may be made
        once and results kept.

    Returns a Tensor, or a list of them where Tout is a list (an Operation where it is empty). What
    `func` raises becomes the error of the operation. The function is part of the process, not of
    the graph: an exported graph cannot call it elsewhere.
    """
    if not callable(func):
        raise ValueError(
            f"Expected func to be callable. Received func={func} of type {type(func)}."
        )
    is_list = isinstance(Tout, (list, tuple))
    types = [dtypes.as_dtype(t).base_dtype for t in (Tout if is_list else [Tout])]
    if _core.executing_eagerly():
        arrays = [convert_to_tensor(x).__array__() for x in inp]
        made = _arrays(_Function(func, stateful), arrays, types)
        values = [convert_to_tensor(a, dtype=t) for a, t in zip(made, types, strict=True)]
        return values if is_list else values[0]
    token = _register(func, stateful)
    op = gen_ops.py_func if stateful else gen_ops.py_func_stateless
    outputs = op(list(inp), token, types, name=name)
    if not types:
        return outputs if stateful else []
    outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    return outputs if is_list else outputs[0]


@export(v1="numpy_function", v2="numpy_function")
def numpy_function(
    func: Callable[..., Any], inp: Any, Tout: Any, stateful: bool = True, name: str | None = None
) -> Any:
    """As `py_func`."""
    return py_func(func, inp, Tout, stateful, name)


@export(v1="py_function", v2="py_function")
def py_function(
    func: Any = None, inp: Any = None, Tout: Any = None, name: str | None = None
) -> Any:
    """Calls `func` with tensors that have values, when the operation runs.

    Args:
      func: gives a tensor, or what converts to one, or a list of them, of the types of `Tout`.
      inp: the arguments, a list of tensors.
      Tout: a type or TensorSpec, or a list of them; empty for functions that give nothing.

    Gradients flow through what it does with its arguments; in graphs and functions, they call it
    again. What it raises becomes the error of the operation.
    """
    if not callable(func):
        raise ValueError(
            f"Expected func to be callable. Received func={func} of type {type(func)}."
        )
    is_list = isinstance(Tout, (list, tuple))
    specs = list(Tout) if is_list else [Tout]
    types = [dtypes.as_dtype(getattr(t, "dtype", t)).base_dtype for t in specs]
    inputs = [convert_to_tensor(x) for x in inp]
    if _core.executing_eagerly():
        outputs: Any = _results(func, types, func(*inputs))
    else:
        outputs = _in_graph(func, inputs, types, name)
        for output, spec in zip(outputs, specs, strict=True):
            if hasattr(spec, "shape"):
                output.set_shape(spec.shape)
    if is_list:
        return outputs
    return outputs[0]


def _results(func: Any, types: list[dtypes.DType], result: Any) -> list[Any]:
    """What a function gave, as tensors of the types."""
    if not types:
        return []
    one = not isinstance(result, (list, tuple)) or (len(types) == 1 and len(result) != 1)
    values = [result] if one else list(result)
    if len(values) != len(types):
        name = getattr(func, "__name__", type(func).__name__)
        raise ValueError(
            f"py_function {name} returns {len(values)} values, but expects to see {len(types)}: "
            f"Tout says {', '.join(t.name for t in types)}"
        )
    return [
        convert_to_tensor(0, dtype=t) if v is None else convert_to_tensor(v, dtype=t)
        for v, t in zip(values, types, strict=True)
    ]


def _in_graph(func: Any, inputs: list[Any], types: list[dtypes.DType], name: Any) -> list[Any]:
    """The function as an operation, which has a gradient: one that calls it under a tape."""
    # Handles of variables have no arrays: those from outside go in as they are.
    handles = {
        i: x
        for i, x in enumerate(inputs)
        if x.dtype is dtypes.resource and _core.is_eager_tensor(x)
    }
    if handles:
        whole = func

        def func(*others: Any) -> Any:
            rest = iter(others)
            return whole(*(handles[i] if i in handles else next(rest) for i in range(count)))

        count = len(inputs)
        inputs = [x for i, x in enumerate(inputs) if i not in handles]
    given = [t.dtype.base_dtype for t in inputs]

    def run(*arrays: Any) -> list[Any]:
        tensors = [convert_to_tensor(a, dtype=t) for a, t in zip(arrays, given, strict=True)]
        return [_array_of(v) for v in _results(func, types, func(*tensors))]

    def run_gradient(*arrays: Any) -> list[Any]:
        count = len(given)
        tensors = [
            convert_to_tensor(a, dtype=t) for a, t in zip(arrays[:count], given, strict=True)
        ]
        with GradientTape() as tape:
            tape.watch([t for t in tensors if _moves(t.dtype)])
            results = _results(func, types, func(*tensors))
        moving = [(y, dy) for y, dy in zip(results, arrays[count:], strict=True) if _moves(y.dtype)]
        found = tape.gradient(
            [y for y, _ in moving], tensors, [convert_to_tensor(dy) for _, dy in moving],
            UnconnectedGradients.ZERO,
        )  # fmt: skip
        return [_array_of(convert_to_tensor(g)) for g, t in zip(found, given, strict=True)
                if _moves(t)]  # fmt: skip

    def rule(op: Any, *dys: Any) -> list[Any]:
        results, own = list(op.inputs)[: len(types)], list(op.inputs)[len(types) :]
        wanted = [t for t in given if _moves(t)]
        incoming = [
            gen_ops.zeros_like(y) if dy is None else convert_to_tensor(dy)
            for dy, y in zip(dys, results, strict=False)
        ]
        found = iter(py_func(run_gradient, own + incoming, wanted) if wanted else ())
        out = []
        for x in own:
            gradient = next(found) if _moves(x.dtype) else None
            if gradient is not None:
                gradient.set_shape(x.shape)
            out.append(gradient)
        return [None] * len(types) + out

    outputs = gen_ops.py_func(inputs, _register(run, True), types, name=name)
    if not types:
        return []
    outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    graph = get_default_graph()
    rule_name = _core.register_kept_gradient("PyFunction", rule)
    root_graph(graph)._local.setdefault("gradients", []).append(rule)
    with graph.gradient_override_map({"IdentityN": rule_name}):
        return list(gen_ops.identity_n(outputs + inputs))[: len(types)]


def _moves(dtype: dtypes.DType) -> bool:
    return dtype.is_floating or dtype.is_complex


def _array_of(tensor: Any) -> Any:
    return np.asarray(tensor.__array__())


def call(token: str, args: list[Any], types: list[dtypes.DType]) -> list[np.ndarray]:
    """Calls the function of a token; the bindings call it when a PyFunc runs.

    Returns an array for each of the types. ValueError and TypeError when the function returned
    something else, what it raised when it raised.
    """
    known = _functions.get(token)
    if known is None:
        raise ValueError(
            f"callback {token} is not found: the Python function of this py_func belongs to "
            "another process, or its graph is gone"
        )
    return _arrays(known, args, types)


def _arrays(known: _Function, args: list[Any], types: list[dtypes.DType]) -> list[np.ndarray]:
    """What a function gives, as arrays of the types."""
    result = known(args)
    if not types:
        if result is not None and not (isinstance(result, (list, tuple)) and not result):
            _wrong_count(known, result, types)
        return []
    # A list is a list of results; where there is to be one, it may be the values of that one, too.
    is_list = isinstance(result, (list, tuple)) and not (len(types) == 1 and len(result) != 1)
    values = list(result) if is_list else [result]
    if len(values) != len(types):
        _wrong_count(known, result, types)
    return [_array(known, i, v, t) for i, (v, t) in enumerate(zip(values, types, strict=True))]


def _wrong_count(known: _Function, result: Any, types: list[dtypes.DType]) -> None:
    count = len(result) if isinstance(result, (list, tuple)) else int(result is not None)
    expected = ", ".join(t.name for t in types) or "nothing"
    raise ValueError(
        f"pyfunc {known.name} returns {count} values, but expects to see {len(types)} values: Tout "
        f"says {expected}"
    )


def _array(known: _Function, i: int, value: Any, dtype: dtypes.DType) -> np.ndarray:
    if value is None or isinstance(value, (dict, set)):
        raise TypeError(
            f"Unsupported object type {type(value).__name__}: value {i} that the function "
            f"{known.name} of a py_func returned must be an array of {dtype.name}"
        )
    if dtype is dtypes.string:
        return _string_array(known, i, value)
    array = np.asarray(value)
    if array.dtype != dtype.as_numpy_dtype:
        if array.dtype == object or array.dtype.kind in "USV":
            raise TypeError(
                f"Unsupported numpy type {array.dtype}: value {i} that the function {known.name} "
                f"of a py_func returned must be an array of {dtype.name}"
            )
        raise TypeError(
            f"{i}-th value returned by {known.name} is {array.dtype}, but expects {dtype.name}: "
            "Tout must say the type that NumPy gives to what the function returns"
        )
    return np.ascontiguousarray(array) if array.ndim else array


def _string_array(known: _Function, i: int, value: Any) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype.kind == "S" and not isinstance(value, np.ndarray):
        array = np.asarray(value, dtype=object)
    if array.dtype.kind not in "SUO":
        raise TypeError(
            f"{i}-th value returned by {known.name} is {array.dtype}, but expects string"
        )
    return array
