"""Special functions: gamma, beta, zeta; hyperbolic functions and angles."""

from typing import Any

import numpy as np

from millrace import gen_ops
from millrace.core.export import export
from millrace.core.tensor import Tensor, label_of
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.ops.math import imag, real
from millrace.ops.reduce import reduce_sum


@export(v1=("lgamma", "math.lgamma"), v2="math.lgamma")
def lgamma(x: Any, name: str | None = None) -> Tensor:
    """log |gamma(x)|."""
    return gen_ops.lgamma(x, name=name)


@export(v1=("digamma", "math.digamma"), v2="math.digamma")
def digamma(x: Any, name: str | None = None) -> Tensor:
    """The derivative of log |gamma(x)|."""
    return gen_ops.digamma(x, name=name)


@export(v1=("sinh", "math.sinh"), v2=("sinh", "math.sinh"))
def sinh(x: Any, name: str | None = None) -> Tensor:
    """The hyperbolic sine."""
    with name_scope(name, "Sinh", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        # Not of exp, which loses what is small next to 1.
        return gen_ops.mul(_half(x), gen_ops.expm1(x) - gen_ops.expm1(-x), name=scope)


@export(v1=("cosh", "math.cosh"), v2=("cosh", "math.cosh"))
def cosh(x: Any, name: str | None = None) -> Tensor:
    """The hyperbolic cosine."""
    with name_scope(name, "Cosh", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        return gen_ops.mul(_half(x), gen_ops.exp(x) + gen_ops.exp(-x), name=scope)


@export(v1=("asinh", "math.asinh"), v2=("asinh", "math.asinh"))
def asinh(x: Any, name: str | None = None) -> Tensor:
    """The inverse hyperbolic sine."""
    with name_scope(name, "Asinh", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        size = gen_ops.abs(x)
        beyond = size * size / (1 + gen_ops.sqrt(size * size + 1))
        return gen_ops.mul(gen_ops.sign(x), gen_ops.log1p(size + beyond), name=scope)


@export(v1=("acosh", "math.acosh"), v2=("acosh", "math.acosh"))
def acosh(x: Any, name: str | None = None) -> Tensor:
    """The inverse hyperbolic cosine; nan below 1."""
    with name_scope(name, "Acosh", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        return gen_ops.log(x + gen_ops.sqrt(x - 1) * gen_ops.sqrt(x + 1), name=scope)


@export(v1=("atanh", "math.atanh"), v2=("atanh", "math.atanh"))
def atanh(x: Any, name: str | None = None) -> Tensor:
    """The inverse hyperbolic tangent."""
    with name_scope(name, "Atanh", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        return gen_ops.mul(_half(x), gen_ops.log1p(x) - gen_ops.log1p(-x), name=scope)


def _half(x: Tensor) -> Tensor:
    return convert_to_tensor(0.5, dtype=x.dtype.base_dtype)


@export(v1=("atan2", "math.atan2"), v2=("atan2", "math.atan2"))
def atan2(y: Any, x: Any, name: str | None = None) -> Tensor:
    """The angle of the point (x, y), from -pi to pi. Zeros count as points on the side of their
    sign, infinite numbers as far off alike; the gradient at the origin is 0."""
    with name_scope(name, "Atan2", [y, x]) as scope:
        y = convert_to_tensor(y, name="y")
        x = convert_to_tensor(x, name="x", dtype=y.dtype.base_dtype)
        far = gen_ops.logical_and(gen_ops.is_inf(x), gen_ops.is_inf(y))
        x = gen_ops.select_v2(far, gen_ops.sign(x), x)
        y = gen_ops.select_v2(far, gen_ops.sign(y), y)
        one = convert_to_tensor(1, dtype=y.dtype.base_dtype)
        zero = convert_to_tensor(0, dtype=y.dtype.base_dtype)
        # The quotient by the larger one; the other is replaced, so that nothing divides by 0.
        flat = gen_ops.greater_equal(gen_ops.abs(x), gen_ops.abs(y))
        nowhere = gen_ops.logical_and(flat, gen_ops.equal(x, zero))
        low = gen_ops.select_v2(gen_ops.logical_and(flat, gen_ops.not_equal(x, zero)), x, one)
        high = gen_ops.select_v2(flat, one, y)
        up = gen_ops.select_v2(_is_negative(y), -one, one)
        near = gen_ops.atan(gen_ops.select_v2(flat, y, zero) / low)
        beside = gen_ops.select_v2(_is_negative(x), near + up * np.pi, near)
        above = up * (np.pi / 2) - gen_ops.atan(gen_ops.select_v2(flat, zero, x) / high)
        angle = gen_ops.select_v2(flat, beside, above)
        return gen_ops.select_v2(nowhere, gen_ops.stop_gradient(angle), angle, name=scope)


def _is_negative(x: Tensor) -> Tensor:
    """Whether numbers have the sign, -0 too."""
    zero = convert_to_tensor(0, dtype=x.dtype.base_dtype)
    return gen_ops.less(gen_ops.select_v2(gen_ops.equal(x, zero), gen_ops.reciprocal(x), x), zero)


@export(v1=("igamma", "math.igamma"), v2="math.igamma")
def igamma(a: Any, x: Any, name: str | None = None) -> Tensor:
    """The lower regularised incomplete gamma function P(a, x)."""
    return gen_ops.igamma(a, x, name=name)


@export(v1=("igammac", "math.igammac"), v2="math.igammac")
def igammac(a: Any, x: Any, name: str | None = None) -> Tensor:
    """The upper regularised incomplete gamma function Q(a, x) = 1 - P(a, x)."""
    return gen_ops.igammac(a, x, name=name)


@export(v1=("zeta", "math.zeta"), v2="math.zeta")
def zeta(x: Any, q: Any, name: str | None = None) -> Tensor:
    """The Hurwitz zeta function: the sum of (q + n)^-x over n = 0, 1, ..."""
    return gen_ops.zeta(x, q, name=name)


@export(v1=("polygamma", "math.polygamma"), v2="math.polygamma")
def polygamma(a: Any, x: Any, name: str | None = None) -> Tensor:
    """The derivative of order a of digamma."""
    return gen_ops.polygamma(a, x, name=name)


@export(v1=("betainc", "math.betainc"), v2="math.betainc")
def betainc(a: Any, b: Any, x: Any, name: str | None = None) -> Tensor:
    """The regularised incomplete beta function I_x(a, b)."""
    return gen_ops.betainc(a, b, x, name=name)


@export(v1=("lbeta", "math.lbeta"), v2="math.lbeta")
def lbeta(x: Any, name: str | None = None) -> Tensor:
    """log |beta| of the vectors in the last dimension: sum(lgamma(x)) - lgamma(sum(x)).

    ValueError for a scalar, which has no last dimension.
    """
    with name_scope(name, "lbeta", [x]):
        x = convert_to_tensor(x, name="x")
        if x.shape.ndims == 0:
            raise ValueError(f"lbeta: expected a rank of 1 or more, got the scalar '{label_of(x)}'")
        return reduce_sum(gen_ops.lgamma(x), [-1]) - gen_ops.lgamma(reduce_sum(x, [-1]))


@export(v1="math.xlogy", v2="math.xlogy")
def xlogy(x: Any, y: Any, name: str | None = None) -> Tensor:
    """x log(y), and 0 where x is 0."""
    return gen_ops.xlogy(x, y, name=name)


@export(v1="math.xdivy", v2="math.xdivy")
def xdivy(x: Any, y: Any, name: str | None = None) -> Tensor:
    """x / y, and 0 where x is 0."""
    return gen_ops.xdivy(x, y, name=name)


@export(v1=("angle", "math.angle"), v2="math.angle")
def angle(input: Any, name: str | None = None) -> Tensor:
    """The argument of a complex number; 0 or pi for real ones."""
    with name_scope(name, "Angle", [input]) as scope:
        input = convert_to_tensor(input, name="input")
        if input.dtype.is_complex:
            return atan2(imag(input), real(input), name=scope)
        zeros = gen_ops.zeros_like(input)
        return gen_ops.select(gen_ops.less(input, zeros), zeros + np.pi, zeros, name=scope)
