"""Branches, loops, and what orders operations: cond, case, while_loop, group, tuple."""

from typing import Any, Callable

from millrace import _core, gen_ops
from millrace.core import dtypes, nest
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.graph.convert import convert_to_tensor
from millrace.graph.graph import (
    Operation,
    Tensor,
    control_dependencies,
    get_default_graph,
    name_scope,
)
from millrace.graph.sparse import IndexedSlices, SparseTensor, SparseTensorValue
from millrace.graph.static_value import constant_value

no_op = export("no_op")(gen_ops.no_op)


# Values made of several tensors: they go into a branch or loop in parts and come out whole.


def _parts(leaf: Any) -> list[Tensor]:
    """The tensors that a leaf of a structure is made of."""
    if isinstance(leaf, Tensor):
        return [leaf]
    if isinstance(leaf, IndexedSlices):
        parts = [leaf.values, leaf.indices]
        return parts if leaf.dense_shape is None else [*parts, leaf.dense_shape]
    if isinstance(leaf, SparseTensor):
        return [leaf.indices, leaf.values, leaf.dense_shape]
    if leaf is None:
        return []
    return [leaf.flow]  # a TensorArray


def _whole(leaf: Any, parts: list[Tensor]) -> Any:
    """A value like `leaf` made of other tensors."""
    if isinstance(leaf, Tensor):
        return parts[0]
    if isinstance(leaf, IndexedSlices):
        return IndexedSlices(*parts)
    if isinstance(leaf, SparseTensor):
        return SparseTensor(*parts)
    return None if leaf is None else leaf._with_flow(parts[0])


def _wholes(leaves: list[Any], tensors: list[Tensor]) -> list[Any]:
    out, at = [], 0
    for leaf in leaves:
        count = len(_parts(leaf))
        out.append(_whole(leaf, tensors[at : at + count]))
        at += count
    return out


def _is_composite(value: Any) -> bool:
    return isinstance(value, (IndexedSlices, SparseTensor)) or hasattr(value, "_with_flow")


def _kind(leaf: Any) -> str:
    return "Tensor" if isinstance(leaf, Tensor) else type(leaf).__name__


def _value(tensor: Tensor) -> Tensor:
    """References are read: what leaves a branch is a value."""
    return gen_ops.identity(tensor) if tensor.dtype._is_ref_dtype else tensor


def _describe(tensor: Tensor) -> str:
    return f"{tensor.dtype.base_dtype.name} of shape {tensor.shape} ('{tensor.name}')"


# Order.


@export("group")
def group(*inputs: Any, **kwargs: Any) -> Operation:
    """An operation that is done when all of `inputs` (tensors, operations, structures of them) are.

    TypeError for an input that is neither. `name`: its name.
    """
    name = kwargs.pop("name", None)
    if kwargs:
        raise ValueError(f"Unknown keyword arguments: {', '.join(sorted(kwargs))}")
    ops: list[Operation] = []
    for item in nest.flatten(list(inputs)):
        op = _operation_of(item)
        if op is None:
            raise TypeError(
                "'inputs' should be zero or more (nested) Tensors. Expected tf.group() expected "
                f"Tensor objects not '{item}' with type '{type(item)}'."
            )
        ops.append(op)
    by_device: dict[str, list[Operation]] = {}
    for op in ops:
        by_device.setdefault(op.device, []).append(op)
    if len(by_device) <= 1:
        return _group_on(ops, name or "group_deps", next(iter(by_device), ""))
    with name_scope(name, "group_deps") as scope:
        each = [_group_on(by_device[d], "NoOp", d) for d in sorted(by_device)]
    return _group_on(each, scope, "")


def _group_on(ops: list[Operation], name: str, device: str) -> Operation:
    graph = get_default_graph()
    with control_dependencies(ops):
        if not device:
            return gen_ops.no_op(name=name)
        with graph.device(device):
            return gen_ops.no_op(name=name)


