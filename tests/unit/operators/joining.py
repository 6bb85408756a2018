"""A join over real state, fed batch by batch with rows of two sides whose times move a watermark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from updraft.operators import Context, PortRows, Tally, run_ported
from updraft.operators.join import Join
from updraft.plan import split_tasks
from updraft.state import KeyedTable, LocalStore, advance, hash_keys, levels_for, segment_name, start, task_of

TIME = pa.timestamp("us", "UTC")
EPOCH = datetime(2026, 3, 29, tzinfo=UTC)  # a day on which Europe changes its clocks


def at(seconds: float | None) -> datetime | None:
    return None if seconds is None else EPOCH + timedelta(seconds=seconds)


class JoinHarness:
    """`process(left, right)` is one batch; the watermark follows the slower side."""

    def __init__(self, join: Join, directory: Path, *, delay_ms: int = 0, tasks: int = 4) -> None:
        self.join, self.tasks, self.delay_ms = join, tasks, delay_ms
        self.store = LocalStore(directory)
        self.schema = join.sides["left"].schema
        self.keys = join.sides["left"].keys
        self.output = join.output_schema(self.schema, self.keys)
        self.specs = join.tables(self.schema, self.keys)
        self.manifest = start("t", {("join", name): (tasks, spec) for name, spec in self.specs.items()})
        self.instances = split_tasks(tasks, 1)
        self.largest: dict[str, int] = {}
        self.watermark_ms: int | None = None
        self.late_rows = 0
        self.batch = -1

    def rescale(self, parallelism: int) -> None:
        self.instances = split_tasks(self.tasks, parallelism)

    def process(
        self, left: Sequence[Mapping[str, Any]] | pa.Table, right: Sequence[Mapping[str, Any]] | pa.Table
    ) -> pa.Table:
        arrived = {"left": self._table("left", left), "right": self._table("right", right)}
        before, after = self.watermark_ms, self._moved(arrived)
        self.batch += 1
        tally = Tally()
        out, sealed = [], {}
        for index, mine in enumerate(self.instances):
            tables = {name: self._open(name, mine) for name in self.specs}
            ctx = Context(
                batch_id=self.batch, now_ms=0, operator="join", instance=index, tasks=mine, tasks_total=self.tasks,
                keys=self.keys, hashes=np.empty(0, np.uint64), input=self.schema, output=self.output, tables=tables,
                watermark_ms=before, next_watermark_ms=after, tally=tally,
            )  # fmt: skip
            ports = [self._share(name, rows, mine) for name, rows in arrived.items()]
            out.append(run_ported(self.join, ports, ctx))
            for name, table in tables.items():
                file = segment_name(operator="join", table=name, instance=index, batch=self.batch, attempt=1)
                sealed.setdefault(("join", name), []).append((mine, table.seal(file, self.batch)))
        self.manifest = advance(self.manifest, self.batch, 1, sealed)
        self.watermark_ms = after
        self.late_rows += tally.late_rows
        return pa.concat_tables(out)

    def state(self, name: str) -> pa.Table:
        return self._open(name, tuple(range(self.tasks))).scan()

    def stored_rows(self) -> int:
        """Rows in all live segments, dead ones included."""
        chains = [levels_for(self.manifest, "join", name, tuple(range(self.tasks))) for name in self.specs]
        return sum(level.ref.rows for levels in chains for level in levels)

    def _table(self, side: str, rows: Sequence[Mapping[str, Any]] | pa.Table) -> pa.Table:
        if isinstance(rows, pa.Table):
            return rows
        return pa.Table.from_pylist(list(rows), schema=self.join.sides[side].schema)

    def _moved(self, arrived: Mapping[str, pa.Table]) -> int | None:
        for name, rows in arrived.items():
            times = [t for t in rows.column(self.join.sides[name].time).to_pylist() if t is not None]
            if times:
                newest = int(max(times).timestamp() * 1_000_000) // 1_000
                self.largest[name] = max(newest, self.largest.get(name, newest))
        if len(self.largest) < len(arrived):
            return self.watermark_ms
        reached = min(self.largest.values()) - self.delay_ms
        return reached if self.watermark_ms is None else max(self.watermark_ms, reached)

    def _open(self, name: str, mine: tuple[int, ...]) -> KeyedTable:
        levels = levels_for(self.manifest, "join", name, mine)
        return KeyedTable(
            spec=self.specs[name],
            tasks=self.tasks,
            mine=mine,
            levels=levels,
            store=self.store,
            operator="join",
            table=name,
        )

    def _share(self, name: str, rows: pa.Table, mine: tuple[int, ...]) -> PortRows:
        hashes = hash_keys([rows.column(key) for key in self.join.sides[name].keys])
        chosen = np.flatnonzero(np.isin(task_of(hashes, self.tasks), mine))
        return PortRows(rows=rows.take(chosen), hashes=hashes[chosen])
