"""The native side of `recover`: the same aggregation in stock Spark, and one executor killed in the middle of a batch."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from updraft.bench.recover import PAYLOAD_BYTES
from updraft.bench.spark import NATIVE_STATE, ON_CLUSTER, TriggerLog, shared_settings
from updraft.cluster.executors import executors
from updraft.cluster.processes import send

_PATIENCE_S = 600.0
_NOT_NATIVE = ("spark.python.daemon.module", "spark.locality.wait.process")


def recover(request: dict[str, Any]) -> dict[str, Any]:
    """Fill the state, let the pace settle, kill one executor, and watch."""
    scratch, label = Path(request["scratch"]), request["label"]
    spark = native_cluster_session(request["master"], request["parallelism"])
    try:
        log = TriggerLog(spark)
        reader = spark.readStream.option("maxFilesPerTrigger", 1).format("parquet")
        events = reader.schema("key long, value long").load(request["input"])
        padded = sf.expr(f"rpad(cast(key as string), {PAYLOAD_BYTES}, 'x')")
        counted = events.groupBy("key").agg(
            sf.count("*").alias("count"), sf.max(padded.alias("payload")).alias("payload")
        )
        checkpoint = scratch / f"native-recover-{label}"
        writer = counted.select("key", "count").writeStream.outputMode("update").format("noop")
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        last = request["fill"] + request["warm"] + request["settled"]
        log.wait_for(last, _PATIENCE_S)
        usual_ms = _last(query).batchDuration()
        app = spark.sparkContext.applicationId
        found = executors(request["cluster"], Path(request["home"]), app)
        victim = found[min(found)]
        log.wait_for(_last(query).batchId() + 1, _PATIENCE_S)
        time.sleep(usual_ms / 2000)
        killed_s = time.time()
        send(victim, signal.SIGKILL)
        log.wait_for(_last(query).batchId() + request["native_after"], _PATIENCE_S)
        query.stop()  # in the middle of a batch, of which nothing counts
        triggers = [one for one in log.triggers if one.rows]
        state = spark.read.format("statestore").load(str(checkpoint))
        dumped = state.select(sf.col("key.key").alias("key"), sf.col("value.count").alias("count")).toArrow()
        pq.write_table(dumped, scratch / f"native-recover-{label}.parquet")
        return {
            "killed_s": killed_s,
            "triggers": [(one.batch_id, one.ended_s, one.rows) for one in triggers],
            "files": len(list((checkpoint / "commits").glob("[0-9]*"))),
            "state": str(scratch / f"native-recover-{label}.parquet"),
        }
    finally:
        spark.stop()


def _last(query: StreamingQuery) -> Any:
    return query._jsq.lastProgress()


def native_cluster_session(master: str, partitions: int) -> SparkSession:
    """Stock Spark on a cluster of this machine, with as many state partitions as there are workers."""
    builder = SparkSession.builder.master(master).appName("updraft-bench-native")
    for name, value in {**shared_settings(), **NATIVE_STATE, **ON_CLUSTER}.items():
        if name not in _NOT_NATIVE:
            builder = builder.config(name, value)
    spark = builder.config("spark.sql.shuffle.partitions", partitions).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
