"""Updraft: elastic, stateful stream processing on Apache Spark, in Python.

import updraft as ud

app = ud.Topology("wordcount")
...
ud.run(app, checkpoint="checkpoints/wordcount")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from updraft import sinks
from updraft.errors import (
    CheckpointError,
    CheckpointInUse,
    InvalidTopology,
    OperatorFailed,
    UpdraftError,
)
from updraft.operators import Context, KeyedOperator, ObjectOperator, Table
from updraft.topology import KeyedStream, Stream, Topology
from updraft.topology.aggregates import count, max, mean, min, sum

if TYPE_CHECKING:
    from updraft.runtime.lifecycle import BatchSummary, RunResult, run

__version__ = "0.1.0"

__all__ = [
    "BatchSummary",
    "CheckpointError",
    "CheckpointInUse",
    "Context",
    "InvalidTopology",
    "KeyedOperator",
    "KeyedStream",
    "ObjectOperator",
    "OperatorFailed",
    "RunResult",
    "Stream",
    "Table",
    "Topology",
    "UpdraftError",
    "count",
    "max",
    "mean",
    "min",
    "run",
    "sinks",
    "sum",
]


def __getattr__(name: str) -> Any:
    # Spark is only imported by those who run something: building and testing a topology does not need it.
    if name in ("run", "RunResult", "BatchSummary"):
        from updraft.runtime import lifecycle

        return getattr(lifecycle, name)
    raise AttributeError(f"module 'updraft' has no attribute '{name}'")
