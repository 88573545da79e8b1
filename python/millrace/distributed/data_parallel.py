"""Training by several processes that run one program, each on its own part of the data.

Every process has all variables. Their gradients are averaged, so that all make the same step.
"""

from typing import Any

import numpy as np

from millrace import gen_ops
from millrace.core import dtypes, errors, logging
from millrace.core.tensor import Tensor
from millrace.distributed import world
from millrace.distributed.collective import all_gather, all_reduce, broadcast_parts, members
from millrace.distributed.meeting import Meeting, ended_in_step, meet, words
from millrace.distributed.read_ahead import refuse_read_ahead
from millrace.graph.default_graph import control_dependencies, name_scope
from millrace.graph.sparse import IndexedSlices
from millrace.ops.ordering import group, tuple_
from millrace.state.variable_lists import global_variables
from millrace.train.global_step import get_or_create_global_step
from millrace.train.optimizer import Optimizer
from millrace.train.session_run_hook import SessionRunHook
from millrace.train.wrapped_optimizer import WrappedOptimizer

_LOST = (errors.AbortedError, errors.UnavailableError)
# How long the processes wait for each other at the end.
_END_SECS = 30
# Types that broadcasts do not have, and those that hold all their values.
_CARRIED = {
    dtypes.bfloat16: dtypes.float32,
    dtypes.int8: dtypes.int32,
    dtypes.uint8: dtypes.int32,
    dtypes.int16: dtypes.int32,
    dtypes.uint16: dtypes.int32,
    dtypes.uint32: dtypes.int64,
}
_BROADCAST = (
    dtypes.bool_, dtypes.float16, dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64,
)  # fmt: skip


class DistributedOptimizer(WrappedOptimizer):
    """Has another optimiser apply the mean of the gradients of all processes of the group.

    Gradients of one type travel together, in buckets. Rows of a gradient (IndexedSlices) are
    gathered instead. No variable is changed before all gradients are there, so a step that fails
    because a process was lost has changed nothing. Before gradients travel, all processes tell each
    other that they have made theirs: where one has come to its end instead (see
    BroadcastVariablesHook), the step is OutOfRangeError in all others, as at the end of data.

    Args:
      opt: the optimiser that changes the variables.
      bucket_bytes: how large a bucket may be.
    """

    def __init__(self, opt: Optimizer, bucket_bytes: int = 16 << 20, name: str = "distributed"):
        super().__init__(opt, name)
        if bucket_bytes < 1:
            raise ValueError(f"bucket_bytes: expected at least 1, got {bucket_bytes}")
        self._bucket_bytes = bucket_bytes

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """As of the optimiser inside, with the mean over all processes for each gradient.

        ValueError for variables that are read ahead.
        """
        pairs = self._opt.compute_gradients(*args, **kwargs)
        refuse_read_ahead([variable for _, variable in pairs], "DistributedOptimizer")
        found = [gradient for gradient, _ in pairs]
        if world.size() == 1 or all(gradient is None for gradient in found):
            return pairs
        loss = args[0] if args else kwargs.get("loss")
        # Who has no data has no loss. The others are asked while gradients are computed.
        made = loss if isinstance(loss, Tensor) else next(g for g in found if g is not None)
        with name_scope(None, self._name), control_dependencies([ended_in_step(made)]):
            means = tuple_(self._means(found))
        return [(mean, variable) for mean, (_, variable) in zip(means, pairs, strict=True)]

    def _means(self, gradients: list[Any]) -> list[Any]:
        means: list[Any] = [None] * len(gradients)
        dense = []
        # As many as take part also where a smaller group goes on, as in the mean of dense ones.
        rows = any(isinstance(gradient, IndexedSlices) for gradient in gradients)
        count = members() if rows else None
        for place, gradient in enumerate(gradients):
            if isinstance(gradient, IndexedSlices):
                values = all_gather(gradient.values)
                means[place] = IndexedSlices(
                    gen_ops.real_div(values, gen_ops.cast(count, values.dtype)),
                    all_gather(gradient.indices), gradient.dense_shape,
                )  # fmt: skip
            elif gradient is not None:
                dense.append((place, gradient))
        for bucket in _buckets(dense, self._bucket_bytes):
            parts = _mean_of_all([gradient for _, gradient in bucket])
            for (place, _), mean in zip(bucket, parts, strict=True):
                means[place] = mean
        return means


def _buckets(dense: list[tuple[int, Tensor]], most: int) -> list[list[tuple[int, Tensor]]]:
    """Gradients that travel together: of one type, and of known size. Those of the last layers
    come first, as they are computed first."""
    buckets: list[list[tuple[int, Tensor]]] = []
    open_ones: dict[Any, tuple[list[tuple[int, Tensor]], int]] = {}
    for place, gradient in reversed(dense):
        elements = gradient.shape.num_elements()
        if elements is None:
            buckets.append([(place, gradient)])
            continue
        size = elements * gradient.dtype.size
        bucket, used = open_ones.get(gradient.dtype, ([], most))
        if used + size > most:
            bucket, used = [], 0
            buckets.append(bucket)
        bucket.append((place, gradient))
        open_ones[gradient.dtype] = (bucket, used + size)
    return buckets


