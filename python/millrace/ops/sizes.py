"""Ranks and sizes of tensors: numbers where they are known, tensors where they are not."""

from typing import Any

from millrace import gen_ops
from millrace.core.tensor import Tensor


def rank_of(x: Tensor) -> Any:
    """The number of dimensions: an int where it is known, a tensor otherwise."""
    known = x.shape.ndims
    return gen_ops.rank(x) if known is None else known


def sizes_of(x: Tensor) -> list[Any]:
    """The size of each dimension: ints where known, tensors otherwise. The rank must be known."""
    dims = x.shape.as_list()
    if None not in dims:
        return dims
    shape = gen_ops.shape(x)
    return [shape[i] if d is None else d for i, d in enumerate(dims)]


def product_of(sizes: list[Any]) -> Any:
    """The product of sizes that are ints or scalar tensors."""
    known = 1
    unknown = None
    for size in sizes:
        if isinstance(size, int):
            known *= size
        else:
            unknown = size if unknown is None else unknown * size
    if unknown is None:
        return known
    return unknown if known == 1 else unknown * known
