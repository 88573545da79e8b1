"""Serialized `tf.train.Example` and `SequenceExample` messages into tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.arguments import reordered
from millrace.core.dtypes import DType
from millrace.core.export import export
from millrace.core.shapes import TensorShape, as_shape
from millrace.core.tensor import Tensor
from millrace.graph.convert import constant, convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.sparse import SparseTensor
from millrace.io.ragged_feature import RaggedFeature
from millrace.ops.array import reshape
from millrace.ops.sparse.arrange import sparse_merge


@export(v1=("VarLenFeature", "io.VarLenFeature"), v2="io.VarLenFeature")
class VarLenFeature(NamedTuple):
    """Any number of values in each example: parsed into a SparseTensor."""

    dtype: Any


@export(v1=("SparseFeature", "io.SparseFeature"), v2="io.SparseFeature")
class SparseFeature(NamedTuple):
    """A sparse tensor whose indices and values are features of their own.

    `index_key`: the feature with the indices, or a list of them, one for each dimension;
    `value_key`: that with the values; `size`: of the dimension, or of each; `already_sorted`:
    whether the indices of each example come in order.
    """

    index_key: Any
    value_key: str
    dtype: Any
    size: Any
    already_sorted: bool = False


@export(v1=("FixedLenFeature", "io.FixedLenFeature"), v2="io.FixedLenFeature")
class FixedLenFeature(NamedTuple):
    """A value of `shape` in each example. Without `default_value` it is required."""

    shape: Any
    dtype: Any
    default_value: Any = None


@export(v1=("FixedLenSequenceFeature", "io.FixedLenSequenceFeature"),
        v2="io.FixedLenSequenceFeature")  # fmt: skip
class FixedLenSequenceFeature(NamedTuple):
    """Any number of values of `shape`, padded to the longest of a batch with `default_value`.

    `allow_missing`: whether a list that is not there is an empty one.
    """

    shape: Any
    dtype: Any
    allow_missing: bool = False
    default_value: Any = None


class _Raw:
    """Features as the ops take them."""

    def __init__(self) -> None:
        self.sparse: dict[str, DType] = {}
        self.dense: dict[str, tuple[DType, TensorShape]] = {}
        self.defaults: dict[str, Any] = {}
        self.missing_is_empty: list[str] = []

    def add_sparse(self, key: str, dtype: DType) -> None:
        known = self.sparse.setdefault(key, dtype)
        if known != dtype:
            raise ValueError(f"Conflicting type {known.name} vs {dtype.name} for feature {key}.")

    def add_dense(self, key: str, dtype: DType, shape: TensorShape) -> None:
        self.dense[key] = dtype, shape

    @property
    def dense_shapes(self) -> list[TensorShape]:
        return [shape for _, shape in self.dense.values()]

    @property
    def dense_types(self) -> list[DType]:
        return [dtype for dtype, _ in self.dense.values()]

    def default_tensors(self) -> list[Tensor]:
        """What each dense feature is where it is missing; no elements where it must not be."""
        return [
            _default_tensor(key, self.defaults.get(key), dtype, shape)
            for key, (dtype, shape) in self.dense.items()
        ]


def _is_variable(shape: TensorShape) -> bool:
    return bool(shape.ndims) and shape.as_list()[0] is None


def _default_tensor(key: str, value: Any, dtype: DType, shape: TensorShape) -> Tensor:
    if _is_variable(shape):
        if value is None:
            return constant("" if dtype == dtypes.string else 0, dtype=dtype)
        return reshape(convert_to_tensor(value, dtype=dtype), [])
    if value is None:
        return constant([], dtype=dtype)
    if isinstance(value, Tensor):
        return value
    return reshape(convert_to_tensor(value, dtype=dtype), shape.as_list())


def _dtype(key: str, feature: Any) -> DType:
    if not feature.dtype:
        raise ValueError(f"Missing type for feature {key}.")
    return dtypes.as_dtype(feature.dtype)


def _shape(key: str, feature: Any) -> TensorShape:
    if feature.shape is None:
        raise ValueError(f"Missing shape for feature {key}.")
    shape = as_shape(feature.shape)
    if shape.ndims is None or any(size is None for size in shape.as_list()[1:]):
        raise ValueError(f"All dimensions of shape for feature {key} need to be known but {shape}.")
    return shape


def _raw(features: Mapping[str, Any] | None, kinds: Sequence[type], steps: bool = False) -> _Raw:
    """Checks features. `steps`: a FixedLenSequenceFeature's shape is that of a step of a list."""
    raw = _Raw()
    for key in sorted(features or {}):
        feature = features[key]  # type: ignore[index]
        if not isinstance(feature, _EXAMPLE_KINDS):
            raise ValueError(f"Invalid feature {key}:{feature}.")
        if not isinstance(feature, tuple(kinds)):
            raise ValueError(f"Unsupported {type(feature).__name__} {feature}.")
        dtype = _dtype(key, feature)
        if isinstance(feature, VarLenFeature):
            raw.add_sparse(key, dtype)
        elif isinstance(feature, SparseFeature):
            _add_sparse_feature(raw, feature, dtype)
        elif isinstance(feature, RaggedFeature):
            own, others = feature.keys(key)
            raw.add_sparse(own, dtype)
            for other in others:
                raw.add_sparse(other, dtypes.int64)
        elif isinstance(feature, FixedLenFeature):
            raw.add_dense(key, dtype, _shape(key, feature))
            raw.defaults[key] = feature.default_value
        else:
            shape = _shape(key, feature)
            if not steps:
                if not feature.allow_missing:
                    raise ValueError(
                        "Unsupported: FixedLenSequenceFeature requires allow_missing to be True."
                    )
                shape = TensorShape([None]).concatenate(shape)
            elif feature.allow_missing:
                raw.missing_is_empty.append(key)
            raw.add_dense(key, dtype, shape)
            raw.defaults[key] = feature.default_value
    return raw


