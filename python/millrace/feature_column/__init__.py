"""Columns: how the features of an example become the input of a model."""

from millrace.core.face import part_of_v2

__getattr__ = part_of_v2("feature_column")
