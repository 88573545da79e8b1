"""The estimator: trains, evaluates, predicts with and exports a model given as a function."""

import copy
import inspect
import os
from typing import Any, Callable, Iterator

import numpy as np

from millrace.checkpoint.checkpoint_state import latest_checkpoint
from millrace.checkpoint.reader import list_variables, load_variable
from millrace.checkpoint.saver import Saver
from millrace.checkpoint.saver_builder import RANDOM_STATE
from millrace.core import errors, logging
from millrace.core.export import export
from millrace.estimator.arguments import (
    batch_length,
    check_model_fn,
    check_steps,
    checked_hooks,
    chosen_predictions,
    config_with_folder,
)
from millrace.estimator.cluster_settings import (
    MASTER,
    WORKER,
    device_fn_of,
    session_config_for,
)
from millrace.estimator.estimator_spec import EstimatorSpec
from millrace.estimator.evaluation import evaluate_once, metrics_of, write_metrics
from millrace.estimator.exporting import export_model
from millrace.estimator.inputs import features_and_labels, read_input
from millrace.estimator.mode_keys import ModeKeys
from millrace.estimator.run_config import RunConfig
from millrace.estimator.warm_starting import WarmStartSettings, warm_started
from millrace.graph.default_graph import device
from millrace.graph.graph import Graph
from millrace.graph.keys import GraphKeys
from millrace.ops.random import set_random_seed
from millrace.summary.ops import scalar
from millrace.train.checkpoint_hook import CheckpointSaverHook
from millrace.train.global_step import create_global_step, get_global_step
from millrace.train.hooks import LoggingTensorHook, NanTensorHook, StopAtStepHook
from millrace.train.monitored_session import MonitoredSession, MonitoredTrainingSession
from millrace.train.scaffold import ChiefSessionCreator
from millrace.train.summary_hooks import StepCounterHook, SummarySaverHook


