"""Which names parts of a syntax tree read and bind, and which names' values are needed later."""

import ast
from typing import Any, Iterable

Names = frozenset[str]
NONE: Names = frozenset()

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def parameters(arguments: ast.arguments) -> list[str]:
    """The names of a function's parameters."""
    a = arguments
    extra = [x for x in (a.vararg, a.kwarg) if x is not None]
    return [x.arg for x in [*a.posonlyargs, *a.args, *a.kwonlyargs, *extra]]


def statements_in(body: Iterable[ast.stmt]) -> Iterable[ast.stmt]:
    """All statements of a block and of the blocks in it, but not of functions and classes."""
    for statement in body:
        yield statement
        if isinstance(statement, _SCOPES):
            continue
        for block in blocks_of(statement):
            yield from statements_in(block)


def blocks_of(statement: ast.stmt) -> list[list[ast.stmt]]:
    """The blocks of a compound statement."""
    found = [getattr(statement, field, None) for field in ("body", "orelse", "finalbody")]
    blocks = [block for block in found if isinstance(block, list)]
    blocks += [handler.body for handler in getattr(statement, "handlers", ())]
    blocks += [case.body for case in getattr(statement, "cases", ())]
    return blocks


def composite(node: ast.AST) -> str | None:
    """The text of `a.b`, `a['b']` or `a[i]`, chains that begin with a name; None for others."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = composite(node.value)
        return None if base is None else f"{base}.{node.attr}"
    if isinstance(node, ast.Subscript):
        base = composite(node.value)
        index = node.slice
        if base is None:
            return None
        if isinstance(index, ast.Constant):
            return f"{base}[{index.value!r}]"
        if isinstance(index, ast.Name):
            return f"{base}[{index.id}]"
    return None


class Bindings:
    """What statements bind: names, and composites (`a.b`, `a[0]`) by their text."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.composites: dict[str, ast.expr] = {}
        self.handlers: set[str] = set()  # names of `except ... as name`
        self.deleted: set[str] = set()

    def add_all(self, body: Iterable[ast.AST]) -> "Bindings":
        """Adds what the statements or expressions bind, those in inner blocks as well."""
        for node in body:
            self._visit(node)
        return self

    def _visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            self.names.add(node.id)
            if isinstance(node.ctx, ast.Del):
                self.deleted.add(node.id)
        elif isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, ast.Store):
            text = composite(node)
            if text is not None:
                self.composites.setdefault(text, node)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            self.names.add(node.name)
            for decorator in node.decorator_list:
                self._visit(decorator)
            return
        elif isinstance(node, ast.Lambda):
            return
        elif isinstance(node, _COMPREHENSIONS):
            for inner in ast.walk(node):
                if isinstance(inner, ast.NamedExpr):
                    self.names.add(inner.target.id)
            return
        elif isinstance(node, ast.ExceptHandler) and node.name:
            self.names.add(node.name)
            self.handlers.add(node.name)
        elif isinstance(node, ast.alias):
            self.names.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name:
            self.names.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            self.names.add(node.rest)
        for child in ast.iter_child_nodes(node):
            self._visit(child)


def bindings(body: Iterable[ast.AST]) -> Bindings:
    """What statements or expressions bind in the scope that they stand in."""
    return Bindings().add_all(body)


def declared(body: Iterable[ast.stmt]) -> tuple[set[str], set[str]]:
    """The names that `global` and `nonlocal` statements of a function's body name."""
    everywhere: set[str] = set()
    outer: set[str] = set()
    for statement in statements_in(body):
        if isinstance(statement, ast.Global):
            everywhere.update(statement.names)
        elif isinstance(statement, ast.Nonlocal):
            outer.update(statement.names)
    return everywhere, outer


def free_names(node: Any) -> set[str]:
    """The names that a function, lambda, class or comprehension takes from around it."""
    if isinstance(node, ast.Lambda):
        inner: list[ast.AST] = [node.body]
        own = set(parameters(node.args)) | bindings(inner).names
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        inner = list(node.body)
        everywhere, outer = declared(node.body)
        own = (set(parameters(node.args)) | bindings(inner).names) - everywhere - outer
        own |= everywhere
    elif isinstance(node, ast.ClassDef):
        inner, own = list(node.body), set()
    else:
        inner = list(ast.iter_child_nodes(node))
        own = {
            name.id
            for generator in node.generators
            for name in ast.walk(generator.target)
            if isinstance(name, ast.Name)
        }
    found: set[str] = set()
    for part in inner:
        found |= reads(part)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        found |= declared(node.body)[1]
    return found - own


