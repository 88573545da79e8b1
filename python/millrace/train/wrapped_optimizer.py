"""Optimisers around another one."""

from typing import Any

from millrace.train.optimizer import Optimizer


class WrappedOptimizer(Optimizer):
    """The base of optimisers that have another one, `_opt`, make the updates.

    Gradients are its gradients, slots its slots, variables its variables. A class of this kind says
    what is done to gradients on their way, in `compute_gradients` or in `apply_gradients`.

    Args:
      opt: the optimiser inside.
    """

    def __init__(self, opt: Optimizer, name: str, use_locking: bool = False):
        super().__init__(use_locking, name)
        self._opt = opt

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """As of the optimiser inside."""
        return self._opt.compute_gradients(*args, **kwargs)

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: str | None = None
    ) -> Any:
        """As of the optimiser inside."""
        return self._opt.apply_gradients(grads_and_vars, global_step, name)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """As of the optimiser inside."""
        return self._opt.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> list[str]:
        """As of the optimiser inside."""
        return self._opt.get_slot_names(*args, **kwargs)

    def variables(self) -> list[Any]:
        """As of the optimiser inside."""
        return self._opt.variables()
