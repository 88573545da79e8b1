"""Models as folders: a graph with its variables, files and signatures."""
