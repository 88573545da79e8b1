"""Input pipelines: datasets, which are values of the graph, and iterators over them."""
