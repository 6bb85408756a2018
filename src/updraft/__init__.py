"""Updraft: elastic, stateful stream processing on Apache Spark, in Python.

import updraft as ud

app = ud.Topology("wordcount")
...
ud.run(app, checkpoint="checkpoints/wordcount")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from updraft import sinks, testing
    from updraft.errors import (
        CheckpointError,
        CheckpointInUse,
        InvalidTopology,
        OperatorFailed,
        UpdraftError,
    )
    from updraft.operators import Context, KeyedOperator, ObjectOperator, Table
    from updraft.runtime.lifecycle import run
    from updraft.runtime.progress import BatchSummary, RunResult
    from updraft.runtime.several import run_all
    from updraft.topology import KeyedStream, Stream, Topology
    from updraft.topology.aggregates import (
        approx_count_distinct,
        collect,
        count,
        max,  # noqa: A004
        mean,
        min,  # noqa: A004
        sum,  # noqa: A004
    )
    from updraft.topology.windows import session, sliding, tumbling

__version__ = "0.1.0"

# Loaded when first used: `updraft --help` needs neither Arrow nor Spark, building a topology no Spark.
_HOMES = {
    "updraft.errors": (
        "CheckpointError",
        "CheckpointInUse",
        "InvalidTopology",
        "OperatorFailed",
        "UpdraftError",
    ),
    "updraft.operators": ("Context", "KeyedOperator", "ObjectOperator", "Table"),
    "updraft.runtime.lifecycle": ("run",),
    "updraft.runtime.several": ("run_all",),
    "updraft.runtime.progress": ("BatchSummary", "RunResult"),
    "updraft.topology": ("KeyedStream", "Stream", "Topology"),
    "updraft.topology.aggregates": (
        "approx_count_distinct",
        "collect",
        "count",
        "max",
        "mean",
        "min",
        "sum",
    ),
    "updraft.topology.windows": ("session", "sliding", "tumbling"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

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
    "approx_count_distinct",
    "collect",
    "count",
    "max",
    "mean",
    "min",
    "run",
    "run_all",
    "session",
    "sinks",
    "sliding",
    "sum",
    "testing",
    "tumbling",
]


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        return getattr(import_module(_HOME_OF[name]), name)
    if name in ("sinks", "testing"):
        return import_module(f"updraft.{name}")
    raise AttributeError(f"module 'updraft' has no attribute '{name}'")
