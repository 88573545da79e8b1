"""`break`, `continue`, `return` in branches and loops, and `else` of loops, as flags.

What follows a statement that may have jumped stands in an `if` of its own, or in the branch that
has not jumped. Afterwards control flow is made of `if`, `while`, `for`, `with`, `try`, `match`, and
of `return` outside of branches and loops.

Loops get two attributes: `extra_test`, an expression that `for` tests before each iteration (None:
none), and `options`, the arguments of `set_loop_options` in it. An `if` gets `in_loop`: whether it
may set the return value for a loop around it.
"""

import ast
from typing import Any

from millrace.autograph.names import blocks_of

_LOOPS = (ast.While, ast.For)


def lower(body: list[ast.stmt], taken: set[str]) -> list[ast.stmt]:
    """The body of a function without jumps in control flow. `taken`: names that it uses."""
    return _Lowering(body, taken).run()


def _has_return(body: list[ast.stmt], inside: bool = False) -> bool:
    """Whether a `return` stands inside of a branch or a loop."""
    for statement in body:
        if isinstance(statement, ast.Return) and inside:
            return True
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        within = inside or isinstance(statement, (ast.If, *_LOOPS))
        if any(_has_return(block, within) for block in blocks_of(statement)):
            return True
    return False


def _at(node: Any, anchor: ast.AST) -> Any:
    """`node`, and all that is new in it, at the place of `anchor`."""
    for inner in ast.walk(node):
        if "lineno" in inner._attributes and not hasattr(inner, "lineno"):
            ast.copy_location(inner, anchor)
    return node


def _set(name: str, value: ast.expr, anchor: ast.AST) -> ast.stmt:
    return _at(ast.Assign(targets=[ast.Name(name, ast.Store())], value=value), anchor)


def _not_any(flags: list[str], anchor: ast.AST) -> ast.expr:
    names: list[ast.expr] = [ast.Name(flag, ast.Load()) for flag in flags]
    tests = [ast.UnaryOp(ast.Not(), name) for name in names]
    return _at(tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), tests), anchor)


class _Jumps:
    """Which flags statements may have set, and whether they always jump."""

    def __init__(self) -> None:
        self.flags: list[str] = []
        self.always = False

    def add(self, flags: list[str]) -> None:
        self.flags += [flag for flag in flags if flag not in self.flags]


