"""What is measured: batches into a store, and from there into what policies see."""

from updraft.monitor.model import BatchMetrics, InstanceWork, SourceWork, Traffic, WorkerUse
from updraft.monitor.prometheus import Endpoint, Totals, render
from updraft.monitor.snapshot import OperatorShape, Shape, snapshot_of
from updraft.monitor.store import MetricsStore, MetricsUnreadable, read_metrics

__all__ = [
    "BatchMetrics",
    "Endpoint",
    "InstanceWork",
    "MetricsStore",
    "MetricsUnreadable",
    "OperatorShape",
    "Shape",
    "SourceWork",
    "Totals",
    "Traffic",
    "WorkerUse",
    "read_metrics",
    "render",
    "snapshot_of",
]
