"""The windowed workloads in Updraft, through the public API; filters and the choice of columns are left to Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import updraft as ud
from updraft.apps.generators.ads import Ads
from updraft.apps.generators.draws import TIME
from updraft.apps.generators.nexmark import AUCTION, BID, PERSON, Nexmark
from updraft.apps.nexmark import has_both
from updraft.bench.spark import TriggerLog, file_name
from updraft.bench.updraft_side import session
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
from updraft.bench.window_native import Work, measurement, read

BIDS = pa.schema([("ts", TIME), ("auction", pa.int64())])
JOINERS = pa.schema([("ts", TIME), ("person", pa.int64()), ("name", pa.string()), ("auction", pa.int64())])
VIEWS = pa.schema([("ts", TIME), ("ad_id", pa.string())])


def throughput(request: dict[str, Any]) -> dict[str, Any]:
    """Steady rate of each workload of the request, one after the other in one warm JVM."""
    spark = session()
    try:
        scratch = Path(request["scratch"])
        return {work["kind"]: _run(spark, work, scratch) for work in request["workloads"]}
    finally:
        spark.stop()


def sliding(app: ud.Topology, work: Work) -> ud.Stream:
    clicks = app.source("clicks", lambda spark: read(spark, work, CLICKS), schema=CLICKS)
    windows = clicks.with_watermark("ts", DELAY_S).key_by("key").window(ud.sliding(SIZE_S, SLIDE_S))
    return windows.count("n", name="count", parallelism=work["instances"])


def top_k(app: ud.Topology, work: Work) -> ud.Stream:
    scores = app.source("scores", lambda spark: read(spark, work, SCORES), schema=SCORES)
    return scores.key_by("key").top_k(K, "value", name="best", parallelism=work["instances"])


def q5(app: ud.Topology, work: Work) -> ud.Stream:
    def bids(spark: SparkSession) -> DataFrame:
        return read(spark, work, Nexmark.schema).where(f"kind = {BID}").select("ts", "auction")

    timed = app.source("bids", bids, schema=BIDS).with_watermark("ts")
    windows = timed.key_by("auction").window(ud.sliding(HOT_SIZE_S, HOT_SLIDE_S))
    counts = windows.count("bids", name="count", parallelism=work["instances"]).key_by("window_start")
    return counts.top_k(1, "bids", id="auction", name="hottest", parallelism=1)


def q8(app: ud.Topology, work: Work) -> ud.Stream:
    def joiners(spark: SparkSession) -> DataFrame:
        """New persons have a name, sellers of new auctions an auction; keyed alike."""
        found = read(spark, work, Nexmark.schema).where(f"kind IN ({PERSON}, {AUCTION})")
        is_person = f"kind = {PERSON}"
        return found.selectExpr(
            "ts",
            f"if({is_person}, id, person) AS person",
            "name",
            f"if({is_person}, NULL, id) AS auction",
        )

    timed = app.source("joiners", joiners, schema=JOINERS).with_watermark("ts")
    met = (
        timed.key_by("person")
        .window(ud.tumbling(TUMBLING_S))
        .aggregate(
            {"name": ud.max("name"), "auctions": ud.count("auction")},
            name="met",
            parallelism=work["instances"],
        )
    )
    return met.filter(has_both, name="both")


def yahoo(app: ud.Topology, work: Work) -> ud.Stream:
    campaigns = pq.read_table(campaigns_of(Path(work["input"]))).select(["ad_id", "campaign_id"])

    def views(spark: SparkSession) -> DataFrame:
        return read(spark, work, Ads.schema).where("event_type = 'view'").select("ts", "ad_id")

    timed = app.source("views", views, schema=VIEWS).with_watermark("ts")
    windows = timed.join_static(campaigns, on="ad_id").key_by("campaign_id").window(ud.tumbling(TUMBLING_S))
    return windows.count("views", name="count", parallelism=work["instances"])


QUERIES: Mapping[str, Callable[[ud.Topology, Work], ud.Stream]] = {
    "sliding": sliding,
    "top-k": top_k,
    "q5": q5,
    "q8": q8,
    "yahoo": yahoo,
}


def topology(work: Work, output: str) -> ud.Topology:
    """One workload with its sink."""
    app = ud.Topology(f"bench-{work['kind']}")
    QUERIES[work["kind"]](app, work).sink("out", ud.sinks.parquet(output))
    return app


def _run(spark: SparkSession, work: Work, scratch: Path) -> dict[str, Any]:
    name = file_name(work["kind"])
    output = scratch / f"updraft-output-{name}"
    log = TriggerLog(spark)
    checkpoint = scratch / f"updraft-{name}"
    ud.run(topology(work, str(output)), spark=spark, checkpoint=checkpoint, until_idle=True)
    return measurement(log, work, output)
