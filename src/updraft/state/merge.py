"""Merging sorted runs, newest wins: rows that exist are overwritten in place of a copy, others inserted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from updraft.state.keys import I64, U64, Mask
from updraft.state.lookup import LiveRun, match, needles_of
from updraft.state.run import Raw, Run, from_raw, take_rows


def merge(older: Run, newer: Run, *, default_hash: bool = True) -> Run:
    """Both runs as one; where both hold a key, the newer row is kept (tombstones included)."""
    if not len(older):
        return newer
    if not len(newer):
        return older
    weave = _weave(older, newer, default_hash)
    return Run(
        hashes=weave.hashes(older, newer),
        keys=tuple(
            weave.column(*columns)
            for columns in zip(older.keys, older.raw_keys, newer.keys, newer.raw_keys, strict=True)
        ),
        values=tuple(
            weave.column(*columns)
            for columns in zip(older.values, older.raw_values, newer.values, newer.raw_values, strict=True)
        ),
        deleted=_merged_flags(weave, older.deleted, newer.deleted),
        expires_ms=weave.optional(older.expires_ms, newer.expires_ms),
        timers_us=weave.optional(older.timers_us, newer.timers_us),
    )


def merge_all(runs: Sequence[Run], *, default_hash: bool = True) -> Run:
    """Merge runs given newest first; starting at the small ones keeps the copying geometric."""
    merged = runs[0]
    for older in runs[1:]:
        merged = merge(older, merged, default_hash=default_hash)
    return merged


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


@dataclass(slots=True, eq=False, kw_only=True)
class _Weave:
    """Where the rows of an older and a newer run go in the merged one."""

    total: int
    older_to: I64 | None  # None: older rows keep their place
    newer_to: I64

    def hashes(self, older: Run, newer: Run) -> U64:
        return older.hashes if self.older_to is None else self.both(older.hashes, newer.hashes)

    def both(self, older: Raw, newer: Raw) -> Raw:
        if self.older_to is None:
            out = older.copy()
        else:
            out = np.empty(self.total, older.dtype)
            out[self.older_to] = older
        out[self.newer_to] = newer
        return out

    def optional(self, older: I64 | None, newer: I64 | None) -> I64 | None:
        return None if older is None or newer is None else self.both(older, newer)  # type: ignore[return-value]

    def column(
        self, older: pa.Array, older_raw: Raw | None, newer: pa.Array, newer_raw: Raw | None
    ) -> pa.Array:
        if older_raw is not None and newer_raw is not None:
            return from_raw(self.both(older_raw, newer_raw), older.type)
        source = self.both(np.arange(len(older)), np.arange(len(older), len(older) + len(newer)))
        return pa.concat_arrays([older, newer]).take(pa.array(source))


def _weave(older: Run, newer: Run, default_hash: bool) -> _Weave:
    rows = match(older, needles_of(newer, default_hash=default_hash), None)
    fresh = np.flatnonzero(rows < 0)
    if not len(fresh):
        return _Weave(total=len(older), older_to=None, newer_to=rows)
    total = len(older) + len(fresh)
    # The j-th inserted row goes behind the older rows with a smaller hash and the j rows inserted before it.
    inserted = np.searchsorted(older.hashes, newer.hashes[fresh]) + np.arange(len(fresh))
    from_older = np.ones(total, np.bool_)
    from_older[inserted] = False
    older_to = np.flatnonzero(from_older)
    newer_to = older_to[rows] if len(fresh) < len(rows) else rows
    newer_to[fresh] = inserted
    return _Weave(total=total, older_to=older_to, newer_to=newer_to)


def _merged_flags(weave: _Weave, older: Mask | None, newer: Mask | None) -> Mask | None:
    if older is None and newer is None:
        return None
    out = np.zeros(weave.total, np.bool_)
    if older is not None:
        out[slice(None) if weave.older_to is None else weave.older_to] = older
    out[weave.newer_to] = False if newer is None else newer
    return out if out.any() else None
