"""Weights of values in losses and metrics: one for all, or of the values' rank."""

from typing import Any

from millrace import gen_ops
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import control_dependencies, name_scope
from millrace.graph.operation import Operation
from millrace.ops import array, confusion, control_flow, gather, math, ordering, reduce


def assert_broadcastable(weights: Any, values: Any) -> Operation:
    """An operation that fails unless weights are one number, or have the rank of the values and in
    each dimension their size or 1. ValueError where that is known already."""
    with name_scope(None, "assert_broadcastable", [weights, values]) as scope:
        weights = convert_to_tensor(weights, name="weights")
        values = convert_to_tensor(values, name="values")
        given, wanted = weights.shape, values.shape
        if given.ndims == 0:
            return gen_ops.no_op(name="static_scalar_check_success")
        if given.ndims is not None and wanted.ndims is not None:
            if given.ndims != wanted.ndims:
                _refuse(weights, values, "their ranks differ")
            sizes = list(zip(given.as_list(), wanted.as_list(), strict=True))
            for axis, (a, b) in enumerate(sizes):
                if a is not None and b is not None and a not in (1, b):
                    _refuse(weights, values, f"mismatch at dim {axis}")
            if all(a is not None and b is not None for a, b in sizes):
                return gen_ops.no_op(name="static_dims_check_success")
        weights_shape, values_shape = array.shape(weights), array.shape(values)
        is_scalar = math.equal(array.rank(weights), 0)
        same_rank = math.equal(array.rank(weights), array.rank(values))

        def fits() -> Tensor:
            equal = math.equal(weights_shape, values_shape)
            return reduce.reduce_all(math.logical_or(equal, math.equal(weights_shape, 1)))

        valid = control_flow.cond(
            is_scalar,
            lambda: is_scalar,
            lambda: control_flow.cond(same_rank, fits, lambda: same_rank),
        )
        return ordering.Assert(
            valid,
            [
                "weights can not be broadcast to values.",
                f"weights.shape= {weights.name}", weights_shape,
                f"values.shape= {values.name}", values_shape,
            ],
            name=scope,
        )  # fmt: skip


def _refuse(weights: Tensor, values: Tensor, why: str) -> None:
    raise ValueError(
        f"weights can not be broadcast to values: {why}. values.shape={values.shape} "
        f"('{values.name}', {values.dtype.name}), weights.shape={weights.shape} "
        f"('{weights.name}', {weights.dtype.name})"
    )


def broadcast_weights(weights: Any, values: Any) -> Tensor:
    """The weights in the shape of the values."""
    with name_scope(None, "broadcast_weights", [weights, values]) as scope:
        values = convert_to_tensor(values, name="values")
        weights = convert_to_tensor(weights, dtype=values.dtype.base_dtype, name="weights")
        known = weights.shape.is_fully_defined() and values.shape.is_fully_defined()
        if known and weights.shape.as_list() == values.shape.as_list():
            return weights
        with control_dependencies([assert_broadcastable(weights, values)]):
            return math.multiply(weights, array.ones_like(values), name=scope)


def safe_div(x: Any, y: Any, name: str | None = None) -> Tensor:
    """x / y, and 0 where y is 0; gradients are finite there too."""
    with name_scope(name, "safe_div", [x, y]) as scope:
        x, y = convert_to_tensor(x), convert_to_tensor(y)
        if y.dtype.base_dtype != x.dtype.base_dtype:
            y = math.cast(y, x.dtype.base_dtype)
        nothing = math.equal(y, array.zeros_like(y))
        quotient = math.truediv(x, gather.where(nothing, array.ones_like(y), y))
        return gather.where(nothing, array.zeros_like(quotient), quotient, name=scope)


def squeezed(
    labels: Any, predictions: Any, weights: Any = None, expected_rank_diff: int = 0
) -> tuple[Any, Tensor, Any]:
    """(labels, predictions, weights) without a last dimension of size 1 that others do not have.

    `expected_rank_diff`: the rank of the predictions minus that of the labels that is right.
    """
    predictions = convert_to_tensor(predictions)
    if labels is not None:
        labels, predictions = confusion.remove_squeezable_dimensions(
            labels, predictions, expected_rank_diff
        )
        if not expected_rank_diff and not labels.shape.is_compatible_with(predictions.shape):
            raise ValueError(
                f"Shapes {predictions.shape} and {labels.shape} are incompatible: the "
                f"predictions '{predictions.name}' ({predictions.dtype.name}) and the labels "
                f"'{labels.name}' ({labels.dtype.name}) must have one shape"
            )
    if weights is None:
        return labels, predictions, None
    weights = convert_to_tensor(weights)
    rank = weights.shape.ndims
    if rank == 0:
        return labels, predictions, weights
    wanted = predictions.shape.ndims
    if rank is not None and wanted is not None:
        if rank - wanted == 1:
            weights = array.squeeze(weights, [-1])
        elif wanted - rank == 1:
            weights = array.expand_dims(weights, [-1])
        return labels, predictions, weights
    before = weights
    difference = array.rank(weights) - array.rank(predictions)

    def adjusted() -> Tensor:
        if rank is None or before.shape._size_at(-1) in (None, 1):
            return control_flow.cond(
                math.equal(difference, 1),
                lambda: array.squeeze(before, [-1]),
                lambda: control_flow.cond(
                    math.equal(difference, -1),
                    lambda: array.expand_dims(before, [-1]),
                    lambda: array.identity(before),
                ),
            )
        return control_flow.cond(
            math.equal(difference, -1),
            lambda: array.expand_dims(before, [-1]),
            lambda: array.identity(before),
        )

    if rank is None:
        weights = control_flow.cond(
            math.equal(array.rank(before), 0), lambda: array.identity(before), adjusted
        )
    else:
        weights = adjusted()
    return labels, predictions, weights
