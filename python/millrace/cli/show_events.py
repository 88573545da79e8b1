"""Shows event files: what TensorBoard would, as a table of tags."""

from __future__ import annotations

import time
from typing import Any

from millrace import protos
from millrace.cli.command import UntilDamage, count, matches, write_json, write_table
from millrace.cli.kinds import Found
from millrace.core.text import printable
from millrace.graph.tensor_util import make_ndarray
from millrace.summary.reader import summary_iterator


class _Tag:
    """What is known of the values of one tag."""

    def __init__(self, kind: str, step: int):
        self.kind = kind
        self.number = 0
        self.first = self.last = step
        self.value: float | None = None  # the last one


def show(found: Found, options: Any) -> int:
    """Prints what `millrace inspect` was asked about an event file."""
    tags: dict[str, _Tag] = {}
    others: dict[str, int] = {}
    number, begin, end = 0, 0.0, 0.0
    events = UntilDamage(found.path, summary_iterator(found.path))
    for event in events:
        begin, end = event.wall_time if number == 0 else begin, event.wall_time
        number += 1
        if event.WhichOneof("what") != "summary":
            what = event.WhichOneof("what") or "empty"
            others[what] = others.get(what, 0) + 1
            continue
        for value in event.summary.value:
            if matches(options.grep, value.tag):
                _add(tags.setdefault(value.tag, _Tag(_kind(value), event.step)), value, event.step)
    if options.json:
        rows = {
            name: {"kind": tag.kind, "values": tag.number, "first_step": tag.first,
                   "last_step": tag.last, "last_value": tag.value}
            for name, tag in sorted(tags.items())
        }  # fmt: skip
        write_json({
            "kind": found.kind, "path": found.path, "events": number, "begin": begin, "end": end,
            "tags": rows, "others": others, "damage": events.problem,
        })  # fmt: skip
        return events.exit_code()
    print(f"{found.kind} {printable(found.path)}")
    print(f"{count(number, 'event')}, {_moment(begin)} to {_moment(end)}")
    for what in sorted(others):
        print(f"{what}: {others[what]}")
    if tags:
        _show_tags(tags)
    return events.exit_code()


def _kind(value: Any) -> str:
    plugin = value.metadata.plugin_data.plugin_name
    return printable(plugin) or value.WhichOneof("value") or "nothing"


def _add(tag: _Tag, value: Any, step: int) -> None:
    tag.number += 1
    tag.last = step
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        tag.value = value.simple_value
    elif kind == "tensor" and _is_number(value.tensor):
        tag.value = float(make_ndarray(value.tensor))


def _is_number(tensor: Any) -> bool:
    return tensor.dtype in (protos.DT_FLOAT, protos.DT_DOUBLE) and not tensor.tensor_shape.dim


def _show_tags(tags: dict[str, _Tag]) -> None:
    header = ["tag", "kind", "values", "steps", "last value"]
    rows = [
        [
            printable(name),
            tag.kind,
            str(tag.number),
            f"{tag.first}..{tag.last}",
            "-" if tag.value is None else f"{tag.value:.6g}",
        ]
        for name, tag in sorted(tags.items())
    ]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    write_table(header, rows, [widths[0], widths[1], -widths[2], widths[3], -widths[4]])


def _moment(seconds: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))
    except (ValueError, OverflowError, OSError):
        return f"{seconds:g} s"
