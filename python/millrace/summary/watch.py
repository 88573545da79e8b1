"""Draws the curves of event files in a terminal: `millrace watch`."""

from __future__ import annotations

import math
import os
import shutil
import sys
import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any, TextIO

from millrace.core.errors import OpError
from millrace.core.text import printable
from millrace.graph.tensor_util import make_ndarray
from millrace.summary.reader import EventReader

_COLOURS = (36, 33, 35, 32, 34, 31)  # of ANSI terminals
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a Braille character
_MOST_POINTS = 20_000  # of a curve, in memory


class Curve:
    """The points of one tag of one run, by step."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.values: list[float] = []

    def add(self, step: int, value: float) -> None:
        """Adds a point. A step that was there before means a restart: later points are dropped."""
        while self.steps and self.steps[-1] >= step:
            self.steps.pop()
            self.values.pop()
        self.steps.append(step)
        self.values.append(value)
        if len(self.steps) > _MOST_POINTS:  # the picture has far fewer
            self.steps = self.steps[::2]
            self.values = self.values[::2]


class Folder:
    """The event files below a folder, read as far as they have been written."""

    def __init__(self, logdir: str):
        self.logdir = logdir
        self.curves: dict[str, dict[str, Curve]] = {}  # by tag and run
        self.problems: dict[str, str] = {}  # by file
        self._readers: dict[str, EventReader] = {}

    def update(self) -> bool:
        """Reads what is new; gives whether anything was."""
        changed = False
        for folder, _, names in sorted(os.walk(self.logdir)):
            run = os.path.relpath(folder, self.logdir)
            for name in sorted(names):
                if "tfevents" in name:
                    changed |= self._read(os.path.join(folder, name), run)
        return changed

    def _read(self, path: str, run: str) -> bool:
        changed = False
        try:
            reader = self._readers.get(path)
            if reader is None:
                reader = self._readers[path] = EventReader(path)
            while (event := reader.next()) is not None:
                for value in event.summary.value:
                    number = _number(value)
                    if number is not None:
                        runs = self.curves.setdefault(value.tag, {})
                        runs.setdefault(run, Curve()).add(event.step, number)
                changed = True
        except OpError as error:
            # The end of a file may be half of a record, the rest of which comes.
            self.problems[path] = error.message
        else:
            self.problems.pop(path, None)
        return changed


def _number(value: Any) -> float | None:
    """The number of a value, where it is one: as TensorFlow 1 and 2 write scalars."""
    if value.HasField("simple_value"):
        return float(value.simple_value)
    if value.HasField("tensor") and not value.tensor.tensor_shape.dim:
        try:
            return float(make_ndarray(value.tensor))
        except (TypeError, ValueError):
            return None
    return None


def plot(curves: dict[str, Curve], width: int, height: int, colour: bool = False) -> list[str]:
    """The curves as lines of text, each character two by four dots; all on one scale."""
    points = {
        run: [(s, v) for s, v in zip(c.steps, c.values, strict=True) if math.isfinite(v)]
        for run, c in curves.items()
    }
    values = [v for curve in points.values() for _, v in curve]
    steps = [s for curve in points.values() for s, _ in curve]
    if not values:
        return ["(no finite values)"]
    low, high, first, last = min(values), max(values), min(steps), max(steps)
    # Halves: the distance of two numbers need not be one.
    range_of_halves = (high / 2 - low / 2) or 1.0
    label = max(len(f"{low:.4g}"), len(f"{high:.4g}"))
    columns = max(width - label - 2, 8)
    bits = [[0] * columns for _ in range(height)]
    owner = [[0] * columns for _ in range(height)]
    for number, curve in enumerate(points.values()):
        previous = None
        for step, value in curve:
            x = round((step - first) / max(last - first, 1) * (2 * columns - 1))
            y = round((high / 2 - value / 2) / range_of_halves * (4 * height - 1))
            for px, py in _line(previous, (x, y)):
                bits[py // 4][px // 2] |= _DOTS[py % 4][px % 2]
                owner[py // 4][px // 2] = number
            previous = (x, y)
    lines = []
    for row in range(height):
        mark = f"{high:.4g}" if row == 0 else f"{low:.4g}" if row == height - 1 else ""
        lines.append(f"{mark:>{label}} ┤{_row(bits[row], owner[row], colour)}")
    axis = f"step {first}"
    lines.append(" " * (label + 2) + axis + f"{last}".rjust(max(columns - len(axis), 1)))
    return lines


def _line(start: tuple[int, int] | None, end: tuple[int, int]) -> list[tuple[int, int]]:
    """The dots from one point to the next, the first left out."""
    if start is None:
        return [end]
    (x0, y0), (x1, y1) = start, end
    count = max(abs(x1 - x0), abs(y1 - y0), 1)
    return [
        (round(x0 + (x1 - x0) * i / count), round(y0 + (y1 - y0) * i / count))
        for i in range(1, count + 1)
    ]


def _row(bits: list[int], owner: list[int], colour: bool) -> str:
    text, now = "", None
    for b, o in zip(bits, owner, strict=True):
        wanted = _COLOURS[o % len(_COLOURS)] if colour and b else None
        if wanted != now:
            text += "\x1b[0m" if wanted is None else f"\x1b[{wanted}m"
            now = wanted
        text += chr(0x2800 + b) if b else " "
    return text.rstrip(" ") + ("\x1b[0m" if now is not None else "")


def picture(folder: Folder, tags: list[str], width: int, height: int, colour: bool) -> list[str]:
    """All curves whose tags match a pattern, one plot below the other."""
    shown = [t for t in sorted(folder.curves) if not tags or any(fnmatchcase(t, p) for p in tags)]
    if not shown:
        what = f" with tags {', '.join(tags)}" if tags else ""
        lines = [f"No scalars{what} in {folder.logdir} yet."]
    else:
        lines = []
        rows = max(min((height - 1) // len(shown) - 3, 12), 4)
        for tag in shown:
            runs = folder.curves[tag]
            lines.append(printable(tag) + "   " + "   ".join(_legend(runs, colour)))
            lines += plot(runs, width, rows, colour)
            lines.append("")
    return lines + [f"damaged: {printable(text)}" for text in sorted(folder.problems.values())]


def _legend(runs: dict[str, Curve], colour: bool) -> list[str]:
    out = []
    for number, (run, curve) in enumerate(runs.items()):
        text = f"{printable(run)} {curve.values[-1]:.5g}"
        mark = f"\x1b[{_COLOURS[number % len(_COLOURS)]}m━\x1b[0m " if colour else ""
        out.append(mark + text)
    return out


def watch(
    logdir: str, tags: list[str], once: bool = False, interval: float = 1.0,
    out: TextIO | None = None, wait: Callable[[float], Any] = time.sleep,
) -> None:  # fmt: skip
    """Draws the curves below a folder, and again whenever they grow, until Ctrl-C.

    Args:
      logdir: the folder; each folder in it that holds event files is a run.
      tags: patterns as of file names; all tags when empty.
      once: draws one picture; so it does where `out` is no terminal.
      interval: seconds between looks at the files.
      out: standard output by default.
      wait: called with the interval.
    """
    out = sys.stdout if out is None else out
    live = out.isatty() and not once
    folder = Folder(logdir)
    drawn = None
    try:
        while True:
            changed = folder.update()
            size = shutil.get_terminal_size((100, 30))
            if changed or size != drawn:
                drawn = size
                colour = out.isatty() and "NO_COLOR" not in os.environ
                lines = picture(folder, tags, size.columns - 1, size.lines, colour)
                if live:
                    # As much as fits, over what was there, without flicker.
                    shown = lines[: size.lines - 1]
                    out.write("\x1b[H" + "".join(f"{text}\x1b[K\n" for text in shown) + "\x1b[J")
                else:
                    out.write("\n".join(lines) + "\n")
                out.flush()
            if not live:
                return
            wait(interval)
    except KeyboardInterrupt:
        out.write("\n")
