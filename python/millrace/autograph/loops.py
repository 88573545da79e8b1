"""`while` and `for`."""

from typing import Any, Callable

from millrace import _core, gen_ops
from millrace.autograph.builtins import Rows, rows_of
from millrace.autograph.conditionals import if_stmt
from millrace.autograph.lists import GrowingList, Trial, element_kind
from millrace.autograph.undefined import Undefined, UndefinedReturnValue, is_undefined
from millrace.autograph.values import (
    condition,
    covers,
    is_convertible,
    is_staged,
    placeholder,
    type_and_shape,
)
from millrace.core import nest
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import control_dependencies, get_default_graph
from millrace.graph.static_value import constant_value
from millrace.ops import loops
from millrace.ops.ordering import Assert

State = tuple[Any, ...]
Read = Callable[[], State]
Write = Callable[[State], None]

_LEGAL = "Tensor, int, float, bool or a list, tuple or dict thereof"


def loop_options(
    parallel_iterations: Any = None, swap_memory: Any = None, maximum_iterations: Any = None,
    shape_invariants: Any = None,
) -> dict[str, Any]:  # fmt: skip
    """What set_loop_options in a loop says."""
    return {
        "parallel_iterations": parallel_iterations, "swap_memory": swap_memory,
        "maximum_iterations": maximum_iterations, "shape_invariants": shape_invariants,
    }  # fmt: skip


class _Done(Exception):
    """Ends the trial of something."""


def _tried(run: Callable[[], Any]) -> Any:
    """What `run()` gives in a body that nothing keeps."""
    result: list[Any] = []

    def code(_: Any) -> Any:
        result.append(run())
        raise _Done

    graph = get_default_graph()
    try:
        _core.add_if(graph, convert_to_tensor(True), code, code, "trial")
    except _Done:
        pass
    return result[0]


def while_stmt(
    test: Callable[[], Any], body: Callable[[], None], get_state: Read | None,
    set_state: Write | None, names: tuple[str, ...], options: Callable[[], Any] | None,
    growing: tuple[str, ...],
) -> None:  # fmt: skip
    """A `while` statement. `growing`: the names of what its body appends to."""
    read, write = get_state or tuple, set_state or (lambda _: None)
    if _core.executing_eagerly():
        while test():
            body()
        return
    before = read()
    first = _tried(test)
    if is_staged(first):
        write(before)
        _Loop(test, body, read, write, names, options, growing).run()
        return
    while first:
        body()
        first = test()
        if is_staged(first):
            raise NotImplementedError(
                "The condition of while loop started as non-Tensor, then changed to Tensor. This "
                "may happen either because variables changed type, or when a break or return "
                "statement inside the loop depends on a Tensor condition. In both cases, changing "
                "to a TF loop should remove the error."
            )


def for_stmt(
    iterated: Any, extra_test: Callable[[], Any] | None, body: Callable[[Any], None],
    get_state: Read | None, set_state: Write | None, names: tuple[str, ...],
    options: Callable[[], Any] | None, target: str, growing: tuple[str, ...],
) -> None:  # fmt: skip
    """A `for` statement. `extra_test`: what must hold before each iteration. `growing`: the names
    of what its body appends to."""
    read, write = get_state or tuple, set_state or (lambda _: None)
    if is_staged(iterated):
        start = _range_of(iterated)
        if start is not None:
            _for_range(start, extra_test, body, read, write, names, options, target, growing)
            return
        iterated = rows_of(iterated)
    if isinstance(iterated, GrowingList):
        iterated = Rows(iterated.size(), iterated.read)
    if isinstance(iterated, Rows) and not _core.executing_eagerly():
        _for_rows(iterated, extra_test, body, read, write, names, options, growing)
        return
    iterator = getattr(iterated, "_staged_iterator", None)
    if iterator is not None and not _core.executing_eagerly():
        _for_iterator(iterator(), extra_test, body, read, write, names, options, growing)
        return
    if extra_test is None:
        for item in iterated:
            body(item)
        return
    if not _python_truth(extra_test()):
        return
    for item in iterated:
        body(item)
        if not _python_truth(extra_test()):
            break


def _python_truth(value: Any) -> bool:
    if is_staged(value):
        raise NotImplementedError(
            "break and return statements which depend on a TF condition are not supported in "
            "Python for loops. Did you intend to make it a TF loop?"
        )
    return bool(value)


