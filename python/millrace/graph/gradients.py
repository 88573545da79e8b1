"""Gradients, and rules for them in Python."""

import functools
import inspect
from typing import Any, Callable

from millrace import _core, gen_ops
from millrace.core import dtypes, nest
from millrace.core.export import export
from millrace.core.tensor import Tensor, label_of
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import (
    control_dependencies,
    get_default_graph,
    graph_of_values,
    name_scope,
)
from millrace.graph.graph import Graph, root_graph
from millrace.graph.keys import GraphKeys
from millrace.graph.operation import Operation
from millrace.graph.sparse import IndexedSlices


@export(v1="AggregationMethod", v2="AggregationMethod")
class AggregationMethod:
    """How gradients that meet are added. There is one way, which uses no more memory than it must:
    the names are there for programs that ask for one."""

    ADD_N = 0
    DEFAULT = ADD_N
    EXPERIMENTAL_TREE = 1
    EXPERIMENTAL_ACCUMULATE_N = 2


@export(v1="UnconnectedGradients", v2="UnconnectedGradients")
class UnconnectedGradients:
    """What `gradients` gives for an x that no y depends on."""

    NONE = "none"
    ZERO = "zero"


def _as_list(value: Any) -> list[Any]:
    return list(value) if nest.is_collection(value) else [value]


def _to_core(gradient: Any) -> Any:
    if gradient is None or isinstance(gradient, Tensor):
        return gradient
    if isinstance(gradient, IndexedSlices):
        return gradient.values, gradient.indices, gradient.dense_shape
    return convert_to_tensor(gradient)


def _from_core(gradient: Any) -> Any:
    return IndexedSlices(*gradient) if isinstance(gradient, tuple) else gradient


def _handle(x: Any) -> Tensor:
    """The tensor whose gradient is that of `x`: a variable's own."""
    if isinstance(x, Tensor):
        return x
    handle = getattr(x, "_gradient_source", None)
    if handle is not None:
        return handle()
    return convert_to_tensor(x)


def _inside(graph: Graph, tensor: Any) -> Any:
    """What stands for a tensor from outside of all graphs in functions that use it."""
    if not _core.is_eager_tensor(tensor):
        return tensor
    root = root_graph(graph)
    return root._capture_value(tensor) if root._captures_values else convert_to_tensor(tensor)


def add_stand_in(x: Any, tensor: Tensor, gate: Operation) -> None:
    """Lets `tensor` stand for a variable: its gradients count as the variable's, once `gate` has
    run."""
    source = _handle(x)
    known = root_graph(source.graph)._local.setdefault("stand_ins", {})
    known.setdefault(source, []).append((tensor, gate))


def _stand_ins(source: Tensor) -> list[tuple[Tensor, Operation]]:
    return root_graph(source.graph)._local.get("stand_ins", {}).get(source, [])


def has_stand_in(x: Any) -> bool:
    """Whether a tensor stands for the variable."""
    return bool(_stand_ins(_handle(x)))


def _with_stand_ins(sources: list[Tensor]) -> list[Tensor]:
    """Each tensor, followed by those that stand for it."""
    return [t for source in sources for t in (source, *(s for s, _ in _stand_ins(source)))]


def _joined(sources: list[Tensor], found: list[Any]) -> list[Any]:
    """The gradients of tensors from those of `_with_stand_ins(sources)`."""
    out, place = [], iter(found)
    for source in sources:
        own, gates = next(place), []
        parts = [own] if own is not None else []
        for (_, gate), gradient in zip(_stand_ins(source), place, strict=False):
            if gradient is not None:
                parts.append(gradient)
                gates.append(gate)
        if gates:
            with name_scope("stand_ins"):
                own = _after(gates, _sum(parts))
        out.append(own)
    return out


def _sum(parts: list[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, IndexedSlices) for part in parts):
        values = gen_ops.concat_v2([part.values for part in parts], 0)
        indices = gen_ops.concat_v2([part.indices for part in parts], 0)
        return IndexedSlices(values, indices, parts[0].dense_shape)
    return gen_ops.add_n([convert_to_tensor(part) for part in parts])


