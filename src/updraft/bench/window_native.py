"""The windowed workloads in Structured Streaming, as a Spark user would write them: append mode, Parquet sink.

q5 is two aggregations, q8 two aggregations and a join of theirs on person and window, after the public definition: Spark chains
stateful operators in append mode. Top-k, which Spark does not have on streams, is a `StatefulProcessor` with rows.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from updraft.apps.generators.ads import Ads
from updraft.apps.generators.nexmark import AUCTION, BID, PERSON, Nexmark
from updraft.bench.spark import TriggerLog, file_name, native_session, steady_rows_per_s
from updraft.bench.window_input import (
    CLICKS,
    DELAY_S,
    HOT_SIZE_S,
    HOT_SLIDE_S,
    SCORES,
    SIZE_S,
    SLIDE_S,
    TUMBLING_S,
    K,
    campaigns_of,
)

Work = Mapping[str, Any]
_BOUNDS = ("window.start AS window_start", "window.end AS window_end")


def throughput(request: dict[str, Any]) -> dict[str, Any]:
    """Steady rate of each workload of the request, one after the other in one warm JVM."""
    spark = native_session()
    try:
        scratch = Path(request["scratch"])
        return {work["kind"]: _run(spark, work, scratch) for work in request["workloads"]}
    finally:
        spark.stop()


def read(spark: SparkSession, work: Work, schema: pa.Schema) -> DataFrame:
    """The stream of a workload's files, one a batch; both sides read with this."""
    reader = spark.readStream.option("maxFilesPerTrigger", 1).schema(from_arrow_schema(schema))
    return reader.parquet(work["input"])


def measurement(log: TriggerLog, work: Work, output: Path) -> dict[str, Any]:
    """What a side reports of a workload. Batches without rows, made to close windows at the end, do not count."""
    triggers = [trigger for trigger in log.triggers if trigger.rows]
    rate = steady_rows_per_s(triggers, warm=work["warm_batches"], rows_per_batch=work["rows_per_batch"])
    return {"rows_per_s": rate, "batch_ms": [t.duration_ms for t in triggers], "output": str(output)}


def sliding(spark: SparkSession, work: Work) -> DataFrame:
    clicks = read(spark, work, CLICKS).withWatermark("ts", f"{DELAY_S} seconds")
    window = sf.window("ts", f"{SIZE_S} seconds", f"{SLIDE_S} seconds").alias("window")
    return clicks.groupBy("key", window).agg(sf.count("*").alias("n")).selectExpr("key", *_BOUNDS, "n")


def top_k(spark: SparkSession, work: Work) -> DataFrame:
    return (
        read(spark, work, SCORES)
        .groupBy("key")
        .transformWithState(
            Best(),
            outputStructType="key long, rank int, item long, value long",
            outputMode="Append",
            timeMode="None",
        )
    )


def q5(spark: SparkSession, work: Work) -> DataFrame:
    bids = read(spark, work, Nexmark.schema).withWatermark("ts", "0 seconds").where(f"kind = {BID}")
    window = sf.window("ts", f"{HOT_SIZE_S} seconds", f"{HOT_SLIDE_S} seconds").alias("window")
    counts = bids.groupBy("auction", window).agg(sf.count("*").alias("bids"))
    # Of equally hot auctions the smallest number, as everywhere here: a result that can be compared.
    best = sf.max(sf.struct("bids", (-sf.col("auction")).alias("minus"))).alias("best")
    hottest = counts.groupBy("window").agg(best)
    return hottest.selectExpr(*_BOUNDS, "-best.minus AS auction", "best.bids")


def q8(spark: SparkSession, work: Work) -> DataFrame:
    events = read(spark, work, Nexmark.schema).withWatermark("ts", "0 seconds")
    window = sf.window("ts", f"{TUMBLING_S} seconds").alias("window")
    joined = events.where(f"kind = {PERSON}").groupBy(sf.col("id").alias("person"), "name", window)
    opened = events.where(f"kind = {AUCTION}").groupBy("person", window)
    people = joined.agg(sf.count("*").alias("times"))
    sellers = opened.agg(sf.count("*").alias("auctions"))
    return people.join(sellers, ["person", "window"]).selectExpr("person", "name", *_BOUNDS, "auctions")


def yahoo(spark: SparkSession, work: Work) -> DataFrame:
    window = sf.window("ts", f"{TUMBLING_S} seconds").alias("window")
    views = ad_views(spark, work).withWatermark("ts", "0 seconds")
    counts = views.groupBy("campaign_id", window).agg(sf.count("*").alias("views"))
    return counts.selectExpr("campaign_id", *_BOUNDS, "views")


def ad_views(spark: SparkSession, work: Work) -> DataFrame:
    """(ts, campaign_id) of views."""
    campaigns = spark.read.parquet(str(campaigns_of(Path(work["input"])))).cache()
    events = read(spark, work, Ads.schema).where("event_type = 'view'")
    return events.join(sf.broadcast(campaigns), "ad_id").select("ts", "campaign_id")


QUERIES: Mapping[str, Callable[[SparkSession, Work], DataFrame]] = {
    "sliding": sliding,
    "top-k": top_k,
    "q5": q5,
    "q8": q8,
    "yahoo": yahoo,
}


class Best(StatefulProcessor):
    """The list of a key in one ValueState; emits the whole list when it changed, as Updraft does."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._best = handle.getValueState("best", "value array<bigint>, item array<bigint>")

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        before = self._best.get()
        old = [] if before is None else list(zip(before[0], before[1], strict=True))
        fresh = ((row["value"], row["item"]) for row in rows)
        best = heapq.nsmallest(K, chain(old, fresh), key=lambda entry: (-entry[0], entry[1]))
        if best == old:
            return
        self._best.update(([value for value, _ in best], [item for _, item in best]))
        for rank, (value, item) in enumerate(best, start=1):
            yield Row(key=key[0], rank=rank, item=item, value=value)

    def close(self) -> None:
        pass


def _run(spark: SparkSession, work: Work, scratch: Path) -> dict[str, Any]:
    spark.conf.set("spark.sql.shuffle.partitions", work["partitions"])
    name = file_name(work["kind"])
    output = scratch / f"native-output-{name}"
    log = TriggerLog(spark)
    query = (
        QUERIES[work["kind"]](spark, work)
        .writeStream.outputMode("append")
        .format("parquet")
        .option("checkpointLocation", str(scratch / f"native-{name}"))
        .trigger(availableNow=True)
        .start(str(output))
    )
    query.awaitTermination()
    return measurement(log, work, output)
