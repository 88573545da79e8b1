"""What `millrace launch` shows of its tasks: what they print and, on a terminal, a live table."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from typing import Any, TextIO

from millrace.core.text import printable

_COLOURS = (36, 33, 32, 35, 34, 31)
_HEADER = ("task", "pid", "state", "restarts", "time", "last line")
_REDRAW_SECONDS = 0.1


def is_terminal(stream: TextIO) -> bool:
    """Whether a stream is a terminal whose cursor can be moved."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def uses_colour(stream: TextIO) -> bool:
    """Whether to colour what is written there: on terminals, unless NO_COLOR is set."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


class TaskDisplay:
    """Shows the tasks of a cluster. Thread-safe.

    Lines of tasks go to standard output, each with the name of its task before it; messages of the
    launcher to standard error. Where that is a terminal, a table of all tasks stays below what is
    printed. Tasks have `name`, `pid` (None: not started), `state`, `restarts` and `began`.
    """

    def __init__(self, tasks: list[Any]):
        self._tasks = tasks
        self._width = max(len(task.name) for task in tasks)
        self._lock = threading.Lock()
        self._last = {task.name: "" for task in tasks}
        self._live = is_terminal(sys.stderr)
        self._shared = self._live and sys.stdout.isatty()  # lines would go through the table
        self._drawn = 0  # the lines of the table that stand on the terminal
        self._next = 0.0

    def line(self, task: Any, text: str) -> None:
        """Shows a line that a task printed."""
        name = self._coloured(task, task.name.ljust(self._width), sys.stdout)
        with self._lock:
            self._last[task.name] = text
            if self._shared:
                self._erase()
            print(f"{name} | {text}", flush=True)
            if self._shared:
                self._draw()

    def say(self, text: str) -> None:
        """Shows a message of the launcher."""
        with self._lock:
            self._erase()
            print(f"millrace launch: {text}", file=sys.stderr, flush=True)
            self._draw()

    def refresh(self) -> None:
        """Draws the table anew where a moment has passed since it was drawn."""
        with self._lock:
            if time.monotonic() >= self._next:
                self._erase()
                self._draw()

    def close(self) -> None:
        """Leaves the table as it is at the end."""
        with self._lock:
            self._erase()
            self._draw()
            self._live = self._shared = False
            self._drawn = 0

    def _coloured(self, task: Any, text: str, stream: TextIO) -> str:
        if not uses_colour(stream):
            return text
        colour = _COLOURS[self._tasks.index(task) % len(_COLOURS)]
        return f"\033[{colour}m{text}\033[0m"

    def _erase(self) -> None:
        if self._drawn:
            sys.stderr.write(f"\033[{self._drawn}A\r\033[J")
            sys.stderr.flush()
            self._drawn = 0

    def _draw(self) -> None:
        if not self._live:
            return
        columns, rows = shutil.get_terminal_size()
        # A table that is higher than the terminal could not be erased again.
        shown = self._tasks[: max(1, rows - 3)]
        cells = [_HEADER, *(self._cells(task) for task in shown)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(_HEADER))]
        out = []
        for task, row in zip([None, *shown], cells, strict=True):
            text = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            text = text.rstrip()[: columns - 1]
            if task is not None:
                name = text[: widths[0]]
                text = self._coloured(task, name, sys.stderr) + text[widths[0] :]
            out.append(text)
        if len(shown) < len(self._tasks):
            out.append(f"and {len(self._tasks) - len(shown)} more"[: columns - 1])
        sys.stderr.write("".join(f"{line}\n" for line in out))
        sys.stderr.flush()
        self._drawn = len(out)
        self._next = time.monotonic() + _REDRAW_SECONDS

    def _cells(self, task: Any) -> tuple[str, ...]:
        pid = "" if task.pid is None else str(task.pid)
        seconds = 0 if task.began is None else int((task.ended or time.monotonic()) - task.began)
        clock = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        last = printable(self._last[task.name].strip())
        return (task.name, pid, task.state, str(task.restarts), clock, last)
