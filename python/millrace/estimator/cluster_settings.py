"""What TF_CONFIG means for an estimator: its task, its sessions, who is chief."""

import os
from typing import Any, Callable, NamedTuple

from millrace import protos
from millrace.distributed.cluster import ClusterSpec
from millrace.distributed.device_setter import replica_device_setter
from millrace.distributed.tf_config import EVALUATOR, TaskConfig, parse_tf_config

CHIEF, MASTER, WORKER, PS = "chief", "master", "worker", "ps"


class ClusterSettings(NamedTuple):
    """A RunConfig's attributes that come from TF_CONFIG; `model_dir`: the folder it names."""

    cluster_spec: ClusterSpec
    task_type: str = WORKER
    task_id: int = 0
    master: str = ""
    evaluation_master: str = ""
    is_chief: bool = True
    num_ps_replicas: int = 0
    num_worker_replicas: int = 1
    global_id_in_cluster: int | None = 0
    service: dict[str, Any] | None = None
    model_dir: str | None = None


def cluster_settings(text: str | None) -> ClusterSettings:
    """The settings for a value of TF_CONFIG, or for none.

    ValueError for what it cannot be; TypeError where "service" is no object.
    """
    config = parse_tf_config(text) if text else TaskConfig({}, None, None, {})
    service = config.fields.get("service")
    if service is not None and not isinstance(service, dict):
        raise TypeError(
            f'If "service" is set in TF_CONFIG, it must be a dict. Given {type(service)}'
        )
    made = _in_cluster(config) if config.cluster else _alone(config)
    return made._replace(service=service, model_dir=config.fields.get("model_dir"))


def _text(config: TaskConfig, key: str) -> str:
    value = config.fields.get(key, "")
    if not isinstance(value, str):
        raise ValueError(f"TF_CONFIG, {key}: expected the target of a session, got {value!r}")
    return value


def _alone(config: TaskConfig) -> ClusterSettings:
    if config.job not in (None, WORKER):
        raise ValueError('If "cluster" is not set in TF_CONFIG, task type must be WORKER.')
    if config.index not in (None, 0):
        raise ValueError('If "cluster" is not set in TF_CONFIG, task index must be 0.')
    return ClusterSettings(
        ClusterSpec({}),
        master=_text(config, "session_master"),
        evaluation_master=_text(config, "eval_session_master"),
    )


def _in_cluster(config: TaskConfig) -> ClusterSettings:
    cluster = ClusterSpec(config.cluster)
    chief = MASTER if MASTER in cluster.jobs else CHIEF
    if chief == MASTER and CHIEF in cluster.jobs:
        raise ValueError("If `master` node exists in `cluster`, job `chief` is not supported.")
    job, index = _checked_task(config, cluster, chief)
    if job == EVALUATOR:
        if chief == MASTER:
            raise ValueError(
                "If `master` node exists in `cluster`, task_type `evaluator` is not supported."
            )
        # It is no part of the cluster that trains.
        return ClusterSettings(
            ClusterSpec({}), job, index,
            evaluation_master=_text(config, "eval_session_master"), is_chief=False,
            num_worker_replicas=0, global_id_in_cluster=None,
        )  # fmt: skip
    return ClusterSettings(
        cluster, job, index,
        master=_master(config, cluster, job, index),
        is_chief=job == chief,
        num_ps_replicas=_number(cluster, PS),
        num_worker_replicas=_number(cluster, WORKER) + _number(cluster, chief),
        global_id_in_cluster=_global_id(cluster, job, index, chief),
    )  # fmt: skip


