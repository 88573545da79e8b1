"""Neural networks: activations, convolutions, normalisation, losses, embeddings."""
