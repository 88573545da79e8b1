"""Checks of what an estimator is given."""

import inspect
import os
import tempfile
from typing import Any

import numpy as np

from millrace.core import logging
from millrace.estimator.run_config import RunConfig
from millrace.train.session_run_hook import SessionRunHook

_MODEL_FN_ARGUMENTS = {"features", "labels", "mode", "params", "config", "self"}


def config_with_folder(config: Any, model_dir: Any) -> RunConfig:
    """The configuration with a folder. ValueError where `model_dir` is another than its."""
    if config is None:
        config = RunConfig()
    elif not isinstance(config, RunConfig):
        raise ValueError(f"config must be an instance of `RunConfig`, but provided {config}.")
    if model_dir is not None:
        model_dir = os.fspath(model_dir)
        if config.model_dir is not None and config.model_dir != model_dir:
            raise ValueError(
                "`model_dir` are set both in constructor and `RunConfig`, but with different "
                f"values. In constructor: '{model_dir}', in `RunConfig`: '{config.model_dir}'"
            )
    folder = model_dir or config.model_dir
    if folder is None:
        folder = tempfile.mkdtemp()
        logging.warning("Using temporary folder as model directory: %s", folder)
    return config.replace(model_dir=folder)


def check_model_fn(model_fn: Any, params: Any) -> None:
    """ValueError unless a model function can be called with what it names."""
    names = set(inspect.signature(model_fn).parameters)
    if "features" not in names:
        raise ValueError(f"model_fn ({model_fn}) must include features argument.")
    if params is not None and "params" not in names:
        raise ValueError(
            f"model_fn ({model_fn}) does not include params argument, but params ({params}) is "
            "passed to Estimator."
        )
    if names - _MODEL_FN_ARGUMENTS:
        raise ValueError(
            f"model_fn ({model_fn}) has following not expected args: "
            f"{sorted(names - _MODEL_FN_ARGUMENTS)}"
        )


def check_steps(steps: int | None, max_steps: int | None) -> None:
    """ValueError for both, and for numbers that are not positive."""
    if steps is not None and max_steps is not None:
        raise ValueError("Can not provide both steps and max_steps.")
    if steps is not None and steps <= 0:
        raise ValueError(f"Must specify steps > 0, given: {steps}")
    if max_steps is not None and max_steps <= 0:
        raise ValueError(f"Must specify max_steps > 0, given: {max_steps}")


def checked_hooks(hooks: Any) -> list[Any]:
    """The hooks as a list. TypeError for other things."""
    hooks = list(hooks or [])
    for hook in hooks:
        if not isinstance(hook, SessionRunHook):
            raise TypeError(f"Hooks must be a SessionRunHook, given: {hook}")
    return hooks


def chosen_predictions(predictions: Any, keys: Any) -> Any:
    """The predictions of these names, or all. ValueError where none is there."""
    if not keys:
        return predictions
    if not isinstance(predictions, dict):
        raise ValueError("predict_keys argument is not valid in case of non-dict predictions.")
    chosen = {key: value for key, value in predictions.items() if key in keys}
    if not chosen:
        raise ValueError(
            f"Expected to run at least one output from {list(predictions)}, provided {keys}."
        )
    return chosen


def batch_length(batch: dict[str, Any]) -> int:
    """The size of the first dimension, the same for all. ValueError else."""
    sizes = {key: np.shape(value)[0] if np.ndim(value) else None for key, value in batch.items()}
    if len(set(sizes.values())) != 1 or None in sizes.values():
        raise ValueError(
            f"Batch length of predictions should be same. Sizes of the first dimension: {sizes}; "
            "yield_single_examples=False gives batches as they are."
        )
    return next(iter(sizes.values()))