def _add_sparse_feature(raw: _Raw, feature: SparseFeature, dtype: DType) -> None:
    if not feature.index_key:
        raise ValueError(f"Missing index_key for SparseFeature {feature}.")
    if not feature.value_key:
        raise ValueError(f"Missing value_key for SparseFeature {feature}.")
    for key in sorted(_index_keys(feature)):
        raw.add_sparse(key, dtypes.int64)
    raw.add_sparse(feature.value_key, dtype)


def _index_keys(feature: SparseFeature) -> list[str]:
    keys = feature.index_key
    return [keys] if isinstance(keys, str) else list(keys)


def _finish(
    features: Mapping[str, Any], tensors: dict[str, Any], single: bool = False
) -> dict[str, Any]:
    """Makes the tensors of SparseFeatures and RaggedFeatures, and leaves out what only they needed.
    `single`: of one example."""
    result = {}
    for key in sorted(features):
        feature = features[key]
        if isinstance(feature, RaggedFeature):
            result[key] = feature.of(key, tensors, single)
            continue
        if not isinstance(feature, SparseFeature):
            result[key] = tensors[key]
            continue
        ids = [tensors[index_key] for index_key in _index_keys(feature)]
        result[key] = sparse_merge(
            ids[0] if isinstance(feature.index_key, str) else ids, tensors[feature.value_key],
            vocab_size=feature.size, already_sorted=feature.already_sorted,
        )  # fmt: skip
    return result


def _tensors(raw: _Raw, sparse: Sequence[Sequence[Tensor]], dense: Sequence[Tensor]) -> dict:
    tensors: dict[str, Any] = {
        key: SparseTensor(*parts)
        for key, parts in zip(raw.sparse, zip(*sparse, strict=True), strict=True)
    }
    tensors.update(zip(raw.dense, dense, strict=True))
    return tensors


