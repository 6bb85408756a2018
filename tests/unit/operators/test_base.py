"""Writing an operator: what it may declare, what is refused, how it is called."""

# ruff: noqa: RUF012 -- plain dicts as class attributes are exactly what users write
from __future__ import annotations

from datetime import timedelta
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.unit.operators.fakes import DictObjects, context, dict_tables

from updraft.operators import (
    Context,
    KeyedOperator,
    ObjectOperator,
    OutputMismatch,
    Table,
    duration_ms,
    problems,
    run_keyed,
    run_objects,
)
from updraft.state.keys import hash_keys, task_of

KEYS = ("user",)


class LastSeen(KeyedOperator):
    state = {"seen": pa.int64()}
    output = {"user": pa.string(), "gap": pa.int64()}

    def process(self, rows: pa.Table, ctx: Context) -> pa.Table:
        old = ctx.state.get(rows.select(["user"]))
        ctx.state.put(rows.select(["user", "seen"]))
        return pa.table({"user": rows["user"], "gap": pc.subtract(rows["seen"], old.values["seen"])})


class Reminder(KeyedOperator):
    state = {"seen": pa.int64()}
    output = {"user": pa.string()}
    timers = True
    ttl = "1h"

    def process(self, rows: pa.Table, ctx: Context) -> pa.Table:
        ctx.state.put(rows.select(["user", "seen"]), timers_us=rows["seen"].to_numpy())
        return ctx.output.empty_table()

    def on_timer(self, due: pa.Table, ctx: Context) -> pa.Table:
        assert ctx.firing == "state"
        again = due.filter(pc.equal(due["user"], "b"))
        if again.num_rows:
            ctx.state.set_timers(again.select(["user"]), np.array([ctx.now_ms * 1000 + 5_000]))
        return due.select(["user"])


class Running(ObjectOperator):
    output = {"task": pa.int64(), "rows": pa.int64()}

    def process(self, rows: pa.Table, ctx: Context) -> pa.Table:
        state = self.get_state()
        total = int(state or b"0") + rows.num_rows
        self.set_state(str(total).encode())
        return pa.table({"task": [ctx.task], "rows": [total]})


def seen(*rows: tuple[str, int]) -> pa.Table:
    schema = pa.schema([("user", pa.string()), ("seen", pa.int64())])
    return pa.Table.from_pylist([{"user": user, "seen": time} for user, time in rows], schema=schema)


def test_the_shortest_useful_operator() -> None:
    operator = cloudpickle.loads(cloudpickle.dumps(LastSeen()))
    assert problems(operator) == []
    rows = seen(("a", 3), ("b", 4))
    tables = dict_tables(operator, rows.schema, KEYS)
    assert tables["state"].spec.values == pa.schema([("seen", pa.int64())])
    first = run_keyed(operator, rows, context(operator, rows, KEYS, tables))
    assert first["gap"].to_pylist() == [None, None]
    later = seen(("b", 10))
    second = run_keyed(operator, later, context(operator, later, KEYS, tables))
    assert second.to_pylist() == [{"user": "b", "gap": 6}]


def test_a_timer_fires_once_unless_set_again() -> None:
    operator = Reminder()
    assert problems(operator) == []
    rows = seen(("a", 1_000), ("b", 1_000), ("c", 9_000))
    tables = dict_tables(operator, rows.schema, KEYS)
    assert tables["state"].spec.ttl_ms == 3_600_000

    def at(now_ms: int, batch: pa.Table) -> list[str]:
        ctx = context(operator, batch, KEYS, tables, now_ms=now_ms)
        return sorted(run_keyed(operator, batch, ctx)["user"].to_pylist())

    nothing = rows.slice(0, 0)
    assert at(0, rows) == []
    assert at(1, nothing) == ["a", "b"]
    assert at(2, nothing) == []
    assert at(6, nothing) == ["b"]
    assert at(9, nothing) == ["c"]


def test_an_object_operator_is_called_once_per_task_with_its_rows() -> None:
    operator = Running()
    assert problems(operator) == []
    rows = seen(*((f"user{number}", number) for number in range(50)))
    objects = DictObjects()
    expected = np.bincount(task_of(hash_keys([rows["user"]]), 4), minlength=4)
    for times in (1, 2):
        output = run_objects(operator, rows, context(operator, rows, KEYS, objects=objects))
        assert output["task"].to_pylist() == [0, 1, 2, 3]
        assert output["rows"].to_pylist() == (expected * times).tolist()
    with pytest.raises(RuntimeError, match=r"only inside process\(\)"):
        operator.get_state()


def test_object_state_is_bytes_or_a_table() -> None:
    class Wrong(Running):
        def process(self, rows: pa.Table, ctx: Context) -> pa.Table:
            self.set_state({"a": 1})  # type: ignore[arg-type]
            return ctx.output.empty_table()

    rows = seen(("a", 1))
    with pytest.raises(TypeError, match=r"bytes, a pyarrow\.Table or None, not dict"):
        run_objects(Wrong(), rows, context(Wrong(), rows, KEYS, objects=DictObjects()))


