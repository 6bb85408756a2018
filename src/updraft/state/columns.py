"""From a caller's table to the columns of a run: declared types, one chunk, sorted by hash, each key once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from updraft.errors import StateError
from updraft.state.keys import I64, U64, Mask, is_exact
from updraft.state.lookup import equal_keys, is_ascending
from updraft.state.run import NO_TIMER, Run, raw, take, take_rows
from updraft.state.spec import TableSpec


def key_columns(keys: pa.Table, spec: TableSpec, leading: int | None = None) -> tuple[pa.Array, ...]:
    """The declared key columns of a table (or the first few), as declared."""
    return tuple(_column(keys, field) for field in list(spec.key)[:leading])


def conform(rows: pa.Table, spec: TableSpec) -> tuple[tuple[pa.Array, ...], tuple[pa.Array, ...]]:
    """Key and value columns of a table, as declared; further columns are ignored."""
    return key_columns(rows, spec), tuple(_column(rows, field) for field in spec.values)


def _column(rows: pa.Table, field: pa.Field) -> pa.Array:
    index = rows.schema.get_field_index(field.name)
    if index < 0:
        raise StateError(
            f"column '{field.name}' is missing; the state declares it as {field.type} and the rows have "
            f"{', '.join(rows.schema.names)}"
        )
    column = rows.column(index)
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if column.type != field.type:
        try:
            column = column.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise StateError(
                f"column '{field.name}' has type {column.type}; the state declares {field.type} ({error})"
            ) from error
    return column


def timer_values(timers_us: I64 | pa.Array | pa.ChunkedArray | None, count: int) -> I64:
    """Timers as int64 with NO_TIMER for none."""
    if timers_us is None:
        return np.full(count, NO_TIMER, np.int64)
    if isinstance(timers_us, np.ndarray):
        values = timers_us.astype(np.int64)
    else:
        values = np.asarray(timers_us.cast(pa.int64()).fill_null(NO_TIMER), np.int64)
    if len(values) != count:
        raise StateError(f"{len(values)} timers were given for {count} rows")
    return values


def sorted_run(
    *,
    hashes: U64,
    keys: tuple[pa.Array, ...],
    values: tuple[pa.Array, ...],
    presorted: bool,
    injective: bool,
    expires_ms: I64 | None = None,
    timers_us: I64 | None = None,
) -> Run:
    """A run of rows in any order, the last row of a key winning."""
    if len(hashes) != len(keys[0]):
        raise StateError(f"{len(hashes)} hashes were given for {len(keys[0])} rows")
    rows = Run(hashes=hashes, keys=keys, values=values, expires_ms=expires_ms, timers_us=timers_us)
    if not presorted and not is_ascending(hashes):
        order = np.argsort(hashes)
        ascending = hashes[order]
        if (ascending[1:] == ascending[:-1]).any():
            order = np.argsort(hashes, kind="stable")  # slower, but keeps the order of writes of one key
        rows = take_rows(rows, order)
    return _deduplicated(rows, injective)


def _deduplicated(run: Run, default_hash: bool) -> Run:
    """Keep the last of equal keys; rows come in order of hash, and of writing within a hash."""
    twin = run.hashes[1:] == run.hashes[:-1]
    if not twin.any():
        return run
    first = np.flatnonzero(twin)
    injective = (
        default_hash and len(run.keys) == 1 and is_exact(run.keys[0].type) and raw(run.keys[0]) is not None
    )
    if injective or _adjacent_equal(run, first).all():
        return take_rows(run, np.flatnonzero(np.append(~twin, True)))
    return take_rows(run, np.flatnonzero(_last_of_colliding(run)))


def _adjacent_equal(run: Run, first: I64) -> Mask:
    same = np.ones(len(first), np.bool_)
    left, right = pa.array(first), pa.array(first + 1)
    for column in run.keys:
        same &= equal_keys(take(column, left), take(column, right))
    return same


def _last_of_colliding(run: Run) -> Mask:
    """Different keys share a hash in this run: compare every pair within a group of one hash."""
    keep = np.ones(len(run), np.bool_)
    distance = 1
    # Rows `distance` apart with one hash: an earlier row equal to a later one is superseded.
    while True:
        first = np.flatnonzero(run.hashes[distance:] == run.hashes[:-distance])
        if not len(first):
            return keep
        same = np.ones(len(first), np.bool_)
        left, right = pa.array(first), pa.array(first + distance)
        for column in run.keys:
            same &= equal_keys(take(column, left), take(column, right))
        keep[first[same]] = False
        distance += 1
