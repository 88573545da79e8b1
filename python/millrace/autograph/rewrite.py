"""Functions in functional form: branches and loops become calls of `ag__`, which decide at run time
whether they are Python's or a graph's.

    if x > 0:            def if_body():                 # reads and sets y of the function
        y = f(x)             nonlocal y
    else:                    y = ag__.call(f)(x)
        y = x            def else_body(): ...
                         def get_state(): return (y,)
                         def set_state(state): nonlocal y; (y,) = state
                         ag__.if_stmt(x > 0, if_body, else_body, get_state, set_state, ('y',), 1)

The state are the names that are bound inside and whose values are needed there or afterwards. What
has no value yet is an `Undefined`. Every node keeps the place of what it was made of.
"""

import ast
import copy
from typing import Any

from millrace.autograph.errors import UnsupportedError
from millrace.autograph.jumps import lower
from millrace.autograph.names import (
    Liveness,
    Names,
    bindings,
    declared,
    parameters,
    statements_in,
)

THUNK = "ag__none"  # the (empty) arguments of lambdas that delay an expression
_EVERYTHING = None  # the names that have a value where control never comes to


def rewrite(node: Any, lists: bool = False) -> Any:
    """The node of a function or lambda in functional form. `lists`: `append` and `pop` of lists,
    and their elements, are those of `ag__` too.

    UnsupportedError for what has no such form.
    """
    return _Function(node, None, frozenset(), lists).run()


def is_left_alone(node: Any) -> bool:
    """Whether a function stays as it is: generators and coroutines do."""
    if isinstance(node, ast.AsyncFunctionDef):
        return True
    todo: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else list(node.body)
    while todo:
        inner = todo.pop()
        if isinstance(inner, (ast.Yield, ast.YieldFrom, ast.Await)):
            return True
        if not isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            todo += ast.iter_child_nodes(inner)
    return False


def placed(node: Any, anchor: ast.AST) -> Any:
    """`node`, and all that is new in it, at the place of `anchor`."""
    for inner in ast.walk(node):
        if "lineno" in inner._attributes and not hasattr(inner, "lineno"):
            ast.copy_location(inner, anchor)
    return node


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _ag(function: str, *args: Any) -> ast.Call:
    return ast.Call(ast.Attribute(_name("ag__"), function, ast.Load()), list(args), [])


def _thunk(body: ast.expr) -> ast.Lambda:
    arguments = _arguments([])
    arguments.vararg = ast.arg(THUNK)
    return ast.Lambda(arguments, body)


def _arguments(names: list[str]) -> ast.arguments:
    return ast.arguments(
        posonlyargs=[], args=[ast.arg(name) for name in names], kwonlyargs=[], kw_defaults=[],
        defaults=[],
    )  # fmt: skip


def _def(name: str, arguments: list[str], body: list[ast.stmt]) -> ast.FunctionDef:
    return ast.FunctionDef(
        name=name, args=_arguments(arguments), body=body, decorator_list=[], type_params=[]
    )


def _strings(names: list[str]) -> ast.Tuple:
    return ast.Tuple([ast.Constant(name) for name in names], ast.Load())


class _Frame:
    """A function of the rewritten code: the user's, or the body of a branch or loop in it."""

    def __init__(self, own: set[str] | None, outer: "_Frame | None"):
        self.own = own  # None: all local names of the function that no inner frame has
        self.outer = outer
        self.begins_undefined: set[str] = set()

    def owner(self, name: str) -> "_Frame":
        """The frame that has a local name of the function."""
        frame = self
        while frame.outer is not None and name not in (frame.own or ()):
            frame = frame.outer
        return frame

    def prologue(self, anchor: ast.AST) -> list[ast.stmt]:
        """Statements for the frame's beginning."""
        return [
            placed(
                ast.Assign(
                    targets=[ast.Name(name, ast.Store())],
                    value=_ag("Undefined", ast.Constant(name)),
                ),
                anchor,
            )
            for name in sorted(self.begins_undefined)
        ]