def test_an_operator_without_output_returns_none_and_nobody_else_may() -> None:
    class Silent(LastSeen):
        output = None

        def process(self, rows: pa.Table, ctx: Context) -> None:  # type: ignore[override]
            ctx.state.put(rows)

    class Forgetful(LastSeen):
        def process(self, rows: pa.Table, ctx: Context) -> None:  # type: ignore[override]
            ctx.state.put(rows)

    rows = seen(("a", 1))
    tables = dict_tables(Silent(), rows.schema, KEYS)
    assert problems(Silent()) == []
    assert run_keyed(Silent(), rows, context(Silent(), rows, KEYS, tables)).num_rows == 0
    with pytest.raises(OutputMismatch, match="returned None; return an empty table"):
        run_keyed(Forgetful(), rows, context(Forgetful(), rows, KEYS, tables))


def test_several_tables() -> None:
    class Both(KeyedOperator):
        tables = {"left": Table({"x": pa.int64()}, ttl=60), "right": Table(pa.schema([("y", pa.string())]))}
        output = None

        def process(self, rows: pa.Table, ctx: Context) -> None:
            ctx.table("nope")

    rows = seen(("a", 1))
    specs = Both().tables(rows.schema, KEYS)
    assert problems(Both()) == []
    assert specs["left"].ttl_ms == 60_000
    assert specs["right"].values.names == ["y"]
    assert specs["right"].key == pa.schema([("user", pa.string())])
    ctx = context(Both(), rows, KEYS, dict_tables(Both(), rows.schema, KEYS))
    with pytest.raises(KeyError, match=r"no state table 'nope' \(declared: left, right\)"):
        Both().process(rows, ctx)


def keyed(**declared: Any) -> KeyedOperator:
    """An operator class with these declarations over sound ones; `...` leaves one out."""
    sound: dict[str, Any] = {
        "state": {"x": pa.int64()},
        "output": None,
        "process": lambda self, rows, ctx: None,
    }
    return type("Op", (KeyedOperator,), {k: v for k, v in (sound | declared).items() if v is not ...})()


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"process": ...}, "Op has no process"),
        ({"process": 5}, "Op.process is not a function"),
        ({"state": ...}, "Op declares no state"),
        ({"state": {}}, "Op.state must be"),
        ({"state": ["x"]}, "Op.state must be"),
        ({"state": {"x": int}}, "Op.state: type of 'x' must be a pyarrow type"),
        ({"state": {"__hash": pa.int64()}}, "Op.state: column name '__hash'"),
        ({"ttl": "ten minutes"}, "Op: ttl 'ten minutes' is not a duration"),
        ({"ttl": -1}, "Op: ttl -1 is not a duration"),
        ({"ttl": True}, "Op: ttl True is not a duration"),
        ({"timers": True}, "Op declares timers but no on_timer"),
        ({"on_timer": lambda self, due, ctx: None}, "Op has on_timer but declares no timers"),
        ({"output": ...}, "Op does not declare its output"),
        ({"output": {"x": "int64"}}, "Op.output: type of 'x' must be a pyarrow type"),
        ({"tables": {"a": Table({"x": pa.int64()})}}, "Op declares both state and tables"),
        ({"state": ..., "tables": {"a": {"x": pa.int64()}}}, "Op.tables['a'] must be a ud.Table"),
        ({"state": ..., "tables": {"a": Table({"x": pa.int64()}, ttl="1")}}, "Op.tables['a']: ttl '1'"),
        ({"state": ..., "tables": {"a b": Table({"x": pa.int64()})}}, "Op.tables['a b']: a table's name"),
        (
            {"state": ..., "tables": {"a": Table({"x": pa.int64()})}, "ttl": 1},
            "Op has several tables; give ttl",
        ),
        ({"state": ..., "tables": []}, "Op.tables must be a mapping"),
    ],
)
def test_each_wrong_definition_is_one_problem(declared: dict[str, Any], message: str) -> None:
    (problem,) = problems(keyed(**declared))
    assert problem.startswith(message)


def test_all_problems_at_once_and_no_operator() -> None:
    assert len(problems(keyed(process=..., state={"x": 1}, ttl="x", output=...))) == 4
    assert "is not an operator" in problems(object())[0]
    assert "has no process" in problems(type("Obj", (ObjectOperator,), {"output": None})())[0]


@pytest.mark.parametrize(
    ("written", "ms"),
    [
        ("500ms", 500),
        ("30s", 30_000),
        ("10m", 600_000),
        (" 1.5 h ", 5_400_000),
        ("7d", 604_800_000),
        (2, 2_000),
    ],
)
def test_durations(written: Any, ms: int) -> None:
    assert duration_ms(written) == ms
    assert duration_ms(timedelta(milliseconds=ms)) == ms


@pytest.mark.parametrize("written", ["", "10", "m", "-1s", 0, float("nan"), float("inf"), None, [], "0s"])
def test_not_durations(written: Any) -> None:
    with pytest.raises(ValueError, match="is not a duration: write a positive"):
        duration_ms(written)
