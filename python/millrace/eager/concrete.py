"""ConcreteFunction: a function that was traced."""

import itertools
from types import MethodType
from typing import Any, Callable

from millrace import _core, gen_ops, protos
from millrace.core import nest
from millrace.core.shapes import TensorShape
from millrace.core.specs import TensorSpec
from millrace.core.tensor import Tensor
from millrace.core.trackable import Trackable
from millrace.eager import tape
from millrace.eager.arguments import PLAIN, Call, Leaf, Same, Signature, as_spec
from millrace.eager.calls import Callee
from millrace.eager.control import has_effect
from millrace.eager.creation import Trace
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import get_default_graph
from millrace.graph.eager_seed import EagerSeed
from millrace.graph.graph import FunctionGraph, Graph, root_graph
from millrace.graph.other_graph import where_of
from millrace.graph.sparse import IndexedSlices, SparseTensor
from millrace.graph.tracing import leaf_of, tensors_of, wholes

_numbers = itertools.count()


class FuncGraph(FunctionGraph):
    """The body of a traced function."""

    is_control_flow_graph = False

    def _begin(self, name: str) -> None:
        self.name = name
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.structured_outputs: Any = None
        self.captures: list[tuple[Any, Any]] = []
        self._handles: list[Any] = []
        self._trainable_handles: list[Any] = []
        self._call_time: dict[Any, Any] = {}
        self._call_time_keys: dict[Any, Any] = {}

    @property
    def variables(self) -> tuple[Any, ...]:
        """The variables that it uses, those that are still there."""
        return tuple(v for v in map(tape.variable_of, self._handles) if v is not None)

    @property
    def trainable_variables(self) -> tuple[Any, ...]:
        """Those that tapes watch."""
        return tuple(v for v in self.variables if v.trainable)

    @property
    def external_captures(self) -> list[Any]:
        """What it uses from outside."""
        return [outside for outside, _ in self.captures]

    @property
    def control_outputs(self) -> list[Any]:
        """The operations that change state: they run whenever the function is called."""
        return [op for op in self.get_operations() if has_effect(op.type)]

    @property
    def internal_captures(self) -> list[Any]:
        """What stands for that inside."""
        return [inside for _, inside in self.captures]

    def capture_call_time_value(self, closure: Any, spec: Any, key: Any = None) -> Any:
        """What `closure()` gives whenever the function is called: tensors like `spec`.

        With a key, a second call for the same key gives what the first one did.
        """
        if key is not None and key in self._call_time_keys:
            return self._call_time_keys[key]
        flat = nest.flatten(spec)
        root = root_graph(self)
        with root.as_default():
            made = [gen_ops.placeholder(s.dtype, s.shape) for s in flat]
        for i, placeholder in enumerate(made):
            self._call_time[placeholder] = (closure, i)
        out = nest.pack_sequence_as(spec, [gen_ops.identity(p) for p in made])
        if key is not None:
            self._call_time_keys[key] = out
        return out


