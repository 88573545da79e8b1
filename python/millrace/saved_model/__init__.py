"""Models as folders: a graph with its variables, files and signatures."""

from millrace.core.face import part_of_v2

__getattr__ = part_of_v2("saved_model")
