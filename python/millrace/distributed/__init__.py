"""Clusters of tasks, and training on them."""
