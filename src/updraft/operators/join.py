"""Two keyed streams joined where keys are equal and event times lie within a bound: inner, left and anti.

A left row at time t meets the right rows of its key with a time in [t + lower, t + upper], both ends included. Each side
keeps its rows in a table of its own, many per key. A row is dropped from it once the watermark says that nothing can
meet it any more: a left row when it reaches t + upper, a right row at t' when it reaches t' - lower. At that moment a left row
that met nothing is emitted by a left join (with nulls) and by an anti join. So state holds the rows of the bound and the
watermark's delay, no more.

Late rows (at or before the watermark, as in Structured Streaming) are dropped and counted: what they could meet may
be gone. A null key or a null time meets nothing; such a row is never stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from updraft.eventtime import micros
from updraft.operators.arrays import Bools, one_array, take_rows
from updraft.operators.base import PortedOperator, PortRows
from updraft.operators.context import Context, Hashes
from updraft.operators.distinct import late_rows
from updraft.operators.grouping import Groups, group_rows
from updraft.operators.intervals import I64, interval_pairs, shifted
from updraft.state.keys import hash_keys, spread
from updraft.state.spec import TableSpec

LEFT, RIGHT = "left", "right"
ROW = "__row"
MATCHED = "__matched"


class How(Enum):
    """What a join emits."""

    INNER = "inner"  # pairs
    LEFT = "left"  # pairs, and left rows that met nothing, with nulls
    ANTI = "anti"  # left rows that met nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One input of a join: its columns, its key, its event time, and how its columns are called in the output."""

    schema: pa.Schema
    keys: tuple[str, ...]
    time: str
    output: tuple[tuple[str, str], ...]  # (column, output column); columns that are not emitted are left out

    def table(self, *, flagged: bool) -> TableSpec:
        """Where its rows wait: keyed by the join key and a row number."""
        keys = [self.schema.field(name) for name in self.keys]
        values = [field for field in self.schema if field.name not in self.keys]
        return TableSpec(
            key=pa.schema([*keys, pa.field(ROW, pa.int64())]),
            values=pa.schema([*values, *([pa.field(MATCHED, pa.bool_())] if flagged else [])]),
            timers=True,
            event_timers=True,
            lead=len(self.keys),
        )

    def times_us(self, rows: pa.Table) -> I64:
        return np.asarray(one_array(micros(rows.column(self.time))), np.int64)

    def emitted(self, rows: pa.Table) -> list[pa.ChunkedArray]:
        return [rows.column(name) for name, _ in self.output]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fresh:
    """Rows of this batch that can meet others."""

    rows: pa.Table
    hashes: Hashes
    times_us: I64


