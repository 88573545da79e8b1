"""Commands of `millrace`, about files. Nothing of it is loaded before a command needs it."""
