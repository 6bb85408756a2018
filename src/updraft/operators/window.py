"""Tumbling and sliding windows by key, vectorised: what is kept per pane, when a window is complete, what late means.

    closed = watermark - allowed lateness        a window is complete when its end <= closed

Rows become one row of partials per (key, pane), on the sender where that shrinks them. A row is late when, before the
batch, even the last window it is in was complete; it is dropped and counted. What is still in an open window counts
there, although the row's other windows are complete: as in Spark, where lateness is judged per window.

`emit="close"`: state is per pane; when the watermark passes window ends, the panes of those windows are read by time and
added up, and each window is emitted once. Panes of which no window is left open are forgotten without a write, and
panes that came and went within the batch never reach the state.

`emit="update"`: state is per window, and every window that a batch touched is emitted with its current value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from updraft.eventtime import micros
from updraft.operators.aggregate import merged, reduced, with_state
from updraft.operators.arrays import from_numbers, numbers, one_array, take_rows, validity
from updraft.operators.base import KeyedOperator
from updraft.operators.context import Context, Hashes
from updraft.operators.grouping import group_rows
from updraft.operators.panes import I64, Panes
from updraft.operators.partials import Agg, Layout, agg_problems, lay_out
from updraft.operators.sample import is_worth_combining
from updraft.state.keys import hash_keys, spread
from updraft.state.spec import TableSpec

WINDOW_START, WINDOW_END = "window_start", "window_end"
PANE = "__pane"
_ROWS = "count()"


class Emit(Enum):
    """When a window's row is emitted."""

    CLOSE = "close"  # once, when it is complete
    UPDATE = "update"  # in every batch that changed it


