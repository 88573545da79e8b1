"""Runs a program's main function: `tf.app.run()`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from millrace.compat.v1.flags import flag_values
from millrace.core.export import export


@export(v1="app.run")
def run(main: Callable[[list[str]], Any] | None = None, argv: list[str] | None = None) -> None:
    """Parses the command line, calls `main` with what is left of it, and exits.

    `main` is by default the function of that name in the program; `argv` is by default
    `sys.argv`. Arguments that are no flags, and flags that are not defined, are left in the list
    that `main` gets. A bad value of a flag, or `--help`, ends the program with a message.
    """
    argv = sys.argv if argv is None else argv
    if main is None:
        main = getattr(sys.modules["__main__"], "main", None)
        if main is None:
            raise ValueError(
                "app.run() calls the function main of the program, but it defines none; "
                "define main(argv), or pass a function"
            )
    flag_values.exit_for_help(argv)
    try:
        rest = flag_values.FLAGS(argv, known_only=True)
    except flag_values.Error as error:
        sys.stderr.write(f"FATAL Flags parsing error: {error}\nPass --help to see the flags.\n")
        sys.exit(1)
    sys.exit(main(rest))
