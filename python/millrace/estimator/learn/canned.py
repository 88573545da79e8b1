"""The classifiers and regressors of `tf.contrib.learn`."""

from typing import Any, Callable

from millrace.compat.v1.losses.losses import Reduction
from millrace.core import errors
from millrace.core.export import export
from millrace.estimator.canned import combined_model_fn, dnn_model_fn, linear_model_fn
from millrace.estimator.class_heads import class_head
from millrace.estimator.estimator_spec import EstimatorSpec
from millrace.estimator.heads import Head, RegressionHead
from millrace.estimator.learn.estimator import Estimator
from millrace.ops.nn.activations import relu

# These average the loss of a batch, where those of `tf.estimator` sum it.
_MEAN = Reduction.SUM_BY_NONZERO_WEIGHTS


@export(v1="contrib.learn.prediction_key.PredictionKey")
class PredictionKey:
    """The names of predictions."""

    CLASSES = "classes"
    PROBABILITIES = "probabilities"
    LOGITS = "logits"
    LOGISTIC = "logistic"
    SCORES = "scores"


def _class_head(n_classes: int, weights: Any) -> Head:
    return class_head(n_classes, weight_column=weights, loss_reduction=_MEAN)


def _refuse(**kwargs: Any) -> None:
    for name, value in kwargs.items():
        if value:
            raise errors.UnimplementedError(
                None, None, f"{name} is not there in this version of Millrace."
            )


class _Canned(Estimator):
    """An estimator with a model function of `tf.estimator`; an array is the feature ""."""

    def __init__(
        self, model_fn: Callable[..., EstimatorSpec], model_dir: Any, config: Any,
        feature_engineering_fn: Any,
    ):  # fmt: skip
        def named(features: Any, labels: Any, mode: str) -> EstimatorSpec:
            if not isinstance(features, dict):
                features = {"": features}
            return model_fn(features, labels, mode)

        super().__init__(named, model_dir, config, None, feature_engineering_fn)

    def _predicted(self, key: str, as_iterable: bool, **kwargs: Any) -> Any:
        found = self.predict_all(outputs=[key], as_iterable=as_iterable, **kwargs)
        return (row[key] for row in found) if as_iterable else found[key]

    def predict_all(self, **kwargs: Any) -> Any:
        """All predictions by name; see Estimator.predict."""
        return super().predict(**kwargs)


class _Classifier(_Canned):
    def predict(
        self, x: Any = None, input_fn: Any = None, batch_size: int | None = None,
        outputs: Any = None, as_iterable: bool = True,
    ) -> Any:  # fmt: skip
        """The class of each example; with `outputs`, the predictions of these names."""
        if outputs:
            return self.predict_all(
                x=x, input_fn=input_fn, batch_size=batch_size, outputs=outputs,
                as_iterable=as_iterable,
            )  # fmt: skip
        return self.predict_classes(x, input_fn, batch_size, as_iterable)

    def predict_classes(
        self, x: Any = None, input_fn: Any = None, batch_size: int | None = None,
        as_iterable: bool = True,
    ) -> Any:  # fmt: skip
        """The class of each example, a number."""
        found = self._predicted(
            "class_ids", as_iterable, x=x, input_fn=input_fn, batch_size=batch_size
        )
        return (row[0] for row in found) if as_iterable else found[:, 0]

    def predict_proba(
        self, x: Any = None, input_fn: Any = None, batch_size: int | None = None,
        as_iterable: bool = True,
    ) -> Any:  # fmt: skip
        """The probabilities of the classes of each example."""
        return self._predicted(
            "probabilities", as_iterable, x=x, input_fn=input_fn, batch_size=batch_size
        )


class _Regressor(_Canned):
    def predict(
        self, x: Any = None, input_fn: Any = None, batch_size: int | None = None,
        outputs: Any = None, as_iterable: bool = True,
    ) -> Any:  # fmt: skip
        """The number of each example."""
        del outputs
        return self.predict_scores(x, input_fn, batch_size, as_iterable)

    def predict_scores(
        self, x: Any = None, input_fn: Any = None, batch_size: int | None = None,
        as_iterable: bool = True,
    ) -> Any:  # fmt: skip
        """The number of each example, or numbers where labels are several."""
        found = self._predicted(
            "predictions", as_iterable, x=x, input_fn=input_fn, batch_size=batch_size
        )
        if as_iterable:
            return (row[0] if len(row) == 1 else row for row in found)
        return found[:, 0] if found.shape[1] == 1 else found


@export(v1=("contrib.learn.LinearClassifier", "contrib.learn.estimators.LinearClassifier"))
class LinearClassifier(_Classifier):
    """Classes by a linear model; see `tf.estimator.LinearClassifier`."""

    def __init__(
        self, feature_columns: Any, model_dir: Any = None, n_classes: int = 2,
        weight_column_name: str | None = None, optimizer: Any = None,
        gradient_clip_norm: float | None = None, enable_centered_bias: bool = False,
        _joint_weight: bool = False, config: Any = None, feature_engineering_fn: Any = None,
    ):  # fmt: skip
        _refuse(enable_centered_bias=enable_centered_bias, _joint_weight=_joint_weight)
        head = _class_head(n_classes, weight_column_name)
        model_fn = linear_model_fn(
            head, feature_columns, optimizer or "Ftrl", clip_norm=gradient_clip_norm
        )
        super().__init__(model_fn, model_dir, config, feature_engineering_fn)


