"""What a model gives when it is exported."""

from typing import Any

from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.saved_model.signatures import (
    classification_signature_def,
    predict_signature_def,
    regression_signature_def,
)

# The signature that is served when none is named.
DEFAULT_KEY = "serving_default"


@export(v1="estimator.export.ExportOutput")
class ExportOutput:
    """The base: something that is exported as a signature."""

    def as_signature_def(self, receiver_tensors: dict[str, Tensor]) -> Any:
        """The SignatureDef from what is received to this."""
        raise NotImplementedError(f"{type(self).__name__} has no signature")


def _one(receiver_tensors: dict[str, Tensor]) -> Tensor:
    """The only tensor: serialised Examples. ValueError for others."""
    examples = next(iter(receiver_tensors.values()))
    if len(receiver_tensors) != 1 or examples.dtype.base_dtype != dtypes.string:
        raise ValueError(
            "Classification and regression signatures need one string input, serialised Examples; "
            f"got {receiver_tensors}"
        )
    return examples


@export(v1="estimator.export.ClassificationOutput")
class ClassificationOutput(ExportOutput):
    """Scores, floats, and classes, strings; one of them at least, of rank 2 where both are."""

    def __init__(self, scores: Any = None, classes: Any = None):
        if scores is not None and not (
            isinstance(scores, Tensor) and scores.dtype.base_dtype.is_floating
        ):
            raise ValueError(f"Classification scores must be a float32 Tensor; got {scores}")
        if classes is not None and not (
            isinstance(classes, Tensor) and classes.dtype.base_dtype == dtypes.string
        ):
            raise ValueError(f"Classification classes must be a string Tensor; got {classes}")
        if scores is None and classes is None:
            raise ValueError("Cannot create a ClassificationOutput with empty scores and classes.")
        self._scores = scores
        self._classes = classes

    @property
    def scores(self) -> Any:
        """The scores, or None."""
        return self._scores

    @property
    def classes(self) -> Any:
        """The names of the classes, or None."""
        return self._classes

    def as_signature_def(self, receiver_tensors: dict[str, Tensor]) -> Any:
        """From Examples to classes and scores."""
        return classification_signature_def(_one(receiver_tensors), self._classes, self._scores)


@export(v1="estimator.export.RegressionOutput")
class RegressionOutput(ExportOutput):
    """A float for each example."""

    def __init__(self, value: Any):
        if not (isinstance(value, Tensor) and value.dtype.base_dtype.is_floating):
            raise ValueError(f"Regression output value must be a float32 Tensor; got {value}")
        self._value = value

    @property
    def value(self) -> Any:
        """The floats."""
        return self._value

    def as_signature_def(self, receiver_tensors: dict[str, Tensor]) -> Any:
        """From Examples to floats."""
        return regression_signature_def(_one(receiver_tensors), self._value)


@export(v1="estimator.export.PredictOutput")
class PredictOutput(ExportOutput):
    """Any tensors, by name; a single one is called "output"."""

    def __init__(self, outputs: Any):
        if not isinstance(outputs, dict):
            outputs = {"output": outputs}
        for key, value in outputs.items():
            if not isinstance(key, str):
                raise ValueError(f"Prediction output key must be a string: {key}.")
            if not isinstance(value, Tensor):
                raise ValueError(f"Prediction output value must be a Tensor; got {value}.")
        self._outputs = outputs

    @property
    def outputs(self) -> Any:
        """The tensors."""
        return self._outputs

    def as_signature_def(self, receiver_tensors: dict[str, Tensor]) -> Any:
        """From any tensors to these."""
        return predict_signature_def(receiver_tensors, self._outputs)
