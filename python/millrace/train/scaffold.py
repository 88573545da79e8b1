"""The parts of a program that a monitored session needs, and what makes sessions of them."""

from typing import Any, Callable

from millrace.checkpoint.saver import Saver, saver_or_default
from millrace.core import logging
from millrace.core.export import export
from millrace.graph.default_graph import get_default_graph
from millrace.graph.keys import GraphKeys
from millrace.graph.session import Session
from millrace.ops.ordering import group
from millrace.state.variable_lists import (
    global_variables,
    global_variables_initializer,
    local_variables_initializer,
    report_uninitialized_variables,
)
from millrace.summary.ops import merge_all
from millrace.train.session_manager import SessionManager


def tables_initializer_of(graph: Any) -> list[Any]:
    """The operations that fill the lookup tables of a graph."""
    return graph.get_collection(GraphKeys.TABLE_INITIALIZERS)


def default_local_init_op() -> Any:
    """An operation that initialises local variables and tables."""
    return group(local_variables_initializer(), *tables_initializer_of(get_default_graph()))


@export(v1="train.Scaffold")
class Scaffold:
    """The operations that make a model ready, taken from collections or made where none is given.

    Args:
      init_op, init_feed_dict: initialise the model; all global variables by default.
      init_fn: a function (scaffold, session), called after `init_op`.
      ready_op: gives the names of what is missing; of all variables by default.
      ready_for_local_init_op: the same, before `local_init_op`.
      local_init_op, local_init_feed_dict: run in every new session; local variables by default.
      summary_op: all summaries as one.
      saver: saves and restores the model.
      copy_from_scaffold: another one, whose values are taken where none is given here.
    """

    def __init__(
        self, init_op: Any = None, init_feed_dict: Any = None, init_fn: Any = None,
        ready_op: Any = None, ready_for_local_init_op: Any = None, local_init_op: Any = None,
        summary_op: Any = None, saver: Any = None, copy_from_scaffold: "Scaffold | None" = None,
        local_init_feed_dict: Any = None,
    ):  # fmt: skip
        if copy_from_scaffold is not None:
            if not isinstance(copy_from_scaffold, Scaffold):
                raise TypeError(
                    f"copy_from_scaffold is not a Scaffold instance: {copy_from_scaffold}"
                )
            other = copy_from_scaffold
            init_op = other.init_op if init_op is None else init_op
            init_feed_dict = other.init_feed_dict if init_feed_dict is None else init_feed_dict
            if init_fn is None:
                init_fn = other._user_init_fn
            ready_op = other.ready_op if ready_op is None else ready_op
            if ready_for_local_init_op is None:
                ready_for_local_init_op = other.ready_for_local_init_op
            local_init_op = other.local_init_op if local_init_op is None else local_init_op
            if local_init_feed_dict is None:
                local_init_feed_dict = other.local_init_feed_dict
            summary_op = other.summary_op if summary_op is None else summary_op
            saver = other.saver if saver is None else saver
        self._init_op = init_op
        self._init_feed_dict = init_feed_dict
        self._user_init_fn = init_fn
        self._init_fn = (lambda sess: init_fn(self, sess)) if init_fn is not None else None
        self._ready_op = ready_op
        self._ready_for_local_init_op = ready_for_local_init_op
        self._local_init_op = local_init_op
        self._local_init_feed_dict = local_init_feed_dict
        self._summary_op = summary_op
        self._saver = saver

    def _make_asynchronous(self) -> None:
        """Lets the saver write beside the program. ValueError where another one is given."""
        if self._saver is None and not get_default_graph().get_collection(GraphKeys.SAVERS):
            self._saver = Saver(
                allow_empty=True, random_state=True, asynchronous=True, defer_build=True
            )
            get_default_graph().add_to_collection(GraphKeys.SAVERS, self._saver)
            return
        saver = self._saver or saver_or_default()
        if not getattr(saver, "_asynchronous", False):
            raise ValueError(
                "asynchronous_checkpoints: the saver that was given is not asynchronous, expected "
                "tf.train.Saver(..., asynchronous=True)"
            )

    def finalize(self) -> "Scaffold":
        """Makes what is missing, and finalises the graph."""
        keys, take = GraphKeys, Scaffold.get_or_default
        if self._init_op is None:
            self._init_op = take(
                "init_op", keys.INIT_OP, lambda: group(global_variables_initializer())
            )
        if self._ready_op is None:
            self._ready_op = take("ready_op", keys.READY_OP, report_uninitialized_variables)
        if self._ready_for_local_init_op is None:
            self._ready_for_local_init_op = take(
                "ready_for_local_init_op", keys.READY_FOR_LOCAL_INIT_OP,
                lambda: report_uninitialized_variables(global_variables()),
            )  # fmt: skip
        if self._local_init_op is None:
            self._local_init_op = take("local_init_op", keys.LOCAL_INIT_OP, default_local_init_op)
        if self._summary_op is None:
            self._summary_op = take("summary_op", keys.SUMMARY_OP, merge_all)
        if self._saver is None:
            self._saver = saver_or_default()
        self._saver.build()
        get_default_graph().finalize()
        logging.info("Graph was finalized.")
        return self

    @staticmethod
    def get_or_default(
        arg_name: str, collection_key: str, default_constructor: Callable[[], Any]
    ) -> Any:
        """The one element of a collection, made and added where there is none.

        RuntimeError for several.
        """
        graph = get_default_graph()
        elements = graph.get_collection(collection_key)
        if len(elements) > 1:
            raise RuntimeError(
                f'More than one item in the collection "{collection_key}". Please indicate which '
                "one to use by passing it to the tf.Scaffold constructor as:  "
                f"tf.Scaffold({arg_name}=item to use)"
            )
        if elements:
            return elements[0]
        made = default_constructor()
        if made is not None:
            graph.add_to_collection(collection_key, made)
        return made

    @property
    def init_fn(self) -> Any:
        """A function of the session, or None."""
        return self._init_fn

    @property
    def init_op(self) -> Any:
        """What initialises the model."""
        return self._init_op

    @property
    def ready_op(self) -> Any:
        """What tells whether the model is ready."""
        return self._ready_op

    @property
    def ready_for_local_init_op(self) -> Any:
        """What tells whether `local_init_op` may run."""
        return self._ready_for_local_init_op

    @property
    def local_init_op(self) -> Any:
        """What runs in every new session."""
        return self._local_init_op

    @property
    def local_init_feed_dict(self) -> Any:
        """What is fed to it."""
        return self._local_init_feed_dict

    @property
    def summary_op(self) -> Any:
        """All summaries."""
        return self._summary_op

    @property
    def saver(self) -> Any:
        """What saves and restores the model; None before `finalize()`."""
        return self._saver

    @property
    def init_feed_dict(self) -> Any:
        """What is fed to `init_op`."""
        return self._init_feed_dict


