"""Variables that are made while a function is traced: once, and with values from outside of it."""

import threading
import weakref
from typing import Any

import numpy as np

from millrace import _core, gen_ops
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import get_default_graph
from millrace.graph.graph import root_graph


class _Thread(threading.local):
    def __init__(self) -> None:
        self.traces: list[Trace] = []


_here = _Thread()


class Trace:
    """One tracing of a function. `may_create`: it is the first, in which variables are made."""

    def __init__(self, name: str, graph: Any, may_create: bool):
        self._name = name
        self.graph = graph
        self.may_create = may_create
        self.created: list[weakref.ref[Any]] = []
        # Whether variables get their values by running what is traced.
        self.sets_values = False

    def __enter__(self) -> "Trace":
        _here.traces.append(self)
        return self

    def __exit__(self, *_: Any) -> None:
        _here.traces.pop()

    def initial_value(self, value: Any, dtype: Any) -> tuple[Any, Any]:
        """What a new variable begins with, and the tensor that it is then assigned, or None."""
        if not any(trace.may_create for trace in _here.traces[-1:]):
            raise ValueError(
                "tf.function only supports singleton tf.Variables created on the first call. Make "
                "sure the tf.Variable is only created once or created outside tf.function. See "
                "https://www.tensorflow.org/guide/function#creating_tfvariables for more "
                f"information. A variable was created when {self._name} was traced again."
                f"{_core.user_line()}"
            )
        if callable(value):
            with _core.init_scope():
                value = value()
        if not _is_symbolic(value):
            return value, None
        value = convert_to_tensor(value, dtype)
        lifted = _lift(value)
        if lifted is not None:
            return lifted, None
        shape = value._shape_tuple()
        if shape is None:
            raise ValueError(
                "The initial value of a tf.Variable that is created in a tf.function depends on "
                f"the function's arguments, and its shape {value.shape} is not known: give the "
                f"variable a value from outside (in {self._name}).{_core.user_line()}"
            )
        self.sets_values = True
        return np.zeros([size or 0 for size in shape], value.dtype.as_numpy_dtype), value


def current_trace() -> "Trace | None":
    """The trace that this thread is in, where operations go into it now."""
    if not _here.traces:
        return None
    graph = _core.innermost_graph()
    trace = _here.traces[-1]
    return trace if graph is not None and root_graph(graph) is trace.graph else None


def _is_symbolic(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_is_symbolic(v) for v in value)
    return isinstance(value, Tensor) and not _core.is_eager_tensor(value)


def _lift(tensor: Any) -> Any:
    """The value of a tensor of a function in the making; None where its arguments decide."""
    graph = get_default_graph()
    if tensor.graph is not graph:
        return None
    root = root_graph(graph)
    values = {placeholder: value for value, placeholder in root._captured_values()}
    sources, given, seen, todo = [], [], set(), [tensor.op]
    while todo:
        op = todo.pop()
        if op in seen:
            continue
        seen.add(op)
        if op.type == "_Arg":
            outside = _core.capture_source(graph, op.outputs[0])
            value = None if outside is None else values.get(outside)
            if value is None or not _core.is_eager_tensor(value):
                return None
            sources.append(op.outputs[0])
            given.append(value)
        todo += [t.op for t in op.inputs] + list(op.control_inputs)
    name = _core.make_function(graph, "initial_value", sources, [tensor])
    call = _core.FunctionCall(name, [t.dtype for t in sources], [tensor.dtype])
    with _core.init_scope():
        return call(given)[0]


def assign_later(variable: Any, value: Any) -> None:
    """Gives a variable that was just made its value, when what is traced runs."""
    gen_ops.assign_variable_op(variable.handle, value)
