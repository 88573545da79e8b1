"""Functions in their converted form: which are converted, and how the form is made and kept.

The converted code of a function depends on its code alone and is kept for it. Its globals, closure,
defaults and attributes are those of the function it is made for, not copies.
"""

import ast
import contextlib
import functools
import inspect
import os
import sys
import threading
import types
import unittest
from typing import Any, Callable, Iterator

from millrace.autograph import settings
from millrace.autograph.errors import ConversionError, UnsupportedError
from millrace.autograph.rewrite import THUNK, is_left_alone, rewrite
from millrace.autograph.sources import compile_function, find_source
from millrace.core import logging
from millrace.core.export import export

_OPERATORS = "ag__"

# Modules, and what is below them, whose functions run as they are.
_AS_THEY_ARE = frozenset(
    {
        "PIL", "absl", "ipdb", "keras", "matplotlib", "millrace", "mock", "numpy", "pandas",
        "tensorflow",
    }
)  # fmt: skip
# Parts of Python's library that call what they are given.
_PASSING_ON = frozenset({"contextlib", "functools"})

_codes: dict[Any, types.CodeType] = {}
_MOST_CODES = 4096
_lock = threading.Lock()
_told: set[Any] = set()


class _State(threading.local):
    disabled = 0


_state = _State()


@contextlib.contextmanager
def disabled() -> Iterator[None]:
    """Nothing is converted inside, on this thread."""
    _state.disabled += 1
    try:
        yield
    finally:
        _state.disabled -= 1


@contextlib.contextmanager
def enabled() -> Iterator[None]:
    """What is converted by default is converted inside, on this thread."""
    before, _state.disabled = _state.disabled, 0
    try:
        yield
    finally:
        _state.disabled = before


def is_enabled() -> bool:
    """Whether functions are converted on this thread."""
    return not _state.disabled


@export(v1="autograph.experimental.do_not_convert", v2="autograph.experimental.do_not_convert")
def do_not_convert(func: Callable[..., Any] | None = None) -> Any:
    """Decorator: the function, and what it calls, runs as it is written."""
    if func is None:
        return do_not_convert

    def run_as_written(*args: Any, **kwargs: Any) -> Any:
        with disabled():
            return func(*args, **kwargs)

    if inspect.isfunction(func) or inspect.ismethod(func):
        functools.update_wrapper(run_as_written, func)
    return run_as_written


def converted(function: Any, features: frozenset[str] = frozenset()) -> Any:
    """A callable that does what `function` does, its control flow converted.

    What is no Python function of the user's is returned as it is: classes, builtins, functions of
    libraries, generators. A function without source is, too, and a warning says so once.
    """
    if _state.disabled:
        return function
    if isinstance(function, functools.partial):
        inner = converted(function.func, features)
        if inner is function.func:
            return function
        return functools.partial(inner, *function.args, **function.keywords)
    target, bound = _target(function)
    if target is None or not _is_converted(target, bound):
        return function
    try:
        made = make(target, features)
    except ConversionError as error:
        if os.environ.get("AUTOGRAPH_STRICT_CONVERSION", "0") not in ("", "0"):
            raise
        _tell(function, error)
        return function
    return made if bound is None else types.MethodType(made, bound)


def _target(function: Any) -> tuple[Any, Any]:
    """The Python function that a call of `function` runs, and its first argument; (None, None)
    where there is none."""
    if isinstance(function, types.FunctionType):
        return function, None
    if isinstance(function, types.MethodType):
        inner = function.__func__
        if isinstance(inner, types.FunctionType):
            return inner, function.__self__
        return None, None
    if isinstance(function, type):
        return None, None
    call = inspect.getattr_static(type(function), "__call__", None)
    return (call, function) if isinstance(call, types.FunctionType) else (None, None)


def _is_converted(function: types.FunctionType, bound: Any) -> bool:
    code = function.__code__
    if _OPERATORS in code.co_freevars:
        return False  # it has been
    flags = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
    if code.co_flags & flags or code.co_filename == "<string>":
        return False
    if isinstance(bound, unittest.TestCase):
        return False
    return not is_library_module(function.__globals__.get("__name__", ""))


@functools.lru_cache(maxsize=1024)
def is_library_module(name: str) -> bool:
    """Whether functions of a module run as they are."""
    root = name.partition(".")[0]
    if root in _AS_THEY_ARE:
        return True
    return root in sys.stdlib_module_names and root not in _PASSING_ON and root != "__main__"


