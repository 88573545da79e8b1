"""`millrace verify`: reads everything and checks checksums."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from typing import Any

from millrace.cli import command, kinds
from millrace.cli.messages import read_message, variables_prefix
from millrace.cli.tensors import Tensors
from millrace.core import errors
from millrace.core.text import printable
from millrace.io.records import tf_record_iterator
from millrace.summary.reader import summary_iterator

_ABOUT = """\
Reads all of a file, of any kind that `millrace inspect` knows, and checks it
against its checksums. Exit code 0 when all is well, 1 with a line for each part
that is damaged.
"""


def main(arguments: list[str]) -> int:
    """Runs the command; gives its exit code."""
    parser = command.Parser("verify", _ABOUT)
    parser.add_argument("path", metavar="PATH")
    return command.run(parser, _verify, arguments)


def _verify(options: Any) -> int:
    found = kinds.find(options.path)
    damaged = read = 0
    for what, problem in _parts(found):
        read += 1
        if problem is not None:
            damaged += 1
            sys.stderr.write(f"{printable(what)}: {problem}\n")
    path = printable(found.path)
    parts = command.count(read, "part")
    if damaged:
        sys.stderr.write(f"millrace verify: {path}: {damaged} of {parts} damaged\n")
        return 1
    print(f"{found.kind} {path}: {parts} read, nothing is damaged")
    return 0


def _parts(found: kinds.Found) -> Iterator[tuple[str, str | None]]:
    """(a part, what is wrong with it or None), one at a time."""
    if found.kind in (kinds.CHECKPOINT, kinds.SAFETENSORS):
        yield from _tensors(found.path)
    elif found.kind == kinds.MESSAGE:
        read_message(found.path)
        yield found.path, None
    elif found.kind == kinds.SAVED_MODEL:
        read_message(found.path)
        yield found.path, None
        prefix = variables_prefix(found.path)
        if os.path.exists(prefix + ".index"):
            yield from _tensors(prefix)
    elif found.kind == kinds.RECORDS:
        yield from _records(tf_record_iterator(found.path, found.compression))
    else:
        yield from _records(summary_iterator(found.path))


def _records(records: Iterator[Any]) -> Iterator[tuple[str, str | None]]:
    """The records up to the first one that is damaged: where the next begins is not known then."""
    for number in itertools.count():
        try:
            next(records)
        except StopIteration:
            return
        except errors.OpError as error:
            yield f"record {number}", command.reason(error)
            return
        yield f"record {number}", None


def _tensors(path: str) -> Iterator[tuple[str, str | None]]:
    tensors = Tensors(path)
    for entry in tensors.entries:
        try:
            tensors.read(entry.name)
        except errors.OpError as error:
            yield entry.name, command.reason(error)
        else:
            yield entry.name, None
