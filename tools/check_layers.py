#!/usr/bin/env python3
"""Checks that folders form a ladder: code includes and imports downwards only.

For every source and header below millrace/:
  * an #include of "millrace/X/..." is allowed only if X is the file's own folder or one below it;
  * a quoted include is written from the repository's root, "millrace/..." or "proto/...";
  * generated protobuf headers are included from .cc files only;
  * code that is shipped does not include code that serves tests;
  * the headers everybody includes do not reach a costly one, directly or through another header.

Tests, benchmarks and fuzzers may include anything from millrace/.

For every module below python/millrace/:
  * an import of millrace.X is allowed only if X is the module's own folder or one below it; what
    the build generates counts as a folder;
  * modules at the top are entrances: they import anything, and nothing imports them;
  * an import inside a function ends with a comment "# late: REASON". It is for what is heavy and
    seldom needed; what would else be a circle has something that stands one step too high;
  * modules do not import each other in a circle, but for types under `if TYPE_CHECKING:`.
"""

import ast
import re
import sys
from pathlib import Path

# What a folder may include, together with everything those may include.
LADDER = {
    "base": [],
    "tensor": ["base"],
    "graph": ["tensor"],
    "io": ["tensor"],
    "kernel": ["graph"],
    "device": ["kernel"],
    "data": ["device", "io"],
    "ops": ["data"],
    "autodiff": ["graph"],
    "runtime": ["kernel", "autodiff"],
    "eager": ["kernel", "autodiff"],
    "session": ["runtime", "ops"],
    "distributed": ["session"],
    "api": ["session", "autodiff", "eager"],
    "capi": ["api"],
}

# The same for the folders of the Python package, and for the modules that are generated into it.
PYTHON_LADDER = {
    "_core": [],
    "_names": [],
    "gen_ops": ["_core"],
    "protos": ["_core"],
    "core": ["protos", "_names"],
    "graph": ["core", "gen_ops"],
    "eager": ["graph"],
    "ops": ["eager"],
    "autograph": ["ops"],
    "state": ["ops"],
    "io": ["ops"],
    "checkpoint": ["state", "io"],
    "saved_model": ["checkpoint"],
    "summary": ["checkpoint"],
    "data": ["checkpoint"],
    "train": ["summary", "data"],
    "distributed": ["train"],
    "feature_column": ["checkpoint"],
    "cli": ["saved_model", "distributed"],
    "raw_ops": ["gen_ops"],
    "compat": ["distributed", "saved_model", "raw_ops", "_names"],
    "estimator": ["compat", "feature_column"],
    "ray": ["compat"],
}
PYTHON_ENTRANCES = {"__init__.py", "__main__.py", "v1.py"}

LIGHT_HEADERS = [
    "millrace/base/status.h",
    "millrace/tensor/shape.h",
    "millrace/tensor/tensor.h",
    "millrace/kernel/kernel.h",
]
COSTLY_HEADERS = {"functional", "memory", "iostream", "mutex", "complex"}

SUFFIXES = {".h", ".cc", ".cu", ".cuh"}
TESTING = re.compile(r"_(test|testing|bench|fuzz)\.(h|cc|cu|cuh)$")
LATE = re.compile(r"# late: \S")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def reachable(folder, ladder=LADDER):
    """The folders that `folder` may include, itself among them."""
    seen = {folder}
    todo = [folder]
    while todo:
        for below in ladder[todo.pop()]:
            if below not in seen:
                seen.add(below)
                todo.append(below)
    return seen


def read_includes(path):
    """(line number, is quoted, name) for each #include of a file."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if match := INCLUDE.match(line):
            yield number, match[1] == '"', match[2]


def check_include(name, folder, quoted, included):
    """What is wrong with file `name` of `folder` including `included`; None if nothing is."""
    if included.endswith(".pb.h") and not name.endswith(".cc"):
        return f"{included}: generated protobuf headers are included from .cc files only"
    if not quoted or TESTING.search(name):
        return None
    if TESTING.search(included):
        return f"{included} serves tests; code that is shipped does not include it"
    if included.startswith("proto/"):
        return None
    parts = included.split("/")
    if parts[0] != "millrace" or len(parts) < 3 or ".." in parts:
        return f'"{included}": write it from the root, "millrace/{folder}/..."'
    allowed = reachable(folder)
    if parts[1] not in allowed:
        below = ", ".join(sorted(allowed - {folder})) or "nothing"
        return f"{included}: {folder} may include {below}, not {parts[1]}"
    return None


def check_light(root, header):
    """The ways from a light header to costly ones."""
    problems = []
    chain_to = {header: [header]}
    todo = [header]
    while todo:
        at = todo.pop()
        for number, quoted, included in read_includes(root / at):
            if not quoted and included in COSTLY_HEADERS:
                way = " -> ".join([*chain_to[at], f"<{included}>"])
                problems.append(f"{at}:{number}: {header} is to stay light: {way}")
            elif quoted and included not in chain_to and (root / included).is_file():
                chain_to[included] = [*chain_to[at], included]
                todo.append(included)
    return problems


def read_imports(path):
    """(line number, name) for each import of the package, the name as below millrace."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            yield node.lineno, "." * node.level
        elif isinstance(node, ast.ImportFrom) and node.module == "millrace":
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module]
            for name in names:
                if name.split(".")[0] == "millrace":
                    yield node.lineno, name.removeprefix("millrace").removeprefix(".")


