"""The native side of `rescale`: stop the query, let Spark rewrite its state for other partitions, start it again.

As kind to stock Spark as can be: it runs after Updraft in the same session, so that driver and executors are warm and stay
up, the query is stopped when it has nothing left
to do (a stop in mid-batch would throw that batch's work away), and nobody has to notice or type anything.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from updraft.bench.spark import NATIVE_STATE, Trigger, TriggerLog

_PATIENCE_S = 600.0
_POLL_S = 0.03  # at most so much of a stall is our own reaction time


def rescale(spark: SparkSession, request: dict[str, Any]) -> dict[str, Any]:
    """Batches under each number of partitions, with stop, repartition and restart between."""
    scratch = Path(request["scratch"])
    checkpoint = scratch / "native-rescale"
    feed = _Feed(Path(request["input"]), scratch / "native-input")
    stages = []
    first, *targets = request["parallelism"]
    _make_stock(spark, partitions=first)
    repartition_s, last = 0.0, -1
    for stage, partitions in enumerate([first, *targets]):
        if stage:
            started = time.perf_counter()
            spark._streamingCheckpointManager.repartition(str(checkpoint), partitions, False)
            repartition_s = time.perf_counter() - started
            last += 1  # Spark writes the repartitioned state as a batch of its own
        batches = request["between"] + (request["fill"] + request["warm"] if not stage else 0)
        feed.give(batches)
        last += batches
        triggers = _run_until(spark, str(feed.directory), checkpoint, last_batch=last)
        stages.append(
            {
                "partitions": partitions,
                "repartition_s": repartition_s,
                "triggers": [(one.batch_id, one.ended_s, one.rows) for one in triggers],
            }
        )
    state = spark.read.format("statestore").load(str(checkpoint))
    dumped = state.select(sf.col("key.key").alias("key"), sf.col("value.count").alias("count")).toArrow()
    target = scratch / "native-rescale.parquet"
    pq.write_table(dumped, target)
    return {"stages": stages, "state": str(target), "files": feed.given}


def _make_stock(spark: SparkSession, *, partitions: int) -> None:
    """Stock Spark in the session Updraft ran in: RocksDB with changelog, and tasks that do not wait for one executor."""
    for name, value in NATIVE_STATE.items():
        spark.conf.set(name, value)
    spark.conf.set("spark.sql.shuffle.partitions", partitions)
    # Read anew for every stage. To wait an hour suits only a plan that knows why: native's state partitions would
    # queue up where the first ones happened to be loaded.
    spark.sparkContext._jsc.sc().conf().set("spark.locality.wait.process", "3s")


class _Feed:
    """Makes more of the shared input files visible, in order; hard links keep their modification times."""

    def __init__(self, source: Path, directory: Path) -> None:
        self._paths = sorted(source.glob("part-*.parquet"))
        self.directory = directory
        self.given = 0
        directory.mkdir()

    def give(self, files: int) -> None:
        for path in self._paths[self.given : self.given + files]:
            os.link(path, self.directory / path.name)
        self.given += files


def _run_until(spark: SparkSession, source: str, checkpoint: Path, *, last_batch: int) -> tuple[Trigger, ...]:
    """Start the query and stop it as soon as it has finished that batch, the last it has files for."""
    log = TriggerLog(spark)
    reader = spark.readStream.option("maxFilesPerTrigger", 1).format("parquet")
    counted = reader.schema("key long, value long").load(source).groupBy("key").count()
    writer = counted.writeStream.outputMode("update").format("noop")
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    _await_batch(query, last_batch)
    query.stop()
    return tuple(trigger for trigger in log.triggers if trigger.rows)


def _await_batch(query: StreamingQuery, batch: int) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    report = None
    while time.monotonic() < deadline:
        if not query.isActive:
            raise RuntimeError(f"the native query ended: {query.exception()}")
        report = query._jsq.lastProgress()
        if report is not None and report.batchId() >= batch:
            return
        time.sleep(_POLL_S)
    raise RuntimeError(
        f"the native query did not finish batch {batch} within {_PATIENCE_S:.0f} s; last report: {report}"
    )
