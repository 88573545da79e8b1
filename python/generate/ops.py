"""ops.py FOLDER: writes the Python functions of all ops into the package in FOLDER.

gen_ops.py has a function per op under its snake_case name, arguments by position or keyword;
raw_ops.py has every op under its own name, arguments by keyword only. Both come with .pyi stubs.
The extension module must lie in FOLDER.
"""

import importlib.util
import sys
from pathlib import Path


def load(name: str, path: Path):
    """A module of the package alone, without the package around it."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


op_functions = load(
    "op_functions", Path(__file__).parent.parent / "millrace" / "graph" / "op_functions.py"
)
argument = op_functions.argument


HEADER = '"""{doc} Generated from the op registry: do not edit."""\n\n'


def write_functions(ops, path: Path) -> None:
    out = [HEADER.format(doc="One function per op."), "from millrace._core import op as _op\n\n"]
    for op in ops:
        out.append(f'_{op.function} = _op("{op.name}")\n\n\n')
        out.append(op.source() + "\n\n")
    path.write_text("".join(out))


def write_raw(ops, path: Path) -> None:
    out = [HEADER.format(doc="Every op under its own name, by keyword.")]
    out.append("from millrace import gen_ops as _gen\n\n\n")
    for op in ops:
        out.append(f"def {op.name}(*, {op.parameters(False)}):\n")
        names = [argument(a["name"]) for a in op.inputs + op.attrs] + ["name"]
        out.append(f"    return _gen.{op.function}({', '.join(names)})\n\n\n")
        out.append(f"{op.name}.__doc__ = _gen.{op.function}.__doc__\n\n\n")
    path.write_text("".join(out))


def write_stub(ops, path: Path, raw: bool) -> None:
    out = [HEADER.format(doc="Signatures of the ops.")]
    out.append("from collections.abc import Sequence\nfrom typing import Any\n\n")
    out.append("from millrace.graph.operation import Operation\n")
    out.append("from millrace.core.tensor import Tensor\n")
    out.append("from millrace.graph.typing import DTypeLike, ShapeLike, TensorLike\n\n")
    for op in ops:
        name = op.name if raw else op.function
        star = "*, " if raw else ""
        head = f"def {name}({star}{op.parameters(True)}) -> {op.result_type()}:"
        # Editors show the texts of the public ones.
        out.append(f"{head}\n{op.docstring()}\n\n" if raw else f"{head} ...\n")
    path.write_text("".join(out))


def main() -> None:
    folder = Path(sys.argv[1])
    core = load("_core", next(p for p in folder.glob("_core*") if p.suffix == ".so"))
    ops = [op_functions.Op(core.describe_op(name)) for name in core.op_names()]
    seen = {}
    for op in ops:
        if op.function in seen:
            op.function += "_op"
        seen[op.function] = op
    write_functions(ops, folder / "gen_ops.py")
    write_raw([op for op in ops if not op.name.startswith("_")], folder / "raw_ops.py")
    write_stub(ops, folder / "gen_ops.pyi", raw=False)
    write_stub([op for op in ops if not op.name.startswith("_")], folder / "raw_ops.pyi", raw=True)


if __name__ == "__main__":
    main()
