"""Rows of every type, size and number travel unchanged."""

# ruff: noqa: RUF012 -- plain dicts as class attributes are exactly what users write
from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import updraft as ud
from updraft.operators import KeyedOperator
from updraft.state import TableSpec
from updraft.testing import (
    ScriptedSource,
    assert_equals_recomputation,
    assert_same_rows,
    memory,
    recompute,
    run_script,
)

pytestmark = pytest.mark.spark

TYPES = pa.schema(
    [
        ("key", pa.string()),
        ("flag", pa.bool_()),
        ("tiny", pa.int8()),
        ("small", pa.int16()),
        ("whole", pa.int32()),
        ("long", pa.int64()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("money", pa.decimal128(38, 9)),
        ("day", pa.date32()),
        ("instant", pa.timestamp("us", tz="UTC")),
        ("wall", pa.timestamp("us")),
        ("bytes", pa.binary()),
        ("items", pa.list_(pa.int32())),
        ("deep", pa.list_(pa.list_(pa.string()))),
        (
            "nested",
            pa.struct(
                [("a", pa.int64()), ("b", pa.struct([("c", pa.string()), ("d", pa.list_(pa.float64()))]))]
            ),
        ),
        ("mapping", pa.map_(pa.string(), pa.struct([("n", pa.int32())]))),
    ]
)
FULL: dict[str, Any] = {
    "key": "k1",
    "flag": True,
    "tiny": -128,
    "small": 32767,
    "whole": -(2**31),
    "long": 2**63 - 1,
    "single": 1.5,
    "double": math.nan,
    "money": Decimal("12345678901234567890123456789.123456789"),
    "day": dt.date(1582, 10, 15),
    "instant": dt.datetime(2024, 3, 31, 1, 30, 0, 123456, tzinfo=dt.UTC),
    "wall": dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
    "bytes": b"\x00\xff",
    "items": [1, None, 3],
    "deep": [["x", None], None, []],
    "nested": {"a": 7, "b": {"c": None, "d": [math.inf, None]}},
    "mapping": [("one", {"n": 1}), ("none", None)],
}
EXTREME: dict[str, Any] = {
    **FULL,
    "key": None,
    "double": -0.0,
    "single": math.nan,
    "money": Decimal("-0.000000001"),
    "day": dt.date(9999, 12, 31),
    "instant": dt.datetime(1, 1, 2, tzinfo=dt.UTC),
    "bytes": b"",
    "items": [],
    "deep": [],
    "nested": None,
    "mapping": [],
}
NULLS: dict[str, Any] = {"key": "nulls", **dict.fromkeys(TYPES.names[1:])}


class Remember(KeyedOperator):
    """Stores every row as it is and emits what it has stored of the key so far."""

    def tables(self, input: pa.Schema, keys: tuple[str, ...]) -> dict[str, TableSpec]:
        values = pa.schema([field for field in input if field.name not in keys])
        return {"state": TableSpec(key=pa.schema([input.field(key) for key in keys]), values=values)}

    def output_schema(self, input: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        return input

    def process(self, rows: pa.Table, ctx: ud.Context) -> pa.Table:
        ctx.state.put(rows)
        keys = rows.select(ctx.keys)
        values = ctx.state.get(keys).values
        columns = [keys[name] if name in ctx.keys else values[name] for name in rows.column_names]
        return pa.table(columns, schema=rows.schema)


class Recall(Remember):
    """Emits what an earlier batch has stored, then stores the rows."""

    def process(self, rows: pa.Table, ctx: ud.Context) -> pa.Table:
        found = ctx.state.get(rows.select(ctx.keys))
        ctx.state.put(rows)
        columns = [rows[name] if name in ctx.keys else found.values[name] for name in rows.column_names]
        return pa.table(columns, schema=rows.schema)


def test_all_types_through_map_exchange_state_and_every_sink(spark: SparkSession, tmp_path: Path) -> None:
    batch = pa.Table.from_pylist([FULL, EXTREME, NULLS], schema=TYPES)
    source = ScriptedSource(TYPES, [batch, batch])
    mapped, stored, recalled = memory(), memory(), memory()

    def build(source: ScriptedSource) -> ud.Topology:
        app = ud.Topology("types")
        rows = app.source("rows", source.frame)
        through = rows.map(lambda table: table, name="through", parallelism=2)
        through.sink("mapped", mapped)
        through.sink("files", ud.sinks.parquet(str(tmp_path / "files")))
        through.key_by("key").process(Remember, name="remember", tasks=4, parallelism=2).sink(
            "stored", stored
        )
        through.key_by("key").process(Recall, name="recall", tasks=4, parallelism=2).sink(
            "recalled", recalled
        )
        return app

    run_script(build, source, checkpoint=tmp_path / "checkpoint", spark=spark)
    rows = [row for table in source.tables for row in table.to_pylist()]
    assert mapped.table().schema.types == TYPES.types
    assert_same_rows(mapped, rows)
    assert_same_rows(stored, rows)
    assert_same_rows(recalled.batches[1], batch)
    back = spark.read.parquet(str(tmp_path / "files")).drop("batch_id").toArrow()
    assert_same_rows(back, rows)


KEYS = pa.schema(
    [
        ("text", pa.string()),
        ("whole", pa.int32()),
        ("double", pa.float64()),
        ("money", pa.decimal128(20, 2)),
        ("day", pa.date32()),
        ("instant", pa.timestamp("us", tz="UTC")),
        ("bytes", pa.binary()),
        ("flag", pa.bool_()),
    ]
)


@pytest.mark.parametrize("keys", [("text",), ("double",), ("whole", "flag"), tuple(KEYS.names)], ids="+".join)
def test_keys_of_all_types_with_nulls_form_the_same_groups_as_spark(
    spark: SparkSession, tmp_path: Path, seed: int, keys: tuple[str, ...]
) -> None:
    rng = np.random.default_rng(seed)
    choices: dict[str, list[Any]] = {
        "text": [None, "", "a", "ä" * 40],
        "whole": [None, 0, -1, 2**31 - 1],
        "double": [None, 0.0, -0.0, math.nan, 1e300],
        "money": [None, Decimal("0.00"), Decimal("-1.50")],
        "day": [None, dt.date(1970, 1, 1)],
        "instant": [None, dt.datetime(2024, 1, 1, tzinfo=dt.UTC)],
        "bytes": [None, b"", b"\x00"],
        "flag": [None, True, False],
    }
    items = [
        pa.Table.from_pylist(
            [{name: found[rng.integers(len(found))] for name, found in choices.items()} for _ in range(300)],
            schema=KEYS,
        )
        for _ in range(2)
    ]
    source = ScriptedSource(KEYS, items)
    out = memory()

    def build(source: ScriptedSource) -> ud.Topology:
        app = ud.Topology("keys")
        app.source("rows", source.frame).key_by(*keys).count(
            "n", name="counted", tasks=5, parallelism=2
        ).sink("out", out)
        return app

    run_script(build, source, checkpoint=tmp_path, spark=spark)
    assert_equals_recomputation(out, recompute(source.tables, keys, n=ud.count()), keys)


def test_empty_batches(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("user", pa.string())])
    source = ScriptedSource(schema, [[], [{"user": "a"}], [], [{"user": "a"}], []])
    out = memory()

    def build(source: ScriptedSource) -> ud.Topology:
        app = ud.Topology("empty")
        users = app.source("users", source.frame)
        users.key_by("user").count("n", name="counted", tasks=2, parallelism=2).sink("out", out)
        users.sink("files", ud.sinks.parquet(str(tmp_path / "files")))
        return app

    run = run_script(build, source, checkpoint=tmp_path / "checkpoint", spark=spark)
    assert run.batch_ids == (0, 1, 2, 3, 4)
    assert [batch.rows_in for batch in run.batches] == [0, 1, 0, 1, 0]
    assert {batch: table.to_pylist() for batch, table in out.batches.items() if table.num_rows} == {
        1: [{"user": "a", "n": 1}],
        3: [{"user": "a", "n": 2}],
    }
    assert spark.read.parquet(str(tmp_path / "files")).count() == 2


def test_one_giant_batch_and_a_hot_key(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 1_000, 2_000_000)
    numbers[rng.random(2_000_000) < 0.9] = 7
    table = pa.table({"number": pa.array(numbers, pa.int64()), "one": pa.array(np.ones(2_000_000, np.int64))})
    source = ScriptedSource(table.schema, [table], row_group_rows=200_000)
    counted, kept = memory(), memory()

    def build(source: ScriptedSource) -> ud.Topology:
        app = ud.Topology("giant")
        rows = app.source("rows", source.frame)
        rows.key_by("number").count("n", name="counted", tasks=8, parallelism=2).sink("counted", counted)
        # Not combined on the way: every row of the hot key reaches one instance.
        rows.key_by("number").process(LastOne, name="last", tasks=8, parallelism=2).sink("kept", kept)
        return app

    run_script(build, source, checkpoint=tmp_path, spark=spark)
    values, counts = np.unique(numbers, return_counts=True)
    expected = [{"number": int(v), "n": int(n)} for v, n in zip(values, counts, strict=True)]
    assert_equals_recomputation(counted, expected, ["number"])
    assert_equals_recomputation(
        kept, [{"number": row["number"], "rows": row["n"]} for row in expected], ["number"]
    )


def test_output_that_is_too_much_for_the_driver_stays_on_the_workers(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The batch is run again then, and its state is counted once all the same."""
    sizes = (1_000, 2_500_000, 1_000)
    batches = [pa.table({"number": pa.array(np.arange(size) % 5, pa.int64())}) for size in sizes]
    source = ScriptedSource(batches[0].schema, batches)
    counted, seen = memory(), {}

    def build(source: ScriptedSource) -> ud.Topology:
        app = ud.Topology("plenty")
        rows = app.source("rows", source.frame)
        rows.key_by("number").count("n", name="counted", tasks=4, parallelism=2).sink("counted", counted)
        rows.sink("files", ud.sinks.parquet(str(tmp_path / "files")))
        rows.sink("frames", lambda df, batch: seen.update({batch: df.count()}))
        return app

    run_script(build, source, checkpoint=tmp_path / "checkpoint", spark=spark)
    assert counted.latest("number")[3]["n"] == sum(sizes) // 5
    assert seen == dict(enumerate(sizes))
    back = spark.read.parquet(str(tmp_path / "files")).groupBy("batch_id", "number").count().toArrow()
    assert {(b, n): c for b, n, c in zip(*(back[i].to_pylist() for i in range(3)), strict=True)} == {
        (batch, number): size // 5 for batch, size in enumerate(sizes) for number in range(5)
    }


class LastOne(KeyedOperator):
    """Rows per number, counted the slow way."""

    state = {"rows": pa.int64()}
    output = {"number": pa.int64(), "rows": pa.int64()}

    def process(self, rows: pa.Table, ctx: ud.Context) -> pa.Table:
        touched = rows.group_by("number", use_threads=False).aggregate([([], "count_all")])
        old = ctx.state.get(touched.select(["number"])).values["rows"].fill_null(0)
        import pyarrow.compute as pc

        made = pa.table({"number": touched["number"], "rows": pc.add(old, touched["count_all"])})
        ctx.state.put(made)
        return made


def test_a_thousand_columns(spark: SparkSession, tmp_path: Path) -> None:
    names = [f"c{i}" for i in range(1_000)]
    schema = pa.schema(
        [("key", pa.int64()), *((name, pa.int64() if i % 2 else pa.string()) for i, name in enumerate(names))]
    )
    rows = [
        {"key": k, **{name: (k + i if i % 2 else f"{k}-{i}") for i, name in enumerate(names)}}
        for k in range(20)
    ]
    source = ScriptedSource(schema, [rows, rows[:5]])
    mapped, stored = memory(), memory()

    def build(source: ScriptedSource) -> ud.Topology:
        app = ud.Topology("wide")
        stream = app.source("rows", source.frame).map(lambda table: table, name="through", parallelism=2)
        stream.sink("mapped", mapped)
        stream.key_by("key").process(Remember, name="remember", tasks=4, parallelism=2).sink("stored", stored)
        return app

    run_script(build, source, checkpoint=tmp_path, spark=spark)
    assert_same_rows(mapped, [*rows, *rows[:5]])
    assert_equals_recomputation(stored, rows, ["key"])


def test_instants_do_not_depend_on_the_session_time_zone(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema([("instant", pa.timestamp("us", tz="UTC")), ("wall", pa.timestamp("us"))])
    rows = [{"instant": dt.datetime(2024, 7, 1, 12, tzinfo=dt.UTC), "wall": dt.datetime(2024, 7, 1, 12)}]
    source = ScriptedSource(schema, [rows])
    counted = memory()

    def build(source: ScriptedSource) -> ud.Topology:
        app = ud.Topology("zones")
        stream = app.source("rows", source.frame, schema=schema)
        stream.key_by("instant", "wall").count("n", name="counted", tasks=2).sink("out", counted)
        stream.sink("files", ud.sinks.parquet(str(tmp_path / "files")))
        return app

    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        run_script(build, source, checkpoint=tmp_path / "checkpoint", spark=spark)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert counted.table().to_pylist() == [{**rows[0], "n": 1}]
    back = spark.read.parquet(str(tmp_path / "files")).drop("batch_id").toArrow()
    assert back.to_pylist() == rows
