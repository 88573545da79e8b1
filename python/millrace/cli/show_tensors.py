"""Shows tensors of checkpoints and safetensors files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from millrace.cli.command import count, matches, size, write_json, write_table
from millrace.cli.kinds import Found
from millrace.cli.statistics import statistics
from millrace.cli.tensors import Entry, Tensors
from millrace.core.text import printable

_FIGURES = ("min", "max", "mean", "std", "nan", "inf")


def show(found: Found, options: Any) -> int:
    """Prints what `millrace inspect` was asked about a file of tensors."""
    tensors = Tensors(found.path)
    if options.values:
        chosen = [tensors.entry(name.removesuffix(":0")) for name in options.values]
        values = {each.name: (entry_text(each), tensors.read(each.name)) for each in chosen}
        print_values(values, options.json)
    elif options.json:
        write_json({"kind": found.kind, "path": found.path, **describe(tensors, options)})
    else:
        show_entries(found.kind, tensors, options)
    return 0


def show_entries(kind: str, tensors: Tensors, options: Any) -> None:
    """A line for each tensor, and their sum."""
    entries = [each for each in tensors.entries if matches(options.grep, each.name)]
    print(f"{kind} {printable(tensors.path)}")
    header = ["name", "dtype", "shape", "bytes"]
    plain = [_cells(each) for each in entries]
    widths = [max(map(len, column)) for column in zip(header, *plain, strict=True)]
    widths[3] = -widths[3]
    if options.stats:
        header += _FIGURES
        widths += [-11, -11, -11, -11, -6, -6]
    write_table(header, _rows(tensors, entries, plain, options.stats), widths)
    known = sum(each.bytes or 0 for each in entries)
    strings = sum(each.bytes is None for each in entries)
    more = f" and those of {count(strings, 'tensor')} of strings" if strings else ""
    elements = count(sum(each.elements for each in entries), "element")
    print(f"{count(len(entries), 'tensor')}, {elements}, {size(known)}{more}")


def _cells(entry: Entry) -> list[str]:
    number = "-" if entry.bytes is None else str(entry.bytes)
    return [printable(entry.name), entry.dtype.name, shape_text(entry.shape), number]


def _rows(
    tensors: Tensors, entries: list[Entry], plain: list[list[str]], with_statistics: bool
) -> Iterator[list[str]]:
    for entry, cells in zip(entries, plain, strict=True):
        figures: list[str] = []
        if with_statistics:
            found = statistics(tensors.read(entry.name))
            figures = [_figure(found[name]) for name in _FIGURES]
        yield cells + figures


def _figure(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.5g}" if isinstance(value, float) else str(int(value))


def shape_text(shape: Any) -> str:
    """ "[2,3]"; "[?,3]" where a size is not known."""
    return "[" + ",".join("?" if dim is None or dim < 0 else str(dim) for dim in shape) + "]"


def describe(tensors: Tensors, options: Any) -> dict[str, Any]:
    """The same for machines."""
    rows = []
    for entry in tensors.entries:
        if not matches(options.grep, entry.name):
            continue
        row: dict[str, Any] = {
            "name": entry.name, "dtype": entry.dtype.name, "shape": entry.shape,
            "bytes": entry.bytes,
        }  # fmt: skip
        if options.stats:
            row["statistics"] = statistics(tensors.read(entry.name))
        rows.append(row)
    return {"tensors": rows, "bytes": sum(row["bytes"] or 0 for row in rows)}


def entry_text(entry: Entry) -> str:
    """A tensor in one line."""
    return f"{printable(entry.name)}  {entry.dtype.name}  {shape_text(entry.shape)}"


def print_values(values: dict[str, tuple[str, np.ndarray]], as_json: bool) -> None:
    """Prints {name: (a line about it, elements)}; of many elements the first and last ones, but all
    of them as JSON."""
    if as_json:
        write_json({name: array.tolist() for name, (_, array) in values.items()})
        return
    for text, array in values.values():
        print(text)
        print(np.array2string(array, max_line_width=100))
