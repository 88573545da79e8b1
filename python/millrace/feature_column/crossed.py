"""Columns of pairs, triples and so on of ids."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.feature_column.categorical import HashedColumn
from millrace.feature_column.column import CategoricalColumn, FeatureTransforms
from millrace.feature_column.numeric import BucketizedColumn
from millrace.graph.convert import constant
from millrace.graph.sparse import SparseTensor
from millrace.io.parsing import VarLenFeature
from millrace.ops import array, math
from millrace.ops.gather import gather, where
from millrace.ops.reduce import reduce_max, reduce_sum
from millrace.ops.strings import string_to_hash_bucket_fast

# What TensorFlow hashes with, so that ids are those of its checkpoints.
_DEFAULT_KEY = 0xDECAFCAFFE
_MULTIPLIER = 0xC6A4A7935BD1E995


def _uint64(value: int) -> Tensor:
    return constant(np.uint64(value), dtypes.uint64)


def _xor(a: Tensor, b: Tensor) -> Tensor:
    """Bit by bit: a vector and a vector or number of uint64."""
    powers = constant(np.uint64(1) << np.arange(64, dtype=np.uint64), dtypes.uint64)
    two = _uint64(2)

    def bits(x: Tensor) -> Tensor:
        return gen_ops.floor_mod(gen_ops.floor_div(array.expand_dims(x, -1), powers), two)

    # A sum of two bits is odd where they differ.
    return reduce_sum(gen_ops.floor_mod(bits(a) + bits(b), two) * powers, -1)


def _shift_mix(x: Tensor) -> Tensor:
    return _xor(x, gen_ops.floor_div(x, _uint64(1 << 47)))


def _hash_together(a: Tensor, b: Tensor) -> Tensor:
    multiplier = _uint64(_MULTIPLIER)
    out = _xor(a, multiplier)
    out = _xor(out, _shift_mix(b * multiplier) * multiplier) * multiplier
    return _shift_mix(_shift_mix(out) * multiplier)


def _fingerprint(text: Tensor) -> Tensor:
    """The 64 bits of which `string_to_hash_bucket_fast` gives remainders."""
    low = math.cast(string_to_hash_bucket_fast(text, 1 << 62), dtypes.uint64)
    # The whole is 2**62 * high + low, and mod 5 that is low - high.
    fifth = math.cast(string_to_hash_bucket_fast(text, 5), dtypes.uint64)
    high = gen_ops.floor_mod(gen_ops.floor_mod(low, _uint64(5)) + _uint64(5) - fifth, _uint64(5))
    return low + high * _uint64(1 << 62)


def _combinations(columns: list[SparseTensor]) -> tuple[Tensor, list[Tensor]]:
    """All combinations of one element of each column, row by row, the last column's changing
    quickest: their [row, number] and, for each column, which element of it they have."""
    rows = reduce_max(array.stack([column.dense_shape[0] for column in columns]))
    counts = [
        gen_ops.unsorted_segment_sum(
            array.ones_like(column.indices[:, 0]), column.indices[:, 0], rows
        )
        for column in columns
    ]
    total = counts[0]
    for count in counts[1:]:
        total = total * count
    places = where(array.sequence_mask(total))
    row, rest = places[:, 0], places[:, 1]
    elements = []
    for count in reversed(counts):
        size = gather(count, row)
        first = gather(gen_ops.cumsum(count, 0, exclusive=True), row)
        elements.insert(0, first + gen_ops.floor_mod(rest, size))
        rest = gen_ops.floor_div(rest, size)
    return places, elements


def _all_of(tensor: Tensor) -> SparseTensor:
    """A matrix as a SparseTensor of all its elements."""
    size = array.shape(tensor, out_type=dtypes.int64)
    indices = where(array.fill(size, True))
    return SparseTensor(indices, array.reshape(tensor, [-1]), size)


def sparse_cross_hashed(columns: list[Any], num_buckets: int, hash_key: int | None) -> SparseTensor:
    """The combinations of the elements of each row, as hashes below `num_buckets`. Dense columns
    come last, as in TensorFlow, with all their elements."""
    dense = [_all_of(column) for column in columns if not isinstance(column, SparseTensor)]
    columns = [column for column in columns if isinstance(column, SparseTensor)] + dense
    places, elements = _combinations(columns)
    hashed = array.fill(
        array.shape(places)[:1], _uint64(_DEFAULT_KEY if hash_key is None else hash_key)
    )
    for column, element in zip(columns, elements, strict=True):
        values = column.values
        if values.dtype.base_dtype == dtypes.string:
            values = _fingerprint(values)
        else:
            values = gen_ops.bitcast(math.cast(values, dtypes.int64), type=dtypes.uint64)
        hashed = _hash_together(hashed, gather(values, element))
    ids = math.cast(gen_ops.floor_mod(hashed, _uint64(num_buckets)), dtypes.int64)
    rows = reduce_max(array.stack([column.dense_shape[0] for column in columns]))
    width = reduce_max(array.concat([places[:, 1] + 1, constant([0], dtypes.int64)], 0))
    return SparseTensor(places, ids, array.stack([rows, width]))


@dataclass(frozen=True)
class CrossedColumn(CategoricalColumn):
    """See `crossed_column`."""

    keys: tuple[Any, ...]
    hash_bucket_size: int
    hash_key: int | None

    def _leaves(self) -> list[Any]:
        """The features and columns it is made of, those of crossed columns among it in place."""
        out: list[Any] = []
        for key in self.keys:
            out += key._leaves() if isinstance(key, CrossedColumn) else [key]
        return out

    @property
    def name(self) -> str:
        """Made of the names of what is crossed, sorted."""
        names = [key if isinstance(key, str) else key.name for key in self._leaves()]
        return "_X_".join(sorted(names))

    @property
    def num_buckets(self) -> int:
        """The number of ids."""
        return self.hash_bucket_size

    @property
    def parse_example_spec(self) -> dict[str, Any]:
        """Reads all that is crossed."""
        spec: dict[str, Any] = {}
        for key in self.keys:
            if isinstance(key, str):
                spec[key] = VarLenFeature(dtypes.string)
            else:
                spec.update(key.parse_example_spec)
        return spec

    def transform(self, inputs: FeatureTransforms) -> SparseTensor:
        """The hashes."""
        tensors = []
        for key in self._leaves():
            if isinstance(key, str):
                tensors.append(inputs.get(key))
                continue
            pair = key.get_sparse_tensors(inputs)
            if pair.weight_tensor is not None:
                raise ValueError(
                    f"crossed_column does not support weight_tensor, but the given column "
                    f"populates weight_tensor. Given column: {key.name}"
                )
            tensors.append(pair.id_tensor)
        return sparse_cross_hashed(tensors, self.hash_bucket_size, self.hash_key)


@export(v1="feature_column.crossed_column", v2="feature_column.crossed_column")
def crossed_column(keys: Any, hash_bucket_size: int, hash_key: int | None = None) -> CrossedColumn:
    """A column whose ids are hashes, below `hash_bucket_size`, of combinations of features.

    `keys` are features, which are strings or integers, and categorical columns other than hashed
    ones, two at least.
    """
    if not hash_bucket_size or hash_bucket_size < 1:
        raise ValueError(f"hash_bucket_size must be > 1. hash_bucket_size: {hash_bucket_size}")
    if not keys or len(keys) < 2:
        raise ValueError(f"keys must be a list with length > 1. Given: {keys}")
    for key in keys:
        if not isinstance(key, (str, CategoricalColumn, BucketizedColumn)):
            raise ValueError(
                "Unsupported key type. All keys must be either string, or categorical column "
                f"except HashedCategoricalColumn. Given: {key}"
            )
        if isinstance(key, HashedColumn):
            raise ValueError(
                "categorical_column_with_hash_bucket is not supported for crossing. Hashing before "
                "crossing will increase probability of collision. Instead, use the feature name as "
                f"a string. Given: {key}"
            )
    return CrossedColumn(tuple(keys), hash_bucket_size, hash_key)
