"""The estimator of `tf.contrib.learn`, which also takes arrays."""

import os
from typing import Any, Callable

import numpy as np

from millrace.core.export import export
from millrace.estimator import estimator as core
from millrace.estimator.array_inputs import numpy_input_fn
from millrace.estimator.learn.model_fn import MetricSpec, adapted
from millrace.estimator.run_config import RunConfig as CoreRunConfig


@export(v1=("contrib.learn.RunConfig", "contrib.learn.estimators.RunConfig",
            "contrib.learn.estimators.run_config.RunConfig"))  # fmt: skip
class RunConfig(CoreRunConfig):
    """How an estimator runs; see `tf.estimator.RunConfig`. `master`, `num_cores`,
    `log_device_placement`, `gpu_memory_fraction` and `evaluation_master` change nothing."""

    def __init__(
        self, master: str | None = None, num_cores: int = 0, log_device_placement: bool = False,
        gpu_memory_fraction: float = 1, tf_random_seed: int | None = None,
        save_summary_steps: int = 100, save_checkpoints_secs: float | None = 600,
        save_checkpoints_steps: int | None = None, keep_checkpoint_max: int = 5,
        keep_checkpoint_every_n_hours: float = 10000, evaluation_master: str = "",
        model_dir: Any = None, session_config: Any = None, log_step_count_steps: int = 100,
    ):  # fmt: skip
        del master, num_cores, log_device_placement, gpu_memory_fraction, evaluation_master
        super().__init__(
            model_dir, tf_random_seed, save_summary_steps,
            save_checkpoints_steps=save_checkpoints_steps,
            save_checkpoints_secs=None if save_checkpoints_steps else save_checkpoints_secs,
            session_config=session_config, keep_checkpoint_max=keep_checkpoint_max,
            keep_checkpoint_every_n_hours=keep_checkpoint_every_n_hours,
            log_step_count_steps=log_step_count_steps,
        )  # fmt: skip


def _input(
    x: Any, y: Any, input_fn: Any, batch_size: int | None, epochs: int | None, shuffle: bool
) -> Callable[..., Any]:
    """The input function, or one over arrays; all rows are a batch without `batch_size`."""
    if input_fn is not None:
        if x is not None or y is not None:
            raise ValueError("Can not provide both input_fn and x or y.")
        return input_fn
    if x is None:
        raise ValueError("Either x or input_fn must be provided.")
    x = {key: np.asarray(x[key]) for key in x} if isinstance(x, dict) else np.asarray(x)
    y = None if y is None else np.asarray(y)
    rows = len(next(iter(x.values()))) if isinstance(x, dict) else len(x)
    return numpy_input_fn(x, y, min(batch_size or rows, rows), epochs, shuffle)


@export(v1=("contrib.learn.Estimator", "contrib.learn.estimators.Estimator"))
class Estimator:
    """A model given as a function of features and labels; see `tf.estimator.Estimator`.

    Args:
      model_fn: (features, labels[, mode][, params][, config]) to ModelFnOps or (predictions, loss,
        train_op).
      model_dir, config, params: as there.
      feature_engineering_fn: (features, labels) to other ones, called first.
    """

    def __init__(
        self, model_fn: Any = None, model_dir: Any = None, config: Any = None, params: Any = None,
        feature_engineering_fn: Any = None,
    ):  # fmt: skip
        self._metrics: Any = None
        self._core = core.Estimator(
            adapted(model_fn, params, feature_engineering_fn, lambda: self._metrics),
            model_dir, config if config is not None else RunConfig(),
        )  # fmt: skip

    @property
    def model_dir(self) -> str:
        """The folder of the model."""
        return self._core.model_dir

    @property
    def config(self) -> Any:
        """How it runs."""
        return self._core.config

    def latest_checkpoint(self) -> str | None:
        """The newest checkpoint, or None."""
        return self._core.latest_checkpoint()

    def get_variable_names(self) -> list[str]:
        """The names of all variables in the newest checkpoint."""
        return self._core.get_variable_names()

    def get_variable_value(self, name: str) -> Any:
        """The value of a variable in the newest checkpoint."""
        return self._core.get_variable_value(name)

    def fit(
        self, x: Any = None, y: Any = None, input_fn: Any = None, steps: int | None = None,
        batch_size: int | None = None, monitors: Any = None, max_steps: int | None = None,
    ) -> "Estimator":  # fmt: skip
        """Trains on arrays, in batches of random rows, or on an input function.

        `monitors`: hooks. `steps` and `max_steps`: as for `tf.estimator.Estimator.train`.
        """
        monitors = list(monitors or [])
        for monitor in monitors:
            if hasattr(monitor, "set_estimator"):
                monitor.set_estimator(self)
        self._core.train(
            _input(x, y, input_fn, batch_size, None, True), hooks=monitors, steps=steps,
            max_steps=max_steps,
        )  # fmt: skip
        return self

    partial_fit = fit

    def evaluate(
        self, x: Any = None, y: Any = None, input_fn: Any = None, feed_fn: Any = None,
        batch_size: int | None = None, steps: int | None = None, metrics: Any = None,
        name: str | None = None, checkpoint_path: Any = None, hooks: Any = None,
        log_progress: bool = True,
    ) -> dict[str, Any]:  # fmt: skip
        """The metrics of the model: its own and those of `metrics`, {name: MetricSpec or function
        of predictions and labels}."""
        del feed_fn, log_progress
        self._metrics = {
            key if isinstance(key, str) else key[0]: (
                each
                if isinstance(each, MetricSpec)
                else MetricSpec(each, None if isinstance(key, str) else key[1])
            )
            for key, each in (metrics or {}).items()
        }
        try:
            return self._core.evaluate(
                _input(x, y, input_fn, batch_size, 1, False), steps=steps, hooks=hooks,
                checkpoint_path=checkpoint_path, name=name,
            )  # fmt: skip
        finally:
            self._metrics = None

    def predict(
        self, x: Any = None, input_fn: Any = None, batch_size: int | None = None,
        outputs: Any = None, as_iterable: bool = True,
    ) -> Any:  # fmt: skip
        """The predictions of the model, `outputs` of them where names are given: one by one, or as
        arrays with `as_iterable` False."""
        found = self._core.predict(
            _input(x, None, input_fn, batch_size, 1, False), predict_keys=outputs
        )
        if as_iterable:
            return found
        rows = list(found)
        if rows and isinstance(rows[0], dict):
            return {key: np.array([row[key] for row in rows]) for key in rows[0]}
        return np.array(rows)

    def export_savedmodel(
        self, export_dir_base: Any, serving_input_fn: Any, assets_extra: Any = None,
        as_text: bool = False, checkpoint_path: Any = None,
    ) -> bytes:  # fmt: skip
        """See `tf.estimator.Estimator.export_saved_model`."""
        return self._core.export_saved_model(
            os.fspath(export_dir_base), serving_input_fn, assets_extra, as_text, checkpoint_path
        )
