"""TensorFlow 2's forms of functions whose arguments it renamed or put in another order."""
