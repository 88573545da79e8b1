"""`if`, conditional expressions, `and`, `or`, `not`, comparisons and `assert`."""

import operator
from typing import Any, Callable

from millrace import _core, gen_ops
from millrace.autograph.lists import copied
from millrace.autograph.undefined import Undefined, UndefinedReturnValue
from millrace.autograph.values import (
    condition,
    is_convertible,
    is_staged,
    is_tensor,
    placeholder,
    type_and_shape,
)
from millrace.core import nest
from millrace.graph.convert import convert_to_tensor
from millrace.ops import control_flow, eager_overloads
from millrace.ops.ordering import Assert

State = tuple[Any, ...]
_FLAGS = ("do_return", "break_", "continue_")


def if_stmt(
    test: Any, body: Callable[[], None], orelse: Callable[[], None],
    get_state: Callable[[], State] | None, set_state: Callable[[State], None] | None,
    names: tuple[str, ...], outputs: int, in_loop: bool,
) -> None:  # fmt: skip
    """An `if` statement. `outputs`: how many of the state are needed afterwards, the first ones.
    `in_loop`: the function may return later where one branch does not return."""
    if not is_staged(test):
        if test:
            body()
        else:
            orelse()
        return
    test = condition(test, "if statement")
    read, write = get_state or tuple, set_state or (lambda _: None)
    before = read()

    def choose(test: Any, first: Any, second: Any, places: tuple[str, str]) -> State:
        branches = _Branches(names[:outputs], in_loop, places)

        def branch(number: int, run: Callable[[], None]) -> list[Any]:
            write(tuple(map(copied, before)))
            run()
            return branches.take(number, read()[:outputs])

        results = control_flow.cond(
            test, lambda: branch(0, first), lambda: branch(1, second), strict=True
        )
        return branches.whole(results)

    try:
        after = choose(test, body, orelse, ("main", "else"))
    except _OtherReturns:
        after = choose(gen_ops.logical_not(test), orelse, body, ("else", "main"))
    except BaseException:
        write(before)
        raise
    write((*after, *before[outputs:]))


def _is_known(value: Any) -> bool:
    return not isinstance(value, UndefinedReturnValue)


def if_exp(test: Any, chosen: Callable[[], Any], other: Callable[[], Any], text: str) -> Any:
    """A conditional expression."""
    if not is_staged(test):
        return chosen() if test else other()
    branches = _Branches((text,), False)
    results = control_flow.cond(
        condition(test, "conditional expression"),
        lambda: branches.take(0, (chosen(),)),
        lambda: branches.take(1, (other(),)),
        strict=True,
    )
    return branches.whole(results)[0]


class _OtherReturns(Exception):
    """The first branch has no return value: that of the second one is needed to tell its type."""


class _Branches:
    """What the two branches leave: values that the graph chooses between, or the same objects.

    `places`: what messages call the branches.
    """

    def __init__(
        self, names: tuple[str, ...], in_loop: bool, places: tuple[str, str] = ("main", "else")
    ):
        self._names = names
        self._in_loop = in_loop
        self._places = places
        self._values: list[Any] = [None, None]
        self._leaves: list[list[Any]] = [[], []]

    def take(self, number: int, values: State) -> list[Any]:
        """Values at the end of a branch; what of them goes through the graph."""
        values = tuple(values)
        if number == 1:
            values = tuple(
                self._filled(mine, other)
                for mine, other in zip(values, self._values[0], strict=True)
            )
        elif self._places[0] == "main" and self._in_loop and not all(map(_is_known, values)):
            raise _OtherReturns
        self._values[number] = values
        for name, value in zip(self._names, values, strict=True):
            self._check_defined(name, value, number)
        if number == 1:
            for name, first, second in zip(self._names, *self._values, strict=True):
                _check_alike(name, first, second, self._places)
        self._leaves[number] = nest.flatten(list(values))
        through = [leaf for leaf in self._leaves[number] if is_convertible(leaf)]
        return [0, *through]

    def _filled(self, mine: Any, other: Any) -> Any:
        if isinstance(mine, UndefinedReturnValue) and self._in_loop:
            make = placeholder(other, None)[0]
            return mine if make is None else make()
        return mine

    def _check_defined(self, name: str, value: Any, number: int) -> None:
        if isinstance(value, UndefinedReturnValue) and not self._in_loop:
            raise ValueError(
                f"the {self._places[number]} branch must also have a return statement."
            )
        if isinstance(value, Undefined):
            raise ValueError(
                f"'{name}' must also be initialized in the {self._places[number]} branch"
            )

    def whole(self, results: list[Any]) -> State:
        """The values after the branches, of what the graph gives."""
        given = iter(results[1:])
        out = []
        for first, second in zip(*self._leaves, strict=True):
            value = next(given) if is_convertible(first) else first
            out.append(first if first is second and is_tensor(first) else value)
        packed = nest.pack_sequence_as(list(self._values[0]), out)
        return tuple(
            first if not self._in_loop and _is_same_flag(name, first, second) else value
            for name, first, second, value in zip(self._names, *self._values, packed, strict=True)
        )


