"""Special functions of one argument: of Bessel, Dawson, Fresnel and Spence; inverses of erf."""

from typing import Any

from millrace import gen_ops
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope


@export(
    v1=("math.bessel_i0", "math.special.bessel_i0"), v2=("math.bessel_i0", "math.special.bessel_i0")
)
def bessel_i0(x: Any, name: str | None = None) -> Tensor:
    """The modified Bessel function of the first kind of order 0."""
    return gen_ops.bessel_i0(x, name=name)


@export(
    v1=("math.bessel_i0e", "math.special.bessel_i0e"),
    v2=("math.bessel_i0e", "math.special.bessel_i0e"),
)
def bessel_i0e(x: Any, name: str | None = None) -> Tensor:
    """exp(-|x|) times `bessel_i0`."""
    return gen_ops.bessel_i0e(x, name=name)


@export(
    v1=("math.bessel_i1", "math.special.bessel_i1"), v2=("math.bessel_i1", "math.special.bessel_i1")
)
def bessel_i1(x: Any, name: str | None = None) -> Tensor:
    """The modified Bessel function of the first kind of order 1."""
    return gen_ops.bessel_i1(x, name=name)


@export(
    v1=("math.bessel_i1e", "math.special.bessel_i1e"),
    v2=("math.bessel_i1e", "math.special.bessel_i1e"),
)
def bessel_i1e(x: Any, name: str | None = None) -> Tensor:
    """exp(-|x|) times `bessel_i1`."""
    return gen_ops.bessel_i1e(x, name=name)


@export(v1="math.special.bessel_j0", v2="math.special.bessel_j0")
def bessel_j0(x: Any, name: str | None = None) -> Tensor:
    """The Bessel function of the first kind of order 0."""
    return gen_ops.bessel_j0(x, name=name)


@export(v1="math.special.bessel_j1", v2="math.special.bessel_j1")
def bessel_j1(x: Any, name: str | None = None) -> Tensor:
    """The Bessel function of the first kind of order 1."""
    return gen_ops.bessel_j1(x, name=name)


@export(v1="math.special.bessel_k0", v2="math.special.bessel_k0")
def bessel_k0(x: Any, name: str | None = None) -> Tensor:
    """The modified Bessel function of the second kind of order 0."""
    return gen_ops.bessel_k0(x, name=name)


@export(v1="math.special.bessel_k0e", v2="math.special.bessel_k0e")
def bessel_k0e(x: Any, name: str | None = None) -> Tensor:
    """exp(x) times `bessel_k0`."""
    return gen_ops.bessel_k0e(x, name=name)


@export(v1="math.special.bessel_k1", v2="math.special.bessel_k1")
def bessel_k1(x: Any, name: str | None = None) -> Tensor:
    """The modified Bessel function of the second kind of order 1."""
    return gen_ops.bessel_k1(x, name=name)


@export(v1="math.special.bessel_k1e", v2="math.special.bessel_k1e")
def bessel_k1e(x: Any, name: str | None = None) -> Tensor:
    """exp(x) times `bessel_k1`."""
    return gen_ops.bessel_k1e(x, name=name)


@export(v1="math.special.bessel_y0", v2="math.special.bessel_y0")
def bessel_y0(x: Any, name: str | None = None) -> Tensor:
    """The Bessel function of the second kind of order 0."""
    return gen_ops.bessel_y0(x, name=name)


@export(v1="math.special.bessel_y1", v2="math.special.bessel_y1")
def bessel_y1(x: Any, name: str | None = None) -> Tensor:
    """The Bessel function of the second kind of order 1."""
    return gen_ops.bessel_y1(x, name=name)


@export(v1="math.special.dawsn", v2="math.special.dawsn")
def dawsn(x: Any, name: str | None = None) -> Tensor:
    """exp(-x^2) times the integral of exp(t^2) from 0 to x."""
    return gen_ops.dawsn(x, name=name)


@export(v1="math.special.expint", v2="math.special.expint")
def expint(x: Any, name: str | None = None) -> Tensor:
    """The integral of exp(t) / t up to x; nan below 0."""
    return gen_ops.expint(x, name=name)


@export(v1="math.special.fresnel_cos", v2="math.special.fresnel_cos")
def fresnel_cos(x: Any, name: str | None = None) -> Tensor:
    """The integral of cos(pi t^2 / 2) from 0 to x."""
    return gen_ops.fresnel_cos(x, name=name)


@export(v1="math.special.fresnel_sin", v2="math.special.fresnel_sin")
def fresnel_sin(x: Any, name: str | None = None) -> Tensor:
    """The integral of sin(pi t^2 / 2) from 0 to x."""
    return gen_ops.fresnel_sin(x, name=name)


@export(v1="math.special.spence", v2="math.special.spence")
def spence(x: Any, name: str | None = None) -> Tensor:
    """The integral of log(t) / (1 - t) from 1 to x: the dilogarithm of 1 - x; nan below 0."""
    return gen_ops.spence(x, name=name)


@export(v1="math.erfinv", v2="math.erfinv")
def erfinv(x: Any, name: str | None = None) -> Tensor:
    """The inverse of `erf`."""
    return gen_ops.erfinv(x, name=name)


@export(v1="math.ndtri", v2="math.ndtri")
def ndtri(x: Any, name: str | None = None) -> Tensor:
    """The inverse of the standard normal distribution function."""
    return gen_ops.ndtri(x, name=name)


@export(v2="math.erfcinv")
def erfcinv(x: Any, name: str | None = None) -> Tensor:
    """The inverse of `erfc`."""
    with name_scope(name, "erfcinv", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        half = convert_to_tensor(0.5, dtype=x.dtype)
        minus_root = convert_to_tensor(-(0.5**0.5), dtype=x.dtype)
        return gen_ops.mul(gen_ops.ndtri(half * x), minus_root, name=scope)


@export(v2="math.xlog1py")
def xlog1py(x: Any, y: Any, name: str | None = None) -> Tensor:
    """x log(1 + y), and 0 where x is 0."""
    return gen_ops.xlog1py(x, y, name=name)
