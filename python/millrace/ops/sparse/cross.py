"""All combinations of the elements of rows: crossed features."""

from typing import Any

import numpy as np

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import constant, convert_to_tensor
from millrace.graph.sparse import SparseTensor, SparseTensorValue
from millrace.ops import array, math
from millrace.ops.gather import gather, where
from millrace.ops.reduce import reduce_max, reduce_sum
from millrace.ops.strings import as_string, string_join, string_to_hash_bucket_fast

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


def _columns(inputs: Any) -> list[SparseTensor]:
    """The inputs as sparse matrices. Dense ones come last, as in TensorFlow, with all elements."""
    if not isinstance(inputs, (list, tuple)) or not inputs:
        raise TypeError("Inputs must be a list")
    sparse: list[SparseTensor] = []
    dense: list[SparseTensor] = []
    for value in inputs:
        if isinstance(value, (SparseTensor, SparseTensorValue)):
            sparse.append(SparseTensor.from_value(value))
        else:
            dense.append(_all_of(convert_to_tensor(value)))
    for column in (*sparse, *dense):
        kind = column.dtype.base_dtype
        if not (kind.is_integer or kind is dtypes.string):
            raise TypeError(f"Only integers and strings are crossed, got {kind.name}")
    return sparse + dense


def _matrix(columns: list[SparseTensor], places: Tensor, values: Tensor) -> SparseTensor:
    rows = reduce_max(array.stack([column.dense_shape[0] for column in columns]))
    width = reduce_max(array.concat([places[:, 1] + 1, constant([0], dtypes.int64)], 0))
    return SparseTensor(places, values, array.stack([rows, width]))


def crossed(columns: list[SparseTensor], separator: Any) -> SparseTensor:
    """The combinations of the elements of each row of matrices, as joined strings."""
    places, elements = _combinations(columns)
    parts = []
    for column, element in zip(columns, elements, strict=True):
        text = column.values if column.dtype is dtypes.string else as_string(column.values)
        parts.append(gather(text, element))
    apart: list[Any] = [part for text in parts for part in (separator, text)][1:]
    return _matrix(columns, places, string_join(apart))


def crossed_hashes(
    columns: list[SparseTensor], num_buckets: int, hash_key: int | None
) -> SparseTensor:
    """The combinations of the elements of each row of matrices, as hashes below `num_buckets`, or
    the largest int64 where that is 0."""
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
    count = num_buckets or np.iinfo(np.int64).max
    ids = math.cast(gen_ops.floor_mod(hashed, _uint64(count)), dtypes.int64)
    return _matrix(columns, places, ids)


@export(v1="sparse.cross", v2="sparse.cross")
def cross(inputs: Any, name: str | None = None, separator: str | None = None) -> SparseTensor:
    """All combinations of one element of each input, row by row, as strings joined by "_X_".

    Args:
      inputs: matrices of strings or integers, sparse or dense.
    """
    del name
    return crossed(_columns(inputs), "_X_" if separator is None else separator)


@export(v1="sparse.cross_hashed", v2="sparse.cross_hashed")
def cross_hashed(
    inputs: Any, num_buckets: int = 0, hash_key: int | None = None, name: str | None = None
) -> SparseTensor:
    """The same as hashes below `num_buckets`, if it is not 0: those of TensorFlow."""
    del name
    return crossed_hashes(_columns(inputs), num_buckets, hash_key)
