"""The native sides: stock Structured Streaming, RocksDB state, changelog checkpointing, update mode, noop sink.

Every function here runs in a process of its own (see `side.py`), takes one plain request and returns one plain
result. Final state is read back with Spark's own `statestore` reader and written as Parquet for verification.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from updraft.bench.spark import TriggerLog, native_session, steady_rows_per_s


def throughput(request: dict[str, Any]) -> dict[str, Any]:
    """Steady rate of each workload of the request, one after the other in one warm JVM."""
    spark = native_session(partitions=request["partitions"])
    try:
        return {work["name"]: _run(spark, work, Path(request["scratch"])) for work in request["workloads"]}
    finally:
        spark.stop()


def counts(spark: SparkSession, work: dict[str, Any]) -> DataFrame:
    """The streaming count of a workload, as a Spark user would write it."""
    source = spark.readStream.option("maxFilesPerTrigger", work["files_per_batch"])
    if work["kind"] == "text":
        lines = source.format("text").load(work["input"])
        words = lines.select(F.explode(F.split("value", " ")).alias("word"))
        return words.groupBy("word").count()
    events = source.format("parquet").schema("key long, value long").load(work["input"])
    return events.groupBy("key").count()


def _run(spark: SparkSession, work: dict[str, Any], scratch: Path) -> dict[str, Any]:
    log = TriggerLog()
    spark.streams.addListener(log)
    checkpoint = scratch / f"native-{work['name']}"
    query = (
        counts(spark, work)
        .writeStream.outputMode("update")
        .format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    triggers = log.wait_for(work["batches"])
    spark.streams.removeListener(log)
    return {
        "rows_per_s": steady_rows_per_s(
            triggers, warm=work["warm_batches"], rows_per_batch=work["rows_per_batch"]
        ),
        "batch_ms": [trigger.duration_ms for trigger in triggers],
        "state": str(_dump_state(spark, checkpoint, scratch / f"native-{work['name']}.parquet", work["key"])),
    }


def _dump_state(spark: SparkSession, checkpoint: Path, target: Path, key: str) -> Path:
    state = spark.read.format("statestore").load(str(checkpoint))
    table = state.select(F.col(f"key.{key}").alias("key"), F.col("value.count").alias("count")).toArrow()
    pq.write_table(table, target)
    return target
