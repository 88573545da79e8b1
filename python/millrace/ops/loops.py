"""Loops: while_loop."""

from typing import Any, Callable

from millrace import _core, gen_ops
from millrace.core import dtypes, nest
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor, label_of
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import get_default_graph
from millrace.graph.operation import Operation
from millrace.graph.sparse import IndexedSlices, SparseTensor
from millrace.graph.tracing import (  # fmt: skip
    described,
    is_composite,
    kind_of,
    leaf_of,
    tensors_of,
    value_of,
    wholes,
)
from millrace.ops.control_flow import is_singleton


def _loop_leaf(value: Any, number: int) -> Any:
    """A loop variable, as tensors or something made of them."""
    if value is None:
        raise ValueError(f"None values not supported: loop variable {number} is None.")
    if isinstance(value, Operation):
        raise TypeError(f"Loop variable {number} is the operation '{value.name}', not a tensor.")
    return leaf_of(value)


def _part_shapes(leaf: Any, invariant: Any) -> list[TensorShape]:
    """The shapes that the parts of a loop variable keep."""
    parts = tensors_of(leaf)
    if invariant is None:
        return [part.shape for part in parts]
    if not isinstance(invariant, TensorShape):
        if isinstance(leaf, (SparseTensor, IndexedSlices)):
            raise TypeError(
                f"The shape invariant of the {type(leaf).__name__} {leaf} must be a TensorShape, "
                f"got {invariant!r}"
            )
        invariant = TensorShape(invariant)
    if isinstance(leaf, Tensor):
        return [invariant]
    if isinstance(leaf, SparseTensor):
        # The invariant is that of dense_shape, a vector as long as the rank.
        rank = invariant.with_rank(1).as_list()[0]
        return [
            TensorShape([None, rank]), TensorShape([None]), TensorShape([rank])
        ]  # fmt: skip
    if isinstance(leaf, IndexedSlices):
        shapes = [invariant, TensorShape([invariant[0] if invariant.rank else None])]
        return shapes if leaf.dense_shape is None else [*shapes, TensorShape([invariant.rank])]
    return [TensorShape(())]


def _covers(invariant: TensorShape, shape: TensorShape) -> bool:
    """Whether everything that has the shape has the invariant."""
    if invariant.rank is None:
        return True
    if shape.rank != invariant.rank:
        return False
    pairs = zip(invariant.as_list(), shape.as_list(), strict=True)
    return all(kept is None or kept == size for kept, size in pairs)


class _ValueWanted(Exception):
    """A loop variable that came in as a reference becomes a value in the body."""