def _operation_of(value: Any) -> Operation | None:
    """The operation that makes a value; None where there is none."""
    if isinstance(value, Operation):
        return value
    if not hasattr(value, "device"):
        return None
    convert = getattr(value, "_as_graph_element", None)
    element = convert() if convert is not None else value
    if isinstance(element, Operation):
        return element
    op = getattr(element, "op", None)
    return op if isinstance(op, Operation) else None


def with_dependencies(dependencies: Any, output_tensor: Any, name: str | None = None) -> Any:
    """`output_tensor`, a Tensor or IndexedSlices, ready only after `dependencies` have run."""
    with name_scope(name, "control_dependency", [*dependencies, output_tensor]) as scope:
        if isinstance(output_tensor, IndexedSlices):
            with control_dependencies(dependencies):
                parts = [gen_ops.identity(part) for part in _parts(output_tensor)]
            return IndexedSlices(*parts)
        output = convert_to_tensor(output_tensor)
        with get_default_graph().colocate_with(output), control_dependencies(dependencies):
            return gen_ops.identity(output, name=scope)


@export("tuple")
def tuple_(tensors: Any, name: str | None = None, control_inputs: Any = None) -> list[Any]:
    """The tensors (None, IndexedSlices and operations too), each ready only when all are.

    `control_inputs`: tensors or operations to wait for besides. ValueError when there is no tensor
    at all, TypeError for control inputs that are neither.
    """
    with name_scope(name, "tuple", [t for t in tensors if t is not None]):
        tensors = [
            t if t is None or isinstance(t, Operation) or _is_composite(t) else convert_to_tensor(t)
            for t in tensors
        ]
        gates = [t if isinstance(t, Operation) else t.op for t in tensors if t is not None]
        if not gates:
            raise ValueError(f"'tensors' must have at least one Tensor. Received: {tensors}.")
        for item in control_inputs or []:
            op = _operation_of(item)
            if op is None:
                raise TypeError(
                    "'control_inputs' must only contain Operation or Tensor. Received: "
                    f"{type(item)}. Control input must be Operation or Tensor: {item}"
                )
            gates.append(op)
        gate = group(*sorted(set(gates), key=lambda op: op._id))
        return [
            None
            if t is None
            else group(gate, t)
            if isinstance(t, Operation)
            else with_dependencies([gate], t)
            for t in tensors
        ]


@export("Assert", "debugging.Assert")
def Assert(
    condition: Any, data: Any, summarize: int | None = None, name: str | None = None
) -> Operation:
    """An operation that fails with the values of `data` in its message unless `condition` holds.

    Make other operations wait for it: `with tf.control_dependencies([assert_op]):`.
    """
    if not isinstance(data, (list, tuple)):
        raise TypeError(f"values must be a sequence: the data of Assert is a list, got {data!r}")
    flat = []
    for item in data:
        flat += _parts(item) if isinstance(item, SparseTensor) else [item]
    return gen_ops.assert_(condition, flat, 3 if summarize is None else summarize, name or "Assert")


# Branches.


