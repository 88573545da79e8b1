"""Signals: frames, windows, Fourier transforms and what is made of them."""
