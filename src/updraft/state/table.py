"""A keyed table as one instance sees it during one batch: sealed levels below, the batch's changes on top.

Reads look through the batch's own changes, then the levels, newest first. `seal` writes at most one new
segment. Nothing here walks over the whole state, except `scan` and a compaction whose cost is amortised.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from updraft.errors import StateError
from updraft.state.columns import conform, key_columns, sorted_run, timer_values
from updraft.state.compaction import levels_to_merge
from updraft.state.keys import (
    I64,
    U64,
    Hasher,
    Mask,
    hash_keys,
    hash_range,
    hash_spread,
    task_of,
    task_starts,
)
from updraft.state.lookup import Hits, LiveRun, Needles, locate, match, members, needles, needles_of
from updraft.state.merge import drop_dead, live_rows, merge, merge_all, row_slices, without_forgotten
from updraft.state.run import NO_TIMER, Run, empty_run, from_raw, take, take_rows, to_batch
from updraft.state.spec import TIMER, Level, Merge, Sealed, SegmentRef, TableSpec, changes_name
from updraft.state.store import SegmentStore
from updraft.state.timers import count_before, due_rows, earliest_timer, rows_between


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Answer of `get`: one row per asked key; values are null where the mask is False."""

    mask: Mask
    values: pa.Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """Answer of `rows_of`: rows of key and value columns, and for each the number of the group it was found for."""

    group: I64
    rows: pa.Table


