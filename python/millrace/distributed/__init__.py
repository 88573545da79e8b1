"""Clusters of tasks, and training on them."""

from millrace.distributed.bounded_staleness import BoundedStaleness
from millrace.distributed.cluster import stop_cluster
from millrace.distributed.collective import all_gather, all_reduce, broadcast
from millrace.distributed.data_parallel import BroadcastVariablesHook, DistributedOptimizer
from millrace.distributed.environment import ClusterTask, cluster_from_environment
from millrace.distributed.read_ahead import ReadAhead
from millrace.distributed.world import init, rank, size

__all__ = [
    "BoundedStaleness", "BroadcastVariablesHook", "ClusterTask", "DistributedOptimizer",
    "ReadAhead", "all_gather", "all_reduce", "broadcast", "cluster_from_environment", "init",
    "rank", "size", "stop_cluster",
]  # fmt: skip