class ConcreteFunction(Trackable):
    """A traced function: for arguments of certain types and structure.

    It is called with arguments like those that it was traced with, or with the tensors among them,
    by place or by name.
    """

    _is_function = True
    # How many tensors may be given by place where they are given one by one; None: all.
    _most_by_place: int | None = None

    def __init__(
        self, python_function: Callable[..., Any], call: Call, signature: Signature,
        shapes: list[Any], may_create: bool,
    ):  # fmt: skip
        self._signature = signature
        self._structure = call.structure
        self._shapes = shapes
        seed = EagerSeed.seed if _core.executing_eagerly() else get_default_graph().seed
        self._root = Graph(True)
        self._root.seed = seed
        name = "".join(c if c.isalnum() else "_" for c in signature.name).strip("_") or "function"
        self.name = f"__inference_{name}_{next(_numbers)}"
        self._trainable: list[Any] = []
        types = call.types
        self.trace = Trace(signature.name, self._root, may_create)

        def code(parameters: list[Tensor]) -> list[Tensor]:
            return self._trace(python_function, parameters)

        with self._root.as_default(), self.trace:
            made = _core.add_function(
                self._root, self.name, types, shapes, _parameter_names(call), code
            )
        function, captures, self._result_types, self._result_shapes, self._stateful = made
        self.name = function
        self._finish_graph(captures, len(types))
        inputs = [*types, *(c.dtype for c in captures)]
        self._callee = Callee(self._root, function, inputs, self._result_types)
        # Whether what it uses from outside has values: if not, it is of use in one graph alone.
        self.is_free = all(
            i in self._deferred or _core.is_eager_tensor(value)
            for i, value in enumerate(self._captured)
        )
        # Objects among the arguments are not kept for what was traced for them.
        self._structure = nest.map_structure(_weakly, self._structure)

    def _trace(self, python_function: Callable[..., Any], parameters: list[Tensor]) -> list[Tensor]:
        graph: Any = get_default_graph()
        graph.__class__ = FuncGraph
        graph._begin(self._signature.name)
        self.graph: Any = graph
        graph.inputs = list(parameters)

        def arguments() -> Any:
            given = iter(parameters)
            return nest.map_structure(lambda leaf: _argument(leaf, given), self._structure)

        given, before = arguments(), None
        before = nest.map_structure(lambda leaf: leaf, given)
        with tape.Accesses(self._trainable):
            result = python_function(*given[0], **given[1])
        self._check_unchanged(before, given)
        leaves = []
        for part in nest.flatten(result):
            try:
                leaves.append(_leaf(part))
            except (TypeError, ValueError):
                raise TypeError(
                    "To be compatible with tf.function, Python functions must return zero or more "
                    "Tensors or ExtensionTypes or None values; in compilation of "
                    f"{self._signature.name}, found return value of type {type(part).__name__}, "
                    "which is not a Tensor or ExtensionType."
                ) from None
        self._leaves = leaves
        self._result = nest.pack_sequence_as(result, leaves)
        out = [symbolic(t) for leaf in leaves for t in tensors_of(leaf)]
        graph.outputs = list(out)
        graph.structured_outputs = self._result
        return out or [convert_to_tensor(True)]

    def _check_unchanged(self, before: Any, after: Any) -> None:
        try:
            nest.assert_same_structure(before, after)
            same = all(
                a is b for a, b in zip(nest.flatten(before), nest.flatten(after), strict=True)
            )
        except (TypeError, ValueError):
            same = False
        if not same:
            raise ValueError(
                f"{self._signature.described()} should not modify its Python input arguments. "
                "Check if it modifies any lists or dicts passed as arguments. Modifying a copy is "
                "allowed."
            )

    def _finish_graph(self, captures: list[Any], count: int) -> None:
        values = {placeholder: value for value, placeholder in self._root._captured_values()}
        self._captured = [values.get(capture) for capture in captures]
        graph = self.graph
        arguments = [op.outputs[0] for op in graph.get_operations() if op.type == "_Arg"]
        for capture, value in zip(captures, self._captured, strict=True):
            if value is None and capture not in graph._call_time:
                raise ValueError(
                    f"{self._signature.name} uses the tensor '{capture.name}' ({capture.op.type}), "
                    "which was made while it was traced, but is not a part of it and has no value: "
                    f"make it outside of the function, or with tf.Variable.{where_of(capture)}"
                )
        # For rules of gradients, which are called with copies of the body.
        self._root._captured_names = {
            (c.op._id, c.value_index): argument.op.name
            for c, argument in zip(captures, arguments[count:], strict=False)
        }
        self._deferred = {
            i: graph._call_time[capture]
            for i, capture in enumerate(captures)
            if capture in graph._call_time
        }
        graph.inputs = arguments
        graph.captures = list(zip(self._captured, arguments[count:], strict=False))
        graph._handles = [
            value for value in self._captured
            if value is not None and value.dtype.name == "resource"
        ]  # fmt: skip

    # What it is.

    @property
    def captured_inputs(self) -> list[Any]:
        """The tensors from outside that it uses, as they are now. Those of variables among the
        arguments are none of them."""
        own = {id(v.handle) for v in self._variable_arguments()}
        return [value for value in self._all_captured() if id(value) not in own]

    def _variable_arguments(self) -> list[Any]:
        leaves = [v.get() for v in nest.flatten(self._structure) if isinstance(v, Same)]
        return [v for v in leaves if hasattr(v, "_gradient_source")]

    def _all_captured(self) -> list[Any]:
        if not self._deferred:
            return self._captured
        values: dict[Any, Any] = {}
        out = list(self._captured)
        for i, (closure, part) in self._deferred.items():
            if closure not in values:
                values[closure] = nest.flatten(closure())
            out[i] = convert_to_tensor(values[closure][part], dtype=self._callee_type(i))
        return out

    def _callee_type(self, i: int) -> Any:
        return self._callee.inputs[len(self._callee.inputs) - len(self._captured) + i]

    @property
    def inputs(self) -> list[Any]:
        """The tensors of the body that stand for its arguments and for what it uses."""
        return self.graph.inputs

    @property
    def outputs(self) -> list[Any]:
        """The tensors of the body that are its results."""
        return self.graph.outputs

    @property
    def structured_outputs(self) -> Any:
        """What it returns, as it was traced."""
        return self._result

    @property
    def has_objects(self) -> bool:
        """Whether it was traced for objects of the program, variables for instance, which may be
        gone by now."""
        return any(isinstance(leaf, Same) for leaf in nest.flatten(self._structure))

    @property
    def result_specs(self) -> Any:
        """The structure that it returns, with a TensorSpec for each tensor."""
        return nest.map_structure(
            lambda leaf: TensorSpec(leaf.shape, leaf.dtype) if isinstance(leaf, Tensor) else leaf,
            self._result,
        )

    @property
    def output_shapes(self) -> Any:
        """The shapes of what it returns, in its structure."""
        return self._of_outputs(lambda leaf: leaf.shape)

    @property
    def output_dtypes(self) -> Any:
        """The types of what it returns, in its structure."""
        return self._of_outputs(lambda leaf: leaf.dtype)

    def _of_outputs(self, of: Callable[[Any], Any]) -> Any:
        leaves = [None if leaf is None else of(leaf) for leaf in self._leaves]
        return nest.pack_sequence_as(self._result, leaves)

    @property
    def structured_input_signature(self) -> Any:
        """(args, kwargs) as it was traced, with a TensorSpec for each tensor."""
        shapes = iter(self._shapes)

        def spec(leaf: Any) -> Any:
            if not isinstance(leaf, Leaf):
                return leaf.get() if isinstance(leaf, Same) else leaf
            parts = [TensorShape(next(shapes)) for _ in range(leaf.count)]
            if not isinstance(leaf.value, TensorSpec):
                return leaf.value
            return TensorSpec(parts[0], leaf.value.dtype, leaf.value.name)

        return nest.map_structure(spec, self._structure)

    @property
    def variables(self) -> tuple[Any, ...]:
        """The variables that it uses."""
        return self.graph.variables

    @property
    def trainable_variables(self) -> tuple[Any, ...]:
        """Those that tapes watch."""
        return self.graph.trainable_variables

    @property
    def function_def(self) -> Any:
        """The function as a FunctionDef."""
        functions = self._library().function
        return next(f for f in functions if f.signature.name == self._callee.name)

    def _library(self) -> Any:
        """The function and those that it calls, as messages."""
        holder = Graph(True)
        with holder.as_default():
            inputs = [gen_ops.placeholder(dtype) for dtype in self._callee.inputs]
            self.add_call(holder, inputs)
        return protos.GraphDef.FromString(holder._functions_def()).library

    def prune(self, feeds: Any, fetches: Any, name: str | None = None) -> "Pruned":
        """A function of tensors of the body: from `feeds` to `fetches`, and what these need."""
        return Pruned(self, feeds, fetches, name)

    pruned = prune

    def add_to_graph(self, g: Any = None) -> None:
        """There is one library for all that is traced: it has the function."""

    def __repr__(self) -> str:
        return f"<ConcreteFunction {self._signature.described()} at {id(self):#x}>"

    def pretty_printed_signature(self, verbose: bool = True) -> str:
        """The arguments and results, as text."""
        args, kwargs = self.structured_input_signature
        parts = [f"  {self._signature.parameter_name(i)}: {a!r}" for i, a in enumerate(args)]
        parts += [f"  {k}: {v!r}" for k, v in kwargs.items()]
        if not verbose:
            return self._signature.described()
        results = nest.map_structure(_spec_of, self._result) if self._leaves else None
        lines = ["Input Parameters:", *parts, "Output Type:", f"  {results!r}"]
        return "\n".join(lines)

    # Calls.

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            tensors = self._bound(args, kwargs)
        except TypeError as error:
            try:
                tensors = self._flat(args, kwargs)
            except TypeError as other:
                raise TypeError(
                    f"{error}\nNor does it fit as its tensors one by one: {other}"
                ) from None
        return self.run(tensors)

    def _slots(self) -> list[Leaf]:
        return [leaf for leaf in nest.flatten(self._structure) if isinstance(leaf, Leaf)]

    def _bound(self, args: Any, kwargs: Any) -> list[Any]:
        """The tensors of a call with arguments as the Python function takes them."""
        signature, (traced_args, traced_kwargs) = self._signature, self._structure
        args, kwargs = list(args), dict(kwargs)
        if len(args) > len(traced_args):
            raise TypeError(
                f"{signature.described()} takes {len(traced_args)} positional arguments but "
                f"{len(args)} were given"
            )
        places = {signature.parameter_name(i): i for i in range(len(traced_args))}
        for name in list(kwargs):
            i = places.get(name)
            if i is None:
                continue
            if i < len(args) and args[i] is not _ABSENT:
                raise TypeError(f"{signature.described()} got two values for argument '{name}'")
            args += [_ABSENT] * (i + 1 - len(args))
            args[i] = kwargs.pop(name)
        unknown = [name for name in kwargs if name not in traced_kwargs]
        if unknown:
            raise TypeError(
                f"{signature.described()} got unexpected keyword arguments: {', '.join(unknown)}"
            )
        args += [_ABSENT] * (len(traced_args) - len(args))
        tensors: list[Any] = []
        shapes = iter(self._shapes)
        named = [(signature.parameter_name(i), t, a) for i, (t, a) in
                 enumerate(zip(traced_args, args, strict=True))]  # fmt: skip
        named += [
            (name, traced_kwargs[name], kwargs.get(name, _ABSENT)) for name in sorted(traced_kwargs)
        ]
        missing = []
        for name, traced, value in named:
            if value is _ABSENT:
                if any(isinstance(leaf, Leaf) for leaf in nest.flatten(traced)):
                    missing.append(name)
                continue
            self._take(name, traced, value, tensors, shapes)
        if missing:
            raise TypeError(
                f"{signature.described()} missing required arguments: {', '.join(missing)}"
            )
        return tensors

    def _take(self, name: str, traced: Any, value: Any, tensors: list[Any], shapes: Any) -> None:
        where = f"argument {name} of {self._signature.described()}"
        try:
            values = nest.flatten_up_to(traced, value)
        except (TypeError, ValueError):
            raise TypeError(
                f"{where} had incorrect type: expected {traced!r}, got {value!r}"
            ) from None
        for leaf, given in zip(nest.flatten(traced), values, strict=True):
            if isinstance(leaf, Leaf):
                tensors += _parts(leaf, given, shapes, where)
            elif not _equal(leaf, given):
                raise TypeError(
                    f"{where}: the function was traced with {type(leaf).__name__} value {leaf!r}, "
                    f"but is called with {type(given).__name__} value {given!r}"
                )

    def _flat(self, args: Any, kwargs: Any) -> list[Any]:
        """The tensors of a call with the tensors alone, by place and by name."""
        slots = self._slots()
        names = [slot.name for slot in slots]
        most = len(slots) if self._most_by_place is None else self._most_by_place
        if len(args) > most:
            raise TypeError(
                f"{self._signature.name} takes {most} tensors by place, got {len(args)}: "
                f"({', '.join(names)})"
            )
        values = list(args)
        for name in names[len(args) :]:
            if name not in kwargs:
                raise TypeError(f"{self._signature.name} misses the tensor '{name}'")
            values.append(kwargs[name])
        extra = set(kwargs) - set(names[len(args) :])
        if extra:
            raise TypeError(
                f"{self._signature.name} got unexpected or repeated tensors: "
                f"{', '.join(sorted(extra))}"
            )
        tensors: list[Any] = []
        shapes = iter(self._shapes)
        for slot, value in zip(slots, values, strict=True):
            if isinstance(slot.value, TensorSpec) and not isinstance(value, Tensor):
                raise TypeError(
                    f"{self._signature.name} takes tensor {slot.name}, got "
                    f"{type(value).__name__} {value!r}"
                )
            tensors += _parts(slot, value, shapes, f"tensor {slot.name} of {self._signature.name}")
        return tensors

    def run(self, tensors: list[Any]) -> Any:
        """The results for tensors in the order of the arguments."""
        if not _core.executing_eagerly():
            return self.run_in(get_default_graph(), tensors)
        if self._trainable and _core.any_tape():
            for variable in self._trainable:
                _core.variable_accessed(variable)
        outputs = self._callee([*tensors, *self._all_captured()])
        if isinstance(self._result, Tensor):
            return outputs[0]
        return self._packed(outputs)

    def answer(self, table: Any, args: tuple[Any, ...]) -> None:
        """Has a table answer calls with tensors like these."""
        if self.is_free and not self._deferred:
            pack = None if isinstance(self._result, Tensor) else self._packed
            table.add(args, self._callee.code, self._captured, pack)

    def _packed(self, outputs: list[Any]) -> Any:
        return nest.pack_sequence_as(self._result, list(wholes(self._leaves, outputs)))

    def run_in(self, graph: Any, tensors: list[Any]) -> Any:
        """The same as an operation of a graph."""
        for variable in self._trainable:
            tape.variable_read(variable)
        root = root_graph(graph)
        if not root._captures_values:  # a graph with a library of its own
            known = root._local.setdefault("traced_functions", set())
            if self._callee.name not in known:
                known.add(self._callee.name)
                message = protos.GraphDef(library=self._library())
                root._import(message.SerializeToString(), "", [], [], "", False, [])
        inputs = [_in_graph(graph, t) for t in [*tensors, *self._all_captured()]]
        outputs = self.add_call(graph, inputs)
        for output, shape in zip(outputs, self._result_shapes, strict=True):
            output.set_shape(TensorShape(shape))
        if inputs and any(s is None or None in s for s in self._result_shapes):
            more = _core.call_shapes(graph, self._callee.name, inputs)
            for output, shape in zip(outputs, more or (), strict=False):
                output.set_shape(TensorShape(shape))
        # Rules of gradients that it brings along live as long as it does.
        root._local.setdefault("called", []).append(self)
        return self._packed(outputs)

    def add_call(self, graph: Any, inputs: list[Any]) -> list[Any]:
        """Adds a call to a graph, whose library has the function. Gives its outputs.

        `inputs`: tensors of the graph for the arguments and for what the function uses.
        """
        return _add_call(graph, self._callee, self._stateful, inputs)