@export(v1="estimator.Estimator")
class Estimator:
    """A model given as a function, with a folder of its own for checkpoints.

    Args:
      model_fn: a function of `features` and, where it names them, `labels`, `mode`, `params` and
        `config`, which builds the model and returns an EstimatorSpec.
      model_dir: the folder; that of `config`, or a temporary one, if None.
      config: a RunConfig.
      params: passed to `model_fn`.
      warm_start_from: a checkpoint, folder or WarmStartSettings to start from where the folder has
        no checkpoint yet.
    """

    def __init__(
        self, model_fn: Callable[..., Any], model_dir: Any = None, config: Any = None,
        params: Any = None, warm_start_from: Any = None,
    ):  # fmt: skip
        self._config = config_with_folder(config, model_dir)
        self._model_dir = self._config.model_dir
        if model_fn is None:
            raise ValueError("model_fn must be provided to Estimator.")
        check_model_fn(model_fn, params)
        self._model_fn = model_fn
        self._params = copy.deepcopy(params or {})
        self._warm_start_settings = WarmStartSettings.of(warm_start_from)

    @property
    def model_dir(self) -> str:
        """The folder of the model."""
        return self._model_dir

    @property
    def config(self) -> RunConfig:
        """How it runs."""
        return copy.deepcopy(self._config)

    @property
    def params(self) -> Any:
        """What is passed to the model function."""
        return copy.deepcopy(self._params)

    @property
    def model_fn(self) -> Callable[..., Any]:
        """The model as a function of features, labels, mode and config."""

        def public_model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
            return self._call_model_fn(features, labels, mode, config)

        return public_model_fn

    def latest_checkpoint(self) -> str | None:
        """The newest checkpoint, or None."""
        return latest_checkpoint(self.model_dir)

    def get_variable_value(self, name: str) -> np.ndarray:
        """The value of a variable in the newest checkpoint. ValueError before training."""
        self._check_trained()
        return load_variable(self.model_dir, name)

    def get_variable_names(self) -> list[str]:
        """The names of all variables in the newest checkpoint. ValueError before training."""
        self._check_trained()
        names = [name for name, _ in list_variables(self.model_dir)]
        return [name for name in names if not name.startswith(RANDOM_STATE)]

    def _check_trained(self) -> None:
        if not self.latest_checkpoint():
            raise ValueError(f"Could not find trained model in model_dir: {self._model_dir}.")

    # Training.

    def train(
        self, input_fn: Callable[..., Any], hooks: Any = None, steps: int | None = None,
        max_steps: int | None = None, saving_listeners: Any = None,
    ) -> "Estimator":  # fmt: skip
        """Trains: from the newest checkpoint on, or from the start.

        Args:
          input_fn: gives (features, labels) or a Dataset of such.
          hooks: more hooks.
          steps: how many steps to make now; None to go on until the input ends.
          max_steps: the step to stop at, counted from the first training.
          saving_listeners: CheckpointSaverListeners.
        """
        check_steps(steps, max_steps)
        if max_steps is not None and self._saved_step() >= max_steps:
            logging.info("Skipping training since max_steps has already saved.")
            return self
        all_hooks = checked_hooks(hooks)
        if steps is not None or max_steps is not None:
            all_hooks.append(StopAtStepHook(steps, max_steps))
        loss = self._train_model(input_fn, all_hooks, list(saving_listeners or []))
        if loss is not None:
            logging.info("Loss for final step: %s.", loss)
        return self

    def _saved_step(self) -> int:
        if not self.latest_checkpoint():
            return 0
        try:
            return int(load_variable(self.model_dir, GraphKeys.GLOBAL_STEP))
        except errors.NotFoundError:
            return 0

    def _graph(self) -> Any:
        """The context of a new graph, as the configuration has it."""
        graph = Graph()
        graph_context = graph.as_default()
        with graph.as_default():
            set_random_seed(self._config.tf_random_seed)
        return graph_context

    def _train_model(self, input_fn: Any, hooks: list[Any], listeners: list[Any]) -> Any:
        with self._graph(), device(device_fn_of(self._config)):
            create_global_step()
            features, labels, input_hooks = features_and_labels(
                self._read(input_fn, ModeKeys.TRAIN)
            )
            spec = self._call_model_fn(features, labels, ModeKeys.TRAIN, self._config)
            if self._warm_start_settings is not None and not self.latest_checkpoint():
                warm_started(self._warm_start_settings)
            return self._train_with(spec, [*input_hooks, *hooks], listeners)

    def _train_with(self, spec: EstimatorSpec, hooks: list[Any], listeners: list[Any]) -> Any:
        config = self._config
        graph = spec.loss.graph
        if not any(loss is spec.loss for loss in graph.get_collection(GraphKeys.LOSSES)):
            graph.add_to_collection(GraphKeys.LOSSES, spec.loss)
        scalar("loss", spec.loss)
        hooks = [*hooks, NanTensorHook(spec.loss), *spec.training_hooks]
        if config.log_step_count_steps is not None:
            watched = {"loss": spec.loss, "step": get_global_step()}
            hooks.append(LoggingTensorHook(watched, every_n_iter=config.log_step_count_steps))
        if not spec.scaffold.saver and not graph.get_collection(GraphKeys.SAVERS):
            graph.add_to_collection(
                GraphKeys.SAVERS,
                Saver(
                    sharded=True, max_to_keep=config.keep_checkpoint_max, defer_build=True,
                    keep_checkpoint_every_n_hours=config.keep_checkpoint_every_n_hours,
                    save_relative_paths=True, random_state=True,
                ),
            )  # fmt: skip
        saver_hooks = self._saver_hooks(spec, hooks, listeners)
        summary_steps, count_steps = config.save_summary_steps, config.log_step_count_steps
        if {WORKER, MASTER} <= set(config.cluster_spec.jobs):
            # A master evaluates, which may take long: the first worker writes summaries.
            summary_steps, count_steps = 0, None
            if config.task_type == WORKER and config.task_id == 0:
                hooks += self._summary_hooks(spec)
        loss = None
        with MonitoredTrainingSession(
            master=config.master, is_chief=config.is_chief, checkpoint_dir=self._model_dir,
            scaffold=spec.scaffold, hooks=hooks,
            chief_only_hooks=[*saver_hooks, *spec.training_chief_hooks], save_checkpoint_secs=0,
            save_summaries_steps=summary_steps, config=config.session_config,
            log_step_count_steps=count_steps, max_wait_secs=config.session_creation_timeout_secs,
        ) as session:  # fmt: skip
            while not session.should_stop():
                _, loss = session.run([spec.train_op, spec.loss])
        if loss is None:
            logging.warning(
                "Training with estimator made no steps. Perhaps input is empty or misspecified."
            )
        return loss

    def _summary_hooks(self, spec: EstimatorSpec) -> list[Any]:
        config = self._config
        out: list[Any] = []
        if config.save_summary_steps:
            out.append(
                SummarySaverHook(
                    save_steps=config.save_summary_steps, output_dir=self._model_dir,
                    scaffold=spec.scaffold,
                )
            )  # fmt: skip
        if config.log_step_count_steps:
            out.append(
                StepCounterHook(
                    every_n_steps=config.log_step_count_steps, output_dir=self._model_dir
                )
            )
        return out

    def _saver_hooks(
        self, spec: EstimatorSpec, hooks: list[Any], listeners: list[Any]
    ) -> list[Any]:
        """The hook that writes checkpoints, unless there is one; listeners are told to it."""
        config = self._config
        known = [
            hook
            for hook in [*hooks, *spec.training_chief_hooks]
            if isinstance(hook, CheckpointSaverHook)
        ]
        made = []
        if not known and (config.save_checkpoints_secs or config.save_checkpoints_steps):
            made = [
                CheckpointSaverHook(
                    self._model_dir, save_secs=config.save_checkpoints_secs,
                    save_steps=config.save_checkpoints_steps, scaffold=spec.scaffold,
                    save_graph_def=config.checkpoint_save_graph_def,
                )
            ]  # fmt: skip
        if listeners:
            if not known + made:
                raise ValueError(
                    "There should be a CheckpointSaverHook to use saving_listeners. Please set one "
                    "of the RunConfig.save_checkpoints_steps or RunConfig.save_checkpoints_secs."
                )
            (known + made)[0]._listeners.extend(listeners)
        return made

    # Evaluation and prediction.

    def evaluate(
        self, input_fn: Callable[..., Any], steps: int | None = None, hooks: Any = None,
        checkpoint_path: Any = None, name: str | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """The metrics of the model, with "loss" and "global_step", over `steps` batches, or all of
        them. They are written as summaries, too, to the folder "eval" or "eval_NAME".

        `checkpoint_path`: the model; the newest one by default, a new one where there is none.
        """
        check_steps(steps, None)
        all_hooks = checked_hooks(hooks)
        path = checkpoint_path or self._checkpoint_to("evaluate")
        master = self._config.evaluation_master
        # In a session of its own there are no parameter servers.
        place = device_fn_of(self._config) if master else self._config.device_fn
        with self._graph(), device(place):
            create_global_step()
            features, labels, input_hooks = features_and_labels(self._read(input_fn, ModeKeys.EVAL))
            spec = self._call_model_fn(features, labels, ModeKeys.EVAL, self._config)
            if path is None and self._warm_start_settings is not None:
                warm_started(self._warm_start_settings)
            update, final = metrics_of(spec)
            values = evaluate_once(
                spec, path, update, final, steps,
                [*input_hooks, *all_hooks, *spec.evaluation_hooks],
                session_config_for(self._config, master), master,
            )  # fmt: skip
        write_metrics(self.eval_dir(name), values, path)
        return values

    def eval_dir(self, name: str | None = None) -> str:
        """The folder of the summaries of an evaluation."""
        return os.path.join(self._model_dir, f"eval_{name}" if name else "eval")

    def _checkpoint_to(self, what: str) -> str | None:
        found = self.latest_checkpoint()
        if found is None:
            logging.info(
                "Could not find trained model in model_dir: %s, running initialization to %s.",
                self._model_dir, what,
            )  # fmt: skip
        return found

    def predict(
        self, input_fn: Callable[..., Any], predict_keys: Any = None, hooks: Any = None,
        checkpoint_path: Any = None, yield_single_examples: bool = True,
    ) -> Iterator[Any]:  # fmt: skip
        """Yields the predictions of the model, example by example, or batch by batch with
        `yield_single_examples` False.

        `predict_keys`: the names of the predictions that are wanted; all by default.
        `checkpoint_path`: as for `evaluate`.
        """
        all_hooks = checked_hooks(hooks)
        path = checkpoint_path or self._checkpoint_to("predict")
        with self._graph(), device(device_fn_of(self._config)):
            create_global_step()
            features, _, input_hooks = features_and_labels(
                self._read(input_fn, ModeKeys.PREDICT), needs_labels=False
            )
            spec = self._call_model_fn(features, None, ModeKeys.PREDICT, self._config)
            if path is None and self._warm_start_settings is not None:
                warm_started(self._warm_start_settings)
            predictions = chosen_predictions(spec.predictions, predict_keys)
            creator = ChiefSessionCreator(
                scaffold=spec.scaffold, checkpoint_filename_with_path=path,
                master=self._config.master, config=self._config.session_config,
            )  # fmt: skip
            with MonitoredSession(
                creator, [*input_hooks, *all_hooks, *spec.prediction_hooks]
            ) as session:
                while not session.should_stop():
                    batch = session.run(predictions)
                    if not yield_single_examples:
                        yield batch
                    elif not isinstance(batch, dict):
                        yield from batch
                    else:
                        for i in range(batch_length(batch)):
                            yield {key: value[i] for key, value in batch.items()}

    # Exporting.

    def export_saved_model(
        self, export_dir_base: Any, serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Any = None, as_text: bool = False, checkpoint_path: Any = None,
        experimental_mode: str = ModeKeys.PREDICT,
    ) -> bytes:  # fmt: skip
        """Writes the model as a SavedModel to a new folder, named by the time, below
        `export_dir_base`; gives its path.

        Args:
          serving_input_receiver_fn: gives a ServingInputReceiver: what the model is fed.
          assets_extra: {name below "assets.extra": file to copy there}.
          as_text: in the text format of messages.
          checkpoint_path: the model; the newest one by default. ValueError before training.
        """
        path = checkpoint_path or self.latest_checkpoint()
        if not path:
            raise ValueError(f"Couldn't find trained model at {self._model_dir}.")
        if experimental_mode != ModeKeys.PREDICT:
            raise errors.UnimplementedError(
                None, None, "Only the model that predicts is exported in this version of Millrace."
            )
        with self._graph():
            create_global_step()
            return export_model(
                lambda features: self._call_model_fn(
                    features, None, ModeKeys.PREDICT, self._config
                ),
                os.fspath(export_dir_base), serving_input_receiver_fn, assets_extra, as_text, path,
                self._config.session_config,
            )  # fmt: skip

    def export_savedmodel(
        self, export_dir_base: Any, serving_input_receiver_fn: Callable[[], Any],
        assets_extra: Any = None, as_text: bool = False, checkpoint_path: Any = None,
        strip_default_attrs: bool = False,
    ) -> bytes:  # fmt: skip
        """The older name of `export_saved_model`."""
        del strip_default_attrs
        return self.export_saved_model(
            export_dir_base, serving_input_receiver_fn, assets_extra, as_text, checkpoint_path
        )

    # Calling what the user gave.

    def _read(self, input_fn: Any, mode: str) -> Any:
        return read_input(input_fn, mode, self._params, self._config)

    def _call_model_fn(self, features: Any, labels: Any, mode: str, config: Any) -> EstimatorSpec:
        names = inspect.signature(self._model_fn).parameters
        arguments: dict[str, Any] = {}
        if "labels" in names:
            arguments["labels"] = labels
        elif labels is not None:
            raise ValueError("model_fn does not take labels, but input_fn returns labels.")
        for name, value in (("mode", mode), ("params", self.params), ("config", config)):
            if name in names:
                arguments[name] = value
        spec = self._model_fn(features=features, **arguments)
        if not isinstance(spec, EstimatorSpec):
            raise ValueError("model_fn should return an EstimatorSpec.")
        return spec
