"""Where variables and other operations of a replicated model go."""

from typing import Any, Callable

import numpy as np

from millrace.core import dtypes
from millrace.core.device import DeviceSpec
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.distributed.cluster import ClusterSpec

# Operations that hold state, which parameter servers keep.
STATEFUL_OPS = (
    "Variable", "VariableV2", "AutoReloadVariable", "MutableHashTable", "MutableHashTableV2",
    "MutableHashTableOfTensors", "MutableHashTableOfTensorsV2", "MutableDenseHashTable",
    "MutableDenseHashTableV2", "VarHandleOp", "BoostedTreesEnsembleResourceHandleOp",
    "BoostedTreesQuantileStreamResourceHandleOp", "ResourceConditionalAccumulator",
    "DecisionTreeResource",
)  # fmt: skip


class RoundRobinStrategy:
    """One parameter server after another."""

    def __init__(self, num_tasks: int):
        self._num_tasks = num_tasks
        self._next_task = 0

    def __call__(self, op: Any) -> int:
        task = self._next_task
        self._next_task = (task + 1) % self._num_tasks
        return task


@export(v1="contrib.training.byte_size_load_fn")
def byte_size_load_fn(op: Any) -> float:
    """The size in bytes of what a variable's operation holds. ValueError for an unknown shape."""
    if len(op.outputs) != 1:
        raise ValueError(
            f"Op {op.name} has {len(op.outputs)} outputs, cannot calculate byte_size_load_fn."
        )
    output = op.outputs[0]
    shape, dtype = output.shape, output.dtype.base_dtype
    if op.type == "VarHandleOp":
        shape = TensorShape(op.get_attr("shape"))
        dtype = dtypes.as_dtype(op.get_attr("dtype"))
    count = shape.num_elements()
    if count is None:
        raise ValueError(f"The shape {shape} of {op.name} is not known fully: it has no size yet")
    return float(count * dtype.size)


@export(v1="contrib.training.GreedyLoadBalancingStrategy")
class GreedyLoadBalancingStrategy:
    """The parameter server with the least load so far.

    Args:
      num_tasks: how many there are.
      load_fn: a function from an operation to its load, such as `byte_size_load_fn`.
    """

    def __init__(self, num_tasks: int, load_fn: Callable[[Any], float]):
        self._ps_loads = [0.0] * num_tasks
        self._load_fn = load_fn

    def __call__(self, op: Any) -> int:
        task = self._ps_loads.index(min(self._ps_loads))
        self._ps_loads[task] += self._load_fn(op)
        return task


@export(v1="contrib.training.RandomStrategy")
class RandomStrategy:
    """Any parameter server, by chance.

    Args:
      num_ps: how many there are.
      seed: of the numbers drawn.
    """

    def __init__(self, num_ps: int, seed: int = 0):
        self._num_ps = num_ps
        self._random = np.random.RandomState(seed)

    def __call__(self, op: Any) -> int:
        return int(self._random.randint(0, self._num_ps))


@export(v1="train.replica_device_setter")
def replica_device_setter(
    ps_tasks: int = 0, ps_device: str = "/job:ps", worker_device: str = "/job:worker",
    merge_devices: bool = True, cluster: Any = None, ps_ops: Any = None, ps_strategy: Any = None,
) -> Callable[[Any], str] | None:  # fmt: skip
    """A function for `tf.device` that sends variables to parameter servers, the rest to workers.

    Args:
      ps_tasks: the number of parameter servers; not needed with `cluster`.
      ps_device, worker_device: the devices of the two jobs.
      merge_devices: whether devices that operations ask for are merged in; else they replace.
      cluster: a cluster, as ClusterSpec takes it.
      ps_ops: the types of operations that go to parameter servers; those of variables by default.
      ps_strategy: a function from an operation to the number of a parameter server; one after
        another by default.

    None when there are no parameter servers. TypeError when `ps_strategy` cannot be called.
    """
    if cluster is not None:
        jobs = ClusterSpec(cluster).as_dict()
        ps_job = DeviceSpec.from_string(ps_device).job
        if not jobs.get(ps_job):
            return None
        ps_tasks = len(jobs[ps_job])
    if ps_tasks == 0:
        return None
    if ps_strategy is None:
        ps_strategy = RoundRobinStrategy(ps_tasks)
    if not callable(ps_strategy):
        raise TypeError(f"ps_strategy must be callable, got {ps_strategy!r}")
    kinds = frozenset(STATEFUL_OPS if ps_ops is None else ps_ops)

    def device(op: Any) -> str:
        if not merge_devices and op.device:
            return op.device
        asked = DeviceSpec.from_string(op.device or "")
        kind = op.op if hasattr(op, "attr") else op.type  # a NodeDef, or an Operation
        if ps_device and kind in kinds:
            chosen = DeviceSpec.from_string(ps_device)
            if chosen.job and (not asked.job or asked.job == chosen.job):
                chosen.task = ps_strategy(op)
        else:
            chosen = DeviceSpec.from_string(worker_device or "")
        chosen.merge_from(asked)
        return chosen.to_string()

    return device
