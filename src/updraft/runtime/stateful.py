"""One stateful instance over one batch: open the state at the last version, process, seal the next one."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from updraft.errors import StateError
from updraft.operators import (
    Combiner,
    Context,
    KeyedOperator,
    ObjectOperator,
    PortedOperator,
    PortRows,
    Tally,
    run_keyed,
    run_objects,
    run_ported,
)
from updraft.plan import Instance
from updraft.state import KeyedTable, LocalStore, Sealed
from updraft.state.objects import OBJECT_TABLE, ObjectState
from updraft.state.spec import HASH, Level, segment_name
from updraft.topology.graph import StatefulNode

if TYPE_CHECKING:
    from updraft.runtime.stage import Batch
    from updraft.runtime.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """Rows of one instance in one batch, a table per edge, with HASH as first column if the instance is stateful.

    `ports` says which input of the operator each raw table belongs to; none means all belong to the first.
    """

    raw: tuple[pa.Table, ...]
    ports: tuple[int, ...] = ()
    combined: tuple[pa.Table, ...] = ()

    def at(self, port: int) -> tuple[pa.Table, ...]:
        """The raw tables of one input."""
        ports = self.ports or (0,) * len(self.raw)
        return tuple(table for table, of in zip(self.raw, ports, strict=True) if of == port)

    @property
    def num_rows(self) -> int:
        return sum(table.num_rows for table in (*self.raw, *self.combined))


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a stateful instance made of a batch."""

    rows: pa.Table
    sealed: Mapping[str, Sealed]
    shipped: tuple[bytes, ...]
    late_rows: int = 0
    repaired: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermarks:
    """Event time that is complete before a batch and with it, for one operator."""

    before_ms: int | None = None
    after_ms: int | None = None


def run_stateful(
    *,
    node: StatefulNode,
    instance: Instance,
    arrived: Arrived,
    batch: Batch,
    storage: Storage,
    watermarks: Watermarks = Watermarks(),  # noqa: B008
) -> Done:
    """Process and seal; without rows and without timers the state is not even opened."""
    specs = node.tables
    storage.retire(store := storage.store(), batch.retired)
    storage.retire(store, batch.drops.get(storage.worker_id(), ()) if batch.drops else ())
    levels = batch.levels.get((node.name, instance.index), {})
    if not arrived.num_rows and not any(spec.timers for spec in specs.values()):
        return Done(
            rows=node.output_schema.empty_table(),
            sealed={},
            shipped=_publish(batch, storage, store, levels, {}),
        )
    tables = {
        name: KeyedTable(
            spec=spec,
            tasks=node.tasks,
            mine=instance.tasks,
            levels=levels.get(name, ()),
            store=store,
            now_ms=batch.now_ms,
            operator=node.name,
            table=name,
        )
        for name, spec in specs.items()
    }
    objects = (
        ObjectState(
            tasks=node.tasks,
            mine=instance.tasks,
            levels=levels.get(OBJECT_TABLE, ()),
            store=store,
            operator=node.name,
        )
        if isinstance(node.operator, ObjectOperator)
        else None
    )
    tally = Tally()
    out = _process(node, instance, arrived, batch, tables, objects, watermarks, tally)
    sealed = _seal(node, instance, batch, storage, store, tables, objects)
    return Done(
        rows=out,
        sealed=sealed,
        shipped=_publish(batch, storage, store, levels, sealed),
        late_rows=tally.late_rows,
        repaired=tuple(store.repaired),
    )


def _publish(
    batch: Batch,
    storage: Storage,
    store: LocalStore,
    levels: Mapping[str, tuple[Level, ...]],
    sealed: Mapping[str, Sealed],
) -> tuple[bytes, ...]:
    """Bring the checkpoint up to date: what this batch sealed, and what batches since the last publication left."""
    if not batch.publish:
        return ()
    replaced = {name for one in sealed.values() for name in one.replaced}
    waiting = [
        level.ref.name
        for some in levels.values()
        for level in some
        if level.ref.batch > batch.published and level.ref.name not in replaced
    ]
    names = [*waiting, *(one.added.name for one in sealed.values())]
    payloads = [storage.publish(store, name) for name in dict.fromkeys(names)]
    return tuple(payload for payload in payloads if payload is not None)