def _after(gates: list[Operation], gradient: Any) -> Any:
    values = gradient.values if isinstance(gradient, IndexedSlices) else gradient
    with get_default_graph().colocate_with(values.op), control_dependencies(gates):
        values = gen_ops.identity(values)
    if not isinstance(gradient, IndexedSlices):
        return values
    return IndexedSlices(values, gradient.indices, gradient.dense_shape)


@export(v1="gradients")
def gradients(
    ys: Any, xs: Any, grad_ys: Any = None, name: str = "gradients",
    colocate_gradients_with_ops: bool = False, gate_gradients: bool = False,
    aggregation_method: Any = None, stop_gradients: Any = None,
    unconnected_gradients: str = UnconnectedGradients.NONE,
    recompute: bool = False, checkpoints: Any = None, memory_budget: int = 0,
    swap_memory: bool = False,
) -> list[Any]:  # fmt: skip
    """The gradients of the sum of `ys` with respect to each of `xs`.

    Args:
      ys: a tensor or a list of them.
      xs: tensors or variables. A tensor on the way may be one too.
      grad_ys: the gradients that come in for each y; ones by default.
      name: a prefix for the names of what is added.
      colocate_gradients_with_ops: compute each gradient where its operation runs.
      gate_gradients: use the gradients of an operation's inputs only when all are there.
      stop_gradients: tensors to take as constants.
      unconnected_gradients: "zero" for zeros instead of None.
      recompute, checkpoints, memory_budget: hold less of the forward pass and compute it again:
        everything that can be, all but `checkpoints`, or what is over a number of bytes.
      swap_memory: let what loops save wait in host memory.

    Returns a Tensor, IndexedSlices or None for each x. LookupError for an op without a gradient on
    the way, ValueError and TypeError for what cannot have one.
    """
    if aggregation_method not in (None, 0, 1, 2):
        raise ValueError(f"Invalid aggregation_method specified {aggregation_method}.")
    unconnected_gradients = getattr(unconnected_gradients, "value", unconnected_gradients)
    if unconnected_gradients not in (UnconnectedGradients.NONE, UnconnectedGradients.ZERO):
        raise ValueError(f"Unknown value for unconnected_gradients: {unconnected_gradients!r}")
    ys, xs = _as_list(ys), _as_list(xs)
    incoming = [None] * len(ys) if grad_ys is None else _as_list(grad_ys)
    if len(incoming) != len(ys):
        raise ValueError(f"Passed {len(incoming)} grad_ys for {len(ys)} ys")
    stops = _as_list(stop_gradients) if stop_gradients is not None else []
    graph = graph_of_values(ys + xs)
    with graph.as_default():
        y_tensors = []
        for y in ys:
            if isinstance(y, IndexedSlices):
                y = y.values
            y_tensors.append(convert_to_tensor(y))
        # Nothing flows out of whole numbers: they are there for programs that pass all results.
        kept = [i for i, y in enumerate(y_tensors) if not (y.dtype.is_integer or y.dtype.is_bool)]
        y_tensors = [y_tensors[i] for i in kept]
        incoming = [incoming[i] for i in kept]
        x_tensors = [_inside(graph, _handle(x)) for x in xs]
        incoming = [
            _check_incoming(y, grad, i)
            for i, (y, grad) in enumerate(zip(y_tensors, incoming, strict=True))
        ]
        stop_tensors = _with_stand_ins([_handle(s) for s in stops])
        options = (
            stop_tensors, bool(colocate_gradients_with_ops), bool(gate_gradients), recompute,
            [_handle(c) for c in _as_list(checkpoints)] if checkpoints is not None else [],
            memory_budget, swap_memory,
        )  # fmt: skip
        zeros = unconnected_gradients == UnconnectedGradients.ZERO
        name = name or "gradients"
        found = _core.gradients(
            graph, y_tensors, _with_stand_ins(x_tensors), [_to_core(g) for g in incoming],
            *options, zeros, name,
        )  # fmt: skip
        found = _joined(x_tensors, [_from_core(g) for g in found])
    # What only passed through stays the object that it was.
    given = {id(g.values): g for g in incoming if isinstance(g, IndexedSlices)}
    out = []
    for made in found:
        same = given.get(id(made.values)) if isinstance(made, IndexedSlices) else None
        out.append(same if same is not None and same.indices is made.indices else made)
    return out