def _mean_of_all(gradients: list[Tensor]) -> list[Tensor]:
    if len(gradients) == 1:
        return [all_reduce(gradients[0])]
    flat = [gen_ops.reshape(gradient, [-1]) for gradient in gradients]
    sizes = [gradient.shape.num_elements() for gradient in gradients]
    parts = gen_ops.split_v(all_reduce(gen_ops.concat_v2(flat, 0)), sizes, 0, len(sizes))
    return [
        gen_ops.reshape(part, gradient.shape.as_list())
        for part, gradient in zip(parts, gradients, strict=True)
    ]


class BroadcastVariablesHook(SessionRunHook):
    """Gives all processes the same variables: at first, and whenever a process was lost.

    They are those of the process with the highest global step, the lowest rank among several: one
    that was started again gets what the others have, and one that restored a checkpoint gives it to
    all. A session of this process lives on when another process is lost: MonitoredTrainingSession
    waits for it here and goes on.

    The first process that comes to its end, of its data or its steps, ends the training of all: the
    next step of the others with a DistributedOptimizer is an OutOfRangeError, as at the end of
    their own data. Then the processes wait for each other, so that nobody leaves while others still
    need something of it.

    Args:
      variables: all global ones by default, the global step among them. ValueError for a type that
        cannot be sent.
    """

    def __init__(self, variables: Any = None):
        self._variables = variables
        self._ended = False  # another process has come to its end

    def begin(self) -> None:
        """Makes the operations."""
        step = get_or_create_global_step()
        variables = list(global_variables() if self._variables is None else self._variables)
        if all(variable is not step for variable in variables):
            variables.append(step)
        self._step = step
        with name_scope(None, "broadcast_variables"):
            own = gen_ops.cast(gen_ops.identity(step), dtypes.int64)
            self._behind = gen_ops.placeholder(dtypes.int64, shape=[])
            self._ending = gen_ops.placeholder(dtypes.int64, shape=[])
            said = words(own, self._behind, self._ending)
            self._meet, self._meet_soon = meet(said), meet(said, timeout_secs=_END_SECS)
            self._give, self._take = _broadcast_ops(variables)
            self._done = all_reduce(np.int64(0), "max", timeout_secs=_END_SECS)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Waits for the others, and for their variables."""
        self.mend_session(session)

    def mend_session(self, session: Any) -> None:
        """The same for a session that has seen a process get lost."""
        while world.size() > 1:
            try:
                met = self._met(session, self._meet, behind=1, ending=0)
                self._share(session, met)
                self._ended = met.ending
                return
            except _LOST as error:
                logging.warning("A process was lost; its place is waited for: %s", error)

    def before_run(self, run_context: Any) -> None:
        """StopIteration, which ends the training, where the others have ended theirs."""
        if self._ended:
            raise StopIteration("the other processes have come to the end of their training")

    def end(self, session: Any) -> None:
        """Ends the training of the others and waits for them; one that was started again meanwhile
        gets the last variables."""
        lost = 0
        while world.size() > 1:
            try:
                # Who is slow is waited for; who is gone, for as long as it may take to come back.
                met = self._met(session, self._meet_soon if lost else self._meet, lost, ending=1)
                if met.behind:
                    self._share(session, met)
                elif met.all_ending:
                    session.run(self._done)
                    return
            except _LOST as error:
                lost = 1
                logging.warning("A process was lost at the end: %s", error)
            except errors.DeadlineExceededError as error:
                logging.warning("The others have not come to their end in time: %s", error)
                return

    def _met(self, session: Any, asked: Tensor, behind: int, ending: int) -> Meeting:
        return Meeting.read(session.run(asked, {self._behind: behind, self._ending: ending}))

    def _share(self, session: Any, met: Meeting) -> None:
        """Gives all the variables of the process that is furthest."""
        session.run(self._give if met.furthest == world.rank() else self._take)


def _broadcast_ops(variables: list[Any]) -> tuple[Any, Any]:
    """What the process runs that gives its variables, and what the others do."""
    given, taken = [], []
    for variable in variables:
        dtype = variable.dtype.base_dtype
        carried = _CARRIED.get(dtype, dtype)
        if carried not in _BROADCAST:
            raise ValueError(f"{variable.name}: a variable of {dtype.name} cannot be sent")
        value = gen_ops.cast(gen_ops.identity(variable), carried)
        value.set_shape(variable.shape)
        sent, received = broadcast_parts(value)
        given.append(sent)
        taken.append((variable, gen_ops.cast(received, dtype)))
    # All or none: a process that has but some of them must not pass for one that has all.
    with control_dependencies([value for _, value in taken]):
        assigned = [variable.assign(gen_ops.identity(value)) for variable, value in taken]
    return group(*given), group(*assigned)
