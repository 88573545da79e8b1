"""What columns are, and the values that they share while a model is built from them."""

from typing import Any, NamedTuple

from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.sparse import SparseTensor
from millrace.ops import array, control_flow
from millrace.ops.gather import gather_nd, where
from millrace.ops.math import not_equal
from millrace.ops.sparse.arrange import sparse_reshape


class IdWeightPair(NamedTuple):
    """The ids of a categorical column, a SparseTensor, and weights of the same shape or None."""

    id_tensor: Any
    weight_tensor: Any


class FeatureColumn:
    """The base of columns.

    `name` is unique among the columns of a model and names their variables; `parse_example_spec`
    says how to read the features from an Example; `transform(inputs)` computes what the column
    keeps in `inputs`, a FeatureTransforms.
    """

    name: str

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        """{feature: FixedLenFeature or VarLenFeature}."""
        raise NotImplementedError(f"{type(self).__name__} reads no features")

    def transform(self, inputs: "FeatureTransforms") -> Any:
        """The value of the column; computed once, see FeatureTransforms."""
        raise NotImplementedError(f"{type(self).__name__} has no value")

    @property
    def var_scope_name(self) -> str:
        """The scope of its variables."""
        return self.name


class DenseColumn(FeatureColumn):
    """A column of numbers: `get_dense_tensor` gives [batch, *variable_shape]."""

    variable_shape: tuple[int, ...]

    def get_dense_tensor(
        self, inputs: "FeatureTransforms", weight_collections: Any = None, trainable: bool = True
    ) -> Tensor:
        """The numbers of a batch."""
        raise NotImplementedError(f"{type(self).__name__} has no numbers")


class CategoricalColumn(FeatureColumn):
    """A column of ids below `num_buckets`."""

    num_buckets: int

    def get_sparse_tensors(self, inputs: "FeatureTransforms") -> IdWeightPair:
        """The ids of a batch, as `transform` gave them."""
        return IdWeightPair(inputs.get(self), None)


class FeatureTransforms:
    """The features of a batch and the values of columns, each computed on first use."""

    def __init__(self, features: Any):
        if not isinstance(features, dict):
            raise ValueError(f"We expected a dictionary of features. Instead we got: {features}")
        self._features = dict(features)
        self._values: dict[Any, Any] = {}

    def get(self, key: Any) -> Any:
        """The feature of a name, of rank 2 at least, or the value of a column.

        ValueError for a name that is no feature.
        """
        if key not in self._values:
            self._values[key] = self._raw(key) if isinstance(key, str) else key.transform(self)
        return self._values[key]

    def _raw(self, key: str) -> Any:
        if key not in self._features:
            known = ", ".join(sorted(map(str, self._features)))
            raise ValueError(f"Feature {key} is not in features dictionary, which has: {known}")
        value = self._features[key]
        if isinstance(value, SparseTensor):
            return _with_columns(
                value, value.dense_shape.shape._size_at(0),
                lambda: sparse_reshape(value, [value.dense_shape[0], 1]),
            )  # fmt: skip
        value = convert_to_tensor(value)
        if value.shape.ndims == 0:
            raise ValueError(
                f"Feature (key: {key}) cannot have rank 0. Given: {value}. The first dimension is "
                "that of the batch."
            )
        if value.shape.ndims is None:
            return control_flow.cond(
                array.rank(value) < 2, lambda: array.expand_dims(value, -1), lambda: value
            )
        return _with_columns(value, value.shape.ndims, lambda: array.expand_dims(value, -1))


def _with_columns(value: Any, rank: int | None, widened: Any) -> Any:
    return widened() if rank == 1 else value


def to_sparse(value: Any, ignored: Any = None) -> SparseTensor:
    """A dense tensor as a SparseTensor without the elements that mean nothing: "" and -1."""
    if isinstance(value, SparseTensor):
        return value
    value = convert_to_tensor(value)
    with name_scope(None, "to_sparse_input", [value]):
        if ignored is None:
            ignored = "" if value.dtype.base_dtype.name == "string" else -1
        ignored = convert_to_tensor(ignored, dtype=value.dtype.base_dtype)
        indices = where(not_equal(value, ignored))
        shape = array.shape(value, out_type="int64")
        return SparseTensor(indices, gather_nd(value, indices), shape)


def check_key(key: Any) -> None:
    """ValueError unless it can name a feature."""
    if not isinstance(key, str):
        raise ValueError(f"key must be a string. Got: type {type(key).__name__}. Given key: {key}.")