class _Branches:
    """What the branches built so far returned; each must return what the first did."""

    def __init__(self, names: list[str], strict: bool):
        self._names = names
        self._strict = strict
        self._first: Any = None
        self.leaves: list[Any] | None = None

    def code(self, number: int, function: Callable[[], Any]) -> Callable[..., list[Tensor]]:
        """The function as `_core` calls it."""

        def run(graph: Any, parameters: Any) -> list[Tensor]:
            del graph, parameters
            return self._take(number, function())

        return run

    def _take(self, number: int, result: Any) -> list[Tensor]:
        name = self._names[number]
        if result is None:
            raise ValueError(
                f"'{name}' must have a return value. Return a tensor or an operation from it."
            )
        if not self._strict and _is_singleton(result):
            result = result[0]
        leaves = [_branch_leaf(leaf) for leaf in nest.flatten(result)]
        parts = [[_value(t) for t in _parts(leaf)] for leaf in leaves]
        if self.leaves is None:
            if not any(parts):
                raise ValueError(
                    f"'{self._names[0]}' and '{self._names[-1]}' must return at least one result."
                )
            self._first, self.leaves, self._first_parts = result, leaves, parts
        else:
            self._check(number, result, leaves, parts)
        return [t for group_of_parts in parts for t in group_of_parts]

    def _check(
        self, number: int, result: Any, leaves: list[Any], parts: list[list[Tensor]]
    ) -> None:
        first, other = self._names[0], self._names[number]
        try:
            nest.assert_same_structure(self._first, result)
        except (TypeError, ValueError) as error:
            raise type(error)(
                f"Incompatible return values of {first} and {other}: {error}"
            ) from None
        for i, (a, b) in enumerate(zip(self.leaves, leaves, strict=True)):
            if _kind(a) != _kind(b):
                raise TypeError(
                    f"Incompatible return types of {first} and {other}: output {i} is a {_kind(a)} "
                    f"from {first} and a {_kind(b)} from {other}."
                )
            mine, theirs = self._first_parts[i], parts[i]
            for x, y in zip(mine, theirs, strict=False):
                if x.dtype.base_dtype != y.dtype.base_dtype:
                    raise ValueError(
                        f"Outputs of '{first}' and '{other}' must have the same type(s): output "
                        f"{i} is {_describe(x)} from {first} and {_describe(y)} from {other}."
                    )
            if len(mine) != len(theirs):
                raise ValueError(
                    f"Output {i} has a dense_shape in one of {first} and {other} and none in the "
                    "other."
                )
            if hasattr(a, "_merge_element_shape"):
                a._merge_element_shape(b)

    def pack(self, tensors: list[Tensor]) -> Any:
        """The branches' result with the tensors of the node."""
        out = nest.pack_sequence_as(self._first, _wholes(self.leaves, tensors))
        return out[0] if not self._strict and _is_singleton(out) else out


def _is_singleton(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) == 1 and not nest.is_namedtuple(value)


def _branch_leaf(value: Any) -> Any:
    """A value that a branch returns, as tensors; an operation becomes a bool that waits for it."""
    if isinstance(value, Operation):
        with control_dependencies([value]):
            return gen_ops.identity(convert_to_tensor(True))
    if value is None or _is_composite(value):
        return value
    return convert_to_tensor(value)


def _predicate(pred: Any, op: str) -> Tensor:
    if isinstance(pred, bool):
        raise TypeError(
            "'pred' must not be a Python bool: its branches would be chosen now and for good. Use "
            "`if`, or a bool tensor."
        )
    tensor = convert_to_tensor(pred, name="pred")
    if tensor.dtype.base_dtype is not dtypes.bool_:
        raise TypeError(
            f"Input 'pred' of '{op}' has type {tensor.dtype.name} that does not match expected "
            f"type of bool: {_describe(tensor)}."
        )
    if tensor.shape.rank not in (None, 0):
        raise ValueError(f"Shape must be rank 0 for the 'pred' of '{op}', got {_describe(tensor)}.")
    return _value(tensor)


@export("cond")
def cond(
    pred: Any, true_fn: Callable[[], Any] | None = None, false_fn: Callable[[], Any] | None = None,
    strict: Any = False, name: str | None = None, fn1: Any = None, fn2: Any = None,
) -> Any:  # fmt: skip
    """What `true_fn()` returns where `pred` (a bool scalar) holds, else what `false_fn()` does.

    Both are called once, now, to build their branches; only operations made inside of them depend
    on the choice. Both return the same structure of tensors, of the same types.

    Args:
      strict: keep lists and tuples of one element, which are unpacked otherwise.
      fn1, fn2: older names of true_fn and false_fn.

    TypeError and ValueError, with both, when the branches return what does not match.
    """
    if isinstance(strict, str):  # the arguments of TensorFlow 1.0: (pred, fn1, fn2, name)
        strict, name = False, strict
    if fn1 is not None:
        if true_fn is not None:
            raise TypeError("cond(): 'true_fn' and 'fn1' may not be set simultaneously.")
        true_fn = fn1
    elif true_fn is None:
        raise TypeError("cond(): 'true_fn' argument required")
    if fn2 is not None:
        if false_fn is not None:
            raise TypeError("cond(): 'false_fn' and 'fn2' may not be set simultaneously.")
        false_fn = fn2
    elif false_fn is None:
        raise TypeError("cond(): 'false_fn' argument required")
    if not callable(true_fn):
        raise TypeError("'true_fn' must be callable.")
    if not callable(false_fn):
        raise TypeError("'false_fn' must be callable.")
    graph = get_default_graph()
    pred = _predicate(pred, "cond")
    branches = _Branches(["true_fn", "false_fn"], bool(strict))
    outputs = _core.add_if(
        graph, pred, branches.code(0, true_fn), branches.code(1, false_fn), name or "cond"
    )
    return branches.pack(outputs)


