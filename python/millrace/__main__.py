"""The command `millrace`, also `python -m millrace`."""

from __future__ import annotations

import builtins
import importlib
import os
import sys
import textwrap
import threading
from importlib.machinery import SourceFileLoader
from types import ModuleType, TracebackType
from typing import Any

from millrace import __version__
from millrace.compat.tensorflow.imports import install
from millrace.core.lifeline import hold_lifeline
from millrace.core.tracebacks import hide_library_frames

# The commands: what they take, what they do, and the module that has `main(arguments)`, loaded when
# the command is used; without one it is below.
_COMMANDS = {
    "run": (
        "SCRIPT [ARGUMENT ...]",
        "Run a Python program written for TensorFlow 1.x, as it is: `import tensorflow` in it "
        "means Millrace.",
        "",
    ),
    "watch": (
        "LOGDIR [--tag PATTERN] [--once]",
        "Draw the curves that training writes below a folder, live.",
        "",
    ),
    "inspect": (
        "PATH",
        "Show what is in a file: tensors, graphs, records, events.",
        "millrace.cli.inspect",
    ),
    "convert": (
        "FROM TO",
        "Convert between checkpoints and safetensors files.",
        "millrace.cli.convert",
    ),
    "verify": ("PATH", "Read all of a file and check its checksums.", "millrace.cli.verify"),
    "freeze": ("FROM OUT.pb", "Write a graph with variables as constants.", "millrace.cli.freeze"),
    "certs": (
        "FOLDER HOST [HOST ...]",
        "Make certificates for the tasks of a cluster.",
        "millrace.cli.certs",
    ),
    "server": (
        "[--job J --task I --cluster LIST] [--check HOST:PORT]",
        "Run a task of a cluster until SIGTERM, or ask whether one answers.",
        "millrace.cli.server",
    ),
    "top": (
        "HOST:PORT [--once] [--json]",
        "Show what the tasks of a cluster do, live.",
        "millrace.cli.top",
    ),
    "stop": ("HOST:PORT", "Tell all tasks of a cluster to end.", "millrace.cli.stop"),
    "launch": (
        "[-n WORKERS] [--ps N] SCRIPT [ARGUMENT ...]",
        "Run a program as the tasks of a cluster, on this machine or by ssh.",
        "millrace.cli.launch",
    ),
}

_RUN_USAGE = """\
usage: millrace run [--ps N] SCRIPT [ARGUMENT ...]

Runs SCRIPT as `python SCRIPT ARGUMENT ...` would, with `import tensorflow`,
`import tensorflow.compat.v1` and modules below `tensorflow.python` and
`tensorflow.contrib` answered by Millrace. All arguments after SCRIPT are the
script's. Tracebacks show the frames of the script, not those of Millrace.

Where srun or mpirun started several of it, or MILLRACE_CLUSTER names tasks, the
script finds the cluster and its own place there in TF_CONFIG. With --ps, or
MILLRACE_PS in the environment, the first N of srun's or mpirun's tasks are
parameter servers; those end when all workers have ended well.
"""

_WATCH_USAGE = """\
usage: millrace watch LOGDIR [--tag PATTERN ...] [--once] [--interval SECONDS]

Draws the scalars of the event files below LOGDIR, as tf.summary.FileWriter
writes them, and again whenever they grow; Ctrl-C ends it. Each folder with
event files is a run. Draws once where standard output is no terminal.

  --tag PATTERN       only tags like this, "loss*"; may be given several times
  --once              one picture
  --interval SECONDS  how often to look at the files; 1 by default
"""


