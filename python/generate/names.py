"""names.py SOURCES FOLDER: collects the public names that the sources declare with export(...).

Writes FOLDER/_names.py: {path below millrace.compat.v1: "module:attribute"}. Sources are read, not
imported. A name that is declared twice is an error.
"""

import ast
import sys
from pathlib import Path


def exported(node: ast.AST) -> list[str]:
    """The names in a call of export("a", "b"); none for any other node."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        return []
    if node.func.id != "export":
        return []
    names = []
    for arg in node.args:
        if not (isinstance(arg, ast.Constant) and isinstance(arg.value, str)):
            raise SystemExit(f"line {node.lineno}: export takes string literals")
        names.append(arg.value)
    return names


def names_of(tree: ast.Module) -> list[tuple[str, str]]:
    """[(public name, attribute of the module)]."""
    out = []
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            for decorator in node.decorator_list:
                out += [(name, node.name) for name in exported(decorator)]
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Call):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for name in exported(node.value.func):
                out.append((name, targets[0].id))
    return out


def main() -> None:
    sources, folder = Path(sys.argv[1]), Path(sys.argv[2])
    table: dict[str, str] = {}
    for path in sorted(sources.rglob("*.py")):
        module = ".".join(("millrace", *path.relative_to(sources).with_suffix("").parts))
        module = module.removesuffix(".__init__")
        for name, attribute in names_of(ast.parse(path.read_text(), str(path))):
            target = f"{module}:{attribute}"
            if name in table and table[name] != target:
                raise SystemExit(f"{name} is both {table[name]} and {target}")
            table[name] = target
    lines = [f"    {name!r}: {target!r},\n" for name, target in sorted(table.items())]
    text = '"""The public names. Collected from the sources: do not edit."""\n\nNAMES = {\n'
    (folder / "_names.py").write_text(text + "".join(lines) + "}\n")


if __name__ == "__main__":
    main()
