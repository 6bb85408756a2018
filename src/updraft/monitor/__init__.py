"""What is measured: batches into a store, and from there into what policies see."""

from updraft.monitor.model import BatchMetrics, InstanceWork, SourceWork, Traffic, WorkerUse
from updraft.monitor.snapshot import OperatorShape, Shape, snapshot_of

__all__ = [
    "BatchMetrics",
    "InstanceWork",
    "OperatorShape",
    "Shape",
    "SourceWork",
    "Traffic",
    "WorkerUse",
    "snapshot_of",
]
