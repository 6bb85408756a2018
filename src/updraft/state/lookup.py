"""Finding keys in sorted runs: binary search by hash, then an exact comparison of the keys.

Two different keys with one hash are neighbours in a run; the comparison walks over them, so a collision
costs time, never correctness.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from updraft.state.keys import I64, U64, Mask, float_words, is_exact, task_of
from updraft.state.run import Raw, Run, from_raw, raw, take

_NONE = np.empty(0, np.int64)
_LOWER = np.uint64(0xFFFFFFFF)  # the half of a hash that does not decide the task


@dataclass(slots=True, eq=False, kw_only=True)
class Needles:
    """Keys to look for. `order` lists them by ascending hash; None when they already are."""

    hashes: U64
    keys: tuple[pa.Array, ...]
    raw_keys: tuple[Raw | None, ...]
    order: I64 | None
    injective: bool  # equal hashes prove equal keys (a single integer key, none of them null)

    def __len__(self) -> int:
        return len(self.hashes)


def needles(
    keys: tuple[pa.Array, ...], hashes: U64, *, presorted: bool, default_hash: bool = True
) -> Needles:
    """Prepare keys for `match`; sorting them first makes the binary searches walk memory in one direction."""
    order = None if presorted or is_ascending(hashes) else np.argsort(hashes)
    raws = tuple(raw(column) for column in keys)
    injective = default_hash and len(keys) == 1 and raws[0] is not None and is_exact(keys[0].type)
    return Needles(hashes=hashes, keys=keys, raw_keys=raws, order=order, injective=injective)


def needles_of(run: Run, *, default_hash: bool) -> Needles:
    """A run's own keys as needles."""
    injective = (
        default_hash and len(run.keys) == 1 and run.raw_keys[0] is not None and is_exact(run.keys[0].type)
    )
    return Needles(hashes=run.hashes, keys=run.keys, raw_keys=run.raw_keys, order=None, injective=injective)


def is_ascending(hashes: U64) -> bool:
    """Whether hashes are sorted (a cheap pass that saves a sort)."""
    return bool((hashes[1:] >= hashes[:-1]).all())


def search(hashes: U64, wanted: U64) -> I64:
    """`np.searchsorted` (left) of ascending hashes in ascending hashes, at the lower of two costs.

    A binary search costs about 45 ns a needle; merging the two sorted sequences (which is what a stable sort
    of their concatenation does) about 5 ns an element of either.
    """
    if len(hashes) > 7 * len(wanted):
        return np.searchsorted(hashes, wanted)
    order = np.argsort(np.concatenate([wanted, hashes]), kind="stable")
    rows = np.flatnonzero(order < len(wanted))
    rows -= np.arange(len(wanted))
    return rows


def match(run: Run, wanted: Needles, subset: I64 | None) -> I64:
    """Row of each wanted key in the run, -1 where absent; `subset` selects needles, in hash order."""
    hashes = wanted.hashes if subset is None else wanted.hashes[subset]
    last = len(run) - 1
    if last < 0 or not len(hashes):
        return np.full(len(hashes), -1, np.int64)
    rows = search(run.hashes, hashes)
    np.minimum(rows, last, out=rows)
    hit = run.hashes[rows] == hashes
    if not (wanted.injective and run.raw_keys[0] is not None):
        hit = _confirm(run, wanted, subset, hashes, rows, hit)
    if not hit.all():
        rows[~hit] = -1
    return rows


def members(run: Run, groups: tuple[pa.Array, ...], hashes: U64) -> tuple[I64, I64]:
    """Rows of a run whose leading key columns equal one of the groups: group numbers and rows, group by group."""
    upper = hashes & ~_LOWER
    first = np.searchsorted(run.hashes, upper)
    count = np.searchsorted(run.hashes, upper | _LOWER, side="right") - first
    at = np.repeat(np.arange(len(hashes)), count)
    rows = np.arange(len(at)) + np.repeat(first - (np.cumsum(count) - count), count)
    same = np.ones(len(rows), np.bool_)
    for column, wanted in zip(run.keys, groups, strict=False):
        same &= equal_keys(take(column, rows), take(wanted, at))
    return (at, rows) if same.all() else (at[same], rows[same])


def _confirm(run: Run, wanted: Needles, subset: I64 | None, hashes: U64, rows: I64, hit: Mask) -> Mask:
    """Compare keys where hashes met; moves `rows` on over colliding neighbours."""
    last = len(run) - 1
    confirmed = np.zeros(len(hit), np.bool_)
    open_ = np.flatnonzero(hit)
    while len(open_):
        at = open_ if subset is None else subset[open_]
        same = _equal(run, rows[open_], wanted, at)
        confirmed[open_[same]] = True
        open_ = open_[~same]
        open_ = open_[rows[open_] < last]
        rows[open_] += 1
        open_ = open_[run.hashes[rows[open_]] == hashes[open_]]
    return confirmed


def _equal(run: Run, rows: I64, wanted: Needles, at: I64) -> Mask:
    same = np.ones(len(rows), np.bool_)
    for column, view, other, other_view in zip(
        run.keys, run.raw_keys, wanted.keys, wanted.raw_keys, strict=True
    ):
        if view is not None and other_view is not None and not pa.types.is_floating(column.type):
            same &= view[rows] == other_view[at]
        else:
            same &= equal_keys(take(column, rows), take(other, at))
    return same


