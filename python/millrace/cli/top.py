"""`millrace top`: what the tasks of a cluster do, live."""

from __future__ import annotations

import re
import shutil
import sys
import time
from typing import Any

from millrace import _core
from millrace.cli.command import Parser, run, size, write_json
from millrace.cli.task_display import is_terminal
from millrace.core.text import printable
from millrace.distributed.addresses import checked_address

_DESCRIPTION = """\
Show what all tasks of a cluster do, by way of any one of them.

A line for each task: steps and bytes per second, sessions, graphs, queues and
what steps wait for. On a terminal it is drawn anew every --interval seconds,
elsewhere printed; Ctrl-C ends it, as does the end of the cluster. The cluster's
token or certificates are taken from the environment.
"""
_HEADER = (
    "task",
    "steps/s",
    "failed",
    "in/s",
    "out/s",
    "sessions",
    "graphs",
    "queues",
    "waits for",
)
_RIGHT = range(1, 7)  # columns of numbers
_TIMEOUT = 2.0  # seconds: how long a look waits for answers
_KEY = re.compile(r"([^;]*);[0-9a-f]{16};([^;]*);(?:edge_\d+_)?([^;]*);\d+:\d+(?: from .*)?")


def main(arguments: list[str]) -> int:
    """Runs `millrace top`; returns the exit code."""
    parser = Parser("top", _DESCRIPTION)
    parser.add_argument("address", metavar="HOST:PORT", help="of one of the tasks")
    parser.add_argument("--once", action="store_true", help="look once, for --interval seconds")
    parser.add_argument("--json", action="store_true", help="look once, all of it for machines")
    parser.add_argument(
        "--interval", type=_seconds, default=1.0, metavar="SECONDS",
        help="between two looks; 1 by default",
    )  # fmt: skip
    return run(parser, _work, arguments)


def _seconds(text: str) -> float:
    number = float(text)
    if not 0.05 <= number <= 3600:
        raise ValueError
    return number


_seconds.__name__ = "number of seconds from 0.05 to 3600"  # argparse names it in its message


def _work(options: Any) -> int:
    address = checked_address(options.address, "HOST:PORT")
    watch = _core.ClusterWatch(f"grpc://{address}")
    before = _look(watch)
    screen = None if options.once or options.json else _Screen(f"cluster of {address}")
    try:
        while True:
            time.sleep(options.interval)
            now = _look(watch)
            rows = [_figures(task, was) for task, was in zip(now, before, strict=True)]
            if options.json:
                write_json(rows)
                return 0
            lines = _table(rows)
            if screen is None:
                print("\n".join(lines))
                return 0
            gone = all(row["error"] is not None for row in rows)
            screen.show([*lines, *["no task of the cluster answers any more"] * gone])
            if gone:
                return 0
            before = now
    finally:
        if screen is not None:
            screen.close()


def _look(watch: Any) -> list[dict[str, Any]]:
    return watch.look(int(_TIMEOUT * 1000))


def _figures(task: dict[str, Any], was: dict[str, Any]) -> dict[str, Any]:
    """What is known of a task: its activity, and rates since the look before.

    Rates are None where it did not answer twice, or is another process by now.
    """
    now, then = task["activity"], was["activity"]
    rates: dict[str, Any] = dict.fromkeys(("steps", "failed", "received_bytes", "sent_bytes"))
    if now is not None and then is not None and now["up_ms"] >= then["up_ms"]:
        seconds = (now["clock_ns"] - then["clock_ns"]) / 1e9
        if seconds > 0:
            rates = {
                "steps": (now["steps_ended"] - then["steps_ended"]) / seconds,
                "failed": (now["steps_failed"] - then["steps_failed"]) / seconds,
                "received_bytes": _moved(now, then, "received_bytes") / seconds,
                "sent_bytes": _moved(now, then, "sent_bytes") / seconds,
            }
    return {**task, "per_second": rates}


def _moved(now: dict[str, Any], then: dict[str, Any], which: str) -> int:
    return sum(row[which] for row in now["transfers"]) - sum(
        row[which] for row in then["transfers"]
    )


