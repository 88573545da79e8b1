"""What converted code calls, by the name `ag__`."""

import functools
import types
from typing import Any, Callable

from millrace.autograph import builtins, conditionals, convert, lists, loops, undefined
from millrace.core.ragged_forms import dense_form
from millrace.ops import array, control_flow, functional, vectorized_map
from millrace.ops import loops as while_loops

_SHARED = {
    name: getattr(module, name)
    for module, names in (
        (
            conditionals,
            ("if_stmt", "if_exp", "and_", "or_", "not_", "compare", "eq", "not_eq", "assert_stmt"),
        ),
        (lists, ("append",)),
        (loops, ("while_stmt", "for_stmt", "loop_options")),
        (
            undefined,
            ("Undefined", "UndefinedReturnValue", "is_undefined", "ld", "ldu", "returned"),
        ),
    )
    for name in names
}


# Functions of the library that call what they are given while a function is traced.
_CALLING = frozenset(
    {
        control_flow.case, control_flow.cond, control_flow.cond_v2, control_flow.switch_case,
        functional.foldl, functional.foldr, functional.map_fn, functional.scan,
        while_loops.while_loop, while_loops.while_loop_v2, vectorized_map.vectorized_map,
    }
)  # fmt: skip


_OF_LISTS = {array.concat: lists.joined_by, array.stack: lists.stacked_by}


def _with_converted(function: Callable[..., Any], features: frozenset[str]) -> Callable[..., Any]:
    """A function whose arguments that are functions are converted."""

    def run(*args: Any, **kwargs: Any) -> Any:
        args = tuple(_converted(arg, features) for arg in args)
        return function(*args, **{k: _converted(v, features) for k, v in kwargs.items()})

    return run


def _converted(value: Any, features: frozenset[str]) -> Any:
    if type(value) in (list, tuple):
        return type(value)(_converted(each, features) for each in value)
    if type(value) is dict:
        return {key: _converted(each, features) for key, each in value.items()}
    if isinstance(value, (types.FunctionType, types.MethodType, functools.partial)):
        return convert.converted(value, features)
    return value


def _caller(features: frozenset[str]) -> Callable[[Any], Any]:
    overloads = dict(builtins.OVERLOADS)
    if "BUILTIN_FUNCTIONS" in features:
        overloads[print] = builtins.print_values

    def call(function: Any) -> Any:
        """What to call instead of a function."""
        if isinstance(function, (types.BuiltinFunctionType, type)):
            try:
                return overloads.get(function, function)
            except TypeError:  # of a metaclass without a hash
                return function
        if isinstance(function, types.FunctionType):
            if function in _CALLING:
                return _with_converted(function, features)
            if (known := dense_form(function)) in _OF_LISTS:
                return _OF_LISTS[known](function)
        return convert.converted(function, features)

    return call


@functools.cache
def cell(features: frozenset[str]) -> types.CellType:
    """The closure cell of `ag__` for functions with these features."""
    return types.CellType(types.SimpleNamespace(**_SHARED, call=_caller(features)))
