"""Products, norms, decompositions and solutions of matrices."""

from typing import Any

import numpy as np

from millrace import _core, gen_ops
from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.tensor import Tensor, label_of
from millrace.graph.convert import convert_to_tensor
from millrace.graph.default_graph import name_scope
from millrace.graph.static_value import constant_value
from millrace.ops import math
from millrace.ops.array import matrix_transpose
from millrace.ops.diag import matrix_diag, matrix_diag_part, matrix_set_diag
from millrace.ops.reduce import keeps, reduce_max, reduce_sum
from millrace.ops.sizes import product_of, sizes_of

# Types whose products are float32 when they differ.
_MIXED = frozenset((dtypes.bfloat16, dtypes.float32))


@export(v1=("matmul", "linalg.matmul"), v2=("matmul", "linalg.matmul"))
def matmul(
    a: Any, b: Any, transpose_a: bool = False, transpose_b: bool = False, adjoint_a: bool = False,
    adjoint_b: bool = False, a_is_sparse: bool = False, b_is_sparse: bool = False,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """The product of matrices, or of batches of them in the last two dimensions.

    Args:
      transpose_a, adjoint_a: take a transposed, or transposed and conjugated; likewise for b.
      a_is_sparse, b_is_sparse: hints that many elements are 0. With them bfloat16 gives float32.

    ValueError when both a transpose and an adjoint are asked for, or the sizes do not fit.
    """
    if _core.is_eager_tensor(a) and _core.is_eager_tensor(b) and a.dtype is b.dtype:
        plain = not (adjoint_a or adjoint_b or a_is_sparse or b_is_sparse)
        if plain and a.ndim == 2 and b.ndim == 2:
            return gen_ops.mat_mul(a, b, transpose_a, transpose_b, name=name)
    with name_scope(name, "MatMul", [a, b]) as scope:
        if transpose_a and adjoint_a:
            raise ValueError("Only one of transpose_a and adjoint_a can be True.")
        if transpose_b and adjoint_b:
            raise ValueError("Only one of transpose_b and adjoint_b can be True.")
        a = convert_to_tensor(a, name="a")
        b = convert_to_tensor(b, name="b", preferred_dtype=a.dtype.base_dtype)
        kinds = {a.dtype.base_dtype, b.dtype.base_dtype}
        if kinds <= _MIXED and (a_is_sparse or b_is_sparse or len(kinds) == 2):
            a, b = math.cast(a, dtypes.float32), math.cast(b, dtypes.float32)
        if all(x.shape.ndims is not None and x.shape.ndims <= 2 for x in (a, b)):
            if adjoint_a:
                a = math.conj(a)
            if adjoint_b:
                b = math.conj(b)
            return gen_ops.mat_mul(
                a, b, transpose_a or adjoint_a, transpose_b or adjoint_b, name=scope
            )
        # The batched op only knows adjoints.
        if transpose_a:
            a = math.conj(a)
        if transpose_b:
            b = math.conj(b)
        return gen_ops.batch_mat_mul_v2(
            a, b, transpose_a or adjoint_a, transpose_b or adjoint_b, name=scope
        )


@export(v1="linalg.matvec", v2="linalg.matvec")
def matvec(
    a: Any, b: Any, transpose_a: bool = False, adjoint_a: bool = False, a_is_sparse: bool = False,
    b_is_sparse: bool = False, name: str | None = None,
) -> Tensor:  # fmt: skip
    """The product of matrices and vectors, or of batches of them."""
    with name_scope(name, "MatVec", [a, b]) as scope:
        b = convert_to_tensor(b, name="b")
        column = matmul(
            a, gen_ops.expand_dims(b, -1), transpose_a=transpose_a, adjoint_a=adjoint_a,
            a_is_sparse=a_is_sparse, b_is_sparse=b_is_sparse,
        )  # fmt: skip
        return gen_ops.squeeze(column, [-1], name=scope)


@export(v1="linalg.adjoint", v2="linalg.adjoint")
def adjoint(matrix: Any, name: str | None = None) -> Tensor:
    """The matrix, or each of a batch, transposed and conjugated."""
    with name_scope(name, "adjoint", [matrix]):
        return matrix_transpose(convert_to_tensor(matrix, name="matrix"), conjugate=True)


@export(v1=("trace", "linalg.trace"), v2="linalg.trace")
def trace(x: Any, name: str | None = None) -> Tensor:
    """The sum of the diagonal of each matrix."""
    with name_scope(name, "Trace", [x]) as scope:
        x = convert_to_tensor(x, name="x")
        return reduce_sum(matrix_diag_part(x), [-1], name=scope)


@export(v1=("eye", "linalg.eye"), v2=("eye", "linalg.eye"))
def eye(
    num_rows: Any, num_columns: Any = None, batch_shape: Any = None, dtype: Any = dtypes.float32,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """The identity matrix, or a batch of them of shape `batch_shape`."""
    with name_scope(name, "eye", [num_rows, num_columns, batch_shape]):
        square = num_columns is None
        batch = convert_to_tensor(
            [] if batch_shape is None else batch_shape, dtype=dtypes.int32, name="shape"
        )
        rows, columns = (
            _size(num_rows, "num_rows"),
            _size(num_rows if square else num_columns, "num_columns"),
        )
        known = constant_value(batch)
        if known is not None and isinstance(rows, int) and isinstance(columns, int):
            return _static_eye(rows, columns, known, dtypes.as_dtype(dtype))
        side = rows if square else gen_ops.minimum(rows, columns)
        one = gen_ops.cast(convert_to_tensor(1), dtypes.as_dtype(dtype))
        diagonal = gen_ops.fill(gen_ops.concat_v2([batch, [side]], 0), one)
        if square:
            return matrix_diag(diagonal)
        zero = gen_ops.zeros_like(one)
        shape = gen_ops.concat_v2([batch, [rows, columns]], 0)
        return matrix_set_diag(gen_ops.fill(shape, zero), diagonal)


def _size(value: Any, name: str) -> Any:
    """A size: an int where it is known, a tensor otherwise."""
    if isinstance(value, Tensor):
        known = constant_value(value)
        return gen_ops.cast(value, dtypes.int32) if known is None else int(known)
    size = int(value)
    if size < 0:
        raise ValueError(f"Arguments num_rows and num_columns must be >= 0, got {name}={size}")
    return size


def _static_eye(rows: int, columns: int, batch: Any, dtype: dtypes.DType) -> Tensor:
    one = np.eye(rows, columns, dtype=dtype.as_numpy_dtype)
    sizes = [int(b) for b in np.atleast_1d(batch)]
    matrix = convert_to_tensor(one, dtype=dtype, name="ones")
    if not sizes:
        return matrix
    return gen_ops.broadcast_to(matrix, [*sizes, rows, columns])


# Decompositions and solutions.


@export(v1=("cholesky", "linalg.cholesky"), v2="linalg.cholesky")
def cholesky(input: Any, name: str | None = None) -> Tensor:
    """The lower triangular L with L L^T = input, for each matrix. It must be positive definite."""
    return gen_ops.cholesky(input, name=name)


@export(v1=("cholesky_solve", "linalg.cholesky_solve"), v2="linalg.cholesky_solve")
def cholesky_solve(chol: Any, rhs: Any, name: str | None = None) -> Tensor:
    """x with A x = rhs, given the Cholesky decomposition of A."""
    with name_scope(name, "cholesky_solve", [chol, rhs]):
        y = gen_ops.matrix_triangular_solve(chol, rhs, adjoint=False, lower=True)
        return gen_ops.matrix_triangular_solve(chol, y, adjoint=True, lower=True)


@export(v1=("matrix_determinant", "linalg.det"), v2="linalg.det")
def matrix_determinant(input: Any, name: str | None = None) -> Tensor:
    """The determinant of each matrix."""
    return gen_ops.matrix_determinant(input, name=name)


@export(v1=("matrix_inverse", "linalg.inv"), v2="linalg.inv")
def matrix_inverse(input: Any, adjoint: bool = False, name: str | None = None) -> Tensor:
    """The inverse of each matrix, or of its adjoint. It fails when one is not invertible."""
    return gen_ops.matrix_inverse(input, adjoint=adjoint, name=name)


@export(v1=("matrix_solve", "linalg.solve"), v2="linalg.solve")
def matrix_solve(matrix: Any, rhs: Any, adjoint: bool = False, name: str | None = None) -> Tensor:
    """x with matrix x = rhs, for each matrix, or its adjoint."""
    return gen_ops.matrix_solve(matrix, rhs, adjoint=adjoint, name=name)


@export(v1=("matrix_triangular_solve", "linalg.triangular_solve"), v2="linalg.triangular_solve")
def matrix_triangular_solve(
    matrix: Any, rhs: Any, lower: bool = True, adjoint: bool = False, name: str | None = None
) -> Tensor:
    """x with matrix x = rhs, for triangular matrices; the other triangle is not looked at."""
    return gen_ops.matrix_triangular_solve(matrix, rhs, lower=lower, adjoint=adjoint, name=name)


@export(v1=("matrix_solve_ls", "linalg.lstsq"), v2="linalg.lstsq")
def matrix_solve_ls(
    matrix: Any, rhs: Any, l2_regularizer: float = 0.0, fast: bool = True, name: str | None = None
) -> Tensor:
    """x that makes |matrix x - rhs|^2 + l2_regularizer |x|^2 least, for each matrix.

    `fast` solves the normal equations by a Cholesky decomposition; otherwise a slower and more
    accurate way is taken, which also gives the least x for matrices that are not of full rank.
    """
    if not fast:
        return gen_ops.matrix_solve_ls(matrix, rhs, l2_regularizer, fast=fast, name=name)
    with name_scope(name, "matrix_solve_ls", [matrix, rhs]):
        matrix = convert_to_tensor(matrix, name="matrix")
        rhs = convert_to_tensor(rhs, name="rhs", dtype=matrix.dtype.base_dtype)
        rows, columns = matrix.shape.as_list()[-2:] if matrix.shape.ndims else (None, None)
        if rows is None or columns is None:
            return gen_ops.matrix_solve_ls(matrix, rhs, l2_regularizer, fast=fast)
        if rows >= columns:
            chol = _regularised_gram(matrix, l2_regularizer, True, columns)
            return cholesky_solve(chol, matmul(matrix, rhs, adjoint_a=True))
        chol = _regularised_gram(matrix, l2_regularizer, False, rows)
        return matmul(matrix, cholesky_solve(chol, rhs), adjoint_a=True)


def _regularised_gram(matrix: Tensor, l2_regularizer: Any, first: bool, side: int) -> Tensor:
    """The Cholesky decomposition of A^H A (or A A^H) + l2_regularizer I."""
    gram = matmul(matrix, matrix, adjoint_a=first, adjoint_b=not first)
    if l2_regularizer != 0:
        small = eye(side, dtype=matrix.dtype.base_dtype)
        gram = gram + small * convert_to_tensor(l2_regularizer, dtype=matrix.dtype.base_dtype)
    return cholesky(gram)


@export(v1=("qr", "linalg.qr"), v2="linalg.qr")
def qr(input: Any, full_matrices: bool = False, name: str | None = None) -> Any:
    """(q, r) with q r = input for each matrix, q orthogonal and r upper triangular."""
    return gen_ops.qr(input, full_matrices=full_matrices, name=name)


@export(v1=("svd", "linalg.svd"), v2="linalg.svd")
def svd(
    tensor: Any, full_matrices: bool = False, compute_uv: bool = True, name: str | None = None
) -> Any:
    """(s, u, v) with u diag(s) v^H = tensor for each matrix; only s without `compute_uv`."""
    s, u, v = gen_ops.svd(tensor, compute_uv=compute_uv, full_matrices=full_matrices, name=name)
    s = math.real(s)
    return (s, u, v) if compute_uv else s


@export(v1=("self_adjoint_eig", "linalg.eigh"), v2="linalg.eigh")
def self_adjoint_eig(tensor: Any, name: str | None = None) -> tuple[Tensor, Tensor]:
    """The eigenvalues, in rising order, and eigenvectors of each self-adjoint matrix."""
    e, v = gen_ops.self_adjoint_eig_v2(tensor, compute_v=True, name=name)
    return e, v


@export(v1=("self_adjoint_eigvals", "linalg.eigvalsh"), v2="linalg.eigvalsh")
def self_adjoint_eigvals(tensor: Any, name: str | None = None) -> Tensor:
    """The eigenvalues, in rising order, of each self-adjoint matrix."""
    e, _ = gen_ops.self_adjoint_eig_v2(tensor, compute_v=False, name=name)
    return e


@export(v1="linalg.slogdet", v2="linalg.slogdet")
def slogdet(input: Any, name: str | None = None) -> Any:
    """The sign and the logarithm of the absolute value of the determinant of each matrix."""
    return gen_ops.log_matrix_determinant(input, name=name)


@export(v1="linalg.logdet", v2="linalg.logdet")
def logdet(matrix: Any, name: str | None = None) -> Tensor:
    """The logarithm of the determinant of each positive definite matrix."""
    with name_scope(name, "logdet", [matrix]):
        diagonal = math.real(matrix_diag_part(cholesky(matrix)))
        return 2.0 * reduce_sum(gen_ops.log(diagonal), [-1])


@export(v1=("cross", "linalg.cross"), v2="linalg.cross")
def cross(a: Any, b: Any, name: str | None = None) -> Tensor:
    """The cross product of vectors of three elements in the last dimension."""
    return gen_ops.cross(a, b, name=name)


# Norms.

_MATRIX_ORDERS = ("euclidean", "fro", 1, 2, np.inf)


def _norm_axes(axis: Any) -> Any:
    """None, an int, or a pair of them. ValueError for any other."""
    if axis is None or isinstance(axis, (int, np.integer)):
        return axis
    axes = tuple(axis) if isinstance(axis, (list, tuple)) else (axis,)
    whole = all(isinstance(a, (int, np.integer)) for a in axes)
    if not whole or len(axes) not in (1, 2) or (len(axes) == 2 and axes[0] == axes[1]):
        raise ValueError(
            f"'axis' must be None, an integer, or a tuple of 2 unique integers, got {axis!r}"
        )
    return axes if len(axes) == 2 else axes[0]


@export(v1=("norm", "linalg.norm"), v2=("norm", "linalg.norm"))
def norm(
    tensor: Any, ord: Any = "euclidean", axis: Any = None, keepdims: bool | None = None,
    name: str | None = None, keep_dims: bool | None = None,
) -> Tensor:  # fmt: skip
    """The norm of vectors (`axis` an int), of matrices (`axis` two ints), or of the whole tensor.

    `ord`: "euclidean", a positive number, np.inf; "fro", 1, 2 and np.inf for matrices. ValueError
    for any other.
    """
    keep = keeps(keepdims, keep_dims)
    axes = _norm_axes(axis)
    of_matrices = isinstance(axes, tuple)
    if of_matrices and ord not in _MATRIX_ORDERS:
        raise ValueError(f"'ord' must be a supported matrix norm in {_MATRIX_ORDERS}, got {ord}")
    is_number = isinstance(ord, (int, float, np.number)) and ord > 0
    if not of_matrices and ord != "euclidean" and not is_number:
        raise ValueError(
            f"'ord' must be a supported vector norm: 'euclidean' or a positive number, got {ord}"
        )
    with name_scope(name, "norm", [tensor]):
        tensor = convert_to_tensor(tensor)
        if of_matrices and ord == 2:
            result = _spectral_norm(tensor, axes)
        else:
            result = _norm_kept(tensor, ord, axes, of_matrices)
        if keep:
            return result
        return gen_ops.squeeze(result, [] if axes is None else list(np.atleast_1d(axes)))


def _norm_kept(tensor: Tensor, ord: Any, axes: Any, of_matrices: bool) -> Tensor:
    """The norm with the reduced dimensions kept."""
    over = None if axes is None else list(axes) if of_matrices else [axes]
    if ord in ("fro", "euclidean", 2):
        squares = tensor * math.conj(tensor)
        return gen_ops.sqrt(reduce_sum(squares, over, keepdims=True))
    size = math.abs(tensor)
    if of_matrices:
        within, between = (axes[0], axes[1]) if ord == 1 else (axes[1], axes[0])
        return reduce_max(reduce_sum(size, [within], keepdims=True), [between], keepdims=True)
    if ord == 1:
        return reduce_sum(size, over, keepdims=True)
    if ord == np.inf:
        return reduce_max(size, over, keepdims=True)
    return gen_ops.pow(reduce_sum(gen_ops.pow(size, ord), over, keepdims=True), 1.0 / ord)


def _spectral_norm(tensor: Tensor, axes: tuple[int, int]) -> Tensor:
    """The greatest singular value, with the two dimensions kept."""
    rank = tensor.shape.ndims
    if rank is None:
        raise ValueError(f"norm of order 2 needs a tensor of known rank, got '{label_of(tensor)}'")
    first, second = axes[0] % rank, axes[1] % rank
    rest = [i for i in range(rank) if i not in (first, second)]
    order = [*rest, first, second]
    singular = svd(gen_ops.transpose(tensor, order), compute_uv=False)
    greatest = gen_ops.expand_dims(reduce_max(singular, [-1], keepdims=True), -1)
    return gen_ops.transpose(greatest, [int(i) for i in np.argsort(order)])


@export(v1="linalg.normalize", v2="linalg.normalize")
def normalize(
    tensor: Any, ord: Any = "euclidean", axis: Any = None, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """The tensor divided by its norm, and that norm."""
    with name_scope(name, "normalize", [tensor]):
        tensor = convert_to_tensor(tensor)
        size = math.cast(norm(tensor, ord, axis, keepdims=True), tensor.dtype)
        return tensor / size, size


# Sums of products.


@export(v1=("tensordot", "linalg.tensordot"), v2=("tensordot", "linalg.tensordot"))
def tensordot(a: Any, b: Any, axes: Any, name: str | None = None) -> Tensor:
    """The sum of products over dimensions of a and b, as NumPy has it.

    `axes`: how many (the last of a and the first of b), or a pair of lists of dimensions.
    """
    with name_scope(name, "Tensordot", [a, b, axes]) as scope:
        a = convert_to_tensor(a, name="a")
        b = convert_to_tensor(b, name="b")
        a_axes, b_axes = _contracted(a, axes)
        a_matrix, a_free, a_static = _as_matrix(a, a_axes, False)
        b_matrix, b_free, b_static = _as_matrix(b, b_axes, True)
        product = matmul(a_matrix, b_matrix)
        if isinstance(a_free, list) and isinstance(b_free, list):
            if product.shape.as_list() == a_free + b_free:
                return product
            return gen_ops.reshape(product, a_free + b_free, name=scope)
        shape = gen_ops.concat_v2(
            [convert_to_tensor(a_free, dtypes.int32), convert_to_tensor(b_free, dtypes.int32)], 0
        )
        out = gen_ops.reshape(product, shape, name=scope)
        if a_static is not None and b_static is not None:
            out.set_shape(a_static + b_static)
        return out


def _contracted(a: Tensor, axes: Any) -> tuple[Any, Any]:
    """The dimensions of a and of b to sum over: lists of ints, or tensors."""
    if isinstance(axes, (int, np.integer)):
        count = int(axes)
        if count < 0:
            raise ValueError(f"'axes' must be at least 0, got {count}")
        if a.shape.ndims is not None:
            if count > a.shape.ndims:
                raise ValueError(
                    "'axes' must not be larger than the number of dimensions of tensor "
                    f"'{label_of(a)}' "
                    f"of shape {a.shape}, got {count}"
                )
            return list(range(a.shape.ndims - count, a.shape.ndims)), list(range(count))
        rank = gen_ops.rank(a)
        return gen_ops.range(rank - count, rank, 1), gen_ops.range(0, count, 1)
    if isinstance(axes, (list, tuple, np.ndarray)):
        if len(axes) != 2:
            raise ValueError(f"'axes' must be an integer or have length 2, got {axes!r}")
        pair = []
        for part in axes:
            known = constant_value(part) if isinstance(part, Tensor) else part
            pair.append(part if known is None else [int(i) for i in np.atleast_1d(known)])
        if all(isinstance(p, list) for p in pair) and len(pair[0]) != len(pair[1]):
            raise ValueError(
                f"Different number of contraction axes 'a' and 'b', {len(pair[0])} != "
                f"{len(pair[1])}."
            )
        return pair[0], pair[1]
    axes = convert_to_tensor(axes, name="axes", dtype=dtypes.int32)
    known = constant_value(axes)
    return (axes[0], axes[1]) if known is None else _contracted(a, known.tolist())


def _as_matrix(t: Tensor, axes: Any, first: bool) -> tuple[Tensor, Any, Any]:
    """t as a matrix with the contracted dimensions first or last; its other sizes; their shape."""
    if isinstance(axes, list) and t.shape.ndims is not None:
        rank = t.shape.ndims
        for axis in axes:
            if not -rank <= axis < rank:
                raise IndexError(
                    f"tensordot: '{label_of(t)}' of shape {t.shape} ({t.dtype.name}) has no "
                    "dimension "
                    f"{axis}"
                )
        axes = [a % rank for a in axes]
        free = [i for i in range(rank) if i not in axes]
        sizes = sizes_of(t)
        order = axes + free if first else free + axes
        inner = product_of([sizes[a] for a in axes])
        outer = product_of([sizes[f] for f in free])
        if order != list(range(rank)):
            t = gen_ops.transpose(t, order)
        shape = [inner, outer] if first else [outer, inner]
        if t.shape.as_list() != shape:
            t = gen_ops.reshape(t, shape)
        free_sizes = [sizes[f] for f in free]
        static = [s if isinstance(s, int) else None for s in free_sizes]
        known = free_sizes if None not in static else convert_to_tensor(free_sizes, dtypes.int32)
        return t, known, static
    shape = gen_ops.shape(t)
    rank = gen_ops.rank(t)
    axes = convert_to_tensor(axes, dtype=dtypes.int32, name="axes")
    axes = gen_ops.floor_mod(axes + rank, rank)
    free = gen_ops.list_diff(gen_ops.range(0, rank, 1), axes)[0]
    sizes = gen_ops.gather(shape, free)
    inner = gen_ops.prod(gen_ops.gather(shape, axes), [0])
    outer = gen_ops.prod(sizes, [0])
    order = gen_ops.concat_v2([axes, free] if first else [free, axes], 0)
    matrix = gen_ops.reshape(
        gen_ops.transpose(t, order), gen_ops.pack([inner, outer] if first else [outer, inner])
    )
    return matrix, sizes, None
