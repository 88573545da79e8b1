"""Functions of elements, applied to those of ragged tensors."""

from typing import Any, Callable

from millrace import _core, gen_ops
from millrace.core import nest
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import control_dependencies
from millrace.ops import check
from millrace.ops.ragged.broadcast import broadcast_together, same_rows, splits_type_of
from millrace.ops.ragged.tensor import RaggedTensor, as_ragged_or_tensor, is_ragged


def unary(function: Callable[..., Any], x: Any, *args: Any) -> Any:
    """function(x, ...) of each element of x."""
    if not is_ragged(x):
        raise TypeError(f"{function.__name__}() takes ragged tensors as its first argument alone")
    ragged = as_ragged_or_tensor(x)
    return ragged.with_flat_values(function(ragged.flat_values, *args))


def binary(function: Callable[..., Any], x: Any, y: Any, *args: Any) -> Any:
    """function(x, y, ...) of each pair of elements of x and y, broadcast together."""
    return of_pairs(lambda a, b: function(a, b, *args), x, y)


def of_pairs(function: Callable[[Any, Any], Any], x: Any, y: Any) -> Any:
    """function(x, y) of two values, at least one of which is ragged."""
    x, y = _operands(x, y)
    if isinstance(x, RaggedTensor) and isinstance(y, RaggedTensor):
        splits_type_of([x, y])
        if same_rows(x, y) and x.flat_values.shape.ndims == y.flat_values.shape.ndims:
            return x.with_flat_values(function(x.flat_values, y.flat_values))
    elif isinstance(x, RaggedTensor):
        if _is_inner(y, x):
            return x.with_flat_values(function(x.flat_values, y))
    elif _is_inner(x, y):
        return y.with_flat_values(function(x, y.flat_values))
    (x, y), wrap = broadcast_together([x, y])
    return wrap(function(x, y))


def assertion(function: Callable[..., Any], x: Any, y: Any, *args: Any) -> Any:
    """function(x, y, ...) of pairs of elements, which gives nothing but may fail."""
    x, y = _operands(x, y)
    ragged = [v for v in (x, y) if isinstance(v, RaggedTensor)]
    if len(ragged) == 2 and same_rows(*ragged):
        return function(x.flat_values, y.flat_values, *args)
    (x, y), _ = broadcast_together([x, y])
    return function(x, y, *args)


def _is_inner(dense: Tensor, ragged: RaggedTensor) -> bool:
    """Whether a dense tensor is broadcast within the inner dimensions of a ragged one."""
    rank, flat = dense.shape.ndims, ragged.flat_values.shape.ndims
    return rank == 0 or (rank is not None and flat is not None and rank < flat)


def _operands(x: Any, y: Any) -> tuple[Any, Any]:
    """The two as tensors; what is none takes the type of the other."""
    if is_ragged(x):
        x = as_ragged_or_tensor(x)
        if not is_ragged(y) and not isinstance(y, Tensor):
            return x, convert_to_tensor(y, dtype_hint=x.dtype)
        return x, as_ragged_or_tensor(y)
    y = as_ragged_or_tensor(y)
    if not isinstance(x, Tensor):
        x = convert_to_tensor(x, dtype_hint=y.dtype)
    return x, y


@export(v1="ragged.map_flat_values", v2="ragged.map_flat_values")
def map_flat_values(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """op(*args, **kwargs) with ragged tensors among the arguments, in lists too, replaced by their
    flat values: a ragged tensor with their rows.

    All of them must have the same rows. Without ragged tensors it is the call itself. ValueError
    where what op gives has not a row for each of the flat values.
    """
    found: list[RaggedTensor] = []

    def flat(value: Any) -> Any:
        if not is_ragged(value):
            return value
        ragged = as_ragged_or_tensor(value)
        found.append(ragged)
        return ragged.flat_values

    args, kwargs = _replaced(args, flat), _replaced(kwargs, flat)
    if not found:
        return op(*args, **kwargs)
    splits_type_of(found)
    sizes = {s for r in found if (s := _first_size(r.flat_values)) is not None}
    if len(sizes) > 1:
        raise ValueError(
            "Input RaggedTensors' flat_values must all have the same outer-dimension size.  Got "
            f"sizes: {sizes}"
        )
    rows = _common_rows(found)
    made = op(*args, **kwargs)
    expected = sizes.pop() if sizes else None
    shape = made.shape
    if shape.ndims == 0 or (
        shape.ndims is not None and expected is not None
        and shape.as_list()[0] not in (None, expected)
    ):  # fmt: skip
        raise ValueError(
            "tf.ragged.map_flat_values requires that the output of `op` have the same "
            "outer-dimension size as flat_values of any ragged inputs. (output shape: "
            f"{shape}; expected outer dimension size: {expected})"
        )
    return rows.with_flat_values(made)


def _first_size(tensor: Tensor) -> int | None:
    return tensor.shape.as_list()[0] if tensor.shape.ndims else None


def _replaced(value: Any, function: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {k: _replaced(v, function) for k, v in value.items()}
    if isinstance(value, (list, tuple)) and not nest.is_namedtuple(value):
        return type(value)(_replaced(v, function) for v in value)
    return function(value)


def _common_rows(found: list[RaggedTensor]) -> RaggedTensor:
    """The first of some ragged tensors, once it is known that all have the same rows."""
    first = found[0]
    message = "Inputs must have identical ragged splits"
    checks = []
    for other in found[1:]:
        if other.ragged_rank != first.ragged_rank:
            raise ValueError(message)
        for a, b in zip(first.nested_row_splits, other.nested_row_splits, strict=True):
            if a is not b:
                checks.append(check.assert_equal(a, b, message=message))
    if not checks or _core.executing_eagerly():
        return first
    with control_dependencies(checks):
        return first._from_parts([gen_ops.identity(part) for part in first._parts()])
