"""Names that programs know as tf.contrib: argument scopes, layers, sequences, settings."""
