"""Assertions about tensors: checked at once where values are known, and when run otherwise."""

from typing import Any, Callable

import numpy as np

from millrace import _core, gen_ops
from millrace.core import dtypes, errors
from millrace.core.arguments import reordered
from millrace.core.export import export
from millrace.core.tensor import Tensor, label_of
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import get_default_graph, name_scope
from millrace.graph.operation import Operation
from millrace.graph.sparse import SparseTensor
from millrace.graph.static_value import constant_value
from millrace.ops.ordering import Assert
from millrace.ops.reduce import reduce_all


def _fail(data: list[Any], summarize: int | None) -> None:
    """InvalidArgumentError with the data of an assertion that is known to fail."""
    parts = []
    for item in data:
        if isinstance(item, Tensor):
            value = constant_value(item)
            if value is None:
                parts.append(str(item))
                continue
            flat = np.ravel(value)
            most = 3 if summarize is None else summarize
            shown = flat if most < 0 else flat[:most]
            more = " ..." if len(shown) < len(flat) else ""
            parts.append(f"[{' '.join(str(v) for v in shown)}{more}]")
        else:
            parts.append(str(item))
    raise errors.InvalidArgumentError(None, None, "\n".join(parts))


def _check_now(
    holds: Any, symbol: str, x: Any, y: Any, summarize: int | None, message: str | None
) -> None:
    """InvalidArgumentError with the elements for which a comparison does not hold, if any."""
    where = holds.numpy()
    if np.all(where):
        return
    most = 3 if summarize is None else summarize if summarize >= 0 else np.size(where)
    parts = [message] if message else []
    parts.append(f"Condition x {symbol} y did not hold.")
    values = {"x": x.numpy(), "y": y.numpy()}
    if most and x.shape == y.shape and x.shape.rank:
        places = np.argwhere(~where)[:most]
        parts += [f"Indices of first {len(places)} different values:", str(places)]
        for name, value in values.items():
            parts += [f"Corresponding {name} values:", str(value[~where].reshape(-1)[:most])]
    if most:
        for name, value in values.items():
            first = np.reshape(value, -1)[:most]
            parts += [f"First {len(first)} elements of {name}:", str(first)]
    raise errors.InvalidArgumentError(None, None, "\n".join(parts) + _core.user_line())


def _compare(
    what: str, symbol: str, op: Callable[..., Tensor], x: Any, y: Any, data: Any, summarize: Any,
    message: str | None, name: str | None, static: Callable[..., Any],
) -> Operation:  # fmt: skip
    values = [v for v in (x, y) if v is not None]
    with name_scope(name, what, [*values, *(data or [])]):
        x = convert_to_tensor(x, name="x")
        y = convert_to_tensor(y, name="y", preferred_dtype=x.dtype.base_dtype)
        if data is None:
            data = [
                f"Condition x {symbol} y did not hold element-wise:",
                f"x ({label_of(x)}) = ", x,
                f"y ({label_of(y)}) = ", y,
            ]  # fmt: skip
            if _core.executing_eagerly():
                return _check_now(op(x, y), symbol, x, y, summarize, message)
        if message:
            data = [message, *data]
        condition = reduce_all(op(x, y))
        x_value, y_value = constant_value(x), constant_value(y)
        if x_value is not None and y_value is not None and not np.all(static(x_value, y_value)):
            _fail(list(data), summarize)
        return Assert(condition, list(data), summarize=summarize)


@export(v1=("assert_equal", "debugging.assert_equal"))
def assert_equal(
    x: Any, y: Any, data: Any = None, summarize: int | None = None, message: str | None = None,
    name: str | None = None,
) -> Operation:  # fmt: skip
    """An operation that fails unless x == y everywhere.

    Args:
      data: tensors to print when it fails; x and y by default.
      summarize: how many elements of each to print; negative for all.
      message: what to print before them.

    InvalidArgumentError at once where the values are known and the condition does not hold.
    """
    if x is y:
        with name_scope(name, "assert_equal", [x, y]):
            return gen_ops.no_op()
    return _compare(
        "assert_equal", "==", gen_ops.equal, x, y, data, summarize, message, name, np.equal
    )


