"""Diagonals and bands of matrices."""

from typing import Any

from millrace import gen_ops
from millrace.core.export import export
from millrace.core.tensor import Tensor

_PLAIN = {"k": 0, "num_rows": -1, "num_cols": -1, "padding_value": 0}


@export(v1=("diag", "linalg.tensor_diag"), v2="linalg.tensor_diag")
def diag(diagonal: Any, name: str | None = None) -> Tensor:
    """A tensor of twice the dimensions, with the elements of `diagonal` on its diagonal."""
    return gen_ops.diag(diagonal, name=name)


@export(v1=("diag_part", "linalg.tensor_diag_part"), v2="linalg.tensor_diag_part")
def diag_part(input: Any, name: str | None = None) -> Tensor:
    """The diagonal of a tensor whose dimensions come twice: undoes `diag`."""
    return gen_ops.diag_part(input, name=name)


@export(v1=("matrix_diag", "linalg.diag"), v2="linalg.diag")
def matrix_diag(
    diagonal: Any, name: str | None = "diag", k: Any = 0, num_rows: Any = -1, num_cols: Any = -1,
    padding_value: Any = 0, align: str = "RIGHT_LEFT",
) -> Tensor:  # fmt: skip
    """Matrices with the vectors of the last dimension on their diagonals.

    `k`: which diagonal, or the (lowest, highest) of several; `num_rows`, `num_cols`: the sizes of
    the matrices where they are not the smallest; `padding_value`: what stands elsewhere.
    """
    given = {"k": k, "num_rows": num_rows, "num_cols": num_cols, "padding_value": padding_value}
    if given == _PLAIN:
        return gen_ops.matrix_diag(diagonal, name=name)
    return gen_ops.matrix_diag_v3(
        diagonal, k, num_rows, num_cols, padding_value, align=align, name=name
    )


@export(v1=("matrix_diag_part", "linalg.diag_part"), v2="linalg.diag_part")
def matrix_diag_part(
    input: Any, name: str | None = "diag_part", k: Any = 0, padding_value: Any = 0,
    align: str = "RIGHT_LEFT",
) -> Tensor:  # fmt: skip
    """The diagonals of matrices. `k`: which, or the (lowest, highest) of several."""
    if isinstance(k, int) and k == 0:
        return gen_ops.matrix_diag_part(input, name=name)
    return gen_ops.matrix_diag_part_v3(input, k, padding_value, align=align, name=name)


@export(v1=("matrix_set_diag", "linalg.set_diag"), v2="linalg.set_diag")
def matrix_set_diag(
    input: Any, diagonal: Any, name: str | None = "set_diag", k: Any = 0, align: str = "RIGHT_LEFT"
) -> Tensor:
    """Matrices with other diagonals. `k`: which, or the (lowest, highest) of several."""
    if isinstance(k, int) and k == 0:
        return gen_ops.matrix_set_diag(input, diagonal, name=name)
    return gen_ops.matrix_set_diag_v3(input, diagonal, k, align=align, name=name)


@export(v1=("matrix_band_part", "linalg.band_part"), v2="linalg.band_part")
def matrix_band_part(input: Any, num_lower: Any, num_upper: Any, name: str | None = None) -> Tensor:
    """Matrices with zeros outside a band: `num_lower` diagonals below the main one, `num_upper`
    above it; negative numbers keep all."""
    return gen_ops.matrix_band_part(input, num_lower, num_upper, name=name)
