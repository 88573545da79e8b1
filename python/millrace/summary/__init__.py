"""Summaries: what programs tell of themselves while they train, and the files it goes to."""