class _Loop:
    """A loop in the making: how its variables look, and what its body returned."""

    def __init__(
        self, cond: Any, body: Any, loop_vars: Any, shape_invariants: Any, read: bool = False
    ):
        self._cond = cond
        self._body = body
        self._loop_vars = loop_vars
        self.leaves = [_loop_leaf(v, i) for i, v in enumerate(nest.flatten(loop_vars))]
        if read:
            self.leaves = [
                value_of(leaf) if isinstance(leaf, Tensor) else leaf for leaf in self.leaves
            ]
        self.tensors = [t for leaf in self.leaves for t in tensors_of(leaf)]
        if shape_invariants is None:
            shapes = [_part_shapes(leaf, None) for leaf in self.leaves]
        else:
            shapes = self._invariants(shape_invariants)
        self.shapes = [shape for group_of_shapes in shapes for shape in group_of_shapes]
        self.result: Any = None

    def _invariants(self, given: Any) -> list[list[TensorShape]]:
        structure = nest.pack_sequence_as(self._loop_vars, self.leaves)
        flat = nest.flatten_up_to(structure, given, check_types=False)
        shapes = []
        for leaf, invariant in zip(self.leaves, flat, strict=True):
            own = _part_shapes(leaf, invariant)
            for part, shape in zip(tensors_of(leaf), own, strict=True):
                if not _covers(shape, part.shape):
                    raise ValueError(
                        f"The shape invariant specified for {label_of(part)} is not compatible "
                        "with the "
                        "initial shape of the loop variable. It enters the loop with shape "
                        f"{part.shape}, but the specified shape invariant is {shape}."
                    )
            shapes.append(own)
        return shapes

    def _arguments(self, parameters: list[Tensor]) -> Any:
        return nest.pack_sequence_as(self._loop_vars, wholes(self.leaves, parameters))

    def condition(self, parameters: list[Tensor]) -> list[Tensor]:
        """Builds the condition."""
        result = self._cond(*self._arguments(parameters))
        if is_singleton(result):
            result = result[0]
        result = convert_to_tensor(result)
        if result.dtype.base_dtype is not dtypes.bool_:
            raise TypeError(
                f"The condition of a while_loop must be of type bool, got {described(result)}."
            )
        if result.shape.rank not in (None, 0):
            raise ValueError(
                f"The condition of a while_loop must be a scalar, got {described(result)}."
            )
        return [value_of(result)]

    def body(self, parameters: list[Tensor]) -> list[Tensor]:
        """Builds the body."""
        arguments = self._arguments(parameters)
        result = self._body(*arguments)
        if not nest.is_nested(result) or isinstance(result, dict):
            result = [result]
        try:
            nest.assert_same_structure(list(arguments), list(result), check_types=True)
        except (TypeError, ValueError) as error:
            raise type(error)(
                f"The body of a while_loop must return what it takes: {error}"
            ) from None
        self.result = result
        out: list[Tensor] = []
        for i, (leaf, value) in enumerate(zip(self.leaves, nest.flatten(result), strict=True)):
            value = _loop_leaf(value, i)
            if kind_of(value) != kind_of(leaf):
                raise TypeError(
                    f"Loop variable {i} enters the loop as a {kind_of(leaf)}, but the body returns "
                    f"a {kind_of(value)}."
                )
            parts, before = tensors_of(value), tensors_of(leaf)
            if len(parts) != len(before):
                raise ValueError(
                    f"Cannot add dense_shape to, or take it from, the IndexedSlices of loop "
                    f"variable {i} in the body."
                )
            if hasattr(leaf, "_merge_element_shape"):
                leaf._merge_element_shape(value)
            out += parts
        for i, (before, shape) in enumerate(zip(self.tensors, self.shapes, strict=True)):
            if not before.dtype._is_ref_dtype:
                out[i] = value_of(out[i])
            elif not out[i].dtype._is_ref_dtype:
                raise _ValueWanted
            while out[i].op.type == "RefIdentity":  # what goes round is the reference itself
                out[i] = out[i].op.inputs[0]
            _check_round(before, shape, out[i])
        return out

    def add(self, graph: Any, parallel_iterations: int, name: str) -> list[Tensor]:
        """The loop's outputs, once it is in the graph."""
        shapes = [s.as_list() if s.rank is not None else None for s in self.shapes]
        return _core.add_while(
            graph, self.tensors, self.condition, self.body, shapes, parallel_iterations, name
        )

    def pack(self, tensors: list[Tensor], return_same_structure: bool) -> Any:
        """The loop's result."""
        leaves = wholes(self.leaves, tensors)
        if return_same_structure:
            return nest.pack_sequence_as(self._loop_vars, leaves)
        packed = nest.pack_sequence_as(self.result, leaves)
        return leaves[0] if len(tensors) == 1 and len(leaves) == 1 else packed


def _check_round(before: Tensor, shape: TensorShape, after: Tensor) -> None:
    if before.dtype.base_dtype != after.dtype.base_dtype:
        raise TypeError(
            f"Loop var {label_of(before)} enters the loop with type {before.dtype.base_dtype} "
            f"but has type {after.dtype.base_dtype} after 1 iteration. Its shapes are "
            f"{before.shape} and {after.shape}."
        )
    if not _covers(shape, after.shape):
        raise ValueError(
            f"The shape for {label_of(before)} is not an invariant for the loop. It enters the "
            "loop "
            f"with shape {shape}, but has shape {after.shape} after one iteration "
            f"({before.dtype.base_dtype.name}). Provide shape invariants using either the "
            "`shape_invariants` argument of tf.while_loop or set_shape() on the loop variables."
        )


@export(v1="while_loop")
def while_loop(
    cond: Callable[..., Any], body: Callable[..., Any], loop_vars: Any,
    shape_invariants: Any = None, parallel_iterations: int = 10, back_prop: bool = True,
    swap_memory: bool = False, name: str | None = None, maximum_iterations: Any = None,
    return_same_structure: bool = False,
) -> Any:  # fmt: skip
    """Repeats `body` as long as `cond` holds, and returns the loop variables at the end.

    Args:
      cond, body: functions of the loop variables, called once, now, to build the loop: to a bool
        scalar, and to the variables of the next iteration.
      loop_vars: a list or tuple, possibly nested, of tensors, TensorArrays, sparse tensors.
      shape_invariants: the shapes that the variables keep; by default those they come in with.
      parallel_iterations: how many iterations may be under way at a time.
      back_prop: False: no gradient flows through the loop.
      swap_memory: let what a gradient saves wait in host memory.
      maximum_iterations: the loop ends after so many.
      return_same_structure: return a list of one variable, too, as it is.

    TypeError and ValueError when the body returns other variables, or types, than it takes, or a
    shape that an invariant does not cover.
    """
    if not callable(cond):
        raise TypeError("'cond' must be callable.")
    if not callable(body):
        raise TypeError("'body' must be callable.")
    if isinstance(parallel_iterations, Tensor) or int(parallel_iterations) < 1:
        raise TypeError("'parallel_iterations' must be a positive integer.")
    if not nest.is_nested(loop_vars) or isinstance(loop_vars, dict):
        raise TypeError(
            "'loop_vars' must be a list or tuple of loop variables, got "
            f"{type(loop_vars).__name__}: {loop_vars!r}"
        )
    if not loop_vars:
        raise ValueError("No loop variables provided: 'loop_vars' must be provided.")
    if _core.executing_eagerly():
        return _run(cond, body, loop_vars, maximum_iterations, return_same_structure)
    graph = get_default_graph()
    node_name = name or "while"
    with graph.name_scope(f"{graph._scope}{node_name}/"):
        if maximum_iterations is not None:
            return _bounded(
                cond, body, loop_vars, shape_invariants, parallel_iterations, back_prop,
                swap_memory, node_name, maximum_iterations, return_same_structure,
            )  # fmt: skip
        loop = _Loop(cond, body, loop_vars, shape_invariants)
    try:
        outputs = loop.add(graph, int(parallel_iterations), node_name)
    except _ValueWanted:
        with graph.name_scope(f"{graph._scope}{node_name}/"):
            loop = _Loop(cond, body, loop_vars, shape_invariants, read=True)
        outputs = loop.add(graph, int(parallel_iterations), node_name)
    if not back_prop:
        outputs = [
            gen_ops.stop_gradient(o) if o.dtype.is_floating or o.dtype.is_complex else o
            for o in outputs
        ]
    return loop.pack(outputs, return_same_structure)