@export("contrib.framework.smart_constant_value")
def smart_constant_value(pred: Any) -> bool | None:
    """The value of a predicate that is known now: of a bool, 0 or 1, or a constant tensor."""
    if isinstance(pred, bool):
        return pred
    if isinstance(pred, int) and pred in (0, 1):
        return bool(pred)
    if isinstance(pred, Tensor):
        value = constant_value(pred)
        return None if value is None else bool(value)
    raise TypeError(f"'pred' must be a Tensor, a Python bool, or 1 or 0. Received: {type(pred)}")


@export("contrib.framework.smart_cond")
def smart_cond(
    pred: Any, true_fn: Any = None, false_fn: Any = None, name: str | None = None
) -> Any:
    """`cond`, or just the branch that is taken where `pred` is known now."""
    if not callable(true_fn) or not callable(false_fn):
        raise TypeError("'true_fn' and 'false_fn' must be callable.")
    known = smart_constant_value(pred)
    if known is not None:
        return true_fn() if known else false_fn()
    return cond(pred, true_fn, false_fn, name=name)


@export("case")
def case(
    pred_fn_pairs: Any, default: Callable[[], Any] | None = None, exclusive: bool = False,
    strict: bool = False, name: str = "case",
) -> Any:  # fmt: skip
    """What the function of the first predicate that holds returns.

    Args:
      pred_fn_pairs: (bool scalar tensor, function) pairs, or a dictionary of them.
      default: the function for when none holds. Without it, that is an error at run time.
      exclusive: more than one that holds is an error at run time.
      strict: keep lists of one element.

    TypeError for pairs, predicates or functions that are none.
    """
    if isinstance(strict, str):
        strict, name = False, strict
    if isinstance(pred_fn_pairs, dict):
        pairs = list(pred_fn_pairs.items())
        if all(isinstance(pred, Tensor) for pred, _ in pairs):
            pairs.sort(key=lambda pair: pair[0].name)
    elif isinstance(pred_fn_pairs, (list, tuple)):
        pairs = list(pred_fn_pairs)
    else:
        raise TypeError(
            f"'pred_fn_pairs' must be a list, tuple, or dict. Received: {type(pred_fn_pairs)}"
        )
    for pair in pairs:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise TypeError(f"Each entry in 'pred_fn_pairs' must be a 2-tuple. Received {pair}.")
        pred, function = pair
        tensor = pred if isinstance(pred, Tensor) else None
        if tensor is None and hasattr(pred, "_as_graph_element"):
            tensor = convert_to_tensor(pred)
        if tensor is None or tensor.dtype.base_dtype is not dtypes.bool_:
            raise TypeError(f"pred must be Tensor of type bool: {pred}")
        if not callable(function):
            raise TypeError(f"fn for pred {pred.name} must be callable.")
    if default is not None and not callable(default):
        raise TypeError("default must be callable.")
    if not pairs:
        if default is None:
            raise ValueError("case needs at least one pair, or a default")
        return default()
    with name_scope(name, "case", [pred for pred, _ in pairs]):
        preds = [convert_to_tensor(pred) for pred, _ in pairs]
        checks = []
        if exclusive:
            checks.append(_at_most_one(preds))
        if default is None:
            checks.append(_at_least_one(preds))
        with control_dependencies(checks):
            preds = [gen_ops.identity(pred) for pred in preds] if checks else preds
            functions = [function for _, function in pairs]
            if default is None:
                default = functions.pop()
                if not functions:
                    with control_dependencies(preds):
                        return _run_as_branch(default, strict)
            return _chain(preds, functions, default, strict)


