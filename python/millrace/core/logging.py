"""The log of a program, `tf.logging`: the standard library's logger named "tensorflow".

Lines such as `INFO:tensorflow:message` go to standard error. A program that sets up logging
itself, with a handler of the root logger, gets the records there instead.
"""

from __future__ import annotations

import logging
import sys
import threading
from typing import Any

from millrace.core.export import export

DEBUG = export(v1="logging.DEBUG")(10)
INFO = export(v1="logging.INFO")(20)
WARN = export(v1="logging.WARN")(30)
ERROR = export(v1="logging.ERROR")(40)
FATAL = export(v1="logging.FATAL")(50)

_lock = threading.Lock()
_logger: logging.Logger | None = None
_counts: dict[tuple[str, int], int] = {}


class _StderrHandler(logging.Handler):
    """Writes to what `sys.stderr` is at the time, unless the root logger has handlers."""

    def emit(self, record: logging.LogRecord) -> None:
        if logging.getLogger().handlers or sys.stderr is None:
            return
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


@export(v1="logging.get_logger", v2="get_logger")
def get_logger() -> logging.Logger:
    """The standard library's logger that all functions here write to."""
    global _logger
    with _lock:
        if _logger is None:
            logger = logging.getLogger("tensorflow")
            handler = _StderrHandler()
            handler.setFormatter(logging.Formatter(logging.BASIC_FORMAT))
            logger.addHandler(handler)
            if logger.level == logging.NOTSET:
                logger.setLevel(WARN)
            _logger = logger
    return _logger


@export(v1="logging.log")
def log(level: int, msg: Any, *args: Any, **kwargs: Any) -> None:
    """Logs `msg % args` at `level`."""
    get_logger().log(level, msg, *args, stacklevel=2, **kwargs)


@export(v1="logging.debug")
def debug(msg: Any, *args: Any, **kwargs: Any) -> None:
    """Logs `msg % args` at level DEBUG."""
    get_logger().debug(msg, *args, stacklevel=2, **kwargs)


@export(v1="logging.info")
def info(msg: Any, *args: Any, **kwargs: Any) -> None:
    """Logs `msg % args` at level INFO."""
    get_logger().info(msg, *args, stacklevel=2, **kwargs)


@export(v1=("logging.warning", "logging.warn"))
def warning(msg: Any, *args: Any, **kwargs: Any) -> None:
    """Logs `msg % args` at level WARN."""
    get_logger().warning(msg, *args, stacklevel=2, **kwargs)


warn = warning


@export(v1="logging.error")
def error(msg: Any, *args: Any, **kwargs: Any) -> None:
    """Logs `msg % args` at level ERROR."""
    get_logger().error(msg, *args, stacklevel=2, **kwargs)


@export(v1="logging.fatal")
def fatal(msg: Any, *args: Any, **kwargs: Any) -> None:
    """Logs `msg % args` at level FATAL. The program goes on."""
    get_logger().critical(msg, *args, stacklevel=2, **kwargs)


@export(v1="logging.vlog")
def vlog(level: int, msg: Any, *args: Any, **kwargs: Any) -> None:
    """Logs `msg % args` at the numeric `level`."""
    get_logger().log(level, msg, *args, stacklevel=2, **kwargs)


@export(v1="logging.TaskLevelStatusMessage")
def TaskLevelStatusMessage(msg: Any) -> None:
    """Logs `msg` at level ERROR."""
    get_logger().error(msg, stacklevel=2)


def _times_here() -> int:
    """How often the line that called our caller has come here before."""
    frame = sys._getframe(2)
    place = (frame.f_code.co_filename, frame.f_lineno)
    with _lock:
        count = _counts.get(place, 0)
        _counts[place] = count + 1
    return count


@export(v1="logging.log_every_n")
def log_every_n(level: int, msg: Any, n: int, *args: Any) -> None:
    """Logs the first of every `n` calls made from the same line."""
    if _times_here() % n == 0:
        get_logger().log(level, msg, *args, stacklevel=2)


@export(v1="logging.log_first_n")
def log_first_n(level: int, msg: Any, n: int, *args: Any) -> None:
    """Logs the first `n` calls made from the same line."""
    if _times_here() < n:
        get_logger().log(level, msg, *args, stacklevel=2)


@export(v1="logging.log_if")
def log_if(level: int, msg: Any, condition: Any, *args: Any) -> None:
    """Logs where `condition` is true."""
    if condition:
        get_logger().log(level, msg, *args, stacklevel=2)


@export(v1="logging.set_verbosity")
def set_verbosity(v: int | str) -> None:
    """Lets messages of level `v` and above through; WARN until it is set."""
    get_logger().setLevel(v)


@export(v1="logging.get_verbosity")
def get_verbosity() -> int:
    """The lowest level that is let through."""
    return get_logger().getEffectiveLevel()


@export(v1="logging.flush")
def flush() -> None:
    """Writes out what is buffered."""
    for handler in get_logger().handlers:
        handler.flush()
