"""The native sides: stock Structured Streaming, RocksDB, changelog checkpointing, update mode, noop sink.

Every function here runs in a process of its own (see `side.py`), takes one plain request and returns one
plain result. Final state is read back with Spark's own `statestore` reader for verification.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from updraft.bench.spark import TriggerLog, file_name, native_session, socket_batches, steady_rows_per_s


def throughput(request: dict[str, Any]) -> dict[str, Any]:
    """Steady rate of each workload of the request, one after the other in one warm JVM."""
    spark = native_session()
    try:
        return {work["name"]: _run(spark, work, Path(request["scratch"])) for work in request["workloads"]}
    finally:
        spark.stop()


def counts(spark: SparkSession, work: dict[str, Any]) -> DataFrame:
    """The streaming count of a workload, as a Spark user would write it."""
    source = spark.readStream.option("maxFilesPerTrigger", work["files_per_batch"])
    if work["kind"] == "text":
        lines = source.format("text").load(work["input"])
        words = lines.select(sf.explode(sf.split("value", " ")).alias("word"))
        return words.groupBy("word").count()
    events = source.format("parquet").schema("key long, value long").load(work["input"])
    return events.groupBy("key").count()


def _run(spark: SparkSession, work: dict[str, Any], scratch: Path) -> dict[str, Any]:
    spark.conf.set("spark.sql.shuffle.partitions", work["native_partitions"])
    log = TriggerLog(spark)
    checkpoint = scratch / f"native-{file_name(work['name'])}"
    query = (
        counts(spark, work)
        .writeStream.outputMode("update")
        .format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    triggers = log.triggers
    return {
        "rows_per_s": steady_rows_per_s(
            triggers, warm=work["warm_batches"], rows_per_batch=work["rows_per_batch"]
        ),
        "batch_ms": [trigger.duration_ms for trigger in triggers],
        "state": str(
            _dump_state(spark, checkpoint, scratch / f"native-{file_name(work['name'])}.parquet", work["key"])
        ),
    }


def _dump_state(
    spark: SparkSession, checkpoint: Path, target: Path, key: str, *, batch_id: int | None = None
) -> Path:
    reader = spark.read.format("statestore")
    if batch_id is not None:
        reader = reader.option("batchId", batch_id)
    state = reader.load(str(checkpoint))
    table = state.select(sf.col(f"key.{key}").alias("key"), sf.col("value.count").alias("count")).toArrow()
    pq.write_table(table, target)
    return target


def state_size(request: dict[str, Any]) -> dict[str, Any]:
    """Durations of the small batches of each state size."""
    results = throughput(request)
    for work in request["workloads"]:
        results[work["name"]]["steady_ms"] = results[work["name"]]["batch_ms"][work["warm_batches"] :]
    return results


def latency(request: dict[str, Any]) -> dict[str, Any]:
    """Which rows of the paced socket load each batch held, and when it ended."""
    spark = native_session()
    scratch = Path(request["scratch"])
    spark.conf.set("spark.sql.shuffle.partitions", request["instances"])
    log = TriggerLog(spark)
    try:
        lines = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", request["port"])
        keyed = lines.load().selectExpr(f"cast(value AS long) % {request['keys']} AS key")
        writer = keyed.groupBy("key").count().writeStream.outputMode("update").format("noop")
        query = writer.option("checkpointLocation", str(scratch / "native-latency")).start()
        log.wait_for(request["warm_batches"])
        time.sleep(request["measure_s"])
        query.stop()
        last = log.triggers[-1].batch_id
        target = scratch / "native.parquet"
        return {
            **socket_batches(log.triggers),
            "state": str(_dump_state(spark, scratch / "native-latency", target, "key", batch_id=last)),
        }
    finally:
        spark.stop()
