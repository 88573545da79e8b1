"""Functions on tensors, by family."""
