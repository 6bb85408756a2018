"""Topologies of every shape on embedded Spark; each result equals a recomputation of the same input."""

# ruff: noqa: RUF012 -- plain dicts as class attributes are exactly what users write
from __future__ import annotations

import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import updraft as ud
from updraft.testing import (
    END,
    Outcome,
    ScriptedSource,
    assert_equals_recomputation,
    assert_same_rows,
    memory,
    recompute,
    run_script,
)

pytestmark = pytest.mark.spark

EVENTS = pa.schema([("user", pa.string()), ("amount", pa.int64()), ("price", pa.float64())])


def events(seed: int, batches: int = 3, rows: int = 200, users: int = 15) -> list[pa.Table]:
    rng = random.Random(seed)
    return [
        pa.Table.from_pylist(
            [
                {
                    "user": rng.choice([None, *(f"u{i}" for i in range(users))]),
                    "amount": rng.choice([None, rng.randrange(-50, 50)]),
                    "price": rng.choice([None, rng.random()]),
                }
                for _ in range(rows)
            ],
            schema=EVENTS,
        )
        for _ in range(batches)
    ]


def doubled(rows: pa.Table) -> pa.Table:
    return rows.set_column(1, "amount", pc.multiply(rows["amount"], 2))


def tagged(rows: pa.Table) -> pa.Table:
    return pa.table(
        {
            "user": rows["user"],
            "bucket": pc.bit_wise_and(rows["n"], 3),
            "one": pa.array([1] * len(rows), pa.int64()),
        }
    )