class Window(KeyedOperator):
    """Aggregates per key and window of the event time in column `on`; see the module docstring."""

    def __init__(
        self,
        aggs: Mapping[str, Agg],
        *,
        panes: Panes,
        on: str,
        lateness_ms: int = 0,
        emit: Emit = Emit.CLOSE,
    ) -> None:
        self.aggs = dict(aggs)
        self.panes, self.on, self.emit = panes, on, emit
        self.lateness_us = lateness_ms * 1_000
        self.event_lag_ms = lateness_ms

    def input_problems(self, input: pa.Schema, keys: tuple[str, ...]) -> list[str]:
        """Every reason why this cannot run on such a stream."""
        return window_problems(self.aggs, input, keys)

    def tables(self, input: pa.Schema, keys: tuple[str, ...]) -> Mapping[str, TableSpec]:
        layout = self._layout(input, keys)
        return {"state": TableSpec(key=layout.keys, values=layout.values, timers=True, lead=len(keys))}

    def output_schema(self, input: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        return window_output(self._layout(input, keys), input.field(self.on).type)

    def combined_schema(self, input: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        return self._layout(input, keys).combined

    def needed_columns(self, input: pa.Schema, keys: tuple[str, ...]) -> tuple[str, ...]:
        wanted = {*keys, self.on, *(agg.column for agg in self.aggs.values())}
        return tuple(name for name in input.names if name in wanted)

    def is_worth_combining(self, rows: pa.Table, keys: tuple[str, ...]) -> bool:
        return is_worth_combining(self._paned(rows).select([*keys, PANE]))

    def combine(
        self, rows: pa.Table, keys: tuple[str, ...], hashes: Hashes | None = None
    ) -> tuple[pa.Table, Hashes]:
        paned = self._paned(rows)
        layout = self._layout(rows.schema, keys)
        groups = group_rows(paned.select(layout.keys.names), lead=len(keys))
        return reduced(layout, paned, groups), groups.hashes

    def process(self, rows: pa.Table, ctx: Context) -> pa.Table:
        return self.process_mixed(rows, ctx.hashes, None, None, ctx)

    def process_mixed(
        self,
        raw: pa.Table | None,
        raw_hashes: Hashes | None,
        combined: pa.Table | None,
        combined_hashes: Hashes | None,
        ctx: Context,
    ) -> pa.Table:
        layout = self._layout(ctx.input, ctx.keys)
        parts: list[pa.Table] = []
        hashes: list[Hashes] = []
        if raw is not None and raw.num_rows:
            paned = self._paned(raw)
            known = None if raw_hashes is None else spread(raw_hashes, [paned.column(PANE)])
            groups = group_rows(paned.select(layout.keys.names), known, lead=len(ctx.keys))
            parts.append(reduced(layout, paned, groups))
            hashes.append(groups.hashes)
        if combined is not None and combined.num_rows:
            assert combined_hashes is not None
            parts.append(combined.select(layout.combined.names))
            hashes.append(combined_hashes)
        fresh, fresh_hashes = layout.combined.empty_table(), np.empty(0, np.uint64)
        if parts:
            fresh, fresh_hashes = self._in_time(pa.concat_tables(parts), np.concatenate(hashes), ctx)
        if self.emit is Emit.UPDATE:
            return self._update(layout, fresh, ctx)
        return self._close(layout, fresh, fresh_hashes, ctx)

    def _in_time(self, rows: pa.Table, hashes: Hashes, ctx: Context) -> tuple[pa.Table, Hashes]:
        """Without rows that have no event time, or whose windows are all complete; those are counted."""
        panes = one_array(rows.column(PANE))
        good = validity(panes)
        good = np.ones(len(panes), np.bool_) if good is None else good
        closed_us = self._closed_us(ctx.watermark_ms)
        if closed_us is not None:
            good = good & (numbers(panes) >= self.panes.first_open_start(closed_us))
        if good.all():
            return rows, hashes
        counts = numbers(one_array(rows.column(_ROWS)))
        ctx.tally.late_rows += int(counts[~good].sum())
        kept = np.flatnonzero(good)
        return take_rows(rows, kept), hashes[kept]

    def _close(self, layout: Layout, fresh: pa.Table, hashes: Hashes, ctx: Context) -> pa.Table:
        out = self.output_schema(ctx.input, ctx.keys).empty_table()
        closed_us = self._closed_us(ctx.next_watermark_ms)
        if closed_us is not None:
            was_us = self._closed_us(ctx.watermark_ms)
            first = None if was_us is None else self.panes.first_open_start(was_us)
            last = self.panes.last_closed_start(closed_us)
            if first is None or last >= first:
                # Partials add up in any grouping, so the state and this batch need not be merged before.
                old = ctx.state.between(first, last + self.panes.size_us)
                out = self._windows(layout, pa.concat_tables([old, fresh]), first, last, ctx)[0]
            keep_from = self.panes.first_open_start(closed_us)
            open_ = np.flatnonzero(numbers(one_array(fresh.column(PANE))) >= keep_from)
            if len(open_) < fresh.num_rows:
                fresh, hashes = take_rows(fresh, open_), hashes[open_]
            ctx.state.forget_before(keep_from)
        if fresh.num_rows:
            self._merge_into_state(layout, *merged(layout, fresh, hashes), ctx)
        return out

    def _update(self, layout: Layout, fresh: pa.Table, ctx: Context) -> pa.Table:
        was_us, closed_us = (self._closed_us(ms) for ms in (ctx.watermark_ms, ctx.next_watermark_ms))
        first = None if was_us is None else self.panes.first_open_start(was_us)
        out = self.output_schema(ctx.input, ctx.keys).empty_table()
        if fresh.num_rows:
            _, rows, hashes = self._windows(layout, fresh, first, None, ctx)
            out = self._results(layout, self._merge_into_state(layout, rows, hashes, ctx), ctx)
        if closed_us is not None:
            ctx.state.forget_before(self.panes.first_open_start(closed_us))
        return out

    def _windows(
        self, layout: Layout, panes: pa.Table, first: int | None, last: int | None, ctx: Context
    ) -> tuple[pa.Table, pa.Table, Hashes]:
        """Panes added up to windows whose start is in [first, last]: as results, as partials, and their hashes."""
        rows, starts = self.panes.windows(numbers(one_array(panes.column(PANE))), first=first, last=last)
        expanded = take_rows(panes, rows).set_column(len(ctx.keys), layout.keys.field(PANE), pa.array(starts))
        leading = hash_keys(panes.select(ctx.keys).columns)[rows] if len(rows) else np.empty(0, np.uint64)
        together, hashes = merged(layout, expanded, spread(leading, [pa.array(starts)]))
        return self._results(layout, together, ctx), together, hashes

    def _merge_into_state(self, layout: Layout, fresh: pa.Table, hashes: Hashes, ctx: Context) -> pa.Table:
        found = ctx.state.get(fresh.select(layout.keys.names), hashes, presorted=True)
        if found.mask.any():
            fresh = with_state(layout, fresh, found.values)
        times = numbers(one_array(fresh.column(PANE)))
        ctx.state.put(fresh, hashes, timers_us=times, presorted=True)
        return fresh

    def _results(self, layout: Layout, rows: pa.Table, ctx: Context) -> pa.Table:
        starts = numbers(one_array(rows.column(PANE)))
        return window_rows(
            layout, rows, starts, starts + self.panes.size_us, self.output_schema(ctx.input, ctx.keys)
        )

    def _paned(self, rows: pa.Table) -> pa.Table:
        """Rows with the pane of each, null where there is no event time."""
        times = one_array(micros(rows.column(self.on)))
        panes = from_numbers(self.panes.pane_of(numbers(times)), pa.int64(), validity(times))
        return rows.append_column(pa.field(PANE, pa.int64()), panes)

    def _layout(self, input: pa.Schema, keys: tuple[str, ...]) -> Layout:
        layout = lay_out(self.aggs, input, keys, counted=True)
        return replace(layout, keys=pa.schema([*layout.keys, pa.field(PANE, pa.int64())]))

    def _closed_us(self, watermark_ms: int | None) -> int | None:
        return None if watermark_ms is None else watermark_ms * 1_000 - self.lateness_us


def window_problems(aggs: Mapping[str, Agg], input: pa.Schema, keys: tuple[str, ...]) -> list[str]:
    """What is wrong with aggregates in any kind of window."""
    found = agg_problems(aggs, input, keys, windowed=True)
    for name in (WINDOW_START, WINDOW_END):
        if name in keys or name in aggs:
            found.append(f"column '{name}' is made by the window; rename the key or aggregate of that name")
    if _ROWS in keys:
        found.append(f"a key column cannot be called '{_ROWS}'; rename it")
    return found


def window_output(layout: Layout, time_type: pa.DataType) -> pa.Schema:
    """Key columns, bounds of the window in the type of the event time, results."""
    keys = [field for field in layout.keys if field.name != PANE]
    bounds = [pa.field(name, time_type) for name in (WINDOW_START, WINDOW_END)]
    return pa.schema([*keys, *bounds, *((result.name, result.dtype) for result in layout.results)])


def window_rows(layout: Layout, rows: pa.Table, starts: I64, ends: I64, output: pa.Schema) -> pa.Table:
    """Output rows from keys and partials, one window each."""
    partials = {partial.name: one_array(rows.column(partial.name)) for partial in layout.partials}
    results = [result.finish(partials) for result in layout.results]
    keys = [rows.column(field.name) for field in layout.keys if field.name != PANE]
    kind = output.field(WINDOW_START).type
    bounds = [_timestamps(times, kind) for times in (starts, ends)]
    return pa.Table.from_arrays([*keys, *bounds, *results], schema=output)


def _timestamps(times_us: npt.NDArray[np.int64], kind: pa.DataType) -> pa.Array:
    return pa.array(times_us).cast(pa.timestamp("us", kind.tz)).cast(kind, safe=False)


if TYPE_CHECKING:
    from updraft.operators.aggregate import Combiner

    _: type[Combiner] = Window
