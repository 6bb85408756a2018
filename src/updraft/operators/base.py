"""The classes a user subclasses to write a stateful operator.

    class LastSeen(ud.KeyedOperator):
        state = {"seen": pa.int64()}
        output = {"user": pa.string(), "gap": pa.int64()}

        def process(self, rows, ctx):
            old = ctx.state.get(rows.select(["user"]))
            ...
            ctx.state.put(...)
            return pa.table(...)

**Operators hold nothing between batches.** An instance is pickled to whichever worker runs it, a batch may be
run again, and tasks move between workers: an attribute written in `process` is lost or, worse, seen by some
batches only. Parameters set in `__init__` are fine; everything that changes belongs into `ctx.state`.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, TypeAlias, runtime_checkable

import pyarrow as pa

from updraft.operators.context import Context, Hashes, TaskObjects
from updraft.operators.duration import Duration, duration_ms
from updraft.state.spec import TableSpec

Columns: TypeAlias = Mapping[str, pa.DataType] | pa.Schema


@dataclass(frozen=True, slots=True)
class Table:
    """Declares one state table by its value columns; its key is the stream's key columns."""

    columns: Columns
    ttl: Duration | None = None
    timers: bool | Literal["event"] = False


def to_schema(columns: Columns) -> pa.Schema:
    """A schema from either way of declaring one."""
    return columns if isinstance(columns, pa.Schema) else pa.schema(list(columns.items()))


