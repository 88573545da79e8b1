"""Functions on sparse tensors."""
