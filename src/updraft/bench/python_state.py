"""The same count in PySpark's own Python state API: `transformWithState` with a row-based StatefulProcessor.

Settings, source, trigger and measurement are those of the native side. It is orders of magnitude slower, so
the benchmark gives it fewer rows; its state is verified like the others'.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from updraft.bench.spark import TriggerLog, file_name, native_session, steady_rows_per_s


class CountRows(StatefulProcessor):
    """Running number of rows per key, kept in one ValueState; emits the new count of every touched key."""

    def __init__(self, key: str) -> None:
        self._key = key

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "count long")

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        before = self._count.get()
        count = (0 if before is None else before[0]) + sum(1 for _ in rows)
        self._count.update((count,))
        yield Row(**{self._key: key[0], "count": count})

    def close(self) -> None:
        pass


def throughput(request: dict[str, Any]) -> dict[str, Any]:
    """Steady rate of each workload of the request."""
    spark = native_session()
    try:
        return {work["name"]: _run(spark, work, Path(request["scratch"])) for work in request["workloads"]}
    finally:
        spark.stop()


def _run(spark: SparkSession, work: dict[str, Any], scratch: Path) -> dict[str, Any]:
    spark.conf.set("spark.sql.shuffle.partitions", work["native_partitions"])
    log = TriggerLog(spark)
    checkpoint = scratch / f"python-{file_name(work['name'])}"
    source = spark.readStream.option("maxFilesPerTrigger", work["files_per_batch"])
    if work["kind"] == "text":
        lines = source.format("text").load(work["input"])
        rows, key_type = lines.select(sf.explode(sf.split("value", " ")).alias("word")), "string"
    else:
        rows, key_type = source.format("parquet").schema("key long, value long").load(work["input"]), "long"
    key = work["key"]
    counted = rows.groupBy(key).transformWithState(
        CountRows(key), outputStructType=f"{key} {key_type}, count long", outputMode="Update", timeMode="None"
    )
    writer = counted.writeStream.outputMode("update").format("noop")
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    triggers = log.triggers
    state = spark.read.format("statestore").option("stateVarName", "count").load(str(checkpoint))
    target = scratch / f"python-{file_name(work['name'])}.parquet"
    dumped = state.select(sf.col(f"key.{key}").alias("key"), sf.col("value.count").alias("count"))
    pq.write_table(dumped.toArrow(), target)
    return {
        "rows_per_s": steady_rows_per_s(
            triggers, warm=work["warm_batches"], rows_per_batch=work["rows_per_batch"]
        ),
        "batch_ms": [trigger.duration_ms for trigger in triggers],
        "state": str(target),
    }
