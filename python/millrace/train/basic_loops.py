"""The loop that calls a function until the supervisor stops."""

from typing import Any, Callable

from millrace.core import errors, logging
from millrace.core.export import export
from millrace.train.supervisor import Supervisor


@export(v1="train.basic_train_loop")
def basic_train_loop(
    supervisor: Supervisor, train_step_fn: Callable[..., Any], args: Any = None, kwargs: Any = None,
    master: str = "",
) -> None:  # fmt: skip
    """Calls `train_step_fn(session, *args, **kwargs)` until the supervisor stops.

    With `args` None the function also gets the supervisor's `session` alone.
    """
    args = () if args is None else args
    kwargs = {} if kwargs is None else kwargs
    attempt_again = True
    while attempt_again and not supervisor.should_stop():
        attempt_again = False
        try:
            with supervisor.managed_session(master) as sess:
                while not supervisor.should_stop():
                    train_step_fn(sess, *args, **kwargs)
        except errors.AbortedError as error:
            # A server was started anew: so is the session.
            logging.info("The session is made anew, for: %s", error)
            attempt_again = True
            supervisor.coord.clear_stop()