def _process(
    node: StatefulNode,
    instance: Instance,
    arrived: Arrived,
    batch: Batch,
    tables: Mapping[str, KeyedTable],
    objects: ObjectState | None,
    watermarks: Watermarks,
    tally: Tally,
) -> pa.Table:
    rows, hashes = _hashed(arrived.at(0))
    ctx = Context(
        batch_id=batch.id,
        now_ms=batch.now_ms,
        operator=node.name,
        instance=instance.index,
        tasks=instance.tasks,
        tasks_total=node.tasks,
        keys=node.keys,
        input=node.input_schema,
        output=node.output_schema,
        hashes=hashes if hashes is not None else np.empty(0, np.uint64),
        tables=tables,
        objects=objects,
        watermark_ms=watermarks.before_ms,
        next_watermark_ms=watermarks.after_ms,
        tally=tally,
    )
    match node.operator:
        case Combiner() as aggregate:
            combined, combined_hashes = _hashed(arrived.combined)
            return aggregate.process_mixed(rows, hashes, combined, combined_hashes, ctx)
        case ObjectOperator() as operator:
            return run_objects(operator, rows if rows is not None else node.input_schema.empty_table(), ctx)
        case PortedOperator() as ported:
            return run_ported(ported, [_port(node, arrived, port) for port in range(len(ported.ports))], ctx)
        case KeyedOperator() as keyed:
            return run_keyed(keyed, rows if rows is not None else node.input_schema.empty_table(), ctx)
        case other:
            raise TypeError(f"operator '{node.name}' is a {type(other).__name__}, not a stateful operator")


def _port(node: StatefulNode, arrived: Arrived, port: int) -> PortRows:
    rows, hashes = _hashed(arrived.at(port))
    if rows is None or hashes is None:
        return PortRows(rows=node.schema_of(port).empty_table(), hashes=np.empty(0, np.uint64))
    return PortRows(rows=rows, hashes=hashes)


def _hashed(tables: tuple[pa.Table, ...]) -> tuple[pa.Table | None, npt.NDArray[np.uint64] | None]:
    """Rows without their HASH column, and the hashes."""
    if not tables:
        return None, None
    table = tables[0] if len(tables) == 1 else pa.concat_tables(tables)
    hashes = table.column(HASH).to_numpy()
    return table.drop_columns([HASH]), hashes


def _seal(
    node: StatefulNode,
    instance: Instance,
    batch: Batch,
    storage: Storage,
    store: LocalStore,
    tables: Mapping[str, KeyedTable],
    objects: ObjectState | None,
) -> dict[str, Sealed]:
    sealed: dict[str, Sealed] = {}
    keep_changes = storage.own_directory and node.replicas > 1 and not node.active
    states: dict[str, KeyedTable | ObjectState] = dict(tables)
    if objects is not None:
        states[OBJECT_TABLE] = objects
    for table, state in states.items():
        name = segment_name(
            operator=node.name, table=table, instance=instance.index, batch=batch.id, attempt=batch.attempt
        )
        # The nonce keeps apart two attempts of one Spark task: a zombie must never overwrite what was committed.
        try:
            unique = f"{name}-{secrets.token_hex(4)}"
            match state:
                case KeyedTable():
                    done = state.seal(unique, batch.id, keep_changes=keep_changes)
                case ObjectState():
                    done = state.seal(unique, batch.id)
        except OSError as error:
            raise StateError(
                f"cannot write a segment below {store.root}: {error.strerror or error}; free space or give it back "
                "its permissions, then start again to resume"
            ) from error
        if done is not None:
            sealed[table] = done
    return sealed
