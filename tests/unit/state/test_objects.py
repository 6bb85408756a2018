"""Object state: one value per task, bytes or a table."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from updraft.errors import StateError
from updraft.state import Level, LocalStore, ObjectState


def opened(root: Path, levels: tuple[Level, ...] = (), mine: tuple[int, ...] = (0, 1, 2)) -> ObjectState:
    return ObjectState(tasks=3, mine=mine, levels=levels, store=LocalStore(root), operator="op")


def test_values_survive_batches(tmp_path: Path) -> None:
    table = pa.table({"a": [1, None], "b": [["x"], []]})
    state = opened(tmp_path)
    assert state.get(0) is None
    state.set(0, b"\x00raw")
    state.set(1, table)
    state.set(2, bytearray(b""))
    assert state.get(1) is table
    assert state.seal("op/object-0", 0) is not None
    state = opened(tmp_path, state.rows.levels)
    assert state.get(0) == b"\x00raw"
    assert state.get(1).equals(table)
    assert state.get(2) == b""
    state.set(0, b"new")
    state.set(1, None)
    assert state.get(1) is None
    assert state.seal("op/object-1", 1) is not None
    state = opened(tmp_path, state.rows.levels)
    assert [state.get(task) for task in range(3)] == [b"new", None, b""]
    assert state.seal("op/object-2", 2) is None


def test_a_regrouped_task_keeps_its_value(tmp_path: Path) -> None:
    state = opened(tmp_path)
    for task in range(3):
        state.set(task, bytes([task]))
    state.seal("op/object-0", 0)
    assert opened(tmp_path, state.rows.levels, mine=(1,)).get(1) == b"\x01"


def test_foreign_tasks_and_objects_are_refused(tmp_path: Path) -> None:
    state = opened(tmp_path, mine=(1,))
    with pytest.raises(StateError, match="task 0 of operator 'op' is not run by this instance"):
        state.get(0)
    with pytest.raises(StateError, match=r"set its state to a dict; state is bytes or a pyarrow\.Table"):
        state.set(1, {})  # type: ignore[arg-type]


def test_what_is_set_is_copied(tmp_path: Path) -> None:
    state = opened(tmp_path)
    buffer = bytearray(b"abc")
    state.set(0, buffer)
    buffer[0] = 0
    assert state.get(0) == b"abc"
