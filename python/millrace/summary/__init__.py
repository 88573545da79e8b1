"""Summaries: what programs tell of themselves while they train, and the files it goes to."""

from millrace.core.face import part_of_v2

__getattr__ = part_of_v2("summary")
