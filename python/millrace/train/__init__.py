"""Training: optimisers, schedules, averages, coordination."""

from millrace.core.face import part_of_v2

__getattr__ = part_of_v2("train")
