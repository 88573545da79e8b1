"""A line on the terminal that shows how far the training is."""

import sys
import time
from typing import Any

from millrace.train.hooks import StopAtStepHook
from millrace.train.session_run_hook import (
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from millrace.train.timers import step_for

_SECONDS_BETWEEN = 0.25


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"


def progress_text(step: int, last_step: int | None, rate: float) -> str:
    """What the line says, as "step 30/120  25%  15.0 steps/s  0:00:06 left"."""
    if not last_step or last_step < step:
        return f"step {step}  {rate:.1f} steps/s"
    text = f"step {step}/{last_step}  {100 * step // last_step}%  {rate:.1f} steps/s"
    return f"{text}  {_clock((last_step - step) / rate)} left" if rate > 0 else text


class ProgressHook(SessionRunHook):
    """Shows the step, the rate over the last seconds and, where one of `hooks` stops at a step, the
    time left. The line is written over by whatever comes next."""

    def __init__(self, hooks: list[Any], stream: Any = None):
        self._stops = [hook for hook in hooks if isinstance(hook, StopAtStepHook)]
        self._stream = sys.stderr if stream is None else stream

    def begin(self) -> None:
        """Finds the count of steps. RuntimeError when there is none."""
        self._global_step_tensor = step_for(self)
        self._seen: tuple[float, int] | None = None
        self._rate = 0.0

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Fetches the count."""
        return SessionRunArgs(self._global_step_tensor)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Writes the line, a few times a second."""
        now, step = time.monotonic(), int(run_values.results)
        if self._seen is None:
            self._seen = (now, step)
            return
        seconds, steps = now - self._seen[0], step - self._seen[1]
        if seconds < _SECONDS_BETWEEN:
            return
        rate = steps / seconds
        self._rate = 0.9 * self._rate + 0.1 * rate if self._rate else rate
        self._seen = (now, step)
        last = min((h.last_step for h in self._stops if h.last_step is not None), default=None)
        self._stream.write(f"\x1b[K{progress_text(step, last, self._rate)}\r")
        self._stream.flush()

    def end(self, session: Any) -> None:
        """Clears the line."""
        self._stream.write("\x1b[K")
        self._stream.flush()


def shows_progress() -> bool:
    """Whether standard error is a terminal."""
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):
        return False
