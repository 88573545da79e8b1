"""TensorFlow-compatible interfaces."""
