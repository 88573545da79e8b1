"""`millrace inspect`: shows what is in a file."""

from __future__ import annotations

import argparse
from typing import Any

from millrace.cli import command, kinds, show_events, show_graph, show_records, show_tensors

_ABOUT = """\
Shows what is in a file or folder, whatever it is: a checkpoint (its prefix, its
folder or one of its files), a safetensors file, a GraphDef (.pb, .pbtxt), a
MetaGraph (.meta), a SavedModel, a TFRecord file or an event file.
"""

_SHOW = {
    kinds.CHECKPOINT: show_tensors.show,
    kinds.SAFETENSORS: show_tensors.show,
    kinds.MESSAGE: show_graph.show,
    kinds.SAVED_MODEL: show_graph.show,
    kinds.RECORDS: show_records.show,
    kinds.EVENTS: show_events.show,
}


def main(arguments: list[str]) -> int:
    """Runs the command; gives its exit code."""
    parser = command.Parser("inspect", _ABOUT)
    parser.add_argument("path", metavar="PATH")
    parser.add_argument(
        "--values", metavar="NAME", action="append",
        help="print the elements of a tensor, or of a graph's constant; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--stats", action="store_true",
        help="min, max, mean, deviation, NaNs and infinities of each tensor",
    )  # fmt: skip
    parser.add_argument(
        "--grep", metavar="PATTERN", type=command.pattern,
        help="only names (and ops) in which the regular expression is found",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--depth", metavar="N", type=_positive, help="show scopes of a graph down to this depth"
    )
    parser.add_argument(
        "--first", metavar="N", type=_count, default=3, help="records to show; 3 by default"
    )
    parser.add_argument("--svg", metavar="FILE", help="draw the graph into a file")
    return command.run(parser, _inspect, arguments)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is no number of records")
    return int(text)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no positive number")
    return int(text)


def _inspect(options: Any) -> int:
    found = kinds.find(options.path)
    show = _SHOW[found.kind]
    if options.values and show in (show_records.show, show_events.show):
        raise command.CommandError(f"{options.path}: is a {found.kind} and has no --values")
    if options.svg and show is not show_graph.show:
        raise command.CommandError(f"{options.path}: is a {found.kind}, and --svg draws graphs")
    return show(found, options)