assert_equal_v2 = export(v2=("assert_equal", "debugging.assert_equal"))(
    reordered(assert_equal, "x y message summarize name")
)


@export(v1=("assert_none_equal", "debugging.assert_none_equal"))
def assert_none_equal(
    x: Any, y: Any, data: Any = None, summarize: int | None = None, message: str | None = None,
    name: str | None = None,
) -> Operation:  # fmt: skip
    """An operation that fails unless x != y everywhere. Arguments as of `assert_equal`."""
    return _compare(
        "assert_none_equal", "!=", gen_ops.not_equal, x, y, data, summarize, message, name,
        np.not_equal,
    )  # fmt: skip


assert_none_equal_v2 = export(v2="debugging.assert_none_equal")(
    reordered(assert_none_equal, "x y summarize message name")
)


@export(v1=("assert_less", "debugging.assert_less"))
def assert_less(
    x: Any, y: Any, data: Any = None, summarize: int | None = None, message: str | None = None,
    name: str | None = None,
) -> Operation:  # fmt: skip
    """An operation that fails unless x < y everywhere. Arguments as of `assert_equal`."""
    return _compare("assert_less", "<", gen_ops.less, x, y, data, summarize, message, name, np.less)


assert_less_v2 = export(v2=("assert_less", "debugging.assert_less"))(
    reordered(assert_less, "x y message summarize name")
)


@export(v1=("assert_less_equal", "debugging.assert_less_equal"))
def assert_less_equal(
    x: Any, y: Any, data: Any = None, summarize: int | None = None, message: str | None = None,
    name: str | None = None,
) -> Operation:  # fmt: skip
    """An operation that fails unless x <= y everywhere. Arguments as of `assert_equal`."""
    return _compare(
        "assert_less_equal", "<=", gen_ops.less_equal, x, y, data, summarize, message, name,
        np.less_equal,
    )  # fmt: skip


assert_less_equal_v2 = export(v2="debugging.assert_less_equal")(
    reordered(assert_less_equal, "x y message summarize name")
)


@export(v1=("assert_greater", "debugging.assert_greater"))
def assert_greater(
    x: Any, y: Any, data: Any = None, summarize: int | None = None, message: str | None = None,
    name: str | None = None,
) -> Operation:  # fmt: skip
    """An operation that fails unless x > y everywhere. Arguments as of `assert_equal`."""
    return _compare(
        "assert_greater", ">", gen_ops.greater, x, y, data, summarize, message, name, np.greater
    )


assert_greater_v2 = export(v2=("assert_greater", "debugging.assert_greater"))(
    reordered(assert_greater, "x y message summarize name")
)


@export(v1=("assert_greater_equal", "debugging.assert_greater_equal"))
def assert_greater_equal(
    x: Any, y: Any, data: Any = None, summarize: int | None = None, message: str | None = None,
    name: str | None = None,
) -> Operation:  # fmt: skip
    """An operation that fails unless x >= y everywhere. Arguments as of `assert_equal`."""
    return _compare(
        "assert_greater_equal", ">=", gen_ops.greater_equal, x, y, data, summarize, message, name,
        np.greater_equal,
    )  # fmt: skip


assert_greater_equal_v2 = export(v2="debugging.assert_greater_equal")(
    reordered(assert_greater_equal, "x y message summarize name")
)