def _merge(a: Names | None, b: Names | None) -> Names | None:
    if a is _EVERYTHING:
        return b
    return a if b is _EVERYTHING else a & b


class _Function(ast.NodeTransformer):
    """Rewrites one function. `unsure`: names around it that may have no value."""

    def __init__(self, node: Any, outer: "_Function | None", unsure: Names, lists: bool):
        self._node = node
        self._outer = outer
        self._lists = lists
        is_lambda = isinstance(node, ast.Lambda)
        self._source: list[ast.stmt] = [] if is_lambda else node.body
        inner: list[ast.AST] = [node.body] if is_lambda else node.body
        self._globals, self._nonlocals = declared(self._source)
        bound = bindings(inner)
        self._parameters = parameters(node.args)
        self._locals = (bound.names | set(self._parameters)) - self._globals - self._nonlocals
        self._handlers = bound.handlers
        self._unsure = (unsure - self._locals - self._globals) | (unsure & self._nonlocals)
        self._defined: Names | None = frozenset(self._parameters)
        self._shadowed: list[set[str]] = []
        self._taken = {
            n.id if isinstance(n, ast.Name) else n.arg
            for n in ast.walk(node)
            if isinstance(n, (ast.Name, ast.arg))
        } | {n.name for n in ast.walk(node) if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
        self._frame = _Frame(None, None)

    def run(self) -> Any:
        node = self._node
        if isinstance(node, ast.Lambda):
            return ast.copy_location(
                ast.Lambda(args=node.args, body=self._expression(node.body)), node
            )
        first = node.body[0]
        body = lower(self._with_appends(node.body), self._taken)
        for statement in body:
            self._taken |= bindings([statement]).names
        # Flags are local names, too.
        self._locals |= bindings(body).names - self._globals - self._nonlocals
        self._live = Liveness(body)
        new = self._block(body, self._live.at_end(), frozenset())
        new = self._frame.prologue(first) + new
        heads = [s for s in new if isinstance(s, (ast.Global, ast.Nonlocal))]
        new = heads + [s for s in new if not isinstance(s, (ast.Global, ast.Nonlocal))]
        doc = ast.get_docstring(node, clean=False)
        if doc is not None:
            texts = [s for s in new if _is_text(s)][:1]
            new = texts + [s for s in new if s not in texts]
        made = ast.FunctionDef(
            name=node.name, args=node.args, body=new, decorator_list=[], returns=None,
            type_params=[],
        )  # fmt: skip
        return ast.copy_location(made, node)

    def _with_appends(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """The statements with `x = ag__.append(x, value)` for `x.append(value)`."""
        mine = self._locals

        class Appends(ast.NodeTransformer):
            def visit_Expr(self, s: ast.Expr) -> ast.stmt:
                call = s.value
                if not _is_append(call) or call.func.value.id not in mine:
                    return s
                name = call.func.value.id
                value = _ag("append", _name(name), call.args[0])
                return placed(ast.Assign([ast.Name(name, ast.Store())], value), s)

            def _as_it_is(self, node: Any) -> Any:
                return node

            visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _as_it_is
            visit_Lambda = _as_it_is

        return [Appends().visit(copy.deepcopy(s)) for s in body]

    # Names.

    def _fresh(self, name: str) -> str:
        number = 0
        new = name
        while new in self._taken:
            number += 1
            new = f"{name}_{number}"
        self._taken.add(new)
        return new

    def _has_value(self, name: str) -> bool:
        """Whether reading a name needs no check."""
        if any(name in names for names in self._shadowed):
            return True
        if name in self._locals:
            return self._defined is _EVERYTHING or name in self._defined
        return name not in self._unsure

    def _unsure_inside(self) -> Names:
        """The names that may have no value when a function made here runs."""
        if self._defined is _EVERYTHING:
            return self._unsure
        mine = frozenset(name for name in self._locals if name not in self._defined)
        return mine | self._unsure

    def _define(self, names: Any) -> None:
        if self._defined is not _EVERYTHING:
            self._defined |= frozenset(names)

    # Statements.

    def _block(self, body: list[ast.stmt], after: Names, raised: Names) -> list[ast.stmt]:
        """A block, after which the names `after` are needed, and `raised` where it raises."""
        needed = []
        for statement in reversed(body):
            needed.append(after | raised)
            after = self._live.before_one(statement, after, raised)
        out: list[ast.stmt] = []
        for statement, later in zip(body, reversed(needed), strict=True):
            out += self._statement(statement, later, raised)
        return out

    def _statement(self, s: Any, after: Names, raised: Names) -> list[ast.stmt]:
        kind = type(s).__name__
        special = getattr(self, f"_{kind.lower()}", None)
        if special is not None:
            return special(s, after, raised)
        if isinstance(s, (ast.AsyncFor, ast.AsyncWith)) or kind == "TryStar":
            raise UnsupportedError(f"line {s.lineno}: {kind} is not supported")
        new = self._expression(s)
        self._define(bindings([s]).names)
        return [new]

    def _expression(self, node: Any) -> Any:
        return self.visit(copy.deepcopy(node))

    def _global(self, s: ast.Global, after: Names, raised: Names) -> list[ast.stmt]:
        return [s]

    _nonlocal = _global
    _pass = _global

    def _classdef(self, s: ast.ClassDef, after: Names, raised: Names) -> list[ast.stmt]:
        self._define([s.name])
        return [s]

    def _functiondef(self, s: ast.FunctionDef, after: Names, raised: Names) -> list[ast.stmt]:
        decorators = [self._expression(d) for d in s.decorator_list]
        defaults = self._defaults(s.args)
        self._define([s.name])
        if is_left_alone(s):
            made = copy.deepcopy(s)
        else:
            made = _Function(s, self, self._unsure_inside(), self._lists).run()
        made.decorator_list, made.args, made.returns = decorators, defaults, s.returns
        return [made]

    def _asyncfunctiondef(self, s: Any, after: Names, raised: Names) -> list[ast.stmt]:
        self._define([s.name])
        return [s]

    def _defaults(self, arguments: ast.arguments) -> ast.arguments:
        new = copy.copy(arguments)
        new.defaults = [self._expression(d) for d in arguments.defaults]
        new.kw_defaults = [d and self._expression(d) for d in arguments.kw_defaults]
        return new

    def _augassign(self, s: ast.AugAssign, after: Names, raised: Names) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        if isinstance(s.target, ast.Name) and not self._has_value(s.target.id):
            out.append(placed(ast.Expr(_ag("ld", _name(s.target.id))), s.target))
        out.append(self._expression(s))
        self._define(bindings([s]).names)
        return out

    def _return(self, s: ast.Return, after: Names, raised: Names) -> list[ast.stmt]:
        new = self._expression(s)
        self._defined = _EVERYTHING
        return [new]

    _raise = _return

    def _delete(self, s: ast.Delete, after: Names, raised: Names) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        for target in s.targets:
            if not (isinstance(target, ast.Name) and target.id in self._locals):
                out.append(ast.copy_location(ast.Delete([self._expression(target)]), s))
                continue
            name = target.id
            if not self._has_value(name):
                out.append(placed(ast.Expr(_ag("ld", _name(name))), target))
            gone = _ag("Undefined", ast.Constant(name))
            out.append(placed(ast.Assign([ast.Name(name, ast.Store())], gone), target))
            if self._defined is not _EVERYTHING:
                self._defined -= {name}
        return out

    def _assert(self, s: ast.Assert, after: Names, raised: Names) -> list[ast.stmt]:
        message = s.msg if s.msg is not None else ast.copy_location(ast.Constant(None), s)
        text = ast.Constant(ast.unparse(s.test))
        call = _ag("assert_stmt", self._lazy(s.test), self._lazy(message), text)
        return [placed(ast.Expr(call), s)]

    def _lazy(self, node: ast.expr) -> ast.expr:
        return placed(_thunk(self._expression(node)), node)

    def _with(self, s: ast.With, after: Names, raised: Names) -> list[ast.stmt]:
        items = [self._expression(item) for item in s.items]
        self._define(bindings(s.items).names)
        before = self._defined
        body = self._block(s.body, after, raised | after)
        # What is in it may raise, and `with` may go on.
        if self._defined is _EVERYTHING:
            self._defined = before
        return [ast.copy_location(ast.With(items=items, body=body), s)]

    def _try(self, s: ast.Try, after: Names, raised: Names) -> list[ast.stmt]:
        live = self._live
        last = live.before(s.finalbody, after, raised)
        escaping = raised | (live.before(s.finalbody, raised, raised) if s.finalbody else raised)
        caught = escaping | (last if s.finalbody else raised)
        for handler in s.handlers:
            inner = live.before(handler.body, last, escaping)
            caught |= (inner - {handler.name}) | live.reads(handler.type)
        begin = self._defined
        deleted = bindings([s]).deleted | {h.name for h in s.handlers if h.name}
        safe = begin if begin is _EVERYTHING else begin - deleted
        body = self._block(s.body, live.before(s.orelse, last, escaping), caught)
        orelse = self._block(s.orelse, last, escaping | last if s.finalbody else escaping)
        end = self._defined
        handlers = []
        for handler in s.handlers:
            self._defined = safe
            kind = None if handler.type is None else self._expression(handler.type)
            if handler.name:
                self._define([handler.name])
            inner = self._block(handler.body, last, escaping | last if s.finalbody else escaping)
            if self._defined is not _EVERYTHING and handler.name:
                self._defined -= {handler.name}
            made = ast.ExceptHandler(type=kind, name=handler.name, body=inner)
            handlers.append(ast.copy_location(made, handler))
            end = _merge(end, self._defined)
        if s.finalbody:
            self._defined = safe
            final = self._block(s.finalbody, after, raised)
            if end is not _EVERYTHING and self._defined is not _EVERYTHING:
                end = end | self._defined
        else:
            final = []
        self._defined = end
        made_try = ast.Try(body=body, handlers=handlers, orelse=orelse, finalbody=final)
        return [ast.copy_location(made_try, s)]

    def _match(self, s: ast.Match, after: Names, raised: Names) -> list[ast.stmt]:
        subject = self._expression(s.subject)
        begin, end = self._defined, self._defined
        cases = []
        for case in s.cases:
            self._defined = begin
            self._define(bindings([case.pattern]).names)
            guard = None if case.guard is None else self._expression(case.guard)
            body = self._block(case.body, after, raised)
            cases.append(ast.match_case(pattern=case.pattern, guard=guard, body=body))
            end = _merge(end, self._defined)
        self._defined = end
        return [ast.copy_location(ast.Match(subject=subject, cases=cases), s)]

    # Branches and loops.

    def _state(self, bound: Any, before: Names, after: Names) -> "_State":
        names = {name for name in bound.names if name in before or name in after}
        composites = {
            text: node
            for text, node in bound.composites.items()
            if all(name in before for name in _roots(node))
        }
        return _State(self, names, composites, before, after)

    def _inner(self, state: "_State", bound: Any) -> _Frame:
        """The frame of a body, which has the names that are not in the state."""
        own = {n for n in bound.names if n in self._locals and n not in state.names}
        return _Frame(own, self._frame)

    def _body(self, name: str, frame: _Frame, state: "_State", build: Any, anchor: Any,
              parameters: tuple[str, ...] = ()) -> ast.stmt:  # fmt: skip
        outer, self._frame = self._frame, frame
        statements = build()
        self._frame = outer
        statements = frame.prologue(anchor) + statements
        made = _def(name, list(parameters), [*state.declarations(), *statements] or [ast.Pass()])
        return placed(made, anchor)

    def _prepare(self, state: "_State") -> None:
        """Sees to it that reading the state never fails."""
        for name in state.names:
            if name in self._locals and not self._has_value(name):
                self._frame.owner(name).begins_undefined.add(name)

    def _if(self, s: ast.If, after: Names, raised: Names) -> list[ast.stmt]:
        test = self._expression(s.test)
        self._define(bindings([s.test]).names)
        anchor = s.test
        bound = bindings([*s.body, *s.orelse])
        inside = self._live.before(s.body, after, raised) | self._live.before(
            s.orelse, after, raised
        )
        state = self._state(bound, inside, after)
        self._prepare(state)
        begin = self._defined
        functions, ends = [], []
        for name, block in (("if_body", s.body), ("else_body", s.orelse)):
            self._defined = begin
            frame = self._inner(state, bound)

            def build(block: Any = block) -> list[ast.stmt]:
                return self._block(block, after, raised) or [ast.Pass()]

            functions.append(self._body(self._fresh(name), frame, state, build, anchor))
            ends.append(self._defined)
        self._defined = _merge(*ends)
        accessors, get, set_ = state.accessors(anchor)
        call = _ag(
            "if_stmt", test, _name(functions[0].name), _name(functions[1].name), get, set_,
            _strings(state.labels()), ast.Constant(state.outputs()),
            ast.Constant(bool(getattr(s, "in_loop", False))),
        )  # fmt: skip
        return [*functions, *accessors, placed(ast.Expr(call), anchor)]

    def _while(self, s: ast.While, after: Names, raised: Names) -> list[ast.stmt]:
        anchor = s.test
        bound = bindings([*s.body, s.test])
        head = self._live.loop_head(s, after, raised)
        state = self._state(bound, head, after | head)
        self._prepare(state)
        begin = self._defined
        if begin is not _EVERYTHING:
            self._defined = begin - bound.deleted - bound.handlers
        at_test = self._defined
        value = self._expression(s.test)
        test_name, body_name = self._fresh("loop_test"), self._fresh("loop_body")
        returned = placed(ast.Return(value), anchor)
        test = placed(_def(test_name, [], [*state.declarations(), returned]), anchor)
        self._define(bindings([s.test]).names)
        frame = self._inner(state, bound)
        body = self._body(
            body_name, frame, state, lambda: self._block(s.body, head, raised), anchor
        )
        self._defined = at_test
        self._define(bindings([s.test]).names)
        accessors, get, set_ = state.accessors(anchor)
        call = _ag(
            "while_stmt", _name(test_name), _name(body_name), get, set_,
            _strings(state.labels()), self._options(s), self._growing(s),
        )  # fmt: skip
        return [test, body, *accessors, placed(ast.Expr(call), anchor)]

    def _for(self, s: ast.For, after: Names, raised: Names) -> list[ast.stmt]:
        anchor = s.iter
        iterated = self._expression(s.iter)
        bound = bindings([*s.body, s.target])
        head = self._live.loop_head(s, after, raised)
        state = self._state(bound, head, after | head)
        self._prepare(state)
        begin = self._defined
        if begin is not _EVERYTHING:
            self._defined = begin - bound.deleted - bound.handlers
        at_head = self._defined
        extra: ast.expr = ast.Constant(None)
        out: list[ast.stmt] = []
        if s.extra_test is not None:
            extra_name = self._fresh("loop_test")
            returned = placed(ast.Return(self._expression(s.extra_test)), anchor)
            out.append(placed(_def(extra_name, [], [returned]), anchor))
            extra = _name(extra_name)
        item, body_name = self._fresh("item"), self._fresh("loop_body")
        frame = self._inner(state, bound)

        def build() -> list[ast.stmt]:
            take = ast.Assign([self._expression(s.target)], _name(item))
            self._define(bindings([s.target]).names)
            return [placed(take, s.target), *self._block(s.body, head, raised)]

        out.append(self._body(body_name, frame, state, build, anchor, (item,)))
        self._defined = at_head
        accessors, get, set_ = state.accessors(anchor)
        target = s.target.id if isinstance(s.target, ast.Name) else ""
        call = _ag(
            "for_stmt", iterated, extra, _name(body_name), get, set_,
            _strings(state.labels()), self._options(s), ast.Constant(target), self._growing(s),
        )  # fmt: skip
        return [*out, *accessors, placed(ast.Expr(call), anchor)]

    def _growing(self, s: Any) -> ast.expr:
        """The names that a loop's body appends to."""
        return _strings(sorted({n for n in map(_appended_to, statements_in(s.body)) if n}))

    def _options(self, s: Any) -> ast.expr:
        """A function of what set_loop_options was called with; None without such a call."""
        if not s.options:
            return ast.Constant(None)
        call = self._expression(s.options[-1])
        # The call has become ag__.call(set_loop_options)(...): its arguments are wanted.
        call.func = ast.Attribute(_name("ag__"), "loop_options", ast.Load())
        return placed(_thunk(call), call)

    # Expressions.

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if isinstance(node.ctx, ast.Load) and not self._has_value(node.id):
            return placed(_ag("ld", node), node)
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        arguments = self._defaults(node.args)
        if is_left_alone(node):
            return node
        made = _Function(node, self, self._unsure_inside(), self._lists).run()
        made.args = arguments
        return made

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if _is_super(node):
            return self._explicit_super(node)
        node.args = [self.visit(a) for a in node.args]
        node.keywords = [self.visit(k) for k in node.keywords]
        if _is_operator(node.func):
            node.args = [self.visit(a) for a in node.args]
            return node
        if isinstance(node.func, ast.Name) and node.func.id in ("locals", "vars", "eval", "exec"):
            node.func = self.visit(node.func)
            return node
        node.func = placed(_ag("call", self.visit(node.func)), node.func)
        return node

    def _explicit_super(self, node: ast.Call) -> ast.AST:
        function: _Function | None = self
        while function is not None and not function._parameters:
            function = function._outer
        if function is None:
            return node
        node.args = [_name("__class__"), _name(function._parameters[0])]
        return placed(node, node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        values = [self.visit(value) for value in node.values]
        if _binds(node):
            node.values = values
            return node
        name = "and_" if isinstance(node.op, ast.And) else "or_"
        lazy = [placed(_thunk(value), value) for value in values[1:]]
        return placed(_ag(name, values[0], *lazy), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Not):
            return placed(_ag("not_", node.operand), node)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        binds = _binds(node)
        self.generic_visit(node)
        if len(node.ops) == 1 and isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
            name = "eq" if isinstance(node.ops[0], ast.Eq) else "not_eq"
            return placed(_ag(name, node.left, node.comparators[0]), node)
        if len(node.ops) == 1 or binds:
            return node
        names = ast.Tuple([ast.Constant(type(op).__name__) for op in node.ops], ast.Load())
        lazy = [placed(_thunk(value), value) for value in node.comparators]
        return placed(_ag("compare", names, node.left, *lazy), node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        text = ast.unparse(node)
        binds = _binds(node)
        self.generic_visit(node)
        if binds:
            return node
        chosen = [placed(_thunk(value), value) for value in (node.body, node.orelse)]
        return placed(_ag("if_exp", node.test, *chosen, ast.Constant(text)), node)

    def _comprehension(self, node: Any) -> ast.AST:
        names: set[str] = set()
        for generator in node.generators:
            names |= {n.id for n in ast.walk(generator.target) if isinstance(n, ast.Name)}
        first = node.generators[0]
        first.iter = self.visit(first.iter)
        self._shadowed.append(names)
        for generator in node.generators:
            if generator is not first:
                generator.iter = self.visit(generator.iter)
            generator.ifs = [self.visit(test) for test in generator.ifs]
        for field in ("elt", "key", "value"):
            if hasattr(node, field):
                setattr(node, field, self.visit(getattr(node, field)))
        self._shadowed.pop()
        return node

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension


def _is_append(node: Any) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "append"
        and isinstance(node.func.value, ast.Name)
        and len(node.args) == 1
        and not isinstance(node.args[0], ast.Starred)
        and not node.keywords
    )


def _appended_to(s: ast.stmt) -> str | None:
    """The name x of a statement `x = ag__.append(x, value)`."""
    value = s.value if isinstance(s, ast.Assign) else None
    if isinstance(value, ast.Call) and _is_operator(value.func) and value.func.attr == "append":
        return value.args[0].id
    return None


def _is_text(s: ast.stmt) -> bool:
    return (
        isinstance(s, ast.Expr)
        and isinstance(s.value, ast.Constant)
        and isinstance(s.value.value, str)
    )


def _binds(node: ast.AST) -> bool:
    """Whether an expression binds names (`:=`), which a lambda would keep to itself."""
    return any(isinstance(inner, ast.NamedExpr) for inner in ast.walk(node))


def _is_super(node: ast.Call) -> bool:
    called = isinstance(node.func, ast.Name) and node.func.id == "super"
    return called and not node.args and not node.keywords


def _is_operator(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "ag__"
    )


def _roots(node: ast.expr) -> set[str]:
    """The names that a composite is made of."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


class _State:
    """What a branch or a loop changes: names, and composites such as `self.x`."""

    def __init__(
        self, function: _Function, names: set[str], composites: dict[str, ast.expr], before: Names,
        after: Names,
    ):  # fmt: skip
        inputs = {name for name in names if name not in after}
        self._outputs = sorted(names - inputs)
        self._inputs = sorted(inputs)
        self._composites = {text: composites[text] for text in sorted(composites)}
        self._function = function
        self.names = names

    def labels(self) -> list[str]:
        """What messages call them, those first that are needed afterwards."""
        return [*self._outputs, *self._composites, *self._inputs]

    def outputs(self) -> int:
        """How many are needed afterwards."""
        return len(self._outputs) + len(self._composites)

    def declarations(self) -> list[ast.stmt]:
        """`nonlocal` and `global` for functions that bind the names."""
        f = self._function
        outer = sorted(name for name in self.names if name not in f._globals)
        everywhere = sorted(name for name in self.names if name in f._globals)
        out: list[ast.stmt] = []
        if outer:
            out.append(ast.Nonlocal(outer))
        if everywhere:
            out.append(ast.Global(everywhere))
        return out

    def accessors(self, anchor: ast.AST) -> tuple[list[ast.stmt], ast.expr, ast.expr]:
        """The functions that read and set the state, and expressions for them."""
        f = self._function
        if not self.labels():
            return [], ast.Constant(None), ast.Constant(None)
        get_name, set_name = f._fresh("get_state"), f._fresh("set_state")
        values, targets, sets = [], [], []
        for name in [*self._outputs, *self._composites, *self._inputs]:
            if name in self._composites:
                target = self._composites[name]
                read = _ag("ldu", _thunk(_loaded(target)), ast.Constant(name))
                new = f._fresh("value")
                targets.append(ast.Name(new, ast.Store()))
                store = ast.Assign([copy.deepcopy(target)], _name(new))
                sets.append(ast.If(_ag("is_undefined", _name(new)), [_removal(target)], [store]))
                values.append(read)
                continue
            read = _name(name)
            if name not in f._locals or name in f._handlers:
                read = _ag("ldu", _thunk(_name(name)), ast.Constant(name))
            values.append(read)
            targets.append(ast.Name(name, ast.Store()))
        state = ast.Tuple(values, ast.Load())
        get = _def(get_name, [], [ast.Return(state)])
        given = f._fresh("state")
        unpack = ast.Assign([ast.Tuple(targets, ast.Store())], _name(given))
        set_ = _def(set_name, [given], [*self.declarations(), unpack, *sets])
        made = [placed(function, anchor) for function in (get, set_)]
        return made, _name(get_name), _name(set_name)


def _removal(target: ast.expr) -> ast.stmt:
    """Deletes an attribute or element, which may be gone already."""
    node = copy.deepcopy(target)
    node.ctx = ast.Del()
    errors = [_name(name) for name in ("AttributeError", "LookupError", "TypeError")]
    handler = ast.ExceptHandler(ast.Tuple(errors, ast.Load()), None, [ast.Pass()])
    return ast.Try([ast.Delete([node])], [handler], [], [])


def _loaded(target: ast.expr) -> ast.expr:
    node = copy.deepcopy(target)
    node.ctx = ast.Load()
    return node
