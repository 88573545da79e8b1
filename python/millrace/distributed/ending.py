"""The end of a cluster's work: parameter servers learn that all others have ended.

Schedulers such as Slurm and mpirun wait for every task, and parameter servers would serve for ever.
So each other task leaves a word with every parameter server when it has ended well. A task that
fails leaves none: its scheduler then ends, or restarts, what it has to.
"""

from typing import Any

from millrace import protos
from millrace.core import dtypes, errors, logging
from millrace.graph.default_graph import device
from millrace.graph.graph import Graph
from millrace.graph.session import Session
from millrace.state.queues import FIFOQueue

_QUEUE = "millrace_tasks_that_ended"
_TELL_TIMEOUT_MS = 30_000

_asked = False


def end_with_workers(ask: bool = True) -> None:
    """Whether `Server.join` of a parameter server in this process ends the process, with exit code
    0, once all other tasks have ended."""
    global _asked
    _asked = ask


def ends_with_workers(job: str) -> bool:
    """Whether that was asked for and concerns a task of this job."""
    return _asked and job == "ps"


def _queue(index: int) -> Any:
    with device(f"/job:ps/task:{index}"):
        return FIFOQueue(-1, dtypes.string, shapes=(), shared_name=_QUEUE)


def _config(index: int, **settings: Any) -> Any:
    # Other tasks may be gone already: nothing is asked of them.
    return protos.ConfigProto(device_filters=[f"/job:ps/task:{index}"], **settings)


def tell_parameter_servers(cluster: Any, job: str, index: int) -> None:
    """Says to all parameter servers of a ClusterSpec that this task has ended. Those that do not
    answer are left out, with a warning."""
    for ps in cluster.task_indices("ps") if "ps" in cluster.jobs else []:
        address = cluster.task_address("ps", ps)
        with Graph().as_default():
            leave = _queue(ps).enqueue(f"{job} {index}")
            config = _config(ps, operation_timeout_in_ms=_TELL_TIMEOUT_MS)
            try:
                with Session(f"grpc://{address}", config=config) as session:
                    session.run(leave, options=protos.RunOptions(timeout_in_ms=_TELL_TIMEOUT_MS))
            except errors.OpError as error:
                logging.warning("ps %d at %s was not told of the end: %s", ps, address, error)


def wait_for_workers(target: str, cluster: Any, index: int) -> None:
    """Waits, on parameter server `index`, until all tasks that are none have said their end.

    An evaluator is not waited for. Ctrl-C and signals with handlers of Python's end the wait.
    """
    left = {
        f"{job} {task}"
        for job in cluster.jobs
        if job not in ("ps", "evaluator")
        for task in cluster.task_indices(job)
    }
    with Graph().as_default():
        following = _queue(index).dequeue()
        with Session(target, config=_config(index)) as session:
            while left:
                left.discard(session.run(following).decode())