@export(v1=("assert_near", "debugging.assert_near"))
def assert_near(
    x: Any, y: Any, rtol: Any = None, atol: Any = None, data: Any = None,
    summarize: int | None = None, message: str | None = None, name: str | None = None,
) -> Operation:  # fmt: skip
    """An operation that fails unless |x - y| <= atol + rtol |y| everywhere.

    `rtol`, `atol`: ten times the spacing of the type at 1 by default.
    """
    with name_scope(name, "assert_near", [x, y]):
        x = convert_to_tensor(x, name="x")
        y = convert_to_tensor(y, name="y", dtype=x.dtype.base_dtype)
        kind = x.dtype.base_dtype
        eps = 10 * np.finfo(kind.real_dtype.as_numpy_dtype).eps
        rtol = convert_to_tensor(eps if rtol is None else rtol, dtype=kind, name="rtol")
        atol = convert_to_tensor(eps if atol is None else atol, dtype=kind, name="atol")
        if data is None:
            data = [
                "x and y not equal to tolerance rtol = ", rtol, "atol = ", atol,
                f"x ({label_of(x)}) = ", x, f"y ({label_of(y)}) = ", y,
            ]  # fmt: skip
        if message:
            data = [message, *data]
        condition = gen_ops.less_equal(abs(x - y), atol + rtol * abs(y))
        return Assert(reduce_all(condition), list(data), summarize=summarize)


assert_near_v2 = export(v2="debugging.assert_near")(
    reordered(assert_near, "x y rtol atol message summarize name")
)


def _against_zero(
    what: str, symbol: str, compare: Callable[..., Operation], swap: bool, x: Any, data: Any,
    summarize: Any, message: str | None, name: str | None,
) -> Operation:  # fmt: skip
    with name_scope(name, what, [x]):
        x = convert_to_tensor(x, name="x")
        if data is None:
            data = [
                f"Condition x {symbol} 0 did not hold element-wise:",
                f"x ({label_of(x)}) = ",
                x,
            ]
        if message:
            data = [message, *data]
        zero = convert_to_tensor(0, dtype=x.dtype.base_dtype)
        pair = (zero, x) if swap else (x, zero)
        return compare(*pair, data=data, summarize=summarize)


@export(v1=("assert_negative", "debugging.assert_negative"))
def assert_negative(
    x: Any, data: Any = None, summarize: int | None = None, message: str | None = None,
    name: str | None = None,
) -> Operation:  # fmt: skip
    """An operation that fails unless x < 0 everywhere. Arguments as of `assert_equal`."""
    return _against_zero(
        "assert_negative", "<", assert_less, False, x, data, summarize, message, name
    )


assert_negative_v2 = export(v2="debugging.assert_negative")(
    reordered(assert_negative, "x message summarize name")
)


@export(v1=("assert_positive", "debugging.assert_positive"))
def assert_positive(
    x: Any, data: Any = None, summarize: int | None = None, message: str | None = None,
    name: str | None = None,
) -> Operation:  # fmt: skip
    """An operation that fails unless x > 0 everywhere. Arguments as of `assert_equal`."""
    return _against_zero(
        "assert_positive", ">", assert_less, True, x, data, summarize, message, name
    )


assert_positive_v2 = export(v2="debugging.assert_positive")(
    reordered(assert_positive, "x message summarize name")
)


@export(v1=("assert_non_negative", "debugging.assert_non_negative"))
def assert_non_negative(
    x: Any, data: Any = None, summarize: int | None = None, message: str | None = None,
    name: str | None = None,
) -> Operation:  # fmt: skip
    """An operation that fails unless x >= 0 everywhere. Arguments as of `assert_equal`."""
    return _against_zero(
        "assert_non_negative", ">=", assert_less_equal, True, x, data, summarize, message, name
    )


assert_non_negative_v2 = export(v2="debugging.assert_non_negative")(
    reordered(assert_non_negative, "x message summarize name")
)


@export(v1=("assert_non_positive", "debugging.assert_non_positive"))
def assert_non_positive(
    x: Any, data: Any = None, summarize: int | None = None, message: str | None = None,
    name: str | None = None,
) -> Operation:  # fmt: skip
    """An operation that fails unless x <= 0 everywhere. Arguments as of `assert_equal`."""
    return _against_zero(
        "assert_non_positive", "<=", assert_less_equal, False, x, data, summarize, message, name
    )


assert_non_positive_v2 = export(v2="debugging.assert_non_positive")(
    reordered(assert_non_positive, "x message summarize name")
)


# Ranks and types.


def _prefix(message: str | None) -> str:
    return f"{message} " if message else ""


