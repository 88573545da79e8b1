"""Replicas that make their steps together."""

from typing import Any

from millrace import gen_ops
from millrace.core import dtypes, logging
from millrace.core.device import DeviceSpec
from millrace.core.errors import AbortedError, OpError, UnavailableError
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.distributed.read_ahead import refuse_read_ahead
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import control_dependencies, device, get_default_graph, name_scope
from millrace.graph.keys import GraphKeys
from millrace.graph.operation import Operation
from millrace.graph.sparse import IndexedSlices
from millrace.ops.ordering import group, no_op
from millrace.state.queue_runner import QueueRunner
from millrace.state.queues import ConditionalAccumulator, FIFOQueue, SparseConditionalAccumulator
from millrace.state.variable_lists import global_variables, report_uninitialized_variables
from millrace.state.variables import Variable
from millrace.train.living_tasks import Era
from millrace.train.optimizer import Optimizer
from millrace.train.session_manager import is_ready
from millrace.train.session_run_hook import SessionRunHook
from millrace.train.wrapped_optimizer import WrappedOptimizer


@export(v1="train.SyncReplicasOptimizer")
class SyncReplicasOptimizer(WrappedOptimizer):
    """Has another optimiser apply the mean of the gradients of several replicas.

    Gradients are gathered in accumulators, which drop those of earlier steps. When enough came for
    each variable, the chief applies them and opens a gate for the next step; a replica goes on when
    it is through.

    A replica whose device names its job and task gives one gradient to a step, even if it is
    restarted meanwhile: a fast one does not take the place of a slow one, and with as many replicas
    as a step needs the result is that of one process. Only when a step needs more gradients than
    there are replicas does each give several.

    Args:
      opt: the optimiser that changes the variables.
      replicas_to_aggregate: how many gradients make a step.
      total_num_replicas: how many replicas there are; those above are spare. As many by default.
      variable_averages: an ExponentialMovingAverage to keep up, of `variables_to_average`.

    Attributes:
      late_gradients: after `apply_gradients`, a local variable: how many of this replica's
        gradients came too late, or again, and were dropped.
    """

    late_gradients: Variable

    def __init__(
        self, opt: Optimizer, replicas_to_aggregate: int, total_num_replicas: int | None = None,
        variable_averages: Any = None, variables_to_average: Any = None, use_locking: bool = False,
        name: str = "sync_replicas",
    ):  # fmt: skip
        super().__init__(opt, name, use_locking)
        if total_num_replicas is None:
            total_num_replicas = replicas_to_aggregate
        self._replicas_to_aggregate = replicas_to_aggregate
        self._total_num_replicas = total_num_replicas
        self._variable_averages = variable_averages
        self._variables_to_average = variables_to_average
        self._gradients_applied = False
        self._global_step: Any = None
        self._gate: Any = None
        self._chief_queue_runner: Any = None
        self._accumulator_list: list[tuple[Any, str]] = []

    def apply_gradients(
        self, grads_and_vars: Any, global_step: Any = None, name: str | None = None
    ) -> Any:
        """The operation that a replica runs for a step: gives its gradients, waits for the next.

        ValueError without variables or without `global_step`, which tells old gradients, and for
        variables that are read ahead.
        """
        pairs = list(grads_and_vars)
        if not pairs:
            raise ValueError("Must supply at least one variable")
        if global_step is None:
            raise ValueError("Global step is required to check staleness")
        refuse_read_ahead([variable for _, variable in pairs], "SyncReplicasOptimizer")
        self._global_step = global_step
        # The count of this replica stays with it, not with the parameter servers.
        with get_default_graph().colocate_with(no_op()):
            self._local_step = Variable(
                0, trainable=False, collections=[GraphKeys.LOCAL_VARIABLES],
                dtype=global_step.dtype.base_dtype, name="sync_rep_local_step",
            )  # fmt: skip
            self.late_gradients = Variable(
                0, trainable=False, collections=[GraphKeys.LOCAL_VARIABLES], dtype=dtypes.int64,
                name="sync_rep_late_gradients",
            )  # fmt: skip
            self._local_era = Variable(
                0, trainable=False, collections=[GraphKeys.LOCAL_VARIABLES], dtype=dtypes.int64,
                name="sync_rep_era",
            )  # fmt: skip
            began, era = _count(self._local_step), gen_ops.identity(self._local_era)
        self.local_step_init_op = _operation(self._local_step.assign(global_step))
        self.ready_for_local_init_op = report_uninitialized_variables(global_variables())
        with name_scope(None, self._name):
            with device(global_step.device or None):
                # What the chief says of the step that it makes; see _StepRunner.
                self._era = gen_ops.placeholder_with_default(_int64(0), [])
                self._step = gen_ops.placeholder_with_default(_count(global_step), [])
            given, aggregated = self._gather(pairs, began, era)
            with device(global_step.device or None), name_scope(""):
                update = self._opt.apply_gradients(aggregated)
                step = self._pass_gate(given, began, era, update)
            begun = []
            for accumulator, place in self._accumulator_list:
                with device(place or None):
                    begun.append(accumulator.begin(self._era, _count(global_step)))
            # Whoever goes through the gate finds accumulators of its era.
            with device(global_step.device or None), control_dependencies(begun):
                reset = gen_ops.step_gate_reset(self._gate, self._era, _count(global_step))
            self.chief_init_op = group(self.local_step_init_op, reset)
        self._gradients_applied = True
        return step

    def _giver(self) -> str:
        """Who this replica is to accumulators, which take one gradient of each for a step.

        Empty for one that has to give several, or that is not known from its device.
        """
        own = DeviceSpec.from_string(self._local_step.device or "")
        if own.job is None or own.task is None:
            return ""
        if self._replicas_to_aggregate > self._total_num_replicas:
            return ""
        return f"/job:{own.job}/replica:{own.replica or 0}/task:{own.task}"

    def _gather(
        self, pairs: list[tuple[Any, Any]], began: Tensor, era: Tensor
    ) -> tuple[list[Any], list[tuple[Any, Any]]]:
        """Whether accumulators took the gradients, and the pairs with what is taken from them, when
        all is: a replica that computes its gradients once more must not meet half a step."""
        given: list[Any] = []
        aggregated: list[tuple[Any, Any]] = []
        giver = self._giver()
        for gradient, var in pairs:
            if gradient is None:
                aggregated.append((None, var))
                continue
            shared = var.name + "/grad_accum"
            with device(var.device or None):
                if isinstance(gradient, IndexedSlices):
                    accumulator: Any = SparseConditionalAccumulator(
                        gradient.dtype, shape=(), shared_name=shared
                    )
                    given.append(accumulator.give_indexed_slices_grad(gradient, began, giver, era))
                elif isinstance(gradient, Tensor):
                    accumulator = ConditionalAccumulator(
                        gradient.dtype, shape=var.shape, shared_name=shared
                    )
                    given.append(accumulator.give_grad(gradient, began, giver, era))
                else:
                    raise ValueError(f"Unknown grad type! Expected a tensor, got {gradient!r}")
                mean = accumulator.take_step(self._era, self._step, self._replicas_to_aggregate)
            self._accumulator_list.append((accumulator, var.device))
            aggregated.append((mean, var))
        return given, _all_at_once(aggregated, self._global_step.device)

    def _pass_gate(self, given: list[Any], began: Tensor, era: Tensor, update: Operation) -> Any:
        """Waits at the gate when all is `given`; the chief's runner opens it after `update`."""
        self._gate = gen_ops.step_gate(shared_name="sync_step_gate", name="sync_step_gate")
        # The runner closes its queue with its session, so it has one that nobody uses.
        dummy = FIFOQueue(1, dtypes.int32, shapes=(), name="dummy_queue", shared_name="dummy_queue")
        with control_dependencies(given):
            reached = gen_ops.step_gate_wait(self._gate, era, began)
        late = gen_ops.cast(gen_ops.logical_not(given[0]) if given else False, dtypes.int64)
        done = self._keep_place(*reached, late)
        # Of one who begins: it is where the gate is, once a chief has set it.
        reached = gen_ops.step_gate_wait(self._gate, _int64(0), _int64(-1))
        self._join_op = _operation(self._keep_place(*reached, _int64(0)))
        # The count goes up when all else is done, and the gate opens: a chief that begins anew
        # knows by the count which step is under way.
        if self._variable_averages is not None:
            with control_dependencies([update]), name_scope(""):
                update = self._variable_averages.apply(self._variables_to_average)
        with control_dependencies([update]):
            update = _operation(self._global_step.assign_add(1))
        with control_dependencies([update]):
            now = _count(self._global_step)
            sync = gen_ops.step_gate_open(self._gate, now)
        extra = self._extra_gradients()
        if extra > 0:
            with control_dependencies([sync]):
                sync = gen_ops.step_gate_admit(self._gate, now, extra)
        self._chief_queue_runner = _StepRunner(dummy, sync, now, self._era, self._step)
        return done

    def _keep_place(self, step: Tensor, era: Tensor, late: Tensor) -> Any:
        """Notes what the gate said, and how many gradients were late; gives the step."""
        said = gen_ops.pack([step, era, late])  # as one tensor, which is sent at once
        with get_default_graph().colocate_with(self._local_step.op, ignore_existing=True):
            step, era, late = gen_ops.unpack(said, num=3)
            noted = [self._local_era.assign(era), self.late_gradients.assign_add(late)]
            step = gen_ops.cast(step, self._local_step.dtype.base_dtype)
            with control_dependencies([_operation(each) for each in noted]):
                return self._local_step.assign(step)

    def _extra_gradients(self) -> int:
        """How many gradients of a step come from replicas that gave one already.

        Outside of a cluster this replica may be the only one, and give all of them.
        """
        own = DeviceSpec.from_string(self._local_step.device or "")
        replicas = 1 if own.job is None else self._total_num_replicas
        return max(self._replicas_to_aggregate - replicas, 0)

    def _check_applied(self, function: str) -> None:
        if not self._gradients_applied:
            raise ValueError(f"{function}() should be called after apply_gradients().")

    def get_chief_queue_runner(self) -> QueueRunner:
        """What the chief runs in a thread: it applies gradients and opens the gate.

        ValueError before `apply_gradients`.
        """
        self._check_applied("get_chief_queue_runner")
        return self._chief_queue_runner

    def get_init_tokens_op(self, num_tokens: int = -1) -> Operation:
        """The operation that the chief runs once, before the first step.

        `num_tokens`: how often replicas go through the gate without a step made; as many as make a
        step by default. ValueError for too few, or before `apply_gradients`.
        """
        self._check_applied("get_init_tokens_op")
        needed = self._replicas_to_aggregate - self._total_num_replicas
        if num_tokens == -1:
            num_tokens = self._replicas_to_aggregate
        elif num_tokens < needed:
            raise ValueError(
                f"Too few tokens to finish the first step: {num_tokens} (given) vs {needed} "
                "(needed)"
            )
        if num_tokens <= 0:
            return no_op(name="no_init_tokens")
        with device(self._global_step.device or None), name_scope(""):
            return gen_ops.step_gate_admit(self._gate, _count(self._global_step), num_tokens)

    def _leave_op(self, is_chief: bool) -> Operation:
        """The operation that tells the others that this replica makes no more steps."""
        with device(self._global_step.device or None), name_scope(""):
            if is_chief:
                reason = "the chief, which makes the steps, has ended"
                return gen_ops.step_gate_close(self._gate, reason)
            return gen_ops.step_gate_leave(
                self._gate, self._total_num_replicas, self._replicas_to_aggregate
            )

    def make_session_run_hook(self, is_chief: bool, num_tokens: int = -1) -> Any:
        """A hook that initialises what this optimiser needs, and starts the chief's thread.

        At the end of its session it tells the others, who do not wait for gradients that do not
        come any more: their sessions end as at the end of data.
        """
        return SyncReplicasHook(self, is_chief, num_tokens)