def _table(rows: list[dict[str, Any]]) -> list[str]:
    """The rows in columns; nothing is cut."""
    cells = [_HEADER, *(_cells(row) for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(_HEADER))]
    out = []
    for row in cells:
        parts = [
            cell.rjust(width) if i in _RIGHT else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        out.append("  ".join(parts).rstrip())
    return out


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    name = short_name(row["name"])
    activity, rates = row["activity"], row["per_second"]
    if activity is None:
        return (name, *[""] * 7, f"does not answer at {row['address']}, {_since(row['away_ms'])}")
    steps = "" if rates["steps"] is None else f"{rates['steps']:.4g}"
    failed = "" if not rates["failed"] else f"{rates['failed']:.4g}"
    return (
        name, steps, failed, _rate(rates["received_bytes"]), _rate(rates["sent_bytes"]),
        str(len(activity["sessions"])),
        str(sum(session["graphs"] for session in activity["sessions"])),
        _queues(activity["queues"]), _waits(activity["steps"]),
    )  # fmt: skip


def short_name(name: str) -> str:
    """ "ps 0" for "/job:ps/replica:0/task:0", with the device where there is one but CPU:0."""
    match = re.fullmatch(r"/job:([^/]*)/replica:0/task:(\d+)(?:/device:(.*))?", name)
    if match is None:
        return printable(name)
    job, task, device = match.groups()
    return f"{job} {task}" + ("" if device in (None, "CPU:0") else f" {device}")


def _since(milliseconds: int) -> str:
    began = time.localtime(time.time() - milliseconds / 1000)
    return f"since {time.strftime('%H:%M:%S', began)}"


def _rate(number: float | None) -> str:
    return "" if number is None else size(round(number)).replace("bytes", "B").replace("byte", "B")


def _queues(queues: list[dict[str, Any]]) -> str:
    shown = []
    for queue in queues[:3]:
        # Of a session's own, "_<session>/<node>", the node.
        name = queue["name"].partition("/")[2] if queue["name"][:1] == "_" else queue["name"]
        fill = str(queue["size"])
        if queue["capacity"] >= 0:
            fill += f"/{queue['capacity']}"
        shown.append(f"{printable(name)} {fill}" + (" closed" if queue["closed"] else ""))
    return ", ".join([*shown, *_more(queues, shown)])


def _waits(steps: list[dict[str, Any]]) -> str:
    waits = [(step["running_ms"], wait) for step in steps for wait in step["waits"]]
    # What is nearest to the cause first: a queue, what another task should send, and what others
    # ask for; of these who has waited longest.
    waits.sort(key=lambda each: (_distance(each[1]["for"]), -each[0]))
    shown = [f"{describe_wait(wait)}{_for(ms)}" for ms, wait in waits[:1]]
    return ", ".join([*shown, *_more(waits, shown)])


def _distance(what: str) -> int:
    return 0 if _KEY.fullmatch(what) is None else 1 if " from " in what else 2


def _more(of: list[Any], shown: list[str]) -> list[str]:
    return [f"+{len(of) - len(shown)}"] if len(of) > len(shown) else []


def _for(milliseconds: int) -> str:
    return f", {milliseconds // 1000} s" if milliseconds >= 1000 else ""


def describe_wait(wait: dict[str, Any]) -> str:
    """What a step waits for, in words, with the user's line where it is known."""
    what = wait["for"]
    match = _KEY.fullmatch(what)
    if match is not None:
        sender, receiver, tensor = match.groups()
        asked = " from " in what
        what = f"{tensor} " + (
            f"from {short_name(sender)}" if asked else f"for {short_name(receiver)}"
        )
    line = wait["defined"].removeprefix("defined at ")
    return printable(what + (f" ({' '.join(line.split())})" if line else ""))


class _Screen:
    """Where the table is: drawn in place on a terminal, printed elsewhere."""

    def __init__(self, title: str):
        self._title = printable(title)
        self._live = is_terminal(sys.stdout)
        self._drawn = 0
        if self._live:
            sys.stdout.write("\033[?25l")  # without the cursor

    def show(self, lines: list[str]) -> None:
        clock = time.strftime("%H:%M:%S")
        lines = [f"{self._title}, {clock}", *lines]
        if not self._live:
            print("\n".join(lines), flush=True)
            return
        columns, rows = shutil.get_terminal_size()
        # What is higher than the terminal could not be erased again.
        if len(lines) > rows - 1:
            lines = [*lines[: max(1, rows - 2)], f"and {len(lines) - rows + 2} more"]
        erase = f"\033[{self._drawn}A\r" if self._drawn else ""
        text = "".join(f"{line[: columns - 1]}\033[K\n" for line in lines)
        sys.stdout.write(f"{erase}{text}\033[J")
        sys.stdout.flush()
        self._drawn = len(lines)

    def close(self) -> None:
        """Leaves what stands there."""
        if self._live:
            sys.stdout.write("\033[?25h")
            sys.stdout.flush()
