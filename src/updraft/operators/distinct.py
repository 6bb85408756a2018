"""The first row of every key: for ever or for a time to live (`Distinct`), or as long as event time says (`Deduplicate`).

`Deduplicate` remembers a key until the watermark reaches `within` after the event time of the row that was let through, and
drops rows at or before the watermark as late: the rules of Spark's `dropDuplicatesWithinWatermark`, whose bound is always
the watermark's delay. A row without event time has no moment to be forgotten at; it is dropped and counted as late.

Among the rows of one batch the first to arrive is let through.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from updraft.eventtime import micros
from updraft.operators.arrays import Bools, one_array, take_rows
from updraft.operators.base import KeyedOperator
from updraft.operators.context import Context, Hashes
from updraft.operators.duration import Duration, duration_ms
from updraft.operators.grouping import Index, group_rows
from updraft.operators.intervals import shifted
from updraft.state.spec import TableSpec


class Distinct(KeyedOperator):
    """Lets the first row of every key through, unchanged."""

    def __init__(self, *, ttl: Duration | None = None) -> None:
        self.ttl = ttl

    def input_problems(self, input: pa.Schema, keys: tuple[str, ...]) -> list[str]:
        try:
            _ = None if self.ttl is None else duration_ms(self.ttl)
        except ValueError as wrong:
            return [f"ttl {wrong}"]
        return []

    def tables(self, input: pa.Schema, keys: tuple[str, ...]) -> Mapping[str, TableSpec]:
        ttl_ms = None if self.ttl is None else duration_ms(self.ttl)
        key = pa.schema([input.field(name) for name in keys])
        return {"state": TableSpec(key=key, values=pa.schema([]), ttl_ms=ttl_ms)}

    def output_schema(self, input: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        return input

    def process(self, rows: pa.Table, ctx: Context) -> pa.Table:
        keys, hashes, first = _unknown(rows, ctx)
        ctx.state.put(keys, hashes, presorted=True)
        return take_rows(rows, np.sort(first))


class Deduplicate(KeyedOperator):
    """Lets the first row of every key through, unchanged, and forgets the key by event time."""

    def __init__(self, *, within: Duration, time: str | None = None) -> None:
        self.within = within
        self.time = time

    def at(self, time: str) -> Deduplicate:
        return Deduplicate(within=self.within, time=time)

    def input_problems(self, input: pa.Schema, keys: tuple[str, ...]) -> list[str]:
        try:
            duration_ms(self.within)
        except ValueError as wrong:
            return [f"within {wrong}"]
        return []

    def tables(self, input: pa.Schema, keys: tuple[str, ...]) -> Mapping[str, TableSpec]:
        key = pa.schema([input.field(name) for name in keys])
        return {"state": TableSpec(key=key, values=pa.schema([]), timers=True, event_timers=True)}

    def output_schema(self, input: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        return input

    def process(self, rows: pa.Table, ctx: Context) -> pa.Table:
        assert self.time is not None
        timely = np.flatnonzero(~late_rows(one_array(micros(rows.column(self.time))), ctx, nulls=True))
        if len(timely) < rows.num_rows:
            rows, ctx = take_rows(rows, timely), replace(ctx, hashes=ctx.hashes[timely])
        keys, hashes, first = _unknown(rows, ctx)
        times_us = np.asarray(one_array(micros(rows.column(self.time))), np.int64)[first]
        ctx.state.put(keys, hashes, shifted(times_us, duration_ms(self.within) * 1_000), presorted=True)
        return take_rows(rows, np.sort(first))

    def evict(self, ctx: Context) -> None:
        if ctx.next_watermark_ms is not None:
            due = ctx.state.due(ctx.next_watermark_ms * 1_000)
            if due.num_rows:
                ctx.state.delete(due)


def late_rows(times_us: pa.Array, ctx: Context, *, nulls: bool) -> Bools:
    """Which rows are at or before the watermark, as in Structured Streaming; counts them. `nulls`: whether null is late."""
    late = np.zeros(len(times_us), np.bool_)
    if ctx.watermark_ms is not None:
        late = np.asarray(pc.fill_null(pc.less_equal(times_us, ctx.watermark_ms * 1_000), False))
    if nulls and times_us.null_count:
        late = late | np.asarray(times_us.is_null())
    ctx.tally.late_rows += int(late.sum())
    return late


def _unknown(rows: pa.Table, ctx: Context) -> tuple[pa.Table, Hashes, Index]:
    """Keys without state, ascending by hash, their hashes, and the first row of each."""
    groups = group_rows(rows.select(ctx.keys), ctx.hashes)
    keys = take_rows(rows.select(ctx.keys), groups.first)
    new = np.flatnonzero(~ctx.state.get(keys, groups.hashes, presorted=True).mask)
    return take_rows(keys, new), groups.hashes[new], groups.first[new]
