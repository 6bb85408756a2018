"""The built-in aggregation by key: count, sum, min, max and mean, several at once, vectorised.

A sender may combine its rows into one row of partials per key before they travel; the receiver takes raw rows
and combined rows in any mixture, merges them with the state and gives one output row per key touched in the
batch (Spark's *update* mode). Cost per batch follows the rows of the batch and the keys they touch.

A sum that leaves its type is an error, not a wrong number. As in Spark the order of additions is not defined,
so a sum may be refused although a later negative value would have brought it back into range.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from updraft.errors import UpdraftError
from updraft.operators.arrays import one_array
from updraft.operators.base import KeyedOperator
from updraft.operators.context import Context, Hashes
from updraft.operators.duration import Duration, duration_ms
from updraft.operators.grouping import Groups, group_rows
from updraft.operators.partials import Agg, Layout, Partial, agg_problems, lay_out
from updraft.operators.reduce import Overflowed
from updraft.operators.sample import is_worth_combining
from updraft.state.spec import TableSpec


class SumOverflow(UpdraftError, ArithmeticError):
    """A sum does not fit into int64, or into a decimal of 38 digits."""


@runtime_checkable
class Combiner(Protocol):
    """A keyed operator whose rows can be shrunk by the sender."""

    def needed_columns(self, input: pa.Schema, keys: tuple[str, ...]) -> tuple[str, ...]:
        """The columns it reads, in input order; the sender need not send others."""
        ...

    def combined_schema(self, input: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        """Schema of combined rows: the key columns, then partials."""
        ...

    def is_worth_combining(self, rows: pa.Table, keys: tuple[str, ...]) -> bool:
        """Whether combining would shrink such rows; if not, they are better sent raw."""
        ...

    def combine(
        self, rows: pa.Table, keys: tuple[str, ...], hashes: Hashes | None = None
    ) -> tuple[pa.Table, Hashes]:
        """Combined rows and their hashes, ascending."""
        ...

    def process_mixed(
        self,
        raw: pa.Table | None,
        raw_hashes: Hashes | None,
        combined: pa.Table | None,
        combined_hashes: Hashes | None,
        ctx: Context,
    ) -> pa.Table:
        """What `process` does, over raw rows and combined rows of one batch together."""
        ...


class Aggregate(KeyedOperator):
    """Aggregates by key; `aggs` maps output column to `ud.count()`, `ud.sum("x")`, ..."""

    def __init__(self, aggs: Mapping[str, Agg], *, ttl: Duration | None = None) -> None:
        self.aggs = dict(aggs)
        self.ttl = ttl

    def input_problems(self, input: pa.Schema, keys: tuple[str, ...]) -> list[str]:
        """Every reason why this aggregation cannot run on such a stream."""
        return agg_problems(self.aggs, input, keys)

    def tables(self, input: pa.Schema, keys: tuple[str, ...]) -> Mapping[str, TableSpec]:
        layout = lay_out(self.aggs, input, keys)
        ttl_ms = None if self.ttl is None else duration_ms(self.ttl)
        return {"state": TableSpec(key=layout.keys, values=layout.values, ttl_ms=ttl_ms)}

    def output_schema(self, input: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        return lay_out(self.aggs, input, keys).output

    def combined_schema(self, input: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        return lay_out(self.aggs, input, keys).combined

    def needed_columns(self, input: pa.Schema, keys: tuple[str, ...]) -> tuple[str, ...]:
        wanted = {*keys, *(agg.column for agg in self.aggs.values())}
        return tuple(name for name in input.names if name in wanted)

    def is_worth_combining(self, rows: pa.Table, keys: tuple[str, ...]) -> bool:
        return is_worth_combining(rows.select(keys))

    def combine(
        self, rows: pa.Table, keys: tuple[str, ...], hashes: Hashes | None = None
    ) -> tuple[pa.Table, Hashes]:
        layout = lay_out(self.aggs, rows.schema, keys)
        groups = group_rows(rows.select(keys), hashes)
        return reduced(layout, rows, groups), groups.hashes

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
        layout = lay_out(self.aggs, ctx.input, ctx.keys)
        found = touched(layout, raw, raw_hashes, combined, combined_hashes)
        if found is None:
            return layout.output.empty_table()
        fresh, hashes = found
        keys = fresh.select(layout.keys.names)
        old = ctx.state.get(keys, hashes, presorted=True)
        if old.mask.any():
            fresh = with_state(layout, fresh, old.values)
        ctx.state.put(fresh, hashes, presorted=True)
        partials = {partial.name: one_array(fresh.column(partial.name)) for partial in layout.partials}
        results = [result.finish(partials) for result in layout.results]
        return pa.Table.from_arrays([*keys.columns, *results], schema=layout.output)


def touched(
    layout: Layout,
    raw: pa.Table | None,
    raw_hashes: Hashes | None,
    combined: pa.Table | None,
    combined_hashes: Hashes | None,
) -> tuple[pa.Table, Hashes] | None:
    """One row of partials per key of this batch, ascending by hash; None when there is no row at all."""
    raw = raw if raw is not None and raw.num_rows else None
    combined = combined if combined is not None and combined.num_rows else None
    if raw is None:
        return None if combined is None else merged(layout, combined, combined_hashes)
    groups = group_rows(raw.select(layout.keys.names), raw_hashes)
    fresh = reduced(layout, raw, groups)
    if combined is None:
        return fresh, groups.hashes
    both = pa.concat_tables([combined, fresh])
    if combined_hashes is None:
        return merged(layout, both, None)
    return merged(layout, both, np.concatenate((combined_hashes, groups.hashes)))


def reduced(layout: Layout, rows: pa.Table, groups: Groups) -> pa.Table:
    """Input rows -> one row of partials per group."""
    keys = groups.keys(rows.select(layout.keys.names))
    columns: list[pa.Array] = []
    for partial in layout.partials:
        with _naming_overflow(partial, keys):
            columns.append(partial.reduce(rows, groups))
    return pa.Table.from_arrays([*keys.columns, *columns], schema=layout.combined)


def merged(layout: Layout, combined: pa.Table, hashes: Hashes | None) -> tuple[pa.Table, Hashes]:
    """Rows of partials of several senders -> one per key."""
    groups = group_rows(combined.select(layout.keys.names), hashes)
    keys = groups.keys(combined.select(layout.keys.names))
    columns: list[pa.Array] = []
    for partial in layout.partials:
        with _naming_overflow(partial, keys):
            columns.append(partial.merge_rows(one_array(combined.column(partial.name)), groups))
    return pa.Table.from_arrays([*keys.columns, *columns], schema=layout.combined), groups.hashes


def with_state(layout: Layout, fresh: pa.Table, old: pa.Table) -> pa.Table:
    """This batch's partials merged with those of the state, row by row."""
    keys = fresh.select(layout.keys.names)
    columns: list[pa.Array] = []
    for partial in layout.partials:
        with _naming_overflow(partial, keys):
            before, now = (one_array(table.column(partial.name)) for table in (old, fresh))
            columns.append(partial.merge(before, now))
    return pa.Table.from_arrays([*keys.columns, *columns], schema=layout.combined)


@contextmanager
def _naming_overflow(partial: Partial, keys: pa.Table) -> Iterator[None]:
    try:
        yield
    except Overflowed as overflowed:
        key = ", ".join(
            f"{name}={value!r}" for name, value in keys.slice(overflowed.row, 1).to_pylist()[0].items()
        )
        raise SumOverflow(
            f"sum of '{partial.column}' does not fit into {partial.dtype} for key {key}; "
            "cast the column to double or to a decimal before summing it"
        ) from None
