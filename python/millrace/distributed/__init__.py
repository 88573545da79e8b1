"""Clusters of tasks, and training on them."""

from millrace.distributed.cluster import stop_cluster
from millrace.distributed.environment import ClusterTask, cluster_from_environment

__all__ = ["ClusterTask", "cluster_from_environment", "stop_cluster"]