def _known_rank(rank: Any) -> Any:
    """A rank as an int, or as a tensor where it is not known. ValueError unless it is a scalar."""
    tensor = convert_to_tensor(rank, name="rank")
    if tensor.dtype.base_dtype is not dtypes.int32:
        raise TypeError(f"'{label_of(tensor)}' must be of type int32, got {tensor.dtype.name}")
    value = constant_value(tensor)
    if tensor.shape.ndims not in (None, 0):
        raise ValueError(f"Rank must be a scalar, got {rank!r} of shape {tensor.shape}")
    return tensor if value is None else int(value)


def _check_rank(
    what: str, x: Any, ranks: list[Any], fits: Callable[[Any, Any], Any], words: str, data: Any,
    summarize: Any, message: str | None, name: str | None,
) -> Operation:  # fmt: skip
    with name_scope(name, what, [x, *ranks]):
        if not isinstance(x, SparseTensor):
            x = convert_to_tensor(x, name="x")
        ranks = [_known_rank(rank) for rank in ranks]
        actual = x.shape.ndims
        shown = str(ranks[0]) if len(ranks) == 1 else str(tuple(ranks))
        prefix = _prefix(message)
        if actual is not None and all(isinstance(r, int) for r in ranks):
            if not any(fits(actual, r) for r in ranks):
                label = getattr(x, "name", None) or str(x)
                raise ValueError(
                    f"{prefix}Tensor {label} must have rank {words}{shown}. Received rank "
                    f"{actual}, shape {x.shape}"
                )
            return gen_ops.no_op(name="static_checks_determined_all_ok")
        is_sparse = isinstance(x, SparseTensor)
        shape = x.dense_shape if is_sparse else gen_ops.shape(x)
        rank = gen_ops.size(shape) if is_sparse else gen_ops.rank(x)
        if data is None:
            data = [
                f"{prefix}Tensor {getattr(x, 'name', '')} must have rank {words}{shown}", *ranks,
                "Received shape: ", shape,
            ]  # fmt: skip
        elif message:
            data = [message, *data]
        scalars = [_scalar_check(r) for r in ranks if isinstance(r, Tensor)]
        with get_default_graph().control_dependencies(scalars):
            condition = fits(gen_ops.identity(rank), ranks[0])
        for other in ranks[1:]:
            condition = gen_ops.logical_or(condition, fits(rank, other))
        return Assert(condition, list(data), summarize=summarize)


def _scalar_check(rank: Tensor) -> Operation:
    return Assert(
        gen_ops.equal(gen_ops.rank(rank), 0), ["Rank must be a scalar. Received rank: ", rank]
    )


def _equals(a: Any, b: Any) -> Any:
    return a == b if isinstance(a, int) and isinstance(b, int) else gen_ops.equal(a, b)


@export(v1=("assert_rank", "debugging.assert_rank"))
def assert_rank(
    x: Any, rank: Any, data: Any = None, summarize: int | None = None, message: str | None = None,
    name: str | None = None,
) -> Operation:  # fmt: skip
    """An operation that fails unless x has that rank; ValueError at once where both are known."""
    return _check_rank("assert_rank", x, [rank], _equals, "", data, summarize, message, name)


assert_rank_v2 = export(v2=("assert_rank", "debugging.assert_rank"))(
    reordered(assert_rank, "x rank message name")
)


@export(v1=("assert_rank_at_least", "debugging.assert_rank_at_least"))
def assert_rank_at_least(
    x: Any, rank: Any, data: Any = None, summarize: int | None = None, message: str | None = None,
    name: str | None = None,
) -> Operation:  # fmt: skip
    """An operation that fails unless x has that rank or a higher one; ValueError where known."""
    return _check_rank(
        "assert_rank_at_least", x, [rank], lambda a, b: a >= b, "at least ", data, summarize,
        message, name,
    )  # fmt: skip


assert_rank_at_least_v2 = export(v2="debugging.assert_rank_at_least")(
    reordered(assert_rank_at_least, "x rank message name")
)


