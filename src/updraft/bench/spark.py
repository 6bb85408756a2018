"""What every side of a benchmark shares: Spark settings, the session, and the one instrument that measures.

Fairness rests on this file. Both sides get the same settings, including those that make Structured Streaming
itself quicker on a local disk (checkpoint file manager without shell commands, no checksum files, unix domain
sockets to Python). Both sides are measured by the same `StreamingQueryListener`:
what Spark reports about a trigger (its start and its whole duration, with listing, logs and commit), never
what Updraft says about itself.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
NATIVE_STATE: Mapping[str, str] = {
    "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}

# RocksDB uploads snapshots through `FileSystem.getLocal`, which casts to LocalFileSystem: with the raw local
# file system every snapshot fails (ClassCastException), at once in transformWithState, unnoticed elsewhere.
# So native cannot have the raw one, and Updraft's side goes without it too.
SAME_FILE_SYSTEM: Mapping[str, str] = {"spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem"}
# Updraft's worker daemon is part of Updraft, not a setting of Spark.
_NOT_FOR_NATIVE = frozenset({"spark.python.daemon.module"})


def shared_settings() -> dict[str, str]:
    """Settings of both sides: those `updraft.runtime` starts Spark with."""
    from updraft.runtime.session import settings

    return settings()


def native_session(master: str = "local[2]") -> SparkSession:
    """Stock Spark with RocksDB and changelog checkpointing, and the settings Updraft runs with."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName("updraft-bench-native")
    for name, value in {**shared_settings(), **SAME_FILE_SYSTEM, **NATIVE_STATE}.items():
        if name not in _NOT_FOR_NATIVE:
            builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """One trigger as Spark reports it."""

    batch_id: int
    rows: int
    started_s: float
    duration_ms: int
    offsets: tuple[str | None, str | None] = (None, None)
    """Start and end offset of the first source, as it writes them."""

    @property
    def ended_s(self) -> float:
        return self.started_s + self.duration_ms / 1000


class TriggerLog(StreamingQueryListener):
    """Collects the triggers that ran a batch; add it as a listener before the query starts."""

    def __init__(self, on_trigger: Callable[[Trigger, Any], None] | None = None) -> None:
        self._seen: dict[int, Trigger] = {}
        self._on_trigger = on_trigger

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return tuple(self._seen[batch_id] for batch_id in sorted(self._seen))

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        progress = event.progress
        if "addBatch" not in progress.durationMs:
            return
        trigger = Trigger(
            batch_id=progress.batchId,
            rows=progress.numInputRows,
            started_s=datetime.fromisoformat(progress.timestamp).timestamp(),
            duration_ms=progress.batchDuration,
            offsets=(progress.sources[0].startOffset, progress.sources[0].endOffset),
        )
        self._seen.setdefault(trigger.batch_id, trigger)
        if self._on_trigger is not None:
            self._on_trigger(trigger, progress)

    def wait_for(self, batches: int, timeout_s: float = 10) -> tuple[Trigger, ...]:
        """Listener events arrive a little after the query ended; wait for the last one."""
        deadline = time.monotonic() + timeout_s
        while len(self._seen) < batches and time.monotonic() < deadline:
            time.sleep(0.02)
        return self.triggers


def steady_rows_per_s(triggers: Sequence[Trigger], *, warm: int, rows_per_batch: int) -> float:
    """Rows per second of wall clock from the start of the first steady batch to the end of the last one."""
    steady = triggers[warm:]
    if not steady:
        raise ValueError(f"{len(triggers)} batches ran, so none is left after {warm} warm-up batches")
    span_s = steady[-1].ended_s - steady[0].started_s
    return len(steady) * rows_per_batch / span_s


def file_name(workload: str) -> str:
    """A workload's name as part of a path: Spark's state reader finds no checkpoint whose path has a space."""
    return workload.replace(" ", "-")


def socket_batches(triggers: Sequence[Trigger]) -> dict[str, Any]:
    """(first row, last row, ended_s) of every batch that read from a socket source, and its duration."""
    batches = []
    for trigger in triggers:
        start, end = trigger.offsets
        if end is None or trigger.rows == 0:
            continue
        # The socket source's offset is the number of its newest row, -1 or nothing before the first.
        first = int(start) + 1 if start not in (None, "null") else 0
        batches.append((first, int(end), trigger.ended_s, trigger.duration_ms))
    return {"batches": [batch[:3] for batch in batches], "batch_ms": [batch[3] for batch in batches]}