class KeyedTable:
    """State of one table for the tasks of one instance; see the module docstring."""

    def __init__(
        self,
        *,
        spec: TableSpec,
        tasks: int,
        mine: tuple[int, ...],
        levels: tuple[Level, ...],
        store: SegmentStore,
        now_ms: int = 0,
        operator: str = "",
        table: str = "",
        hasher: Hasher | None = None,
    ) -> None:
        self.spec = spec
        self.tasks = tasks
        self.mine = tuple(sorted(mine))
        self.levels = tuple(levels)
        self.now_ms = now_ms
        self._store = store
        self._operator = operator
        self._table = table
        self._hasher = hasher or _hasher(spec)
        self._default_hash = self._hasher is hash_keys
        self._fingerprint = spec.fingerprint()
        self._ranges = hash_range(self.mine, tasks)
        self._forgotten_us: int | None = None  # rows with an earlier timer are gone
        self._pending: list[Run] = []  # this batch's changes, oldest first
        self._sealed: list[LiveRun] | None = None  # opened levels, newest first

    def get(self, keys: pa.Table, hashes: U64 | None = None, *, presorted: bool = False) -> Found:
        """Look keys up; `presorted` promises that the given hashes ascend."""
        columns = key_columns(keys, self.spec)
        hits = self._locate(self._needles(columns, hashes, presorted))
        return Found(mask=hits.found, values=self._values(hits))

    def put(
        self,
        rows: pa.Table,
        hashes: U64 | None = None,
        timers_us: I64 | pa.Array | None = None,
        *,
        presorted: bool = False,
    ) -> None:
        """Insert or replace rows; the last one wins where a key comes twice.

        In a table with timers, rows put without `timers_us` keep the timer their key already has.
        """
        if not rows.num_rows:
            return
        keys, values = conform(rows, self.spec)
        if hashes is None:
            hashes = self._hasher(keys)
        timers: I64 | None = None
        if timers_us is not None:
            if not self.spec.timers:
                raise StateError(f"{self._where()} declares no timers; declare it with timers=True")
            timers = timer_values(timers_us, rows.num_rows)
        elif self.spec.timers:
            kept = self._locate(self._needles(keys, hashes, presorted))
            timers = kept.extra("timers_us", NO_TIMER)
        expires = (
            None
            if self.spec.ttl_ms is None
            else np.full(len(hashes), self.now_ms + self.spec.ttl_ms, np.int64)
        )
        self._push(
            sorted_run(
                hashes=hashes,
                keys=keys,
                values=values,
                presorted=presorted,
                injective=self._default_hash,
                expires_ms=expires,
                timers_us=timers,
            )
        )

    def delete(self, keys: pa.Table, hashes: U64 | None = None, *, presorted: bool = False) -> Mask:
        """Remove keys; returns which of them existed."""
        columns = key_columns(keys, self.spec)
        wanted = self._needles(columns, hashes, presorted)
        found = self._locate(wanted).found
        at = np.flatnonzero(found)
        if not len(at):
            return found
        rows = pa.array(at)
        gone = sorted_run(
            hashes=wanted.hashes[at],
            keys=tuple(take(column, rows) for column in columns),
            values=tuple(pa.nulls(len(at), column.type) for column in self.spec.values),
            presorted=presorted,
            injective=self._default_hash,
            expires_ms=None if self.spec.ttl_ms is None else np.full(len(at), NO_TIMER, np.int64),
            timers_us=np.full(len(at), NO_TIMER, np.int64) if self.spec.timers else None,
        )
        gone.deleted = np.ones(len(gone), np.bool_)
        self._push(gone)
        return found

    def set_timers(self, keys: pa.Table, timers_us: I64 | pa.Array | None, hashes: U64 | None = None) -> Mask:
        """Set (null: clear) the timers of existing keys, leaving values and expiry; returns which exist."""
        if not self.spec.timers:
            raise StateError(f"{self._where()} declares no timers; declare it with timers=True")
        columns = key_columns(keys, self.spec)
        wanted = self._needles(columns, hashes, False)
        hits = self._locate(wanted)
        at = np.flatnonzero(hits.found)
        if not len(at):
            return hits.found
        rows = pa.array(at)
        values = self._values(hits)
        self._push(
            sorted_run(
                hashes=wanted.hashes[at],
                keys=tuple(take(column, rows) for column in columns),
                values=tuple(take(_array(column), rows) for column in values.columns),
                presorted=False,
                injective=self._default_hash,
                expires_ms=None if self.spec.ttl_ms is None else hits.extra("expires_ms", 0)[at],
                timers_us=timer_values(timers_us, len(wanted))[at],
            )
        )
        return hits.found

    def rows_of(self, groups: pa.Table, hashes: U64 | None = None) -> Members:
        """All rows of a table with a `lead` that belong to these leading keys, in no particular order.

        `groups` names each leading key once; `hashes` are those of the leading columns.
        """
        if self.spec.lead is None:
            raise StateError(f"{self._where()} has one row per key; use get()")
        columns = key_columns(groups, self.spec, self.spec.lead)
        hashes = hash_keys(columns) if hashes is None else hashes
        found: list[tuple[I64, Run]] = []
        newer: list[LiveRun] = []
        for level in self._runs():
            at, rows = members(level.run, columns, hashes)
            current = self._current(level, rows, newer)
            if len(current) < len(rows):
                kept = np.isin(rows, current)
                at, rows = at[kept], rows[kept]
            found.append((at, take_rows(level.run, rows)))
            newer.append(level)
        schema = self.spec.columns.remove_metadata()
        made = [pa.Table.from_arrays([*run.keys, *run.values], schema=schema) for _, run in found]
        return Members(
            group=np.concatenate([np.empty(0, np.int64), *(at for at, _ in found)]),
            rows=pa.concat_tables([schema.empty_table(), *made]),
        )

    def scan(self) -> pa.Table:
        """All live rows of my tasks: key columns, then value columns."""
        run = self._everything()
        return pa.Table.from_arrays([*run.keys, *run.values], schema=self.spec.columns)

    def due(self, now_us: int) -> pa.Table:
        """Keys whose timer is at or before now, with the timer, earliest first."""
        found: list[tuple[Run, I64]] = []
        newer: list[LiveRun] = []
        for level, earliest in self._with_earliest_timer():
            if earliest is not None and earliest <= now_us:
                rows = self._current(level, due_rows(level.run, now_us), newer)
                found.append((level.run, rows))
            newer.append(level)
        schema = pa.schema([*self.spec.key, pa.field(TIMER, pa.int64())])
        tables = [
            pa.Table.from_arrays(
                [
                    *(take(column, rows) for column in run.keys),
                    from_raw(run.timers_us[rows], pa.int64()),  # type: ignore[index]
                ],
                schema=schema,
            )
            for run, rows in found
        ]
        if not tables:
            return schema.empty_table()
        return pa.concat_tables(tables).sort_by(TIMER).combine_chunks()

    def between(self, low_us: int | None, high_us: int) -> pa.Table:
        """Rows (key and value columns) whose timer is in [low, high), in no particular order.

        Costs what it finds, like `due`: a table whose timer is the time of its rows can be read by time.
        """
        found: list[tuple[Run, I64]] = []
        newer: list[LiveRun] = []
        for level, earliest in self._with_earliest_timer():
            if earliest is not None and earliest < high_us:
                found.append(
                    (level.run, self._current(level, rows_between(level.run, low_us, high_us), newer))
                )
            newer.append(level)
        tables = [
            pa.Table.from_arrays(
                [take(column, rows) for column in (*run.keys, *run.values)], schema=self.spec.columns
            )
            for run, rows in found
            if len(rows)
        ]
        return pa.concat_tables(tables) if tables else self.spec.columns.empty_table()

    def forget_before(self, us: int) -> None:
        """Rows with a timer before this will never be asked for again: leave them out when sealing.

        Cheaper than deleting: nothing is written for them, and a segment that has no others goes as a whole. Until a
        merge comes by, `scan` may still show some.
        """
        if not self.spec.timers:
            raise StateError(f"{self._where()} declares no timers; declare it with timers=True")
        self._forgotten_us = us

    def seal(self, name: str, batch: int, *, keep_changes: bool = False) -> Sealed | None:
        """Write this batch's changes as one segment; None (and nothing written) if there are none.

        `keep_changes`: the changes alone are a file, too, for copies that make merges themselves.
        """
        if not self._pending and self._forgotten_us is None:
            return None
        sealed = self._opened()
        sizes = [self._live_count(level) for level in sealed[::-1]]
        forgotten = [self._forgotten_count(level) for level in sealed[::-1]]
        sizes = [size - gone for size, gone in zip(sizes, forgotten, strict=True)]
        if not self._pending and not any(
            gone and not size for size, gone in zip(sizes, forgotten, strict=True)
        ):
            return None
        changes = (
            merge_all(self._pending[::-1], default_hash=self._default_hash)
            if self._pending
            else empty_run(self.spec)
        )
        live = [self._live_tasks(level) for level in self.levels]
        count = levels_to_merge(
            sizes,
            len(changes),
            live=live,
            new_live=frozenset(self._tasks_in(changes)),
            forgotten=forgotten,
        )
        merged = self._remembered(
            merge_all(
                [changes, *(self._live_part(level) for level in sealed[:count])],
                default_hash=self._default_hash,
            )
        )
        if count == len(sealed):
            merged = drop_dead(merged, self.now_ms)
        metadata = {
            "operator": self._operator,
            "table": self._table,
            "batch": str(batch),
            "keys": str(len(self.spec.key)),
            **({} if self.spec.lead is None else {"lead": str(self.spec.lead)}),
        }
        added = self._write(name, batch, merged, metadata)
        recipe = None
        if keep_changes and count:
            recipe = Merge(
                changes=self._write(changes_name(name), batch, changes, metadata),
                forgotten_us=self._forgotten_us,
                base_ms=self.now_ms if count == len(sealed) else None,
            )
        elif keep_changes:
            self._store.link(name, changes_name(name))
            recipe = Merge(changes=replace(added, name=changes_name(name)))
        # A level of which nothing is left goes without being read, wherever it stands.
        stays = [number for number in range(len(self.levels) - count) if sizes[number]]
        kept = tuple(self.levels[number] for number in stays)
        names = {level.ref.name for level in kept}
        gone = [level for level in self.levels if level.ref.name not in names]
        shares = [sizes[number] / max(len(sealed[-1 - number].run), 1) for number in stays]
        self.levels = (*kept, Level(ref=added))
        self._pending = []
        self._sealed = None
        return Sealed(
            added=added,
            replaced=tuple(level.ref.name for level in gone),
            only={level.ref.name: tuple(sorted(level.live)) for level in gone if level.live is not None},
            rows_written=len(merged),
            live_rows=sum(sizes[number] for number in stays) + len(merged),
            state_bytes=added.bytes
            + int(sum(level.ref.bytes * share for level, share in zip(kept, shares, strict=True))),
            merge=recipe,
        )

    def _write(self, name: str, batch: int, run: Run, metadata: dict[str, str]) -> SegmentRef:
        size, checksum = self._store.write(name, to_batch(run, self.spec, metadata))
        return SegmentRef(
            name=name,
            batch=batch,
            rows=len(run),
            bytes=size,
            checksum=checksum,
            tasks=self._tasks_in(run),
            min_timer_us=earliest_timer(run),
        )

    def _where(self) -> str:
        return f"table '{self._table}' of operator '{self._operator}'"

    def _needles(self, keys: tuple[pa.Array, ...], hashes: U64 | None, presorted: bool) -> Needles:
        if hashes is None:
            hashes, presorted = self._hasher(keys), False
        if len(hashes) != len(keys[0]):
            raise StateError(f"{len(hashes)} hashes were given for {len(keys[0])} keys of {self._where()}")
        return needles(keys, hashes, presorted=presorted, default_hash=self._default_hash)

    def _opened(self) -> list[LiveRun]:
        if self._sealed is None:
            self._sealed = [self._open(level) for level in reversed(self.levels)]
        return self._sealed

    def _open(self, level: Level) -> LiveRun:
        run = self._store.open(level.ref).run(self.spec, self._fingerprint)
        mine = frozenset(self.mine)
        live = mine if level.live is None else level.live & mine
        if live.issuperset(level.ref.tasks):
            return LiveRun(run=run, live=None)
        mask = np.zeros(self.tasks, np.bool_)
        mask[sorted(live)] = True
        return LiveRun(run=run, live=mask)

    def _runs(self) -> list[LiveRun]:
        return [*(LiveRun(run=run, live=None) for run in reversed(self._pending)), *self._opened()]

    def _locate(self, wanted: Needles) -> Hits:
        return locate(self._runs(), wanted, self.now_ms)

    def _values(self, hits: Hits) -> pa.Table:
        if not hits.parts:
            return pa.Table.from_arrays(
                [pa.nulls(len(hits.found), column.type) for column in self.spec.values],
                schema=self.spec.values.remove_metadata(),
            )
        arrays = [hits.column(index, column.type) for index, column in enumerate(self.spec.values)]
        return pa.Table.from_arrays(arrays, names=self.spec.values.names)

    def _push(self, run: Run) -> None:
        inside = sum(part.stop - part.start for part in row_slices(run.hashes, self._ranges))
        if inside != len(run):
            raise StateError(
                f"{len(run) - inside} keys written to {self._where()} belong to tasks of other instances; "
                "write only keys of rows this instance received"
            )
        while self._pending and len(self._pending[-1]) <= 2 * len(run):
            run = merge(self._pending.pop(), run, default_hash=self._default_hash)
        self._pending.append(run)

    def _live_tasks(self, level: Level) -> frozenset[int]:
        mine = frozenset(self.mine if level.live is None else level.live)
        return mine.intersection(level.ref.tasks)

    def _live_part(self, level: LiveRun) -> Run:
        if level.live is None:
            return level.run
        return live_rows(level, hash_range(np.flatnonzero(level.live).tolist(), self.tasks))

    def _remembered(self, run: Run) -> Run:
        return run if self._forgotten_us is None else without_forgotten(run, self._forgotten_us)

    def _forgotten_count(self, level: LiveRun) -> int:
        if self._forgotten_us is None:
            return 0
        if level.live is None:
            return count_before(level.run, self._forgotten_us)
        return count_before(self._live_part(level), self._forgotten_us)

    def _live_count(self, level: LiveRun) -> int:
        if level.live is None:
            return len(level.run)
        ranges = hash_range(np.flatnonzero(level.live).tolist(), self.tasks)
        return sum(part.stop - part.start for part in row_slices(level.run.hashes, ranges))

    def _everything(self) -> Run:
        runs = [self._live_part(level) for level in self._runs()]
        if not runs:
            return empty_run(self.spec)
        return drop_dead(merge_all(runs, default_hash=self._default_hash), self.now_ms)

    def _tasks_in(self, run: Run) -> tuple[int, ...]:
        counts = np.diff(np.searchsorted(run.hashes, task_starts(self.tasks)), append=len(run))
        return tuple(int(task) for task in np.flatnonzero(counts))

    def _with_earliest_timer(self) -> list[tuple[LiveRun, int | None]]:
        pending = [(LiveRun(run=run, live=None), earliest_timer(run)) for run in reversed(self._pending)]
        if all(level.ref.min_timer_us is None for level in self.levels) and not pending:
            return []
        refs = [level.ref.min_timer_us for level in reversed(self.levels)]
        return [*pending, *zip(self._opened(), refs, strict=True)]

    def _current(self, level: LiveRun, rows: I64, newer: list[LiveRun]) -> I64:
        """Of candidate rows of a level, those live here and not overwritten by a newer run."""
        run = level.run
        rows = np.sort(rows)
        if level.live is not None and len(rows):
            rows = rows[level.live[task_of(run.hashes[rows], self.tasks)]]
        if run.deleted is not None:
            rows = rows[~run.deleted[rows]]
        if run.expires_ms is not None:
            rows = rows[run.expires_ms[rows] > self.now_ms]
        for other in newer:
            if not len(rows):
                break
            # Only the keys: values may be large, and nothing here looks at them.
            candidates = take_rows(Run(hashes=run.hashes, keys=run.keys, values=()), rows)
            hit = match(other.run, needles_of(candidates, default_hash=self._default_hash), None) >= 0
            hidden = other.hides(candidates.hashes)
            rows = rows[~hit if hidden is None else ~hit | hidden]
        return rows


def _hasher(spec: TableSpec) -> Hasher:
    if spec.lead is None:
        return hash_keys
    lead = spec.lead
    return lambda columns: hash_spread(columns, lead)


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