def _run_as_branch(function: Callable[[], Any], strict: bool) -> Any:
    """The result of the only branch there is, which waits for the checks that are open."""
    branches = _Branches(["default", "default"], strict)
    leaves = branches._take(0, function())
    return branches.pack([gen_ops.identity(leaf) for leaf in leaves])


def _chain(preds: list[Tensor], functions: list[Any], default: Any, strict: bool) -> Any:
    if not functions:
        return default()
    return cond(
        preds[0],
        functions[0],
        lambda: _chain(preds[1:], functions[1:], default, strict),
        strict=strict,
    )


def _names(preds: list[Tensor]) -> str:
    return ", ".join(pred.name for pred in preds)


def _count_true(preds: list[Tensor]) -> Tensor:
    return gen_ops.add_n([gen_ops.cast(pred, dtypes.int32) for pred in preds])


def _at_most_one(preds: list[Tensor]) -> Operation:
    return Assert(
        gen_ops.less(_count_true(preds), 2),
        [
            "Input error: exclusive=True: More than one condition evaluated as True but "
            f"exclusive=True.  Conditions: ({_names(preds)}), Values:",
            gen_ops.pack(preds),
        ],
        summarize=len(preds),
    )


def _at_least_one(preds: list[Tensor]) -> Operation:
    return Assert(
        gen_ops.greater(_count_true(preds), 0),
        [
            "None of the conditions evaluated as True and there is no default. Conditions: "
            f"({_names(preds)}), Values:",
            gen_ops.pack(preds),
        ],
        summarize=len(preds),
    )


@export("switch_case")
def switch_case(
    branch_index: Any, branch_fns: Any, default: Callable[[], Any] | None = None,
    name: str = "switch_case",
) -> Any:  # fmt: skip
    """What function number `branch_index` (an int32 tensor) of `branch_fns` returns.

    `branch_fns`: functions, or (number, function) pairs or a dictionary of the numbers from 0 on.
    `default`: for other indices; without it the function of the highest number.
    """
    if isinstance(branch_index, int):
        raise TypeError(f"'branch_index' must be a Tensor, got {type(branch_index)}")
    index = convert_to_tensor(branch_index, name="branch_index")
    if not index.dtype.is_integer:
        raise TypeError(f"'branch_index' must be an integer Tensor, got {index.dtype}")
    if not branch_fns:
        raise ValueError("Must provide at least one item in 'branch_fns'")
    if isinstance(branch_fns, dict):
        branch_fns = list(branch_fns.items())
    elif not isinstance(branch_fns, (list, tuple)):
        raise TypeError(f"'branch_fns' must be a list, tuple, or dict. Got {type(branch_fns)}")
    if all(callable(function) for function in branch_fns):
        branch_fns = list(enumerate(branch_fns))
    for pair in branch_fns:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise TypeError(f"Each entry in 'branch_fns' must be a 2-tuple. Received {pair}.")
        if not isinstance(pair[0], int):
            raise TypeError(f"key must be a Python `int`, got {type(pair[0])}")
        if not callable(pair[1]):
            raise TypeError(f"fn for key {pair[0]} must be callable.")
    branch_fns = sorted(branch_fns, key=lambda pair: pair[0])
    keys = [key for key, _ in branch_fns]
    if keys != list(range(len(keys))):
        raise ValueError(
            f"branch indices (keys) must form contiguous range of [0 to {len(keys)}) but found "
            f"{{{','.join(map(str, keys))}}}"
        )
    functions = [function for _, function in branch_fns]
    functions.append(default if default is not None else functions[-1])
    if not callable(functions[-1]):
        raise TypeError("default must be callable.")
    graph = get_default_graph()
    index = _value(index)
    if index.dtype is not dtypes.int32:
        index = gen_ops.cast(index, dtypes.int32)
    branches = _Branches([f"branch {i}" for i in range(len(functions))], strict=False)
    codes = [branches.code(i, function) for i, function in enumerate(functions)]
    return branches.pack(_core.add_case(graph, index, codes, name or "switch_case"))


