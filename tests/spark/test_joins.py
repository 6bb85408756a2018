"""Joins and deduplication against Structured Streaming's own answers on the same input, row by row, also after crashes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

import updraft as ud
from updraft.testing import ABORT, END, MemorySink, Outcome, ScriptedSource, memory, run_script

pytestmark = pytest.mark.spark

EVENTS = pa.schema(
    [("side", pa.string()), ("k", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("n", pa.int64())]
)
EPOCH = datetime(2026, 3, 29, tzinfo=UTC)
DELAY = "20 seconds"


def script(seed: int, batches: int = 8, rows: int = 60) -> list[pa.Table]:
    """Bursts out of order, late rows, duplicates, null keys; the last batch closes everything before it."""
    rng = random.Random(seed)
    made, number = [], 0
    for batch in range(batches):
        table = []
        for _ in range(rng.choice([1, rows])):
            second = batch * 30 + rng.uniform(-60, 30)
            key = rng.choice([None, *range(12)])
            table.append(
                {"side": rng.choice("lr"), "k": key, "ts": EPOCH + timedelta(seconds=second), "n": number}
            )
            number += rng.choice([0, 1])
        made.append(pa.Table.from_pylist(table, schema=EVENTS))
    end = EPOCH + timedelta(days=1)
    closing = [{"side": side, "k": -ord(side), "ts": end, "n": -1} for side in "lr"]
    return [*made, pa.Table.from_pylist(closing, schema=EVENTS)]


def side(name: str) -> Callable[[Any], Any]:
    def chosen(frame: DataFrame) -> DataFrame:
        return frame.where(sql.col("side") == name).select("k", "ts", "n")

    return chosen


def native(
    spark: SparkSession, tables: list[pa.Table], query: Callable[[DataFrame], DataFrame], path: Path
) -> Counter[Any]:
    """Structured Streaming's rows, given one table at a time, so that every watermark is used before the next rows come."""
    source = ScriptedSource(EVENTS, [item for table in tables for item in (table, END)])
    rows: Counter[Any] = Counter()

    def collect(frame: DataFrame, batch_id: int) -> None:
        rows.update(tuple(row) for row in frame.collect())

    writer = query(source.frame(spark)).writeStream.foreachBatch(collect).outputMode("append")
    running = writer.option("checkpointLocation", str(path)).start()
    try:
        running.processAllAvailable()
        while not source.exhausted:
            source.open_scene()
            running.processAllAvailable()
    finally:
        running.stop()
    return rows


def counted(out: MemorySink) -> Counter[Any]:
    return Counter(
        tuple(v.astimezone(UTC).replace(tzinfo=None) if isinstance(v, datetime) else v for v in row.values())
        for row in out.table().to_pylist()
    )


def joining(out: MemorySink, how: str, **options: Any) -> Callable[[ScriptedSource], ud.Topology]:
    def build(source: ScriptedSource) -> ud.Topology:
        app = ud.Topology("ads")
        events = app.source("events", source.frame)
        left = events.transform(side("l")).with_watermark("ts", DELAY)
        right = events.transform(side("r")).with_watermark("ts", DELAY)
        joined = left.key_by("k").join(
            right.map(_renamed).key_by("rk"), within=("-10 seconds", "5 seconds"), how=how, time=("ts", "rts"),
            name="joined", tasks=4, **options,
        )  # fmt: skip
        joined.sink("out", out)
        return app

    return build


def _renamed(rows: pa.Table) -> pa.Table:
    return rows.rename_columns(["rk", "rts", "rn"])


def native_join(how: str) -> Callable[[DataFrame], DataFrame]:
    def query(frame: DataFrame) -> DataFrame:
        left = side("l")(frame).withWatermark("ts", DELAY)
        right = side("r")(frame).toDF("rk", "rts", "rn").withWatermark("rts", DELAY)
        bound = "k = rk AND rts >= ts - INTERVAL 10 SECONDS AND rts <= ts + INTERVAL 5 SECONDS"
        return left.join(right, sql.expr(bound), how)

    return query


@pytest.mark.parametrize(
    ("how", "native_how", "seed"), [("inner", "inner", 1), ("left", "leftOuter", 2), ("left", "leftOuter", 3)]
)
def test_joins_equal_structured_streaming(
    spark: SparkSession, tmp_path: Path, how: str, native_how: str, seed: int
) -> None:
    tables = script(seed)
    expected = native(spark, tables, native_join(native_how), tmp_path / "native")
    out = memory()
    run = run_script(
        joining(out, how, parallelism=2),
        ScriptedSource(EVENTS, tables),
        checkpoint=tmp_path / "updraft",
        spark=spark,
    )
    assert run.outcome is Outcome.ENDED
    assert counted(out) == expected
    assert any(row[3] is not None for row in expected)
    if how == "left":
        assert any(row[3] is None for row in expected)
        assert any(row[0] is None for row in expected)


