"""Clusters of Ray actors: `millrace.ray.run("train.py", workers=2, ps=1)`. Needs Ray."""

from millrace.ray.tasks import run

__all__ = ["run"]