def _count(step: Any) -> Tensor:
    """A step as the ops on gates and accumulators take it, read where this is called."""
    return gen_ops.cast(gen_ops.identity(step), dtypes.int64)


def _int64(value: int) -> Tensor:
    return convert_to_tensor(value, dtypes.int64)


def _all_at_once(pairs: list[tuple[Any, Any]], place: str) -> list[tuple[Any, Any]]:
    """Gradients and variables, the gradients not before all of them are there."""
    found = [gradient for gradient, _ in pairs if gradient is not None]
    with device(place or None):
        there = group(*(g.values if isinstance(g, IndexedSlices) else g for g in found))

    def wait(gradient: Any, var: Any) -> Any:
        if gradient is None:
            return None
        with device(var.device or None), control_dependencies([there]):
            if not isinstance(gradient, IndexedSlices):
                return gen_ops.identity(gradient)
            values = gen_ops.identity(gradient.values)
        return IndexedSlices(values, gradient.indices, gradient.dense_shape)

    return [(wait(gradient, var), var) for gradient, var in pairs]


def _operation(made: Any) -> Operation:
    return made if isinstance(made, Operation) else made.op


class _StepRunner(QueueRunner):
    """The chief's thread, which makes steps. Where the session is of an era and the hook has told
    so, each has an id: what a step has changed on servers before the chief was cut off is not
    changed again.

    Args:
      queue: one that nobody uses.
      op: makes a step; `now` is the count after it.
      era, step: tensors to feed: of which era and which step.
    """

    def __init__(self, queue: Any, op: Operation, now: Tensor, era: Tensor, step: Tensor):
        super().__init__(queue, [op])
        self._now, self._era, self._step = now, era, step

    def _run(self, sess: Any, enqueue_op: Any, coord: Any = None) -> None:
        super()._run(sess, enqueue_op, coord)
        # The chief's own replica may wait at the gate for a step that this thread makes no more,
        # on a server that is not the one that was lost.
        try:
            if coord is not None:
                coord.raise_requested_exception()
        except (AbortedError, UnavailableError):
            sess.close()
        except Exception:  # the caller's to tell
            pass

    def _callable(self, sess: Any, enqueue_op: Any) -> Any:
        era = Era.of(sess)
        if era is None or not era.told:
            return super()._callable(sess, enqueue_op)
        step = int(sess.run(self._step))

        def make_step() -> None:
            nonlocal step
            feeds = {self._era: era.number, self._step: step}
            step = int(era.run_step(sess, [self._now, enqueue_op], feeds, step)[0])

        return make_step


