"""The cases that break state stores, one by one."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from updraft.errors import StateError
from updraft.state import (
    KeyedTable,
    Level,
    LocalStore,
    Sealed,
    TableSpec,
    hash_keys,
    levels_to_merge,
    task_of,
)
from updraft.state.spec import DELETED

INT = TableSpec(key=pa.schema([("k", pa.int64())]), values=pa.schema([("n", pa.int64())]))
TIMED = TableSpec(key=pa.schema([("k", pa.int64())]), values=pa.schema([("n", pa.int64())]), timers=True)
EXPIRING = TableSpec(key=pa.schema([("k", pa.int64())]), values=pa.schema([("n", pa.int64())]), ttl_ms=10)


def opened(
    root: Path,
    spec: TableSpec = INT,
    levels: tuple[Level, ...] = (),
    *,
    mine: tuple[int, ...] = (0, 1, 2, 3),
    now_ms: int = 0,
) -> KeyedTable:
    return KeyedTable(spec=spec, tasks=4, mine=mine, levels=levels, store=LocalStore(root), now_ms=now_ms)


def rows(pairs: dict[int, int]) -> pa.Table:
    return pa.table({"k": pa.array(list(pairs), pa.int64()), "n": pa.array(list(pairs.values()), pa.int64())})


def keys(*values: int) -> pa.Table:
    return pa.table({"k": pa.array(values, pa.int64())})


def contents(table: KeyedTable) -> dict[int, int]:
    scanned = table.scan()
    return dict(zip(scanned["k"].to_pylist(), scanned["n"].to_pylist(), strict=True))


def sealed(table: KeyedTable, batch: int) -> Sealed:
    result = table.seal(f"op/state-b{batch}", batch)
    assert result is not None
    return result


def test_an_empty_table_answers(tmp_path: Path) -> None:
    table = opened(tmp_path)
    assert table.scan().num_rows == 0
    assert table.get(keys(1)).values["n"].to_pylist() == [None]
    assert table.get(keys()).values.num_rows == 0
    assert table.delete(keys(1)).tolist() == [False]
    assert table.seal("op/none", 0) is None
    assert not list(tmp_path.rglob("*.arrow"))


def test_the_last_write_of_a_key_in_one_put_wins(tmp_path: Path) -> None:
    table = opened(tmp_path)
    table.put(pa.table({"k": [7, 8, 7, 7], "n": [1, 2, 3, 4]}))
    assert contents(table) == {7: 4, 8: 2}


def test_delete_then_put_again_in_one_batch_and_across_batches(tmp_path: Path) -> None:
    table = opened(tmp_path)
    table.put(rows({1: 1, 2: 2}))
    assert table.delete(keys(1, 9, 1)).tolist() == [True, False, True]
    assert contents(table) == {2: 2}
    table.put(rows({1: 11}))
    sealed(table, 0)
    table.delete(keys(2))
    sealed(table, 1)
    assert contents(opened(tmp_path, levels=table.levels)) == {1: 11}
    table.put(rows({2: 22}))
    sealed(table, 2)
    assert contents(opened(tmp_path, levels=table.levels)) == {1: 11, 2: 22}


def test_deleting_everything_leaves_an_empty_base(tmp_path: Path) -> None:
    table = opened(tmp_path)
    table.put(rows({1: 1, 2: 2}))
    sealed(table, 0)
    table.delete(keys(1, 2))
    last = sealed(table, 1)
    assert (last.added.rows, last.added.tasks) == (0, ())
    assert contents(opened(tmp_path, levels=table.levels)) == {}


def test_tombstones_survive_partial_merges_and_go_in_full_ones(tmp_path: Path) -> None:
    table = opened(tmp_path)
    table.put(rows({key: key for key in range(1000)}))
    sealed(table, 0)
    table.delete(keys(*range(10)))
    sealed(table, 1)
    table.put(rows({2000: 1}))
    partial = sealed(table, 2)
    table.put(rows({2001: 1, 2002: 1, 2003: 1, 2004: 1, 2005: 1}))
    partial = sealed(table, 3)
    assert partial.replaced
    assert len(table.levels) == 2
    stored = LocalStore(tmp_path).open(partial.added).batch
    assert stored.column(stored.schema.get_field_index(DELETED)).to_pylist().count(1) == 10
    assert set(range(10)).isdisjoint(contents(opened(tmp_path, levels=table.levels)))
    table.put(rows({key: -key for key in range(500, 1500)}))
    full = sealed(table, 4)
    assert len(table.levels) == 1
    assert DELETED not in LocalStore(tmp_path).open(full.added).batch.schema.names
    assert set(range(10)).isdisjoint(contents(opened(tmp_path, levels=table.levels)))


def test_stale_rows_of_a_task_that_lived_elsewhere_are_invisible(tmp_path: Path) -> None:
    table = opened(tmp_path)
    table.put(rows(dict.fromkeys(range(100), 0)))
    old = sealed(table, 0).added
    moved = {key for key in range(100) if task_of(hash_keys([pa.array([key])]), 4)[0] == 0}
    here = opened(tmp_path, levels=(Level(ref=old, live=frozenset({1, 2, 3})),))
    assert set(contents(here)) == set(range(100)) - moved
    assert not here.get(keys(*moved)).mask.any()
    assert here.delete(keys(*moved)).sum() == 0
    here.put(rows({min(moved): 5}))
    assert sealed(here, 1).added.rows == 1 + (100 - len(moved) if len(here.levels) == 1 else 0)
    assert set(contents(here)) == set(range(100)) - moved | {min(moved)}


def test_rows_of_other_instances_are_refused_and_never_scanned(tmp_path: Path) -> None:
    table = opened(tmp_path)
    table.put(rows(dict.fromkeys(range(100), 0)))
    old = sealed(table, 0).added
    part = opened(tmp_path, levels=(Level(ref=old),), mine=(1,))
    assert 0 < part.scan().num_rows < 100
    with pytest.raises(StateError, match="belong to tasks of other instances"):
        part.put(rows(dict.fromkeys(range(100), 1)))


def test_running_a_batch_again_gives_the_same_contents_under_another_name(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.put(rows({key: key for key in range(50)}))
    base = (Level(ref=sealed(first, 0).added),)
    results = []
    for attempt in range(2):
        table = opened(tmp_path, levels=base)
        table.put(rows({key: key * 2 for key in range(20, 70)}))
        table.delete(keys(3))
        result = table.seal(f"op/state-b1-a{attempt}", 1)
        assert result is not None
        results.append((result.added.checksum, contents(opened(tmp_path, levels=table.levels))))
    assert results[0] == results[1]


def test_nulls_and_nan_are_keys(tmp_path: Path) -> None:
    spec = TableSpec(
        key=pa.schema([("f", pa.float64()), ("s", pa.string())]), values=pa.schema([("n", pa.int64())])
    )
    table = opened(tmp_path, spec)
    table.put(pa.table({"f": [float("nan"), None, 0.0, None], "s": ["a", None, "z", "b"], "n": [1, 2, 3, 4]}))
    sealed(table, 0)
    table = opened(tmp_path, spec, table.levels)
    table.put(pa.table({"f": [float("nan"), None, -0.0], "s": ["a", None, "z"], "n": [10, 20, 30]}))
    sealed(table, 1)
    table = opened(tmp_path, spec, table.levels)
    asked = pa.table({"f": [None, float("nan"), -0.0, None, None], "s": [None, "a", "z", "b", "c"]})
    asked = asked.cast(spec.key)
    assert table.get(asked).values["n"].to_pylist() == [20, 10, 30, 4, None]
    assert table.scan().num_rows == 4


VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [1, None, -3, 4]),
    (pa.bool_(), [True, None, False, True]),
    (pa.float16(), [np.float16(1.5), None, np.float16(2), np.float16(3)]),
    (pa.float64(), [1.5, None, -0.0, 2.0]),
    (pa.string(), ["a", None, "", "d"]),
    (pa.large_string(), ["a", None, "", "d"]),
    (pa.string_view(), ["a", None, "", "a text too long to be stored inline"]),
    (pa.binary(), [b"a", None, b"", b"d"]),
    (pa.binary(2), [b"ab", None, b"cd", b"ef"]),
    (pa.decimal128(38, 4), [Decimal("1.5000"), None, Decimal("-2.0000"), Decimal("3.0000")]),
    (pa.decimal256(60, 1), [Decimal("1.5"), None, Decimal("-2.0"), Decimal("3.0")]),
    (pa.date32(), [dt.date(2020, 1, 1), None, dt.date(1960, 1, 1), dt.date(2021, 1, 1)]),
    (pa.timestamp("us", "UTC"), [dt.datetime(2020, 1, 1, tzinfo=dt.UTC), None] * 2),
    (pa.duration("us"), [dt.timedelta(1), None, dt.timedelta(2), dt.timedelta(3)]),
    (pa.list_(pa.int64()), [[1, 2], None, [], [None]]),
    (
        pa.struct([("a", pa.int64()), ("b", pa.string())]),
        [{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}, None],
    ),
    (pa.map_(pa.string(), pa.int64()), [[("a", 1)], None, [], [("b", 2)]]),
    (pa.list_(pa.struct([("x", pa.list_(pa.string()))])), [[{"x": ["q"]}], None, [], [{"x": None}]]),
    (pa.null(), [None, None, None, None]),
]


@pytest.mark.parametrize(("kind", "values"), VALUES, ids=[str(kind) for kind, _ in VALUES])
@pytest.mark.parametrize("with_nulls", [True, False])
def test_every_arrow_type_can_be_a_value(
    tmp_path: Path, kind: pa.DataType, values: list[Any], with_nulls: bool
) -> None:
    spec = TableSpec(key=pa.schema([("k", pa.int64())]), values=pa.schema([("v", kind)]))
    if not with_nulls and kind != pa.null():
        values = [value for value in values if value is not None]
    column, count = pa.array(values, kind), len(values)
    table = opened(tmp_path, spec)
    table.put(pa.table({"k": pa.array(range(count), pa.int64()), "v": column}))
    sealed(table, 0)
    table.put(pa.table({"k": pa.array([0, 100], pa.int64()), "v": pa.array([values[-1], values[0]], kind)}))
    found = table.get(keys(100, 0, 1, 50)).values["v"]
    expected = pa.array([values[0], values[-1], values[1], None], kind)
    assert found.combine_chunks().to_pylist() == expected.to_pylist()
    sealed(table, 1)
    again = opened(tmp_path, spec, table.levels)
    assert again.get(keys(100, 0, 1, 50)).values["v"].to_pylist() == expected.to_pylist()
    assert again.scan().schema == spec.columns
    assert again.scan().num_rows == count + 1


@pytest.mark.parametrize(
    "column",
    [
        pa.array([True, False, None]),
        pa.array([b"ab", b"cd", None], pa.binary(2)),
        pa.array(["x", "y" * 400, None], pa.large_string()),
        pa.array(["x", "y" * 40, None], pa.string_view()),
        pa.array([Decimal("1.5"), Decimal("2.5"), None], pa.decimal128(10, 1)),
        pa.array([dt.date(2020, 1, 1), dt.date(2020, 1, 2), None], pa.date64()),
        pa.array([dt.time(1), dt.time(2), None], pa.time32("ms")),
        pa.array([1.5, float("nan"), None], pa.float32()),
        pa.array([np.float16(1.5), np.float16(2), None], pa.float16()),
        pa.array([1, 2, None], pa.timestamp("ns")),
        pa.array([1, 2**64 - 1, None], pa.uint64()),
    ],
    ids=lambda column: str(column.type),
)
def test_every_key_type_is_found_again(tmp_path: Path, column: pa.Array) -> None:
    spec = TableSpec(key=pa.schema([("k", column.type)]), values=pa.schema([("n", pa.int64())]))
    table = opened(tmp_path, spec)
    table.put(pa.table({"k": column, "n": [0, 1, 2]}))
    sealed(table, 0)
    table.put(pa.table({"k": column.slice(1), "n": [10, 20]}))
    sealed(table, 1)
    table = opened(tmp_path, spec, table.levels)
    assert table.get(pa.table({"k": column})).values["n"].to_pylist() == [0, 10, 20]
    assert table.scan().num_rows == 3


def test_dictionary_and_narrow_columns_are_cast_to_the_declared_types(tmp_path: Path) -> None:
    spec = TableSpec(key=pa.schema([("k", pa.string())]), values=pa.schema([("n", pa.int64())]))
    table = opened(tmp_path, spec)
    table.put(pa.table({"k": pa.array(["a", "b"]).dictionary_encode(), "n": pa.array([1, 2], pa.int8())}))
    assert table.get(pa.table({"k": pa.array(["b"], pa.large_string())})).values["n"].to_pylist() == [2]
    with pytest.raises(StateError, match="'n' has type string"):
        table.put(pa.table({"k": ["a"], "n": ["x"]}))
    with pytest.raises(StateError, match="'n' is missing"):
        table.put(pa.table({"k": ["a"]}))


def test_presorted_gives_the_same_answers(tmp_path: Path) -> None:
    values = np.arange(5000)
    hashes = hash_keys([pa.array(values)])
    order = np.argsort(hashes)
    table = opened(tmp_path)
    table.put(pa.table({"k": values[order], "n": values[order]}), hashes[order], presorted=True)
    sealed(table, 0)
    found = table.get(pa.table({"k": values[order]}), hashes[order], presorted=True)
    assert found.mask.all()
    assert found.values["n"].to_pylist() == values[order].tolist()
    assert table.get(pa.table({"k": values}), hashes).values["n"].to_pylist() == values.tolist()


def test_a_clock_that_jumps_back_and_forth(tmp_path: Path) -> None:
    """A batch's clock is Spark's log's; wherever it stands, rows count by it, and what is written last is there."""
    table = opened(tmp_path, EXPIRING, now_ms=1_000)
    table.put(rows({1: 1, 2: 2}))
    sealed(table, 1)
    back = opened(tmp_path, EXPIRING, table.levels, now_ms=5)  # a thousand milliseconds before it was written
    assert contents(back) == {1: 1, 2: 2}
    back.put(rows({2: 20, 3: 3}))  # expires at 15
    sealed(back, 2)
    ahead = opened(tmp_path, EXPIRING, back.levels, now_ms=500)
    assert 2 not in contents(
        ahead
    )  # by this clock its newest row has expired; the older one must not show through
    ahead.put(rows({3: 30}))
    sealed(ahead, 3)
    assert contents(opened(tmp_path, EXPIRING, ahead.levels, now_ms=6))[3] == 30


