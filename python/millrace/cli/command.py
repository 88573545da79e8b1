"""What all commands share: how they end, and how they speak of what is in files."""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from millrace.core import errors, logging
from millrace.core.text import printable

BROKEN_PIPE = 141  # as shells say it of a process that the signal ended
INTERRUPTED = 130


class CommandError(Exception):
    """What the user is told, in one line, before the command ends with exit code 1."""


class Parser(argparse.ArgumentParser):
    """The arguments of `millrace NAME`; the first line of `description` is its summary."""

    def __init__(self, name: str, description: str):
        super().__init__(
            prog=f"millrace {name}", description=description, allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip


def run(parser: Parser, work: Callable[[Any], int], arguments: list[str]) -> int:
    """Parses the arguments, does the work and gives its exit code.

    Whatever goes wrong is one line on standard error and exit code 1: files are anybody's, and a
    traceback says nothing about them. Ctrl-C, and a reader of the output that went away, end it
    quietly. SystemExit for wrong arguments, with code 2.
    """
    options = parser.parse_args(arguments)
    verbosity = logging.get_verbosity()
    logging.set_verbosity(logging.FATAL)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = work(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # What is still in the buffer would be written, and fail again, when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        sys.stderr.write(f"{parser.prog}: {reason(error)}\n")
        return 1
    finally:
        logging.set_verbosity(verbosity)
    return code


def reason(error: BaseException) -> str:
    """An error in one line."""
    if isinstance(error, errors.OpError):
        text = error.message
    elif isinstance(error, OSError) and error.strerror:
        name = "" if error.filename is None else f"{error.filename}: "
        text = f"{name}{error.strerror}"
    elif isinstance(error, MemoryError):
        text = "there is not enough memory"
    else:
        text = str(error) or type(error).__name__
    return printable(" ".join(text.split()))


class UntilDamage:
    """Goes over the records of a file up to the first that is damaged.

    Of a file that is cut, because it is still written for instance, what is there can be shown;
    CommandError where that is nothing. `problem` says what is wrong, where something is.
    """

    def __init__(self, path: str, records: Iterator[Any]):
        self._path, self._records = path, records
        self.problem: str | None = None

    def __iter__(self) -> Iterator[Any]:
        found = False
        try:
            for record in self._records:
                found = True
                yield record
        except errors.OpError as error:
            self.problem = f"{printable(self._path)}: {reason(error)}"
            if not found:
                raise CommandError(self.problem) from None

    def exit_code(self) -> int:
        """0, or 1 after a line on standard error that says what is wrong."""
        if self.problem is None:
            return 0
        sys.stderr.write(f"millrace inspect: {self.problem}; what is before it is shown\n")
        return 1


def pattern(text: str) -> re.Pattern[str]:
    """A regular expression, as the type of an argument."""
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"'{text}' is no regular expression: {error}") from None


def matches(wanted: re.Pattern[str] | None, *texts: str) -> bool:
    """Whether one of the texts has the pattern; without a pattern all do."""
    return wanted is None or any(wanted.search(text) for text in texts)


def write_json(value: Any) -> None:
    """Prints a value as JSON; what JSON has no number for is null."""
    json.dump(_plain(value), sys.stdout, indent=1, allow_nan=False)
    sys.stdout.write("\n")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, complex):
        return [_plain(value.real), _plain(value.imag)]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def write_table(header: list[str], rows: Iterable[list[str]], widths: list[int]) -> None:
    """Prints rows as they come, in columns of these widths; a negative one is set to the right."""
    for row in itertools.chain([header], rows):
        cells = [
            cell.ljust(width) if width >= 0 else cell.rjust(-width)
            for cell, width in zip(row, widths, strict=True)
        ]
        print("  ".join(cells).rstrip())


def count(number: int, noun: str, nouns: str = "") -> str:
    """ "1 node", "2 nodes", "1,000 nodes"; `nouns`: several, where it is not with an s."""
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def size(number: int) -> str:
    """Bytes, readable: "88 bytes", "1.5 GiB"."""
    if number < 1024:
        return count(number, "byte")
    value = float(number)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        value /= 1024
        if value < 1024 or unit == "TiB":
            break
    return f"{value:.1f} {unit}"