class SyncReplicasHook(SessionRunHook):
    """Initialises what a SyncReplicasOptimizer needs in a session."""

    def __init__(self, optimizer: Any, is_chief: bool, num_tokens: int):
        self._optimizer = optimizer
        self._is_chief = is_chief
        self._num_tokens = num_tokens

    def begin(self) -> None:
        """Makes the operations. ValueError before `apply_gradients`."""
        optimizer = self._optimizer
        if not optimizer._gradients_applied:
            raise ValueError(
                "SyncReplicasOptimizer.apply_gradient should be called before using the hook."
            )
        self._ready_op = optimizer.ready_for_local_init_op
        self._leave_op = optimizer._leave_op(self._is_chief)
        if self._is_chief:
            self._init_op = optimizer.chief_init_op
            self._queue_runner = optimizer.get_chief_queue_runner()
            self._tokens_op = optimizer.get_init_tokens_op(self._num_tokens)
        else:
            self._init_op = optimizer._join_op

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Runs them; the chief starts the thread that applies gradients."""
        ready, message = is_ready(
            self._ready_op, session, "Model is not ready for SyncReplicasOptimizer local init."
        )
        if not ready:
            raise RuntimeError(
                "Init operations did not make model ready for SyncReplicasOptimizer local_init. "
                f"Init op: {self._init_op.name}, error: {message}"
            )
        if self._is_chief:
            self._begin_era(session)
        session.run(self._optimizer._join_op)
        if self._is_chief:
            if self._tokens_op is not None:
                session.run(self._tokens_op)
            self._queue_runner.create_threads(session, coord=coord, daemon=True, start=True)

    def _begin_era(self, session: Any) -> None:
        era = Era.of(session)
        if era is None:
            session.run(self._init_op)
            return
        step = int(session.run(self._optimizer._step))
        era.run_step(session, self._init_op, {self._optimizer._era: era.number}, step)
        era.told = True

    def end(self, session: Any) -> None:
        """Tells the others, and the user how many gradients came too late."""
        try:
            late, _ = session.run([self._optimizer.late_gradients, self._leave_op])
        except OpError as error:
            # The parameter servers may have ended before: then nobody waits.
            logging.info("The other replicas could not be told of the end: %s", error)
            return
        if late > 0:
            logging.info("%d gradients of this replica came too late and were dropped", late)