def test_ttl_hides_rows_and_compaction_drops_them(tmp_path: Path) -> None:
    table = opened(tmp_path, EXPIRING, now_ms=0)
    table.put(rows({1: 1, 2: 2}))
    sealed(table, 0)
    table = opened(tmp_path, EXPIRING, table.levels, now_ms=5)
    table.put(rows({2: 22}))
    sealed(table, 1)
    assert contents(opened(tmp_path, EXPIRING, table.levels, now_ms=9)) == {1: 1, 2: 22}
    later = opened(tmp_path, EXPIRING, table.levels, now_ms=10)
    assert contents(later) == {2: 22}
    assert later.get(keys(1, 2)).mask.tolist() == [False, True]
    later.put(rows({3: 3}))
    assert sealed(later, 2).added.rows == 2
    assert contents(opened(tmp_path, EXPIRING, later.levels, now_ms=15)) == {3: 3}


def test_an_expired_newer_row_does_not_uncover_an_older_one(tmp_path: Path) -> None:
    table = opened(tmp_path, EXPIRING, now_ms=0)
    table.put(rows(dict.fromkeys(range(100), 0)))
    sealed(table, 0)
    table.now_ms = 1
    table.put(rows({1: 1}))
    sealed(table, 1)
    assert len(table.levels) == 2
    assert 1 not in contents(opened(tmp_path, EXPIRING, table.levels, now_ms=11))