@export(v1=("assert_rank_in", "debugging.assert_rank_in"))
def assert_rank_in(
    x: Any, ranks: Any, data: Any = None, summarize: int | None = None, message: str | None = None,
    name: str | None = None,
) -> Operation:  # fmt: skip
    """An operation that fails unless x has one of the ranks; ValueError where known."""
    return _check_rank(
        "assert_rank_in", x, list(ranks), _equals, "in ", data, summarize, message, name
    )


assert_rank_in_v2 = export(v2="debugging.assert_rank_in")(
    reordered(assert_rank_in, "x ranks message name")
)


@export(v1=("assert_integer", "debugging.assert_integer"), v2="debugging.assert_integer")
def assert_integer(x: Any, message: str | None = None, name: str | None = None) -> Operation:
    """TypeError unless x has a type of integers."""
    with name_scope(name, "assert_integer", [x]):
        x = convert_to_tensor(x, name="x")
        if not x.dtype.is_integer:
            raise TypeError(
                f'{_prefix(message)}Expected "x" to be integer type. Found: {label_of(x)} of dtype '
                f"{x.dtype!r} and shape {x.shape}"
            )
        return gen_ops.no_op(name="statically_determined_was_integer")


@export(v1=("assert_type", "debugging.assert_type"), v2="debugging.assert_type")
def assert_type(
    tensor: Any, tf_type: Any, message: str | None = None, name: str | None = None
) -> Operation:
    """TypeError unless the tensor has that type."""
    with name_scope(name, "assert_type", [getattr(tensor, "values", tensor)]):
        if not isinstance(tensor, SparseTensor):
            tensor = convert_to_tensor(tensor, name="tensor")
        wanted = dtypes.as_dtype(tf_type)
        if tensor.dtype != wanted:
            raise TypeError(
                f"{_prefix(message)}{getattr(tensor, 'name', tensor)} must be of type {wanted!r}, "
                f"got {tensor.dtype!r}"
            )
        return gen_ops.no_op(name="statically_determined_correct_type")


@export(v1=("assert_scalar", "debugging.assert_scalar"))
def assert_scalar(tensor: Any, name: str | None = None, message: str | None = None) -> Tensor:
    """The tensor; ValueError where its shape is known and is no scalar's."""
    with name_scope(name, "assert_scalar", [tensor]):
        tensor = convert_to_tensor(tensor, name="tensor")
        if tensor.shape.ndims != 0:
            raise ValueError(
                f"{_prefix(message)}Expected scalar shape, saw shape: {tensor.shape} of "
                f"'{label_of(tensor)}'."
            )
        return tensor


assert_scalar_v2 = export(v2="debugging.assert_scalar")(
    reordered(assert_scalar, "tensor message name")
)


@export(
    v1=("assert_proper_iterable", "debugging.assert_proper_iterable"),
    v2="debugging.assert_proper_iterable",
)
def assert_proper_iterable(values: Any) -> None:
    """TypeError for what is not iterable, and for tensors, arrays and strings, which are single
    values."""
    single = isinstance(values, (Tensor, SparseTensor, np.ndarray, str, bytes)) or hasattr(
        values, "_as_graph_element"
    )
    if single:
        raise TypeError(f'Expected argument "values" to be a "proper" iterable, found {values!r}')
    if not hasattr(values, "__iter__"):
        raise TypeError(f'Expected argument "values" to be iterable, found {values!r}')


@export(
    v1=("assert_same_float_dtype", "debugging.assert_same_float_dtype"),
    v2="debugging.assert_same_float_dtype",
)
def assert_same_float_dtype(tensors: Any = None, dtype: Any = None) -> dtypes.DType:
    """The one float type that all tensors have, and `dtype` is; float32 when there are none.

    ValueError when they differ or it is no float.
    """
    first: Any = None
    wanted = None if dtype is None else dtypes.as_dtype(dtype).base_dtype
    for tensor in tensors or []:
        if tensor is None:
            continue
        kind = tensor.dtype.base_dtype
        if wanted is None:
            wanted, first = kind, tensor
        elif kind != wanted:
            other = "" if first is None else f" as {first}"
            raise ValueError(f"{tensor} must be of type {wanted.name}{other}, got {kind.name}")
    wanted = wanted or dtypes.float32
    if not wanted.is_floating:
        raise ValueError(f"Expected floating point type, got {wanted.name}.")
    return wanted


