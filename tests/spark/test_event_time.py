"""Watermarks on real Spark: several partitions, levels and sources, staged and in one task, crash and restart."""

# ruff: noqa: RUF012 -- plain dicts as class attributes are exactly what users write
from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import updraft as ud
from updraft.testing import ABORT, ScriptedSource, memory, run_script

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])


class Watch(ud.KeyedOperator):
    """Says which watermarks it saw, for each row."""

    state = {"seen": pa.int64()}
    output = {
        "k": pa.int64(),
        "ts": SCHEMA.field("ts").type,
        "batch": pa.int64(),
        "before": pa.int64(),
        "after": pa.int64(),
    }

    def process(self, rows: pa.Table, ctx: ud.Context) -> pa.Table:
        ctx.state.put(rows.select(ctx.keys).append_column("seen", rows.column("k")))
        ctx.tally.late_rows += 1

        def same(value: int | None) -> pa.Array:
            return pa.array([value] * rows.num_rows, pa.int64())

        return pa.table(
            {
                "k": rows.column("k"),
                "ts": rows.column("ts"),
                "batch": same(ctx.batch_id),
                "before": same(ctx.watermark_ms),
                "after": same(ctx.next_watermark_ms),
            }
        )


def seconds(*times: int) -> pa.Table:
    return pa.table(
        [np.arange(len(times)), pa.array([t * 1_000_000 for t in times], SCHEMA.field("ts").type)],
        schema=SCHEMA,
    )


@pytest.mark.parametrize("row_group_rows", [2, None])
def test_every_instance_of_every_level_sees_the_same_watermarks(
    spark: SparkSession, tmp_path: Path, row_group_rows: int | None
) -> None:
    """The largest event time is in one partition; a crash in between changes nothing."""
    batches = [seconds(*range(20)), seconds(5, 100, 7, 8, 9), seconds(1), seconds(200, 3)]
    source = ScriptedSource(
        SCHEMA, [batches[0], batches[1], ABORT, batches[2], batches[3]], row_group_rows=row_group_rows
    )
    first, second = memory(), memory()

    def build(source: ScriptedSource) -> ud.Topology:
        app = ud.Topology("watch")
        rows = app.source("rows", source.frame).with_watermark("ts", "10 seconds")
        one = rows.key_by("k").process(Watch, name="one", parallelism=3)
        one.sink("first", first)
        one.map(lambda t: t.select(["k", "ts"])).key_by("ts").process(Watch, name="two", parallelism=2).sink(
            "second", second
        )
        return app

    path = tmp_path / "checkpoint"
    summaries = []
    while not source.exhausted:
        summaries += run_script(build, source, checkpoint=path, spark=spark).batches
    expected = [(None, 9_000), (9_000, 90_000), (90_000, 90_000), (90_000, 190_000)]
    for sink in (first, second):
        rows = sink.table().to_pylist()
        assert len(rows) == sum(batch.num_rows for batch in batches)
        assert {(row["batch"], row["before"], row["after"]) for row in rows} == {
            (batch, *pair) for batch, pair in enumerate(expected)
        }
    assert summaries[-1].watermarks_ms == {"one": 190_000, "two": 190_000}
    assert summaries[-1].late_rows.keys() == {"one", "two"}
    clocks = json.loads((path / "commits" / "3.json").read_text())["manifest"]["clocks"]
    assert clocks["sources"]["rows"][0] == 200_000_000


def test_the_slower_of_two_sources_decides(spark: SparkSession, tmp_path: Path) -> None:
    fast, slow = (ScriptedSource(SCHEMA, [seconds(a), seconds(b)]) for a, b in ((100, 200), (50, 60)))
    out = memory()
    app = ud.Topology("two")
    both = (
        app.source("fast", fast.frame)
        .with_watermark("ts")
        .merge(app.source("slow", slow.frame).with_watermark("ts", 1))
    )
    both.key_by("k").process(Watch, name="watch").sink("out", out)
    ud.run(app, checkpoint=tmp_path / "checkpoint", spark=spark, until_idle=True)
    rows = out.table().to_pylist()
    assert {(row["batch"], row["before"], row["after"]) for row in rows} == {
        (0, None, 49_000),
        (1, 49_000, 59_000),
    }
