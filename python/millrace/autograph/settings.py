"""What AutoGraph tells of its work."""

import os
import sys
from typing import Any

from millrace.core import logging
from millrace.core.export import export

_verbosity: int | None = None
_to_stdout = False


@export(v1="autograph.set_verbosity", v2="autograph.set_verbosity")
def set_verbosity(level: int, alsologtostdout: bool = False) -> None:
    """How much is told about conversions: 0, the default, nothing; 10 everything.

    `alsologtostdout`: on the standard output, too. Without a call the environment variable
    AUTOGRAPH_VERBOSITY says it.
    """
    global _verbosity, _to_stdout
    _verbosity, _to_stdout = level, alsologtostdout


def verbosity() -> int:
    """The level that is set."""
    if _verbosity is not None:
        return _verbosity
    try:
        return int(os.environ.get("AUTOGRAPH_VERBOSITY", "0"))
    except ValueError:
        return 0


@export(v1="autograph.trace", v2="autograph.trace")
def trace(*args: Any) -> None:
    """Prints while a function is traced, not when it runs."""
    print(*args)


def trace_conversion(level: int, message: str, *args: Any) -> None:
    """Tells about a conversion where the verbosity is `level` or more."""
    if verbosity() < level:
        return
    logging.get_logger().warning(message, *args)
    if _to_stdout:
        sys.stdout.write(message % args + "\n")
