"""`millrace convert`: checkpoints to safetensors files and back, one tensor at a time."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from millrace import _core
from millrace.checkpoint.saver_builder import RANDOM_STATE
from millrace.cli import command, kinds
from millrace.cli.tensors import Entry, Tensors
from millrace.core import dtypes
from millrace.core.text import printable

_ABOUT = """\
Writes the tensors of FROM to TO: a checkpoint to a file that ends in
.safetensors, or a safetensors file to a checkpoint of prefix TO. TO appears whole
or not at all.
"""


def main(arguments: list[str]) -> int:
    """Runs the command; gives its exit code."""
    parser = command.Parser("convert", _ABOUT)
    parser.add_argument("source", metavar="FROM")
    parser.add_argument("target", metavar="TO")
    parser.add_argument(
        "--grep", metavar="PATTERN", type=command.pattern,
        help="only tensors in whose names the regular expression is found",
    )  # fmt: skip
    parser.add_argument(
        "--drop-unsupported", action="store_true",
        help="leave tensors out whose type safetensors files have not: strings, quantised",
    )  # fmt: skip
    return command.run(parser, _convert, arguments)


def _convert(options: Any) -> int:
    found = kinds.find(options.source)
    if found.kind not in (kinds.CHECKPOINT, kinds.SAFETENSORS):
        raise command.CommandError(f"{options.source}: is no checkpoint and no safetensors file")
    to_safetensors = options.target.endswith(".safetensors")
    if to_safetensors == (found.kind == kinds.SAFETENSORS):
        raise command.CommandError(
            f"{options.source} is a {found.kind} already; the name of a safetensors file ends in "
            ".safetensors, that of a checkpoint does not"
        )
    tensors = Tensors(found.path)
    chosen = [each for each in tensors.entries if command.matches(options.grep, each.name)]
    if to_safetensors:
        chosen = _supported(chosen, options.drop_unsupported)
        _write_safetensors(tensors, chosen, options.target)
    else:
        _write_checkpoint(tensors, chosen, options.target)
    total = command.size(sum(each.bytes or 0 for each in chosen))
    print(f"{printable(options.target)}: {command.count(len(chosen), 'tensor')}, {total}")
    return 0


def _supported(entries: list[Entry], drop: bool) -> list[Entry]:
    # No tensor of the model, and of use to a resumed run alone.
    entries = [each for each in entries if not each.name.startswith(RANDOM_STATE)]
    others = [each for each in entries if not _core.safetensors_type(int(each.dtype))]
    if others and not drop:
        listed = ", ".join(f"{e.name} ({e.dtype.name})" for e in others[:5])
        more = f" and {len(others) - 5} more" if len(others) > 5 else ""
        raise command.CommandError(
            f"safetensors files have no type for {listed}{more}; --drop-unsupported leaves them out"
        )
    return [each for each in entries if _core.safetensors_type(int(each.dtype))]


def _elements(tensors: Tensors, entry: Entry) -> np.ndarray:
    """The elements of a tensor; of bfloat16 the bits, so that every one of them is kept."""
    array = tensors.read(entry.name)
    if entry.dtype == dtypes.bfloat16:
        return (array.view(np.uint32) >> 16).astype(np.uint16)
    return array


def _write_safetensors(tensors: Tensors, entries: list[Entry], path: str) -> None:
    by_name = {entry.name: entry for entry in entries}
    writer = _core.SafetensorsWriter(path, [(e.name, int(e.dtype), e.shape) for e in entries])
    try:
        for name in writer.order():
            writer.add(_elements(tensors, by_name[name]), int(by_name[name].dtype))
        writer.finish()
    finally:
        writer.abandon()


def _write_checkpoint(tensors: Tensors, entries: list[Entry], prefix: str) -> None:
    if os.path.isdir(prefix) or not os.path.basename(prefix):
        raise command.CommandError(f"{prefix}: is a folder, and no prefix of a checkpoint")
    writer = _core.CheckpointWriter(prefix)
    try:
        for entry in entries:
            writer.add(entry.name, _elements(tensors, entry), int(entry.dtype))
        writer.finish()
    finally:
        writer.abandon()
