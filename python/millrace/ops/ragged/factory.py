"""Ragged tensors of nested Python lists."""

from typing import Any

import numpy as np

from millrace import _core
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.shapes import TensorShape
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.ops import array
from millrace.ops.ragged.tensor import RaggedTensor
from millrace.ops.ragged.value import RaggedTensorValue


@export(v1="ragged.constant", v2="ragged.constant")
def constant(
    pylist: Any, dtype: Any = None, ragged_rank: int | None = None, inner_shape: Any = None,
    name: str | None = None, row_splits_dtype: Any = dtypes.int64,
) -> Any:  # fmt: skip
    """The RaggedTensor of a nested list; a dense tensor where no dimension is ragged.

    Args:
      ragged_rank: how many dimensions are ragged; all but the innermost ones of one shape by
        default.
      inner_shape: of the elements, [] by default unless `ragged_rank` is given.
    """
    with name_scope(name, "RaggedConstant"):
        kind = dtypes.as_dtype(row_splits_dtype)
        return _made(
            lambda v, s: convert_to_tensor(v, dtype=dtype, name="values"),
            lambda values, splits: RaggedTensor.from_row_splits(
                values, convert_to_tensor(np.array(splits, kind.as_numpy_dtype)), validate=False
            ),
            pylist, None if dtype is None else dtypes.as_dtype(dtype), ragged_rank, inner_shape,
        )  # fmt: skip


@export(v1="ragged.constant_value")
def constant_value(
    pylist: Any,
    dtype: Any = None,
    ragged_rank: int | None = None,
    inner_shape: Any = None,
    row_splits_dtype: Any = "int64",
) -> Any:
    """As `constant`, made of arrays."""
    kind = dtypes.as_dtype(row_splits_dtype).as_numpy_dtype
    known: Any = None
    if dtype is not None:
        known = dtypes.as_dtype(dtype) if isinstance(dtype, dtypes.DType) else np.dtype(dtype)

    def as_array(values: Any, shape: Any) -> Any:
        array_type = known.as_numpy_dtype if isinstance(known, dtypes.DType) else known
        return np.reshape(np.array(values, dtype=array_type), shape)

    return _made(
        as_array,
        lambda values, splits: RaggedTensorValue(values, np.array(splits, dtype=kind)),
        pylist, known, ragged_rank, inner_shape,
    )  # fmt: skip


@export(v1="ragged.placeholder")
def placeholder(
    dtype: Any, ragged_rank: int, value_shape: Any = None, name: str | None = None
) -> Any:
    """A placeholder that is fed a RaggedTensorValue; a plain one for a `ragged_rank` of 0.

    Args:
      value_shape: of the elements.
    """
    if _core.executing_eagerly():
        raise RuntimeError("tf.ragged.placeholder is not compatible with eager execution.")
    if ragged_rank == 0:
        return array.placeholder(dtype, value_shape, name)
    with name_scope(name, "RaggedPlaceholder"):
        shape = TensorShape([None]).concatenate(TensorShape(value_shape))
        result: Any = array.placeholder(dtype, shape, "flat_values")
        for i in reversed(range(ragged_rank)):
            splits = array.placeholder(dtypes.int64, [None], f"row_splits_{i}")
            result = RaggedTensor.from_row_splits(result, splits, validate=False)
        return result


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _depth(value: Any) -> int | None:
    """How deeply lists are nested around the scalars; None where there are none."""
    if not _is_list(value):
        return 0
    depths = {depth for item in value if (depth := _depth(item)) is not None}
    if len(depths) > 1:
        raise ValueError("all scalar values must have the same nesting depth")
    return 1 + depths.pop() if depths else None


def _least_depth(value: Any) -> int:
    """The depth at least, where empty lists count as one."""
    if not _is_list(value):
        return 0
    return 1 + max((_least_depth(item) for item in value), default=0)


def _inner_shape(items: list[Any]) -> tuple[int, ...]:
    """The shape that all items have; () where they differ."""
    if not items or not all(_is_list(item) for item in items):
        return ()
    lengths = {len(item) for item in items}
    if len(lengths) != 1:
        raise ValueError("inner values have inconsistent shape")
    return (lengths.pop(), *_inner_shape([x for item in items for x in item]))


def _made(
    make_inner: Any, make_ragged: Any, pylist: Any, dtype: Any, ragged_rank: int | None,
    inner_shape: Any,
) -> Any:  # fmt: skip
    if hasattr(pylist, "row_splits") or (hasattr(pylist, "dtype") and hasattr(pylist, "numpy")):
        raise TypeError("pylist may not be a RaggedTensor or a tensor")
    if not _is_list(pylist):
        if ragged_rank:
            raise ValueError(
                f"Invalid pylist={pylist!r}: incompatible with ragged_rank={ragged_rank}"
            )
        if inner_shape:
            raise ValueError(
                f"Invalid pylist={pylist!r}: incompatible with "
                f"dim(inner_shape)={len(inner_shape)}"
            )
        return make_inner(pylist, ())
    if isinstance(pylist, np.ndarray) and pylist.dtype != object:
        pylist = pylist.tolist() if pylist.dtype.kind in "OSU" else pylist
    if ragged_rank is not None and ragged_rank < 0:
        raise ValueError(f"Invalid ragged_rank={ragged_rank}: must be nonnegative")
    scalar_depth, most = _depth(pylist), _least_depth(pylist)
    if scalar_depth is not None and most > scalar_depth:
        raise ValueError(
            f"Invalid pylist={pylist}: empty list nesting is greater than scalar value nesting"
        )
    if inner_shape is not None:
        inner_shape = tuple(inner_shape)
        expected = (
            ragged_rank + 1 + len(inner_shape)
            if ragged_rank is not None
            else (most if scalar_depth is None else scalar_depth)
        )
        if scalar_depth is not None and scalar_depth != expected:
            raise ValueError(
                f"Invalid pylist={pylist}: incompatible with ragged_rank={ragged_rank} and "
                f"dim(inner_shape)={len(inner_shape)}"
            )
        if most > expected:
            raise ValueError(
                f"Invalid pylist={pylist}: incompatible with ragged_rank={ragged_rank} and "
                f"dim(inner_shape)={len(inner_shape)}"
            )
        if ragged_rank is None:
            ragged_rank = expected - 1 - len(inner_shape)
    elif ragged_rank is None:
        ragged_rank = max(0, (most if scalar_depth is None else scalar_depth) - 1)
        inner_shape = ()
    else:
        if scalar_depth is not None and scalar_depth <= ragged_rank:
            raise ValueError(
                f"Invalid pylist={pylist}: incompatible with ragged_rank={ragged_rank}"
            )
        inner_shape = None
    # The values of each dimension in a row.
    values, splits = list(pylist), []
    for _ in range(ragged_rank):
        ends = [0]
        below: list[Any] = []
        for item in values:
            below.extend(item)
            ends.append(len(below))
        splits.append(ends)
        values = below
    if inner_shape is None:
        inner_shape = _inner_shape(values)
        if not values and scalar_depth is None:
            inner_shape = (0,) * max(most - ragged_rank - 1, 0)
    result = make_inner(
        values if values or dtype is not None else np.zeros((0, *inner_shape), np.float32),
        (len(values), *inner_shape),
    )
    if not values and len(inner_shape) and hasattr(result, "dtype") and hasattr(result, "numpy"):
        result = convert_to_tensor(
            np.zeros((0, *inner_shape), result.dtype.as_numpy_dtype), dtype=result.dtype
        )
    for ends in reversed(splits):
        result = make_ragged(result, ends)
    return result
