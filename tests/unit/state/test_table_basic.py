"""A keyed table over one store: what a batch writes, the next one reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from updraft.state import KeyedTable, Level, LocalStore, TableSpec

SPEC = TableSpec(key=pa.schema([("k", pa.int64())]), values=pa.schema([("n", pa.int64())]))


def table(store: LocalStore, levels: tuple[Level, ...] = ()) -> KeyedTable:
    return KeyedTable(spec=SPEC, tasks=4, mine=(0, 1, 2, 3), levels=levels, store=store)


def rows(keys: list[int], values: list[int]) -> pa.Table:
    return pa.table({"k": keys, "n": values})


def contents(state: KeyedTable) -> dict[int, int]:
    scanned = state.scan()
    return dict(zip(scanned["k"].to_pylist(), scanned["n"].to_pylist(), strict=True))


def test_put_is_visible_in_the_batch_and_after_it(tmp_path: Path) -> None:
    state = table(LocalStore(tmp_path))
    state.put(rows([3, 1, 2], [30, 10, 20]))
    found = state.get(pa.table({"k": [2, 9, 1]}))
    assert found.mask.tolist() == [True, False, True]
    assert found.values["n"].to_pylist() == [20, None, 10]
    sealed = state.seal("op/t-0", 0)
    assert sealed is not None
    assert sealed.rows_written == 3
    again = table(LocalStore(tmp_path), (Level(ref=sealed.added),))
    assert again.get(pa.table({"k": [3]})).values["n"].to_pylist() == [30]
    assert again.seal("op/t-1", 1) is None


def test_many_batches_equal_a_dict(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    store, levels, model = LocalStore(tmp_path), (), {}
    for batch in range(60):
        state = table(store, levels)
        keys = rng.integers(0, 300, rng.integers(1, 50)).tolist()
        state.put(rows(keys, [batch * 1000 + i for i in range(len(keys))]))
        model.update({key: batch * 1000 + i for i, key in enumerate(keys)})
        gone = rng.integers(0, 300, 5).tolist()
        state.delete(pa.table({"k": gone}))
        for key in gone:
            model.pop(key, None)
        assert state.seal(f"op/t-{batch}", batch) is not None
        levels = state.levels
        assert contents(table(store, levels)) == model
    assert len(levels) <= 12
