"""The operator harness: real state, scripted time, no Spark."""

# ruff: noqa: RUF012 -- plain dicts as class attributes are exactly what users write
from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import updraft as ud
from updraft.operators import Aggregate
from updraft.testing import ManualClock, operator_harness, recompute
from updraft.topology.aggregates import count
from updraft.topology.aggregates import sum as total_of

USERS = pa.schema([("user", pa.string())])


class Sessions(ud.KeyedOperator):
    """Reports a user's events when 30 minutes have passed without one."""

    state = {"events": pa.int64()}
    timers = True
    output = {"user": pa.string(), "events": pa.int64()}

    def process(self, rows: pa.Table, ctx: ud.Context) -> pa.Table:
        touched = rows.group_by("user", use_threads=False).aggregate([([], "count_all")])
        users = touched.select(["user"])
        events = pc.add(ctx.state.get(users).values["events"].fill_null(0), touched["count_all"])
        timers = pa.array([(ctx.now_ms + 1_800_000) * 1_000] * len(users), pa.int64())
        ctx.state.put(users.append_column("events", events), timers_us=timers)
        return ctx.output.empty_table()

    def on_timer(self, due: pa.Table, ctx: ud.Context) -> pa.Table:
        users = due.select(["user"])
        events = ctx.state.get(users).values["events"]
        ctx.state.delete(users)
        return users.append_column("events", events)


class Fresh(ud.KeyedOperator):
    """Users not seen for ten seconds."""

    state = {"seen": pa.bool_()}
    ttl = "10s"
    output = {"user": pa.string()}

    def process(self, rows: pa.Table, ctx: ud.Context) -> pa.Table:
        users = rows.group_by("user", use_threads=False).aggregate([])
        known = ctx.state.get(users).mask
        ctx.state.put(users.append_column("seen", pa.array([True] * len(users))))
        return users.filter(pa.array(~known))


class Tally(ud.ObjectOperator):
    """Rows per task; refuses the user 'bad'."""

    output = {"rows": pa.int64()}

    def process(self, rows: pa.Table, ctx: ud.Context) -> pa.Table:
        old = self.get_state()
        rows_seen = int.from_bytes(old if isinstance(old, bytes) else b"", "little") + len(rows)
        self.set_state(rows_seen.to_bytes(8, "little"))
        if "bad" in rows["user"].to_pylist():
            raise ValueError("bad user")
        return pa.table({"rows": pa.array([rows_seen], pa.int64())})


def user(*names: str) -> list[dict[str, str]]:
    return [{"user": name} for name in names]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_timers_fire_when_the_clock_says_so(parallelism: int) -> None:
    clock = ManualClock()
    harness = operator_harness(Sessions(), USERS, ["user"], clock, parallelism=parallelism)
    assert harness.process(user("ann", "ann", "bob")).num_rows == 0
    clock.advance("20m")
    assert harness.process(user("bob")).num_rows == 0
    clock.advance("15m")
    harness.rescale(2)
    assert harness.process().to_pylist() == [{"user": "ann", "events": 2}]
    assert harness.state().to_pylist() == [{"user": "bob", "events": 2}]


def test_ttl_follows_the_clock() -> None:
    clock = ManualClock()
    harness = operator_harness(Fresh(), USERS, ["user"], clock)
    assert harness.process(user("ann")).to_pylist() == user("ann")
    clock.advance("9s")
    assert harness.process(user("ann")).num_rows == 0
    clock.advance("11s")
    assert harness.process(user("ann")).to_pylist() == user("ann")


def test_an_operator_that_raises_leaves_the_state_as_it_was() -> None:
    harness = operator_harness(Tally(), USERS, ["user"], tasks=1)
    harness.process(user("ann", "bob"))
    with pytest.raises(ValueError, match="bad user"):
        harness.process(user("ann", "bad"))
    assert harness.batch_id == 0
    assert harness.objects() == {0: (2).to_bytes(8, "little")}
    assert harness.process(user("ann")).to_pylist() == [{"rows": 3}]


def test_built_in_aggregates_run_in_it_too() -> None:
    schema = pa.schema([("user", pa.string()), ("amount", pa.int64())])
    aggregates = {"n": count(), "total": total_of("amount")}
    harness = operator_harness(Aggregate(aggregates), schema, ["user"], parallelism=2)
    batches = [[{"user": f"u{n % 5}", "amount": n} for n in range(start, start + 20)] for start in (0, 7)]
    rows = [row for batch in batches for row in harness.process(batch).to_pylist()]
    newest = {row["user"]: row for row in rows}
    assert newest == {row["user"]: row for row in recompute(batches, ["user"], **aggregates)}


def test_what_cannot_be_run_is_said_at_once() -> None:
    with pytest.raises(ValueError, match="key column 'name' is not in the schema"):
        operator_harness(Fresh(), USERS, ["name"])
    with pytest.raises(ValueError, match="give keys"):
        operator_harness(Fresh(), USERS, [])
    with pytest.raises(TypeError, match="only an ObjectOperator has objects"):
        operator_harness(Fresh(), USERS, ["user"]).objects()