class Pruned:
    """A function of tensors of a traced body."""

    def __init__(self, of: ConcreteFunction, feeds: Any, fetches: Any, name: str | None):
        graph = of.graph
        self._feeds = [_element(graph, f) for f in nest.flatten(feeds)]
        self._fetches = fetches
        self._leaves = [_element(graph, f) for f in nest.flatten(fetches)]
        needed = _needed(self._leaves, self._feeds)
        used = [(value, inside) for value, inside in graph.captures if inside.op in needed]
        self.captured_inputs = [value for value, _ in used]
        sources = self._feeds + [inside for _, inside in used]
        made = _core.make_function(graph, name or "pruned", sources, self._leaves)
        self.graph = graph
        self.inputs, self.outputs = sources, self._leaves
        self._callee = Callee(
            of._root, made, [t.dtype for t in sources], [t.dtype for t in self._leaves]
        )

    def __call__(self, *args: Any) -> Any:
        if len(args) != len(self._feeds):
            raise TypeError(f"expected {len(self._feeds)} tensors, got {len(args)}")
        tensors = [
            convert_to_tensor(a, dtype=f.dtype) for a, f in zip(args, self._feeds, strict=True)
        ]
        inputs = [*tensors, *self.captured_inputs]
        if _core.executing_eagerly():
            outputs = self._callee(inputs)
        else:
            graph = get_default_graph()
            outputs = _add_call(graph, self._callee, True, [_in_graph(graph, t) for t in inputs])
        return nest.pack_sequence_as(self._fetches, outputs)