def check_import(folder, imported):
    """What is wrong with a module of `folder` importing `imported`; None if nothing is."""
    if imported.startswith("."):
        return f"import {imported}: write it from the root, millrace.{folder}"
    allowed = reachable(folder, PYTHON_LADDER)
    if imported.split(".")[0] not in allowed:
        below = ", ".join(sorted(allowed - {folder}))
        return f"millrace.{imported}: {folder} may import {below}"
    return None


def unexplained_late_imports(path):
    """The lines of imports inside functions that do not say why they are there."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    late = {
        node.lineno
        for function in ast.walk(ast.parse(text))
        if isinstance(function, functions)
        for node in ast.walk(function)
        if isinstance(node, (ast.Import, ast.ImportFrom))
    }
    return sorted(number for number in late if not LATE.search(lines[number - 1]))


def loading_imports(tree):
    """The import statements that run when a module is loaded."""
    todo = list(tree.body)
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            todo += node.orelse
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            todo += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]


def find_circle(imports):
    """A list of modules of {module: the ones it imports}, each importing the next and the last the
    first; empty when there is none."""
    done, path = set(), []

    def visit(module):
        if module in path:
            return path[path.index(module) :]
        if module in done:
            return []
        path.append(module)
        for imported in sorted(imports[module]):
            if found := visit(imported):
                return found
        path.pop()
        done.add(module)
        return []

    return next((found for module in sorted(imports) if (found := visit(module))), [])


def check_circles(package):
    """The first circle of modules."""
    modules = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package.parent).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    imports = {module: set() for module in modules}
    for module, path in modules.items():
        for node in loading_imports(ast.parse(path.read_text(encoding="utf-8"))):
            source = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for name in (source + alias.name for alias in node.names):
                found = name if name in modules else name.rpartition(".")[0]
                if found in modules and found != module:
                    imports[module].add(found)
    circle = find_circle(imports)
    return [f"python/millrace: a circle of imports: {' -> '.join(circle)}"] if circle else []


def check_package(root):
    """The problems of the Python package."""
    package = root / "python" / "millrace"
    problems = check_circles(package)
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        inside = path.relative_to(package).parts
        for number in unexplained_late_imports(path):
            problems.append(
                f'{name}:{number}: an import inside a function; see "late" in the script'
            )
        if len(inside) == 1:
            if inside[0] not in PYTHON_ENTRANCES:
                problems.append(
                    f"{name}:1: a module stands in a folder of the ladder, not at the top"
                )
            continue
        if inside[0] not in PYTHON_LADDER:
            problems.append(f"{name}:1: folder {inside[0]} is not in the ladder of check_layers.py")
            continue
        for number, imported in read_imports(path):
            if problem := check_import(inside[0], imported):
                problems.append(f"{name}:{number}: {problem}")
    return problems


def check_tree(root):
    """The problems of the tree below `root`, as "file:line: what is wrong"."""
    problems = check_package(root)
    for path in sorted((root / "millrace").rglob("*")):
        if path.suffix not in SUFFIXES:
            continue
        name = path.relative_to(root).as_posix()
        folder = name.split("/")[1]
        if folder not in LADDER:
            problems.append(f"{name}:1: folder {folder} is not in the ladder of check_layers.py")
            continue
        for number, quoted, included in read_includes(path):
            if problem := check_include(name, folder, quoted, included):
                problems.append(f"{name}:{number}: {problem}")
    for header in LIGHT_HEADERS:
        if (root / header).is_file():
            problems += check_light(root, header)
    return problems


def main():
    problems = check_tree(Path(__file__).resolve().parent.parent)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
