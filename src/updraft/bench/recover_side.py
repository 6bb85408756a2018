"""Updraft's side of `recover`: a keyed state with a payload on a cluster whose workers are killed while it counts."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import updraft as ud
from updraft.bench.filled import write_updates
from updraft.bench.live_side import EVENTS, Stalled, cluster_session
from updraft.bench.recover import PAYLOAD_BYTES
from updraft.cluster.executors import executors
from updraft.cluster.processes import send
from updraft.operators.base import Columns
from updraft.runtime.live import LiveTopology
from updraft.sinks import Sink
from updraft.state import inspect

OPERATOR = "count"
_PATIENCE_S = 240.0


class Padded(ud.KeyedOperator):
    """Counts the rows of a key beside a payload that only gives the state its size."""

    state: ClassVar[Columns | None] = {"count": pa.int64(), "payload": pa.binary(PAYLOAD_BYTES)}
    output: ClassVar[Columns | None] = {"key": pa.int64(), "count": pa.int64()}

    def process(self, rows: pa.Table, ctx: ud.Context) -> pa.Table:
        touched = rows.group_by("key", use_threads=False).aggregate([("value", "count")])
        key = touched.select(["key"])
        before = pc.fill_null(ctx.state.get(key).values.column("count"), 0)
        counted = key.append_column("count", pc.add(before, touched.column("value_count")))
        ctx.state.put(counted.append_column("payload", payload(key.column("key").to_numpy())))
        return counted


def payload(keys: np.ndarray[Any, np.dtype[np.int64]]) -> pa.Array:
    """The key's bytes over and over: a compressing store would gain from it, ours does not compress."""
    repeated = np.ascontiguousarray(np.repeat(keys, PAYLOAD_BYTES // 8))
    return pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(PAYLOAD_BYTES), len(keys), [None, pa.py_buffer(repeated)]
    )


def padded_topology(request: dict[str, Any], replicas: int, sink: Sink) -> ud.Topology:
    """One stateful operator over the shared input."""
    app = ud.Topology("recover")

    def read(spark: SparkSession) -> DataFrame:
        reader = spark.readStream.option("maxFilesPerTrigger", 1)
        return reader.format("parquet").schema("key long, value long").load(request["input"])

    counted = (
        app.source("events", read, schema=EVENTS)
        .key_by("key")
        .process(
            Padded(),
            name=OPERATOR,
            tasks=request["tasks"],
            parallelism=request["parallelism"],
            replicas=replicas,
        )
    )
    counted.sink("out", sink)
    return app


class Watched:
    """Batches with the moment of their commit and the workers of their plan."""

    def __init__(self) -> None:
        self.ended: list[tuple[int, float, int]] = []
        self.workers: dict[int, frozenset[str]] = {}
        self.last = -1
        self._grown = threading.Condition()

    def __call__(self, batch: ud.BatchSummary) -> None:
        assert batch.plan is not None
        with self._grown:
            self.ended.append((batch.batch_id, time.time(), batch.rows_in))
            self.workers[batch.batch_id] = frozenset(w for w in batch.plan.primaries().values() if w)
            self.last = batch.batch_id
            self._grown.notify_all()

    def wait_for(self, batch: int) -> None:
        with self._grown:
            while self.last < batch:
                if not self._grown.wait(_PATIENCE_S):
                    raise Stalled(f"no batch for {_PATIENCE_S:.0f} s; the last one is {self.last}")

    def first_without(self, lost: frozenset[str], after: int) -> int:
        """The first batch after that one whose plan has none of these workers."""
        for batch in range(after + 1, after + 1_000):
            self.wait_for(batch)
            if not self.workers[batch] & lost:
                return batch
        raise Stalled("no batch went on without the lost workers")


def recover(request: dict[str, Any]) -> dict[str, Any]:
    """Fill the state, let copies follow, kill, and again."""
    scratch, label = Path(request["scratch"]), request["label"]
    spark = cluster_session(request["master"])
    request = {**request, "app": spark.sparkContext.applicationId}
    try:
        watched, stop, out = Watched(), threading.Event(), ud.sinks.memory()
        result: dict[str, Any] = {}

        def work(live: LiveTopology) -> None:
            try:
                watched.wait_for(request["fill"] + request["warm"] - 1)
                result["kills"] = [_kill(request, live, watched, count) for count in request["kills"]]
            except Exception as error:
                result["problem"] = f"{type(error).__name__}: {error}"
            finally:
                stop.set()

        def start(live: LiveTopology) -> None:
            threading.Thread(target=work, args=(live,), daemon=True).start()

        checkpoint = scratch / f"recover-{label}"
        ran = ud.run(
            padded_topology(request, request["replicas"], out),
            spark=spark,
            checkpoint=checkpoint,
            progress=watched,
            stop=stop,
            on_start=start,
            policy="static",
        )
        if "problem" in result:
            raise RuntimeError(result["problem"])
        (table,) = inspect.summary(checkpoint).tables
        state = inspect.scan(checkpoint, OPERATOR).select(["key", "count"])
        pq.write_table(state, scratch / f"recover-{label}.parquet")
        return {
            "kills": result["kills"],
            "batches": watched.ended,
            "last_batch": ran.last_batch,
            "state_bytes": table.bytes,
            "updates": write_updates(out.batches, scratch / f"updates-{label}.parquet"),
            "state": str(scratch / f"recover-{label}.parquet"),
        }
    finally:
        spark.stop()


def _kill(request: dict[str, Any], live: LiveTopology, watched: Watched, count: int) -> dict[str, Any]:
    """Wait until workers and copies are as they should be and the pace is steady; kill in the middle of a batch."""
    _until(lambda: len(live.status()["workers"]) >= request["parallelism"], "workers are missing")
    _until(lambda: live.status()["copies"]["missing"] == 0, "copies are missing")
    batch = watched.last
    _until(lambda: live.status()["copies"]["through_batch"] > batch, "copies do not follow")
    _until(lambda: live.status()["change"] is None, "a change does not end")
    settled = watched.last + 1
    watched.wait_for(settled + request["settled"])
    (name, home) = (request["cluster"], Path(request["home"]))
    victims = sorted(live.job.plan.workers())[:count]
    processes = [executors(name, home, request["app"])[victim] for victim in victims]
    watched.wait_for(watched.last + 1)
    last_before = watched.last
    time.sleep((live.status()["median_batch_ms"] or 300.0) / 2000)
    known = len(_recoveries(live))
    killed_s = time.time()
    for process in processes:
        send(process, signal.SIGKILL)
    resumed = watched.first_without(frozenset(victims), last_before)
    resumed_s = next(at for batch, at, _ in watched.ended if batch == resumed)
    _until(lambda: len(_recoveries(live)) > known, "no recovery was recorded")
    _until(lambda: _recoveries(live)[known]["outcome"] != "running", "copies are not rebuilt")
    watched.wait_for(resumed + request["after"])
    return {
        "workers": victims,
        "settled": settled,
        "last_before": last_before,
        "killed_s": killed_s,
        "resumed_batch": resumed,
        "resumed_s": resumed_s,
        "record": _recoveries(live)[known],
    }


def _recoveries(live: LiveTopology) -> list[dict[str, Any]]:
    assert live.journal is not None
    records = [record.to_json() for record in live.journal.records()]
    return [one for one in reversed(records) if one["request"]["kind"] == "recover"]


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise Stalled(what)
        time.sleep(0.1)
