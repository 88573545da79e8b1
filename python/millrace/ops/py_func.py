"""Python functions as operations."""

from typing import Any, Callable
from weakref import WeakValueDictionary

import numpy as np

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.graph.default_graph import get_default_graph
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