def test_timers_come_due_once_they_are_reached(tmp_path: Path) -> None:
    table = opened(tmp_path, TIMED)
    table.put(rows({1: 1, 2: 2, 3: 3, 4: 4}), timers_us=pa.array([10, 30, None, 20], pa.int64()))
    assert table.due(5).num_rows == 0
    assert table.due(20).to_pydict() == {"k": [1, 4], "__timer_us": [10, 20]}
    first = sealed(table, 0)
    assert first.added.min_timer_us == 10
    table = opened(tmp_path, TIMED, table.levels)
    assert table.due(25)["k"].to_pylist() == [1, 4]
    table.put(rows({1: 11}))
    assert table.due(25)["k"].to_pylist() == [1, 4], "a put without timers keeps the timer"
    assert table.set_timers(keys(1, 99), None).tolist() == [True, False]
    table.delete(keys(4))
    assert table.due(25).num_rows == 0
    assert contents(table)[1] == 11
    sealed(table, 1)
    table = opened(tmp_path, TIMED, table.levels)
    assert table.due(100)["k"].to_pylist() == [2]
    table.set_timers(keys(2, 3), np.array([50, 40]))
    assert table.due(100).to_pydict() == {"k": [3, 2], "__timer_us": [40, 50]}


def test_timers_in_old_levels_overwritten_by_newer_ones_do_not_fire(tmp_path: Path) -> None:
    table = opened(tmp_path, TIMED)
    table.put(rows(dict.fromkeys(range(200), 0)), timers_us=np.full(200, 5))
    sealed(table, 0)
    table.set_timers(keys(1, 2, 3), np.array([500, 500, 500]))
    sealed(table, 1)
    table = opened(tmp_path, TIMED, table.levels)
    assert len(table.levels) == 2
    assert set(table.due(5)["k"].to_pylist()) == set(range(200)) - {1, 2, 3}
    part = opened(tmp_path, TIMED, (Level(ref=table.levels[0].ref, live=frozenset()), table.levels[1]))
    assert part.due(5).num_rows == 0


