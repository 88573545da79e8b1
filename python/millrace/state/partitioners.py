"""Partitioners: functions from the shape and type of a variable to the number of parts along each
dimension."""

from typing import Any, Callable

from millrace.core import dtypes
from millrace.core.export import export
from millrace.core.shapes import TensorShape


@export(v1="fixed_size_partitioner")
def fixed_size_partitioner(num_shards: int, axis: int = 0) -> Callable[..., list[int]]:
    """Cuts `axis` into `num_shards` parts, or as many as it is long."""

    def partitioner(shape: Any, **_: Any) -> list[int]:
        shape = TensorShape(shape)
        parts = [1] * shape.ndims
        parts[axis] = min(num_shards, shape.as_list()[axis])
        return parts

    return partitioner


def _element_bytes(dtype: dtypes.DType, bytes_per_string_element: int) -> int:
    dtype = dtypes.as_dtype(dtype)
    return bytes_per_string_element if dtype is dtypes.string else dtype.size


@export(v1="variable_axis_size_partitioner")
def variable_axis_size_partitioner(
    max_shard_bytes: int, axis: int = 0, bytes_per_string_element: int = 16,
    max_shards: int | None = None,
) -> Callable[..., list[int]]:  # fmt: skip
    """Cuts `axis` into parts of at most `max_shard_bytes`, and at most `max_shards` of them."""
    if max_shard_bytes < 1 or bytes_per_string_element < 1:
        raise ValueError(
            "Both max_shard_bytes and bytes_per_string_element must be positive, got "
            f"{max_shard_bytes} and {bytes_per_string_element}."
        )
    if max_shards and max_shards < 1:
        raise ValueError(f"max_shards must be positive, got {max_shards}.")

    def partitioner(shape: Any, dtype: Any) -> list[int]:
        if not isinstance(shape, TensorShape):
            raise ValueError(f"shape is not a TensorShape: {shape}")
        if not shape.is_fully_defined():
            raise ValueError(f"shape is not fully defined: {shape}")
        if not isinstance(dtype, dtypes.DType):
            raise ValueError(f"dtype is not a DType: {dtype}")
        dims = shape.as_list()
        parts = [1] * len(dims)
        row = (shape.num_elements() // dims[axis]) * _element_bytes(dtype, bytes_per_string_element)
        if row > max_shard_bytes:
            count = dims[axis]
        else:
            count = -(-dims[axis] // max(1, max_shard_bytes // row))
        if max_shards:
            count = min(max_shards, count)
        parts[axis] = count
        return parts

    return partitioner


@export(v1="min_max_variable_partitioner")
def min_max_variable_partitioner(
    max_partitions: int = 1, axis: int = 0, min_slice_size: int = 256 << 10,
    bytes_per_string_element: int = 16,
) -> Callable[..., list[int]]:  # fmt: skip
    """Cuts `axis` into as many parts of at least `min_slice_size` bytes as there are, at most
    `max_partitions`."""

    def partitioner(shape: Any, dtype: Any) -> list[int]:
        if axis >= len(shape):
            raise ValueError(
                f"Cannot partition variable along axis {axis} when shape is only {shape}"
            )
        total = shape.num_elements() * _element_bytes(dtype, bytes_per_string_element)
        parts = [1] * len(shape)
        whole = max(1, total // min_slice_size)
        parts[axis] = max(1, min(shape.as_list()[axis], max_partitions, whole))
        return parts

    return partitioner
