"""Functions of matrices: exponential, logarithm, square root; systems of three diagonals."""

import math
from typing import Any

import numpy as np

from millrace import gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.ops.array import (
    concat,
    expand_dims,
    matrix_transpose,
    shape,
    squeeze,
    stack,
    zeros_like,
)
from millrace.ops.diag import matrix_diag_part
from millrace.ops.gather import where_v2
from millrace.ops.linalg import eye, matmul, svd
from millrace.ops.loops import while_loop
from millrace.ops.math import cast, conj
from millrace.ops.reduce import reduce_max, reduce_sum

# Coefficients of Padé's approximants of exp, and the norms up to which they have full precision.
_PADE_7 = (17297280.0, 8648640.0, 1995840.0, 277200.0, 25200.0, 1512.0, 56.0, 1.0)
_PADE_13 = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0,
    129060195264000.0, 10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0, 40840800.0,
    960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
_LARGEST_7, _LARGEST_13 = 3.925724783138660, 5.371920351148152


@export(v2="linalg.expm", v1="linalg.expm")
def matrix_exponential(input: Any, name: str | None = None) -> Tensor:
    """The exponentials of square matrices, [..., n, n]: I + A + A^2 / 2! + ..."""
    with name_scope(name, "matrix_exponential", [input]):
        matrix = convert_to_tensor(input, name="input")
        dims = matrix.shape.with_rank_at_least(2)
        if dims.ndims is not None and not dims[-1:].is_compatible_with(dims[-2:-1]):
            raise ValueError(f"Input must be square matrices, got shape {dims}")
        if dims.is_fully_defined() and dims.num_elements() == 0:
            return matrix
        kind = matrix.dtype
        if kind in (dtypes.float16, dtypes.bfloat16):
            matrix = cast(matrix, dtypes.float32)
        wide = matrix.dtype in (dtypes.float64, dtypes.complex128)
        coefficients = _PADE_13 if wide else _PADE_7
        largest = _LARGEST_13 if wide else _LARGEST_7
        # Scaled by a power of two until an approximant is exact, and squared as often.
        norm = reduce_max(reduce_sum(gen_ops.abs(cast_real(matrix)), axis=-2), axis=-1)
        ratio = gen_ops.log(gen_ops.maximum(norm / largest, 1.0)) / math.log(2.0)
        squarings = gen_ops.ceil(ratio)
        scale = gen_ops.pow(cast(2.0, norm.dtype), -squarings)
        scaled = matrix * cast(expand_dims(expand_dims(scale, -1), -1), matrix.dtype)
        result = _approximant(scaled, coefficients)
        most = reduce_max(squarings)
        wanted = expand_dims(expand_dims(squarings, -1), -1)

        def square(i: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            return i + 1, where_v2(gen_ops.less(i, wanted), matmul(x, x), x)

        start = convert_to_tensor(0.0, dtype=norm.dtype)
        _, result = while_loop(lambda i, _: gen_ops.less(i, most), square, [start, result])
        result.set_shape(matrix.shape)
        return cast(result, kind)


def cast_real(x: Tensor) -> Tensor:
    """Numbers of the size of x, real."""
    return gen_ops.complex_abs(x, Tout=x.dtype.real_dtype) if x.dtype.is_complex else x


def _approximant(x: Tensor, coefficients: tuple[float, ...]) -> Tensor:
    identity = eye(shape(x)[-1], batch_shape=shape(x)[:-2], dtype=x.dtype)
    square = matmul(x, x)
    odd = identity * coefficients[1]
    even = identity * coefficients[0]
    power = identity
    for k in range(2, len(coefficients), 2):
        power = square if k == 2 else matmul(power, square)
        even = even + power * coefficients[k]
        odd = odd + power * coefficients[k + 1]
    odd = matmul(x, odd)
    return gen_ops.matrix_solve(even - odd, even + odd)


@export(v1="linalg.logm", v2="linalg.logm")
def matrix_logarithm(input: Any, name: str | None = None) -> Tensor:
    """The principal logarithms of square matrices of complex numbers."""
    return gen_ops.matrix_logarithm(input, name=name)


@export(v1=("linalg.sqrtm", "matrix_square_root"), v2=("linalg.sqrtm", "matrix_square_root"))
def matrix_square_root(input: Any, name: str | None = None) -> Tensor:
    """The principal square roots of square matrices."""
    return gen_ops.matrix_square_root(input, name=name)


def _complex_type(x: Tensor) -> dtypes.DType:
    narrow = x.dtype in (dtypes.float32, dtypes.complex64)
    return dtypes.complex64 if narrow else dtypes.complex128


@export(v2=("eig", "linalg.eig"))
def eig(tensor: Any, name: str | None = None) -> tuple[Tensor, Tensor]:
    """The eigenvalues (e) and eigenvectors (v) of square matrices, complex numbers."""
    x = convert_to_tensor(tensor, name="tensor")
    e, v = gen_ops.eig(x, Tout=_complex_type(x), compute_v=True, name=name)
    return e, v


@export(v2=("eigvals", "linalg.eigvals"))
def eigvals(tensor: Any, name: str | None = None) -> Tensor:
    """The eigenvalues of square matrices, complex numbers."""
    x = convert_to_tensor(tensor, name="tensor")
    return gen_ops.eig(x, Tout=_complex_type(x), compute_v=False, name=name)[0]


@export(v2="linalg.tridiagonal_solve", v1="linalg.tridiagonal_solve")
def tridiagonal_solve(
    diagonals: Any, rhs: Any, diagonals_format: str = "compact", transpose_rhs: bool = False,
    conjugate_rhs: bool = False, name: str | None = None, partial_pivoting: bool = True,
    perturb_singular: bool = False,
) -> Tensor:  # fmt: skip
    """Solves A x = rhs for matrices A that have three diagonals.

    Args:
      diagonals: [..., 3, n], the superdiagonal, whose last element is not read, the diagonal, and
        the subdiagonal, whose first element is not read, where the format is "compact"; three
        tensors [..., n] (or [..., n - 1] of the outer ones) where it is "sequence"; [..., n, n]
        where it is "matrix".
      rhs: [..., n] or [..., n, k].
      transpose_rhs, conjugate_rhs: whether rhs is [..., k, n], and conjugated first.
      partial_pivoting: whether rows change places for accuracy.
      perturb_singular: whether tiny numbers stand for pivots that are zero.
    """
    with name_scope(name, "tridiagonal_solve", [diagonals, rhs]):
        rhs = convert_to_tensor(rhs, name="rhs")
        compact = _compact_diagonals(diagonals, diagonals_format)
        rank, rhs_rank = compact.shape.ndims, rhs.shape.ndims
        if rank is None or rhs_rank is None:
            raise ValueError("tridiagonal_solve needs diagonals and rhs of known rank")
        if rank < 2:
            raise ValueError(f"Expected diagonals to have rank at least 2, got {rank}")
        if rhs_rank not in (rank, rank - 1):
            raise ValueError(f"Expected the rank of rhs to be {rank - 1} or {rank}, got {rhs_rank}")
        if not compact.shape[-2:-1].is_compatible_with([3]):
            raise ValueError(f"Expected 3 diagonals got {compact.shape[-2]}")
        if not compact.shape[:-2].is_compatible_with(rhs.shape[: rank - 2]):
            raise ValueError(
                f"Batch shapes {compact.shape[:-2]} and {rhs.shape[: rank - 2]} are incompatible"
            )
        is_vector = rhs_rank == rank - 1
        if conjugate_rhs:
            rhs = conj(rhs)
        if is_vector:
            rhs = expand_dims(rhs, -1)
        elif transpose_rhs:
            rhs = matrix_transpose(rhs)
        if not compact.shape[-1:].is_compatible_with(rhs.shape[-2:-1]):
            raise ValueError(
                "Expected number of left-hand sided and right-hand sides to be equal, got "
                f"{compact.shape[-1]} and {rhs.shape[-2]}"
            )
        result = gen_ops.tridiagonal_solve(
            compact, rhs, partial_pivoting=partial_pivoting, perturb_singular=perturb_singular
        )
        return squeeze(result, -1) if is_vector else result


def _compact_diagonals(diagonals: Any, diagonals_format: str) -> Tensor:
    if diagonals_format == "compact":
        return convert_to_tensor(diagonals, name="diagonals")
    if diagonals_format == "matrix":
        matrix = convert_to_tensor(diagonals, name="diagonals")
        dims = matrix.shape.with_rank_at_least(2)
        if dims.ndims is not None and not dims[-1:].is_compatible_with(dims[-2:-1]):
            raise ValueError(
                "Expected last two dimensions of diagonals to be same, got "
                f"{dims[-2]} and {dims[-1]}"
            )
        at = matrix_diag_part(matrix)
        zero = zeros_like(at[..., :1])
        above = concat([matrix_diag_part(matrix, k=1), zero], -1)
        below = concat([zero, matrix_diag_part(matrix, k=-1)], -1)
        return stack([above, at, below], axis=-2)
    if diagonals_format == "sequence":
        if len(diagonals) != 3:
            raise ValueError("Expected diagonals to be a sequence of length 3.")
        above, at, below = (convert_to_tensor(d, name="diagonal") for d in diagonals)
        for other in (above, below):
            if not other.shape[:-1].is_compatible_with(at.shape[:-1]):
                raise ValueError(
                    "Tensors representing the three diagonals must have the same shape, except "
                    f"for the last dimension, got {above.shape}, {at.shape}, {below.shape}"
                )
        n = at.shape[-1:].as_list()[0] if at.shape.ndims else None
        above = _of_length(above, n, "superdiagonal", last=True)
        below = _of_length(below, n, "subdiagonal", last=False)
        return stack([above, at, below], axis=-2)
    raise ValueError(f"Unrecognized diagonals_format: {diagonals_format}")


def _of_length(diagonal: Tensor, n: int | None, what: str, last: bool) -> Tensor:
    """An outer diagonal with the element that is not read, which may be missing."""
    known = diagonal.shape[-1:].as_list()[0]
    if known is None or n is None:
        raise ValueError(f"the sizes of the diagonals must be known, got {known} and {n}")
    if known == n:
        return diagonal
    if known != n - 1:
        raise ValueError(f"Expected {what} to be have length {n} or {n - 1}, got {known}.")
    zero = gen_ops.fill(
        concat([shape(diagonal)[:-1], [1]], 0), convert_to_tensor(0, dtype=diagonal.dtype)
    )
    return concat([diagonal, zero] if last else [zero, diagonal], -1)


@export(v2="linalg.tridiagonal_matmul", v1="linalg.tridiagonal_matmul")
def tridiagonal_matmul(
    diagonals: Any, rhs: Any, diagonals_format: str = "compact", name: str | None = None
) -> Tensor:
    """A rhs for matrices A that have three diagonals; `diagonals` as of `tridiagonal_solve`."""
    with name_scope(name, "tridiagonal_matmul", [diagonals, rhs]):
        rhs = convert_to_tensor(rhs, name="rhs")
        compact = _compact_diagonals(diagonals, diagonals_format)
        above, at, below = (compact[..., i : i + 1, :] for i in range(3))
        return gen_ops.tridiagonal_mat_mul(above, at, below, rhs)


@export(v2="linalg.matrix_rank", v1="linalg.matrix_rank")
def matrix_rank(
    a: Any, tol: Any = None, validate_args: bool = False, name: str | None = None
) -> Tensor:
    """How many singular values of each matrix are larger than `tol`, by default the largest one
    times the larger size and the precision of the type."""
    del validate_args
    with name_scope(name, "matrix_rank", [a, tol]):
        a = convert_to_tensor(a, name="a")
        a.shape.with_rank_at_least(2)
        s = svd(a, compute_uv=False)
        if tol is None:
            tol = _tolerance(a, s)
        return reduce_sum(cast(gen_ops.greater(s, tol), dtypes.int32), axis=-1)


def _tolerance(a: Tensor, s: Tensor) -> Tensor:
    larger = reduce_max(shape(a)[-2:])
    epsilon = np.finfo(s.dtype.as_numpy_dtype).eps
    return epsilon * cast(larger, s.dtype) * reduce_max(s, axis=-1, keepdims=True)


@export(v2="linalg.pinv", v1="linalg.pinv")
def pinv(a: Any, rcond: Any = None, validate_args: bool = False, name: str | None = None) -> Tensor:
    """The pseudo-inverses of matrices: of singular values up to `rcond` times the largest one,
    by default ten times the larger size and the precision of the type, zero stands for the inverse.
    """
    del validate_args
    with name_scope(name, "pinv", [a, rcond]):
        a = convert_to_tensor(a, name="a")
        if not (a.dtype.is_floating or a.dtype.is_complex):
            raise TypeError(
                f"Input tensor `a` must have float or complex dtype, got {a.dtype.name}"
            )
        if a.shape.ndims is not None and a.shape.ndims < 2:
            raise ValueError(f"Input tensor `a` must have rank at least 2, got {a.shape}")
        s, u, v = svd(a, full_matrices=False, compute_uv=True)
        if rcond is None:
            larger = reduce_max(shape(a)[-2:])
            rcond = 10.0 * cast(larger, s.dtype) * np.finfo(s.dtype.as_numpy_dtype).eps
        rcond = convert_to_tensor(rcond, dtype=s.dtype, name="rcond")
        cutoff = rcond * reduce_max(s, axis=-1)
        kept = gen_ops.greater(s, expand_dims(cutoff, -1))
        inverse = where_v2(kept, 1.0 / where_v2(kept, s, gen_ops.ones_like(s)), zeros_like(s))
        scaled = v * cast(expand_dims(inverse, -2), v.dtype)
        return matmul(scaled, u, adjoint_b=True)