def _range_of(tensor: Any) -> Any:
    """(start, limit, delta) of a tensor that tf.range made; None of others."""
    op = getattr(tensor, "op", None) if isinstance(tensor, Tensor) else None
    if op is None or op.type != "Range":
        return None
    return tuple(op.inputs)


def _and_extra(test: Tensor, extra_test: Callable[[], Any] | None) -> Any:
    extra = True if extra_test is None else extra_test()
    if extra is True:
        return test
    return gen_ops.logical_and(test, convert_to_tensor(extra))


def _for_range(
    bounds: Any, extra_test: Any, body: Any, read: Read, write: Write, names: tuple[str, ...],
    options: Any, target: str, growing: tuple[str, ...],
) -> None:  # fmt: skip
    start, limit, delta = bounds
    at = start

    def get() -> State:
        state = tuple(
            at if name == target and isinstance(value, Undefined) else value
            for name, value in zip(names, read(), strict=True)
        )
        return (at, *state)

    def put(state: State) -> None:
        nonlocal at
        at = state[0]
        write(tuple(state[1:]))

    def run() -> None:
        nonlocal at
        body(at)
        at = at + delta

    step = constant_value(delta)

    def test() -> Any:
        if step is not None:
            more = at < limit if step >= 0 else at > limit
        else:
            more = gen_ops.logical_or(
                gen_ops.logical_and(delta >= 0, at < limit),
                gen_ops.logical_and(delta < 0, at > limit),
            )
        return _and_extra(more, extra_test)

    _Loop(test, run, get, put, ("<internal iterate>", *names), options, growing).run()


def _for_rows(
    rows: Rows, extra_test: Any, body: Any, read: Read, write: Write, names: tuple[str, ...],
    options: Any, growing: tuple[str, ...],
) -> None:  # fmt: skip
    at: Any = 0

    def get() -> State:
        return (at, *read())

    def put(state: State) -> None:
        nonlocal at
        at = state[0]
        write(tuple(state[1:]))

    def run() -> None:
        nonlocal at
        body(rows.row(at))
        at = at + 1

    def test() -> Any:
        return _and_extra(convert_to_tensor(at) < rows.count, extra_test)

    _Loop(test, run, get, put, ("<internal iterate>", *names), options, growing).run()


def _for_iterator(
    iterator: Any, extra_test: Any, body: Any, read: Read, write: Write, names: tuple[str, ...],
    options: Any, growing: tuple[str, ...],
) -> None:  # fmt: skip
    """Elements of an iterator: whether there is one, is known only once it is asked for it."""
    has_next: Any = True

    def get() -> State:
        return (has_next, *read())

    def put(state: State) -> None:
        nonlocal has_next
        has_next = state[0]
        write(tuple(state[1:]))

    def run() -> None:
        nonlocal has_next
        item = iterator.get_next_as_optional()
        has_next = item.has_value()
        if any(map(_is_of_trial, read())):  # to learn what they become
            body(item.get_value())
            return
        if_stmt(
            has_next, lambda: body(item.get_value()), lambda: None, read, write, names,
            len(names), True,
        )  # fmt: skip

    def test() -> Any:
        return _and_extra(convert_to_tensor(has_next), extra_test)

    loop = _Loop(test, run, get, put, ("<internal has_next>", *names), options, growing)
    loop.ran = lambda: has_next
    loop.run()


def _is_of_trial(value: Any) -> bool:
    return is_undefined(value) or isinstance(value, Trial)


