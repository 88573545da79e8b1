"""Threads that stop together."""

import sys
import threading
import time
from typing import Any, Callable

from millrace.core import errors, logging
from millrace.core.export import export


@export(v1="train.Coordinator", v2="train.Coordinator")
class Coordinator:
    """Lets any of several threads stop all of them, and passes on what made it.

    Threads loop while not `should_stop()`, and call `request_stop(error)` when they fail; whoever
    waits in `join(threads)` gets the error.

    `clean_stop_exception_types`: errors that are an ordinary end; OutOfRangeError by default.
    """

    def __init__(self, clean_stop_exception_types: tuple[type, ...] | None = None):
        if clean_stop_exception_types is None:
            clean_stop_exception_types = (errors.OutOfRangeError,)
        self._clean_stop_exception_types = tuple(clean_stop_exception_types)
        self._lock = threading.Lock()
        self._stop_event = threading.Event()
        self._error: BaseException | None = None
        self._joined = False
        self._registered_threads: set[threading.Thread] = set()

    def _error_of(self, ex: Any) -> BaseException | None:
        """The error to raise for what was reported: an exception or an exc_info; None for an
        ordinary end."""
        if isinstance(ex, tuple):
            if len(ex) != 3 or not isinstance(ex[1], BaseException):
                raise ValueError(f"expected an exception or a tuple of sys.exc_info(), got {ex!r}")
            ex = ex[1] if ex[2] is None else ex[1].with_traceback(ex[2])
        if ex is not None and not isinstance(ex, BaseException):
            raise TypeError(f"expected an exception, got {ex!r} of type '{type(ex).__name__}'")
        return None if isinstance(ex, self._clean_stop_exception_types) else ex

    def request_stop(self, ex: Any = None) -> None:
        """Asks all threads to stop.

        `ex`: an exception, or what sys.exc_info() gives, that `join` raises; the first one counts.
        Raised here when nobody waits for it any more.
        """
        with self._lock:
            error = self._error_of(ex)
            if self._joined:
                if error is not None:
                    raise error
                return
            if self._stop_event.is_set():
                return
            if error is not None and self._error is None:
                logging.info("Error reported to Coordinator: %s", error)
                self._error = error
            self._stop_event.set()

    def clear_stop(self) -> None:
        """Takes the request back, and the error with it."""
        with self._lock:
            self._joined = False
            self._error = None
            self._stop_event.clear()

    def should_stop(self) -> bool:
        """Whether somebody asked to stop."""
        return self._stop_event.is_set()

    def stop_on_exception(self) -> "_StopOnException":
        """A context that reports what is raised in it: `with coord.stop_on_exception():`."""
        return _StopOnException(self)

    def wait_for_stop(self, timeout: float | None = None) -> bool:
        """Waits until somebody asks to stop; False when `timeout` seconds pass without."""
        return self._stop_event.wait(timeout)

    def register_thread(self, thread: threading.Thread) -> None:
        """Makes `join` wait for a thread."""
        with self._lock:
            self._registered_threads.add(thread)

    def _live_threads(self) -> list[threading.Thread]:
        with self._lock:
            return [thread for thread in self._registered_threads if thread.is_alive()]

    def join(
        self, threads: Any = None, stop_grace_period_secs: float = 120,
        ignore_live_threads: bool = False,
    ) -> None:  # fmt: skip
        """Waits for the threads, and raises the error that one of them reported.

        After somebody asks to stop, they have `stop_grace_period_secs` to end; RuntimeError names
        those that do not, unless `ignore_live_threads`.
        """
        with self._lock:
            waited = set(self._registered_threads)
            if threads is not None:
                waited.update(threads)
            waiting = list(waited)
        while not self._stop_event.is_set() and any(t.is_alive() for t in waiting):
            # A thread that ends does not say so: look at one after another, a second at most each.
            alive = next((t for t in waiting if t.is_alive()), None)
            if alive is not None:
                self._wait_for(alive)
        deadline = time.monotonic() + stop_grace_period_secs
        for thread in waiting:
            thread.join(max(0.0, deadline - time.monotonic()) if thread.is_alive() else 0)
        stragglers = [t.name for t in waiting if t.is_alive()]
        with self._lock:
            self._joined = True
            self._registered_threads = set()
            error = self._error
        if error is not None:
            raise error
        if stragglers:
            message = f"Coordinator stopped with threads still running: {' '.join(stragglers)}"
            if not ignore_live_threads:
                raise RuntimeError(message)
            logging.info(message)

    def _wait_for(self, thread: threading.Thread) -> None:
        """Until the thread ends, somebody asks to stop, or a second passed."""
        until = time.monotonic() + 1
        while thread.is_alive() and time.monotonic() < until:
            if self._stop_event.wait(0.05):
                return

    @property
    def joined(self) -> bool:
        """Whether `join` has ended."""
        return self._joined

    def raise_requested_exception(self) -> None:
        """Raises the error that was reported, if there is one."""
        with self._lock:
            error = self._error
        if error is not None:
            raise error


class _StopOnException:
    def __init__(self, coord: Coordinator):
        self._coord = coord

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, value: Any, trace: Any) -> bool:
        if kind is None:
            return False
        self._coord.request_stop((kind, value, trace))
        return True


@export(v1="train.LooperThread")
class LooperThread(threading.Thread):
    """A thread that calls a function over and over until a coordinator stops.

    Args:
      timer_interval_secs: the time between the beginnings of calls; None: no wait.
      target, args, kwargs: what to call; or override `run_loop`.

    An error in the function stops the coordinator.
    """

    def __init__(
        self, coord: Coordinator, timer_interval_secs: float | None,
        target: Callable[..., Any] | None = None, args: Any = None, kwargs: Any = None,
    ):  # fmt: skip
        if not isinstance(coord, Coordinator):
            raise ValueError(f"'coord' argument must be a Coordinator: {coord}")
        super().__init__()
        self.daemon = True
        self._coord = coord
        self._timer_interval_secs = timer_interval_secs
        self._call = target
        self._call_args = args or ()
        self._call_kwargs = kwargs or {}
        coord.register_thread(self)

    @staticmethod
    def loop(
        coord: Coordinator, timer_interval_secs: float | None, target: Callable[..., Any],
        args: Any = None, kwargs: Any = None,
    ) -> "LooperThread":  # fmt: skip
        """Starts a LooperThread."""
        looper = LooperThread(coord, timer_interval_secs, target=target, args=args, kwargs=kwargs)
        looper.start()
        return looper

    def run(self) -> None:
        """What the thread does."""
        try:
            self.start_loop()
            if self._timer_interval_secs is None:
                while not self._coord.should_stop():
                    self.run_loop()
            else:
                next_time = time.monotonic()
                while not self._coord.wait_for_stop(max(0.0, next_time - time.monotonic())):
                    next_time += self._timer_interval_secs
                    self.run_loop()
            self.stop_loop()
        except BaseException:
            self._coord.request_stop(sys.exc_info())

    def start_loop(self) -> None:
        """Called once before the first call. To be overridden."""

    def stop_loop(self) -> None:
        """Called once after the last call. To be overridden."""

    def run_loop(self) -> None:
        """One call."""
        if self._call is not None:
            self._call(*self._call_args, **self._call_kwargs)
