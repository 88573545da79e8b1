"""Signatures: which tensors of a graph are the inputs and outputs of what a model can do."""

from typing import Any

from millrace import protos
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.default_graph import get_default_graph
from millrace.graph.keys import prepend_name_scope
from millrace.graph.sparse import SparseTensor
from millrace.saved_model import constants


@export(v1=("saved_model.build_tensor_info", "saved_model.utils.build_tensor_info"))
def build_tensor_info(tensor: Any) -> Any:
    """A TensorInfo that says which tensor (or sparse tensor) this is, its type and shape."""
    out = protos.TensorInfo(dtype=dtypes.as_dtype(tensor.dtype).base_dtype.as_datatype_enum)
    out.tensor_shape.CopyFrom(tensor.get_shape().as_proto())
    if isinstance(tensor, SparseTensor):
        out.coo_sparse.values_tensor_name = tensor.values.name
        out.coo_sparse.indices_tensor_name = tensor.indices.name
        out.coo_sparse.dense_shape_tensor_name = tensor.dense_shape.name
    else:
        out.name = tensor.name
    return out


@export(
    v1=("saved_model.get_tensor_from_tensor_info", "saved_model.utils.get_tensor_from_tensor_info")
)
def get_tensor_from_tensor_info(
    tensor_info: Any, graph: Any = None, import_scope: str | None = None
) -> Any:
    """The tensor of a graph (the default one) that a TensorInfo names.

    KeyError when it is not in the graph, ValueError for a TensorInfo that names none.
    """
    graph = get_default_graph() if graph is None else graph

    def tensor(name: str) -> Any:
        return graph.get_tensor_by_name(prepend_name_scope(name, import_scope))

    encoding = tensor_info.WhichOneof("encoding")
    if encoding == "name":
        return tensor(tensor_info.name)
    if encoding == "coo_sparse":
        sparse = tensor_info.coo_sparse
        return SparseTensor(
            tensor(sparse.indices_tensor_name),
            tensor(sparse.values_tensor_name),
            tensor(sparse.dense_shape_tensor_name),
        )
    raise ValueError(f"Invalid TensorInfo.encoding: {encoding}")


@export(
    v1=("saved_model.build_signature_def", "saved_model.signature_def_utils.build_signature_def")
)
def build_signature_def(inputs: Any = None, outputs: Any = None, method_name: Any = None) -> Any:
    """A SignatureDef of TensorInfos by name."""
    out = protos.SignatureDef()
    for key, info in (inputs or {}).items():
        out.inputs[key].CopyFrom(info)
    for key, info in (outputs or {}).items():
        out.outputs[key].CopyFrom(info)
    if method_name is not None:
        out.method_name = method_name
    return out


@export(
    v1=("saved_model.predict_signature_def",
        "saved_model.signature_def_utils.predict_signature_def")
)  # fmt: skip
def predict_signature_def(inputs: dict[str, Tensor], outputs: dict[str, Tensor]) -> Any:
    """The signature of a model that makes any outputs of any inputs: tensors by name."""
    if inputs is None or not inputs:
        raise ValueError("Prediction `inputs` cannot be None or empty.")
    if outputs is None or not outputs:
        raise ValueError("Prediction `outputs` cannot be None or empty.")
    return build_signature_def(
        {key: build_tensor_info(tensor) for key, tensor in inputs.items()},
        {key: build_tensor_info(tensor) for key, tensor in outputs.items()},
        constants.PREDICT_METHOD_NAME,
    )


@export(
    v1=("saved_model.regression_signature_def",
        "saved_model.signature_def_utils.regression_signature_def")
)  # fmt: skip
def regression_signature_def(examples: Tensor, predictions: Tensor) -> Any:
    """The signature of a model from serialised Examples to numbers."""
    if examples is None:
        raise ValueError("Regression `examples` cannot be None.")
    if predictions is None:
        raise ValueError("Regression `predictions` cannot be None.")
    _check_type("Regression input", examples, dtypes.string)
    _check_type("Regression output", predictions, dtypes.float32)
    return build_signature_def(
        {constants.REGRESS_INPUTS: build_tensor_info(examples)},
        {constants.REGRESS_OUTPUTS: build_tensor_info(predictions)},
        constants.REGRESS_METHOD_NAME,
    )


@export(
    v1=("saved_model.classification_signature_def",
        "saved_model.signature_def_utils.classification_signature_def")
)  # fmt: skip
def classification_signature_def(
    examples: Tensor, classes: Tensor | None, scores: Tensor | None
) -> Any:
    """The signature of a model from serialised Examples to classes, scores or both."""
    if examples is None:
        raise ValueError("Classification `examples` cannot be None.")
    if classes is None and scores is None:
        raise ValueError("Classification `classes` and `scores` cannot both be None.")
    _check_type("Classification input", examples, dtypes.string)
    outputs = {}
    if classes is not None:
        _check_type("Classification classes", classes, dtypes.string)
        outputs[constants.CLASSIFY_OUTPUT_CLASSES] = build_tensor_info(classes)
    if scores is not None:
        _check_type("Classification scores", scores, dtypes.float32)
        outputs[constants.CLASSIFY_OUTPUT_SCORES] = build_tensor_info(scores)
    inputs = {constants.CLASSIFY_INPUTS: build_tensor_info(examples)}
    return build_signature_def(inputs, outputs, constants.CLASSIFY_METHOD_NAME)


def _check_type(what: str, tensor: Tensor, dtype: dtypes.DType) -> None:
    if tensor.dtype.base_dtype != dtype:
        raise ValueError(
            f"{what} tensors must be of type {dtype.name}. Found tensor with dtype: "
            f"{tensor.dtype.name}."
        )


@export(v1=("saved_model.is_valid_signature", "saved_model.signature_def_utils.is_valid_signature"))
def is_valid_signature(signature_def: Any) -> bool:
    """Whether a SignatureDef has the inputs and outputs that its method needs, of their types."""
    if signature_def is None:
        return False
    inputs, outputs = signature_def.inputs, signature_def.outputs
    method = signature_def.method_name
    string, float32 = protos.DT_STRING, protos.DT_FLOAT
    if method == constants.CLASSIFY_METHOD_NAME:
        kinds = {
            constants.CLASSIFY_OUTPUT_CLASSES: string, constants.CLASSIFY_OUTPUT_SCORES: float32
        }  # fmt: skip
        return (
            _are(inputs, {constants.CLASSIFY_INPUTS: string})
            and 0 < len(outputs) <= 2
            and all(kinds.get(key) == outputs[key].dtype for key in outputs)
        )
    if method == constants.REGRESS_METHOD_NAME:
        return _are(inputs, {constants.REGRESS_INPUTS: string}) and _are(
            outputs, {constants.REGRESS_OUTPUTS: float32}
        )
    return method == constants.PREDICT_METHOD_NAME and len(inputs) > 0 and len(outputs) > 0


def _are(infos: Any, kinds: dict[str, int]) -> bool:
    return {key: infos[key].dtype for key in infos} == kinds
