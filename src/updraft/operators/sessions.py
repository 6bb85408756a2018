"""Session windows by key, vectorised: rows of a key closer together than the gap belong to one session.

A row is a session [time, time + gap); sessions of a key that overlap are one, as in Spark's `session_window`. A
session is complete, and emitted once, when its end <= watermark - allowed lateness; a row is late when its own
session [time, time + gap) was complete before the batch.

The open sessions of a key are one row of state, a list per column: there is seldom more than one, and a row of input
may join two. Its timer is the end of the first session to be complete.

Only on close: a session that grows changes its end and one that joins another its start, so an updated row could
not say which one it replaces (Spark refuses update mode for sessions too).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from updraft.eventtime import micros
from updraft.operators.aggregate import reduced
from updraft.operators.arrays import from_numbers, numbers, one_array, take, take_rows, validity
from updraft.operators.base import KeyedOperator
from updraft.operators.context import Context, Hashes
from updraft.operators.grouping import Groups, group_rows
from updraft.operators.panes import I64
from updraft.operators.partials import Agg, Layout, lay_out
from updraft.operators.window import window_output, window_problems, window_rows
from updraft.state.keys import hash_keys
from updraft.state.spec import TableSpec

START, END = "__start", "__end"


class SessionWindow(KeyedOperator):
    """Aggregates per key and session of the event time in column `on`; see the module docstring."""

    def __init__(self, aggs: Mapping[str, Agg], *, gap_us: int, on: str, lateness_ms: int = 0) -> None:
        self.aggs = dict(aggs)
        self.gap_us, self.on = gap_us, on
        self.lateness_us = lateness_ms * 1_000
        self.event_lag_ms = lateness_ms

    def input_problems(self, input: pa.Schema, keys: tuple[str, ...]) -> list[str]:
        """Every reason why this cannot run on such a stream."""
        return window_problems(self.aggs, input, keys)

    def tables(self, input: pa.Schema, keys: tuple[str, ...]) -> Mapping[str, TableSpec]:
        layout = self._layout(input, keys)
        listed = [pa.field(field.name, pa.list_(field.type)) for field in _sessions(layout)]
        return {"state": TableSpec(key=layout.keys, values=pa.schema(listed), timers=True, event_timers=True)}

    def output_schema(self, input: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        return window_output(self._layout(input, keys), input.field(self.on).type)

    def process(self, rows: pa.Table, ctx: Context) -> pa.Table:
        layout = self._layout(ctx.input, ctx.keys)
        rows, hashes, times = self._in_time(rows, ctx)
        if rows.num_rows:
            fresh = self._of_rows(layout, rows, hashes, times)
            self._put(layout, *self._with_state(layout, *fresh, ctx), ctx)
        return ctx.output.empty_table()

    def on_timer(self, due: pa.Table, ctx: Context) -> pa.Table:
        """Emits what is complete of the keys that have something complete."""
        layout = self._layout(ctx.input, ctx.keys)
        keys = due.select(layout.keys.names)
        sessions, hashes, _ = _opened(layout, keys, ctx)
        assert ctx.next_watermark_ms is not None
        closed_us = ctx.next_watermark_ms * 1_000 - self.lateness_us
        complete = numbers(one_array(sessions.column(END))) <= closed_us
        rest = np.flatnonzero(~complete)
        ctx.state.delete(keys)
        self._put(layout, take_rows(sessions, rest), hashes[rest], ctx)
        done = take_rows(sessions, np.flatnonzero(complete))
        starts, ends = (numbers(one_array(done.column(name))) for name in (START, END))
        return window_rows(layout, done, starts, ends, ctx.output)

    def _in_time(self, rows: pa.Table, ctx: Context) -> tuple[pa.Table, Hashes, I64]:
        """Rows with an event time whose own session is not complete, with hashes and times; others are counted."""
        column = one_array(micros(rows.column(self.on)))
        times = numbers(column)
        good = validity(column)
        good = np.ones(len(times), np.bool_) if good is None else good
        if ctx.watermark_ms is not None:
            good = good & (times + (self.gap_us + self.lateness_us) > ctx.watermark_ms * 1_000)
        if good.all():
            return rows, ctx.hashes, times
        kept = np.flatnonzero(good)
        ctx.tally.late_rows += rows.num_rows - len(kept)
        return take_rows(rows, kept), ctx.hashes[kept], times[kept]

    def _of_rows(self, layout: Layout, rows: pa.Table, hashes: Hashes, times: I64) -> tuple[pa.Table, Hashes]:
        """Rows -> sessions, in the order of (key, start)."""
        owners = _owners(rows.select(layout.keys.names), hashes)
        groups = _overlapping(owners, hashes, times, times + self.gap_us)
        ends = np.maximum.reduceat((times + self.gap_us)[groups.order], groups.starts)
        return _made(layout, reduced(layout, rows, groups), times[groups.first], ends), groups.hashes

    def _with_state(
        self, layout: Layout, fresh: pa.Table, hashes: Hashes, ctx: Context
    ) -> tuple[pa.Table, Hashes]:
        """This batch's sessions joined with the open ones of their keys."""
        changed = np.ones(len(hashes), np.bool_)
        names = layout.keys.names
        owners = _owners(fresh.select(names), hashes)
        changed[1:] = owners[1:] != owners[:-1]
        first = np.flatnonzero(changed)
        old, old_hashes, found = _opened(layout, take_rows(fresh.select(names), first), ctx, hashes[first])
        if not found:
            return fresh, hashes
        both = pa.concat_tables([old, fresh])
        known = np.concatenate((old_hashes, hashes))
        owners = _owners(both.select(names), known)
        starts, ends = (numbers(one_array(both.column(name))) for name in (START, END))
        groups = _overlapping(owners, known, starts, ends)
        keys = take_rows(both.select(names), groups.first)
        columns = [
            partial.merge_rows(one_array(both.column(partial.name)), groups) for partial in layout.partials
        ]
        together = pa.Table.from_arrays([*keys.columns, *columns], schema=layout.combined)
        ends = np.maximum.reduceat(ends[groups.order], groups.starts)
        return _made(layout, together, starts[groups.first], ends), groups.hashes

    def _put(self, layout: Layout, sessions: pa.Table, hashes: Hashes, ctx: Context) -> None:
        """Sessions in the order of keys -> one row of lists per key."""
        if not sessions.num_rows:
            return
        names = layout.keys.names
        owners = _owners(sessions.select(names), hashes)
        first = np.flatnonzero(np.concatenate(([True], owners[1:] != owners[:-1])))
        offsets = pa.array(np.append(first, sessions.num_rows).astype(np.int32))
        listed = [
            pa.ListArray.from_arrays(offsets, one_array(sessions.column(field.name)))
            for field in _sessions(layout)
        ]
        keys = take_rows(sessions.select(names), first)
        ends = np.minimum.reduceat(numbers(one_array(sessions.column(END))), first)
        rows = pa.Table.from_arrays(
            [*keys.columns, *listed], names=[*names, *(field.name for field in _sessions(layout))]
        )
        ctx.state.put(rows, hashes[first], timers_us=ends + self.lateness_us)

    def _layout(self, input: pa.Schema, keys: tuple[str, ...]) -> Layout:
        return lay_out(self.aggs, input, keys)


