"""The text of the Python functions of ops, from what the registry says of them.

Used when the package is built, for the ops that it has, and at run time for those of op libraries.
"""

import keyword
import re

PYTHON_TYPES = {
    "int": "int",
    "float": "float",
    "bool": "bool",
    "string": "str",
    "type": "DTypeLike",
    "shape": "ShapeLike",
    "tensor": "Any",
    "func": "Any",
}


def snake_case(name: str) -> str:
    """MatMul -> mat_mul, LRNGrad -> lrn_grad, Conv2D -> conv2d, RGBToHSV -> rgb_to_hsv."""
    out = ""
    for i, c in enumerate(name):
        after_lower = i and name[i - 1].islower()
        before_lower = i + 1 < len(name) and name[i + 1].islower()
        if c.isupper() and i and (after_lower or before_lower) and not out.endswith("_"):
            out += "_"
        out += c.lower()
    return out


def argument(name: str) -> str:
    return name + "_" if keyword.iskeyword(name) else name


def default_text(attr) -> str:
    value, kind = attr["default"], attr["type"]
    if kind == "string":
        return repr(value.decode("utf-8", "backslashreplace"))
    if kind == "list(string)":
        return repr([v.decode("utf-8", "backslashreplace") for v in value])
    if kind == "float":
        return repr(float(f"{value:.9g}"))
    if kind == "list(float)":
        return repr([float(f"{v:.9g}") for v in value])
    if kind in ("int", "bool", "list(int)", "list(bool)"):
        return repr(value)
    return "None"  # types, shapes, tensors: the definition's own default


def default_note(attr) -> str:
    value, kind = attr["default"], attr["type"]
    if not attr["has_default"] or default_text(attr) != "None":
        return ""
    if kind in ("type", "list(type)"):
        names = ", ".join(value) if isinstance(value, list) else value
        return f" Defaults to {names}." if names else ""
    return ""


class Op:
    """What is written about one op."""

    def __init__(self, described):
        self.name = described["name"]
        self.function = argument(snake_case(self.name.lstrip("_")))
        self.inputs = described["inputs"]
        self.outputs = described["outputs"]
        self.doc = described["doc"]
        inferred = set()
        for arg in self.inputs:
            inferred |= {arg["type_attr"], arg["type_list_attr"], arg["number_attr"]}
        given = [a for a in described["attrs"] if a["name"] not in inferred]
        self.attrs = [a for a in given if not a["has_default"]] + [
            a for a in given if a["has_default"]
        ]
        self.types = {a["name"]: a["allowed_types"] for a in described["attrs"]}

    def parameters(self, typed: bool) -> str:
        parts = []
        for arg in self.inputs:
            is_list = arg["number_attr"] or arg["type_list_attr"]
            note = (": Sequence[TensorLike]" if is_list else ": TensorLike") if typed else ""
            parts.append(argument(arg["name"]) + note)
        for attr in self.attrs:
            text = argument(attr["name"])
            if typed:
                text += ": " + self.attr_type(attr)
            if attr["has_default"]:
                text += (" = " if typed else "=") + default_text(attr)
            parts.append(text)
        parts.append("name: str | None = None" if typed else "name=None")
        return ", ".join(parts)

    @staticmethod
    def attr_type(attr) -> str:
        match = re.fullmatch(r"list\((\w+)\)", attr["type"])
        base = PYTHON_TYPES[match.group(1) if match else attr["type"]]
        text = f"Sequence[{base}]" if match else base
        if attr["has_default"] and default_text(attr) == "None":
            text += " | None"
        return text

    def result_type(self) -> str:
        if not self.outputs:
            return "Operation"
        lists = [o["number_attr"] or o["type_list_attr"] for o in self.outputs]
        if len(self.outputs) == 1:
            return "list[Tensor]" if lists[0] else "Tensor"
        return "Any"

    def describe_type(self, arg) -> str:
        if arg["type_list_attr"]:
            return "a list of tensors"
        types = self.types.get(arg["type_attr"]) or []
        kind = arg["dtype"] or (", ".join(types) if 0 < len(types) <= 8 else "")
        what = "a list of tensors" if arg["number_attr"] else "a tensor"
        if arg["is_ref"]:
            what = "a variable"
        return what + (f" of type {kind}" if kind else "")

    def docstring(self) -> str:
        lines = [self.doc or f"The op {self.name}."]
        if self.inputs or self.attrs:
            lines += ["", "Args:"]
        for arg in self.inputs:
            note = f". {arg['doc']}" if arg["doc"] else "."
            lines.append(f"  {argument(arg['name'])}: {self.describe_type(arg)}{note}")
        for attr in self.attrs:
            allowed = attr["allowed_strings"]
            note = f", one of {', '.join(map(repr, allowed))}" if allowed else ""
            types = attr["allowed_types"]
            if types and len(types) <= 8:
                note = f", one of {', '.join(types)}"
            lines.append(f"  {argument(attr['name'])}: {attr['type']}{note}.{default_note(attr)}")
        if self.outputs:
            names = ", ".join(o["name"] for o in self.outputs)
            lines += ["", f"Returns: {names}." if len(self.outputs) > 1 else "Returns: the output."]
        text = "\n    ".join(line.replace("\\", "\\\\") for line in lines)
        return f'    """{text}\n    """' if len(lines) > 1 else f'    """{text}"""'

    def call(self) -> str:
        names = [argument(a["name"]) for a in self.inputs + self.attrs]
        return "(" + "".join(n + ", " for n in names).rstrip(" ") + ")" if names else "()"

    def source(self) -> str:
        """The function, which calls `_NAME(name, arguments)`."""
        return (
            f"def {self.function}({self.parameters(False)}):\n{self.docstring()}\n"
            f"    return _{self.function}(name, {self.call()})\n"
        )