def _is_same_flag(name: str, first: Any, second: Any) -> bool:
    """Whether a flag is known whichever branch is taken. (In a loop it would be known only for
    this iteration.)"""
    return name.startswith(_FLAGS) and isinstance(first, bool) and first is second


def _check_alike(name: str, first: Any, second: Any, places: tuple[str, str]) -> None:
    """Both branches leave values of one structure and type."""
    try:
        nest.assert_same_structure(first, second)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"'{name}' must have the same nested structure in the main and else branches:\n\n"
            f"{error}"
        ) from None
    for a, b in zip(nest.flatten(first), nest.flatten(second), strict=True):
        for value, place in zip((a, b), places, strict=True):
            if value is None:
                raise ValueError(f"'{name}' is None at the end of the {place} branch.")
        if is_convertible(a) != is_convertible(b) or not (is_convertible(a) or a is b or a == b):
            raise TypeError(
                f"'{name}' must be a tensor, a number or a structure of them, or the same object "
                f"in the main and else branches: got {a!r} and {b!r}"
            )
        mine, theirs = type_and_shape(a), type_and_shape(b)
        if mine is not None and theirs is not None and mine[0] is not theirs[0]:
            raise TypeError(
                f"'{name}' has dtype {mine[0].name} in the {places[0]} branch, but dtype "
                f"{theirs[0].name} in the {places[1]} branch"
            )


def and_(first: Any, *rest: Callable[[], Any]) -> Any:
    """`first and ...`."""
    if not rest:
        return first

    def following() -> Any:
        return and_(rest[0](), *rest[1:])

    if is_staged(first):
        test = condition(first, "`and`")
        return control_flow.cond(test, lambda: condition(following(), "`and`"), lambda: test)
    return following() if first else first


def or_(first: Any, *rest: Callable[[], Any]) -> Any:
    """`first or ...`."""
    if not rest:
        return first

    def following() -> Any:
        return or_(rest[0](), *rest[1:])

    if is_staged(first):
        test = condition(first, "`or`")
        return control_flow.cond(test, lambda: test, lambda: condition(following(), "`or`"))
    return first if first else following()


def not_(value: Any) -> Any:
    """`not value`."""
    return gen_ops.logical_not(convert_to_tensor(value)) if is_staged(value) else not value


def eq(a: Any, b: Any) -> Any:
    """`a == b`: element by element where one is a tensor and programs are TensorFlow 2's."""
    if _core.eager_enabled():
        if is_staged(a):
            return eager_overloads.equal(a, b)
        if is_staged(b):
            return eager_overloads.equal(b, a)
    return a == b


def not_eq(a: Any, b: Any) -> Any:
    """`a != b`, see eq()."""
    if _core.eager_enabled():
        if is_staged(a):
            return eager_overloads.not_equal(a, b)
        if is_staged(b):
            return eager_overloads.not_equal(b, a)
    return a != b


_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "Eq": eq, "NotEq": not_eq, "Lt": operator.lt, "LtE": operator.le,
    "Gt": operator.gt, "GtE": operator.ge, "Is": operator.is_, "IsNot": operator.is_not,
    "In": lambda a, b: a in b, "NotIn": lambda a, b: a not in b,
}  # fmt: skip


def compare(names: tuple[str, ...], left: Any, *rest: Callable[[], Any]) -> Any:
    """A chain of comparisons, `left < b < c`: each operand is computed once, and only if needed."""
    right = rest[0]()
    result = _COMPARISONS[names[0]](left, right)
    if len(names) == 1:
        return result
    return and_(result, lambda: compare(names[1:], right, *rest[1:]))


def assert_stmt(test: Callable[[], Any], message: Callable[[], Any], text: str) -> None:
    """An `assert` statement. Of a tensor it is checked when the graph runs."""
    if not __debug__:
        return
    value = test()
    if not is_staged(value):
        if not value:
            said = message()
            raise AssertionError() if said is None else AssertionError(said)
        return
    said = message()
    data = said if isinstance(said, (list, tuple)) else [text if said is None else said]
    Assert(condition(value, "assert"), list(data))
