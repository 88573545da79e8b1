"""Printing from a graph."""

from typing import Any

from millrace._export import export
from millrace.graph.graph import Tensor


@export("Print")
def Print(
    input_: Any, data: Any, message: str | None = None, first_n: int | None = None,
    summarize: int | None = None, name: str | None = None,
) -> Tensor:  # fmt: skip
    """`input_`, and the values of `data` on the standard error stream each time it is computed.

    Args:
      message: what to print in front.
      first_n: print only so many times.
      summarize: how many elements of each tensor to print; 3 by default.
    """
    from millrace import gen_ops

    return gen_ops.print(
        input_, data, message or "", -1 if first_n is None else first_n,
        3 if summarize is None else summarize, name=name or "Print",
    )  # fmt: skip
