"""The syntax tree of a function, found in the file that it was compiled from.

Files are parsed whole: line and column numbers of the tree are those of the file, and what stands
around a function (its class) is known.
"""

import ast
import linecache
import types
from typing import Any, Iterator, NamedTuple

from millrace.autograph.errors import SourceError

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class Source(NamedTuple):
    """A function's node, and the name of the class whose body it stands in (None: of none)."""

    node: Any
    class_name: str | None


class _File(NamedTuple):
    lines: list[str]
    functions: dict[int, list[Source]]  # by the first line of their code


_files: dict[str, _File] = {}
_MOST_FILES = 64


def find_source(function: types.FunctionType) -> Source:
    """The node of a function. SourceError where its file is not there, or has other code."""
    code = function.__code__
    file = _read(function)
    named = [
        source
        for source in file.functions.get(code.co_firstlineno, ())
        if getattr(source.node, "name", "<lambda>") == code.co_name
        and _parameters(source.node) == _parameters_of(code)
    ]
    if len(named) > 1:
        named = _compiling_to(code, named)
    if not named:
        raise SourceError(
            f"{_where(code)}: the source code of '{code.co_name}' is not there: the file has other "
            "code at that line"
        )
    return named[0]


def _where(code: types.CodeType) -> str:
    return f"{code.co_filename}:{code.co_firstlineno}"


def _read(function: types.FunctionType) -> _File:
    code = function.__code__
    name = code.co_filename
    linecache.checkcache(name)
    lines = linecache.getlines(name, function.__globals__)
    if not lines:
        raise SourceError(
            f"{_where(code)}: no source code available for '{code.co_name}'. Functions that are "
            "typed into a shell, or made by exec(), have none: put them into a file"
        )
    known = _files.get(name)
    if known is not None and known.lines == lines:
        return known
    try:
        tree = ast.parse("".join(lines), name)
    except (SyntaxError, ValueError) as error:
        raise SourceError(f"{_where(code)}: the file is not Python source: {error}") from None
    functions: dict[int, list[Source]] = {}
    for source in _functions_in(tree, None):
        functions.setdefault(_first_line(source.node), []).append(source)
    while len(_files) >= _MOST_FILES:
        _files.pop(next(iter(_files)))
    file = _files[name] = _File(lines, functions)
    return file


def _functions_in(node: ast.AST, class_name: str | None) -> Iterator[Source]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, FunctionNode):
            yield Source(child, class_name)
        inner = child.name if isinstance(child, ast.ClassDef) else class_name
        yield from _functions_in(child, inner)


def _first_line(node: Any) -> int:
    decorators = getattr(node, "decorator_list", None)
    return decorators[0].lineno if decorators else node.lineno


def _parameters(node: Any) -> tuple[Any, ...]:
    a = node.args
    extra = [x.arg for x in (a.vararg, a.kwarg) if x is not None]
    return (
        [x.arg for x in [*a.posonlyargs, *a.args]], [x.arg for x in a.kwonlyargs], extra,
    )  # fmt: skip


def _parameters_of(code: types.CodeType) -> tuple[Any, ...]:
    names = list(code.co_varnames)
    plain, only = code.co_argcount, code.co_kwonlyargcount
    extra = bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    return names[:plain], names[plain : plain + only], names[plain + only : plain + only + extra]


def _compiling_to(code: types.CodeType, found: list[Source]) -> list[Source]:
    """Those whose code is `code`: several lambdas may stand in one line."""
    same = []
    for source in found:
        compiled = compile_function(
            source.node, source.class_name, code, list(code.co_freevars), code.co_filename
        )
        if _alike(compiled, code):
            same.append(source)
    exact = [source for source in same if _position(source.node) == _position_of(code)]
    return exact or same


def _position(node: Any) -> Any:
    body = node.body if isinstance(node, ast.Lambda) else node
    return body.lineno, body.col_offset


def _position_of(code: types.CodeType) -> Any:
    positions = getattr(code, "co_positions", None)
    if positions is None:
        return None
    places = [(p[0], p[2]) for p in positions() if p[0] is not None and p[2] is not None]
    # The instructions before the body carry the first line and column 0.
    places = [place for place in places if place != (code.co_firstlineno, 0)]
    return min(places, default=None)


def _alike(a: types.CodeType, b: types.CodeType) -> bool:
    if (a.co_code, a.co_names, a.co_varnames, a.co_freevars, len(a.co_consts)) != (
        b.co_code, b.co_names, b.co_varnames, b.co_freevars, len(b.co_consts),
    ):  # fmt: skip
        return False
    return all(
        _alike(x, y)
        if isinstance(x, types.CodeType) and isinstance(y, types.CodeType)
        else type(x) is type(y) and x == y
        for x, y in zip(a.co_consts, b.co_consts, strict=True)
    )


_FUTURE = 0x1FF0000  # the bits of co_flags that __future__ imports set
_FACTORY = "ag__factory"


def compile_function(
    node: Any, class_name: str | None, like: types.CodeType, free: list[str], filename: str
) -> types.CodeType:
    """The code of a function's node, in a scope with the names `free`, as in class `class_name`."""
    if isinstance(node, ast.Lambda):
        body: Any = ast.copy_location(
            ast.Assign(
                targets=[ast.copy_location(ast.Name("ag__lambda", ast.Store()), node)],
                value=node,
            ),
            node,
        )
    else:
        body = node
    if class_name is not None:
        body = ast.ClassDef(
            name=class_name, bases=[], keywords=[], body=[body], decorator_list=[], type_params=[]
        )
    arguments = ast.arguments(
        posonlyargs=[], args=[ast.arg(name) for name in free], kwonlyargs=[], kw_defaults=[],
        defaults=[],
    )  # fmt: skip
    factory = ast.FunctionDef(
        name=_FACTORY, args=arguments, body=[body], decorator_list=[], type_params=[]
    )
    module = ast.Module(body=[factory], type_ignores=[])
    for outer in (factory, *([body] if class_name is not None else [])):
        outer.lineno = outer.end_lineno = like.co_firstlineno
        outer.col_offset = outer.end_col_offset = 0
    ast.fix_missing_locations(module)
    code = compile(module, filename, "exec", like.co_flags & _FUTURE, dont_inherit=True)
    for _ in range(2 if class_name is None else 3):
        code = _last_code(code)
    return code


def _last_code(code: types.CodeType) -> types.CodeType:
    """The function that is made last: those before it are in defaults or annotations."""
    return [const for const in code.co_consts if isinstance(const, types.CodeType)][-1]