_EXAMPLE_KINDS = (
    VarLenFeature, SparseFeature, FixedLenFeature, FixedLenSequenceFeature, RaggedFeature,
)  # fmt: skip


@export(v1=("parse_example", "io.parse_example"))
def parse_example(
    serialized: Any, features: Mapping[str, Any], name: str | None = None,
    example_names: Any = None,
) -> dict[str, Any]:  # fmt: skip
    """A batch of serialized Examples into tensors, one for each feature.

    Args:
      serialized: a vector of strings.
      features: for each key a `FixedLenFeature`, which gives a tensor with a row for each
        example, a `VarLenFeature` or `SparseFeature`, which give SparseTensors, a
        `FixedLenSequenceFeature`, which gives a tensor padded to the longest example, or a
        `RaggedFeature`, which gives a RaggedTensor.
      example_names: what errors call the examples.

    InvalidArgumentError in the run, with name and key, for examples that do not fit.
    """
    if not features:
        raise ValueError(f"Missing: features was {features}.")
    raw = _raw(features, _EXAMPLE_KINDS)
    with name_scope(name, "ParseExample", [serialized, example_names]):
        out = gen_ops.parse_example(
            convert_to_tensor(serialized, dtype=dtypes.string, name="serialized"),
            constant([], dtypes.string) if example_names is None else example_names,
            list(raw.sparse), list(raw.dense), raw.default_tensors(),
            sparse_types=list(raw.sparse.values()), dense_shapes=raw.dense_shapes, name=name,
        )  # fmt: skip
        return _finish(features, _tensors(raw, out[:3], out[3]))


parse_example_v2 = export(v2="io.parse_example")(
    reordered(parse_example, "serialized features example_names name")
)


@export(v1=("parse_single_example", "io.parse_single_example"))
def parse_single_example(
    serialized: Any, features: Mapping[str, Any], name: str | None = None,
    example_names: Any = None,
) -> dict[str, Any]:  # fmt: skip
    """One serialized Example into tensors; as `parse_example`, without the dimension of a batch.

    `serialized`: a scalar; `example_names`: what errors call it, a scalar.
    """
    if not features:
        raise ValueError("Missing features.")
    raw = _raw(features, _EXAMPLE_KINDS)
    with name_scope(name, "ParseSingleExample", [serialized, example_names]):
        serialized = convert_to_tensor(serialized, dtype=dtypes.string, name="serialized")
        if serialized.shape.ndims not in (None, 0):
            raise ValueError(f"Input serialized must be a scalar, got shape {serialized.shape}")
        sparse_types = list(raw.sparse.values())
        if example_names is None:
            out = gen_ops.parse_single_example(
                serialized, raw.default_tensors(), num_sparse=len(raw.sparse),
                sparse_keys=list(raw.sparse), dense_keys=list(raw.dense),
                sparse_types=sparse_types, dense_shapes=raw.dense_shapes, name=name,
            )  # fmt: skip
        else:
            names = convert_to_tensor(example_names, dtype=dtypes.string)
            if names.shape.ndims not in (None, 0):
                raise ValueError(f"Input names must be a scalar, got shape {names.shape}")
            out = gen_ops.parse_example_v2(
                serialized, names, constant(list(raw.sparse), dtypes.string, [len(raw.sparse)]),
                constant(list(raw.dense), dtypes.string, [len(raw.dense)]),
                constant([], dtypes.string), raw.default_tensors(), num_sparse=len(raw.sparse),
                sparse_types=sparse_types, ragged_value_types=[], ragged_split_types=[],
                dense_shapes=raw.dense_shapes, name=name,
            )  # fmt: skip
        return _finish(features, _tensors(raw, out[:3], out[3]), single=True)


parse_single_example_v2 = export(v2="io.parse_single_example")(
    reordered(parse_single_example, "serialized features example_names name")
)


