"""The testing kit itself: scripts are cut at their markers, the oracle's differences are readable, clocks stand still."""

from __future__ import annotations

import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import updraft as ud
from updraft.testing import (
    ABORT,
    END,
    Abort,
    ManualClock,
    ScriptedSource,
    assert_equals_recomputation,
    assert_same_rows,
    memory,
    recompute,
)

SCHEMA = pa.schema([("user", pa.string()), ("amount", pa.int64())])


def row(user: str | None, amount: int | None = 1) -> dict[str, object]:
    return {"user": user, "amount": amount}


def test_a_script_is_shown_marker_by_marker(tmp_path: Path) -> None:
    source = ScriptedSource(
        SCHEMA,
        [[row("a")], [row("b")], ABORT, [row("c")], [row("d")], END, [], Abort("delivered"), [row("e")]],
        directory=tmp_path,
    )
    shown = [source.open_scene() for _ in range(4)]
    assert [(len(s.tables), s.crash_batch, s.crash_moment) for s in shown] == [
        (3, 2, "processed"),
        (1, None, None),
        (2, 5, "delivered"),
        (0, None, None),
    ]
    assert source.exhausted
    assert source.visible == source.tables
    files = sorted((tmp_path / "rows").iterdir(), key=lambda path: path.stat().st_mtime)
    assert [pq.read_table(file)["user"].to_pylist() for file in files] == [
        ["a"],
        ["b"],
        ["c"],
        ["d"],
        [],
        ["e"],
    ]


def test_a_script_that_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="the script ends with an abort"):
        ScriptedSource(SCHEMA, [[row("a")], ABORT])
    with pytest.raises(ValueError, match="item 1 of the script: an abort needs a batch after it"):
        ScriptedSource(SCHEMA, [ABORT, END])
    with pytest.raises(
        ValueError,
        match=r"item 0 of the script has the columns \(x int64\), not \(user string, amount int64\)",
    ):
        ScriptedSource(SCHEMA, [pa.table({"x": [1]})])
    with pytest.raises(ValueError, match="no moment 'soon'; moments are: begun, processed"):
        Abort("soon")


def test_recompute_follows_spark_sql() -> None:
    tables = [
        pa.table({"k": ["a", None], "x": [1.5, math.nan], "n": [1, None]}),
        pa.table({"k": ["a", None], "x": [None, 2.0], "n": pa.array([None, None], pa.int64())}),
    ]
    aggregates = {
        "rows": ud.count(),
        "known": ud.count("x"),
        "low": ud.min("x"),
        "high": ud.max("x"),
        "total": ud.sum("n"),
        "average": ud.mean("n"),
    }
    first, second = recompute(tables, ["k"], **aggregates)
    assert first == {"k": "a", "rows": 2, "known": 1, "low": 1.5, "high": 1.5, "total": 1, "average": 1.0}
    assert math.isnan(second.pop("high"))
    assert second == {"k": None, "rows": 2, "known": 2, "low": 2.0, "total": None, "average": None}


def test_the_newest_row_of_a_key_counts() -> None:
    sink = memory()
    sink.write(pa.table({"k": ["a", "b"], "n": [1, 1]}), 0)
    sink.write(pa.table({"k": ["a"], "n": [2]}), 1)
    assert_equals_recomputation(sink, [{"k": "b", "n": 1}, {"k": "a", "n": 2}], ["k"])
    assert_equals_recomputation(memory(), [], ["k"])


def test_differences_are_readable() -> None:
    got = [
        {"k": "a", "n": 1, "x": 0.1 + 0.2},
        {"k": "b", "n": 2, "x": 1.0},
        {"k": "c", "n": 3, "x": math.nan},
    ]
    wanted = [{"k": "a", "n": 1, "x": 0.3}, {"k": "b", "n": 5, "x": 1.5}, {"k": "d", "n": 3, "x": 0.0}]
    with pytest.raises(AssertionError) as caught:
        assert_equals_recomputation(got, wanted, ["k"])
    assert str(caught.value).splitlines() == [
        "the results differ from a recomputation (3 keys, 3 in the recomputation):",
        "  missing: k='d'",
        "  not expected: k='c'",
        "  k='b': n is 2, not 5, x is 1.0, not 1.5",
    ]
    with pytest.raises(AssertionError, match=r"\.\.\. 90 more missing"):
        assert_equals_recomputation([], [{"k": n} for n in range(100)], ["k"])
    with pytest.raises(AssertionError, match="n is 'absent', not 1"):
        assert_equals_recomputation([{"k": 1}], [{"k": 1, "n": 1}], ["k"])


def test_rows_are_compared_as_often_as_they_come() -> None:
    nested = {"a": [1, None], "b": {"c": math.nan}}
    assert_same_rows([nested, nested], [nested, nested])
    with pytest.raises(AssertionError, match=r"2 rows, 3 expected:\n  lost: .* \(1x\)"):
        assert_same_rows([nested, nested], [nested] * 3)


def test_the_clock_only_moves_when_told() -> None:
    clock = ManualClock(5_000)
    assert (clock(), clock()) == (5.0, 5.0)
    clock.advance("1m")
    clock.set(70_000)
    assert clock.now_ms == 70_000
    with pytest.raises(ValueError, match="cannot go back"):
        clock.set(1)
