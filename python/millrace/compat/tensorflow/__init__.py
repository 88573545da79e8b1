"""`import tensorflow`, answered by this package."""
