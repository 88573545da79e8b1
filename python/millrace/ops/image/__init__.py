"""Functions on images: [height, width, channels], or batches of them."""
