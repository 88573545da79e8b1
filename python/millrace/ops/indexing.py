"""Parts of tensors: `tensor[1:, None]`, slices with strides."""

import builtins
import functools
from typing import Any

import numpy as np

from millrace import _core, gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.shapes import Dimension
from millrace.core.tensor import Tensor, is_tensor_like, label_of
from millrace.eager import slices
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.ops import partition
from millrace.ops.array import ones_like

newaxis = export(v1="newaxis", v2="newaxis")(None)
_INT32_MAX = 2**31 - 1
_INDEX_TYPES = frozenset(
    {dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16, dtypes.int32, dtypes.int64}
)
_INDEX_ERROR = (
    "Only integers, slices (`:`), ellipsis (`...`), tf.newaxis (`None`) and scalar "
    "tf.int32/tf.int64 tensors are valid indices"
)


def _check_index(index: Any) -> Any:
    """The index as a Python int or a tensor. TypeError for anything else."""
    if isinstance(index, Dimension):
        index = index.value
    if isinstance(index, int) and not isinstance(index, bool):
        return index
    if isinstance(index, np.ndarray) and index.ndim == 0:
        index = index[()]
    if isinstance(index, np.integer):
        return int(index)
    if is_tensor_like(index):
        tensor = index if isinstance(index, Tensor) else convert_to_tensor(index)
        if tensor.dtype.base_dtype in _INDEX_TYPES and not tensor.shape.ndims:
            return tensor
        raise TypeError(
            f"{_INDEX_ERROR}, got the tensor '{label_of(tensor)}' ({tensor.dtype.base_dtype.name}, "
            f"shape {tensor.shape})"
        )
    raise TypeError(f"{_INDEX_ERROR}, got {index!r}")


def _is_mask(item: Any) -> bool:
    if isinstance(item, Tensor):
        return item.dtype.base_dtype is dtypes.bool_
    if isinstance(item, (bool, np.bool_)):
        return True
    if isinstance(item, np.ndarray):
        return item.dtype == np.bool_
    return (
        isinstance(item, list) and bool(item) and all(isinstance(i, (bool, np.bool_)) for i in item)
    )


def _bounds(values: list[Any]) -> Tensor:
    """One of begin, end and strides as a vector."""
    if all(isinstance(v, int) for v in values):
        small = all(-_INT32_MAX <= v <= _INT32_MAX for v in values)
        return _core.constant(np.array(values, np.int32 if small else np.int64), None, "stack")
    wide = any(isinstance(v, Tensor) and v.dtype.base_dtype is dtypes.int64 for v in values)
    dtype = dtypes.int64 if wide else dtypes.int32
    parts = [
        gen_ops.cast(v, dtype) if isinstance(v, Tensor) and v.dtype.base_dtype is not dtype else v
        for v in values
    ]
    return gen_ops.pack(parts, name="stack")


def getitem(tensor: Any, item: Any, var: Any = None) -> Tensor:
    """`tensor[item]`.

    `item`: integers, slices, None (a new dimension), ... and scalar integer tensors, or a tuple of
    them; or a mask of booleans. `var`: the variable that the tensor was read from; what comes back
    can then be assigned to. TypeError for other indices; ValueError for ones out of range, where
    the shape is known.
    """
    if _is_mask(item):
        return partition.boolean_mask(tensor, item)
    if var is None and hasattr(tensor, "initializer"):
        var = tensor
    items = item if isinstance(item, (tuple, list)) else (item,)
    begin: list[Any] = []
    end: list[Any] = []
    strides: list[Any] = []
    begin_mask = end_mask = ellipsis_mask = new_axis_mask = shrink_axis_mask = 0
    for i, part in enumerate(items):
        bit = 1 << i
        if isinstance(part, builtins.slice):
            if part.start is None:
                begin.append(0)
                begin_mask |= bit
            else:
                begin.append(_check_index(part.start))
            if part.stop is None:
                end.append(0)
                end_mask |= bit
            else:
                end.append(_check_index(part.stop))
            stride = 1 if part.step is None else _check_index(part.step)
            if isinstance(stride, int) and stride == 0:
                raise ValueError(f"slice step cannot be zero: {part}")
            strides.append(stride)
        elif part is Ellipsis:
            if ellipsis_mask:
                raise ValueError("Multiple ellipses in slice spec not allowed")
            begin.append(0)
            end.append(0)
            strides.append(1)
            ellipsis_mask |= bit
        elif part is None:
            begin.append(0)
            end.append(0)
            strides.append(1)
            new_axis_mask |= bit
        else:
            index = _check_index(part)
            begin.append(index)
            end.append(index + 1)
            strides.append(1)
            shrink_axis_mask |= bit
    masks = begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask
    if begin and _core.executing_eagerly():
        quick = _of_numbers(tensor, begin, end, strides, masks, var)
        if quick is not None:
            return quick
    values = [tensor, *(v for v in (*begin, *end, *strides) if isinstance(v, Tensor))]
    with name_scope(None, "strided_slice", values) as scope:
        if not isinstance(tensor, Tensor):
            tensor = convert_to_tensor(tensor)
        if begin:
            bounds = [_bounds(begin), _bounds(end), _bounds(strides)]
        else:
            bounds = [_core.constant(np.empty(0, np.int32), None, "stack") for _ in range(3)]
        if len({b.dtype.base_dtype for b in bounds}) > 1:
            bounds = [
                b if b.dtype.base_dtype is dtypes.int64 else gen_ops.cast(b, dtypes.int64)
                for b in bounds
            ]
        return strided_slice(tensor, *bounds, *masks, var, scope)


