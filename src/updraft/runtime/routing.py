"""Rows of one producer -> record batches per destination instance. Vectorised; order within a sender is kept."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from updraft.runtime.pieces import Kind
from updraft.runtime.program import Route
from updraft.state.keys import hash_keys, task_of, task_starts
from updraft.topology.records import Grouping

_TELLING_ROWS = 4_096  # fewer say little about those to come
Hashes = npt.NDArray[np.uint64]
Routed = Iterator[tuple[int, Kind, pa.RecordBatch]]


def route_rows(
    route: Route, rows: pa.Table, sender: int, shrinks: MutableMapping[int, bool] | None = None
) -> Routed:
    """(instance index, kind, batch) for every instance that gets rows; `sender` only spreads shuffled rows fairly.

    `shrinks` remembers by edge whether combining was worth it, for a sender whose rows come in several calls.
    """
    if rows.num_rows == 0:
        return
    if len(route.task_instances):
        yield from _to_tasks(route, rows, sender, {} if shrinks is None else shrinks)
        return
    batch = one_batch(rows.select(route.wire.names))
    match route.grouping:
        case Grouping.ALL:
            for instance in range(len(route.slots)):
                yield instance, Kind.ROWS, batch
        case Grouping.GLOBAL:
            yield 0, Kind.ROWS, batch
        case Grouping.LOCAL if sender < len(route.slots):
            yield sender, Kind.ROWS, batch
        case Grouping.KEY:
            hashes = hash_keys([rows.column(key) for key in route.keys])
            instances = task_of(hashes, len(route.slots)).astype(np.uint16)
            yield from _partition(batch, instances, Kind.ROWS)
        case _:
            yield from _spread(batch, len(route.slots), sender)


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """The table as a single record batch."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def _to_tasks(route: Route, rows: pa.Table, sender: int, shrinks: MutableMapping[int, bool]) -> Routed:
    """Rows for a stateful operator carry the hash that names their task."""
    if route.combiner is not None and route.combined is not None:
        shrinking = shrinks.get(route.edge)
        if shrinking is None:
            shrinking = route.combiner.is_worth_combining(rows, route.keys)
            if rows.num_rows >= _TELLING_ROWS:
                shrinks[route.edge] = shrinking
        if shrinking:
            table, hashes = route.combiner.combine(rows, route.keys)
            yield from _partition(
                _hashed(table, hashes, route.combined), _owners(route, hashes), Kind.COMBINED
            )
            return
    tasks = len(route.task_instances)
    if route.grouping is Grouping.KEY:
        hashes = hash_keys([rows.column(key) for key in route.keys])
    else:
        turn = (np.arange(rows.num_rows) * tasks // rows.num_rows + sender) % tasks
        hashes = task_starts(tasks)[turn]
    yield from _partition(_hashed(rows, hashes, route.wire), _owners(route, hashes), Kind.ROWS)


def _owners(route: Route, hashes: Hashes) -> npt.NDArray[np.uint16]:
    return route.task_instances[task_of(hashes, len(route.task_instances))]


def _hashed(rows: pa.Table, hashes: Hashes, wire: pa.Schema) -> pa.RecordBatch:
    columns = [pa.array(hashes), *(_flat(rows.column(name)) for name in wire.names[1:])]
    return pa.RecordBatch.from_arrays(columns, schema=wire)


def _flat(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _partition(batch: pa.RecordBatch, owners: npt.NDArray[np.uint16], kind: Kind) -> Routed:
    """Split by owning instance, stably. Rows already in that order (sorted by hash) are only sliced."""
    if owners[0] == owners[-1] and (owners == owners[0]).all():
        yield int(owners[0]), kind, batch
        return
    if not (owners[1:] >= owners[:-1]).all():
        order = np.argsort(owners, kind="stable")  # a radix sort on 16 bits
        owners = owners[order]
        batch = batch.take(pa.array(order))
    bounds = (np.flatnonzero(np.diff(owners)) + 1).tolist()
    for start, end in zip([0, *bounds], [*bounds, len(owners)], strict=True):
        yield int(owners[start]), kind, batch.slice(start, end - start)


def _spread(batch: pa.RecordBatch, instances: int, sender: int) -> Routed:
    """Even contiguous shares; the sender's number rotates who gets the odd rows."""
    bounds = [batch.num_rows * i // instances for i in range(instances + 1)]
    for i in range(instances):
        if bounds[i + 1] > bounds[i]:
            share = batch.slice(bounds[i], bounds[i + 1] - bounds[i])
            yield (i + sender) % instances, Kind.ROWS, share