class _Loop:
    """A loop of the graph around a state of Python values.

    `ran()`, called after the body: whether it has run the statement's body.
    """

    ran: Callable[[], Any] = staticmethod(lambda: True)

    def __init__(
        self, test: Callable[[], Any], body: Callable[[], None], read: Read, write: Write,
        names: tuple[str, ...], options: Callable[[], Any] | None, growing: tuple[str, ...],
    ):  # fmt: skip
        self._test = test
        self._body = body
        self._read = read
        self._write = write
        self._names = names
        self._before = read()
        self._lists = [
            name in growing and isinstance(value, (list, Trial))
            for name, value in zip(names, self._before, strict=True)
        ]
        self._options = options() if options is not None else {}
        pairs = self._options.get("shape_invariants") or ()
        given = {id(value): shape for value, shape in pairs}
        self._invariants = [given.get(id(value)) for value in self._before]

    def run(self) -> None:
        """Builds the loop and leaves the state as it is afterwards."""
        before = self._before
        missing = [value is None or is_undefined(value) for value in before]
        initial = list(before)
        if any(missing) or any(self._lists):
            initial = self._guess(missing)
        must_run = [
            name
            for name, value in zip(self._names, before, strict=True)
            if value is None or isinstance(value, Undefined)
        ]
        try:
            results = self._build(initial, bool(must_run))
        except BaseException:
            self._write(before)
            raise
        if must_run:
            ran = results[0]
            text = f"loop must iterate at least once to initialize {', '.join(must_run)}"
            with control_dependencies([Assert(ran, [text])]):
                kept = [
                    nest.map_structure(_copied, value) if gone else value
                    for value, gone in zip(results[1], missing, strict=True)
                ]
            results = (ran, kept)
        self._write(tuple(results[1]))

    def _guess(self, missing: list[bool]) -> list[Any]:
        """The state before the loop, with zeros like what an iteration makes where it has none."""
        before = self._before
        after: State | None = None
        problem = ""

        def iterate() -> State:
            self._write(
                tuple(
                    Trial(list(value)) if grows else nest.map_structure(_as_parameter, value)
                    for value, grows in zip(before, self._lists, strict=True)
                )
            )
            self._body()
            return self._read()

        def traced() -> tuple[State, list[Any]]:
            state = iterate()
            made = [
                placeholder(value, invariant) if gone else (None, None)
                for value, gone, invariant in zip(state, missing, self._invariants, strict=True)
            ]
            return state, made

        made: list[Any] = []
        try:
            after, made = _tried(traced)
        except (UnboundLocalError, TypeError, ValueError, KeyError) as error:
            problem = (
                "\nNote: AutoGraph tried to define it automatically, but ran into a "
                f"{type(error).__name__}: {error}"
            )
        finally:
            self._write(before)
        initial = list(before)
        for i, gone in enumerate(missing):
            if self._lists[i] and after is not None:
                kind = element_kind(after[i])
                if kind is not None:
                    initial[i] = GrowingList.of(list(before[i]), *kind)
            if not gone:
                continue
            if made and made[i][0] is not None:
                initial[i] = made[i][0]()
                if self._invariants[i] is None:
                    self._invariants[i] = made[i][1]
                continue
            self._refuse(i, before[i], None if after is None else after[i], problem)
        return initial

    def _refuse(self, i: int, value: Any, after: Any, problem: str) -> None:
        name = self._names[i]
        if isinstance(value, UndefinedReturnValue):
            if after is not None and not is_undefined(after):
                raise ValueError(
                    f"the return value from a TensorFlow loop may only be a {_LEGAL}; got "
                    f"{type(after)}"
                )
            raise NotImplementedError(
                "a return statement cannot be placed inside this TensorFlow loop; this may happen "
                "if a return statement depends on a static Python condition such as a "
                f"hyperparameter{problem}"
            )
        if value is None:
            raise ValueError(f"'{name}' is not allowed to be None before the loop")
        raise ValueError(f"'{name}' must be defined before the loop{problem}")

    def _build(self, initial: list[Any], counted: bool) -> Any:
        leaves = nest.flatten(initial)
        through = [leaf for leaf in leaves if is_convertible(leaf)]
        shapes = self._shapes(initial)
        flags: list[Any] = [False] if counted else []

        def whole(parameters: Any) -> tuple[Any, ...]:
            given = iter(parameters[len(flags) :])
            values = [next(given) if is_convertible(leaf) else leaf for leaf in leaves]
            return tuple(nest.pack_sequence_as(initial, values))

        def test(*parameters: Any) -> Any:
            self._write(whole(parameters))
            return condition(self._test(), "while loop")

        def body(*parameters: Any) -> Any:
            entry = whole(parameters)
            self._write(entry)
            self._body()
            after = self._read()
            self._check(initial, entry, after)
            out = [
                value
                for value, leaf in zip(nest.flatten(list(after)), leaves, strict=True)
                if is_convertible(leaf)
            ]
            return [*(_either(flag, self.ran()) for flag in parameters[: len(flags)]), *out]

        chosen = {
            key: value
            for key, value in self._options.items()
            if key != "shape_invariants" and value is not None
        }
        if not flags and not through:
            flags = [False]
        invariants = None if shapes is None else [*(TensorShape([]) for _ in flags), *shapes]
        results = loops.while_loop(
            test, body, [*flags, *through], shape_invariants=invariants,
            return_same_structure=True, **chosen,
        )  # fmt: skip
        return results[0], whole(results)

    def _shapes(self, initial: list[Any]) -> list[TensorShape] | None:
        """The shape that each leaf keeps; None where all keep that which they begin with."""
        if all(invariant is None for invariant in self._invariants):
            return None
        out: list[Any] = []
        for value, invariant in zip(initial, self._invariants, strict=True):
            leaves = nest.flatten(value)
            if invariant is None:
                given: list[Any] = [None] * len(leaves)
            elif nest.is_nested(value):
                given = nest.flatten_up_to(value, invariant, check_types=False)
            else:
                given = [invariant]
            for leaf, shape in zip(leaves, given, strict=True):
                if is_convertible(leaf):
                    out.append(_own_shape(leaf) if shape is None else TensorShape(shape))
        return out

    def _check(self, initial: list[Any], entry: State, after: State) -> None:
        """After an iteration the state has the structure, types and shapes that it had."""
        for name, first, begin, end, invariant in zip(
            self._names, initial, entry, after, self._invariants, strict=True
        ):
            if isinstance(end, Undefined):
                raise ValueError(f"'{name}' is not defined at the end of the iteration.")
            try:
                nest.assert_same_structure(begin, end)
            except (TypeError, ValueError) as error:
                raise TypeError(
                    f"'{name}' does not have the same nested structure after one iteration.\n\n"
                    f"{error}"
                ) from None
            shapes: Any = invariant
            if invariant is None or not nest.is_nested(begin):
                shapes = [invariant] * len(nest.flatten(begin))
            else:
                shapes = nest.flatten_up_to(begin, invariant, check_types=False)
            flat = [nest.flatten(value) for value in (first, begin, end)]
            for was, old, new, shape in zip(*flat, shapes, strict=True):
                _check_leaf(name, was, old, new, shape)


