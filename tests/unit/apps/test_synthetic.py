from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from updraft.apps.synthetic import EVENTS, Knobs, StateAccess, expected, generate, scatter


@dataclass
class FoundRows:
    mask: Any
    values: pa.Table


class DictTable:
    """State as a dict: just enough of a state table for `StateAccess`."""

    def __init__(self) -> None:
        self.rows: dict[int, tuple[int, int]] = {}
        self.gets = self.puts = 0

    def get(self, keys: pa.Table, hashes: Any = None) -> FoundRows:
        self.gets += 1
        found = [self.rows.get(key) for key in keys.column(0).to_pylist()]
        columns = {
            name: pa.array([None if row is None else row[i] for row in found], pa.int64())
            for i, name in enumerate(("accesses", "total"))
        }
        return FoundRows(mask=np.array([row is not None for row in found]), values=pa.table(columns))

    def put(self, rows: pa.Table, hashes: Any = None, timers_us: Any = None) -> None:
        self.puts += 1
        for row in rows.to_pylist():
            self.rows[row["key"]] = (row["accesses"], row["total"])


@dataclass
class OneTable:
    state: DictTable
    keys: tuple[str, ...] = ("key",)


def test_state_equals_the_recomputation(tmp_path: Path) -> None:
    knobs = Knobs(stateful_tasks=4, entries_per_task=16, accesses_per_tuple=3)
    written = generate(tmp_path, knobs, files=4, rows_per_file=50)
    enter, leave = DictTable(), DictTable()
    for path in written.paths:
        rows = StateAccess(3, emit_entries=False).process(pq.read_table(path), OneTable(enter))  # type: ignore[arg-type]
        assert rows.schema.equals(EVENTS)
        StateAccess(3, emit_entries=True).process(scatter(knobs.keys, rows), OneTable(leave))  # type: ignore[arg-type]
    truth = expected(written, knobs)
    assert enter.rows == truth["enter"]
    assert leave.rows == truth["leave"]


def test_every_access_reads_and_writes() -> None:
    table = DictTable()
    rows = pa.table({"key": [1, 1, 2], "value": [10, 20, 30]}, schema=EVENTS)
    out = StateAccess(5, emit_entries=True).process(rows, OneTable(table))  # type: ignore[arg-type]
    assert (table.gets, table.puts) == (5, 5)
    assert sorted(out.to_pylist(), key=lambda row: row["key"]) == [
        {"key": 1, "accesses": 10, "total": 30},
        {"key": 2, "accesses": 5, "total": 30},
    ]
    assert out.schema.equals(StateAccess(5, emit_entries=True).output_schema(EVENTS, ("key",)))


def test_scatter_is_one_to_one() -> None:
    keys = Knobs().keys
    moved = scatter(keys, pa.table({"key": np.arange(keys), "value": np.zeros(keys, np.int64)}))
    assert sorted(moved.column("key").to_pylist()) == list(range(keys))


@pytest.mark.parametrize(
    "wrong",
    [{"stateful_tasks": 3}, {"stateful_tasks": 0}, {"entries_per_task": 0}, {"accesses_per_tuple": 0}],
)
def test_impossible_knobs_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must"):
        Knobs(**wrong)
