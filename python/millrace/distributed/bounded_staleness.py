"""Asynchronous training whose workers stay close to each other."""

from typing import Any

from millrace import gen_ops
from millrace.core.device import DeviceSpec
from millrace.graph.default_graph import control_dependencies, device, get_default_graph
from millrace.ops.ordering import group, no_op
from millrace.train.optimizer import Optimizer
from millrace.train.wrapped_optimizer import WrappedOptimizer


class BoundedStaleness(WrappedOptimizer):
    """An optimiser for workers that train asynchronously, of which none may run ahead of the
    slowest by more than some steps: after its update a worker waits until the others are near.

    Workers join with their first step, where the slowest is, and leave with the end of their
    sessions; one that is lost, with the end of its lease. Nobody waits for who has left.

    Args:
      opt: the optimiser that makes the updates.
      staleness: how many steps a worker may be ahead; 0: all make the same number of steps.
      worker: the worker's name, another for each; by default the job and task of the device where
        the training operation is made.
      name: of the gate that the workers share; another for each training on a server.
    """

    def __init__(
        self, opt: Optimizer, staleness: int, worker: str | None = None,
        name: str = "bounded_staleness",
    ):  # fmt: skip
        if staleness < 0:
            raise ValueError(f"staleness must not be negative, got {staleness}")
        super().__init__(opt, name)
        self._staleness = staleness
        self._worker = worker

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: str | None = None
    ) -> Any:
        """The operation that a worker runs for a step: updates, then waits for the others.

        ValueError without `global_step`, beside which the gate is, and for a worker without a name.
        """
        if global_step is None:
            raise ValueError("A global step is required: the gate of the workers is beside it")
        worker = self._worker or _task_of_default_device()
        update = self._opt.apply_gradients(grads_and_vars, global_step)
        with control_dependencies([update]), device(global_step.device or None):
            gate = gen_ops.step_gate(shared_name=self._name)
            made = gen_ops.step_gate_pace(gate, worker, self._staleness)
        return group(made, name=name)


def _task_of_default_device() -> str:
    with get_default_graph().as_default():
        spec = DeviceSpec.from_string(no_op().device or "")
    if spec.job is None or spec.task is None:
        raise ValueError(
            "BoundedStaleness needs the worker's name: expected worker=..., or a device with job "
            "and task around it, as replica_device_setter(worker_device=...) makes it"
        )
    return f"/job:{spec.job}/task:{spec.task}"
