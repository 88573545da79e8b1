"""Evaluating a model once."""

from typing import Any

import numpy as np

from millrace import protos
from millrace.compat.v1.metrics.means import mean
from millrace.core import logging
from millrace.core.tensor import Tensor
from millrace.estimator.estimator_spec import EstimatorSpec
from millrace.graph.keys import GraphKeys
from millrace.ops.ordering import group
from millrace.summary.writer import FileWriterCache
from millrace.train.global_step import get_global_step
from millrace.train.hooks import FinalOpsHook
from millrace.train.monitored_session import MonitoredSession
from millrace.train.scaffold import ChiefSessionCreator
from millrace.train.session_run_hook import SessionRunContext, SessionRunHook, SessionRunValues


def metrics_of(spec: EstimatorSpec) -> tuple[Any, dict[str, Tensor]]:
    """The operation that takes in a batch, and the values at the end."""
    if GraphKeys.GLOBAL_STEP in spec.eval_metric_ops:
        raise ValueError(
            f"Metric with name `{GraphKeys.GLOBAL_STEP}` is not allowed, because Estimator already "
            "defines a default metric with the same name."
        )
    metrics = dict(spec.eval_metric_ops)
    metrics.setdefault("loss", mean(spec.loss))
    values = {key: pair[0] for key, pair in metrics.items()}
    values[GraphKeys.GLOBAL_STEP] = get_global_step()
    return group(*(pair[1] for pair in metrics.values())), values


class _StopAfterRuns(SessionRunHook):
    """Asks for the end after a number of runs."""

    def __init__(self, runs: int):
        self._left = runs

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Counts."""
        self._left -= 1
        if self._left <= 0:
            run_context.request_stop()


def evaluate_once(
    spec: EstimatorSpec, checkpoint_path: str | None, update: Any, final: dict[str, Any],
    steps: int | None, hooks: list[Any], session_config: Any, master: str,
) -> dict[str, Any]:  # fmt: skip
    """The values of the metrics after `steps` batches, or all of them, in a session of `master`."""
    results = FinalOpsHook(final)
    hooks = [*hooks, results]
    if steps is not None:
        hooks.append(_StopAfterRuns(steps))
    creator = ChiefSessionCreator(
        scaffold=spec.scaffold, checkpoint_filename_with_path=checkpoint_path, master=master,
        config=session_config,
    )  # fmt: skip
    with MonitoredSession(creator, hooks) as session:
        while not session.should_stop():
            session.run(update)
    return results.final_ops_values


def write_metrics(folder: str, values: dict[str, Any], checkpoint_path: str | None) -> None:
    """Writes the values as summaries of the step they are of."""
    step = int(values[GraphKeys.GLOBAL_STEP])
    shown = ", ".join(f"{key} = {value}" for key, value in sorted(values.items()))
    logging.info("Saving dict for global step %d: %s", step, shown)
    summary = protos.Summary()
    for key, value in values.items():
        if key == GraphKeys.GLOBAL_STEP:
            continue
        if isinstance(value, (np.floating, np.integer, float, int)) and np.ndim(value) == 0:
            entry = summary.value.add()
            entry.tag, entry.simple_value = key, float(value)
        elif isinstance(value, bytes):
            entry = summary.value.add()
            entry.MergeFrom(protos.Summary.FromString(value).value[0])
            entry.tag = key
        else:
            logging.warning("Skipping summary for %s, must be a float.", key)
    writer = FileWriterCache.get(folder)
    writer.add_summary(summary, step)
    writer.flush()
    if checkpoint_path:
        logging.info("Evaluated the checkpoint %s.", checkpoint_path)
