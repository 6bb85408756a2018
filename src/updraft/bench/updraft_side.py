"""Updraft's sides, through the public API: the same sources, batches and measurement as the native sides.

Output goes to `ud.sinks.discard()`, the counterpart of Spark's noop sink: rows are made, counted and dropped.
Final state is read back from the checkpoint's newest commit, as `updraft state` reads it.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import updraft as ud
from updraft.apps.wordcount import LINES, WORDS, split_words
from updraft.bench.spark import REPORTS, TriggerLog, file_name, socket_batches, steady_rows_per_s
from updraft.runtime.session import start_session
from updraft.state import inspect

EVENTS = pa.schema([("key", pa.int64()), ("value", pa.int64())])
TASKS = 32


def session() -> SparkSession:
    """Updraft's own session on two cores."""
    spark, _ = start_session("updraft-bench", master="local[2]", conf=REPORTS)
    return spark


def throughput(request: dict[str, Any]) -> dict[str, Any]:
    """Steady rate of each workload of the request, one after the other in one warm JVM."""
    spark = session()
    try:
        return {work["name"]: _measure(spark, request, work) for work in request["workloads"]}
    finally:
        spark.stop()


def state_size(request: dict[str, Any]) -> dict[str, Any]:
    """Durations of the small batches of each state size, and what the newest version occupies."""
    results = throughput(request)
    for work in request["workloads"]:
        results[work["name"]]["steady_ms"] = results[work["name"]]["batch_ms"][work["warm_batches"] :]
    return results


def latency(request: dict[str, Any]) -> dict[str, Any]:
    """Which rows of the paced socket load each batch held, and when it ended."""
    spark = session()
    log, stop = TriggerLog(spark), threading.Event()
    checkpoint = Path(request["scratch"]) / "updraft-latency"

    def end_when_measured() -> None:
        log.wait_for(request["warm_batches"])
        time.sleep(request["measure_s"])
        stop.set()

    threading.Thread(target=end_when_measured, daemon=True).start()
    try:
        ud.run(_socket_count(request), spark=spark, checkpoint=checkpoint, stop=stop, policy="static")
        target = Path(request["scratch"]) / "updraft.parquet"
        return {
            **socket_batches(log.triggers),
            "state": _dump_state(checkpoint, target, "key", batch_id=log.triggers[-1].batch_id),
        }
    finally:
        spark.stop()


def counts(work: dict[str, Any], instances: int) -> ud.Topology:
    """The streaming count of a workload, as an Updraft user would write it."""
    app = ud.Topology("count")

    def read(spark: SparkSession) -> DataFrame:
        reader = spark.readStream.option("maxFilesPerTrigger", work["files_per_batch"])
        if work["kind"] == "text":
            return reader.format("text").load(work["input"])
        return reader.format("parquet").schema("key long, value long").load(work["input"])

    if work["kind"] == "text":
        rows = app.source("lines", read, schema=LINES).map(split_words, name="split", schema=WORDS)
    else:
        rows = app.source("events", read, schema=EVENTS)
    counted = rows.key_by(work["key"]).count("count", name="count", tasks=TASKS, parallelism=instances)
    counted.sink("out", ud.sinks.discard())
    return app


def _socket_count(request: dict[str, Any]) -> ud.Topology:
    app = ud.Topology("latency")

    def read(spark: SparkSession) -> DataFrame:
        source = spark.readStream.format("socket").option("host", "127.0.0.1")
        return source.option("port", request["port"]).load()

    def keyed(lines: DataFrame) -> DataFrame:
        return lines.selectExpr(f"cast(value AS long) % {request['keys']} AS key")

    key = pa.schema([("key", pa.int64())])
    rows = app.source("lines", read, schema=LINES).transform(keyed, schema=key)
    counted = rows.key_by("key").count("count", name="count", tasks=TASKS, parallelism=request["instances"])
    counted.sink("out", ud.sinks.discard())
    return app


def _measure(spark: SparkSession, request: dict[str, Any], work: dict[str, Any]) -> dict[str, Any]:
    log = TriggerLog(spark)
    scratch = Path(request["scratch"])
    checkpoint = scratch / f"updraft-{file_name(work['name'])}"
    ud.run(counts(work, request["instances"]), spark=spark, checkpoint=checkpoint, until_idle=True)
    triggers = log.triggers
    (table,) = inspect.summary(checkpoint).tables
    return {
        "rows_per_s": steady_rows_per_s(
            triggers, warm=work["warm_batches"], rows_per_batch=work["rows_per_batch"]
        ),
        "batch_ms": [trigger.duration_ms for trigger in triggers],
        "state": _dump_state(checkpoint, scratch / f"updraft-{file_name(work['name'])}.parquet", work["key"]),
        "checkpoint_bytes": table.bytes,
    }


def _dump_state(checkpoint: Path, target: Path, key: str, *, batch_id: int | None = None) -> str:
    state = inspect.scan(checkpoint, "count", batch=batch_id)
    # State holds the aggregation's partials under names of their own; a count has exactly one.
    (partial,) = (name for name in state.column_names if name != key)
    pq.write_table(pa.table({"key": state.column(key), "count": state.column(partial)}), target)
    return str(target)
