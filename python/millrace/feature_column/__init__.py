"""Columns: how the features of an example become the input of a model."""
