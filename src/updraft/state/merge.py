"""Merging sorted runs, newest wins: rows that exist are overwritten in a copy, others woven in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from updraft.state.keys import I64, U64, Mask
from updraft.state.lookup import LiveRun, match, needles_of, search
from updraft.state.run import Raw, Run, from_raw, take, take_rows


def merge(older: Run, newer: Run, *, default_hash: bool = True) -> Run:
    """Both runs as one; where both hold a key, the newer row is kept (tombstones included)."""
    return merge_all((newer, older), default_hash=default_hash)


def merge_all(runs: Sequence[Run], *, default_hash: bool = True) -> Run:
    """Merge runs given newest first.

    Everything is matched against the oldest run, usually the largest: keys it has are overwritten in a copy
    of its values, and only keys it lacks are merged among themselves and woven in.
    """
    runs = [run for run in runs if len(run)] or list(runs[:1])
    oldest = runs[-1]
    known: list[tuple[Run, I64]] = []
    fresh: list[Run] = []
    for run in runs[-2::-1]:
        rows = match(oldest, needles_of(run, default_hash=default_hash), None)
        found = rows >= 0
        if found.all():
            known.append((run, rows))
            continue
        fresh.append(take_rows(run, np.flatnonzero(~found)) if found.any() else run)
        if found.any():
            known.append((take_rows(run, np.flatnonzero(found)), rows[found]))
    merged = _overwritten(oldest, known) if known else oldest
    if not fresh:
        return merged
    return _woven(merged, merge_all(fresh[::-1], default_hash=default_hash))


def drop_dead(run: Run, now_ms: int) -> Run:
    """Without tombstones and expired rows: only right where nothing older can show through."""
    if run.deleted is None and run.expires_ms is None:
        return run
    alive = np.ones(len(run), np.bool_)
    if run.deleted is not None:
        alive &= ~run.deleted
    if run.expires_ms is not None:
        alive &= run.expires_ms > now_ms
    kept = run if alive.all() else take_rows(run, np.flatnonzero(alive))
    return Run(
        hashes=kept.hashes,
        keys=kept.keys,
        values=kept.values,
        expires_ms=kept.expires_ms,
        timers_us=kept.timers_us,
    )


def without_forgotten(run: Run, us: int) -> Run:
    """Without the rows whose timer is before this."""
    if run.timers_us is None:
        return run
    kept = np.flatnonzero(run.timers_us >= us)
    return run if len(kept) == len(run) else take_rows(run, kept)


def live_rows(level: LiveRun, ranges: Sequence[tuple[int, int]]) -> Run:
    """Only the rows whose hash lies in the given ranges (those of the live tasks)."""
    return take_rows(level.run, row_slices(level.run.hashes, ranges))


def row_slices(hashes: U64, ranges: Sequence[tuple[int, int]]) -> list[slice]:
    """Slices of rows, sorted by hash, that lie in hash ranges [start, stop)."""
    slices = []
    for start, stop in ranges:
        first = int(np.searchsorted(hashes, np.uint64(start)))
        last = len(hashes) if stop >= 1 << 64 else int(np.searchsorted(hashes, np.uint64(stop)))
        if last > first:
            slices.append(slice(first, last))
    return slices


def _overwritten(run: Run, changes: Sequence[tuple[Run, I64]]) -> Run:
    """The run with rows replaced by those of other runs, later ones on top; keys and hashes are the same."""

    def fixed(column: Raw, others: Sequence[Raw]) -> Raw:
        out = column.copy()
        for (_, rows), other in zip(changes, others, strict=True):
            out[rows] = other
        return out

    def value(index: int) -> pa.Array:
        column, view = run.values[index], run.raw_values[index]
        views = [other for change, _ in changes if (other := change.raw_values[index]) is not None]
        if view is not None and len(views) == len(changes):
            return from_raw(fixed(view, views), column.type)
        sources = [column, *(change.values[index] for change, _ in changes)]
        starts = np.cumsum([len(source) for source in sources])
        picked = fixed(
            np.arange(len(run)),
            [np.arange(start, start + len(c)) for start, (c, _) in zip(starts[:-1], changes, strict=True)],
        )
        return take(pa.concat_arrays(sources), picked)

    def extra(name: str) -> I64 | None:
        column = getattr(run, name)
        if column is None:
            return None
        return fixed(column, [getattr(change, name) for change, _ in changes])

    return Run(
        hashes=run.hashes,
        keys=run.keys,
        values=tuple(value(index) for index in range(len(run.values))),
        deleted=_flags(len(run), [(run, slice(None)), *changes]),
        expires_ms=extra("expires_ms"),
        timers_us=extra("timers_us"),
    )


def _woven(older: Run, fresh: Run) -> Run:
    """Two runs without a key in common as one."""
    total = len(older) + len(fresh)
    # The j-th fresh row goes behind the older rows with a smaller hash and the j fresh rows before it.
    fresh_to = search(older.hashes, fresh.hashes) + np.arange(len(fresh))
    from_older = np.ones(total, np.bool_)
    from_older[fresh_to] = False
    older_to = np.flatnonzero(from_older)

    def fixed(left: Raw, right: Raw) -> Raw:
        out = np.empty(total, left.dtype)
        out[older_to] = left
        out[fresh_to] = right
        return out

    source: list[pa.Array] = []

    def column(left: pa.Array, left_raw: Raw | None, right: pa.Array, right_raw: Raw | None) -> pa.Array:
        if left_raw is not None and right_raw is not None:
            return from_raw(fixed(left_raw, right_raw), left.type)
        if not source:
            source.append(pa.array(fixed(np.arange(len(older)), np.arange(len(older), total))))
        return take(pa.concat_arrays([left, right]), source[0])

    def extra(left: I64 | None, right: I64 | None) -> I64 | None:
        return None if left is None or right is None else fixed(left, right)

    return Run(
        hashes=fixed(older.hashes, fresh.hashes),
        keys=tuple(
            column(*pair) for pair in zip(older.keys, older.raw_keys, fresh.keys, fresh.raw_keys, strict=True)
        ),
        values=tuple(
            column(*pair)
            for pair in zip(older.values, older.raw_values, fresh.values, fresh.raw_values, strict=True)
        ),
        deleted=_flags(total, [(older, older_to), (fresh, fresh_to)]),
        expires_ms=extra(older.expires_ms, fresh.expires_ms),
        timers_us=extra(older.timers_us, fresh.timers_us),
    )


def _flags(total: int, parts: Sequence[tuple[Run, I64 | slice]]) -> Mask | None:
    """Tombstone flags of a merged run, None if it has none."""
    if all(run.deleted is None for run, _ in parts):
        return None
    out = np.zeros(total, np.bool_)
    for run, rows in parts:
        out[rows] = False if run.deleted is None else run.deleted
    return out if out.any() else None