def _checked_task(config: TaskConfig, cluster: ClusterSpec, chief: str) -> tuple[str, int]:
    if chief not in cluster.jobs:
        raise ValueError(
            f'If "cluster" is set in TF_CONFIG, it must have one "{chief}" node: got '
            f"{', '.join(cluster.jobs)}. `millrace launch --chief` starts one."
        )
    if cluster.num_tasks(chief) > 1:
        raise ValueError(f'The "cluster" in TF_CONFIG must have only one "{chief}" node.')
    if not config.job:
        raise ValueError('If "cluster" is set in TF_CONFIG, task type must be set.')
    if config.index is None:
        raise ValueError('If "cluster" is set in TF_CONFIG, task index must be set.')
    if config.job != EVALUATOR:
        if config.job not in cluster.jobs:
            raise ValueError(
                f"{config.job} is not a valid task_type in the cluster_spec: {cluster}. Note that "
                "these values may be coming from the TF_CONFIG environment variable."
            )
        if config.index not in cluster.task_indices(config.job):
            raise ValueError(
                f"{config.index} is not a valid task_id for task_type {config.job} in the "
                f"cluster_spec: {cluster}. Note that these values may be coming from the TF_CONFIG "
                "environment variable."
            )
    return config.job, config.index


def _number(cluster: ClusterSpec, job: str) -> int:
    return cluster.num_tasks(job) if job in cluster.jobs else 0


def _master(config: TaskConfig, cluster: ClusterSpec, job: str, index: int) -> str:
    if "session_master" in config.fields:
        return _text(config, "session_master")
    if len(cluster.jobs) == 1 and cluster.num_tasks(job) == 1:
        return ""  # alone: nothing has to be sent
    return f"grpc://{cluster.task_address(job, index)}"


def _global_id(cluster: ClusterSpec, job: str, index: int, chief: str) -> int:
    others = [each for each in sorted(cluster.jobs) if each not in (chief, PS)]
    before = 0
    for each in [chief, *others, PS]:
        if each == job:
            break
        before += len(cluster.job_tasks(each))
    return before + index


def folder_of(model_dir: Any, settings: ClusterSettings) -> str | None:
    """The folder that the program or TF_CONFIG names. ValueError where these are two."""
    given = None if model_dir is None else os.fspath(model_dir)
    if settings.model_dir == "":
        raise ValueError("model_dir in TF_CONFIG should be non-empty.")
    if settings.model_dir is not None and not isinstance(settings.model_dir, str):
        raise ValueError(f"TF_CONFIG, model_dir: expected a path, got {settings.model_dir!r}")
    if given and settings.model_dir and given != settings.model_dir:
        raise ValueError(
            "`model_dir` provided in RunConfig construct, if set, must have the same value as the "
            f'model_dir in TF_CONFIG. model_dir: {given}, TF_CONFIG["model_dir"]: '
            f"{settings.model_dir}."
        )
    return settings.model_dir if given is None else given


def session_config_of(settings: ClusterSettings) -> Any:
    """What sessions of a task see where the program does not say: itself and parameter servers, so
    that a worker that is gone stops nobody else. None outside of a cluster."""
    filters = {
        MASTER: ["/job:ps", "/job:master"],
        CHIEF: ["/job:ps", "/job:chief"],
        WORKER: ["/job:ps", f"/job:worker/task:{settings.task_id}"],
        PS: ["/job:ps", "/job:worker", "/job:chief", "/job:master"],
    }.get(settings.task_type)
    if not settings.cluster_spec or filters is None:
        return None
    config = protos.ConfigProto(allow_soft_placement=True, device_filters=filters)
    rewrite = config.graph_options.rewrite_options
    rewrite.meta_optimizer_iterations = protos.RewriterConfig.ONE
    return config


def session_config_for(config: Any, master: str) -> Any:
    """The RunConfig's session configuration for sessions of `master`: where that is this process,
    without filters for devices of the cluster."""
    if master or config.session_config is None or not config.cluster_spec:
        return config.session_config
    out = protos.ConfigProto()
    out.CopyFrom(config.session_config)
    out.ClearField("device_filters")
    return out


def device_fn_of(config: Any) -> Callable[[Any], str] | None:
    """The device function of graphs: the RunConfig's own or, with parameter servers, one that puts
    variables there and the rest on this task."""
    if config.device_fn is not None or config.num_ps_replicas == 0:
        return config.device_fn
    return replica_device_setter(
        ps_tasks=config.num_ps_replicas,
        worker_device=f"/job:{config.task_type}/task:{config.task_id}",
        merge_devices=True,
        cluster=config.cluster_spec,
    )
