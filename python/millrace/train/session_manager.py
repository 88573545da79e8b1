"""Sessions that are ready to use: restored, or initialised, or waited for."""

import time
from typing import Any, Callable

from millrace.checkpoint.checkpoint_state import checkpoint_exists, get_checkpoint_state
from millrace.checkpoint.partial_restore import restore_some, restoring_ops
from millrace.checkpoint.saver import Saver
from millrace.core import errors, logging
from millrace.core.export import export
from millrace.graph.default_graph import get_default_graph
from millrace.graph.graph import Graph
from millrace.graph.session import Session, WaitReport
from millrace.train.living_tasks import (
    Era,
    LivingTasks,
    PreparingSession,
    global_variables_of,
    is_synchronous,
)


def is_ready(op: Any, sess: Any, message: str) -> tuple[bool, str | None]:
    """Whether what `op` reports as missing is nothing; else what is missing."""
    if op is None:
        return True, None
    try:
        value = sess.run(op)
    except errors.FailedPreconditionError as error:
        if "uninitialized" not in str(error):
            logging.warning("%s : error [%s]", message, error)
            raise
        return False, str(error)
    # Older programs give a number, or an operation.
    if value is None or value.dtype.kind == "i" or value.size == 0:
        return True, None
    names = ", ".join(name.decode() for name in value)
    return False, f"Variables not initialized: {names}"


def _missing(sess: Any, op: Any) -> set[str] | None:
    """The names that `op` reports as missing; None where it reports something else, or is None."""
    if op is None:
        return None
    try:
        value = sess.run(op)
    except errors.FailedPreconditionError:
        return None
    if value is None or value.dtype.kind != "O":
        return None
    return {name.decode() for name in value}


def _check_one(checkpoint_dir: str | None, checkpoint_file: str | None) -> None:
    if checkpoint_dir and checkpoint_file:
        raise ValueError("Can not provide both checkpoint_dir and checkpoint_filename_with_path.")


def _has_checkpoint(state: Any) -> bool:
    return state is not None and bool(state.model_checkpoint_path)


def _restore_newest(state: Any, restore: Callable[[str], None]) -> None:
    """Restores the newest checkpoint; one before it where its files are damaged or gone."""
    newest = state.model_checkpoint_path
    older = [path for path in reversed(state.all_model_checkpoint_paths) if path != newest]
    older = [path for path in older if checkpoint_exists(path)]
    if not checkpoint_exists(newest) and older:
        logging.warning("The checkpoint %s is gone.", newest)
    else:
        older.insert(0, newest)
    while True:
        try:
            restore(older[0])
            return
        except errors.DataLossError as error:
            if len(older) == 1:
                raise
            logging.warning("The checkpoint %s cannot be read: %s", older.pop(0), error)


def _name(op: Any) -> str:
    if isinstance(op, (list, tuple)):
        return str([_name(each) for each in op])
    return getattr(op, "name", None) or str(op)