def _add_call(graph: Any, callee: Callee, stateful: bool, inputs: list[Any]) -> list[Any]:
    kind = "StatefulPartitionedCall" if stateful else "PartitionedCall"
    attrs = {"Tin": callee.inputs, "Tout": callee.outputs, "f": callee.name}
    return _core.create_op(graph, kind, inputs, _core.full_name(graph, kind), attrs).outputs


def _element(graph: Any, fetch: Any) -> Any:
    return graph.as_graph_element(fetch, allow_operation=False)


def _needed(ends: list[Any], feeds: list[Any]) -> set[Any]:
    stops = {t.op for t in feeds}
    seen: set[Any] = set()
    todo = [t.op for t in ends]
    while todo:
        op = todo.pop()
        if op in seen or op in stops:
            continue
        seen.add(op)
        todo += [t.op for t in op.inputs] + list(op.control_inputs)
    return seen


class _Absent:
    pass


_ABSENT: Any = _Absent()


def _parameter_names(call: Call) -> list[str]:
    names: list[str] = []
    for leaf in nest.flatten(call.structure):
        if isinstance(leaf, Leaf):
            own = "".join(c if c.isalnum() or c in "_." else "_" for c in leaf.name)
            own = own if own[:1].isalnum() else "arg" + own
            names += [own if i == 0 else f"{own}_{i}" for i in range(leaf.count)]
    return names


