"""State kept in a dict, with the interface operators use, and short ways to build a context."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from updraft.operators import Context, StateTable, TaskObjects
from updraft.operators.context import Hashes
from updraft.state.keys import hash_keys
from updraft.state.spec import TableSpec


@dataclass(frozen=True, slots=True)
class DictFound:
    mask: npt.NDArray[np.bool_]
    values: pa.Table


def plain(value: Any) -> Any:
    """A key value that compares as keys do: one NaN, one zero."""
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    return value


class DictTable:
    """A keyed table without segments."""

    def __init__(self, spec: TableSpec) -> None:
        self.spec = spec
        self.rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.timers: dict[tuple[Any, ...], int] = {}

    def _keys(self, table: pa.Table) -> list[tuple[Any, ...]]:
        return [
            tuple(plain(row[name]) for name in self.spec.key.names)
            for row in table.select(self.spec.key.names).to_pylist()
        ]

    def get(self, keys: pa.Table, hashes: Hashes | None = None, *, presorted: bool = False) -> DictFound:
        if hashes is not None:
            assert not presorted or np.all(hashes[1:] >= hashes[:-1])
            assert np.array_equal(hashes, hash_keys(keys.columns))
        found = [self.rows.get(key) for key in self._keys(keys)]
        empty = dict.fromkeys(self.spec.values.names)
        return DictFound(
            np.array([row is not None for row in found], np.bool_),
            pa.Table.from_pylist([row or empty for row in found], schema=self.spec.values),
        )

    def put(
        self,
        rows: pa.Table,
        hashes: Hashes | None = None,
        timers_us: Any = None,
        *,
        presorted: bool = False,
    ) -> None:
        assert rows.column_names == self.spec.columns.names
        if hashes is not None:
            assert np.array_equal(hashes, hash_keys(rows.select(self.spec.key.names).columns))
        for number, (key, row) in enumerate(zip(self._keys(rows), rows.to_pylist(), strict=True)):
            self.rows[key] = {name: row[name] for name in self.spec.values.names}
            if timers_us is not None:
                self.timers[key] = int(timers_us[number])

    def delete(
        self, keys: pa.Table, hashes: Hashes | None = None, *, presorted: bool = False
    ) -> npt.NDArray[np.bool_]:
        found = self.get(keys).mask
        for key in self._keys(keys):
            self.rows.pop(key, None)
            self.timers.pop(key, None)
        return found

    def scan(self) -> pa.Table:
        names = self.spec.key.names
        rows = [dict(zip(names, key, strict=True)) | row for key, row in self.rows.items()]
        return pa.Table.from_pylist(rows, schema=self.spec.columns)

    def due(self, now_us: int) -> pa.Table:
        due = [
            dict(zip(self.spec.key.names, key, strict=True)) | {"__timer_us": time_us}
            for key, time_us in self.timers.items()
            if time_us <= now_us
        ]
        return pa.Table.from_pylist(due, schema=pa.schema([*self.spec.key, ("__timer_us", pa.int64())]))

    def set_timers(
        self, keys: pa.Table, timers_us: Any, hashes: Hashes | None = None
    ) -> npt.NDArray[np.bool_]:
        times = [None] * keys.num_rows if timers_us is None else pa.array(timers_us).to_pylist()
        for key, time_us in zip(self._keys(keys), times, strict=True):
            self.timers.pop(key, None)
            if time_us is not None and key in self.rows:
                self.timers[key] = time_us
        return self.get(keys).mask


class DictObjects:
    """Object state without segments."""

    def __init__(self) -> None:
        self.values: dict[int, bytes | pa.Table | None] = {}

    def get(self, task: int) -> bytes | pa.Table | None:
        return self.values.get(task)

    def set(self, task: int, value: bytes | pa.Table | None) -> None:
        self.values[task] = value


def context(
    operator: Any,
    rows: pa.Table,
    keys: tuple[str, ...],
    tables: Mapping[str, StateTable] | None = None,
    objects: TaskObjects | None = None,
    *,
    now_ms: int = 0,
    tasks: int = 4,
) -> Context:
    """A context in which one instance owns all tasks."""
    return Context(
        batch_id=0,
        now_ms=now_ms,
        operator="op",
        instance=0,
        tasks=tuple(range(tasks)),
        tasks_total=tasks,
        keys=keys,
        hashes=hash_keys([rows.column(key) for key in keys]),
        input=rows.schema,
        output=operator.output_schema(rows.schema, keys),
        tables=tables or {},
        objects=objects,
    )


def dict_tables(operator: Any, input: pa.Schema, keys: tuple[str, ...]) -> dict[str, DictTable]:
    return {name: DictTable(spec) for name, spec in operator.tables(input, keys).items()}
