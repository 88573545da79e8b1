"""What batches of elements are, and how elements of different sizes are made equal."""

from typing import Any

import numpy as np

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor
from millrace.data import structure
from millrace.data.structure import TensorLeaf
from millrace.graph.convert import convert_to_tensor
from millrace.graph.static_value import constant_value, constant_value_as_shape


def rows_of(batch_size: Any, drop_remainder: Any) -> int | None:
    """How many rows every batch has, where that is known."""
    size, drop = constant_value(batch_size), constant_value(drop_remainder)
    return int(size) if drop is not None and drop and size is not None else None


class Padding:
    """What elements of a dataset are made to: shapes, what is filled in, and what batches are."""

    def __init__(self, spec: Any, padded_shapes: Any, padding_values: Any, rows: int | None):
        leaves = structure.flatten(spec)
        if any(type(leaf) is not TensorLeaf for leaf in leaves):
            raise TypeError("Batching of padded sparse tensors is not currently supported")
        if padded_shapes is None:
            shapes: list[Any] = [leaf.shape for leaf in leaves]
            if any(shape.rank is None for shape in shapes):
                raise ValueError(
                    "You must provide `padded_shapes` argument because component has unknown rank."
                )
        else:
            shapes = structure.leaves_like(spec, padded_shapes, None, "padded_shapes")
        values = structure.leaves_like(spec, padding_values, None, "padding_values")
        self.shapes = [_shape_vector(s, leaf) for s, leaf in zip(shapes, leaves, strict=True)]
        self.values = [_padding(v, leaf) for v, leaf in zip(values, leaves, strict=True)]
        made = [
            TensorLeaf(leaf.dtype, TensorShape([rows]).concatenate(constant_value_as_shape(shape)))
            for leaf, shape in zip(leaves, self.shapes, strict=True)
        ]
        self.spec = structure.pack(spec, made)


def _shape_vector(shape: Any, leaf: TensorLeaf) -> Tensor:
    if isinstance(shape, Tensor):
        return gen_ops.cast(shape, DstT=dtypes.int64) if shape.dtype != dtypes.int64 else shape
    if isinstance(shape, (list, tuple)) and any(isinstance(size, Tensor) for size in shape):
        return gen_ops.pack(
            [convert_to_tensor(-1 if size is None else size, dtype=dtypes.int64) for size in shape]
        )
    if isinstance(shape, (list, tuple)):
        shape = [None if size == -1 else size for size in shape]
    known = TensorShape(shape)
    if known.rank is None:
        raise ValueError(f"padded_shapes must have a known rank, got {known}")
    if leaf.shape.rank not in (None, known.rank):
        raise ValueError(
            f"The padded shape {tuple(known.as_list())} is not compatible with the corresponding "
            f"input component shape {leaf.shape}."
        )
    sizes = [-1 if size is None else size for size in known.as_list()]
    return convert_to_tensor(np.array(sizes, np.int64))


def _padding(value: Any, leaf: TensorLeaf) -> Tensor:
    if value is None:
        if leaf.dtype == dtypes.variant:
            raise TypeError("Unable to create padding for field of type 'variant'")
        value = "" if leaf.dtype == dtypes.string else np.zeros((), leaf.dtype.as_numpy_dtype)
    made = convert_to_tensor(value, dtype=None if isinstance(value, Tensor) else leaf.dtype)
    if made.shape.rank not in (None, 0):
        raise ValueError(f"Padding value should be a scalar, but is not: {made}")
    if made.dtype != leaf.dtype:
        raise TypeError(
            f"Padding value tensor ({made}) does not match output type: {leaf.dtype.name}"
        )
    return made