def _argument(leaf: Any, given: Any) -> Any:
    if not isinstance(leaf, Leaf):
        return leaf
    if isinstance(leaf.value, TensorSpec):
        return next(given)
    return wholes([leaf.value], [next(given) for _ in range(leaf.count)])[0]


def _parts(leaf: Leaf, value: Any, shapes: Any, where: str) -> list[Any]:
    kept = [next(shapes) for _ in range(leaf.count)]
    if isinstance(leaf.value, TensorSpec):
        spec = TensorSpec(TensorShape(kept[0]), leaf.value.dtype)
        if isinstance(value, Tensor) and not spec.is_compatible_with(value):
            raise ValueError(
                f"{where} must be {spec.dtype.name} of shape {spec.shape}, got {value.dtype.name} "
                f"of shape {value.shape}"
            )
        return [as_spec(spec, value, where)]
    kind = getattr(leaf.value, "value_type", type(leaf.value))
    if not isinstance(value, kind):
        raise TypeError(f"{where} had incorrect type: expected {kind.__name__}, got {value!r}")
    return tensors_of(value)


def _weakly(leaf: Any) -> Any:
    """An object as one that is not kept alive; numbers and so on as they are."""
    return leaf if isinstance(leaf, (Leaf, MethodType, *PLAIN)) else Same(leaf)


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Same):
        a = a.get()
    if a is b:
        return True
    if hasattr(a, "dtype") or hasattr(b, "dtype"):
        return hasattr(a, "_gradient_source") and hasattr(b, "_gradient_source")
    return type(a) is type(b) and bool(a == b)


def _leaf(part: Any) -> Any:
    source = getattr(part, "_as_tensor", None)
    return leaf_of(source() if source is not None else part)


def symbolic(tensor: Any) -> Any:
    """A tensor as one of the graph in the making: what has a value is captured by a function."""
    return _in_graph(get_default_graph(), tensor)


def _in_graph(graph: Any, tensor: Any) -> Any:
    """A tensor as one that operations of a graph take."""
    if not _core.is_eager_tensor(tensor):
        return convert_to_tensor(tensor)
    root = root_graph(graph)
    return root._capture_value(tensor) if root._captures_values else convert_to_tensor(tensor)


def _spec_of(value: Any) -> Any:
    if isinstance(value, Tensor):
        return TensorSpec(value.shape, value.dtype)
    return type(value).__name__ if isinstance(value, (IndexedSlices, SparseTensor)) else value
