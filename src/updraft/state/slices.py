"""Part of a segment: the rows of some tasks, as a segment of its own. What copying a task to another worker sends."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from updraft.state.keys import U64, fixed_view, task_of, task_start
from updraft.state.run import NO_TIMER
from updraft.state.spec import DELETED, EXPIRES, HASH, TIMER, TIMER_ORDER, task_ranges


def rows_of_tasks(batch: pa.RecordBatch, tasks: Iterable[int], total: int) -> pa.RecordBatch:
    """The rows of these tasks, still sorted by hash; tasks are ranges of the hash space, so this only slices."""
    hashes = _hashes(batch)
    pieces: list[pa.RecordBatch] = []
    for first, last in task_ranges(tasks):
        start = int(np.searchsorted(hashes, np.uint64(task_start(first, total))))
        end = len(hashes)
        if last + 1 < total:
            end = int(np.searchsorted(hashes, np.uint64(task_start(last + 1, total))))
        if end > start:
            pieces.append(batch.slice(start, end - start))
    if not pieces:
        return batch.slice(0, 0)
    if len(pieces) == 1:
        return _ordered(pieces[0])
    return _ordered(pa.Table.from_batches(pieces).combine_chunks().to_batches()[0])


def concat_rows(batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    """Rows of several parts of one segment together, sorted by hash again."""
    found = list(batches)
    if len(found) == 1:
        return found[0]
    if any(DELETED in batch.schema.names for batch in found):
        found = [_with_tombstones(batch) for batch in found]
    table = pa.Table.from_batches(found).combine_chunks()
    order = np.argsort(table.column(HASH).to_numpy(), kind="stable")
    return _ordered(table.take(pa.array(order)).combine_chunks().to_batches()[0])


def tasks_in(batch: pa.RecordBatch, total: int) -> tuple[int, ...]:
    """The tasks that have rows here."""
    return tuple(np.unique(task_of(_hashes(batch), total)).tolist())


def earliest_timer_us(batch: pa.RecordBatch) -> int | None:
    """Smallest timer of the rows, None if there is none."""
    if TIMER not in batch.schema.names or not batch.num_rows:
        return None
    earliest = int(fixed_view(batch.column(TIMER), "i8").min())
    return None if earliest == NO_TIMER else earliest


def _with_tombstones(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A part that a worker made itself has no column for tombstones if it has none."""
    if DELETED in batch.schema.names:
        return batch
    names = batch.schema.names
    at = next((i for i, name in enumerate(names) if name in (EXPIRES, TIMER)), len(names))
    none = pa.array(np.zeros(batch.num_rows, np.uint8))
    return batch.add_column(at, pa.field(DELETED, pa.uint8(), nullable=False), none)


def _hashes(batch: pa.RecordBatch) -> U64:
    return fixed_view(batch.column(HASH), "u8")


def _ordered(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The order of timers is of row numbers, which slicing changed."""
    if TIMER_ORDER not in batch.schema.names:
        return batch
    order = np.argsort(fixed_view(batch.column(TIMER), "i8")).astype(np.uint32)
    at = batch.schema.get_field_index(TIMER_ORDER)
    return batch.set_column(at, batch.schema.field(at), pa.array(order))
