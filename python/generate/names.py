"""names.py SOURCES FOLDER: collects the public names that the sources declare with export(...).

Writes FOLDER/_names.py, with a table for each face, {path below it: "module:attribute"}: V1 for
millrace.compat.v1, V2 for millrace. Writes also a stub for each namespace of V1, so that editors
and type checkers see what is loaded late. Sources are read, not imported. A name that is declared
twice is an error, and so is a module below compat/v1 with the path of a name or a namespace: the
one would hide the other.
"""

import ast
import sys
from pathlib import Path


def exported(node: ast.AST) -> list[tuple[str, str]]:
    """[(face, name)] in a call of export(v1="a", v2=("a", "b")); none for any other node."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        return []
    if node.func.id != "export":
        return []
    out = []
    if node.args or not all(keyword.arg in FACES for keyword in node.keywords):
        raise SystemExit(f"line {node.lineno}: write export(v1=..., v2=...)")
    for keyword in node.keywords:
        value = keyword.value
        for name in value.elts if isinstance(value, ast.Tuple) else [value]:
            if not (isinstance(name, ast.Constant) and isinstance(name.value, str)):
                raise SystemExit(f"line {node.lineno}: export takes string literals")
            out.append((keyword.arg, name.value))
    return out


def names_of(tree: ast.Module) -> list[tuple[tuple[str, str], str]]:
    """[((face, public name), attribute of the module)]."""
    out = []
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            for decorator in node.decorator_list:
                out += [(name, node.name) for name in exported(decorator)]
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Call):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for name in exported(node.value.func):
                out.append((name, targets[0].id))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            out += [(name, node.value.args[0].id) for name in exported(node.value.func)]
    return out


FACES = ("v1", "v2")
STUB = '"""Names of {name}. Collected from the sources: do not edit."""\n\n'


def write_stubs(table: dict[str, str], folder: Path) -> None:
    """An __init__.pyi per namespace below compat/v1."""
    spaces: dict[str, dict[str, str]] = {"": {}}
    for path, target in table.items():
        space, _, name = path.rpartition(".")
        spaces.setdefault(space, {})[name] = target
        while space:  # namespaces that hold only namespaces
            space = space.rpartition(".")[0]
            spaces.setdefault(space, {})
    for space, names in spaces.items():
        lines = []
        below = {s[len(space) + 1 if space else 0 :] for s in spaces if s and s != space}
        inner = sorted(
            s
            for s in below
            if "." not in s and (f"{space}.{s}" if space else s) in spaces and s not in names
        )
        for name in inner:
            lines.append(f"from . import {name} as {name}\n")
        if not space:
            lines.append("from millrace import raw_ops as raw_ops\n")
        for name, target in sorted(names.items()):
            module, _, attribute = target.partition(":")
            if attribute == name:
                lines.append(f"from {module} import {name} as {name}\n")
            else:  # `as` with another name would keep it private
                lines.append(f"from {module} import {attribute} as _{name}\n{name} = _{name}\n")
        if not space:
            lines.append(
                "\n__version__: str\nVERSION: str\nGIT_VERSION: str\nCOMPILER_VERSION: str\n"
            )
        where = (
            folder / "compat" / "v1" / Path(*space.split("."))
            if space
            else folder / "compat" / "v1"
        )
        where.mkdir(parents=True, exist_ok=True)
        text = STUB.format(name="millrace.compat.v1" + (f".{space}" if space else ""))
        (where / "__init__.pyi").write_text(text + "".join(lines))


def check_modules(table: dict[str, str], face: Path) -> None:
    """Refuses modules of the face that would hide a name or a namespace."""
    spaces = {path[:i] for path in table for i, letter in enumerate(path) if letter == "."}
    for path in sorted(face.rglob("*.py")):
        below = path.relative_to(face).with_suffix("")
        name = ".".join(below.parent.parts if below.name == "__init__" else below.parts)
        if name in table or name in spaces:
            raise SystemExit(f"{path}: tf.{name} is a public name or namespace")


def main() -> None:
    sources, folder = Path(sys.argv[1]), Path(sys.argv[2])
    tables: dict[str, dict[str, str]] = {face: {} for face in FACES}
    for path in sorted(sources.rglob("*.py")):
        module = ".".join(("millrace", *path.relative_to(sources).with_suffix("").parts))
        module = module.removesuffix(".__init__")
        for (face, name), attribute in names_of(ast.parse(path.read_text(), str(path))):
            target = f"{module}:{attribute}"
            known = tables[face].setdefault(name, target)
            if known != target:
                raise SystemExit(f"{name} of {face} is both {known} and {target}")
    check_modules(tables["v1"], sources / "compat" / "v1")
    text = '"""The public names. Collected from the sources: do not edit."""\n'
    for face, table in tables.items():
        lines = [f"    {name!r}: {target!r},\n" for name, target in sorted(table.items())]
        text += f"\n{face.upper()} = {{\n{''.join(lines)}}}\n"
    (folder / "_names.py").write_text(text)
    write_stubs(tables["v1"], folder)


if __name__ == "__main__":
    main()