class KeyedOperator:
    """A stateful operator over keyed tables; `process` gets all rows of the instance's tasks at once.

    Declare `state = {column: type}` for one table, `ctx.state`, keyed by the stream's key columns; `ttl` (a
    row not written for that long is gone) and `timers = True` belong to it. For several tables declare
    `tables = {"left": ud.Table({...}, ttl="1h"), ...}` instead and use `ctx.table("left")`.

    Declare `output = {column: type}`, or `output = None` for an operator that only updates state; only such
    an operator may return None. With timers, `on_timer` gets the keys whose timer is due, after the batch's
    rows were processed; a timer fires once unless it is set again. `timers = True` means the batch's clock,
    `timers = "event"` event time: due when `ctx.next_watermark_ms` has reached it.

    `event_lag_ms` says how far behind its watermark the event times of its output may be, so that operators
    behind it do not take them for late.

    What depends on the input's schema is declared by overriding the methods `tables(input, keys)`, which
    returns `{name: TableSpec}`, or `output_schema(input, keys)`.
    """

    state: ClassVar[Columns | None] = None
    ttl: Duration | None = None
    timers: bool | Literal["event"] = False
    event_lag_ms: int = 0
    output: ClassVar[Columns | None]
    _declared: ClassVar[Any] = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        declared = cls.__dict__.get("tables")
        if declared is not None and not callable(declared):
            # `tables = {...}` is what users write; `tables(input, keys)` is what everybody else calls.
            cls._declared = declared
            del cls.tables

    def process(self, rows: pa.Table, ctx: Context) -> pa.Table | None:
        """Rows of this batch -> output rows; reads and writes `ctx.state`."""
        raise NotImplementedError(f"{type(self).__name__} must define process(self, rows, ctx)")

    def on_timer(self, due: pa.Table, ctx: Context) -> pa.Table | None:
        """Keys (and `__timer_us`) whose timer is due -> output rows, or None for none."""
        return None

    def evict(self, ctx: Context) -> pa.Table | None:
        """Called at the end of every batch if a state table has timers: for operators that fetch and delete what is due in
        bulk (`ctx.state.due`), which is cheaper than `on_timer`. Returns output rows, or None for none."""
        return None

    def input_problems(self, input: pa.Schema, keys: tuple[str, ...]) -> list[str]:
        """Every reason why it cannot run on such a stream, each with a remedy; asked before anything runs."""
        return []

    if TYPE_CHECKING:
        tables: Any  # a subclass may assign a mapping or define a method: no one type fits both
    else:

        def tables(self, input: pa.Schema, keys: tuple[str, ...]) -> Mapping[str, TableSpec]:
            """The state tables of this operator on a stream of this schema and key."""
            return _table_specs(self, input, keys)

    def output_schema(self, input: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        """Schema of what `process` returns; no columns means no output."""
        return to_schema(self.output or {})


@dataclass(frozen=True, slots=True, kw_only=True)
class PortRows:
    """Rows that arrived at one input of an operator, and the hashes of their key columns."""

    rows: pa.Table
    hashes: Hashes


class PortedOperator(KeyedOperator):
    """A keyed operator with several inputs of different columns; `ports` names them, in order.

    Every input is keyed by as many columns of the same types, so that equal keys meet in one task. The operator is made for
    the schemas of its inputs; `tables` and `output_schema` are asked with those of the first.
    """

    ports: ClassVar[tuple[str, ...]] = ()

    def process_ports(self, arrived: Mapping[str, PortRows], ctx: Context) -> pa.Table:
        """Rows of this batch by input, at least one of them not empty -> output rows."""
        raise NotImplementedError(f"{type(self).__name__} must define process_ports(self, arrived, ctx)")


@runtime_checkable
class EventTimed(Protocol):
    """A built-in operator that reads an event time column; `time` None: the one `with_watermark` named."""

    time: str | None

    def at(self, time: str) -> KeyedOperator:
        """The same operator, reading that column."""
        ...


class ObjectOperator:
    """A stateful operator with one value per task; `process` is called once per task with that task's rows.

    `self.get_state()` gives what the last batch left with `self.set_state(value)`: bytes or an Arrow table,
    None at first. Never a pickle of code: state is data and outlives the program that wrote it.
    """

    output: ClassVar[Columns | None]
    _context: Context | None = None

    def process(self, rows: pa.Table, ctx: Context) -> pa.Table | None:
        """Rows of one task -> output rows."""
        raise NotImplementedError(f"{type(self).__name__} must define process(self, rows, ctx)")

    def get_state(self) -> bytes | pa.Table | None:
        """The current task's value, None if it never had one."""
        objects, task = self._mine()
        return objects.get(task)

    def set_state(self, value: bytes | pa.Table | None) -> None:
        """Replace the current task's value; None removes it."""
        objects, task = self._mine()
        if not (value is None or isinstance(value, (bytes, pa.Table))):
            raise TypeError(f"set_state takes bytes, a pyarrow.Table or None, not {type(value).__name__}")
        objects.set(task, value)

    def input_problems(self, input: pa.Schema, keys: tuple[str, ...]) -> list[str]:
        """Every reason why it cannot run on such a stream, each with a remedy; asked before anything runs."""
        return []

    def bound(self, ctx: Context) -> Self:
        """A copy for one task, so that an attribute which `process` sets does not outlive the call."""
        twin = copy.copy(self)
        twin._context = ctx
        return twin

    def output_schema(self, input: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        """Schema of what `process` returns; no columns means no output."""
        return to_schema(self.output or {})

    def _mine(self) -> tuple[TaskObjects, int]:
        ctx = self._context
        if ctx is None or ctx.objects is None or ctx.task is None:
            raise RuntimeError("get_state and set_state work only inside process()")
        return ctx.objects, ctx.task


def declared_tables(operator: KeyedOperator) -> Any:
    """The state tables by name, whichever way they were declared; unchecked, see `problems`."""
    if operator._declared is not None:
        return operator._declared
    if operator.state is None:
        return {}
    return {"state": Table(operator.state, ttl=operator.ttl, timers=operator.timers)}


def _table_specs(operator: KeyedOperator, input: pa.Schema, keys: tuple[str, ...]) -> Mapping[str, TableSpec]:
    key = pa.schema([input.field(name) for name in keys])
    return {
        name: TableSpec(
            key=key,
            values=to_schema(table.columns),
            ttl_ms=None if table.ttl is None else duration_ms(table.ttl),
            timers=bool(table.timers),
            event_timers=table.timers == "event",
        )
        for name, table in declared_tables(operator).items()
    }


Operator = KeyedOperator | ObjectOperator


def is_output_declared(operator: Operator) -> bool:
    """Whether the class says what it returns, in either way."""
    owner: type[Operator] = KeyedOperator if isinstance(operator, KeyedOperator) else ObjectOperator
    return type(operator).output_schema is not owner.output_schema or hasattr(operator, "output")
