"""Values that control flow meets: tensors of a graph, numbers that become such, and others."""

from typing import Any, Callable

import numpy as np

from millrace import _core, gen_ops
from millrace.autograph.undefined import is_undefined
from millrace.core import dtypes, nest
from millrace.core.shapes import TensorShape
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.sparse import SparseTensorValue
from millrace.graph.tracing import is_composite

_NUMBERS = (bool, int, float, complex, str, bytes, np.ndarray, np.generic)
SHAPED = (bool, int, float, str, np.ndarray)


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor or a variable."""
    return isinstance(value, Tensor) or (_is_variable(value) and not is_composite(value))


def _is_variable(value: Any) -> bool:
    return not isinstance(value, type) and (
        hasattr(value, "_as_tensor") or hasattr(value, "_as_graph_element")
    )


def is_staged(value: Any) -> bool:
    """Whether what depends on a value is decided when the graph runs."""
    return is_tensor(value) and not _core.executing_eagerly()


def is_convertible(leaf: Any) -> bool:
    """Whether a leaf of a structure is a tensor, made of tensors, or becomes one."""
    return (
        isinstance(leaf, (Tensor, SparseTensorValue, *_NUMBERS))
        or is_composite(leaf)
        or _is_variable(leaf)
    )


def condition(value: Any, what: str) -> Tensor:
    """A condition as a bool scalar. ValueError for what is none."""
    tensor = convert_to_tensor(value)
    hint = "to check for None, use `is not None`"
    if tensor.dtype.base_dtype is not dtypes.bool_:
        raise ValueError(
            f"condition of {what} expected to be `tf.bool` scalar, got {_described(tensor)}; to "
            f"use as boolean Tensor, use `tf.cast`; {hint}"
        )
    sizes = None if tensor.shape.rank is None else tensor.shape.as_list()
    if sizes == []:
        return tensor
    if sizes is not None and int(np.prod([n for n in sizes if n is not None])) > 1:
        raise ValueError(
            f"condition of {what} expected to be `tf.bool` scalar, got {_described(tensor)}; {hint}"
        )
    return _scalar(tensor)


def _scalar(tensor: Tensor) -> Tensor:
    return gen_ops.reshape(tensor, convert_to_tensor([], dtype=dtypes.int32))


def _described(tensor: Tensor) -> str:
    name = getattr(tensor, "name", "") if not _core.executing_eagerly() else ""
    return f"a tensor '{name}' of {tensor.dtype.base_dtype.name}, shape {tensor.shape}"


def type_and_shape(leaf: Any) -> tuple[Any, TensorShape] | None:
    """The type and shape that a leaf has as a tensor; None where that is not to be told."""
    if isinstance(leaf, SHAPED):
        leaf = convert_to_tensor(leaf)
    if is_tensor(leaf):
        return leaf.dtype.base_dtype, TensorShape(leaf.shape)
    return None


def covers(invariant: TensorShape, shape: TensorShape) -> bool:
    """Whether everything that has the shape has the invariant."""
    if invariant.rank is None:
        return True
    if shape.rank != invariant.rank:
        return False
    pairs = zip(invariant.as_list(), shape.as_list(), strict=True)
    return all(kept is None or kept == size for kept, size in pairs)


def placeholder(value: Any, invariant: Any) -> tuple[Callable[[], Any] | None, Any]:
    """A function that makes zeros like `value`, and the shapes that such a variable keeps; (None,
    None) where there is none. TypeError for what cannot be a loop's."""
    if value is None or is_undefined(value):
        return None, None
    leaves = nest.flatten(value)
    given: list[Any] = [None] * len(leaves)
    if invariant is not None:
        given = nest.flatten_up_to(value, invariant) if nest.is_nested(value) else [invariant]
    made = [_placeholder_leaf(leaf, shape) for leaf, shape in zip(leaves, given, strict=True)]
    shapes = None
    if any(shape is not None for _, shape in made):
        shapes = nest.pack_sequence_as(value, [shape for _, shape in made])
        if not nest.is_nested(value):
            shapes = made[0][1]
    structure = nest.map_structure(lambda _: 0, value)
    return (lambda: nest.pack_sequence_as(structure, [make() for make, _ in made])), shapes


def _placeholder_leaf(leaf: Any, invariant: Any) -> tuple[Callable[[], Any], Any]:
    if isinstance(leaf, (bool, int, float)):
        return (lambda: type(leaf)(0)), None
    if is_composite(leaf) or not is_convertible(leaf):
        raise TypeError(
            f"Found an unsupported type '{type(leaf).__name__}' while creating placeholder for "
            f"{leaf}. Supported types include Tensor, int, float, bool, list, tuple or dict."
        )
    tensor = convert_to_tensor(leaf)
    dtype = tensor.dtype.base_dtype
    shape = TensorShape(invariant) if invariant is not None else tensor.shape
    if shape.rank is None:
        return (lambda: _zeros((), dtype)), shape
    own = tensor.shape.as_list() if tensor.shape.rank is not None else shape.as_list()
    sizes = [
        (kept or 0) if mine is None else mine
        for mine, kept in zip(own, shape.as_list(), strict=True)
    ]
    unknown = any(size is None for size in own) or invariant is not None
    return (lambda: _zeros(sizes, dtype)), shape if unknown else None


def _zeros(sizes: Any, dtype: Any) -> Tensor:
    dims = convert_to_tensor(list(sizes), dtype=dtypes.int32)
    if dtype is dtypes.string:
        return gen_ops.fill(dims, convert_to_tensor("", dtype=dtype))
    return gen_ops.fill(dims, gen_ops.cast(convert_to_tensor(0), dtype))