class _Lowering:
    def __init__(self, body: list[ast.stmt], taken: set[str]):
        self._body = body
        self._taken = set(taken)
        self._lowers_return = _has_return(body)
        if self._lowers_return:
            self.did_return = self._new("do_return")
            self.result = self._new("retval_")
        self._loops: list[tuple[str, str]] = []  # flags of break and continue
        self._returns_in_loop = False

    def _new(self, name: str) -> str:
        number = 0
        new = name
        while new in self._taken:
            number += 1
            new = f"{name.rstrip('_')}_{number}"
        self._taken.add(new)
        return new

    def run(self) -> list[ast.stmt]:
        body = self._body
        if not self._lowers_return:
            return self._block(body)[0]
        anchor = body[0]
        lowered, jumps = self._block(body)
        if self._returns_in_loop and not jumps.always and not _ends(body):
            # Falling off the end returns None.
            lowered, jumps = self._block([*body, _at(ast.Return(None), body[-1])])
        undefined = ast.parse("ag__.UndefinedReturnValue()", mode="eval").body
        _strip(undefined)
        end = ast.parse(f"return ag__.returned({self.result})").body[0]
        _strip(end)
        return [
            _set(self.did_return, ast.Constant(False), anchor),
            _set(self.result, _at(undefined, anchor), anchor),
            *lowered,
            _at(end, body[-1]),
        ]

    def _block(self, body: list[ast.stmt]) -> tuple[list[ast.stmt], _Jumps]:
        out: list[ast.stmt] = []
        jumps = _Jumps()
        for i, statement in enumerate(body):
            rest = body[i + 1 :]
            made, own, absorbed = self._statement(statement, rest)
            out += made
            jumps.add(own.flags)
            jumps.always = own.always
            if own.always or absorbed:
                return out, jumps
            if own.flags and rest:
                inner, after = self._block(rest)
                guard = ast.If(test=_not_any(own.flags, rest[0]), body=inner, orelse=[])
                guard.in_loop = bool(self._loops)
                out.append(_at(guard, rest[0]))
                jumps.add(after.flags)
                jumps.always = after.always
                return out, jumps
        return out, jumps

    def _statement(
        self, s: Any, rest: list[ast.stmt]
    ) -> tuple[list[ast.stmt], _Jumps, bool]:  # the last: whether it has taken in the rest
        jumps = _Jumps()
        if isinstance(s, ast.Return):
            jumps.always = True
            if not self._lowers_return:
                return [s], jumps, False
            self._returns_in_loop = self._returns_in_loop or bool(self._loops)
            jumps.add([self.did_return])
            value = s.value if s.value is not None else _at(ast.Constant(None), s)
            done = _set(self.did_return, ast.Constant(True), s)
            return [_set(self.result, value, s), done], jumps, False
        if isinstance(s, (ast.Break, ast.Continue)):
            flag = self._loops[-1][isinstance(s, ast.Continue)]
            jumps.add([flag])
            jumps.always = True
            return [_set(flag, ast.Constant(True), s)], jumps, False
        if isinstance(s, ast.Raise):
            jumps.always = True
            return [s], jumps, False
        if isinstance(s, ast.If):
            return self._if(s, rest, jumps)
        if isinstance(s, _LOOPS):
            return self._loop(s, jumps)
        if isinstance(s, ast.With):
            body, inner = self._block(s.body)
            jumps.add(inner.flags)
            return [_with(s, body=body)], jumps, False
        if isinstance(s, ast.Try):
            return self._try(s, jumps)
        if isinstance(s, ast.Match):
            cases = []
            for case in s.cases:
                body, inner = self._block(case.body)
                jumps.add(inner.flags)
                cases.append(_with(case, body=body))
            return [_with(s, cases=cases)], jumps, False
        return [s], jumps, False

    def _if(
        self, s: ast.If, rest: list[ast.stmt], jumps: _Jumps
    ) -> tuple[list[ast.stmt], _Jumps, bool]:
        body, of_body = self._block(s.body)
        orelse, of_orelse = self._block(s.orelse)
        absorbed = False
        if rest and (of_body.flags or of_orelse.flags):
            if of_body.always and not of_orelse.always:
                orelse, of_orelse = self._block([*s.orelse, *rest])
                absorbed = True
            elif of_orelse.always and not of_body.always:
                body, of_body = self._block([*s.body, *rest])
                absorbed = True
        jumps.add(of_body.flags)
        jumps.add(of_orelse.flags)
        jumps.always = of_body.always and of_orelse.always
        made = _with(s, body=body, orelse=orelse)
        made.in_loop = bool(self._loops)
        return [made], jumps, absorbed

    def _loop(self, s: Any, jumps: _Jumps) -> tuple[list[ast.stmt], _Jumps, bool]:
        broke, went_on = self._new("break_"), self._new("continue_")
        body, options = _take_options(s.body)
        self._loops.append((broke, went_on))
        body, inner = self._block(body)
        self._loops.pop()
        if went_on in inner.flags:
            body = [_set(went_on, ast.Constant(False), s), *body]
        leaving = [flag for flag in inner.flags if flag != went_on]
        made = _with(s, body=body or [_at(ast.Pass(), s)], orelse=[])
        made.options = options
        made.extra_test = None
        if leaving and isinstance(s, ast.While):
            test = _not_any(leaving, s.test)
            parts = test.values if isinstance(test, ast.BoolOp) else [test]
            made.test = _at(ast.BoolOp(ast.And(), [*parts, s.test]), s.test)
        elif leaving:
            made.extra_test = _not_any(leaving, s)
        out: list[ast.stmt] = [made]
        if broke in leaving:
            out = [_set(broke, ast.Constant(False), s), made]
        jumps.add([flag for flag in leaving if flag != broke])
        if s.orelse:
            orelse, after = self._block(s.orelse)
            if leaving:
                guard = ast.If(test=_not_any(leaving, s.orelse[0]), body=orelse, orelse=[])
                guard.in_loop = bool(self._loops)
                orelse = [_at(guard, s.orelse[0])]
            out += orelse
            jumps.add(after.flags)
        return out, jumps, False

    def _try(self, s: ast.Try, jumps: _Jumps) -> tuple[list[ast.stmt], _Jumps, bool]:
        body, of_body = self._block(s.body)
        orelse, of_orelse = self._block(s.orelse)
        if of_body.flags and orelse:
            guard = ast.If(test=_not_any(of_body.flags, s.orelse[0]), body=orelse, orelse=[])
            guard.in_loop = bool(self._loops)
            orelse = [_at(guard, s.orelse[0])]
        always = of_body.always or of_orelse.always
        handlers = []
        for handler in s.handlers:
            inner, of_handler = self._block(handler.body)
            jumps.add(of_handler.flags)
            always = always and of_handler.always
            handlers.append(_with(handler, body=inner))
        last, of_last = self._block(s.finalbody)
        for each in (of_body, of_orelse, of_last):
            jumps.add(each.flags)
        jumps.always = always or of_last.always
        made = _with(s, body=body, handlers=handlers, orelse=orelse, finalbody=last)
        return [made], jumps, False


def _ends(body: list[ast.stmt]) -> bool:
    return isinstance(body[-1], (ast.Return, ast.Raise))


def _with(node: Any, **fields: Any) -> Any:
    """A copy of a node with other fields."""
    values = {name: getattr(node, name) for name in node._fields if hasattr(node, name)}
    made = type(node)(**{**values, **fields})
    return ast.copy_location(made, node) if hasattr(node, "lineno") else made


def _strip(node: ast.AST) -> None:
    """Forgets where a node was parsed."""
    for inner in ast.walk(node):
        for name in ("lineno", "col_offset", "end_lineno", "end_col_offset"):
            if hasattr(inner, name):
                delattr(inner, name)


def _take_options(body: list[ast.stmt]) -> tuple[list[ast.stmt], list[ast.Call]]:
    """A loop's body without its calls of set_loop_options, and those."""
    options, rest = [], []
    for statement in body:
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call):
            name = getattr(call.func, "attr", getattr(call.func, "id", None))
            if name == "set_loop_options":
                options.append(call)
                continue
        rest.append(statement)
    return rest, options
