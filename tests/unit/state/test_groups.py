"""Tables with many rows per key: rows of a group are found together, whatever the levels, and stay in the group's task."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from updraft.errors import StateError
from updraft.state import KeyedTable, Level, LocalStore, TableSpec, hash_keys, task_of
from updraft.state.keys import U64, Column, spread

SPEC = TableSpec(
    key=pa.schema([("user", pa.string()), ("row", pa.int64())]),
    values=pa.schema([("note", pa.string())]),
    timers=True,
    lead=1,
)
TASKS = 4


WEAK = np.uint64(0x8000000000000003)


def weak(columns: list[Column]) -> U64:
    """Many groups share their upper half, and many rows their whole hash: only the columns tell them apart."""
    lower = np.uint64(0xFFFFFFFF)
    return ((hash_keys(columns[:1]) & ~lower) | (hash_keys(columns[1:]) & lower)) & WEAK


def table(rows: list[tuple[str | None, int, str]]) -> pa.Table:
    names = SPEC.columns.names
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], schema=SPEC.columns)


@pytest.mark.parametrize("hasher", [None, weak])
@pytest.mark.parametrize("seed", range(20))
def test_rows_of_equals_a_dict_of_dicts(tmp_path: Path, seed: int, hasher: object) -> None:
    rng = random.Random(seed)
    store, levels = LocalStore(tmp_path), ()
    model: dict[tuple[str | None, int], str] = {}
    users: list[str | None] = [None, *(f"u{n}" for n in range(8))]
    for batch in range(6):
        state = KeyedTable(
            spec=SPEC,
            tasks=TASKS,
            mine=tuple(range(TASKS)),
            levels=levels,
            store=store,
            hasher=hasher,  # type: ignore[arg-type]
        )
        fresh = [
            (rng.choice(users), rng.randrange(40), f"{batch}-{n}") for n in range(rng.choice([0, 5, 60]))
        ]
        state.put(table(fresh), timers_us=np.arange(len(fresh), dtype=np.int64))
        model.update({(user, row): note for user, row, note in fresh})
        gone = rng.sample(sorted(model, key=str), min(len(model), 10))
        state.delete(table([(*key, "") for key in gone]))
        for key in gone:
            del model[key]
        asked = rng.sample(users, 5)
        groups = pa.table({"user": pa.array(asked, pa.string())})
        found = state.rows_of(groups, hash_keys(groups.columns) & WEAK if hasher else None)
        got = sorted(
            ((asked[at], row["user"], row["row"], row["note"]) for at, row in
             zip(found.group.tolist(), found.rows.to_pylist(), strict=True)), key=str
        )  # fmt: skip
        wanted = sorted(((u, u, row, note) for (u, row), note in model.items() if u in asked), key=str)
        assert got == wanted
        sealed = state.seal(f"op/t-{batch}", batch)
        if sealed is not None:
            levels = (*(lv for lv in levels if lv.ref.name not in sealed.replaced), Level(ref=sealed.added))
    scanned = {(row["user"], row["row"]): row["note"] for row in state.scan().to_pylist()}
    assert scanned == model


def test_a_row_stays_in_the_task_of_its_group() -> None:
    groups = hash_keys([pa.array(range(1_000))])
    rows = spread(groups, [pa.array(range(1_000))])
    assert (task_of(rows, 37) == task_of(groups, 37)).all()
    assert len(np.unique(rows)) == 1_000


def test_misuse_is_refused(tmp_path: Path) -> None:
    key = pa.schema([("user", pa.string())])
    with pytest.raises(StateError, match="lead is 2"):
        TableSpec(key=key, values=SPEC.values, lead=2)
    plain = TableSpec(key=key, values=SPEC.values)
    state = KeyedTable(spec=plain, tasks=1, mine=(0,), levels=(), store=LocalStore(tmp_path), table="t")
    with pytest.raises(StateError, match=r"one row per key; use get\(\)"):
        state.rows_of(pa.table({"user": ["a"]}))
    assert plain.fingerprint() != SPEC.fingerprint()
