"""What input functions give, as tensors."""

import inspect
from typing import Any

from millrace.train.session_run_hook import SessionRunHook


def read_input(input_fn: Any, mode: str, params: Any, config: Any) -> Any:
    """What an input function gives; it gets `mode`, `params` and `config` where it names them."""
    if not callable(input_fn):
        raise ValueError(f"input_fn must be callable. Given: {input_fn}")
    names = inspect.signature(input_fn).parameters
    known = {"mode": mode, "params": params, "config": config}
    return input_fn(**{name: value for name, value in known.items() if name in names})


class _InitializeIterator(SessionRunHook):
    """Starts the iterator over a Dataset in every new session."""

    def __init__(self, initializer: Any):
        self._initializer = initializer

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Starts it."""
        session.run(self._initializer)


def features_and_labels(given: Any, needs_labels: bool = True) -> tuple[Any, Any, list[Any]]:
    """Features, labels or None, and the hooks that the input needs, of what an input function
    gave: features, a pair, or a Dataset of those."""
    hooks: list[Any] = []
    if hasattr(given, "make_initializable_iterator"):
        iterator = given.make_initializable_iterator()
        hooks.append(_InitializeIterator(iterator.initializer))
        given = iterator.get_next()
    if isinstance(given, (list, tuple)):
        if len(given) != 2:
            raise ValueError(
                "input_fn should return (features, labels) as a len 2 tuple, "
                f"got {len(given)} elements."
            )
        return given[0], given[1] if needs_labels else None, hooks
    return given, None, hooks