@export(v1="debugging.assert_shapes", v2="debugging.assert_shapes")
def assert_shapes(
    shapes: Any, data: Any = None, summarize: int | None = None, message: str | None = None,
    name: str | None = None,
) -> Operation:  # fmt: skip
    """An operation that fails unless tensors have shapes in which equal names are equal sizes.

    `shapes`: {tensor: ("N", 3, None)} or a list of such pairs. ValueError at once where the
    shapes are known and do not fit.
    """
    pairs = list(shapes.items()) if isinstance(shapes, dict) else list(shapes)
    with name_scope(name, "assert_shapes", [t for t, _ in pairs]):
        checks: list[Operation] = []
        sizes: dict[Any, Any] = {}
        for tensor, wanted in pairs:
            tensor = convert_to_tensor(tensor)
            wanted = list(wanted) if isinstance(wanted, (list, tuple)) else [wanted]
            checks.append(assert_rank(tensor, len(wanted), data, summarize, message))
            for i, want in enumerate(wanted):
                if want is None or want == ".":
                    continue
                if tensor.shape.ndims is None:
                    size = gen_ops.shape(tensor)[i]
                else:
                    size = tensor.shape.as_list()[i]
                    size = gen_ops.shape(tensor)[i] if size is None else size
                expected = want if isinstance(want, int) else sizes.setdefault(want, size)
                if isinstance(size, int) and isinstance(expected, int):
                    if size != expected:
                        raise ValueError(
                            f"{_prefix(message)}Tensor {label_of(tensor)} dimension {i} must have "
                            f"size {expected}. Received size {size}, shape {tensor.shape}"
                        )
                elif size is not expected:
                    text = message or f"{label_of(tensor)}: dimension {i} has another size"
                    checks.append(assert_equal(size, expected, message=text))
        with get_default_graph().control_dependencies(checks):
            return gen_ops.no_op()


_NUMERIC = frozenset(
    t
    for t in (getattr(dtypes, n) for n in dir(dtypes))
    if isinstance(t, dtypes.DType)
    and t.name not in ("bool", "string", "resource", "variant")
    and not t._is_ref_dtype
)


@export(v1=("is_numeric_tensor", "debugging.is_numeric_tensor"), v2="debugging.is_numeric_tensor")
def is_numeric_tensor(tensor: Any) -> bool:
    """Whether it is a Tensor of numbers."""
    return isinstance(tensor, Tensor) and tensor.dtype.base_dtype in _NUMERIC


def _steps(x: Any) -> Tensor:
    """The differences of neighbours of all elements in order. TypeError for what is no number."""
    x = convert_to_tensor(x, name="x")
    if not is_numeric_tensor(x):
        raise TypeError(f"Expected x to be numeric, instead found: {x}")
    flat = gen_ops.reshape(x, [-1])
    return flat[1:] - flat[:-1]


@export(
    v1=("is_non_decreasing", "math.is_non_decreasing", "debugging.is_non_decreasing"),
    v2="math.is_non_decreasing",
)
def is_non_decreasing(x: Any, name: str | None = None) -> Tensor:
    """Whether no element, in the order of memory, is less than the one before it."""
    with name_scope(name, "is_non_decreasing", [x]):
        steps = _steps(x)
        return reduce_all(gen_ops.less_equal(convert_to_tensor(0, dtype=steps.dtype), steps))


@export(
    v1=(
        "is_strictly_increasing",
        "math.is_strictly_increasing",
        "debugging.is_strictly_increasing",
    ),
    v2="math.is_strictly_increasing",
)
def is_strictly_increasing(x: Any, name: str | None = None) -> Tensor:
    """Whether every element, in the order of memory, is greater than the one before it."""
    with name_scope(name, "is_strictly_increasing", [x]):
        steps = _steps(x)
        return reduce_all(gen_ops.less(convert_to_tensor(0, dtype=steps.dtype), steps))
