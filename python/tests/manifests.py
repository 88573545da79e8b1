"""Reads Kubernetes manifests: the part of YAML that those of deploy/kubernetes are written in."""

import json
import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"


def read(name):
    """The objects in a file. ValueError for a line of another form."""
    documents = re.split(r"^---$", (FOLDER / name).read_text(), flags=re.MULTILINE)
    return [_block(_lines(document)) for document in documents]


def _lines(document):
    """[(indentation, text)] without comments and empty lines."""
    lines = [line for line in document.splitlines() if not re.match(r"\s*(#|$)", line)]
    return [(len(line) - len(line.lstrip()), line.strip()) for line in lines]


def _block(lines):
    """The value of lines that stand at one indentation, with what is below them."""
    if not lines:
        raise ValueError("expected a value, got nothing")
    own = lines[0][0]
    starts = [i for i, (indent, _) in enumerate(lines) if indent == own]
    if any(indent < own for indent, _ in lines):
        raise ValueError(f"indentation of {lines}")
    parts = [lines[a:b] for a, b in zip(starts, [*starts[1:], len(lines)], strict=True)]
    if all(text.startswith("- ") for (_, text), *_ in parts):
        return [_item(part) for part in parts]
    out = {}
    for (_, text), *below in parts:
        match = re.fullmatch(r"([\w./-]+):(?: (.+))?", text)
        if not match or match[1] in out or bool(match[2]) == bool(below):
            raise ValueError(f"expected a key of its own with a value, got {text!r}")
        out[match[1]] = _scalar(match[2]) if match[2] else _block(below)
    return out


def _item(part):
    (indent, text), *below = part
    text = text[2:]
    if not below and not re.match(r"[\w./-]+:( |$)", text):
        return _scalar(text)
    return _block([(indent + 2, text), *below])


def _scalar(text):
    if text[0] in '"[':
        return json.loads(text)
    if re.fullmatch(r"-?[0-9]+", text):
        return int(text)
    if text in ("true", "false"):
        return text == "true"
    if not re.fullmatch(r"[A-Za-z0-9/][\w ./:'\[\]-]*", text):
        raise ValueError(f"expected a plain value, got {text!r}")
    return text
