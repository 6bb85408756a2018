"""Sinks that need no Spark, and what may be one."""

from __future__ import annotations

import io
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from updraft import sinks
from updraft.sinks import ConsoleSink, Wants, as_sink


def test_memory_replaces_a_repeated_batch_and_knows_the_newest_row() -> None:
    sink = sinks.memory()
    assert sink.latest("k") == {}
    sink.write(pa.table({"k": ["a", "b"], "j": [1, 1], "n": [1, 2]}), 1)
    sink.write(pa.table({"k": ["a"], "j": [1], "n": [0]}), 0)
    sink.write(pa.table({"k": ["a", "b"], "j": [1, 1], "n": [1, 3]}), 1)
    assert sink.table()["n"].to_pylist() == [0, 1, 3]
    assert sink.latest("k") == {"a": {"k": "a", "j": 1, "n": 1}, "b": {"k": "b", "j": 1, "n": 3}}
    assert set(sink.latest("k", "j")) == {("a", 1), ("b", 1)}


def test_console_shows_the_first_rows_in_columns() -> None:
    out = io.StringIO()
    sink = ConsoleSink(rows=2, file=out)
    sink.write(pa.table({"word": ["a", "long word", "c"], "n": [1, None, 3]}), 4)
    sink.write(pa.table({"word": pa.array([], pa.string())}), 5)
    assert out.getvalue().splitlines() == [
        "-- batch 4: 3 rows",
        "word       n",
        "a          1",
        "long word  None",
        "... 1 more",
        "-- batch 5: 0 rows",
    ]


def test_what_is_a_sink() -> None:
    calls: list[tuple[object, int]] = []
    sink = as_sink(lambda frame, batch_id: calls.append((frame, batch_id)))
    assert sink.wants is Wants.FRAME
    sinks.callback(lambda frame, batch_id: calls.append((frame, batch_id))).write_frame("frame", 3)
    assert calls == [("frame", 3)]
    assert as_sink(sinks.discard()).wants is Wants.NOTHING
    with pytest.raises(TypeError, match="str is not a sink"):
        as_sink("console")


def test_parquet_of_a_batch_is_replaced_as_a_whole(tmp_path: Path) -> None:
    sink = sinks.parquet(f"file://{tmp_path}/out/")
    table = pa.table(
        {
            "n": [1, 2],
            "at": pa.array([0, 1], pa.timestamp("us", "UTC")),
            "price": pa.array([Decimal("1.50"), None], pa.decimal128(9, 2)),
            "tags": pa.array([["a"], []], pa.list_(pa.string())),
        }
    )
    sink.write(table, 3)
    sink.write(table.slice(1), 3)
    sink.write(table.slice(0, 0), 4)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["batch_id=3", "batch_id=4"]
    (file,) = (tmp_path / "out" / "batch_id=3").glob("*.parquet")
    back = pq.ParquetFile(file).read()
    assert back.drop(["at"]).to_pylist() == table.slice(1).drop(["at"]).to_pylist()
    assert back["at"].cast(pa.int64()).to_pylist() == [1000]
    assert pq.ParquetFile(file).schema.column(1).physical_type == "INT96"  # as Spark writes them
    assert (tmp_path / "out" / "batch_id=4" / "_SUCCESS").exists()


def test_times_without_a_zone_are_left_to_spark() -> None:
    sink, inside = sinks.parquet("out"), pa.list_(pa.struct([("at", pa.timestamp("us"))]))
    assert sink.can_write(pa.schema([("at", pa.timestamp("us", "UTC")), ("tags", pa.list_(pa.string()))]))
    assert not sink.can_write(pa.schema([("at", pa.timestamp("us"))]))
    assert not sink.can_write(pa.schema([("visits", inside)]))
    assert not sink.can_write(pa.schema([("by", pa.map_(pa.string(), pa.timestamp("us")))]))


def test_paths_of_this_machine() -> None:
    assert [
        sinks.parquet(path).is_local for path in ("out", "/a/b:c", "file:///a", "s3a://a/b", "hdfs:/a")
    ] == [
        True,
        True,
        True,
        False,
        False,
    ]
