"""Special functions: gamma, beta, zeta, inverse and hyperbolic functions; bits of integers."""

from typing import Any

from millrace import gen_ops
from millrace._export import export
from millrace.graph.convert import convert_to_tensor
from millrace.graph.graph import Tensor, name_scope
from millrace.ops.reduce import reduce_sum


def _unary(op: str, doc: str) -> Any:
    """A function of one tensor that is an op, looked up when it is first called."""

    def function(x: Any, name: str | None = None) -> Tensor:
        return getattr(gen_ops, op)(x, name=name)

    function.__name__ = function.__qualname__ = op
    function.__doc__ = doc
    return function


acosh = export("acosh", "math.acosh")(_unary("acosh", "The inverse hyperbolic cosine."))
asinh = export("asinh", "math.asinh")(_unary("asinh", "The inverse hyperbolic sine."))
atanh = export("atanh", "math.atanh")(_unary("atanh", "The inverse hyperbolic tangent."))
cosh = export("cosh", "math.cosh")(_unary("cosh", "The hyperbolic cosine."))
sinh = export("sinh", "math.sinh")(_unary("sinh", "The hyperbolic sine."))
lgamma = export("lgamma", "math.lgamma")(_unary("lgamma", "log |gamma(x)|."))
digamma = export("digamma", "math.digamma")(_unary("digamma", "The derivative of log(gamma(x))."))


@export("atan2", "math.atan2")
def atan2(y: Any, x: Any, name: str | None = None) -> Tensor:
    """The angle of the point (x, y), from -pi to pi."""
    return gen_ops.atan2(y, x, name=name)


@export("igamma", "math.igamma")
def igamma(a: Any, x: Any, name: str | None = None) -> Tensor:
    """The lower regularised incomplete gamma function P(a, x)."""
    return gen_ops.igamma(a, x, name=name)


@export("igammac", "math.igammac")
def igammac(a: Any, x: Any, name: str | None = None) -> Tensor:
    """The upper regularised incomplete gamma function Q(a, x) = 1 - P(a, x)."""
    return gen_ops.igammac(a, x, name=name)


@export("zeta", "math.zeta")
def zeta(x: Any, q: Any, name: str | None = None) -> Tensor:
    """The Hurwitz zeta function: the sum of (q + n)^-x over n = 0, 1, ..."""
    return gen_ops.zeta(x, q, name=name)


@export("polygamma", "math.polygamma")
def polygamma(a: Any, x: Any, name: str | None = None) -> Tensor:
    """The derivative of order a of digamma."""
    return gen_ops.polygamma(a, x, name=name)


@export("betainc", "math.betainc")
def betainc(a: Any, b: Any, x: Any, name: str | None = None) -> Tensor:
    """The regularised incomplete beta function I_x(a, b)."""
    return gen_ops.betainc(a, b, x, name=name)


@export("lbeta", "math.lbeta")
def lbeta(x: Any, name: str | None = None) -> Tensor:
    """log |beta| of the vectors in the last dimension: sum(lgamma(x)) - lgamma(sum(x)).

    ValueError for a scalar, which has no last dimension.
    """
    with name_scope(name, "lbeta", [x]):
        x = convert_to_tensor(x, name="x")
        if x.shape.ndims == 0:
            raise ValueError(f"lbeta: expected a rank of 1 or more, got the scalar '{x.name}'")
        return reduce_sum(gen_ops.lgamma(x), [-1]) - gen_ops.lgamma(reduce_sum(x, [-1]))


@export("math.xlogy")
def xlogy(x: Any, y: Any, name: str | None = None) -> Tensor:
    """x log(y), and 0 where x is 0."""
    return gen_ops.xlogy(x, y, name=name)


@export("math.xdivy")
def xdivy(x: Any, y: Any, name: str | None = None) -> Tensor:
    """x / y, and 0 where x is 0."""
    return gen_ops.xdivy(x, y, name=name)


# Bits.


@export("bitwise.bitwise_and")
def bitwise_and(x: Any, y: Any, name: str | None = None) -> Tensor:
    """The bits that both integers have."""
    return gen_ops.bitwise_and(x, y, name=name)


@export("bitwise.bitwise_or")
def bitwise_or(x: Any, y: Any, name: str | None = None) -> Tensor:
    """The bits that either integer has."""
    return gen_ops.bitwise_or(x, y, name=name)


@export("bitwise.bitwise_xor")
def bitwise_xor(x: Any, y: Any, name: str | None = None) -> Tensor:
    """The bits that one of the integers has."""
    return gen_ops.bitwise_xor(x, y, name=name)


@export("bitwise.invert")
def invert(x: Any, name: str | None = None) -> Tensor:
    """The bits that the integer does not have."""
    return gen_ops.invert(x, name=name)


@export("bitwise.left_shift")
def left_shift(x: Any, y: Any, name: str | None = None) -> Tensor:
    """x with its bits moved y places up."""
    return gen_ops.left_shift(x, y, name=name)


@export("bitwise.right_shift")
def right_shift(x: Any, y: Any, name: str | None = None) -> Tensor:
    """x with its bits moved y places down."""
    return gen_ops.right_shift(x, y, name=name)