def _refuse_eager(what: str) -> None:
    if _core.executing_eagerly():
        raise RuntimeError(
            f"tf.{what} is not supported when eager execution is enabled. Use tf.GradientTape "
            "instead."
        )


@export(v2="gradients")
def gradients_v2(
    ys: Any, xs: Any, grad_ys: Any = None, name: str = "gradients", gate_gradients: bool = False,
    aggregation_method: Any = None, stop_gradients: Any = None,
    unconnected_gradients: Any = UnconnectedGradients.NONE,
) -> list[Any]:  # fmt: skip
    """As of `compat.v1`, in graphs and functions. RuntimeError where operations run at once."""
    _refuse_eager("gradients")
    return gradients(
        ys, xs, grad_ys, name, False, gate_gradients, aggregation_method, stop_gradients,
        unconnected_gradients,
    )  # fmt: skip


def _check_incoming(y: Tensor, grad: Any, i: int) -> Any:
    if grad is None:
        if y.dtype.is_complex:
            raise TypeError(
                f"Gradients of complex tensors must set grad_ys (y.dtype = tf.{y.dtype.name}) of "
                f"'{label_of(y)}', shape {y.shape}"
            )
        return None
    if not isinstance(grad, (Tensor, IndexedSlices)):
        grad = convert_to_tensor(grad, dtype=y.dtype.base_dtype, name=f"grad_y_{i}")
    if y.dtype.is_floating or y.dtype.is_integer:
        if not grad.dtype.is_floating and not grad.dtype.is_integer:
            raise TypeError(
                f"Gradient type {grad.dtype.name} generated for real or integer-valued tensor "
                f"'{label_of(y)}' with type {y.dtype.name} must be real or integer"
            )
    elif y.dtype.is_complex and not grad.dtype.is_complex:
        raise TypeError(
            f"Gradient type {grad.dtype.name} generated for complex-valued tensor '{label_of(y)}' "
            "with "
            f"type {y.dtype.name} must be complex"
        )
    if isinstance(grad, Tensor) and not grad.shape.is_compatible_with(y.shape):
        count = y.shape.num_elements()
        if count is not None and count == grad.shape.num_elements():
            # Programs give gradients of shape [1] for scalars.
            grad = gen_ops.reshape(grad, y.shape)
    return grad


@export(v1="hessians")
def hessians(
    ys: Any, xs: Any, name: str = "hessians", colocate_gradients_with_ops: bool = False,
    gate_gradients: bool = False, aggregation_method: Any = None,
) -> list[Any]:  # fmt: skip
    """The matrices of second derivatives of the sum of `ys` with respect to each of `xs`.

    An x of shape S gives a tensor of shape S + S, row by row: S must be known and small. ValueError
    when it is not, and when the first derivatives do not depend on x.
    """
    xs = _as_list(xs)
    options = {
        "colocate_gradients_with_ops": colocate_gradients_with_ops,
        "gate_gradients": gate_gradients,
        "aggregation_method": aggregation_method,
    }
    out = []
    for x, gradient in zip(xs, gradients(ys, xs, **options), strict=True):
        if gradient is None:
            out.append(None)
            continue
        x = convert_to_tensor(x)
        count = x.shape.num_elements()
        if count is None:
            raise ValueError(
                f"hessians: the shape of '{label_of(x)}' ({x.dtype.name}) must be known, got "
                f"{x.shape}"
            )
        with name_scope(name, "hessians"):
            flat = gen_ops.reshape(gradient, [-1])
            rows = [gradients(flat[i], x, **options)[0] for i in range(count)]
            if any(row is None for row in rows):
                raise ValueError(
                    f"hessians: the gradient with respect to '{label_of(x)}' ({x.dtype.name}, "
                    "shape "
                    f"{x.shape}) does not depend on it"
                )
            out.append(gen_ops.reshape(gen_ops.pack(rows), x.shape.concatenate(x.shape)))
    return out


@export(v2="hessians")
def hessians_v2(
    ys: Any, xs: Any, gate_gradients: bool = False, aggregation_method: Any = None,
    name: str = "hessians",
) -> list[Any]:  # fmt: skip
    """As of `compat.v1`, in graphs and functions. RuntimeError where operations run at once."""
    _refuse_eager("hessians")
    return hessians(ys, xs, name, False, gate_gradients, aggregation_method)