def main(argv: list[str] | None = None) -> int:
    """Runs the command line `argv`, by default that of the process; returns the exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    command = arguments[0] if arguments else ""
    if command == "run":
        return _run(arguments[1:])
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by who started this
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    if command == "watch":
        return _watch(arguments[1:])
    if command in _COMMANDS:
        return importlib.import_module(_COMMANDS[command][2]).main(arguments[1:])
    if command in ("-h", "--help", "help"):
        sys.stdout.write(_usage())
        return 0
    if command in ("-V", "--version"):
        sys.stdout.write(f"millrace {__version__}\n")
        return 0
    problem = f"millrace: there is no command '{command}'\n\n" if command else ""
    sys.stderr.write(problem + _usage())
    return 2


def _usage() -> str:
    lines = [f"millrace {name} {takes}" for name, (takes, _, _) in _COMMANDS.items()]
    out = ["usage: " + "\n       ".join([*lines, "millrace --version | --help"]), "", "Commands:"]
    for name, (_, does, _) in _COMMANDS.items():
        text = textwrap.wrap(does, 66)
        out += [f"  {name:<8}  {text[0]}", *(" " * 12 + line for line in text[1:])]
    out.append("\n`millrace COMMAND --help` says more.")
    return "\n".join(out) + "\n"


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        (sys.stdout if arguments else sys.stderr).write(_RUN_USAGE)
        return 0 if arguments else 2
    num_ps = None
    if arguments[0] == "--ps":
        if len(arguments) < 3 or not arguments[1].isdecimal() or len(arguments[1]) > 6:
            sys.stderr.write(f"millrace run: --ps needs a number and a script\n\n{_RUN_USAGE}")
            return 2
        num_ps, arguments = int(arguments[1]), arguments[2:]
    script, option = arguments[0], arguments[0].startswith("-")
    if option:
        sys.stderr.write(f"millrace run: there is no option '{script}'\n\n{_RUN_USAGE}")
        return 2
    hold_lifeline()
    try:
        task = _cluster_task(num_ps)
    except ValueError as error:
        sys.stderr.write(f"millrace run: {error}\n")
        return 1
    try:
        run_script(script, arguments[1:])
    except _CannotOpen as error:
        sys.stderr.write(f"millrace run: can't open file '{script}': {error}\n")
        return 2
    except SystemExit as end:
        if end.code in (None, 0):
            _tell_end(task)
        raise
    _tell_end(task)
    return 0


# Variables of which one is there where this process may be one of several.
_TASK_VARIABLES = ("MILLRACE_CLUSTER", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


def _cluster_task(num_ps: int | None) -> Any:
    """This process's place in a cluster that a scheduler's environment tells of, which the script
    then finds in TF_CONFIG; None where it is alone or TF_CONFIG is there. ValueError for a cluster
    that cannot be."""
    given = bool(os.environ.get("TF_CONFIG"))
    task = None
    if not given and any(os.environ.get(name) for name in _TASK_VARIABLES):
        from millrace.distributed.environment import cluster_from_environment  # late: seldom used

        task = cluster_from_environment(num_ps=num_ps)
    if task is None or sum(map(task.cluster.num_tasks, task.cluster.jobs)) < 2:
        if num_ps is not None:
            got = "TF_CONFIG" if given else "a process alone"
            raise ValueError(f"--ps: expected several tasks of srun or mpirun, got {got}")
        return None
    from millrace.distributed.ending import end_with_workers  # late: seldom used

    os.environ["TF_CONFIG"] = task.tf_config()
    end_with_workers()
    return task


def _tell_end(task: Any) -> None:
    """Lets parameter servers know that this task has ended well."""
    if task is not None and task.job != "ps":
        from millrace.distributed.ending import tell_parameter_servers  # late: seldom used

        tell_parameter_servers(task.cluster, task.job, task.index)


def _watch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        (sys.stdout if arguments else sys.stderr).write(_WATCH_USAGE)
        return 0 if arguments else 2
    folders: list[str] = []
    tags: list[str] = []
    once, interval = False, 1.0
    rest = iter(arguments)
    for argument in rest:
        if argument == "--once":
            once = True
        elif argument in ("--tag", "--interval"):
            value = next(rest, None)
            if value is None:
                return _wrong_watch(f"{argument} needs a value")
            if argument == "--tag":
                tags.append(value)
                continue
            try:
                interval = float(value)
            except ValueError:
                interval = 0
            if not 0 < interval < float("inf"):
                return _wrong_watch(f"'{value}' is no interval in seconds")
        elif argument.startswith("-"):
            return _wrong_watch(f"there is no option '{argument}'")
        else:
            folders.append(argument)
    if len(folders) != 1:
        return _wrong_watch(f"one folder is expected, got {len(folders)}")
    if not os.path.isdir(folders[0]):
        return _wrong_watch(f"there is no folder '{folders[0]}'")
    from millrace.summary.watch import watch  # late: `millrace run` starts without the library

    watch(folders[0], tags, once, interval)
    return 0


def _wrong_watch(problem: str) -> int:
    sys.stderr.write(f"millrace watch: {problem}\n\n{_WATCH_USAGE}")
    return 2


class _CannotOpen(Exception):
    """The script cannot be read."""


def run_script(script: str, arguments: list[str]) -> None:
    """Runs a file as the main program, with `tensorflow` answered by Millrace.

    What the program raises goes on upwards, SystemExit too; where nothing catches it, Python
    prints it with the frames of the program only.
    """
    try:
        with open(script, "rb") as file:
            source = file.read()
    except OSError as error:
        raise _CannotOpen(f"[Errno {error.errno}] {error.strerror}") from None
    path = os.path.abspath(script)
    program = _main_module(path)
    sys.modules["__main__"] = program
    sys.argv[:] = [script, *arguments]
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    install()
    _show_users_frames()
    exec(compile(source, path, "exec", dont_inherit=True), program.__dict__)


def _main_module(path: str) -> ModuleType:
    """An empty `__main__` as Python makes it for a script."""
    program = ModuleType("__main__")
    program.__dict__.update(
        __builtins__=builtins,
        __file__=path,
        __cached__=None,
        __loader__=SourceFileLoader("__main__", path),
        __package__=None,
        __spec__=None,
    )
    program.__dict__.setdefault("__annotations__", {})
    return program


def _program_frames(traceback: TracebackType | None) -> TracebackType | None:
    """What comes after the frame of this file, which runs the program, if it is there."""
    entry = traceback
    while entry is not None:
        if entry.tb_frame.f_code is run_script.__code__:
            return entry.tb_next
        entry = entry.tb_next
    return traceback


def _show_users_frames() -> None:
    """Lets uncaught errors, of all threads, be printed without frames of libraries."""

    def shown(error: BaseException) -> BaseException:
        error.__traceback__ = _program_frames(error.__traceback__)
        hide_library_frames(error)
        return error

    def hook(kind: Any, error: BaseException, traceback: Any) -> None:
        error = shown(error)
        sys.__excepthook__(kind, error, error.__traceback__)

    def thread_hook(args: Any) -> None:
        if args.exc_value is not None:
            shown(args.exc_value)
        threading.__excepthook__(args)

    sys.excepthook = hook
    threading.excepthook = thread_hook


if __name__ == "__main__":
    sys.exit(main())