def _run(
    cond: Any, body: Any, loop_vars: Any, maximum_iterations: Any, return_same_structure: bool
) -> Any:
    """The loop outside of graphs."""
    most = None if maximum_iterations is None else int(maximum_iterations)
    single = len(loop_vars) == 1 and not return_same_structure
    first = variables = loop_vars
    while (most is None or most > 0) and bool(cond(*variables)):
        variables = body(*variables)
        if not nest.is_nested(variables) or isinstance(variables, dict):
            variables = (variables,)
        try:
            nest.assert_same_structure(list(first), list(variables))
        except (TypeError, ValueError) as error:
            raise type(error)(
                f"The body of a while_loop must return what it takes: {error}"
            ) from None
        most = None if most is None else most - 1
    leaves = [
        leaf
        if hasattr(leaf, "_merge_element_shape") or is_composite(leaf)
        else convert_to_tensor(leaf)
        for leaf in nest.flatten(variables)
    ]
    result = nest.pack_sequence_as(variables, leaves)
    return result[0] if single else result


def _bounded(
    cond: Any, body: Any, loop_vars: Any, shape_invariants: Any, parallel_iterations: int,
    back_prop: bool, swap_memory: bool, name: str, maximum_iterations: Any,
    return_same_structure: bool,
) -> Any:  # fmt: skip
    """The loop with a counter of its iterations as one more variable."""
    limit = convert_to_tensor(maximum_iterations, name="maximum_iterations")
    if limit.shape.rank not in (None, 0):
        raise ValueError(f"'maximum_iterations' must be a scalar, saw shape: {limit.shape}")
    counter = convert_to_tensor(0, dtype=limit.dtype.base_dtype, name="iteration_counter")
    one = convert_to_tensor(1, dtype=limit.dtype.base_dtype)

    def counted_body(i: Any, variables: Any) -> Any:
        result = body(*variables)
        if not nest.is_nested(result) or isinstance(result, dict):
            result = [result]
        try:
            nest.assert_same_structure(list(variables), list(result))
        except (TypeError, ValueError) as error:
            raise type(error)(
                f"The body of a while_loop must return what it takes: {error}"
            ) from None
        return i + one, nest.pack_sequence_as(loop_vars, nest.flatten(result))

    def counted_cond(i: Any, variables: Any) -> Any:
        return gen_ops.logical_and(i < limit, cond(*variables))

    if shape_invariants is not None:
        shape_invariants = (TensorShape(()), shape_invariants)
    graph = get_default_graph()
    scope = graph._scope
    with graph.name_scope(scope[: -len(name) - 1] or None):
        _, result = while_loop(
            counted_cond, counted_body, (counter, loop_vars), shape_invariants,
            parallel_iterations, back_prop, swap_memory, name, return_same_structure=True,
        )  # fmt: skip
    if return_same_structure:
        return result
    flat = nest.flatten(result)
    return flat[0] if len(flat) == 1 else result


@export(v2="while_loop")
def while_loop_v2(
    cond: Callable[..., Any], body: Callable[..., Any], loop_vars: Any,
    shape_invariants: Any = None, parallel_iterations: int = 10, back_prop: bool = True,
    swap_memory: bool = False, maximum_iterations: Any = None, name: str | None = None,
) -> Any:  # fmt: skip
    """As of `compat.v1`; the variables at the end have the structure of `loop_vars`."""
    return while_loop(
        cond, body, loop_vars, shape_invariants, parallel_iterations, back_prop, swap_memory, name,
        maximum_iterations, return_same_structure=True,
    )  # fmt: skip
