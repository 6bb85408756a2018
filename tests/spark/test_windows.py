"""Our windows and Structured Streaming's own over the same scripted batches, compared row by row and batch by batch."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import updraft as ud
from updraft.testing import ABORT, ScriptedSource, memory, run_script

pytestmark = pytest.mark.spark

S = 1_000_000
SCHEMA = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us", tz="UTC")), ("v", pa.int64())])
WINDOWS = {
    "tumbling": (ud.tumbling("10 seconds"), lambda: F.window("ts", "10 seconds")),
    "sliding": (
        ud.sliding("10 seconds", "4 seconds", offset="3 seconds"),
        lambda: F.window("ts", "10 seconds", "4 seconds", "3 seconds"),
    ),
    "session": (ud.session("5 seconds"), lambda: F.session_window("ts", "5 seconds")),
}
Rows = Counter[tuple[Any, ...]]


def batches() -> list[pa.Table]:
    """Out of order, late, duplicated, without time, without key; around a change to daylight saving."""
    rng = random.Random(5)
    night = 1_711_846_770 * S  # 2024-03-31 00:59:30 UTC
    made = []
    for number in range(8):
        rows = [
            (
                rng.choice(["a", "b", "c", None]),
                rng.choice([None, *[night + (number * 8 + rng.randrange(-25, 5)) * S] * 9]),
                rng.choice([None, 1, 2, 3]),
            )
            for _ in range(12)
        ]
        # Exactly the gap after another one, and further away.
        rows += [("touch", night + number * 5 * S, 1), ("lone", night + number * 9 * S, number)]
        rows += rows[:2]
        made.append(
            pa.table(
                [[r[i] for r in rows] for i in range(3)],
                schema=pa.schema([("k", pa.string()), ("ts", pa.int64()), ("v", pa.int64())]),
            ).cast(SCHEMA)
        )
    return made


def test_windows_equal_those_of_structured_streaming(spark: SparkSession, tmp_path: Path) -> None:
    tables = batches()
    native = run_native(spark, tmp_path, tables)
    source = ScriptedSource(SCHEMA, [*tables[:4], ABORT, *tables[4:]])
    sinks = {name: memory() for name in (*WINDOWS, "updates", "global")}
    late = memory()

    def build(source: ScriptedSource) -> ud.Topology:
        app = ud.Topology("windows")
        events = app.source("rows", source.frame).with_watermark("ts", "6 seconds")
        rows = events.key_by("k")
        for name, (window, _) in WINDOWS.items():
            windowed = rows.window(window)
            aggregated(windowed, name).sink(name, sinks[name])
            if name == "sliding":
                windowed.late().sink("late", late)
        updates = rows.window(WINDOWS["sliding"][0], emit="update")
        aggregated(updates, "updates").sink("updates", sinks["updates"])
        aggregated(events.window(WINDOWS["sliding"][0]), "global", tasks=1).sink("global", sinks["global"])
        return app

    def aggregated(windowed: Any, name: str, tasks: int = 4) -> ud.Stream:
        stream: ud.Stream = windowed.aggregate(
            n=ud.count(), total=ud.sum("v"), low=ud.min("v"), high=ud.max("v"), middle=ud.mean("v"),
            different=ud.approx_count_distinct("v"), every=ud.collect("v"), name=name, tasks=tasks,
        )  # fmt: skip
        return stream

    summaries = []
    while not source.exhausted:
        summaries += run_script(build, source, checkpoint=tmp_path / "checkpoint", spark=spark).batches
    assert [summary.batch_id for summary in summaries] == list(range(len(tables)))
    for name, sink in sinks.items():
        for batch in range(len(tables)):
            ours = Counter(comparable(row) for row in sink.batches[batch].to_pylist())
            assert ours == native[name][batch], (name, batch)
        assert sum(native[name].values(), Counter()).total() > (5 if name == "global" else 20)
    assert sum(s.late_rows.get("sliding", 0) for s in summaries) == late.table().num_rows > 3


def comparable(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(
        tuple(sorted(value))
        if isinstance(value, list)
        else value.timestamp()
        if hasattr(value, "timestamp")
        else value
        for value in row.values()
    )


def run_native(spark: SparkSession, path: Path, tables: list[pa.Table]) -> dict[str, dict[int, Rows]]:
    """Rows that Spark emits for each batch, by window and by batch."""
    found: dict[str, dict[int, Rows]] = {}
    (path / "in").mkdir()
    pq.write_table(SCHEMA.empty_table(), path / "in" / "schema.parquet")
    schema = spark.read.parquet(str(path / "in")).schema
    queries = {}
    emitted: dict[str, list[Any]] = {}
    for name in (*WINDOWS, "updates", "global"):
        rows = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(path / "in"))
        window = WINDOWS["sliding" if name in ("updates", "global") else name][1]()
        keys = [] if name == "global" else ["k"]
        counted = rows.withWatermark("ts", "6 seconds").groupBy(*keys, window.alias("w")).agg(
            F.count(F.lit(1)).alias("n"), F.sum("v"), F.min("v"), F.max("v"), F.avg("v"),
            F.approx_count_distinct("v"), F.collect_list("v"),
        )  # fmt: skip
        counted = counted.selectExpr(
            *keys, "w.start", "w.end", *(f"`{c}`" for c in counted.columns[len(keys) + 1 :])
        )
        emitted[name] = []

        def keep(frame: DataFrame, _batch: int, to: list[Any] = emitted[name]) -> None:
            to.extend(tuple(row) for row in frame.collect())

        queries[name] = (
            counted.writeStream.foreachBatch(keep)
            .outputMode("update" if name == "updates" else "append")
            .option("checkpointLocation", str(path / f"native-{name}"))
            .start()
        )
        found[name] = {}
    for batch, table in enumerate(tables):
        pq.write_table(table, path / "in" / f"part-{batch}.parquet")
        for name, query in queries.items():
            query.processAllAvailable()
            found[name][batch] = Counter(comparable(dict(enumerate(row))) for row in emitted[name])
            emitted[name].clear()
    for query in queries.values():
        query.stop()
    return found