def _sessions(layout: Layout) -> pa.Schema:
    return pa.schema([(START, pa.int64()), (END, pa.int64()), *layout.values])


def _made(layout: Layout, rows: pa.Table, starts: I64, ends: I64) -> pa.Table:
    """Keys, bounds, partials."""
    bounds = [from_numbers(values, pa.int64()) for values in (starts, ends)]
    count = len(layout.keys)
    schema = pa.schema([*layout.keys, *_sessions(layout)])
    return pa.Table.from_arrays([*rows.columns[:count], *bounds, *rows.columns[count:]], schema=schema)


def _opened(
    layout: Layout, keys: pa.Table, ctx: Context, hashes: Hashes | None = None
) -> tuple[pa.Table, Hashes, int]:
    """The open sessions of some keys, one row each, the hashes of their keys, and how many keys have any."""
    if hashes is None:
        hashes = hash_keys(keys.columns)
    found = ctx.state.get(keys, hashes)
    present = np.flatnonzero(found.mask)
    lists = {name: take(one_array(found.values.column(name)), present) for name in found.values.column_names}
    lengths = np.asarray(lists[START].value_lengths(), np.int64)
    rows = np.repeat(present, lengths)
    opened = [*take_rows(keys, rows).columns, *(column.flatten() for column in lists.values())]
    schema = pa.schema([*layout.keys, *_sessions(layout)])
    return pa.Table.from_arrays(opened, schema=schema), hashes[rows], len(present)


def _owners(keys: pa.Table, hashes: Hashes) -> I64:
    """A number per row that is equal exactly for equal keys, ascending with the hash."""
    return group_rows(keys, hashes).codes.astype(np.int64)


def _overlapping(owners: I64, hashes: Hashes, starts: I64, ends: I64) -> Groups:
    """Rows that form one session: of one owner, each beginning before the latest end so far."""
    order = np.lexsort((starts, owners))
    sorted_owners, sorted_ends = owners[order], ends[order]
    # A running maximum within each owner: ranks of ends, lifted above all ranks of the owner before.
    ranks = np.unique(sorted_ends, return_inverse=True)
    lifted = np.maximum.accumulate(sorted_owners * len(ranks[0]) + ranks[1])
    latest = ranks[0][lifted % len(ranks[0])]
    new = np.ones(len(order), np.bool_)
    new[1:] = (sorted_owners[1:] != sorted_owners[:-1]) | (starts[order][1:] > latest[:-1])
    first = np.flatnonzero(new)
    return Groups(
        rows=len(order),
        hashes=hashes[order][first],
        sorted_rows=order,
        sorted_starts=first,
    )
