"""A real Spark standalone cluster on this machine, from the pip-installed Spark."""

from updraft.cluster.local import (
    LocalCluster,
    add_node,
    down,
    local_cluster,
    prepare,
    quick_start,
    remove_node,
    run_in_foreground,
    up,
)
from updraft.cluster.record import default_home, names
from updraft.cluster.status import ClusterStatus, NodeStatus, status, status_of

__all__ = [
    "ClusterStatus",
    "LocalCluster",
    "NodeStatus",
    "add_node",
    "default_home",
    "down",
    "local_cluster",
    "names",
    "prepare",
    "quick_start",
    "remove_node",
    "run_in_foreground",
    "status",
    "status_of",
    "up",
]
