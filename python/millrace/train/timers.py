"""When hooks do something, and the count of steps that they read."""

import time
from typing import Any

from millrace.core.export import export
from millrace.graph.default_graph import get_default_graph
from millrace.train.global_step import get_global_step, global_step_read


@export(v1=("train.SecondOrStepTimer", "estimator.SecondOrStepTimer"))
class SecondOrStepTimer:
    """Tells when to do something: every so many seconds, or every so many steps."""

    def __init__(self, every_secs: float | None = None, every_steps: int | None = None):
        if every_secs is None and every_steps is None:
            raise ValueError("Either every_secs or every_steps should be provided.")
        if every_secs is not None and every_steps is not None:
            raise ValueError("Can not provide both every_secs and every_steps.")
        self._every_secs = every_secs
        self._every_steps = every_steps
        self.reset()

    def reset(self) -> None:
        """Starts anew."""
        self._last_triggered_step: int | None = None
        self._last_triggered_time: float | None = None

    def should_trigger_for_step(self, step: int) -> bool:
        """Whether it is time, at that step."""
        if self._last_triggered_step is None:
            return True
        if self._last_triggered_step == step:
            return False
        if self._every_secs is not None:
            return time.time() >= self._last_triggered_time + self._every_secs
        return step >= self._last_triggered_step + self._every_steps

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """Notes that it was done; gives the seconds and the steps since the last time."""
        now = time.time()
        elapsed: tuple[float | None, int | None] = (None, None)
        if self._last_triggered_step is not None:
            elapsed = (now - self._last_triggered_time, step - self._last_triggered_step)
        self._last_triggered_time = now
        self._last_triggered_step = step
        return elapsed

    def last_triggered_step(self) -> int | None:
        """The step of the last time, or None."""
        return self._last_triggered_step


def step_for(hook: Any) -> Any:
    """The tensor that counts the steps. RuntimeError where there is none."""
    # Nothing can be added to a graph that is final: the variable itself serves.
    step = get_global_step() if get_default_graph().finalized else global_step_read()
    if step is None:
        raise RuntimeError(f"Global step should be created to use {type(hook).__name__}.")
    return step
