"""One stateful operator over scripted batches and real state on disk, without Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from updraft.operators import Context, KeyedOperator, ObjectOperator, problems, run_keyed, run_objects
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
    ) -> None:
        self.clock = clock
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
        """One batch at the clock's time; returns what all instances emitted, and seals the state."""
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(list(rows), schema=self._schema)
        owner = task_of(hash_keys([table.column(key) for key in self._keys]), self._tasks)
        emitted: list[pa.Table] = []
        sealed: dict[tuple[str, str], list[tuple[Sequence[int], Sealed | None]]] = {}
        batch_id = self.batch_id + 1
        for index, mine in enumerate(self._instances):
            chosen = np.flatnonzero(np.isin(owner, mine))
            tables, objects = self._open(self._manifest, mine)
            emitted.append(self._run(batch_id, index, mine, table.take(chosen), tables, objects))
            states: dict[str, KeyedTable | ObjectState] = {
                **tables,
                **({OBJECT_TABLE: objects} if objects else {}),
            }
            for name, state in states.items():
                file = segment_name(operator=_NAME, table=name, instance=index, batch=batch_id, attempt=1)
                sealed.setdefault((_NAME, name), []).append((mine, state.seal(file, batch_id)))
        # Only now: an operator that raised leaves state and batch id as they were, so the batch can be given again.
        self._manifest = advance(self._manifest, batch_id, 1, sealed)
        self.batch_id = batch_id
        return pa.concat_tables(emitted)

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
        )
        if isinstance(self._operator, KeyedOperator):
            return run_keyed(self._operator, rows, ctx)
        return run_objects(self._operator, rows, ctx)


def operator_harness(
    operator: KeyedOperator | ObjectOperator,
    schema: pa.Schema,
    keys: Sequence[str],
    clock: ManualClock | None = None,
    *,
    tasks: int = 4,
    parallelism: int = 1,
    directory: Path | None = None,
) -> OperatorHarness:
    """A harness that drives an operator as a run would, one batch per `process` call, with time under your control.

        clock = ManualClock()
        harness = operator_harness(Sessions(), pa.schema([("user", pa.string())]), ["user"], clock)
        harness.process([{"user": "ann"}])
        clock.advance("31m")
        assert harness.process().to_pylist() == [{"user": "ann", "events": 1}]    # its timer was due
        assert harness.state().num_rows == 0

    State is sealed to files and opened again between batches, so what an operator wrongly keeps in memory shows.
    """
    made = list(problems(operator))
    unknown = [key for key in keys if key not in schema.names]
    made += [f"key column '{key}' is not in the schema" for key in unknown] or ([] if keys else ["give keys"])
    if made:
        raise ValueError(f"{type(operator).__name__} cannot be run: " + "; ".join(made))
    return OperatorHarness(
        operator, schema, tuple(keys), clock or ManualClock(), tasks, parallelism, directory
    )
