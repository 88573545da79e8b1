"""Summaries for TensorBoard's hparams dashboard, as `tensorboard.plugins.hparams.api` has them.

Each is a `Summary` message for `FileWriter.add_summary`: `hparams_config_pb` once, in the folder
above the runs, `hparams_pb` when a run begins and `session_end_pb`, where wanted, when it ends,
both in the folder of the run.
"""

import hashlib
import json
import random
import time
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from millrace import protos

_DATA_TYPES = {int: 3, float: 3, bool: 2, str: 1}  # DATA_TYPE_FLOAT64, _BOOL, _STRING


def _message(type_name: str, **fields: Any) -> Any:
    return protos.message_class("tensorboard.hparams." + type_name)(**fields)


def _summary(tag: str, data: Any) -> Any:
    """The summary of a tag that TensorBoard keeps for the plugin; the value is in its metadata."""
    summary = protos.Summary()
    value = summary.value.add(tag=f"_hparams_/{tag}")
    value.metadata.plugin_data.plugin_name = "hparams"
    value.metadata.plugin_data.content = data.SerializeToString()
    value.tensor.dtype = protos.DT_FLOAT
    value.tensor.tensor_shape.dim.add(size=0)
    return summary


def _set_value(message: Any, name: str, value: Any) -> None:
    """Sets a `google.protobuf.Value`."""
    if isinstance(value, bool):
        message.bool_value = value
    elif isinstance(value, (int, float)):
        message.number_value = value
    elif isinstance(value, str):
        message.string_value = value
    else:
        raise TypeError(f"hparams[{name!r}] = {value!r}, of unsupported type {type(value)!r}")


class Domain:
    """The values that a hyperparameter can take: bool, int, float or str."""

    dtype: type

    def sample_uniform(self, rng: Any = random) -> Any:
        """A value, drawn with `rng`, which has what module `random` has."""
        raise NotImplementedError

    def update_hparam_info(self, hparam_info: Any) -> None:
        """Writes type and domain into an `HParamInfo` message."""
        raise NotImplementedError


class _Interval(Domain):
    """Numbers from `min_value` to `max_value`, both included."""

    def __init__(self, min_value: Any, max_value: Any):
        article = "an int" if self.dtype is int else "a float"
        for name, value in (("min_value", min_value), ("max_value", max_value)):
            if not isinstance(value, self.dtype):
                raise TypeError(f"{name} must be {article}: {value!r}")
        if min_value > max_value:
            raise ValueError(f"{min_value!r} > {max_value!r}")
        self.min_value, self.max_value = min_value, max_value

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.min_value!r}, {self.max_value!r})"

    def update_hparam_info(self, hparam_info: Any) -> None:
        hparam_info.type = _DATA_TYPES[self.dtype]
        hparam_info.domain_interval.min_value = self.min_value
        hparam_info.domain_interval.max_value = self.max_value


class IntInterval(_Interval):
    """The integers from `min_value` to `max_value`, both included."""

    dtype = int

    def sample_uniform(self, rng: Any = random) -> int:
        return int(rng.randint(self.min_value, self.max_value))


class RealInterval(_Interval):
    """The numbers from `min_value` to `max_value`, both included."""

    dtype = float

    def sample_uniform(self, rng: Any = random) -> float:
        return float(rng.uniform(self.min_value, self.max_value))


class Discrete(Domain):
    """A set of values of one type, that of the first where `dtype` is not given."""

    def __init__(self, values: Iterable[Any], dtype: type | None = None):
        self.values = list(values)
        if dtype is None:
            if not self.values:
                raise ValueError("Empty domain with no dtype specified")
            dtype = type(self.values[0])
        if dtype not in _DATA_TYPES:
            raise ValueError(f"Unknown dtype: {dtype!r}")
        for value in self.values:
            if not isinstance(value, dtype):
                raise TypeError(f"dtype mismatch: not isinstance({value!r}, {dtype.__name__})")
        self.dtype = dtype
        self.values.sort()

    def __repr__(self) -> str:
        return f"Discrete({self.values!r})"

    def sample_uniform(self, rng: Any = random) -> Any:
        return rng.choice(self.values)

    def update_hparam_info(self, hparam_info: Any) -> None:
        hparam_info.type = _DATA_TYPES[self.dtype]
        hparam_info.ClearField("domain")
        hparam_info.domain_discrete.SetInParent()
        for value in self.values:
            _set_value(hparam_info.domain_discrete.values.add(), hparam_info.name, value)


