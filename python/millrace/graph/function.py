"""Functions of a graph, from Python code: Defun."""

import inspect
from typing import Any, Callable

from millrace import _core
from millrace.core import dtypes, nest
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import get_default_graph
from millrace.graph.graph import Graph, root_graph
from millrace.graph.operation import Operation
from millrace.graph.tracing import leaf_of


@export(v1="contrib.framework.Defun")
class Defun:
    """Makes a function of a graph from Python code: it is built once and called as one operation.

    `@Defun(tf.float32, tf.float32)` on a function of two tensors. Without types, it is built anew
    for the types of each call.

    Args:
      input_types: the types of the arguments.
      func_name: its name in the graph.
      out_names: names of its results.
      grad_func: another such function, from the arguments and the gradients of the results to the
        gradients of the arguments. Without it the gradient is derived.
      python_grad_func: the same as Python code, `python_grad_func(op, *grads)`.
      noinline: keep it a call when the graph is run.
      shape_func: gives the shapes of the results, from the operation.
    """

    def __init__(self, *input_types: Any, **kwargs: Any):
        self._input_types = input_types
        self._func_name = kwargs.pop("func_name", None)
        self._grad_func = kwargs.pop("grad_func", None)
        self._python_grad_func = kwargs.pop("python_grad_func", None)
        self._out_names = kwargs.pop("out_names", None)
        self._extra = kwargs

    def __call__(self, func: Callable[..., Any]) -> Any:
        """The function, as something to call with tensors."""
        if not callable(func):
            raise ValueError(f"func {func} must be callable")
        parameters = list(inspect.signature(func).parameters.values())
        plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        if any(p.default is not inspect.Parameter.empty for p in parameters) or any(
            p.kind not in (*plain, inspect.Parameter.VAR_POSITIONAL) for p in parameters
        ):
            raise ValueError(
                "Functions with argument defaults or keyword arguments are not supported."
            )
        names = [p.name for p in parameters if p.kind in plain]
        varied = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters)
        count = len(self._input_types)
        options = {
            "func_name": self._func_name, "grad_func": self._grad_func,
            "python_grad_func": self._python_grad_func, "out_names": self._out_names,
            "extra": self._extra,
        }  # fmt: skip
        if count or not names:
            if count < len(names) or (count > len(names) and not varied):
                raise ValueError(
                    "The function must have the same number of arguments as the number of "
                    f"specified input types: it takes {len(names)}, there are {count} types."
                )
            names += [f"arg{i}" for i in range(len(names), count)]
            types = [dtypes.as_dtype(t) for t in self._input_types]
            return DefinedFunction(func, names, types, **options)
        return OverloadedFunction(func, names, **options)


