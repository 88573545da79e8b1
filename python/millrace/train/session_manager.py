"""Sessions that are ready to use: restored, or initialised, or waited for."""

import time
from typing import Any

from millrace.checkpoint.checkpoint_state import checkpoint_exists, get_checkpoint_state
from millrace.core import errors, logging
from millrace.core.export import export
from millrace.graph.default_graph import get_default_graph
from millrace.graph.graph import Graph
from millrace.graph.session import Session


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


def _has_checkpoint(state: Any) -> bool:
    return state is not None and bool(state.model_checkpoint_path)


def _restore_newest(sess: Any, saver: Any, state: Any) -> None:
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
            saver.restore(sess, older[0])
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

    def _restore_checkpoint(
        self, master: str, saver: Any, checkpoint_dir: str | None, checkpoint_file: str | None,
        wait_for_checkpoint: bool, max_wait_secs: float, config: Any,
    ) -> tuple[Session, bool]:  # fmt: skip
        """A session, and whether the model was restored in it."""
        if checkpoint_dir and checkpoint_file:
            raise ValueError(
                "Can not provide both checkpoint_dir and checkpoint_filename_with_path."
            )
        sess = Session(master, graph=self._graph, config=config)
        if not saver or not (checkpoint_dir or checkpoint_file):
            return sess, False
        if checkpoint_file:
            saver.restore(sess, checkpoint_file)
            return sess, True
        waited = 0.0
        while not _has_checkpoint(state := get_checkpoint_state(checkpoint_dir)):
            if not wait_for_checkpoint or waited >= max_wait_secs:
                return sess, False
            logging.info("Waiting for checkpoint to be available.")
            time.sleep(self._recovery_wait_secs)
            waited += self._recovery_wait_secs
        _restore_newest(sess, saver, state)
        saver.recover_last_checkpoints(state.all_model_checkpoint_paths)
        return sess, True

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

        RuntimeError when the model is not ready after all this; the message names what is missing.
        """
        sess, restored = self._restore_checkpoint(
            master, saver, checkpoint_dir, checkpoint_filename_with_path, wait_for_checkpoint,
            max_wait_secs, config,
        )  # fmt: skip
        if not restored:
            if init_op is None and not init_fn and self._local_init_op is None:
                raise RuntimeError(
                    "Model is not initialized and no init_op or init_fn or local_init_op was given"
                )
            if init_op is not None:
                sess.run(init_op, feed_dict=init_feed_dict)
            if init_fn:
                init_fn(sess)
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
        sess, restored = self._restore_checkpoint(
            master, saver, checkpoint_dir, checkpoint_filename_with_path, wait_for_checkpoint,
            max_wait_secs, config,
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
        pause, said = 0.05, float("-inf")
        while True:
            pause = min(2 * pause, 1.0, self._recovery_wait_secs)
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
            if time.monotonic() - said >= 10:
                said = time.monotonic()
                logging.info(
                    "Waiting for model to be ready.  Ready_for_local_init_op:  %s, ready: %s",
                    local_message, message,
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