def test_anti_is_what_left_leaves_unmatched(spark: SparkSession, tmp_path: Path) -> None:
    tables = script(4)
    outer = native(spark, tables, native_join("leftOuter"), tmp_path / "native")
    expected = Counter({row[:3]: times for row, times in outer.items() if row[3] is None})
    out = memory()
    run_script(
        joining(out, "anti"), ScriptedSource(EVENTS, tables), checkpoint=tmp_path / "updraft", spark=spark
    )
    assert counted(out) == expected


@pytest.mark.parametrize("how", ["left", "anti"])
def test_a_join_goes_on_after_crashes(spark: SparkSession, tmp_path: Path, how: str) -> None:
    """Rows wait on both sides when the driver crashes, ends, and comes back with another parallelism."""
    tables = script(5)
    straight, broken = memory(), memory()
    run_script(
        joining(straight, how), ScriptedSource(EVENTS, tables), checkpoint=tmp_path / "one", spark=spark
    )
    items: list[Any] = [*tables[:3], ABORT, *tables[3:5], END, *tables[5:7], ABORT, *tables[7:]]
    source = ScriptedSource(EVENTS, items)
    for parallelism in (1, 3, 2, 4):
        build = joining(broken, how, parallelism=parallelism)
        run_script(build, source, checkpoint=tmp_path / "two", spark=spark)
    assert source.exhausted
    assert counted(broken) == counted(straight)


def test_deduplicate_equals_structured_streaming(spark: SparkSession, tmp_path: Path) -> None:
    tables = script(6)

    def query(frame: DataFrame) -> DataFrame:
        timed = side("l")(frame).coalesce(1).withWatermark("ts", DELAY)
        return timed.dropDuplicatesWithinWatermark(["k"])

    expected = native(spark, tables, query, tmp_path / "native")
    out = memory()

    def build(source: ScriptedSource) -> ud.Topology:
        app = ud.Topology("once")
        left = app.source("events", source.frame).transform(side("l")).with_watermark("ts", DELAY)
        left.deduplicate("k", within=DELAY, tasks=4, parallelism=2).sink("out", out)
        return app

    source = ScriptedSource(EVENTS, [*tables[:4], ABORT, *tables[4:]])
    run_script(build, source, checkpoint=tmp_path / "updraft", spark=spark)
    run_script(build, source, checkpoint=tmp_path / "updraft", spark=spark)
    assert counted(out) == expected
    assert sum(expected.values()) < sum(table.num_rows for table in tables) / 2


def test_global_top_k_of_counts(spark: SparkSession, tmp_path: Path) -> None:
    tables = script(7)
    out = memory()

    def build(source: ScriptedSource) -> ud.Topology:
        app = ud.Topology("best")
        counts = app.source("events", source.frame).key_by("k").count("n", name="counts", tasks=4)
        counts.top_k(3, by="n", id="k", name="best", tasks=4, parallelism=2).sink("out", out)
        return app

    source = ScriptedSource(EVENTS, [*tables[:4], ABORT, *tables[4:]])
    run_script(build, source, checkpoint=tmp_path, spark=spark)
    run_script(build, source, checkpoint=tmp_path, spark=spark)
    counts = Counter(row["k"] for table in tables for row in table.to_pylist())
    best = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0] is None, pair[0] or 0))[:3]
    newest = out.latest("rank")
    assert [(newest[n]["k"], newest[n]["n"]) for n in (1, 2, 3)] == best


def test_static_tables_by_spark_and_by_arrow(spark: SparkSession, tmp_path: Path) -> None:
    tables = script(8)
    names = spark.createDataFrame([(n, f"ad {n}") for n in range(0, 12, 2)], "k long, title string").cache()
    prices = pa.table({"k": pa.array(range(0, 12, 3), pa.int64()), "price": pa.array([5, 6, 7, 8])})
    out = memory()

    def build(source: ScriptedSource) -> ud.Topology:
        app = ud.Topology("titles")
        titled = app.source("events", source.frame).join_static(names, on="k", how="left")
        titled.filter(_known).join_static(prices, on="k").sink("out", out)
        return app

    run_script(build, ScriptedSource(EVENTS, tables), checkpoint=tmp_path, spark=spark)
    rows = [row for table in tables for row in table.to_pylist()]
    expected = Counter((r["k"], r["n"], f"ad {r['k']}", 5 + r["k"] // 3) for r in rows if r["k"] in (0, 6))
    got = Counter((r["k"], r["n"], r["title"], r["price"]) for r in out.table().to_pylist())
    assert got == expected


def _known(rows: pa.Table) -> pa.ChunkedArray:
    return rows["title"].is_valid()
