"""Input pipelines: datasets, which are values of the graph, and iterators over them."""

from millrace.core.face import part_of_v2

__getattr__ = part_of_v2("data")