class Join(PortedOperator):
    """See the module; made by `KeyedStream.join`."""

    ports: ClassVar[tuple[str, ...]] = (LEFT, RIGHT)

    def __init__(self, *, how: How, left: Side, right: Side, lower_ms: int, upper_ms: int) -> None:
        self.how = how
        self.sides = {LEFT: left, RIGHT: right}
        self.lower_us, self.upper_us = lower_ms * 1_000, upper_ms * 1_000
        # How long after its own time a row may still be emitted, in a pair or alone.
        self.event_lag_ms = max(upper_ms, -lower_ms, 0)

    def tables(self, input: pa.Schema, keys: tuple[str, ...]) -> Mapping[str, TableSpec]:
        flagged = self.how is How.LEFT
        return {name: side.table(flagged=flagged and name == LEFT) for name, side in self.sides.items()}

    def output_schema(self, input: pa.Schema, keys: tuple[str, ...]) -> pa.Schema:
        sides = [self.sides[LEFT]] if self.how is How.ANTI else list(self.sides.values())
        return pa.schema(
            [side.schema.field(name).with_name(called) for side in sides for name, called in side.output]
        )

    def process_ports(self, arrived: Mapping[str, PortRows], ctx: Context) -> pa.Table:
        left, alone = self._fresh(LEFT, arrived[LEFT], ctx)
        right, _ = self._fresh(RIGHT, arrived[RIGHT], ctx)
        groups, keys = self._groups(left, right)
        of_left, of_right = groups.codes[: len(left.hashes)], groups.codes[len(left.hashes) :]
        old_right, old_right_of = self._waiting(RIGHT, of_left, groups, keys, ctx)
        old_left, old_left_of = self._waiting(LEFT, of_right, groups, keys, ctx)
        side = self.sides[RIGHT]
        right_times = np.concatenate((side.times_us(old_right), right.times_us))
        left_at, right_at = interval_pairs(  # new left rows with all right ones
            groups=np.concatenate((old_right_of, of_right)),
            times=right_times,
            wanted_groups=of_left,
            earliest=shifted(left.times_us, self.lower_us),
            latest=shifted(left.times_us, self.upper_us),
        )
        newer_at, older_at = interval_pairs(  # new right rows with left ones that were waiting
            groups=old_left_of,
            times=self.sides[LEFT].times_us(old_left),
            wanted_groups=of_right,
            earliest=shifted(right.times_us, -self.upper_us),
            latest=shifted(right.times_us, -self.lower_us),
        )
        met = np.zeros(len(left.hashes), np.bool_)
        met[left_at] = True
        out = [self._unmatched(alone)] if self.how is not How.INNER else []
        if self.how is not How.ANTI:
            all_left = pa.concat_tables([_columns(old_left, left.rows), left.rows])
            all_right = pa.concat_tables([_columns(old_right, right.rows), right.rows])
            at_left = np.concatenate((left_at + old_left.num_rows, older_at))
            at_right = np.concatenate((right_at, newer_at + old_right.num_rows))
            out.append(self._pairs(take_rows(all_left, at_left), take_rows(all_right, at_right)))
        self._mark(old_left, _members(older_at, old_left.num_rows), ctx)
        out += self._store(LEFT, left, met, ctx)
        self._store(RIGHT, right, np.zeros(len(right.hashes), np.bool_), ctx)
        return pa.concat_tables(out)

    def evict(self, ctx: Context) -> pa.Table | None:
        """Rows that can meet nothing any more go; left ones that met nothing are emitted."""
        if ctx.next_watermark_ms is None:
            return None
        made: list[pa.Table] = []
        for name, side in self.sides.items():
            due = ctx.table(name).due(ctx.next_watermark_ms * 1_000)
            if not due.num_rows:
                continue
            keys = due.select([*side.keys, ROW])
            hashes = spread(hash_keys([keys.column(key) for key in side.keys]), [keys.column(ROW)])
            if name == LEFT and self.how is not How.INNER:
                values = ctx.table(LEFT).get(keys, hashes).values
                rows = _columns(_beside(keys, values), side.schema.empty_table())
                if self.how is How.LEFT:
                    rows = rows.filter(pc.invert(values.column(MATCHED)))
                made.append(self._unmatched(rows))
            ctx.table(name).delete(keys, hashes)
        return pa.concat_tables(made) if made else None

    def _fresh(self, name: str, arrived: PortRows, ctx: Context) -> tuple[_Fresh, pa.Table]:
        """Rows that are not late and can meet others, and those not late that cannot."""
        side, rows = self.sides[name], arrived.rows
        times = one_array(micros(rows.column(side.time)))
        able = np.asarray(times.is_valid())
        for key in side.keys:
            able &= np.asarray(one_array(rows.column(key)).is_valid())
        late = late_rows(times, ctx, nulls=False)
        chosen = np.flatnonzero(able & ~late)
        if len(chosen) == rows.num_rows:
            fresh = _Fresh(rows=rows, hashes=arrived.hashes, times_us=np.asarray(times, np.int64))
            return fresh, rows.slice(0, 0)
        kept = take_rows(rows, chosen)
        fresh = _Fresh(rows=kept, hashes=arrived.hashes[chosen], times_us=side.times_us(kept))
        return fresh, take_rows(rows, np.flatnonzero(~able & ~late))

    def _groups(self, left: _Fresh, right: _Fresh) -> tuple[Groups, pa.Table]:
        """The keys of both sides numbered together, and the key of each number, called as on the left."""
        names = self.sides[LEFT].keys
        columns = right.rows.select(self.sides[RIGHT].keys).rename_columns(names)
        keys = pa.concat_tables([left.rows.select(names), _columns(columns, left.rows.select(names))])
        groups = group_rows(keys, np.concatenate((left.hashes, right.hashes)))
        return groups, take_rows(keys, groups.first)

    def _waiting(
        self, name: str, met_by: I64, groups: Groups, keys: pa.Table, ctx: Context
    ) -> tuple[pa.Table, I64]:
        """Stored rows of the groups in `met_by`, and their groups."""
        wanted = _members(met_by, len(groups))
        asked = take_rows(keys, wanted).rename_columns(self.sides[name].keys)
        found = ctx.table(name).rows_of(asked, groups.hashes[wanted])
        return found.rows, wanted[found.group]

    def _mark(self, rows: pa.Table, met: I64, ctx: Context) -> None:
        """Remember which waiting left rows have met a right one; an anti join forgets them at once."""
        if self.how is How.INNER or not len(met):
            return
        if self.how is How.LEFT:
            met = met[~np.asarray(one_array(rows.column(MATCHED).take(pa.array(met))))]
            if not len(met):
                return
        side, changed = self.sides[LEFT], take_rows(rows, met)
        if self.how is How.ANTI:
            ctx.table(LEFT).delete(changed)
            return
        flags = pa.array(np.ones(len(met), np.bool_))
        changed = changed.set_column(changed.schema.get_field_index(MATCHED), MATCHED, flags)
        ctx.table(LEFT).put(changed, timers_us=self._ends_us(LEFT, side.times_us(changed)))

    def _store(self, name: str, fresh: _Fresh, met: Bools, ctx: Context) -> list[pa.Table]:
        """Keep what may meet rows to come; what cannot any more, and met nothing, is returned to be emitted."""
        ends_us = self._ends_us(name, fresh.times_us)
        over = np.zeros(len(met), np.bool_)
        if ctx.next_watermark_ms is not None:
            over = ends_us <= ctx.next_watermark_ms * 1_000
        keeps = ~over & ~met if name == LEFT and self.how is How.ANTI else ~over
        at = np.flatnonzero(keeps)
        rows = take_rows(fresh.rows, at).append_column(ROW, pa.array((ctx.batch_id << 32) + at))
        if name == LEFT and self.how is How.LEFT:
            rows = rows.append_column(MATCHED, pa.array(met[at]))
        ctx.table(name).put(rows, spread(fresh.hashes[at], [rows.column(ROW)]), ends_us[at])
        if name == RIGHT or self.how is How.INNER or not over.any():
            return []
        return [self._unmatched(take_rows(fresh.rows, np.flatnonzero(over & ~met)))]

    def _ends_us(self, name: str, times_us: I64) -> I64:
        """When nothing that is not late can meet a row any more."""
        # The last possible time is no timer, see NO_TIMER; no watermark gets there.
        return shifted(times_us, self.upper_us if name == LEFT else -self.lower_us)

    def _pairs(self, left: pa.Table, right: pa.Table) -> pa.Table:
        columns = [*self.sides[LEFT].emitted(left), *self.sides[RIGHT].emitted(right)]
        return pa.Table.from_arrays(columns, schema=self.output_schema(left.schema, ()))

    def _unmatched(self, left: pa.Table) -> pa.Table:
        schema = self.output_schema(left.schema, ())
        columns = self.sides[LEFT].emitted(left)
        nulls = [pa.nulls(left.num_rows, field.type) for field in list(schema)[len(columns) :]]
        return pa.Table.from_arrays([*columns, *nulls], schema=schema)


def _members(numbers: I64, below: int) -> I64:
    """The distinct numbers, ascending."""
    present = np.zeros(below, np.bool_)
    present[numbers] = True
    return np.flatnonzero(present)


def _columns(rows: pa.Table, like: pa.Table) -> pa.Table:
    """The columns of `like`, in its order and with its schema."""
    return pa.Table.from_arrays([rows.column(name) for name in like.schema.names], schema=like.schema)


def _beside(left: pa.Table, right: pa.Table) -> pa.Table:
    return pa.Table.from_arrays(
        [*left.columns, *right.columns], names=[*left.schema.names, *right.schema.names]
    )
