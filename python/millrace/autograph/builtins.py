"""Python's own functions where they meet tensors of a graph."""

import sys
from typing import Any, Callable

from millrace import gen_ops
from millrace.autograph.lists import GrowingList
from millrace.autograph.values import is_staged
from millrace.core import dtypes
from millrace.graph.convert import convert_to_tensor
from millrace.ops import along, array, math, reduce
from millrace.ops.printing import print_v2
from millrace.ops.strings import string_to_number
from millrace.ops.tensor_array import TensorArray


class Rows:
    """Something a loop of the graph goes over: `count` items, `row(i)` gives one."""

    def __init__(self, count: Any, row: Callable[[Any], Any]):
        self.count = count
        self.row = row

    def __iter__(self) -> Any:
        raise TypeError(
            "enumerate() and zip() of tensors can be iterated over by a `for` statement only"
        )


def rows_of(tensor: Any) -> Rows:
    """The rows of a tensor."""
    tensor = convert_to_tensor(tensor)
    if tensor.shape.rank == 0:
        raise ValueError(f"iterating over a scalar tensor is not possible: {tensor}")
    count = length(tensor)
    rows = TensorArray(
        tensor.dtype.base_dtype, size=count, clear_after_read=False,
        element_shape=tensor.shape[1:] if tensor.shape.rank else None,
    ).unstack(tensor)  # fmt: skip
    return Rows(count, rows.read)


def length(value: Any) -> Any:
    """`len(value)`."""
    if isinstance(value, (GrowingList, TensorArray)):
        return value.size()
    if not is_staged(value):
        return len(value)
    tensor = convert_to_tensor(value)
    if tensor.dtype is dtypes.variant:
        return gen_ops.tensor_list_length(tensor)
    if tensor.shape.rank == 0:
        raise ValueError(f"len requires a non-scalar tensor, got one of shape {tensor.shape}")
    known = tensor.shape.as_list()[0] if tensor.shape.rank else None
    return known if known is not None else array.shape(tensor)[0]


def _abs(x: Any) -> Any:
    return math.abs(x) if is_staged(x) else abs(x)


def _float(x: Any = 0.0) -> Any:
    if not is_staged(x):
        return float(x)
    if x.dtype.base_dtype is dtypes.string:
        return string_to_number(x, dtypes.float32)
    return gen_ops.cast(convert_to_tensor(x), dtypes.float32)


def _int(x: Any = 0, *base: Any, **named: Any) -> Any:
    if not is_staged(x):
        return int(x, *base, **named)
    if (*base, *named.values()) not in ((), (10,)):
        raise NotImplementedError(f"base {(*base, *named.values())[0]} not supported for int")
    if x.dtype.base_dtype is dtypes.string:
        return string_to_number(x, dtypes.int32)
    return gen_ops.cast(convert_to_tensor(x), dtypes.int32)


def _range(*args: Any) -> Any:
    if not any(is_staged(arg) for arg in args) or len(args) > 3:
        return range(*args)
    if len(args) == 3:
        return along.range(*args)
    # Like Python's, empty where the end lies before the start.
    start = args[0] if len(args) == 2 else 0
    stop = gen_ops.maximum(*_same_type(start, args[-1]))
    return along.range(start, stop)


def _same_type(a: Any, b: Any) -> Any:
    typed = a if is_staged(a) else b
    return [convert_to_tensor(x, dtype=typed.dtype.base_dtype) for x in (a, b)]


def _extreme(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    reduced = getattr(reduce, f"reduce_{name}")

    def extreme(*args: Any, **kwargs: Any) -> Any:
        if not any(is_staged(arg) for arg in args):
            return plain(*args, **kwargs)
        if kwargs:
            raise ValueError(
                f"These keyword arguments are currently not supported: {tuple(kwargs)}"
            )
        if len(args) == 1:
            rank = args[0].shape.rank
            if rank == 0:
                return args[0]
            if rank == 1:
                return reduced(args[0], axis=0)
            raise ValueError(
                f"{name}(arg) currently support only tensor with rank 1, but got a tensor with "
                f"rank {rank}"
            )
        tensors = [convert_to_tensor(arg) for arg in args]
        for tensor in tensors:
            if tensor.shape.rank != 0:
                raise ValueError(
                    f"{name}(arg1, arg2, *args) currently support only scalar tensor, but got a "
                    f"tensor with shape {tensor.shape}"
                )
        return reduced(gen_ops.pack(tensors), axis=0)

    return extreme


def _enumerate(iterable: Any, start: Any = 0) -> Any:
    if isinstance(iterable, Rows):
        rows = iterable
    elif is_staged(iterable):
        rows = rows_of(iterable)
    elif hasattr(iterable, "_staged_iterator"):
        return iterable.enumerate(start)
    else:
        return enumerate(iterable, start)
    return Rows(rows.count, lambda i: (i + start, rows.row(i)))


def _zip(*iterables: Any, strict: bool = False) -> Any:
    if iterables and all(hasattr(each, "_staged_iterator") for each in iterables):
        return type(iterables[0]).zip(tuple(iterables))
    if not iterables or not all(isinstance(i, Rows) or is_staged(i) for i in iterables):
        return zip(*iterables, strict=strict)
    each = [i if isinstance(i, Rows) else rows_of(i) for i in iterables]
    counts = [rows.count for rows in each]
    if all(isinstance(count, int) for count in counts):
        if strict and len(set(counts)) > 1:
            raise ValueError(f"zip() arguments have different lengths: {counts}")
        count: Any = min(counts)
    else:
        count = reduce.reduce_min(gen_ops.pack([convert_to_tensor(c) for c in counts]))
    return Rows(count, lambda i: tuple(rows.row(i) for rows in each))


def _any(iterable: Any) -> Any:
    return reduce.reduce_any(iterable, axis=0) if is_staged(iterable) else any(iterable)


def _all(iterable: Any) -> Any:
    return reduce.reduce_all(iterable, axis=0) if is_staged(iterable) else all(iterable)


def _sum(iterable: Any, *start: Any, **named: Any) -> Any:
    if not is_staged(iterable):
        return sum(iterable, *start, **named)
    total = reduce.reduce_sum(iterable, axis=0)
    return sum([total], *start, **named) if start or named else total


def print_values(*values: Any, **kwargs: Any) -> Any:
    """`print`, when the graph runs where values are tensors."""
    if not any(is_staged(value) for value in values):
        return print(*values, **kwargs)
    kwargs.pop("flush", None)
    kwargs["output_stream"] = kwargs.pop("file", None) or sys.stdout
    return print_v2(*values, **kwargs)


OVERLOADS: dict[Any, Callable[..., Any]] = {
    abs: _abs, all: _all, any: _any, enumerate: _enumerate, float: _float, int: _int, len: length,
    max: _extreme("max", max), min: _extreme("min", min), range: _range, sum: _sum, zip: _zip,
}  # fmt: skip