def _of_numbers(
    tensor: Any, begin: Any, end: Any, strides: Any, masks: Any, var: Any
) -> Tensor | None:
    """What most slices outside of graphs are: of Python's numbers. None for others."""
    for numbers in (begin, end, strides):
        for number in numbers:
            if type(number) is not int or not -_INT32_MAX <= number <= _INT32_MAX:
                return None
    made = gen_ops.strided_slice(tensor, begin, end, strides, *masks)
    if var is not None:
        _make_assignable(made, var, begin, end, strides, masks)
    return made


def _make_assignable(made: Tensor, var: Any, *part: Any) -> None:
    """`made.assign(value)` writes to that part of the variable."""
    assign = functools.partial(_assign, var, *part)
    if _core.is_eager_tensor(made):
        slices.add(made, assign)
    else:
        made.assign = assign


def _assign(
    var: Any, begin: Any, end: Any, strides: Any, masks: Any, value: Any, name: str | None = None
) -> Any:
    """Writes `value` to a part of a variable."""
    handle = getattr(var, "handle", None)
    write = gen_ops.strided_slice_assign
    if handle is not None:
        write = gen_ops.resource_strided_slice_assign
    done = write(
        var._ref() if handle is None else handle, begin, end, strides,
        convert_to_tensor(value, var.dtype.base_dtype), *masks, name=name or "strided_slice_assign",
    )  # fmt: skip
    return var if is_outside_of_graphs(var) else done


def is_outside_of_graphs(var: Any) -> bool:
    """Whether a variable belongs to no graph: assigning gives it back."""
    handle = getattr(var, "handle", None)
    return handle is not None and _core.is_eager_tensor(handle)


@export(v1="strided_slice", v2="strided_slice")
def strided_slice(
    input_: Any, begin: Any, end: Any, strides: Any = None, begin_mask: int = 0, end_mask: int = 0,
    ellipsis_mask: int = 0, new_axis_mask: int = 0, shrink_axis_mask: int = 0, var: Any = None,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """`input_[begin:end:strides]`, in each dimension that the vectors name.

    Bit i of a mask changes what entry i means: `begin_mask` and `end_mask`: from the start, to the
    end; `ellipsis_mask`: `...`; `new_axis_mask`: a new dimension of size 1; `shrink_axis_mask`: one
    element, and the dimension is gone. `var`: the variable to which `result.assign(value)` assigns.
    """
    if strides is None:
        strides = ones_like(begin)
    made = gen_ops.strided_slice(
        input_, begin, end, strides, begin_mask, end_mask, ellipsis_mask, new_axis_mask,
        shrink_axis_mask, name=name,
    )  # fmt: skip
    if var is not None:
        masks = begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask
        _make_assignable(made, var, begin, end, strides, masks)
    return made


@export(v1="slice", v2="slice")
def slice(input_: Any, begin: Any, size: Any, name: str | None = None) -> Tensor:
    """The block of `size` elements that starts at `begin`; a size of -1 means all that remain."""
    return gen_ops.slice(input_, begin, size, name=name)
