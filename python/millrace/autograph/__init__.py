"""AutoGraph: control flow of Python programs over tensors, rewritten from their source."""

from millrace.core.face import part_of_v2

__getattr__ = part_of_v2("autograph")