class HParam:
    """A hyperparameter: its name, and optionally its domain and how it is shown."""

    def __init__(
        self, name: str, domain: Domain | None = None, display_name: str | None = None,
        description: str | None = None,
    ):  # fmt: skip
        if not isinstance(domain, (Domain, type(None))):
            raise ValueError(f"not a domain: {domain!r}")
        self.name, self.domain = name, domain
        self.display_name, self.description = display_name, description

    def __repr__(self) -> str:
        return f"HParam({self.name!r}, {self.domain!r})"


class Metric:
    """A scalar that runs are judged by.

    Args:
      tag: the tag of its summaries.
      group: the folder below the run's where these are, if not in the run's own.
      display_name: how it is called in the dashboard.
      description: Markdown.
      dataset_type: `Metric.TRAINING` or `Metric.VALIDATION`.
    """

    TRAINING = 1
    VALIDATION = 2

    def __init__(
        self, tag: str, group: str | None = None, display_name: str | None = None,
        description: str | None = None, dataset_type: int | None = None,
    ):  # fmt: skip
        if dataset_type not in (None, Metric.TRAINING, Metric.VALIDATION):
            raise ValueError(f"invalid dataset type: {dataset_type!r}")
        self._name = _message("MetricName", group=group or "", tag=tag)
        self._fields = {
            "display_name": display_name or "", "description": description or "",
            "dataset_type": dataset_type or 0,
        }  # fmt: skip

    def as_proto(self) -> Any:
        """A `MetricInfo` message."""
        return _message("MetricInfo", name=self._name, **self._fields)


def hparams_pb(
    hparams: Mapping[Any, Any], trial_id: str | None = None, start_time_secs: float | None = None
) -> Any:
    """The summary that says with which values a run begins.

    Args:
      hparams: {name or `HParam`: bool, int, float or str}.
      trial_id: the name of the trial; runs of one name are shown as one. By default it follows from
        the values.
      start_time_secs: when the run began, in seconds since 1970; now by default.
    """
    values: dict[str, Any] = {}
    for key, value in hparams.items():
        name = key.name if isinstance(key, HParam) else key
        if name in values:
            raise ValueError(f"multiple values specified for hparam {name!r}")
        values[name] = value.item() if isinstance(value, np.generic) else value
    if not isinstance(trial_id, (str, type(None))):
        raise TypeError(f"`trial_id` should be a `str`, but got: {trial_id!r}")
    info = _message("SessionStartInfo")
    info.start_time_secs = time.time() if start_time_secs is None else start_time_secs
    for name in sorted(values):
        _set_value(info.hparams[name], name, values[name])
    if trial_id is None:
        text = json.dumps(values, sort_keys=True, separators=(",", ":"))
        trial_id = hashlib.sha256(text.encode()).hexdigest()
    info.group_name = trial_id
    return _summary("session_start_info", _message("HParamsPluginData", session_start_info=info))


def session_end_pb(status: int = 1, end_time_secs: float | None = None) -> Any:
    """The summary that says how a run ended.

    Args:
      status: 1 for success, 2 for failure.
      end_time_secs: when, in seconds since 1970; now by default.
    """
    end = time.time() if end_time_secs is None else end_time_secs
    info = _message("SessionEndInfo", status=status, end_time_secs=end)
    return _summary("session_end_info", _message("HParamsPluginData", session_end_info=info))


def hparams_config_pb(
    hparams: Iterable[HParam], metrics: Iterable[Metric], time_created_secs: float | None = None
) -> Any:
    """The summary that says what runs vary and what they are judged by; holds no values."""
    experiment = _message("Experiment")
    experiment.time_created_secs = time.time() if time_created_secs is None else time_created_secs
    for hparam in hparams:
        info = experiment.hparam_infos.add(name=hparam.name)
        info.display_name = hparam.display_name or ""
        info.description = hparam.description or ""
        if hparam.domain is not None:
            hparam.domain.update_hparam_info(info)
    for metric in metrics:
        experiment.metric_infos.add().CopyFrom(metric.as_proto())
    return _summary("experiment", _message("HParamsPluginData", experiment=experiment))