def make(function: types.FunctionType, features: frozenset[str]) -> types.FunctionType:
    """The converted form of a function. ConversionError where it has none."""
    from millrace.autograph import operators  # late: they stand on what converts

    original = function.__code__
    key = (original, original.co_filename, "LISTS" in features)
    code = _codes.get(key)
    if code is None:
        code = _convert(function, features)
        with _lock:
            while len(_codes) >= _MOST_CODES:
                _codes.pop(next(iter(_codes)))
            _codes[key] = code
    cells = dict(zip(original.co_freevars, function.__closure__ or (), strict=True))
    cells[_OPERATORS] = operators.cell(features)
    closure = tuple(cells[name] for name in code.co_freevars)
    made = types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, closure
    )
    made.__kwdefaults__ = function.__kwdefaults__
    made.__annotations__ = function.__annotations__
    made.__qualname__ = function.__qualname__
    made.__module__ = function.__module__
    made.__doc__ = function.__doc__
    made.__dict__.update(function.__dict__)
    return made


def _convert(function: types.FunctionType, features: frozenset[str]) -> types.CodeType:
    """The code of a function in its converted form."""
    settings.trace_conversion(1, "Converting %s", function)
    original = function.__code__
    node, class_name = converted_node(function, features)
    free = [*original.co_freevars, _OPERATORS]
    try:
        code = compile_function(node, class_name, original, free, original.co_filename)
    except (SyntaxError, ValueError) as error:
        raise UnsupportedError(
            f"{original.co_filename}:{original.co_firstlineno}: '{original.co_name}' cannot be "
            f"converted: {error}"
        ) from error
    return _renamed(code, original)


def converted_node(function: types.FunctionType, features: frozenset[str]) -> tuple[Any, Any]:
    """The syntax tree of a function in its converted form, and the name of the class around it."""
    code = function.__code__
    source = find_source(function)
    if is_left_alone(source.node):
        raise UnsupportedError(f"'{code.co_name}' is a generator or a coroutine")
    try:
        node = rewrite(source.node, "LISTS" in features)
    except UnsupportedError as error:
        raise UnsupportedError(f"{code.co_filename}: '{code.co_name}': {error}") from None
    node.args = _without_values(node.args)
    return node, source.class_name


def _without_values(arguments: ast.arguments) -> ast.arguments:
    """Parameters whose defaults are not computed again, without annotations."""

    def plain(argument: ast.arg | None) -> ast.arg | None:
        return argument and ast.copy_location(ast.arg(argument.arg), argument)

    nothing = ast.Constant(None)
    return ast.arguments(
        posonlyargs=[plain(a) for a in arguments.posonlyargs],
        args=[plain(a) for a in arguments.args],
        vararg=plain(arguments.vararg),
        kwonlyargs=[plain(a) for a in arguments.kwonlyargs],
        kw_defaults=[d and ast.copy_location(ast.Constant(None), d) for d in arguments.kw_defaults],
        kwarg=plain(arguments.kwarg),
        defaults=[ast.copy_location(nothing, d) for d in arguments.defaults],
    )


_BODIES = ("if_body", "else_body", "loop_body", "loop_test", "get_state", "set_state")


def _renamed(code: types.CodeType, original: types.CodeType) -> types.CodeType:
    """The code with the names that the original has: bodies of branches and loops get that of the
    function that they are a part of, as tracebacks show it. The first line, below the decorators,
    stays: lines are counted from it."""
    names = {"co_name": original.co_name}
    if hasattr(original, "co_qualname"):
        names["co_qualname"] = original.co_qualname
    return code.replace(**names, co_consts=_parts(code, original))


def _parts(code: types.CodeType, named: types.CodeType) -> tuple[Any, ...]:
    out = []
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            if const.co_name.startswith(_BODIES) or const.co_varnames[:1] == (THUNK,):
                const = _renamed(const, named)
            else:
                const = const.replace(co_consts=_parts(const, const))
        out.append(const)
    return tuple(out)


def _tell(function: Any, error: ConversionError) -> None:
    """Warns, once for each function, that it runs as it is."""
    target, _ = _target(function)
    key = target.__code__
    if key in _told:
        return
    _told.add(key)
    logging.get_logger().warning(
        "AutoGraph could not transform %s and will run it as-is.\nCause: %s\nTo silence this "
        "warning, decorate the function with @tf.autograph.experimental.do_not_convert",
        function, error,
    )  # fmt: skip
