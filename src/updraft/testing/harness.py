"""One stateful operator over scripted batches and real state on disk, without Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from updraft.eventtime import Clocks, EventTime, Feed, Seen, advance_clocks, largest_us
from updraft.operators import (
    Combiner,
    Context,
    KeyedOperator,
    ObjectOperator,
    Tally,
    problems,
    run_keyed,
    run_objects,
)
from updraft.operators.duration import Duration, duration_ms
from updraft.plan import split_tasks
from updraft.state import (
    OBJECT_SPEC,
    OBJECT_TABLE,
    KeyedTable,
    LocalStore,
    Manifest,
    ObjectState,
    Sealed,
    advance,
    hash_keys,
    levels_for,
    segment_name,
    start,
    task_of,
)
from updraft.testing.clock import ManualClock

_NAME = "operator"
_SOURCE = "source"


class OperatorHarness:
    """Feeds batches to an operator; made by `operator_harness`."""

    def __init__(
        self,
        operator: KeyedOperator | ObjectOperator,
        schema: pa.Schema,
        keys: tuple[str, ...],
        clock: ManualClock,
        tasks: int,
        parallelism: int,
        directory: Path | None,
        event_time: EventTime | None = None,
    ) -> None:
        self.clock = clock
        self.late_rows = 0
        self._event_time = event_time
        self.batch_id = -1
        self.output_schema = operator.output_schema(schema, keys)
        self._operator, self._schema, self._keys = operator, schema, keys
        self._tasks = tasks
        self._instances = split_tasks(tasks, parallelism)
        self._owned = tempfile.TemporaryDirectory(prefix="updraft-harness-") if directory is None else None
        self._store = LocalStore(Path(self._owned.name if self._owned is not None else str(directory)))
        self._specs = operator.tables(schema, keys) if isinstance(operator, KeyedOperator) else {}
        specs = self._specs or {OBJECT_TABLE: OBJECT_SPEC}
        self._manifest = start("harness", {(_NAME, table): (tasks, spec) for table, spec in specs.items()})

    def process(self, rows: pa.Table | Sequence[Mapping[str, Any]] = ()) -> pa.Table:
        """One batch at the clock's time; returns what all instances emitted, and seals the state.

        With an event time its rows move the watermark as those of a source would; `late_rows` counts what came too late.
        """
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(list(rows), schema=self._schema)
        owner = task_of(hash_keys([table.column(key) for key in self._keys]), self._tasks)
        emitted: list[pa.Table] = []
        sealed: dict[tuple[str, str], list[tuple[Sequence[int], Sealed | None]]] = {}
        batch_id = self.batch_id + 1
        clocks = self._clocks_after(table)
        tally = Tally()
        for index, mine in enumerate(self._instances):
            chosen = np.flatnonzero(np.isin(owner, mine))
            tables, objects = self._open(self._manifest, mine)
            emitted.append(
                self._run(batch_id, index, mine, table.take(chosen), tables, objects, clocks, tally)
            )
            states: dict[str, KeyedTable | ObjectState] = {
                **tables,
                **({OBJECT_TABLE: objects} if objects else {}),
            }
            for name, state in states.items():
                file = segment_name(operator=_NAME, table=name, instance=index, batch=batch_id, attempt=1)
                sealed.setdefault((_NAME, name), []).append((mine, state.seal(file, batch_id)))
        # Only now: an operator that raised leaves state and batch id as they were, so the batch can be given again.
        self._manifest = advance(self._manifest, batch_id, 1, sealed, clocks)
        self.batch_id = batch_id
        self.late_rows += tally.late_rows
        return pa.concat_tables(emitted)

    @property
    def watermark_ms(self) -> int | None:
        """The watermark after the last batch."""
        return self._manifest.clocks.watermarks_ms.get(_NAME)

    def _clocks_after(self, rows: pa.Table) -> Clocks:
        if self._event_time is None:
            return Clocks()
        now_ms, declared = self.clock.now_ms, self._event_time
        seen: Seen = {}
        if rows.num_rows:
            seen = {_SOURCE: largest_us(rows.column(declared.column), declared, now_ms)}
        feeds = {_NAME: Feed(legs=(_SOURCE,))}
        return advance_clocks(self._manifest.clocks, seen, {_SOURCE: declared}, feeds, now_ms)

    def state(self, table: str = "state") -> pa.Table:
        """All live rows of a state table, in no particular order."""
        tables, _ = self._open(self._manifest, tuple(range(self._tasks)))
        return tables[table].scan()

    def objects(self) -> dict[int, bytes | pa.Table]:
        """The value of every task of an ObjectOperator that has one."""
        _, objects = self._open(self._manifest, tuple(range(self._tasks)))
        if objects is None:
            raise TypeError("only an ObjectOperator has objects; see state()")
        found = {task: objects.get(task) for task in range(self._tasks)}
        return {task: value for task, value in found.items() if value is not None}

    def rescale(self, parallelism: int) -> None:
        """Run the next batches on another number of instances."""
        self._instances = split_tasks(self._tasks, parallelism)

    def _open(
        self, manifest: Manifest, mine: tuple[int, ...]
    ) -> tuple[dict[str, KeyedTable], ObjectState | None]:
        tables = {
            name: KeyedTable(
                spec=spec,
                tasks=self._tasks,
                mine=mine,
                levels=levels_for(manifest, _NAME, name, mine),
                store=self._store,
                now_ms=self.clock.now_ms,
                operator=_NAME,
                table=name,
            )
            for name, spec in self._specs.items()
        }
        if isinstance(self._operator, KeyedOperator):
            return tables, None
        levels = levels_for(manifest, _NAME, OBJECT_TABLE, mine)
        return tables, ObjectState(
            tasks=self._tasks, mine=mine, levels=levels, store=self._store, operator=_NAME
        )

    def _run(
        self,
        batch_id: int,
        index: int,
        mine: tuple[int, ...],
        rows: pa.Table,
        tables: Mapping[str, KeyedTable],
        objects: ObjectState | None,
        clocks: Clocks,
        tally: Tally,
    ) -> pa.Table:
        ctx = Context(
            batch_id=batch_id,
            now_ms=self.clock.now_ms,
            operator=_NAME,
            instance=index,
            tasks=mine,
            tasks_total=self._tasks,
            keys=self._keys,
            hashes=hash_keys([rows.column(key) for key in self._keys]),
            input=self._schema,
            output=self.output_schema,
            tables=tables,
            objects=objects,
            watermark_ms=self.watermark_ms,
            next_watermark_ms=clocks.watermarks_ms.get(_NAME),
            tally=tally,
        )
        if isinstance(self._operator, Combiner):
            return self._run_combiner(self._operator, rows, ctx)
        if isinstance(self._operator, KeyedOperator):
            return run_keyed(self._operator, rows, ctx)
        return run_objects(self._operator, rows, ctx)

    def _run_combiner(self, operator: Combiner, rows: pa.Table, ctx: Context) -> pa.Table:
        """Half of the rows from a sender that combines, half from one that does not."""
        half = rows.num_rows // 2
        table, known = operator.combine(rows.slice(0, half), self._keys) if half else (None, None)
        return operator.process_mixed(rows.slice(half), ctx.hashes[half:], table, known, ctx)


def operator_harness(
    operator: KeyedOperator | ObjectOperator,
    schema: pa.Schema,
    keys: Sequence[str],
    clock: ManualClock | None = None,
    *,
    tasks: int = 4,
    parallelism: int = 1,
    directory: Path | None = None,
    event_time: str | None = None,
    delay: Duration = 0,
    max_ahead: Duration | None = None,
) -> OperatorHarness:
    """A harness that drives an operator as a run would, one batch per `process` call, with time under your control.

        clock = ManualClock()
        harness = operator_harness(Sessions(), pa.schema([("user", pa.string())]), ["user"], clock)
        harness.process([{"user": "ann"}])
        clock.advance("31m")
        assert harness.process().to_pylist() == [{"user": "ann", "events": 1}]    # its timer was due
        assert harness.state().num_rows == 0

    `event_time` and `delay` are what `with_watermark` takes: the batches' rows then move `ctx.watermark_ms`.
    State is sealed to files and opened again between batches, so what an operator wrongly keeps in memory shows.
    """
    made = list(problems(operator))
    unknown = [key for key in keys if key not in schema.names]
    made += [f"key column '{key}' is not in the schema" for key in unknown] or ([] if keys else ["give keys"])
    if made:
        raise ValueError(f"{type(operator).__name__} cannot be run: " + "; ".join(made))
    declared = None
    if event_time is not None:
        declared = EventTime(
            column=event_time,
            delay_ms=duration_ms(delay, at_least_ms=0),
            max_ahead_ms=None if max_ahead is None else duration_ms(max_ahead, at_least_ms=0),
        )
    return OperatorHarness(
        operator, schema, tuple(keys), clock or ManualClock(), tasks, parallelism, directory, declared
    )
