"""Rolling top-k: per key with lists in keyed state, and over everything by rankers per task and one final ranker.

An *entry* is a row. With `id` columns an id has one entry: its newest row (`keep="latest"`) or its best one
(`keep="best"`); without, every row is an entry. Entries are ordered by `by`, ties by the id columns (without any, by all
other columns) ascending, so that the order never depends on parallelism. State holds k entries per key and no more.

That is the price of a bounded state: with `keep="latest"`, an id that fell out is forgotten, and does not come back when
another one's value falls. Where values never fall (counts, sums, maxima) the list is exact; `keep="best"` and rows
without id are exact always.

Global top-k follows paper 5's topology T1 (Counter -> IntermediateRanker -> FinalRanker): a ranker per task keeps its k
best and sends its list on when it changed; the final one merges the lists it last got from every task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from updraft.eventtime import micros
from updraft.operators.arrays import Vector, one_array, take, take_rows
from updraft.operators.base import KeyedOperator, ObjectOperator
from updraft.operators.context import Context
from updraft.operators.duration import Duration, duration_ms
from updraft.operators.grouping import group_rows
from updraft.operators.ordering import Index, best_vectors, ranked
from updraft.operators.reduce import is_ordered
from updraft.state.keys import is_key_type
from updraft.state.spec import TableSpec

ENTRIES = "entries"
TASK = "task_of_list"
KEEP = ("latest", "best")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """What is best, and how often an id may be listed."""

    k: int
    by: str
    id: tuple[str, ...] = ()
    descending: bool = True
    keep: str = "latest"
    rank: str = "rank"

    def problems(self, input: pa.Schema, keys: Sequence[str]) -> list[str]:
        """Every reason why rows of this schema cannot be ranked so."""
        found: list[str] = []
        if type(self.k) is not int or self.k < 1:
            found.append(f"top_k(k={self.k!r}) must be a whole number of at least 1")
        if self.keep not in KEEP:
            found.append(f"keep={self.keep!r} must be one of {', '.join(KEEP)}")
        if len(set(self.id)) < len(self.id):
            found.append(f"id={self.id!r} repeats a column; name each once")
        for purpose, name in [("by", self.by), *(("id", name) for name in self.id)]:
            if name not in input.names:
                found.append(f"unknown column {name!r} in {purpose}=; columns are: {', '.join(input.names)}")
            elif name in keys:
                found.append(
                    f"{purpose}='{name}' is a key column, equal for all rows of a key; use another one"
                )
        if self.rank in input.names:
            found.append(f"the output column '{self.rank}' exists already; choose another with rank=")
        known = [input.field(name) for name in (*self.ties(input, keys), self.by) if name in input.names]
        found += [
            f"column '{field.name}' of type {field.type} has no order; "
            + ("rank by another column" if field.name == self.by else "give id= columns that have one")
            for field in known
            if not is_ordered(field.type) or (field.name in self.id and not is_key_type(field.type))
        ]
        return found

    def ties(self, input: pa.Schema, keys: Sequence[str]) -> tuple[str, ...]:
        """The columns that decide between equal values of `by`."""
        return self.id or tuple(name for name in input.names if name != self.by and name not in keys)

    def best(self, groups: Vector, entries: pa.Table, ties: Sequence[str]) -> tuple[Index, Index]:
        """The entries that stay, by group and place in it, and these places (from 0); later rows are newer."""
        if self.id and self.keep == "latest":
            chosen = _last_of_each(groups, entries.select(self.id))
            order, place = self._ranked(groups[chosen], take_rows(entries, chosen), ties)
            order = chosen[order]
        else:
            order, place = self._ranked(groups, entries, ties)
            if self.id:
                first = _first_of_each(groups[order], take_rows(entries.select(self.id), order))
                order = order[first]
                place = _places(groups[order])
        stays = place < self.k
        return order[stays], place[stays]

    def _ranked(self, groups: Vector, entries: pa.Table, ties: Sequence[str]) -> tuple[Index, Index]:
        return ranked(groups, best_vectors(entries, self.by, ties, descending=self.descending))


class TopK(KeyedOperator):
    """The k best rows of every key; emits the whole list of a key when a row of the batch is in it.

    With `until`, a timestamp column, a key is forgotten when the watermark reaches it: the end of the window that is its key.
    """

    def __init__(self, ranking: Ranking, *, ttl: Duration | None = None, until: str | None = None) -> None:
        self.ranking = ranking
        self.ttl = ttl
        self.until = until

    def input_problems(self, input: pa.Schema, keys: tuple[str, ...]) -> list[str]:
        found = self.ranking.problems(input, keys)
        if self.until is not None and self.until not in input.names:
            found.append(f"unknown column {self.until!r} in until=; columns are: {', '.join(input.names)}")
        elif self.until is not None and not pa.types.is_timestamp(input.field(self.until).type):
            kind = input.field(self.until).type
            found.append(f"until='{self.until}' needs a timestamp, and the column is {kind}; cast it before")
        return found

    def tables(self, input: pa.Schema, keys: tuple[str, ...]) -> Mapping[str, TableSpec]:
        entry = pa.struct([field for field in input if field.name not in keys])
        return {
            "state": TableSpec(
                key=pa.schema([input.field(name) for name in keys]),
                values=pa.schema([pa.field(ENTRIES, pa.list_(entry))]),
                ttl_ms=None if self.ttl is None else duration_ms(self.ttl),
                timers=self.until is not None,
                event_timers=self.until is not None,
            )
        }

    def output_schema(self, input: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        rest = [field for field in input if field.name not in keys]
        return pa.schema([*(input.field(k) for k in keys), pa.field(self.ranking.rank, pa.int32()), *rest])

    def process(self, rows: pa.Table, ctx: Context) -> pa.Table:
        names = [name for name in rows.schema.names if name not in ctx.keys]
        groups = group_rows(rows.select(ctx.keys), ctx.hashes)
        keys = take_rows(rows.select(ctx.keys), groups.first)
        lists = one_array(ctx.state.get(keys, groups.hashes, presorted=True).values.column(ENTRIES))
        old_counts = np.asarray(lists.value_lengths().fill_null(0), np.int64)
        old = pa.Table.from_arrays(lists.flatten().flatten(), names=names)
        entries = pa.concat_tables([old.cast(rows.select(names).schema), rows.select(names)])
        of = np.concatenate((np.repeat(np.arange(len(groups)), old_counts), groups.codes))
        stays, place = self.ranking.best(of, entries, self.ranking.ties(rows.schema, ctx.keys))
        changed = np.zeros(len(groups), np.bool_)
        changed[of[stays[stays >= old.num_rows]]] = True
        emitted = changed[of[stays]]
        stays, place = stays[emitted], place[emitted]
        best, touched = take_rows(entries, stays), np.flatnonzero(changed)
        counts = np.bincount(of[stays], minlength=len(groups))[touched]
        offsets = pa.array(np.concatenate(([0], np.cumsum(counts))).astype(np.int32))
        structs = pa.StructArray.from_arrays(
            [one_array(column) for column in best.columns], fields=list(best.schema)
        )
        made = take_rows(keys, touched).append_column(ENTRIES, pa.ListArray.from_arrays(offsets, structs))
        until_us = None
        if self.until is not None:
            # Equal for all rows of a key, if it is what it should be.
            until_us = take(one_array(micros(rows.column(self.until))), groups.first[touched])
        ctx.state.put(made, groups.hashes[touched], until_us, presorted=True)
        ranks = pa.array((place + 1).astype(np.int32))
        return pa.Table.from_arrays(
            [*take_rows(keys, of[stays]).columns, ranks, *best.columns], schema=ctx.output
        )

    def evict(self, ctx: Context) -> None:
        if self.until is not None and ctx.next_watermark_ms is not None:
            due = ctx.state.due(ctx.next_watermark_ms * 1_000)
            if due.num_rows:
                ctx.state.delete(due)


class IntermediateRanker(ObjectOperator):
    """The k best entries of each task; sends its list on when a row of the batch is in it."""

    def __init__(self, ranking: Ranking) -> None:
        self.ranking = ranking

    def input_problems(self, input: pa.Schema, keys: tuple[str, ...]) -> list[str]:
        found = self.ranking.problems(input, ())
        return [*found, *([f"column '{TASK}' has a reserved name; rename it"] if TASK in input.names else [])]

    def output_schema(self, input: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        return pa.schema([pa.field(TASK, pa.int32()), *input])

    def process(self, rows: pa.Table, ctx: Context) -> pa.Table:
        old = self.get_state()
        entries = pa.concat_tables([old, rows]) if isinstance(old, pa.Table) else rows
        known = entries.num_rows - rows.num_rows
        zeros = np.zeros(entries.num_rows, np.int64)
        stays, _ = self.ranking.best(zeros, entries, self.ranking.ties(rows.schema, ()))
        if not (stays >= known).any():
            return ctx.output.empty_table()
        best = take_rows(entries, stays)
        self.set_state(best)
        assert ctx.task is not None
        task = pa.array(np.full(best.num_rows, ctx.task, np.int32))
        return pa.Table.from_arrays([task, *best.columns], schema=ctx.output)


class FinalRanker(ObjectOperator):
    """Merges the newest list of every task of an `IntermediateRanker`; emits the whole list when it changed."""

    def __init__(self, ranking: Ranking) -> None:
        self.ranking = ranking

    def output_schema(self, input: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        return pa.schema([pa.field(self.ranking.rank, pa.int32()), *(f for f in input if f.name != TASK)])

    def process(self, rows: pa.Table, ctx: Context) -> pa.Table:
        old = self.get_state()
        if not isinstance(old, pa.Table):
            old = rows.schema.empty_table()
        replaced = np.isin(old.column(TASK).to_numpy(), rows.column(TASK).to_numpy())
        lists = pa.concat_tables([old.filter(pa.array(~replaced)), rows])
        self.set_state(lists)
        best = self._best(lists)
        if old.num_rows and best.equals(self._best(old)):
            return ctx.output.empty_table()
        ranks = pa.array(np.arange(1, best.num_rows + 1, dtype=np.int32))
        return pa.Table.from_arrays([ranks, *best.columns], schema=ctx.output)

    def _best(self, lists: pa.Table) -> pa.Table:
        entries = lists.drop_columns([TASK])
        zeros = np.zeros(entries.num_rows, np.int64)
        stays, _ = self.ranking.best(zeros, entries, self.ranking.ties(entries.schema, ()))
        return take_rows(entries, stays)


def _last_of_each(groups: Vector, ids: pa.Table) -> Index:
    """The last row of every (group, id), in the order of the rows."""
    of = group_rows(ids.append_column("__group", pa.array(groups)))
    return np.sort(of.order[of.starts + of.counts - 1])


def _first_of_each(groups: Vector, ids: pa.Table) -> Index:
    """The first row of every (group, id), in the order of the rows."""
    return np.sort(group_rows(ids.append_column("__group", pa.array(groups))).first)


def _places(groups: Vector) -> Index:
    """Place of each row in its group, from 0, of rows sorted by group."""
    order, place = ranked(groups, ())
    return place[np.argsort(order)] if len(order) else place