class GradientOp:
    """What a gradient rule sees of the operation it differentiates."""

    def __init__(
        self, graph: Graph, inputs: list[Tensor], outputs: list[Tensor], attr: Callable[[str], Any]
    ):
        self.graph = graph
        self.inputs = inputs
        self.outputs = outputs
        self._attr = attr

    @property
    def name(self) -> str:
        """The name of the operation."""
        return self._operation.name

    @property
    def type(self) -> str:
        """The op."""
        return self._operation.type

    @property
    def device(self) -> str:
        """Where the operation was asked to run."""
        return self._operation.device

    @property
    def node_def(self) -> Any:
        """The node as a NodeDef."""
        return self._operation.node_def

    @property
    def _operation(self) -> Operation:
        if not self.outputs:
            raise ValueError("an operation without outputs has no gradient")
        return self.outputs[0].op

    def get_attr(self, name: str) -> Any:
        """The value of an attribute. ValueError when there is none."""
        return self._attr(name)


def call_rule(
    rule: Callable[..., Any], graph: Graph, inputs: list[Tensor], outputs: list[Tensor],
    incoming: list[Any], attr: Callable[[str], Any],
) -> list[Any]:  # fmt: skip
    """Calls a rule as programs write them; the bindings call it."""
    op: Any = GradientOp(graph, inputs, outputs, attr)
    if outputs and outputs[0].op.inputs == inputs and len(outputs[0].op.outputs) == len(outputs):
        op = outputs[0].op
    given = [_from_core(g) for g in incoming]
    results = rule(op, *given)
    results = _as_list(results)
    if len(results) != len(inputs):
        kind = f"operation '{op.name}' ({op.type})" if outputs else "operation"
        raise ValueError(
            f"Num gradients {len(results)} generated for {kind} do not match num inputs "
            f"{len(inputs)}"
        )
    out = []
    for i, (tensor, result) in enumerate(zip(inputs, results, strict=True)):
        if result is not None and not isinstance(result, (Tensor, IndexedSlices)):
            result = convert_to_tensor(result, dtype=tensor.dtype.base_dtype)
        _check_shape(op, i, tensor, result)
        out.append(_to_core(result))
    return out


def _check_shape(op: Any, i: int, given: Tensor, gradient: Any) -> None:
    """ValueError when a rule gave the gradient of input `i` a shape that this cannot have."""
    if gradient is None or given.dtype.base_dtype in (dtypes.resource, dtypes.variant):
        return
    shape = gradient.shape
    if shape.is_compatible_with(given.shape):
        return
    raise ValueError(
        f"Incompatible shapes between op input and calculated input gradient. Forward operation: "
        f"{op.name} ({op.type}). Input index: {i} ('{label_of(given)}', {given.dtype.name}). "
        "Original "
        f"input shape: {given.shape}. Calculated input gradient shape: {shape}.{_where(op)}"
    )


def _where(op: Any) -> str:
    frames = getattr(op, "traceback", None)
    return f"\ndefined at {frames[0][0]}:{frames[0][1]}  {frames[0][3]}" if frames else ""


@export(v1="RegisterGradient", v2="RegisterGradient")
class RegisterGradient:
    """Registers the gradient of an op, or of a name for `Graph.gradient_override_map`.

    `@RegisterGradient("MyOp")` on a function from the operation and the gradients of its outputs to
    those of its inputs (None where there is none).
    """

    def __init__(self, op_type: str):
        if not isinstance(op_type, str):
            raise TypeError("op_type must be a string")
        self._op_type = op_type

    def __call__(self, f: Callable[..., Any]) -> Callable[..., Any]:
        _register(self._op_type, f)
        return f


def _register(name: str, rule: Callable[..., Any]) -> None:
    if _core.has_registered_gradient(name):
        raise KeyError(f"Registering two gradient with name '{name}'! There is one already.")
    _core.register_gradient(name, rule)


@export(v1=("NotDifferentiable", "NoGradient", "no_gradient"), v2="no_gradient")
def NotDifferentiable(op_type: str) -> None:
    """Says that an op has no gradient: nothing flows back through it."""
    if not isinstance(op_type, str):
        raise TypeError("op_type must be a string")
    _register(op_type, lambda op, *_: [None] * len(op.inputs))