class DefinedFunction:
    """A function of known argument types. Called with tensors, it adds an operation that is a call
    of it."""

    def __init__(
        self, func: Callable[..., Any], names: list[str], types: list[dtypes.DType],
        func_name: str | None = None, grad_func: Any = None, python_grad_func: Any = None,
        out_names: list[str] | None = None, extra: dict[str, Any] | None = None,
    ):  # fmt: skip
        if grad_func is not None and python_grad_func is not None:
            raise ValueError(f"Gradient defined twice for function {func_name or func}")
        self._func = func
        self._arg_names = names
        self._types = types
        self._func_name = func_name
        self._grad_func = grad_func
        self._python_grad_func = python_grad_func
        self._out_names = out_names
        self._extra = dict(extra or {})
        self._shape_func = self._extra.pop("shape_func", None)
        self.__doc__ = getattr(func, "__doc__", None)
        self._returns_operation = False
        self._rule: str | None = None

    def _name_wanted(self) -> str:
        if self._func_name:
            return self._func_name
        name = getattr(self._func, "__name__", type(self._func).__name__)
        return "".join(c if c.isalnum() else "_" for c in name).strip("_") or "function"

    def add_to_graph(self, graph: Graph) -> Any:
        """Builds the function in a graph, unless it is there.

        Returns its name, the tensors that it captures, the types and the shapes of its results, and
        whether it is stateful.
        """
        known = graph._local.setdefault("defined_functions", {})
        if self not in known:
            known[self] = self._build(graph)
        return known[self]

    def _build(self, graph: Graph) -> Any:
        def code(parameters: list[Tensor]) -> list[Tensor]:
            result = self._func(*parameters)
            self._returns_operation = isinstance(result, Operation)
            parts = [None] if result is None else nest.flatten(result)
            if any(part is None for part in parts):
                raise ValueError(f"Function {self._name_wanted()} can not return None.")
            out = [convert_to_tensor(leaf_of(part)) for part in parts]
            if self._out_names is not None and len(self._out_names) != len(out):
                raise ValueError(
                    f"Length of out_names ({len(self._out_names)}) does not match number of "
                    f"outputs ({len(out)}): {self._out_names}, {out}"
                )
            return out

        with graph.as_default():
            return _core.add_function(
                graph, self._name_wanted(), self._types, [None] * len(self._types),
                self._arg_names, code,
            )  # fmt: skip

    @property
    def name(self) -> str:
        """Its name in the default graph."""
        return self.add_to_graph(get_default_graph())[0]

    @property
    def captured_inputs(self) -> list[Tensor]:
        """The tensors around it that it uses."""
        return self.add_to_graph(get_default_graph())[1]

    @property
    def declared_input_types(self) -> list[dtypes.DType]:
        """The types of its arguments."""
        return list(self._types)

    @property
    def grad_func_name(self) -> str | None:
        """The name of the function that is its gradient."""
        return self._grad_func.name if self._grad_func is not None else None

    @property
    def python_grad_func(self) -> Any:
        """The Python function that is its gradient."""
        return self._python_grad_func

    @property
    def definition(self) -> Any:
        """The function as a FunctionDef."""
        name = self.name
        library = root_graph(get_default_graph()).as_graph_def().library
        return next(f for f in library.function if f.signature.name == name)

    def _gradient_rule(self) -> str | None:
        if self._rule is None:
            rule = self._python_grad_func
            if rule is None and self._grad_func is not None:
                rule = self._call_gradient
            if rule is not None:
                self._rule = _core.register_kept_gradient("FunctionGradient", rule)
                self._rule_code = rule
        if self._rule is not None:
            kept = root_graph(get_default_graph())._local.setdefault("gradients", [])
            if self._rule_code not in kept:
                kept.append(self._rule_code)
        return self._rule

    def _call_gradient(self, op: Any, *grads: Any) -> Any:
        own = list(op.inputs)[: len(self._types)]
        result = self._grad_func(*own, *grads)
        result = list(result) if isinstance(result, (list, tuple)) else [result]
        return result + [None] * (len(op.inputs) - len(own))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Adds a call: a Tensor, a list of them, or an Operation where there are no results."""
        if len(args) != len(self._types):
            raise ValueError(
                f"Expected number of arguments: {len(self._types)}, received: {len(args)}"
            )
        name = kwargs.pop("name", None)
        noinline = kwargs.pop("noinline", self._extra.get("noinline"))
        if kwargs:
            raise ValueError(f"Unknown keyword arguments: {', '.join(kwargs)}")
        graph = get_default_graph()
        function, captures, types, shapes, stateful = self.add_to_graph(graph)
        inputs = [
            convert_to_tensor(a, dtype=t.base_dtype) for a, t in zip(args, self._types, strict=True)
        ]
        attrs = {} if noinline is None else {"_noinline": bool(noinline)}
        rule = self._gradient_rule()
        inputs += captures
        op_type, overrides = function, {} if rule is None else {function: rule}
        if stateful and rule is None:
            # An operation whose gradient uses what this run of the body drew and read: one named
            # after the function would run it again.
            op_type = "StatefulPartitionedCall"
            attrs |= {"Tin": [t.dtype.base_dtype for t in inputs], "Tout": types, "f": function}
        with graph.gradient_override_map(overrides):
            op = _core.create_op(
                graph, op_type, inputs, _core.full_name(graph, name or function), attrs
            )
        if self._shape_func is not None:
            shapes = self._shape_func(op)
        for output, shape in zip(op.outputs, shapes, strict=True):
            output.set_shape(TensorShape(shape))
        if not op.outputs or self._returns_operation:
            return op
        return op.outputs[0] if len(op.outputs) == 1 else list(op.outputs)


class OverloadedFunction:
    """A function that is built for the types of each call."""

    def __init__(self, func: Callable[..., Any], names: list[str], **options: Any):
        self._func = func
        self._names = names
        self._options = options
        self._made: dict[tuple[Any, ...], DefinedFunction] = {}
        self.__doc__ = getattr(func, "__doc__", None)

    def instantiate(self, input_types: Any) -> DefinedFunction:
        """The function for arguments of these types."""
        key = tuple(dtypes.as_dtype(t) for t in input_types)
        made = self._made.get(key)
        if made is None:
            options = dict(self._options)
            if options["func_name"] and key:
                options["func_name"] += "_" + "_".join(t.name for t in key)
            if isinstance(options["grad_func"], OverloadedFunction):
                options["grad_func"] = _LateGradient(options["grad_func"])
            made = self._made[key] = DefinedFunction(self._func, self._names, list(key), **options)
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Adds a call."""
        if len(args) != len(self._names):
            raise ValueError(
                f"Expected number of arguments: {len(self._names)}, received: {len(args)}"
            )
        tensors = [convert_to_tensor(a) for a in args]
        return self.instantiate([t.dtype.base_dtype for t in tensors])(*tensors, **kwargs)


class _LateGradient:
    """A gradient that is built for the types that it is called with."""

    def __init__(self, function: OverloadedFunction):
        self._function = function
        self.name = function._options["func_name"]

    def __call__(self, *args: Any) -> Any:
        return self._function(*args)
