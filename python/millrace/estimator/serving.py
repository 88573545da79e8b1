"""What an exported model receives."""

from collections import namedtuple
from typing import Any, Callable

from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.sparse import SparseTensor
from millrace.io.parsing import parse_example
from millrace.ops.array import placeholder


def _check_tensors(values: Any, what: str, sparse: bool) -> dict[str, Any]:
    """A dictionary of tensors; a tensor alone is called by `what`."""
    if values is None:
        raise ValueError(f"{what} must be defined.")
    if not isinstance(values, dict):
        values = {what.rstrip("s"): values}
    for name, value in values.items():
        if not isinstance(name, str):
            raise ValueError(f"{what} keys must be strings: {name}.")
        if not isinstance(value, (Tensor, SparseTensor) if sparse else Tensor):
            raise ValueError(f"{what.rstrip('s')} {name} must be a Tensor, given: {value}.")
    return values


@export(v1="estimator.export.ServingInputReceiver")
class ServingInputReceiver(
    namedtuple(
        "ServingInputReceiver", ["features", "receiver_tensors", "receiver_tensors_alternatives"]
    )
):
    """The features of a model that is served, and the tensors that a client feeds.

    Args:
      features: {name: tensor or SparseTensor}, or a single one.
      receiver_tensors: {name: tensor}, or a single one.
      receiver_tensors_alternatives: {signature: {name: tensor}}, other tensors to feed.
    """

    __slots__ = ()

    def __new__(
        cls, features: Any, receiver_tensors: Any, receiver_tensors_alternatives: Any = None
    ) -> "ServingInputReceiver":
        features = _check_tensors(features, "features", sparse=True)
        receivers = _check_tensors(receiver_tensors, "receiver_tensors", sparse=False)
        if receiver_tensors_alternatives is not None:
            if not isinstance(receiver_tensors_alternatives, dict):
                raise ValueError(
                    "receiver_tensors_alternatives must be a dict: "
                    f"{type(receiver_tensors_alternatives).__name__}."
                )
            receiver_tensors_alternatives = {
                name: _check_tensors(value, "receiver_tensors", sparse=False)
                for name, value in receiver_tensors_alternatives.items()
            }
        return super().__new__(cls, features, receivers, receiver_tensors_alternatives)


@export(v1="estimator.export.TensorServingInputReceiver")
class TensorServingInputReceiver(
    namedtuple(
        "TensorServingInputReceiver",
        ["features", "receiver_tensors", "receiver_tensors_alternatives"],
    )
):
    """As ServingInputReceiver, for a model whose features are one tensor without a name."""

    __slots__ = ()

    def __new__(
        cls, features: Any, receiver_tensors: Any, receiver_tensors_alternatives: Any = None
    ) -> "TensorServingInputReceiver":
        if isinstance(features, dict) or not isinstance(features, (Tensor, SparseTensor)):
            raise ValueError(f"features must be a single Tensor, given: {features}")
        checked = ServingInputReceiver(features, receiver_tensors, receiver_tensors_alternatives)
        return super().__new__(
            cls, features, checked.receiver_tensors, checked.receiver_tensors_alternatives
        )


@export(v1="estimator.export.build_parsing_serving_input_receiver_fn")
def build_parsing_serving_input_receiver_fn(
    feature_spec: dict[str, Any], default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """A function that receives serialised Examples, and reads the features of `feature_spec`, as
    `tf.parse_example` takes it, from them."""

    def serving_input_receiver_fn() -> ServingInputReceiver:
        serialized = placeholder(
            dtypes.string, shape=[default_batch_size], name="input_example_tensor"
        )
        features = parse_example(serialized, feature_spec)
        return ServingInputReceiver(features, {"examples": serialized})

    return serving_input_receiver_fn


@export(v1="estimator.export.build_raw_serving_input_receiver_fn")
def build_raw_serving_input_receiver_fn(
    features: dict[str, Any], default_batch_size: int | None = None
) -> Callable[[], ServingInputReceiver]:
    """A function that receives the features themselves: placeholders of the types and shapes of
    `features`, with another first dimension."""

    def serving_input_receiver_fn() -> ServingInputReceiver:
        receivers = {}
        for name, tensor in features.items():
            sizes = tensor.shape.as_list()
            if sizes:
                sizes[0] = default_batch_size
            receivers[name] = placeholder(tensor.dtype.base_dtype, shape=sizes, name=name)
        return ServingInputReceiver(receivers, receivers)

    return serving_input_receiver_fn