# Loops.


def _loop_leaf(value: Any, number: int) -> Any:
    if _is_composite(value):
        return value
    if isinstance(value, SparseTensorValue):
        return SparseTensor.from_value(value)
    if value is None:
        raise ValueError(f"None values not supported: loop variable {number} is None.")
    return convert_to_tensor(value)


def _part_shapes(leaf: Any, invariant: Any) -> list[TensorShape]:
    """The shapes that the parts of a loop variable keep."""
    parts = _parts(leaf)
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
                _value(leaf) if isinstance(leaf, Tensor) else leaf for leaf in self.leaves
            ]
        self.tensors = [t for leaf in self.leaves for t in _parts(leaf)]
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
            for part, shape in zip(_parts(leaf), own, strict=True):
                if not _covers(shape, part.shape):
                    raise ValueError(
                        f"The shape invariant specified for {part.name} is not compatible with the "
                        "initial shape of the loop variable. It enters the loop with shape "
                        f"{part.shape}, but the specified shape invariant is {shape}."
                    )
            shapes.append(own)
        return shapes

    def _arguments(self, parameters: list[Tensor]) -> Any:
        return nest.pack_sequence_as(self._loop_vars, _wholes(self.leaves, parameters))

    def condition(self, graph: Any, parameters: list[Tensor]) -> list[Tensor]:
        """Builds the condition."""
        del graph
        result = self._cond(*self._arguments(parameters))
        if _is_singleton(result):
            result = result[0]
        result = convert_to_tensor(result)
        if result.dtype.base_dtype is not dtypes.bool_:
            raise TypeError(
                f"The condition of a while_loop must be of type bool, got {_describe(result)}."
            )
        if result.shape.rank not in (None, 0):
            raise ValueError(
                f"The condition of a while_loop must be a scalar, got {_describe(result)}."
            )
        return [_value(result)]

    def body(self, graph: Any, parameters: list[Tensor]) -> list[Tensor]:
        """Builds the body."""
        del graph
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
            if _kind(value) != _kind(leaf):
                raise TypeError(
                    f"Loop variable {i} enters the loop as a {_kind(leaf)}, but the body returns a "
                    f"{_kind(value)}."
                )
            parts, before = _parts(value), _parts(leaf)
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
                out[i] = _value(out[i])
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
        leaves = _wholes(self.leaves, tensors)
        if return_same_structure:
            return nest.pack_sequence_as(self._loop_vars, leaves)
        packed = nest.pack_sequence_as(self.result, leaves)
        return leaves[0] if len(tensors) == 1 and len(leaves) == 1 else packed


def _check_round(before: Tensor, shape: TensorShape, after: Tensor) -> None:
    if before.dtype.base_dtype != after.dtype.base_dtype:
        raise TypeError(
            f"The loop variable {before.name} enters the loop with type "
            f"{before.dtype.base_dtype.name} (shape {before.shape}), but has type "
            f"{after.dtype.base_dtype.name} (shape {after.shape}) after one iteration."
        )
    if not _covers(shape, after.shape):
        raise ValueError(
            f"The shape for {before.name} is not an invariant for the loop. It enters the loop "
            f"with shape {shape}, but has shape {after.shape} after one iteration "
            f"({before.dtype.base_dtype.name}). Provide shape invariants using either the "
            "`shape_invariants` argument of tf.while_loop or set_shape() on the loop variables."
        )


@export("while_loop")
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