@export(v1="train.SessionManager")
class SessionManager:
    """Makes sessions whose model is ready.

    Args:
      local_init_op: run in every new session, after the model is restored or initialised.
      ready_op: gives the names of what is missing before the model can be used.
      ready_for_local_init_op: the same, before `local_init_op`.
      graph: the default graph if None.
      recovery_wait_secs: how long to wait at most between looks at a model that is not ready. Waits
        for others begin with a twentieth of a second and grow to one.
      local_init_run_options, local_init_feed_dict: for the run of `local_init_op`.
    """

    def __init__(
        self, local_init_op: Any = None, ready_op: Any = None, ready_for_local_init_op: Any = None,
        graph: Graph | None = None, recovery_wait_secs: float = 30,
        local_init_run_options: Any = None, local_init_feed_dict: Any = None,
    ):  # fmt: skip
        if ready_for_local_init_op is not None and local_init_op is None:
            raise ValueError(
                "If you pass a ready_for_local_init_op you must also pass a local_init_op , "
                f"ready_for_local_init_op [{ready_for_local_init_op}]"
            )
        self._local_init_op = local_init_op
        self._ready_op = ready_op
        self._ready_for_local_init_op = ready_for_local_init_op
        self._graph = get_default_graph() if graph is None else graph
        self._recovery_wait_secs = recovery_wait_secs
        self._local_init_run_options = local_init_run_options
        self._local_init_feed_dict = local_init_feed_dict
        self._tasks: LivingTasks | None = None

    def _restore_checkpoint(
        self, sess: Session, saver: Any, checkpoint_dir: str | None, checkpoint_file: str | None,
        wait_for_checkpoint: bool, max_wait_secs: float,
    ) -> bool:  # fmt: skip
        """Whether the model was restored."""
        if not saver or not (checkpoint_dir or checkpoint_file):
            return False
        if checkpoint_file:
            saver.restore(sess, checkpoint_file)
            return True
        waited = 0.0
        while not _has_checkpoint(state := get_checkpoint_state(checkpoint_dir)):
            if not wait_for_checkpoint or waited >= max_wait_secs:
                return False
            logging.info("Waiting for checkpoint to be available.")
            time.sleep(self._recovery_wait_secs)
            waited += self._recovery_wait_secs
        _restore_newest(state, lambda path: saver.restore(sess, path))
        saver.recover_last_checkpoints(state.all_model_checkpoint_paths)
        return True

    def _lost(self, missing: set[str] | None) -> list[Any] | None:
        """The variables that tasks of the cluster have lost, where they have others of this run
        still; None where all is to be restored or initialised."""
        if self._tasks is None or missing is None:
            return None
        variables = global_variables_of(self._graph)
        lost = [v for v in variables if v.op.name in missing or not self._tasks.has(v.device)]
        if len(lost) == len(variables):
            return None
        if is_synchronous(self._graph) and (lost or not self._tasks.era):
            return None
        return lost

    def _set_back(self, sess: Session) -> Any:
        """Before a synchronous model gets its values anew: ends what was done to it before. Gives
        the session for doing so."""
        assert self._tasks is not None
        look = self._ready_for_local_init_op
        if self._tasks.era and look is not None:
            Era(self._tasks.era, goes_on=False).end(sess, look)
        self._tasks.begin_era(Era.random_number())
        sess._era = Era(self._tasks.era, goes_on=False)
        return PreparingSession(sess, sess._era)

    def _has_others(self, missing: set[str] | None) -> bool:
        """Whether tasks have, or may have, values of another run."""
        assert self._tasks is not None
        return missing is None or not all(
            v.op.name in missing or self._tasks.has(v.device)
            for v in global_variables_of(self._graph)
        )

    def _bring_back(
        self, sess: Session, lost: list[Any], saver: Any, checkpoint_dir: str | None
    ) -> None:
        """Gives the variables that were lost the values of the last checkpoint, or initialises
        those that it cannot have. What tasks that live have is not touched."""
        assert self._tasks is not None
        tasks, names = self._tasks, {v.op.name for v in lost}
        known = {v.op.name for v in global_variables_of(self._graph)}

        def wanted(op: Any) -> bool:
            return op.name in names or (op.name not in known and not tasks.has(op.device))

        state = get_checkpoint_state(checkpoint_dir) if checkpoint_dir else None
        saved: set[str] = set()
        if isinstance(saver, Saver) and not saver._is_empty and _has_checkpoint(state):
            saved = {op.inputs[0].op.name for op in restoring_ops(saver, self._graph)}
        fresh = [v for v in lost if v.op.name not in saved]
        if fresh:
            sess.run([v.initializer for v in fresh])
        if saved:
            _restore_newest(state, lambda path: restore_some(saver, sess, path, wanted))
            saver.recover_last_checkpoints(state.all_model_checkpoint_paths)
        if lost:
            logging.warning(
                "%d of %d variables were lost with their tasks: %d restored%s, %d initialised.",
                len(lost), len(known), len(lost) - len(fresh),
                f" from {state.model_checkpoint_path}" if saved else "", len(fresh),
            )  # fmt: skip

    def _look_at_tasks(self, sess: Session, checkpoint_dir: str | None) -> None:
        """What tasks have outlives sessions where there is a cluster."""
        if not sess.sess_str:
            return
        if self._tasks is None:
            self._tasks = LivingTasks(checkpoint_dir)
        self._tasks.look(sess)

    def end_run(self) -> None:
        """The run has come to its end: the next one begins with the checkpoint, as it finds it,
        and not with what tasks of a cluster still have."""
        if self._tasks is not None:
            self._tasks.forget()

    def prepare_session(
        self, master: str, init_op: Any = None, saver: Any = None,
        checkpoint_dir: str | None = None, checkpoint_filename_with_path: str | None = None,
        wait_for_checkpoint: bool = False, max_wait_secs: float = 7200, config: Any = None,
        init_feed_dict: Any = None, init_fn: Any = None,
    ) -> Session:  # fmt: skip
        """A session with the model restored from a checkpoint, or else initialised.

        Args:
          master: the target of the session.
          init_op, init_feed_dict: what initialises the model.
          init_fn: a function of the session, called after that.
          saver, checkpoint_dir, checkpoint_filename_with_path: where to restore the model from.
          wait_for_checkpoint, max_wait_secs: whether, and how long, to wait for a checkpoint.

        In a cluster whose tasks have values that this chief gave them, in this process or with this
        `checkpoint_dir`, these stay: only what was lost with a task is restored or initialised. A
        model that is trained synchronously is restored as a whole then.

        RuntimeError when the model is not ready after all this; the message names what is missing.
        """
        _check_one(checkpoint_dir, checkpoint_filename_with_path)
        sess = Session(master, graph=self._graph, config=config)
        self._look_at_tasks(sess, checkpoint_dir)
        missing = None if self._tasks is None else _missing(sess, self._ready_for_local_init_op)
        lost = None if checkpoint_filename_with_path else self._lost(missing)
        # Values are used as soon as they are there, so the tasks are noted before; unless a chief
        # that is killed in between would leave some that are not this run's, or not yet.
        synchronous = self._tasks is not None and is_synchronous(self._graph)
        early = (
            self._tasks is not None
            and not synchronous
            and not init_fn
            and not self._has_others(missing)
        )
        preparing: Any = sess
        if self._tasks is not None and early:
            self._tasks.note()
        if lost is not None:
            if synchronous and self._tasks is not None:
                sess._era = Era(self._tasks.era, goes_on=True)
            self._bring_back(sess, lost, saver, checkpoint_dir)
            restored = True
        else:
            if synchronous:
                preparing = self._set_back(sess)
            restored = self._restore_checkpoint(
                preparing, saver, checkpoint_dir, checkpoint_filename_with_path,
                wait_for_checkpoint, max_wait_secs,
            )  # fmt: skip
        if not restored:
            if init_op is None and not init_fn and self._local_init_op is None:
                raise RuntimeError(
                    "Model is not initialized and no init_op or init_fn or local_init_op was given"
                )
            if init_op is not None:
                preparing.run(init_op, feed_dict=init_feed_dict)
            if init_fn:
                init_fn(sess)
        if self._tasks is not None and not early:
            self._tasks.note()
        ready, message = self._try_run_local_init_op(sess)
        if not ready:
            raise RuntimeError(
                "Init operations did not make model ready for local_init.  "
                f"Init op: {_name(init_op)}, init fn: {init_fn}, error: {message}"
            )
        ready, message = self._model_ready(sess)
        if not ready:
            raise RuntimeError(
                "Init operations did not make model ready.  "
                f"Init op: {_name(init_op)}, init fn: {init_fn}, "
                f"local_init_op: {_name(self._local_init_op)}, error: {message}"
            )
        return sess

    def recover_session(
        self, master: str, saver: Any = None, checkpoint_dir: str | None = None,
        checkpoint_filename_with_path: str | None = None, wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200, config: Any = None,
    ) -> tuple[Session, bool]:  # fmt: skip
        """A session, and whether the model was restored from a checkpoint in it and is ready."""
        _check_one(checkpoint_dir, checkpoint_filename_with_path)
        sess = Session(master, graph=self._graph, config=config)
        restored = self._restore_checkpoint(
            sess, saver, checkpoint_dir, checkpoint_filename_with_path, wait_for_checkpoint,
            max_wait_secs,
        )  # fmt: skip
        local_ready, message = self._try_run_local_init_op(sess)
        if not restored:
            return sess, False
        source = checkpoint_dir or checkpoint_filename_with_path
        if local_ready:
            ready, message = self._model_ready(sess)
            if ready:
                logging.info("Restored model from %s", source)
                return sess, True
        logging.info("Restoring model from %s did not make model ready: %s", source, message)
        return sess, False

    def wait_for_session(
        self, master: str, config: Any = None, max_wait_secs: float = float("inf")
    ) -> Session:
        """A session whose model somebody else made ready.

        DeadlineExceededError when it is not after `max_wait_secs`.
        """
        end = time.monotonic() + (float("inf") if max_wait_secs is None else max_wait_secs)
        pause, report = 0.025, WaitReport()
        while True:
            pause = min(2 * pause, 0.5, self._recovery_wait_secs)
            sess = Session(master, graph=self._graph, config=config)
            ready, local_message = self._try_run_local_init_op(sess)
            message = None
            if ready:
                ready, message = self._model_ready(sess)
                if ready:
                    return sess
            sess.close()
            if time.monotonic() + pause > end:
                raise errors.DeadlineExceededError(
                    None, None,
                    f"Session was not ready after waiting {max_wait_secs:g} secs: "
                    f"{local_message or message}",
                )  # fmt: skip
            if report.due():
                logging.warning(
                    "Waiting for model to be ready, since %.0f s.  Ready_for_local_init_op:  %s, "
                    "ready: %s", report.waited(), local_message, message,
                )  # fmt: skip
            time.sleep(pause)

    def _model_ready(self, sess: Session) -> tuple[bool, str | None]:
        return is_ready(self._ready_op, sess, "Model not ready")

    def _model_ready_for_local_init(self, sess: Session) -> tuple[bool, str | None]:
        return is_ready(self._ready_for_local_init_op, sess, "Model not ready for local init")

    def _try_run_local_init_op(self, sess: Session) -> tuple[bool, str | None]:
        if self._local_init_op is None:
            return True, None
        ready, message = self._model_ready_for_local_init(sess)
        if not ready:
            return False, message
        sess.run(
            self._local_init_op,
            feed_dict=self._local_init_feed_dict,
            options=self._local_init_run_options,
        )
        return True, None