@export(v1="custom_gradient", v2="custom_gradient")
def custom_gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a function a gradient of its own.

    `f(*args)` returns its result (a tensor or a list of them) and a function from the gradients of
    the results to those of the arguments. With variables used inside, that function takes a
    keyword `variables` and returns a second list, their gradients.
    """
    return functools.update_wrapper(_WithGradient(f), f)


class _WithGradient:
    """What `custom_gradient` makes of a function, or of a method."""

    def __init__(self, f: Callable[..., Any]):
        self._f = f

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        return _WithGradient(self._f.__get__(instance, owner))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _core.executing_eagerly():
            return _eager_custom(self._f, args, kwargs)
        return _custom(self._f, args, kwargs)


def set_eager_custom(function: Callable[..., Any], reads: Callable[..., Any]) -> None:
    """Says what calls such functions where operations run at once, and what tells which variables
    outside of graphs a call reads: from a function to its result, and these with their handles."""
    global _eager_custom, _reads
    _eager_custom, _reads = function, reads


def _reads_nothing(code: Callable[[], Any]) -> Any:
    return code(), []


_eager_custom: Callable[..., Any]
_reads: Callable[..., Any] = _reads_nothing


def check_takes_variables(rule: Callable[..., Any], variables: Any) -> None:
    """TypeError for a rule that has no place for the gradients of variables."""
    try:
        parameters = inspect.signature(rule).parameters
    except (TypeError, ValueError):
        return
    varied = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    if "variables" not in parameters and not varied:
        names = [v.name for v in variables]
        raise TypeError(
            "@tf.custom_gradient grad_fn must accept keyword argument 'variables', since function "
            f"uses variables: {names}"
        )


def _custom(f: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    # The arguments as they are inside: what flows out of the function flows into these.
    arguments = [gen_ops.identity(convert_to_tensor(a)) for a in args]
    before = set(_trainable_variables())
    (result, rule), read = _reads(lambda: f(*arguments, **kwargs))
    flat = [convert_to_tensor(r) for r in nest.flatten(result)]
    sources = _variables_between(flat, arguments)
    for variable in _trainable_variables():
        if variable not in before:
            sources.setdefault(variable, _handle(variable))
    used, variables = list(sources), list(sources.values())
    given = {id(a) for a in args}
    for variable, handle in read:
        if id(variable) not in given:
            used.append(variable)
            variables.append(handle)
    if used:
        check_takes_variables(rule, used)

    def gradient(op: Any, *grads: Any) -> list[Any]:
        grads = grads[: len(flat)]
        if used:
            arg_grads, variable_grads = rule(*grads, variables=used)
            variable_grads = _as_list(variable_grads)
        else:
            arg_grads, variable_grads = rule(*grads), []
        arg_grads = _as_list(arg_grads)
        if len(arg_grads) != len(arguments):
            raise ValueError(
                f"custom_gradient function expected to return {len(arguments)} gradients but "
                f"returned {len(arg_grads)} instead."
            )
        return [None] * len(flat) + arg_grads + variable_grads

    graph = get_default_graph()
    rule_name = _core.register_kept_gradient("CustomGradient", gradient)
    root_graph(graph)._local.setdefault("gradients", []).append(gradient)
    inputs = flat + arguments + variables
    with graph.gradient_override_map({"IdentityN": rule_name}):
        outputs = gen_ops.identity_n(inputs)
    return nest.pack_sequence_as(result, outputs[: len(flat)])


def _trainable_variables() -> list[Any]:
    return get_default_graph().get_collection(GraphKeys.TRAINABLE_VARIABLES)


def _variables_between(ys: list[Tensor], xs: list[Tensor]) -> dict[Any, Tensor]:
    """The trainable variables that the ys use, up to the xs, with what their gradients flow to."""
    by_op = {
        source.op: (v, source)
        for v in _trainable_variables()
        for source in _with_stand_ins([_handle(v)])
    }
    stop = {x.op for x in xs}
    found: dict[Any, Tensor] = {}
    seen: set[Operation] = set()
    todo = [y.op for y in ys]
    while todo:
        op = todo.pop()
        if op in seen or op in stop:
            continue
        seen.add(op)
        if op in by_op:
            variable, source = by_op[op]
            found.setdefault(variable, source)
        todo += [i.op for i in op.inputs]
    return found
