"""What converted code calls, by the name `ag__`."""

import functools
import types
from typing import Any, Callable

from millrace.autograph import builtins, conditionals, convert, loops, undefined

_SHARED = {
    name: getattr(module, name)
    for module, names in (
        (
            conditionals,
            ("if_stmt", "if_exp", "and_", "or_", "not_", "compare", "eq", "not_eq", "assert_stmt"),
        ),
        (loops, ("while_stmt", "for_stmt", "loop_options")),
        (
            undefined,
            ("Undefined", "UndefinedReturnValue", "is_undefined", "ld", "ldu", "returned"),
        ),
    )
    for name in names
}


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
        return convert.converted(function, features)

    return call


@functools.cache
def cell(features: frozenset[str]) -> types.CellType:
    """The closure cell of `ag__` for functions with these features."""
    return types.CellType(types.SimpleNamespace(**_SHARED, call=_caller(features)))
