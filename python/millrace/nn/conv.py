"""Convolutions."""

from typing import Any

from millrace import gen_ops
from millrace._export import export
from millrace.graph.graph import Tensor


@export("nn.conv2d")
def conv2d(
    input: Any, filter: Any = None, strides: Any = None, padding: Any = None,
    use_cudnn_on_gpu: bool = True, data_format: str = "NHWC", dilations: Any = (1, 1, 1, 1),
    name: str | None = None, filters: Any = None,
) -> Tensor:  # fmt: skip
    """A two-dimensional convolution: images [batch, height, width, in] with filters
    [height, width, in, out].

    Args:
      strides: four sizes, in the order of `data_format`.
      padding: "SAME", "VALID", or four pairs of sizes.
      data_format: "NHWC" or "NCHW".
      dilations: how far apart the elements of a filter lie.
    """
    filter = filter if filters is None else filters
    explicit: list[int] = []
    if isinstance(padding, (list, tuple)):
        explicit = [int(p) for pair in padding for p in pair]
        padding = "EXPLICIT"
    return gen_ops.conv2d(
        input, filter, strides=list(strides), padding=padding, use_cudnn_on_gpu=use_cudnn_on_gpu,
        explicit_paddings=explicit, data_format=data_format or "NHWC", dilations=list(dilations),
        name=name,
    )  # fmt: skip
