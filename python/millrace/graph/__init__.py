"""Graphs as Python programs build them: operations, tensors, contexts, conversion, gradients."""
