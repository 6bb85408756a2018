"""Tables whose timer is the time of their rows: keys longer than the stream's, reading by time, forgetting."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from updraft.errors import StateError
from updraft.state import KeyedTable, LocalStore, TableSpec
from updraft.state.compaction import MAX_DEPTH, MAX_LEVELS, levels_to_merge
from updraft.state.keys import hash_keys, hash_spread, spread, task_of

SPEC = TableSpec(
    key=pa.schema([("k", pa.string()), ("t", pa.int64())]),
    values=pa.schema([("n", pa.int64())]),
    timers=True,
    lead=1,
)


def rows(triples: list[tuple[str, int, int]]) -> pa.Table:
    return pa.Table.from_pylist([{"k": k, "t": t, "n": n} for k, t, n in triples], schema=SPEC.columns)


def test_all_rows_of_a_key_stay_in_its_task() -> None:
    keys = pa.array([f"k{i % 50}" for i in range(5_000)])
    times = pa.array(np.arange(5_000))
    spread_hashes = hash_spread([keys, times], 1)
    assert np.array_equal(task_of(spread_hashes, 64), task_of(hash_keys([keys]), 64))
    assert np.array_equal(spread_hashes, spread(hash_keys([keys]), [times]))
    assert len(np.unique(spread_hashes)) == 5_000
    assert np.array_equal(hash_spread([keys], 1), hash_keys([keys]))


@pytest.mark.parametrize("seed", range(20))
def test_reading_by_time_equals_a_dict_and_forgotten_rows_go(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    store = LocalStore(tmp_path)
    model: dict[tuple[str, int], int] = {}
    levels: tuple = ()
    names: set[str] = set()
    floor = -5
    for batch in range(25):
        table = KeyedTable(spec=SPEC, tasks=4, mine=(0, 1, 2, 3), levels=levels, store=store)
        for _ in range(rng.choice([0, 1, 2])):
            put = [
                (f"k{rng.randrange(6)}", rng.randrange(floor, floor + 30), batch)
                for _ in range(rng.randrange(1, 40))
            ]
            fresh = rows(put)
            table.put(fresh, timers_us=fresh.column("t").to_numpy())
            model.update({(k, t): n for k, t, n in put})
        low, high = sorted((rng.randrange(floor, floor + 30), rng.randrange(floor, floor + 35)))
        found = table.between(low, high).to_pylist()
        assert {(r["k"], r["t"]): r["n"] for r in found} == {
            key: n for key, n in model.items() if low <= key[1] < high
        }
        assert len(found) == len({(r["k"], r["t"]) for r in found})
        assert {(r["k"], r["t"]) for r in table.between(None, 10**9).to_pylist()} >= set(model)
        floor += rng.choice([0, 3, 20])
        table.forget_before(floor)
        model = {key: n for key, n in model.items() if key[1] >= floor}
        sealed = table.seal(f"op/state-{batch}", batch)
        levels = table.levels
        if sealed is not None:
            names = {level.ref.name for level in levels}
            assert not names.intersection(sealed.replaced)
            assert sealed.live_rows >= len(model)
        stored = sum(level.ref.rows for level in levels)
        assert stored <= 6 * len(model) + 150
    table = KeyedTable(spec=SPEC, tasks=4, mine=(0, 1, 2, 3), levels=levels, store=store)
    table.forget_before(10**6)
    sealed = table.seal("op/state-last", 99)
    # Everything is over: what is left is empty, and stays as it is.
    assert sum(level.ref.rows for level in table.levels) == 0
    again = KeyedTable(spec=SPEC, tasks=4, mine=(0, 1, 2, 3), levels=table.levels, store=store)
    again.forget_before(10**6)
    assert again.seal("op/state-again", 100) is None


def test_forgotten_rows_that_outweigh_the_others_are_merged_away() -> None:
    assert levels_to_merge([1_000, 300], 10) == 0
    assert levels_to_merge([1_000, 300], 10, forgotten=[500, 0]) == 0
    assert levels_to_merge([1_000, 300], 10, forgotten=[1_500, 0]) == 2
    # A level without a live row is dropped as a whole and needs no merge.
    assert levels_to_merge([0, 300], 10, forgotten=[5_000, 0]) == 0


def test_forgetting_needs_times() -> None:
    plain = TableSpec(key=pa.schema([("k", pa.string())]), values=pa.schema([("n", pa.int64())]))
    table = KeyedTable(spec=plain, tasks=1, mine=(0,), levels=(), store=LocalStore(Path()))
    with pytest.raises(StateError, match="declares no timers"):
        table.forget_before(3)


def test_lead_is_part_of_the_shape_only_where_it_is_used() -> None:
    plain = TableSpec(key=SPEC.key, values=SPEC.values, timers=True)
    assert plain.fingerprint() != SPEC.fingerprint()
    with pytest.raises(StateError, match="lead is 3"):
        TableSpec(key=SPEC.key, values=SPEC.values, lead=3)


ALL = frozenset(range(12))


def test_levels_side_by_side_are_not_merged_for_each_other() -> None:
    """Tasks of three instances come together: three bases of disjoint tasks, none smaller than the others."""
    thirds = [frozenset(range(4)), frozenset(range(4, 8)), frozenset(range(8, 12))]
    assert levels_to_merge([300, 300, 300], 20) == 0
    assert levels_to_merge([300, 300, 300], 20, live=thirds, new_live=ALL) == 0
    assert (
        levels_to_merge([300, 300, 300], 160) == 3
    )  # one above the other: each is small beside what is newer
    assert levels_to_merge([300, 300, 300], 160, live=thirds, new_live=ALL) == 0
    assert (
        levels_to_merge([300, 300, 300], 460, live=thirds, new_live=ALL) == 3
    )  # more than half of each base is newer


def test_small_levels_of_some_tasks_are_merged_where_something_newer_outweighs_them() -> None:
    low, high = frozenset(range(4)), frozenset(range(4, 8))
    assert levels_to_merge([500, 500, 40, 15], 20, live=[low, high, high, low], new_live=low | high) == 1
    assert levels_to_merge([500, 500, 20, 15], 20, live=[low, high, high, low], new_live=low | high) == 2
    assert levels_to_merge([500, 500, 20, 35], 20, live=[low, high, high, low], new_live=low | high) == 0


def test_there_are_never_too_many_levels() -> None:
    sizes = [4**n for n in range(14, 0, -1)]
    deep = levels_to_merge(sizes, 1)
    assert len(sizes) - deep + 1 <= MAX_DEPTH
    alone = [frozenset({task}) for task in range(60)]
    assert 60 - levels_to_merge([1_000] * 60, 1, live=alone, new_live=frozenset(range(60))) + 1 <= MAX_LEVELS


def test_levels_of_which_nothing_is_live_are_merged_away() -> None:
    assert levels_to_merge([0, 0], 0, live=[frozenset(), frozenset()], new_live=frozenset()) == 2