@export(v1=("contrib.learn.LinearRegressor", "contrib.learn.estimators.LinearRegressor"))
class LinearRegressor(_Regressor):
    """Numbers by a linear model; see `tf.estimator.LinearRegressor`."""

    def __init__(
        self, feature_columns: Any, model_dir: Any = None, weight_column_name: str | None = None,
        optimizer: Any = None, gradient_clip_norm: float | None = None,
        enable_centered_bias: bool = False, label_dimension: int = 1, _joint_weights: bool = False,
        config: Any = None, feature_engineering_fn: Any = None,
    ):  # fmt: skip
        _refuse(enable_centered_bias=enable_centered_bias, _joint_weights=_joint_weights)
        head = RegressionHead(label_dimension, weight_column_name, _MEAN)
        model_fn = linear_model_fn(
            head, feature_columns, optimizer or "Ftrl", clip_norm=gradient_clip_norm
        )
        super().__init__(model_fn, model_dir, config, feature_engineering_fn)


@export(v1=("contrib.learn.DNNClassifier", "contrib.learn.estimators.DNNClassifier"))
class DNNClassifier(_Classifier):
    """Classes by a network of dense layers; see `tf.estimator.DNNClassifier`."""

    def __init__(
        self, hidden_units: Any, feature_columns: Any, model_dir: Any = None, n_classes: int = 2,
        weight_column_name: str | None = None, optimizer: Any = None, activation_fn: Any = relu,
        dropout: float | None = None, gradient_clip_norm: float | None = None,
        enable_centered_bias: bool = False, config: Any = None, feature_engineering_fn: Any = None,
        embedding_lr_multipliers: Any = None, input_layer_min_slice_size: int | None = None,
    ):  # fmt: skip
        del input_layer_min_slice_size
        _refuse(
            enable_centered_bias=enable_centered_bias,
            embedding_lr_multipliers=embedding_lr_multipliers,
        )
        head = _class_head(n_classes, weight_column_name)
        model_fn = dnn_model_fn(
            head, hidden_units, feature_columns, optimizer or "Adagrad", activation_fn, dropout,
            False, clip_norm=gradient_clip_norm,
        )  # fmt: skip
        super().__init__(model_fn, model_dir, config, feature_engineering_fn)


@export(v1=("contrib.learn.DNNRegressor", "contrib.learn.estimators.DNNRegressor"))
class DNNRegressor(_Regressor):
    """Numbers by a network of dense layers; see `tf.estimator.DNNRegressor`."""

    def __init__(
        self, hidden_units: Any, feature_columns: Any, model_dir: Any = None,
        weight_column_name: str | None = None, optimizer: Any = None, activation_fn: Any = relu,
        dropout: float | None = None, gradient_clip_norm: float | None = None,
        enable_centered_bias: bool = False, config: Any = None, feature_engineering_fn: Any = None,
        label_dimension: int = 1, embedding_lr_multipliers: Any = None,
        input_layer_min_slice_size: int | None = None,
    ):  # fmt: skip
        del input_layer_min_slice_size
        _refuse(
            enable_centered_bias=enable_centered_bias,
            embedding_lr_multipliers=embedding_lr_multipliers,
        )
        head = RegressionHead(label_dimension, weight_column_name, _MEAN)
        model_fn = dnn_model_fn(
            head, hidden_units, feature_columns, optimizer or "Adagrad", activation_fn, dropout,
            False, clip_norm=gradient_clip_norm,
        )  # fmt: skip
        super().__init__(model_fn, model_dir, config, feature_engineering_fn)


@export(v1=("contrib.learn.DNNLinearCombinedClassifier",
            "contrib.learn.estimators.DNNLinearCombinedClassifier"))  # fmt: skip
class DNNLinearCombinedClassifier(_Classifier):
    """Classes by the sum of both; see `tf.estimator.DNNLinearCombinedClassifier`."""

    def __init__(
        self, model_dir: Any = None, n_classes: int = 2, weight_column_name: str | None = None,
        linear_feature_columns: Any = None, linear_optimizer: Any = None,
        _joint_linear_weights: bool = False, dnn_feature_columns: Any = None,
        dnn_optimizer: Any = None, dnn_hidden_units: Any = None, dnn_activation_fn: Any = relu,
        dnn_dropout: float | None = None, gradient_clip_norm: float | None = None,
        enable_centered_bias: bool = False, config: Any = None, feature_engineering_fn: Any = None,
        embedding_lr_multipliers: Any = None, input_layer_min_slice_size: int | None = None,
        fix_global_step_increment_bug: bool = True,
    ):  # fmt: skip
        del input_layer_min_slice_size, fix_global_step_increment_bug
        _refuse(
            enable_centered_bias=enable_centered_bias, _joint_linear_weights=_joint_linear_weights,
            embedding_lr_multipliers=embedding_lr_multipliers,
        )  # fmt: skip
        model_fn = combined_model_fn(
            _class_head(n_classes, weight_column_name), linear_feature_columns,
            linear_optimizer or "Ftrl", dnn_feature_columns, dnn_optimizer or "Adagrad",
            dnn_hidden_units, dnn_activation_fn, dnn_dropout, False,
            clip_norm=gradient_clip_norm,
        )  # fmt: skip
        super().__init__(model_fn, model_dir, config, feature_engineering_fn)