def reads(node: ast.AST) -> set[str]:
    """The names that evaluating a node reads, free names of functions made in it among them."""
    if isinstance(node, ast.Name):
        return set() if isinstance(node.ctx, ast.Store) else {node.id}
    if isinstance(node, _SCOPES):
        found = free_names(node)
        for outside in _evaluated_outside(node):
            found |= reads(outside)
        return found
    if isinstance(node, _COMPREHENSIONS):
        return free_names(node)
    found = set()
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        found.add(node.target.id)
    for child in ast.iter_child_nodes(node):
        found |= reads(child)
    return found


def _evaluated_outside(node: Any) -> list[ast.AST]:
    """What the definition of a function or class evaluates at once."""
    if isinstance(node, ast.ClassDef):
        return [*node.bases, *(k.value for k in node.keywords), *node.decorator_list]
    outside = [*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]
    return outside + list(getattr(node, "decorator_list", ()))


class Liveness:
    """Which names' values are needed at places of a function whose `break`, `continue` and
    `return` in control flow are gone.

    `closures`: for local functions and lambdas that have a name, the names that they read.
    """

    def __init__(self, body: list[ast.stmt]):
        everywhere, outer = declared(body)
        self._kept = frozenset(everywhere | outer)  # somebody else reads them
        self._closures: dict[str, set[str]] = {}
        self._memo: dict[Any, Names] = {}
        for statement in statements_in(body):
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self._closures.setdefault(statement.name, set()).update(free_names(statement))
            elif isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Lambda):
                for target in statement.targets:
                    if isinstance(target, ast.Name):
                        self._closures.setdefault(target.id, set()).update(
                            free_names(statement.value)
                        )

    def at_end(self) -> Names:
        """What is needed after the function's last statement."""
        return self._kept

    def reads(self, *nodes: ast.AST | None) -> Names:
        """The names that the nodes read, those that functions called by name read among them."""
        todo = [name for node in nodes if node is not None for name in reads(node)]
        found: set[str] = set()
        while todo:
            name = todo.pop()
            if name not in found:
                found.add(name)
                todo += self._closures.get(name, ())
        return frozenset(found)

    def before(self, body: list[ast.stmt], after: Names, raised: Names = NONE) -> Names:
        """What is needed before a block, after which `after` is, and `raised` where it raises."""
        for statement in reversed(body):
            after = self.before_one(statement, after, raised)
        return after

    def before_one(self, s: ast.stmt, after: Names, raised: Names = NONE) -> Names:
        """The same for a statement."""
        key = (id(s), after, raised)
        known = self._memo.get(key)
        if known is None:
            known = self._memo[key] = self._before(s, after, raised) | raised
        return known

    def _before(self, s: Any, after: Names, raised: Names) -> Names:
        if isinstance(s, ast.If):
            either = self.before(s.body, after, raised) | self.before(s.orelse, after, raised)
            return self.reads(s.test) | (either - bindings([s.test]).names)
        if isinstance(s, (ast.While, ast.For)):
            return self._before_loop(s, after, raised)
        if isinstance(s, ast.With):
            inner = self.before(s.body, after, raised | after)
            return (inner - bindings(s.items).names) | self.reads(*s.items)
        if isinstance(s, ast.Try):
            return self._before_try(s, after, raised)
        if isinstance(s, ast.Match):
            found = after
            for case in s.cases:
                inner = self.before(case.body, after, raised)
                found |= (inner - bindings([case.pattern]).names) | self.reads(
                    case.pattern, case.guard
                )
            return found | self.reads(s.subject)
        if isinstance(s, ast.Return):
            return self.reads(s.value) | self._kept
        if isinstance(s, ast.Raise):
            return self.reads(s) | self._kept
        return (after - bindings([s]).names) | self.reads(s)

    def loop_head(self, s: Any, after: Names, raised: Names) -> Names:
        """What is needed where an iteration of a loop begins or the loop ends."""
        head = after
        extra = getattr(s, "extra_test", None)
        head |= self.reads(s.test if isinstance(s, ast.While) else None, extra)
        target = bindings([s.target]).names if isinstance(s, ast.For) else NONE
        while True:
            inner = self.before(s.body, head, raised) - target
            if isinstance(s, ast.For):
                inner |= self.reads(s.target)
            if inner <= head:
                return head
            head |= inner

    def _before_loop(self, s: Any, after: Names, raised: Names) -> Names:
        head = self.loop_head(s, after, raised)
        return head | self.reads(s.iter) if isinstance(s, ast.For) else head

    def _before_try(self, s: ast.Try, after: Names, raised: Names) -> Names:
        last = self.before(s.finalbody, after, raised)
        escaping = raised | (self.before(s.finalbody, raised, raised) if s.finalbody else NONE)
        caught = escaping
        for handler in s.handlers:
            inner = self.before(handler.body, last, escaping)
            caught |= (inner - {handler.name}) | self.reads(handler.type)
        return self.before(s.body, self.before(s.orelse, last, escaping), caught)
