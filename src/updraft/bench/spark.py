"""What every side of a benchmark shares: Spark settings, the session, and the one instrument that measures.

Fairness rests on this file. Both sides get the same settings, including those that make Structured Streaming
itself quicker on a local disk (checkpoint file manager without shell commands, no checksum files, unix domain
sockets to Python). Both sides are measured by what Spark reports about a trigger (its start and its whole
duration, with listing, logs and commit), never by what Updraft says about itself.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
# Spark keeps its reports of that many triggers for `TriggerLog`; the default of 100 may be too few.
REPORTS: Mapping[str, str] = {"spark.sql.streaming.numRecentProgressUpdates": "10000"}
NATIVE_STATE: Mapping[str, str] = {
    "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}

# On a cluster of this machine: small executors, and a driver that only this machine reaches.
ON_CLUSTER: Mapping[str, str] = {
    "spark.executor.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

# Updraft's worker daemon is part of Updraft, not a setting of Spark.
_NOT_FOR_NATIVE = frozenset({"spark.python.daemon.module"})


def shared_settings() -> dict[str, str]:
    """Settings of both sides: those `updraft.runtime` starts Spark with."""
    from updraft.runtime.session import settings

    return {**settings(), **REPORTS}


def native_session(master: str = "local[2]") -> SparkSession:
    """Stock Spark with RocksDB and changelog checkpointing, and the settings Updraft runs with."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName("updraft-bench-native")
    for name, value in {**shared_settings(), **NATIVE_STATE}.items():
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


class TriggerLog:
    """The triggers of the next query that starts on a session, as Spark itself recorded them.

    Not a Python listener: py4j needs hundreds of calls to hand one progress report over, a tenth of a second of
    processor time per batch that the batch itself would have had.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._query: Any = None
        self._found = threading.Event()
        threading.Thread(target=self._find, daemon=True).start()

    def _find(self) -> None:
        while self._query is None:
            active = self._spark.streams.active
            if active:
                self._query = active[0]._jsq
                self._found.set()
            else:
                time.sleep(0.02)

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        """Those that ran a batch, in order."""
        self._found.wait(60)
        seen: dict[int, Trigger] = {}
        for report in self._query.recentProgress():
            progress = json.loads(report.json())
            if "addBatch" not in progress["durationMs"]:
                continue
            source = progress["sources"][0]
            trigger = Trigger(
                batch_id=progress["batchId"],
                rows=progress["numInputRows"],
                started_s=datetime.fromisoformat(progress["timestamp"]).timestamp(),
                duration_ms=progress["batchDuration"],
                offsets=(_offset(source["startOffset"]), _offset(source["endOffset"])),
            )
            seen.setdefault(trigger.batch_id, trigger)
        return tuple(seen[batch_id] for batch_id in sorted(seen))

    def wait_for(self, batch_id: int, timeout_s: float = 60) -> None:
        """Wait until that batch is done."""
        deadline = time.monotonic() + timeout_s
        self._found.wait(timeout_s)
        while time.monotonic() < deadline:
            last = self._query.lastProgress()
            if last is not None and last.batchId() >= batch_id:
                return
            time.sleep(0.1)


def _offset(value: Any) -> str | None:
    return None if value is None else str(value)


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
