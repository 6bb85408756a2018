"""User operators over the real state, sealed and opened again between batches."""

# ruff: noqa: RUF012 -- plain dicts as class attributes are exactly what users write
from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from tests.unit.operators.fakes import context

from updraft.operators import Context, KeyedOperator, ObjectOperator, run_keyed, run_objects
from updraft.state import KeyedTable, Level, LocalStore, Sealed
from updraft.state.objects import ObjectState

TASKS, MINE = 4, (0, 1, 2, 3)


class Idle(KeyedOperator):
    """Reports a user 10 ms after the last event."""

    state = {"events": pa.int64()}
    output = {"user": pa.string(), "events": pa.int64()}
    timers = True

    def process(self, rows: pa.Table, ctx: Context) -> pa.Table:
        touched = rows.group_by("user", use_threads=False).aggregate([([], "count_all")])
        users = touched.select(["user"])
        old = ctx.state.get(users).values["events"].fill_null(0)
        events = pc.add(old, touched["count_all"])
        timers = pa.array([(ctx.now_ms + 10) * 1_000] * users.num_rows, pa.int64())
        ctx.state.put(users.append_column("events", events), timers_us=timers)
        return ctx.output.empty_table()

    def on_timer(self, due: pa.Table, ctx: Context) -> pa.Table:
        users = due.select(["user"])
        events = ctx.state.get(users).values["events"]
        ctx.state.delete(users)
        return users.append_column("events", events)


class Seen(ObjectOperator):
    """Keeps every row of a task as a table."""

    output = {"rows": pa.int64()}

    def process(self, rows: pa.Table, ctx: Context) -> pa.Table:
        old = self.get_state()
        everything = pa.concat_tables([old, rows]) if isinstance(old, pa.Table) else rows
        self.set_state(everything)
        return pa.table({"rows": [everything.num_rows]})


def after(levels: tuple[Level, ...], sealed: Sealed | None) -> tuple[Level, ...]:
    if sealed is None:
        return levels
    kept = tuple(level for level in levels if level.ref.name not in sealed.replaced)
    return (*kept, Level(ref=sealed.added, live=None))


def users(*names: str) -> pa.Table:
    return pa.table({"user": pa.array(names, pa.string())})


def test_timers_and_deletes(tmp_path: Path) -> None:
    operator, store = Idle(), LocalStore(tmp_path)
    levels: tuple[Level, ...] = ()
    seen: list[list[tuple[str, int]]] = []
    schedule = [(0, users("a", "b", "a")), (5, users("b")), (10, users()), (15, users()), (30, users("a"))]
    for batch, (now_ms, rows) in enumerate([*schedule, (40, users())]):
        spec = operator.tables(rows.schema, ("user",))["state"]
        table = KeyedTable(spec=spec, tasks=TASKS, mine=MINE, levels=levels, store=store, now_ms=now_ms)
        output = run_keyed(
            operator, rows, context(operator, rows, ("user",), {"state": table}, now_ms=now_ms)
        )
        levels = after(levels, table.seal(f"op/state-{batch}.arrow", batch))
        seen.append([(row["user"], row["events"]) for row in output.to_pylist()])
    assert seen == [[], [], [("a", 2)], [("b", 2)], [], [("a", 1)]]


def test_object_state(tmp_path: Path) -> None:
    operator, store = Seen(), LocalStore(tmp_path)
    levels: tuple[Level, ...] = ()
    rows = users(*(f"user{number}" for number in range(20)))
    for batch in range(3):
        objects = ObjectState(tasks=TASKS, mine=MINE, levels=levels, store=store)
        ctx = context(operator, rows, ("user",), objects=objects, tasks=TASKS)
        output = run_objects(operator, rows, ctx)
        levels = after(levels, objects.seal(f"op/object-{batch}.arrow", batch))
        assert sum(output["rows"].to_pylist()) == 20 * (batch + 1)
