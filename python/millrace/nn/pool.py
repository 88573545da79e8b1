"""Pooling."""

from typing import Any

from millrace import gen_ops
from millrace._export import export
from millrace.graph.convert import convert_to_tensor
from millrace.graph.graph import Tensor, name_scope


@export("nn.max_pool")
def max_pool(
    value: Any, ksize: Any, strides: Any, padding: str, data_format: str = "NHWC",
    name: str | None = None, input: Any = None,
) -> Tensor:  # fmt: skip
    """The largest element of each window."""
    value = value if input is None else input
    with name_scope(name, "MaxPool", [value]) as scope:
        value = convert_to_tensor(value, name="input")
        return gen_ops.max_pool(value, ksize=ksize, strides=strides, padding=padding,
                                data_format=data_format, name=scope)  # fmt: skip


@export("nn.avg_pool")
def avg_pool(
    value: Any, ksize: Any, strides: Any, padding: str, data_format: str = "NHWC",
    name: str | None = None, input: Any = None,
) -> Tensor:  # fmt: skip
    """The mean of each window, of those elements that are there."""
    value = value if input is None else input
    with name_scope(name, "AvgPool", [value]) as scope:
        value = convert_to_tensor(value, name="input")
        return gen_ops.avg_pool(value, ksize=ksize, strides=strides, padding=padding,
                                data_format=data_format, name=scope)  # fmt: skip