@export(v1="train.SessionCreator")
class SessionCreator:
    """Makes sessions: `create_session()`."""

    def create_session(self) -> Any:
        """A new session."""
        raise NotImplementedError(f"create_session is not implemented for {self}.")


@export(v1="train.ChiefSessionCreator")
class ChiefSessionCreator(SessionCreator):
    """Makes the session of the chief, which initialises or restores the model."""

    def __init__(
        self, scaffold: Scaffold | None = None, master: str = "", config: Any = None,
        checkpoint_dir: str | None = None, checkpoint_filename_with_path: str | None = None,
    ):  # fmt: skip
        self._checkpoint_dir = checkpoint_dir
        self._checkpoint_filename_with_path = checkpoint_filename_with_path
        self._scaffold = scaffold or Scaffold()
        self._session_manager: SessionManager | None = None
        self._master = master
        self._config = config

    def create_session(self) -> Session:
        """A session with the model ready."""
        self._scaffold.finalize()
        return _manager(self).prepare_session(
            self._master,
            saver=self._scaffold.saver,
            checkpoint_dir=self._checkpoint_dir,
            checkpoint_filename_with_path=self._checkpoint_filename_with_path,
            config=self._config,
            init_op=self._scaffold.init_op,
            init_feed_dict=self._scaffold.init_feed_dict,
            init_fn=self._scaffold.init_fn,
        )

    def end_run(self) -> None:
        """The run has come to its end; see `SessionManager.end_run`."""
        if self._session_manager is not None:
            self._session_manager.end_run()


@export(v1="train.WorkerSessionCreator")
class WorkerSessionCreator(SessionCreator):
    """Makes the session of a worker, which waits for the chief."""

    def __init__(
        self, scaffold: Scaffold | None = None, master: str = "", config: Any = None,
        max_wait_secs: float = 30 * 60,
    ):  # fmt: skip
        self._scaffold = scaffold or Scaffold()
        self._session_manager: SessionManager | None = None
        self._master = master
        self._config = config
        self._max_wait_secs = max_wait_secs

    def create_session(self) -> Session:
        """A session with the model ready."""
        self._scaffold.finalize()
        return _manager(self).wait_for_session(
            self._master, config=self._config, max_wait_secs=self._max_wait_secs
        )


def _manager(creator: Any) -> SessionManager:
    """The session manager of a creator, made on first use."""
    if creator._session_manager is None:
        scaffold = creator._scaffold
        creator._session_manager = SessionManager(
            local_init_op=scaffold.local_init_op,
            local_init_feed_dict=scaffold.local_init_feed_dict,
            ready_op=scaffold.ready_op,
            ready_for_local_init_op=scaffold.ready_for_local_init_op,
            graph=get_default_graph(),
        )
    return creator._session_manager