def equal_keys(left: pa.Array, right: pa.Array) -> Mask:
    """Row-wise equality of keys: null equals null, NaN equals NaN, -0.0 equals 0.0."""
    if pa.types.is_floating(left.type):
        equal = float_words(_floats(left)) == float_words(_floats(right))
        if not left.null_count and not right.null_count:
            return np.asarray(equal)
        left_null, right_null = np.asarray(pc.is_null(left)), np.asarray(pc.is_null(right))
        return np.asarray(np.where(left_null | right_null, left_null & right_null, equal))
    equal = pc.equal(left, right)
    if not equal.null_count:
        return np.asarray(equal)
    both = pc.and_(pc.is_null(left), pc.is_null(right))
    return np.asarray(pc.or_(pc.fill_null(equal, False), both))


def _floats(column: pa.Array) -> Raw:
    return np.asarray(column.cast(pa.float64()).fill_null(0.0))


@dataclass(slots=True, eq=False, kw_only=True)
class LiveRun:
    """A run with the tasks whose rows in it are current; `live` None means every row is."""

    run: Run
    live: Mask | None  # indexed by task

    def hides(self, hashes: U64) -> Mask | None:
        """Which of these hashes belong to tasks whose rows here are stale."""
        return None if self.live is None else ~self.live[task_of(hashes, len(self.live))]


@dataclass(slots=True, eq=False, kw_only=True)
class Hits:
    """Where each needle's newest version is: rows per run, and which needles have no live version."""

    parts: tuple[tuple[Run, I64 | None, I64], ...]  # run, needle positions (None: all of them), rows
    found: Mask

    def column(self, index: int, kind: pa.DataType) -> pa.Array:
        """One value column for all needles, null where nothing was found."""
        views = [run.raw_values[index] for run, _, _ in self.parts]
        if any(view is None for view in views):
            return self._general(index, kind)
        complete = bool(self.found.all())
        if complete and len(views) == 1 and self.parts[0][1] is None:
            return from_raw(views[0][self.parts[0][2]], kind)  # type: ignore[index]
        dtype = f"u{kind.bit_width // 8}" if not views else views[0].dtype  # type: ignore[union-attr]
        out = np.zeros(len(self.found), dtype)
        for (_, at, rows), view in zip(self.parts, views, strict=True):
            out[slice(None) if at is None else at] = view[rows]  # type: ignore[index]
        if complete:
            return from_raw(out, kind)
        valid = pa.py_buffer(np.packbits(self.found, bitorder="little"))
        return pa.Array.from_buffers(kind, len(out), [valid, pa.py_buffer(out)])

    def _general(self, index: int, kind: pa.DataType) -> pa.Array:
        source = np.full(len(self.found), -1, np.int64)
        taken: list[pa.Array] = []
        start = 0
        for run, at, rows in self.parts:
            taken.append(take(run.values[index], rows))
            source[slice(None) if at is None else at] = np.arange(start, start + len(rows))
            start += len(rows)
        return take(pa.concat_arrays(taken), pa.array(source, mask=source < 0))

    def extra(self, name: str, missing: int) -> I64:
        """An int64 bookkeeping column (`expires_ms`, `timers_us`) for all needles."""
        out = np.full(len(self.found), missing, np.int64)
        for run, at, rows in self.parts:
            column = getattr(run, name)
            if column is not None:
                out[slice(None) if at is None else at] = column[rows]
        return out


def locate(runs: Sequence[LiveRun], wanted: Needles, now_ms: int) -> Hits:
    """The newest live version of every needle; `runs` newest first. Deleted and expired count as absent."""
    remaining = wanted.order
    found = np.zeros(len(wanted), np.bool_)
    parts: list[tuple[Run, I64 | None, I64]] = []
    for level in runs:
        run = level.run
        if not len(run):
            continue
        rows = match(run, wanted, remaining)
        hit = rows >= 0
        hidden = level.hides(wanted.hashes if remaining is None else wanted.hashes[remaining])
        if hidden is not None:
            hit &= ~hidden
        if hit.all():
            at, remaining_next = remaining, _NONE
        else:
            at = np.flatnonzero(hit) if remaining is None else remaining[hit]
            rows = rows[hit]
            remaining_next = np.flatnonzero(~hit) if remaining is None else remaining[~hit]
        alive = _alive(run, rows, now_ms)
        if alive is not None and not alive.all():
            at = np.flatnonzero(alive) if at is None else at[alive]
            rows = rows[alive]
        if len(rows):
            parts.append((run, at, rows))
            found[slice(None) if at is None else at] = True
        remaining = remaining_next
        if not len(remaining):
            break
    return Hits(parts=tuple(parts), found=found)


def _alive(run: Run, rows: I64, now_ms: int) -> Mask | None:
    if run.deleted is None and run.expires_ms is None:
        return None
    alive = np.ones(len(rows), np.bool_)
    if run.deleted is not None:
        alive &= ~run.deleted[rows]
    if run.expires_ms is not None:
        alive &= run.expires_ms[rows] > now_ms
    return alive
