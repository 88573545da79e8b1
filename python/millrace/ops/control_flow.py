"""Branches: cond, case, switch_case."""

from typing import Any, Callable

from millrace import _core, gen_ops
from millrace.core import dtypes, errors, nest
from millrace.core.export import export
from millrace.core.tensor import Tensor, label_of
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import control_dependencies, get_default_graph, name_scope
from millrace.graph.operation import Operation
from millrace.graph.static_value import constant_value
from millrace.graph.tracing import described, kind_of, leaf_of, tensors_of, value_of, wholes
from millrace.ops.ordering import Assert


class Mismatch(ValueError, TypeError):
    """Branches that return what does not go together: TensorFlow 1 calls it a ValueError, 2 a
    TypeError."""


_DIFFERENT = (
    "true_fn and false_fn arguments to tf.cond must have the same number, type, and overall "
    "structure of return values."
)


class _Branches:
    """What the branches built so far returned; each must return what the first did."""

    def __init__(self, names: list[str], strict: bool):
        self._names = names
        self._strict = strict
        self._first: Any = None
        self.leaves: list[Any] | None = None

    def code(self, number: int, function: Callable[[], Any]) -> Callable[..., list[Tensor]]:
        """The function as `_core` calls it."""

        def run(parameters: Any) -> list[Tensor]:
            del parameters
            return self._take(number, function())

        return run

    def _take(self, number: int, result: Any) -> list[Tensor]:
        name = self._names[number]
        if result is None:
            raise ValueError(
                f"'{name}' must have a return value. Return a tensor or an operation from it."
            )
        if not self._strict and is_singleton(result):
            result = result[0]
        leaves = [leaf_of(leaf) for leaf in nest.flatten(result)]
        parts = [[value_of(t) for t in tensors_of(leaf)] for leaf in leaves]
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
            raise Mismatch(
                f"Incompatible return values of {first} and {other}: {error} {_DIFFERENT}"
            ) from None
        for i, (a, b) in enumerate(zip(self.leaves, leaves, strict=True)):
            if kind_of(a) != kind_of(b):
                raise TypeError(
                    f"Incompatible return types of {first} and {other}: output {i} is a "
                    f"{kind_of(a)} from {first} and a {kind_of(b)} from {other}."
                )
            mine, theirs = self._first_parts[i], parts[i]
            for x, y in zip(mine, theirs, strict=False):
                if x.dtype.base_dtype != y.dtype.base_dtype:
                    raise Mismatch(
                        f"Outputs of '{first}' and '{other}' must have the same type(s): output "
                        f"{i} is {described(x)} from {first} and {described(y)} from {other}. "
                        f"{_DIFFERENT}"
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
        out = nest.pack_sequence_as(self._first, wholes(self.leaves, tensors))
        return out[0] if not self._strict and is_singleton(out) else out


def is_singleton(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) == 1 and not nest.is_namedtuple(value)


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
            f"type of bool: {described(tensor)}."
        )
    if tensor.shape.rank not in (None, 0):
        raise ValueError(f"Shape must be rank 0 for the 'pred' of '{op}', got {described(tensor)}.")
    return value_of(tensor)


@export(v1="cond")
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
    if _core.executing_eagerly():
        result = true_fn() if bool(pred) else false_fn()
        return result[0] if not strict and is_singleton(result) else result
    graph = get_default_graph()
    pred = _predicate(pred, "cond")
    branches = _Branches(["true_fn", "false_fn"], bool(strict))
    outputs = _core.add_if(
        graph, pred, branches.code(0, true_fn), branches.code(1, false_fn), name or "cond"
    )
    return branches.pack(outputs)


@export(v2="cond")
def cond_v2(
    pred: Any, true_fn: Callable[[], Any] | None = None, false_fn: Callable[[], Any] | None = None,
    name: str | None = None,
) -> Any:  # fmt: skip
    """What `true_fn()` returns where `pred` (a bool scalar) holds, else what `false_fn()` does.

    In a function both are called once, now, to build their branches, and return the same structure
    of tensors, of the same types, and None in the same places. TypeError and ValueError, with both,
    where they do not.
    """
    if _core.executing_eagerly() or not callable(true_fn) or not callable(false_fn):
        return cond(pred, true_fn, false_fn, strict=True, name=name)
    nothing: list[list[bool]] = []

    def present(function: Callable[[], Any]) -> Callable[[], Any]:
        def run() -> Any:
            result = function()
            nothing.append([leaf is None for leaf in nest.flatten(result)])
            return nest.map_structure(lambda leaf: False if leaf is None else leaf, result)

        return run

    result = cond(pred, present(true_fn), present(false_fn), strict=True, name=name)
    if nothing[0] != nothing[1]:
        raise Mismatch(f"None in one branch is a tensor in the other. {_DIFFERENT}")
    leaves = [
        None if absent else leaf
        for leaf, absent in zip(nest.flatten(result), nothing[0], strict=True)
    ]
    return nest.pack_sequence_as(result, leaves)


@export(v1="contrib.framework.smart_constant_value")
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


@export(v1="contrib.framework.smart_cond")
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


@export(v1="case", v2="case")
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
        if all(isinstance(p, Tensor) for p, _ in pairs) and not _core.executing_eagerly():
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
            raise TypeError(f"fn for pred {label_of(pred)} must be callable.")
    if default is not None and not callable(default):
        raise TypeError("default must be callable.")
    if not pairs:
        if default is None:
            raise ValueError("case needs at least one pair, or a default")
        return default()
    if _core.executing_eagerly():
        return _run_case(pairs, default, exclusive)
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


def _run_case(pairs: list[Any], default: Any, exclusive: bool) -> Any:
    """The case outside of graphs."""
    chosen = [function for pred, function in pairs if bool(pred)]
    if exclusive and len(chosen) > 1:
        raise errors.InvalidArgumentError(
            None,
            None,
            "Input error: exclusive=True: More than one condition evaluated as True but "
            f"exclusive=True.  Conditions: ({_names([pred for pred, _ in pairs])})",
        )
    if not chosen and default is None:
        raise errors.InvalidArgumentError(
            None, None, "None of the conditions evaluated as True and there is no default."
        )
    return (chosen[0] if chosen else default)()


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
    return ", ".join(label_of(pred) for pred in preds)


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


@export(v1="switch_case", v2="switch_case")
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
    if _core.executing_eagerly():
        number = int(index)
        return functions[number if 0 <= number < len(functions) else -1]()
    graph = get_default_graph()
    index = value_of(index)
    if index.dtype is not dtypes.int32:
        index = gen_ops.cast(index, dtypes.int32)
    branches = _Branches([f"branch {i}" for i in range(len(functions))], strict=False)
    codes = [branches.code(i, function) for i, function in enumerate(functions)]
    return branches.pack(_core.add_case(graph, index, codes, name or "switch_case"))
