"""Saving variables and graphs, and getting them back."""
