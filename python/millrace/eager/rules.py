"""Gradients that are written in Python, of operations that ran at once."""

from typing import Any, Callable

from millrace import _core
from millrace.core import nest
from millrace.core.tensor import Tensor
from millrace.eager.tape import Accesses, source_of, variable_of
from millrace.graph import gradients
from millrace.graph.convert import convert_to_tensor
from millrace.graph.sparse import IndexedSlices


class _Operation:
    """What a gradient rule sees of the operation it differentiates."""

    name = type = ""

    def __init__(self, inputs: list[Any], outputs: list[Any], attr: Callable[[str], Any]):
        self.inputs = inputs
        self.outputs = outputs
        self.get_attr = attr


def _from_core(gradient: Any) -> Any:
    return IndexedSlices(*gradient) if isinstance(gradient, tuple) else gradient


def _to_core(gradient: Any, like: Any) -> Any:
    if isinstance(gradient, IndexedSlices):
        return gradient.values, gradient.indices, gradient.dense_shape
    if gradient is None or isinstance(gradient, Tensor):
        return gradient
    return convert_to_tensor(gradient, dtype=like.dtype.base_dtype)


def _as_list(value: Any) -> list[Any]:
    return list(value) if nest.is_collection(value) else [value]


def call_rule(
    rule: Callable[..., Any], inputs: list[Any], outputs: list[Any], incoming: list[Any],
    attr: Callable[[str], Any],
) -> list[Any]:  # fmt: skip
    """Calls `rule(op, *gradients)`, and gives a gradient for each input. The bindings call it."""
    found = _as_list(rule(_Operation(inputs, outputs, attr), *map(_from_core, incoming)))
    if len(found) != len(inputs):
        raise ValueError(
            f"Num gradients {len(found)} generated for operation do not match num inputs "
            f"{len(inputs)}"
        )
    return [_to_core(g, x) for g, x in zip(found, inputs, strict=True)]


def custom(f: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Calls a function that brings its gradient along: what `tf.custom_gradient` makes."""
    own = {id(x) for x in nest.flatten((args, kwargs))}
    args = nest.map_structure(_as_tensor, list(args))
    (result, rule), read = reads(lambda: f(*args, **kwargs))
    given = [source_of(x) for x in nest.flatten(args)]
    variables = [v for v, _ in read if id(v) not in own]
    if variables:
        gradients.check_takes_variables(rule, variables)
        for variable in variables:  # which may have been read where no tape looks
            _core.variable_accessed(source_of(variable))
    flat = [convert_to_tensor(r) for r in nest.flatten(result)]

    def backward(*incoming: Any) -> list[Any]:
        dys = [_from_core(_or_zeros(g, y)) for g, y in zip(incoming, flat, strict=True)]
        if variables:
            found, of_variables = rule(*dys, variables=variables)
            of_variables = _as_list(of_variables)
            if len(of_variables) != len(variables):
                raise ValueError(
                    "Must return gradient for each variable from @custom_gradient grad_fn."
                )
        else:
            found, of_variables = rule(*dys), []
        found = nest.flatten(_as_list(found))
        if len(found) != len(given):
            raise ValueError(
                f"custom_gradient function expected to return {len(given)} gradients, but "
                f"returned {len(found)} instead."
            )
        inputs = given + variables
        return [_to_core(g, x) for g, x in zip(found + of_variables, inputs, strict=True)]

    outputs = _core.record_operation(given + [source_of(v) for v in variables], flat, backward)
    return nest.pack_sequence_as(result, outputs)


def _as_tensor(value: Any) -> Any:
    return value if hasattr(value, "_gradient_source") else convert_to_tensor(value)


def reads(code: Callable[[], Any]) -> tuple[Any, list[tuple[Any, Any]]]:
    """The result of a function, and the trainable variables that it reads with their handles."""
    handles: list[Any] = []
    with Accesses(handles):
        result = code()
    found = [(variable_of(handle), handle) for handle in handles]
    return result, [(v, handle) for v, handle in found if v is not None]


def _or_zeros(gradient: Any, like: Any) -> Any:
    return _core.zeros_like(like) if gradient is None else gradient


gradients.set_eager_custom(custom, reads)