def _either(flag: Any, ran: Any) -> Any:
    return True if ran is True else gen_ops.logical_or(flag, ran)


def _check_leaf(name: str, first: Any, old: Any, new: Any, invariant: Any) -> None:
    if new is None:
        raise ValueError(f"'{name}' is None at the end of the iteration.")
    if not is_convertible(old):
        if old is not new and old != new:
            raise TypeError(
                f"'{name}' must be a tensor, a number or a structure of them to change in a loop: "
                f"it is {old!r} before the loop and {new!r} after one iteration"
            )
        return
    if not is_convertible(new):
        raise TypeError(f"'{name}' is {new!r} after one iteration, which is no tensor")
    before, after = type_and_shape(old), type_and_shape(new)
    if before is None or after is None:
        return
    if before[0] is not after[0]:
        raise TypeError(
            f"'{name}' has dtype {before[0].name} before the loop, but dtype {after[0].name} "
            "after one iteration"
        )
    if invariant is None:
        if not covers(before[1], after[1]):
            raise ValueError(
                f"'{name}' has shape {before[1]} before the loop, but shape {after[1]} after one "
                "iteration. Use tf.autograph.experimental.set_loop_options to set shape "
                "invariants."
            )
        return
    kept = TensorShape(invariant)
    begin = type_and_shape(first)
    if begin is not None and not covers(kept, begin[1]):
        raise ValueError(
            f"'{name}' has shape {begin[1]} before the loop, which does not conform with the "
            f"shape invariant {kept}."
        )
    if not covers(kept, after[1]):
        raise ValueError(
            f"'{name}' has shape {after[1]} after one iteration, which does not conform with the "
            f"shape invariant {kept}."
        )


def _own_shape(leaf: Any) -> TensorShape:
    known = type_and_shape(leaf)
    return TensorShape(()) if known is None else known[1]


def _copied(leaf: Any) -> Any:
    return gen_ops.identity(leaf) if isinstance(leaf, Tensor) else leaf


def _as_parameter(leaf: Any) -> Any:
    """A value as the body of a loop sees it: a tensor that is not known."""
    if isinstance(leaf, (bool, int, float, str)) or (
        isinstance(leaf, Tensor) and leaf.dtype.is_integer and not leaf.dtype._is_ref_dtype
    ):
        tensor = convert_to_tensor(leaf)
        parameter = gen_ops.placeholder(tensor.dtype, shape=tensor.shape)
        parameter.set_shape(tensor.shape)  # which as an attribute says nothing of scalars
        return parameter
    return leaf