def _sequence_raws(context_features: Any, sequence_features: Any) -> tuple[_Raw, _Raw]:
    if not (context_features or sequence_features):
        raise ValueError("Missing features.")
    context = _raw(context_features, (VarLenFeature, FixedLenFeature))
    lists = _raw(sequence_features, (VarLenFeature, FixedLenSequenceFeature), steps=True)
    return context, lists


@export(
    v1=("parse_single_sequence_example", "io.parse_single_sequence_example"),
    v2="io.parse_single_sequence_example",
)
def parse_single_sequence_example(
    serialized: Any, context_features: Mapping[str, Any] | None = None,
    sequence_features: Mapping[str, Any] | None = None, example_name: Any = None,
    name: str | None = None,
) -> tuple[dict[str, Any], dict[str, Any]]:  # fmt: skip
    """One serialized SequenceExample: the tensors of its context, and those of its lists.

    Args:
      context_features: for each key a `FixedLenFeature` or `VarLenFeature`.
      sequence_features: for each key a `FixedLenSequenceFeature`, which gives a tensor with a row
        for each step, or a `VarLenFeature`, which gives a SparseTensor.
      example_name: what errors call the example.
    """
    context, lists = _sequence_raws(context_features, sequence_features)
    with name_scope(name, "ParseSingleSequenceExample", [serialized, example_name]):
        out = gen_ops.parse_single_sequence_example(
            convert_to_tensor(serialized, dtype=dtypes.string, name="serialized"),
            constant(lists.missing_is_empty, dtypes.string, [len(lists.missing_is_empty)]),
            list(context.sparse), list(context.dense), list(lists.sparse), list(lists.dense),
            context.default_tensors(), "" if example_name is None else example_name,
            context_sparse_types=list(context.sparse.values()),
            context_dense_shapes=context.dense_shapes,
            feature_list_sparse_types=list(lists.sparse.values()),
            feature_list_dense_types=lists.dense_types,
            feature_list_dense_shapes=lists.dense_shapes, name=name,
        )  # fmt: skip
    return _tensors(context, out[:3], out[3]), _tensors(lists, out[4:7], out[7])


@export(v1="io.parse_sequence_example", v2="io.parse_sequence_example")
def parse_sequence_example(
    serialized: Any, context_features: Mapping[str, Any] | None = None,
    sequence_features: Mapping[str, Any] | None = None, example_names: Any = None,
    name: str | None = None,
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:  # fmt: skip
    """A batch of serialized SequenceExamples: tensors of the context, of the lists, and how many
    steps each example has of each `FixedLenSequenceFeature`, which is padded to the longest.

    Arguments are those of `parse_single_sequence_example`, for a vector of strings.
    """
    context, lists = _sequence_raws(context_features, sequence_features)
    with name_scope(name, "ParseSequenceExample", [serialized, example_names]):
        out = gen_ops.parse_sequence_example(
            convert_to_tensor(serialized, dtype=dtypes.string, name="serialized"),
            constant([], dtypes.string) if example_names is None else example_names,
            context.default_tensors(),
            feature_list_dense_missing_assumed_empty=lists.missing_is_empty,
            context_sparse_keys=list(context.sparse), context_dense_keys=list(context.dense),
            feature_list_sparse_keys=list(lists.sparse),
            feature_list_dense_keys=list(lists.dense), Ncontext_sparse=len(context.sparse),
            Ncontext_dense=len(context.dense), Nfeature_list_sparse=len(lists.sparse),
            Nfeature_list_dense=len(lists.dense),
            context_sparse_types=list(context.sparse.values()),
            context_dense_shapes=context.dense_shapes,
            feature_list_sparse_types=list(lists.sparse.values()),
            feature_list_dense_types=lists.dense_types,
            feature_list_dense_shapes=lists.dense_shapes, name=name,
        )  # fmt: skip
    lengths = dict(zip(lists.dense, out[8], strict=True))
    return _tensors(context, out[:3], out[3]), _tensors(lists, out[4:7], out[7]), lengths