def test_all_aggregates_at_once(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    source = ScriptedSource(EVENTS, events(seed))
    out = memory()
    aggregates = {
        "n": ud.count(),
        "known": ud.count("amount"),
        "total": ud.sum("amount"),
        "spent": ud.sum("price"),
        "low": ud.min("price"),
        "high": ud.max("amount"),
        "average": ud.mean("amount"),
    }

    def build(source: ScriptedSource) -> ud.Topology:
        app = ud.Topology("aggregates")
        app.source("events", source.frame).key_by("user").aggregate(
            **aggregates, tasks=8, parallelism=2
        ).sink("out", out)
        return app

    run = run_script(build, source, checkpoint=tmp_path, spark=spark)
    assert (run.outcome, run.batch_ids) == (Outcome.ENDED, (0, 1, 2))
    assert_equals_recomputation(out, recompute(source.tables, ["user"], **aggregates), ["user"])
    assert run.result is not None
    assert run.result.rows_in == sum(len(table) for table in source.tables)


def test_two_exchanges_deep_with_maps_before_and_between(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    source = ScriptedSource(EVENTS, events(seed))
    counts, sums = memory(), memory()

    def build(source: ScriptedSource) -> ud.Topology:
        app = ud.Topology("deep")
        stream = app.source("events", source.frame).map(doubled, name="doubled", parallelism=2)
        counted = stream.key_by("user").count("n", name="counted", tasks=4, parallelism=2)
        counted.sink("counts", counts)
        buckets = counted.map(tagged, name="tagged").map(lambda rows: rows, name="again", schema=None)
        buckets.key_by("bucket").sum("one", as_="updates", name="summed", tasks=3, parallelism=3).sink(
            "sums", sums
        )
        return app

    run_script(build, source, checkpoint=tmp_path, spark=spark)
    assert_equals_recomputation(counts, recompute(source.tables, ["user"], n=ud.count()), ["user"])
    updates = Counter(row["n"] & 3 for row in counts.table().to_pylist())
    assert_equals_recomputation(sums, [{"bucket": b, "updates": n} for b, n in updates.items()], ["bucket"])


def test_sources_of_different_schemas_branch_merge_and_reach_every_kind_of_sink(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    clicks_schema = pa.schema([("who", pa.string()), ("page", pa.int32())])
    rng = random.Random(seed)
    clicks = ScriptedSource(
        clicks_schema,
        [[{"who": f"u{rng.randrange(9)}", "page": rng.randrange(4)} for _ in range(n)] for n in (50, 0, 70)],
    )
    orders = ScriptedSource(EVENTS, events(seed, batches=2))
    merged, pages = memory(), memory()
    delivered: dict[int, list[dict[str, Any]]] = {}

    def deliver(frame: DataFrame, batch_id: int) -> None:
        delivered[batch_id] = [row.asDict() for row in frame.collect()]

    def build(source: ScriptedSource) -> ud.Topology:
        app = ud.Topology("branches")
        seen = app.source("clicks", clicks.frame)
        bought = app.source("orders", orders.frame, schema=EVENTS)
        left = seen.map(lambda rows: rows.select(["who"]).rename_columns(["user"]), name="left")
        right = bought.filter(
            lambda rows: pc.fill_null(pc.greater(rows["amount"], 0), False), name="positive"
        ).map(lambda rows: rows.select(["user"]), name="right")
        both = left.merge(right)
        both.key_by("user").count("n", name="both", tasks=4, parallelism=2).sink("merged", merged)
        both.sink("files", ud.sinks.parquet(str(tmp_path / "files")))
        upper = seen.transform(lambda df: df.selectExpr("upper(who) AS who", "page"))
        upper.key_by("page", "who").count("n", name="pages", tasks=4).sink("pages", pages)
        upper.sink("callback", deliver)
        return app

    run_script(build, clicks, checkpoint=tmp_path / "checkpoint", spark=spark)
    users = [{"user": row["who"]} for table in clicks.tables for row in table.to_pylist()]
    users += [
        {"user": row["user"]}
        for table in orders.tables
        for row in table.to_pylist()
        if row["amount"] is not None and row["amount"] > 0
    ]
    upper = [{"who": row["who"].upper(), "page": row["page"]} for t in clicks.tables for row in t.to_pylist()]
    assert_equals_recomputation(merged, recompute([users], ["user"], n=ud.count()), ["user"])
    assert_equals_recomputation(pages, recompute([upper], ["page", "who"], n=ud.count()), ["page", "who"])
    assert_same_rows(pq.read_table(tmp_path / "files", schema=pa.schema([("user", pa.string())])), users)
    assert_same_rows([row for rows in delivered.values() for row in rows], upper)


def instance_of(rows: pa.Table) -> pa.Table:
    import os
    import threading

    place = f"{os.getpid()}-{threading.get_ident()}"
    return pa.table({"number": rows["number"], "place": pa.array([place] * len(rows), pa.string())})


PLACED = pa.schema([("number", pa.int64()), ("place", pa.string())])


@pytest.mark.parametrize(
    ("grouping", "copies"), [("shuffle", 1), ("broadcast", 3), ("to_one", 1), ("local", 1), ("key", 1)]
)
def test_groupings_deliver_every_row(spark: SparkSession, tmp_path: Path, grouping: str, copies: int) -> None:
    source = ScriptedSource(
        pa.schema([("number", pa.int64())]), [[{"number": n} for n in range(i, i + 40)] for i in (0, 40)]
    )
    out = memory()

    def build(source: ScriptedSource) -> ud.Topology:
        app = ud.Topology("groupings")
        stream = app.source("numbers", source.frame)
        grouped = stream.key_by("number") if grouping == "key" else getattr(stream, grouping)()
        if grouping == "key":
            grouped.count("n", tasks=3, parallelism=3, name="counted").sink("out", out)
        else:
            scale = {} if grouping == "to_one" else {"parallelism": 3}
            grouped.map(instance_of, name="placed", schema=PLACED, **scale).sink("out", out)
        return app

    run = run_script(build, source, checkpoint=tmp_path, spark=spark)
    numbers = [row["number"] for row in out.table().to_pylist()]
    assert Counter(numbers) == dict.fromkeys(range(80), copies)
    for batch in run.batches:
        busy = [
            report.work[report.operator].rows_in
            for report in batch.reports
            if report.operator is not None and report.operator in report.work
        ]
        match grouping:
            case "to_one":
                assert max(busy) == 40
                assert sum(busy) == 40
            case "broadcast":
                assert busy == [40, 40, 40]
            case "shuffle":
                assert max(busy) - min(busy) <= 2
            case _:
                assert sum(busy) == 40


def test_an_edge_that_skips_a_level(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """The source feeds a shallow count and, behind another exchange, an operator that also reads the source."""
    source = ScriptedSource(EVENTS, events(seed))
    out = memory()

    def build(source: ScriptedSource) -> ud.Topology:
        app = ud.Topology("skip")
        stream = app.source("events", source.frame).map(lambda rows: rows.select(["user"]), name="users")
        counted = stream.key_by("user").count("n", name="counted", tasks=4, parallelism=2)
        again = counted.map(lambda rows: rows.select(["user"]), name="again")
        again.merge(stream).key_by("user").count("seen", name="seen", tasks=4, parallelism=3).sink("out", out)
        return app

    run_script(build, source, checkpoint=tmp_path, spark=spark)
    expected: Counter[str | None] = Counter()
    for table in source.tables:
        users = table["user"].to_pylist()
        expected.update(users)
        expected.update(set(users))  # one update per key and batch
    assert_equals_recomputation(out, [{"user": u, "seen": n} for u, n in expected.items()], ["user"])


class Running(ud.KeyedOperator):
    """Keeps, per user, rows seen and their order."""

    state = {"seen": pa.int64(), "last": pa.int64()}
    output = {"user": pa.string(), "seen": pa.int64(), "ordered": pa.bool_()}

    def process(self, rows: pa.Table, ctx: ud.Context) -> pa.Table:
        numbers: dict[str, list[int]] = defaultdict(list)
        for user, number in zip(rows["user"].to_pylist(), rows["number"].to_pylist(), strict=True):
            numbers[user].append(number)
        keys = pa.table({"user": pa.array(list(numbers), pa.string())})
        old = ctx.state.get(keys)
        seen = old.values["seen"].fill_null(0).to_pylist()
        last = old.values["last"].fill_null(-1).to_pylist()
        ordered = [
            all(a < b for a, b in zip([before, *found], found, strict=False))
            for before, found in zip(last, numbers.values(), strict=True)
        ]
        seen = [n + len(found) for n, found in zip(seen, numbers.values(), strict=True)]
        ctx.state.put(
            keys.append_column("seen", pa.array(seen, pa.int64())).append_column(
                "last", pa.array([found[-1] for found in numbers.values()], pa.int64())
            )
        )
        return keys.append_column("seen", pa.array(seen, pa.int64())).append_column(
            "ordered", pa.array(ordered)
        )


def test_order_of_a_key_survives_exchanges(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    schema = pa.schema([("user", pa.string()), ("number", pa.int64())])
    rng = random.Random(seed)
    numbers = iter(range(100_000))
    items = [
        pa.Table.from_pylist(
            [{"user": f"u{rng.randrange(7)}", "number": next(numbers)} for _ in range(5_000)], schema=schema
        )
        for _ in range(3)
    ]
    # Many row groups and small partitions, so that rows of a key come from many senders.
    source = ScriptedSource(schema, items, row_group_rows=250)
    out = memory()

    def build(source: ScriptedSource) -> ud.Topology:
        app = ud.Topology("order")
        app.source("numbers", source.frame).key_by("user").process(
            Running, name="running", tasks=5, parallelism=3
        ).sink("out", out)
        return app

    small = spark.conf.get("spark.sql.files.maxPartitionBytes")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "2000")
    try:
        run_script(build, source, checkpoint=tmp_path, spark=spark)
    finally:
        spark.conf.set("spark.sql.files.maxPartitionBytes", str(small))
    assert all(row["ordered"] for row in out.table().to_pylist())
    counts = recompute(source.tables, ["user"], seen=ud.count())
    assert_equals_recomputation(out.table().drop_columns(["ordered"]), counts, ["user"])


class Bytes(ud.ObjectOperator):
    """Counts rows of a task in eight bytes."""

    output = {"task": pa.int32(), "rows": pa.int64()}

    def process(self, rows: pa.Table, ctx: ud.Context) -> pa.Table:
        old = self.get_state()
        assert old is None or isinstance(old, bytes)
        total = int.from_bytes(old or b"", "little") + rows.num_rows
        self.set_state(total.to_bytes(8, "little"))
        return pa.table({"task": pa.array([ctx.task], pa.int32()), "rows": pa.array([total], pa.int64())})


class Tables(ud.ObjectOperator):
    """Keeps all distinct numbers of a task as a table."""

    output = {"task": pa.int32(), "rows": pa.int64()}

    def process(self, rows: pa.Table, ctx: ud.Context) -> pa.Table:
        old = self.get_state()
        everything = pa.concat_tables([old, rows]) if isinstance(old, pa.Table) else rows
        distinct = everything.group_by("number").aggregate([])
        self.set_state(distinct)
        return pa.table(
            {"task": pa.array([ctx.task], pa.int32()), "rows": pa.array([len(distinct)], pa.int64())}
        )


@pytest.mark.parametrize("grouping", ["key", "shuffle", "to_one"])
def test_object_state_survives_a_restart(spark: SparkSession, tmp_path: Path, grouping: str) -> None:
    source = ScriptedSource(
        pa.schema([("number", pa.int64())]),
        [[{"number": n % 30} for n in range(60)], END, [{"number": n} for n in range(20, 50)]],
    )
    counts, tables = memory(), memory()

    def build(source: ScriptedSource) -> ud.Topology:
        app = ud.Topology("objects")
        stream = app.source("numbers", source.frame)
        grouped = stream.key_by("number") if grouping == "key" else getattr(stream, grouping)()
        # to_one is a promise of one instance; the operator's tasks would not all be used.
        scale = {"tasks": 1} if grouping == "to_one" else {"tasks": 4, "parallelism": 2}
        grouped.process(Bytes(), name="bytes", **scale).sink("counts", counts)
        grouped.process(Tables(), name="tables", **scale).sink("tables", tables)
        return app

    run_script(build, source, checkpoint=tmp_path, spark=spark)
    run_script(build, source, checkpoint=tmp_path, spark=spark)
    assert sum(row["rows"] for row in counts.latest("task").values()) == 90
    if grouping != "shuffle":
        assert sum(row["rows"] for row in tables.latest("task").values()) == 50


class Recent(ud.KeyedOperator):
    """Whether a user was seen within the last second."""

    state = {"seen": pa.bool_()}
    ttl = "1s"
    output = {"user": pa.string(), "fresh": pa.bool_()}

    def process(self, rows: pa.Table, ctx: ud.Context) -> pa.Table:
        found = ctx.state.get(rows)
        ctx.state.put(rows.append_column("seen", pa.array([True] * len(rows))))
        return rows.append_column("fresh", pa.array(found.mask))


def test_ttl_follows_the_time_of_the_batch(spark: SparkSession, tmp_path: Path) -> None:
    import time

    source = ScriptedSource(
        pa.schema([("user", pa.string())]),
        [[{"user": "a"}], [{"user": "a"}], END, [{"user": "a"}], [{"user": "a"}]],
    )
    out = memory()

    def build(source: ScriptedSource) -> ud.Topology:
        app = ud.Topology("recent")
        app.source("users", source.frame).key_by("user").process(Recent, name="recent", tasks=2).sink(
            "out", out
        )
        return app

    first = run_script(build, source, checkpoint=tmp_path, spark=spark)
    time.sleep(1.2)
    run_script(build, source, checkpoint=tmp_path, spark=spark)
    fresh = [row["fresh"] for row in out.table().to_pylist()]
    # A batch that took longer than the TTL makes the second one stale too.
    assert fresh[0] is False
    assert fresh[1] is True or first.batches[0].seconds > 0.9
    assert fresh[2] is False


@pytest.mark.parametrize("partitions", [1, 2])
def test_sources_whose_partitions_line_up(spark: SparkSession, tmp_path: Path, partitions: int) -> None:
    """Spark may join partitions of a union that are distributed alike; rows must still go to their own source's leg."""
    words = ScriptedSource(pa.schema([("word", pa.string())]), [[{"word": f"w{n % 7}"} for n in range(60)]])
    numbers = ScriptedSource(pa.schema([("number", pa.int64())]), [[{"number": n % 5} for n in range(80)]])
    counted_words, counted_numbers = memory(), memory()

    def build(source: ScriptedSource) -> ud.Topology:
        app = ud.Topology("aligned")
        for name, script, key, out in (
            ("words", words, "word", counted_words),
            ("numbers", numbers, "number", counted_numbers),
        ):
            stream = app.source(name, script.frame).transform(
                lambda df: df.coalesce(1) if partitions == 1 else df.repartition(partitions)
            )
            stream.key_by(key).count("n", name=f"counted_{name}", tasks=4).sink(name, out)
        return app

    run_script(build, words, checkpoint=tmp_path, spark=spark)
    assert_equals_recomputation(counted_words, recompute(words.tables, ["word"], n=ud.count()), ["word"])
    assert_equals_recomputation(
        counted_numbers, recompute(numbers.tables, ["number"], n=ud.count()), ["number"]
    )