def test_timers_must_be_declared(tmp_path: Path) -> None:
    table = opened(tmp_path)
    with pytest.raises(StateError, match="declares no timers"):
        table.put(rows({1: 1}), timers_us=np.array([1]))
    with pytest.raises(StateError, match="declares no timers"):
        table.set_timers(keys(1), None)
    assert table.due(1).num_rows == 0


def test_a_wrong_declaration_lists_every_problem() -> None:
    with pytest.raises(StateError) as error:
        TableSpec(
            key=pa.schema([("a", pa.list_(pa.int8())), ("__hash", pa.int8())]),
            values=pa.schema([("a", pa.int8())]),
            ttl_ms=0,
        )
    for part in ("'a' is declared twice", "'__hash' has a reserved name", "cannot be a key", "ttl_ms is 0"):
        assert part in str(error.value)


def test_a_changed_declaration_is_refused(tmp_path: Path) -> None:
    table = opened(tmp_path)
    table.put(rows({1: 1}))
    sealed(table, 0)
    other = TableSpec(key=INT.key, values=pa.schema([("n", pa.string())]))
    with pytest.raises(StateError, match=r"k int64, n int64.*declared with \(k int64, n string\)"):
        opened(tmp_path, other, table.levels).scan()
    with pytest.raises(StateError, match="another choice of ttl or timers"):
        opened(tmp_path, EXPIRING, table.levels).scan()


def test_levels_stay_few_and_writing_stays_amortised() -> None:
    levels = [1_000_000]
    written = 0
    for _ in range(3000):
        count = levels_to_merge(levels, 100)
        merged = 100 + sum(levels[len(levels) - count :])
        levels = [*levels[: len(levels) - count], merged]
        written += merged
        assert len(levels) <= 12
    assert written < 3000 * 100 * 14


def test_levels_to_merge_cases() -> None:
    assert levels_to_merge([], 5) == 0
    assert levels_to_merge([1000], 5) == 0
    assert levels_to_merge([10], 5) == 1
    assert levels_to_merge([1000, 0], 0) == 1
    assert levels_to_merge([10**12 // 10**i for i in range(12)], 1) >= 1
