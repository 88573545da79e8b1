"""How an estimator runs."""

import copy
import os
from typing import Any

from millrace import protos
from millrace.core import errors
from millrace.core.export import export
from millrace.distributed.cluster import ClusterSpec
from millrace.estimator.cluster_settings import (
    cluster_settings,
    folder_of,
    session_config_of,
)

_USE_DEFAULT = object()


def _check_number(name: str, value: Any, positive: bool) -> None:
    if value is None:
        return
    if value < 0 or (positive and value == 0):
        raise ValueError(f"{name} should be {'> 0' if positive else '>= 0'}. Given: {value}")


@export(v1="estimator.RunConfig")
class RunConfig:
    """How an estimator runs; does not change, see `replace`.

    Args:
      model_dir: the folder for checkpoints and summaries.
      tf_random_seed: the seed of graphs.
      save_summary_steps: how often to write summaries.
      save_checkpoints_steps, save_checkpoints_secs: how often to write checkpoints, one of them;
        every 600 seconds by default, None in both for never.
      session_config: a ConfigProto.
      keep_checkpoint_max: how many checkpoints to keep; None or 0 for all.
      keep_checkpoint_every_n_hours: besides those, one for every so many hours is kept.
      log_step_count_steps: how often to log the loss and the rate.
      device_fn: the device function of graphs.
      session_creation_timeout_secs: how long to wait for a session.
      checkpoint_save_graph_def: whether to write the graph beside checkpoints.
      protocol: that of servers, "grpc" or None.
      experimental_max_worker_delay_secs: workers begin one after the other, five seconds apart, but
        after that long at the latest; all at once if None.

    TF_CONFIG says what cluster this process is in, if any, and which task it is; ValueError for one
    that cannot be. In a cluster sessions see their own task and the parameter servers, unless
    `session_config` is given. Training by `train_distribute`, `eval_distribute` and
    `experimental_distribute` is not there: an UnimplementedError, unless they are None.
    """

    def __init__(
        self, model_dir: Any = None, tf_random_seed: int | None = None,
        save_summary_steps: int | None = 100, save_checkpoints_steps: Any = _USE_DEFAULT,
        save_checkpoints_secs: Any = _USE_DEFAULT, session_config: Any = None,
        keep_checkpoint_max: int | None = 5, keep_checkpoint_every_n_hours: float = 10000,
        log_step_count_steps: int | None = 100, train_distribute: Any = None,
        device_fn: Any = None, protocol: Any = None, eval_distribute: Any = None,
        experimental_distribute: Any = None, experimental_max_worker_delay_secs: Any = None,
        session_creation_timeout_secs: float = 7200, checkpoint_save_graph_def: bool = True,
    ):  # fmt: skip
        for name, value in {
            "train_distribute": train_distribute, "eval_distribute": eval_distribute,
            "experimental_distribute": experimental_distribute,
        }.items():  # fmt: skip
            if value is not None:
                raise errors.UnimplementedError(
                    None, None, f"RunConfig: {name} is not there in this version of Millrace."
                )
        self._settings = cluster_settings(os.environ.get("TF_CONFIG"))
        if save_checkpoints_steps is _USE_DEFAULT and save_checkpoints_secs is _USE_DEFAULT:
            save_checkpoints_steps, save_checkpoints_secs = None, 600
        elif save_checkpoints_secs is _USE_DEFAULT:
            save_checkpoints_secs = None
        elif save_checkpoints_steps is _USE_DEFAULT:
            save_checkpoints_steps = None
        self._model_dir = folder_of(model_dir, self._settings)
        self._tf_random_seed = tf_random_seed
        self._save_summary_steps = save_summary_steps
        self._save_checkpoints_steps = save_checkpoints_steps
        self._save_checkpoints_secs = save_checkpoints_secs
        self._session_config = session_config or session_config_of(self._settings)
        self._protocol = protocol
        self._experimental_max_worker_delay_secs = experimental_max_worker_delay_secs
        self._keep_checkpoint_max = keep_checkpoint_max
        self._keep_checkpoint_every_n_hours = keep_checkpoint_every_n_hours
        self._log_step_count_steps = log_step_count_steps
        self._device_fn = device_fn
        self._session_creation_timeout_secs = session_creation_timeout_secs
        self._checkpoint_save_graph_def = checkpoint_save_graph_def
        self._check()

    def _check(self) -> None:
        if self.model_dir == "":
            raise ValueError("model_dir should be non-empty")
        if self.save_checkpoints_steps is not None and self.save_checkpoints_secs is not None:
            raise ValueError(
                "`save_checkpoints_steps` and `save_checkpoints_secs` cannot be both set."
            )
        if self.tf_random_seed is not None and not isinstance(self.tf_random_seed, int):
            raise ValueError(f"tf_random_seed must be integer. Given: {self.tf_random_seed}")
        if self.session_config is not None and not isinstance(
            self.session_config, protos.ConfigProto
        ):
            raise ValueError(f"session_config must be a ConfigProto. Given: {self.session_config}")
        if self.device_fn is not None and not callable(self.device_fn):
            raise ValueError(f"device_fn is not callable. Given: {self.device_fn}")
        delay = self.experimental_max_worker_delay_secs
        if delay is not None and not isinstance(delay, int):
            raise ValueError(
                f"experimental_max_worker_delay_secs must be an integer if set. Given: {delay}"
            )
        if self.protocol not in (None, "grpc", "grpc+verbs"):
            raise ValueError(f"protocol should be grpc or grpc+verbs. Given: {self.protocol}")
        if self.protocol == "grpc+verbs":
            raise errors.UnimplementedError(
                None, None, "RunConfig: grpc+verbs is not there in this version of Millrace."
            )
        _check_number(
            "session_creation_timeout_secs", self.session_creation_timeout_secs, positive=True
        )
        _check_number("save_summary_steps", self.save_summary_steps, positive=False)
        _check_number("save_checkpoints_steps", self.save_checkpoints_steps, positive=False)
        _check_number("save_checkpoints_secs", self.save_checkpoints_secs, positive=False)
        _check_number("keep_checkpoint_max", self.keep_checkpoint_max, positive=False)
        _check_number(
            "keep_checkpoint_every_n_hours", self.keep_checkpoint_every_n_hours, positive=True
        )
        _check_number("log_step_count_steps", self.log_step_count_steps, positive=True)

    def replace(self, **kwargs: Any) -> "RunConfig":
        """The same with other values of model_dir, tf_random_seed, save_summary_steps,
        save_checkpoints_steps, save_checkpoints_secs, session_config, keep_checkpoint_max,
        keep_checkpoint_every_n_hours, log_step_count_steps, device_fn. ValueError for others."""
        out = copy.copy(self)
        for name, value in kwargs.items():
            if name not in _REPLACEABLE:
                raise ValueError(
                    f"Replacing {name} is not supported. Allowed properties are {_REPLACEABLE}."
                )
            if name == "save_checkpoints_steps" and "save_checkpoints_secs" not in kwargs:
                out._save_checkpoints_secs = None
            if name == "save_checkpoints_secs" and "save_checkpoints_steps" not in kwargs:
                out._save_checkpoints_steps = None
            setattr(out, "_" + name, value)
        out._check()
        return out

    @property
    def model_dir(self) -> Any:
        """The folder, or None."""
        return self._model_dir

    @property
    def tf_random_seed(self) -> int | None:
        """The seed of graphs."""
        return self._tf_random_seed

    @property
    def save_summary_steps(self) -> int | None:
        """Steps between summaries."""
        return self._save_summary_steps

    @property
    def save_checkpoints_steps(self) -> int | None:
        """Steps between checkpoints."""
        return self._save_checkpoints_steps

    @property
    def save_checkpoints_secs(self) -> float | None:
        """Seconds between checkpoints."""
        return self._save_checkpoints_secs

    @property
    def session_config(self) -> Any:
        """A ConfigProto, or None."""
        return self._session_config

    @property
    def keep_checkpoint_max(self) -> int | None:
        """How many checkpoints are kept."""
        return self._keep_checkpoint_max

    @property
    def keep_checkpoint_every_n_hours(self) -> float:
        """How often one is kept besides."""
        return self._keep_checkpoint_every_n_hours

    @property
    def log_step_count_steps(self) -> int | None:
        """Steps between lines of the log."""
        return self._log_step_count_steps

    @property
    def device_fn(self) -> Any:
        """The device function of graphs, or None."""
        return self._device_fn

    @property
    def session_creation_timeout_secs(self) -> float:
        """How long to wait for a session."""
        return self._session_creation_timeout_secs

    @property
    def checkpoint_save_graph_def(self) -> bool:
        """Whether the graph is written beside checkpoints."""
        return self._checkpoint_save_graph_def

    @property
    def protocol(self) -> str | None:
        """The protocol of servers, or None."""
        return self._protocol

    @property
    def experimental_max_worker_delay_secs(self) -> int | None:
        """How long a worker waits at most before it begins, or None."""
        return self._experimental_max_worker_delay_secs

    @property
    def train_distribute(self) -> None:
        """None."""

    @property
    def eval_distribute(self) -> None:
        """None."""

    # What TF_CONFIG says.

    @property
    def cluster_spec(self) -> ClusterSpec:
        """The cluster; empty for one process, and for an evaluator."""
        return self._settings.cluster_spec

    @property
    def master(self) -> str:
        """The target of sessions that train; "": this process."""
        return self._settings.master

    @property
    def evaluation_master(self) -> str:
        """The target of sessions that evaluate; "": this process."""
        return self._settings.evaluation_master

    @property
    def is_chief(self) -> bool:
        """Whether this process initialises and saves the model."""
        return self._settings.is_chief

    @property
    def task_type(self) -> str:
        """The job of this process."""
        return self._settings.task_type

    @property
    def task_id(self) -> int:
        """The number of this process in its job."""
        return self._settings.task_id

    @property
    def global_id_in_cluster(self) -> int | None:
        """The number of this process among all: the chief is 0, parameter servers come last. None
        for an evaluator."""
        return self._settings.global_id_in_cluster

    @property
    def num_ps_replicas(self) -> int:
        """The number of parameter servers."""
        return self._settings.num_ps_replicas

    @property
    def num_worker_replicas(self) -> int:
        """The number of workers, with the chief."""
        return self._settings.num_worker_replicas

    @property
    def service(self) -> dict[str, Any] | None:
        """What TF_CONFIG says of the platform, or None."""
        return self._settings.service


_REPLACEABLE = [
    "model_dir", "tf_random_seed", "save_summary_steps", "save_checkpoints_steps",
    "save_checkpoints_secs", "session_config", "keep_checkpoint_max",
    "keep_checkpoint_every_n_hours", "log_step_count_steps", "device_fn", "protocol",
    "experimental_max_worker_delay_secs", "session_creation_timeout_secs",
    "checkpoint_save_graph_def",
]  # fmt: skip
