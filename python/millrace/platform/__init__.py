"""What surrounds a program: its command line, log, files and text encodings."""
