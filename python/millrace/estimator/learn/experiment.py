"""Runs of an estimator as a whole."""

from typing import Any, Callable

from millrace.core import logging
from millrace.core.export import export
from millrace.train.session_run_hook import SessionRunContext, SessionRunHook, SessionRunValues


@export(v1="contrib.learn.Experiment")
class Experiment:
    """An estimator with the input to train and evaluate it on.

    Args:
      estimator: of `tf.contrib.learn`.
      train_input_fn, eval_input_fn: input functions.
      eval_metrics: {name: MetricSpec}.
      train_steps, eval_steps: how many; None until the input ends.
      train_monitors: hooks.
    """

    def __init__(
        self, estimator: Any, train_input_fn: Any, eval_input_fn: Any, eval_metrics: Any = None,
        train_steps: int | None = None, eval_steps: int | None = 100, train_monitors: Any = None,
    ):  # fmt: skip
        self.estimator = estimator
        self._train_input_fn = train_input_fn
        self._eval_input_fn = eval_input_fn
        self._eval_metrics = eval_metrics
        self._train_steps = train_steps
        self._eval_steps = eval_steps
        self._train_monitors = list(train_monitors or [])

    def train(self) -> Any:
        """Trains up to `train_steps`."""
        return self.estimator.fit(
            input_fn=self._train_input_fn, max_steps=self._train_steps,
            monitors=self._train_monitors,
        )  # fmt: skip

    def evaluate(self) -> dict[str, Any]:
        """The metrics of the newest checkpoint."""
        return self.estimator.evaluate(
            input_fn=self._eval_input_fn, steps=self._eval_steps, metrics=self._eval_metrics
        )

    def train_and_evaluate(self) -> dict[str, Any]:
        """Trains, then evaluates."""
        self.train()
        return self.evaluate()

    local_run = train_and_evaluate


@export(v1=("contrib.learn.learn_runner.run", "contrib.learn.python.learn.learn_runner.run"))
def run(
    experiment_fn: Callable[[str], Experiment], output_dir: str, schedule: str | None = None
) -> Any:
    """Calls the method `schedule`, "train_and_evaluate" by default, of
    `experiment_fn(output_dir)`."""
    if not output_dir:
        raise ValueError("Must specify an output directory")
    if not callable(experiment_fn):
        raise TypeError("Experiment builder is not callable.")
    experiment = experiment_fn(output_dir)
    if not isinstance(experiment, Experiment):
        raise TypeError(f"Experiment builder did not return an Experiment instance: {experiment}")
    method = getattr(experiment, schedule or "train_and_evaluate", None)
    if not callable(method):
        raise ValueError(f"Schedule references non-existent task {schedule}.")
    return method()


@export(v1="contrib.learn.monitors.ValidationMonitor")
class ValidationMonitor(SessionRunHook):
    """Evaluates the newest checkpoint every so many steps, and stops the training when a metric
    has not become better for `early_stopping_rounds` steps.

    Args:
      x, y, input_fn, batch_size, eval_steps, metrics, name: as for `evaluate`.
      every_n_steps: how often.
      early_stopping_metric, early_stopping_metric_minimize: the metric, and whether less is better.
    """

    def __init__(
        self, x: Any = None, y: Any = None, input_fn: Any = None, batch_size: int | None = None,
        eval_steps: int | None = None, every_n_steps: int = 100, metrics: Any = None,
        hooks: Any = None, early_stopping_rounds: int | None = None,
        early_stopping_metric: str = "loss", early_stopping_metric_minimize: bool = True,
        name: str | None = None,
    ):  # fmt: skip
        if x is None and input_fn is None:
            raise ValueError("Either x or input_fn should be provided.")
        self._inputs = {
            "x": x, "y": y, "input_fn": input_fn, "batch_size": batch_size, "steps": eval_steps,
            "metrics": metrics, "hooks": hooks, "name": name,
        }  # fmt: skip
        self._every_n_steps = every_n_steps
        self._rounds = early_stopping_rounds
        self._metric = early_stopping_metric
        self._sign = 1 if early_stopping_metric_minimize else -1
        self._estimator: Any = None
        self._runs = 0
        self._evaluated: str | None = None
        self.best_step: int | None = None
        self.best_value: float | None = None
        self.early_stopped = False

    def set_estimator(self, estimator: Any) -> None:
        """Says whose checkpoints to evaluate."""
        self._estimator = estimator

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Evaluates when it is time, and there is a new checkpoint."""
        self._runs += 1
        if self._runs % self._every_n_steps:
            return
        newest = self._estimator.latest_checkpoint()
        if newest is None or newest == self._evaluated:
            return
        self._evaluated = newest
        found = self._estimator.evaluate(**self._inputs)
        value, step = found[self._metric], int(found["global_step"])
        logging.info("Validation (step %d): %s = %s", step, self._metric, value)
        if self.best_value is None or self._sign * value < self._sign * self.best_value:
            self.best_value, self.best_step = value, step
        elif self._rounds is not None and step - self.best_step >= self._rounds:
            logging.info(
                "Stopping. Best step: %d with %s = %s.", self.best_step, self._metric,
                self.best_value,
            )  # fmt: skip
            self.early_stopped = True
            run_context.request_stop()
