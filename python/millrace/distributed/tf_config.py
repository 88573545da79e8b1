"""TF_CONFIG: the cluster and a task's place in it, as TensorFlow and Kubeflow write them."""

import json
from typing import Any, NamedTuple

from millrace.distributed.addresses import (
    check_unique,
    checked_address,
    checked_job,
    checked_number,
    shown,
)

CHIEF_JOBS = ("chief", "master")
EVALUATOR = "evaluator"


class TaskConfig(NamedTuple):
    """What TF_CONFIG says: {job: [address] or {task: address}}, this task's job and number, None
    where it does not say, and all of it."""

    cluster: dict[str, Any]
    job: str | None
    index: int | None
    fields: dict[str, Any]


def parse_tf_config(text: str) -> TaskConfig:
    """Reads the value of TF_CONFIG. ValueError, saying where, for what it cannot be.

    Jobs may be lists of addresses or, of dynamic workers, objects from numbers to addresses, also
    under the older key `sparseCluster`. An evaluator may be among the jobs or not.
    """
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = str(error) or type(error).__name__
        raise ValueError(f"TF_CONFIG: expected JSON, got {shown(text)}: {reason}") from None
    fields = _object(fields, "TF_CONFIG")
    where = "TF_CONFIG, sparseCluster" if "sparseCluster" in fields else "TF_CONFIG, cluster"
    given = _object(fields.get("sparseCluster", fields.get("cluster")) or {}, where)
    cluster = {checked_job(job, where): _tasks(tasks, f"{where}.{job}") for job, tasks in
               given.items()}  # fmt: skip
    check_unique(cluster, where)
    cluster = {job: tasks for job, tasks in cluster.items() if tasks}
    task = _object(fields.get("task") or {}, "TF_CONFIG, task")
    job = task.get("type")
    if job is not None:
        job = checked_job(job, "TF_CONFIG, task.type")
    index = task.get("index")
    if index is not None:
        index = checked_number(index, "TF_CONFIG, task.index")
    return TaskConfig(cluster, job, index, fields)


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected a JSON object, got {shown(value)}")
    return value


def _tasks(tasks: Any, where: str) -> Any:
    if isinstance(tasks, list):
        return [checked_address(one, f"{where}[{i}]") for i, one in enumerate(tasks)]
    if isinstance(tasks, dict):
        return {
            checked_number(i, where): checked_address(one, f"{where}.{i}")
            for i, one in tasks.items()
        }
    raise ValueError(
        f'{where}: expected a list of addresses "host:port", or an object from numbers to them, '
        f"got {shown(tasks)}"
    )
