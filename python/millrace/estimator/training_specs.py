"""What to train and to evaluate on."""

from collections import namedtuple
from typing import Any

from millrace.core.export import export
from millrace.estimator.exporters import Exporter
from millrace.train.session_run_hook import SessionRunHook


def _check_input_fn(input_fn: Any) -> None:
    if not callable(input_fn):
        raise TypeError(f"`input_fn` must be callable, given: {input_fn}")


def _checked_hooks(hooks: Any) -> tuple[Any, ...]:
    hooks = tuple(hooks or ())
    for hook in hooks:
        if not isinstance(hook, SessionRunHook):
            raise TypeError(f"All hooks must be `SessionRunHook` instances, given: {hook}")
    return hooks


@export(v1="estimator.TrainSpec")
class TrainSpec(namedtuple("TrainSpec", ["input_fn", "max_steps", "hooks", "saving_listeners"])):
    """What to train on: an input function, the step to stop at (None: where the input ends), hooks
    and CheckpointSaverListeners."""

    __slots__ = ()

    def __new__(
        cls, input_fn: Any, max_steps: int | None = None, hooks: Any = None,
        saving_listeners: Any = None,
    ) -> "TrainSpec":  # fmt: skip
        _check_input_fn(input_fn)
        if max_steps is not None and max_steps <= 0:
            raise ValueError(f"Must specify max_steps > 0, given: {max_steps}")
        return super().__new__(
            cls, input_fn, max_steps, _checked_hooks(hooks), tuple(saving_listeners or ())
        )


@export(v1="estimator.EvalSpec")
class EvalSpec(
    namedtuple(
        "EvalSpec",
        [
            "input_fn", "steps", "name", "hooks", "exporters", "start_delay_secs", "throttle_secs",
        ],
    )
):  # fmt: skip
    """What to evaluate on: an input function, how many batches (None: all), the name of the
    evaluation, hooks, what exports the model after it, and the least seconds between two."""

    __slots__ = ()

    def __new__(
        cls, input_fn: Any, steps: int | None = 100, name: str | None = None, hooks: Any = None,
        exporters: Any = None, start_delay_secs: float = 120, throttle_secs: float = 600,
    ) -> "EvalSpec":  # fmt: skip
        _check_input_fn(input_fn)
        if steps is not None and steps <= 0:
            raise ValueError(f"Must specify steps > 0, given: {steps}")
        if name is not None and not isinstance(name, str):
            raise TypeError(f"`name` must be string, given: {name}")
        if start_delay_secs < 0:
            raise ValueError(f"Must specify start_delay_secs >= 0, given: {start_delay_secs}")
        if throttle_secs < 0:
            raise ValueError(f"Must specify throttle_secs >= 0, given: {throttle_secs}")
        if isinstance(exporters, Exporter):
            exporters = [exporters]
        exporters = tuple(exporters or ())
        names = [exporter.name for exporter in exporters]
        for exporter in exporters:
            if not isinstance(exporter, Exporter):
                raise TypeError(f"`exporters` must be an Exporter or a list of them: {exporter}")
            if names.count(exporter.name) > 1:
                raise ValueError(f"Exporter names must be unique, given: {names}")
        return super().__new__(
            cls, input_fn, steps, name, _checked_hooks(hooks), exporters, start_delay_secs,
            throttle_secs,
        )  # fmt: skip
