"""Looking into a checkpoint without running it: what `updraft state show` prints."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from updraft.errors import StateError
from updraft.state.checkpoint import SEGMENTS, Checkpoint, read_checkpoint
from updraft.state.files import LocalFiles
from updraft.state.manifest import Manifest, TableChains, levels_for
from updraft.state.objects import OBJECT_SPEC, decode, object_table
from updraft.state.run import NO_TIMER
from updraft.state.spec import DELETED, EXPIRES, HASH, TIMER, TIMER_ORDER, TableSpec
from updraft.state.store import LocalStore
from updraft.state.table import KeyedTable


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSummary:
    """One table of a version; `rows` counts stored rows, which old versions of a key make an upper bound."""

    operator: str
    table: str
    tasks: int
    tasks_with_rows: int
    versions: tuple[int, ...]  # batches whose segments make up this version
    segments: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A checkpoint at one of its commits."""

    topology: str
    commits: tuple[int, ...]
    batch: int
    attempt: int
    tables: tuple[TableSummary, ...]

    def to_json(self) -> dict[str, Any]:
        """A JSON object for `--json`."""
        names = TableSummary.__slots__
        return {
            "topology": self.topology,
            "commits": list(self.commits),
            "batch": self.batch,
            "attempt": self.attempt,
            "tables": [
                {name: list(v) if isinstance(v := getattr(t, name), tuple) else v for name in names}
                for t in self.tables
            ],
        }


def summary(directory: Path, *, batch: int | None = None) -> Summary:
    """Operators, tables, tasks, versions, rows and bytes of a checkpoint's newest (or a given) commit."""
    checkpoint, manifest = _version(directory, batch)
    return Summary(
        topology=checkpoint.identity.topology,
        commits=tuple(checkpoint.commits()),
        batch=manifest.batch,
        attempt=manifest.attempt,
        tables=tuple(_summarise(key, chains) for key, chains in sorted(manifest.tables.items())),
    )


def scan(
    directory: Path,
    operator: str,
    table: str = "state",
    *,
    batch: int | None = None,
    tasks: Sequence[int] | None = None,
    now_ms: int | None = None,
) -> pa.Table:
    """All live rows of an operator's table (of some tasks), key columns first."""
    return _open(directory, operator, table, batch, tasks, now_ms).scan()


def lookup(
    directory: Path,
    operator: str,
    key: Sequence[Any] | Mapping[str, Any],
    table: str = "state",
    *,
    batch: int | None = None,
    now_ms: int | None = None,
) -> dict[str, Any] | None:
    """The row of one key as a dict, None if it has none; texts are converted to the key's types."""
    opened = _open(directory, operator, table, batch, None, now_ms)
    schema = opened.spec.key
    if not isinstance(key, Mapping):
        if len(key) != len(schema):
            raise StateError(
                f"the key of operator '{operator}' is ({', '.join(schema.names)}): give all of it"
            )
        key = dict(zip(schema.names, key, strict=True))
    missing = [name for name in schema.names if name not in key]
    if missing:
        raise StateError(f"the key of operator '{operator}' also has {', '.join(missing)}: give all of it")
    asked = pa.table({column.name: _one(key[column.name], column) for column in schema})
    found = opened.get(asked)
    if not found.mask[0]:
        return None
    row: dict[str, Any] = {**asked.to_pylist()[0], **found.values.to_pylist()[0]}
    return row


def objects(directory: Path, operator: str, *, batch: int | None = None) -> dict[int, bytes | pa.Table]:
    """The object state of an operator's tasks."""
    _, manifest = _version(directory, batch)
    name, chains = next(
        ((n, c) for (o, n), c in manifest.tables.items() if o == operator and _is_object(c)), (None, None)
    )
    if name is None or chains is None:
        raise StateError(f"operator '{operator}' has no object state in {directory}")
    mine = tuple(range(chains.tasks))
    rows = object_table(
        tasks=chains.tasks,
        mine=mine,
        levels=levels_for(manifest, operator, name, mine),
        store=LocalStore(directory / SEGMENTS),
    ).scan()
    return {
        task: decode(kind, data.as_buffer())
        for task, kind, data in zip(
            rows["task"].to_pylist(), rows["kind"].to_pylist(), rows["data"], strict=True
        )
    }


def _is_object(chains: TableChains) -> bool:
    return chains.fingerprint == OBJECT_SPEC.fingerprint()


def _one(value: Any, column: pa.Field) -> pa.Array:
    try:
        if isinstance(value, str):
            return pa.array([value]).cast(column.type)
        return pa.array([value], column.type)
    except pa.ArrowException as error:
        raise StateError(f"{value!r} is not a {column.type}, the type of key '{column.name}'") from error


def _summarise(key: tuple[str, str], chains: TableChains) -> TableSummary:
    refs = chains.refs.values()
    return TableSummary(
        operator=key[0],
        table=key[1],
        tasks=chains.tasks,
        tasks_with_rows=len({task for ref in refs for task in ref.tasks}),
        versions=tuple(sorted({ref.batch for ref in refs})),
        segments=len(chains.refs),
        rows=sum(ref.rows for ref in refs),
        bytes=sum(ref.bytes for ref in refs),
    )


def _version(directory: Path, batch: int | None) -> tuple[Checkpoint, Manifest]:
    checkpoint = read_checkpoint(LocalFiles(directory))
    manifest = checkpoint.newest_commit() if batch is None else checkpoint.read_commit(batch)
    if manifest is None:
        raise StateError(f"checkpoint {directory} has no commit yet")
    return checkpoint, manifest


def _open(
    directory: Path,
    operator: str,
    table: str,
    batch: int | None,
    tasks: Sequence[int] | None,
    now_ms: int | None,
) -> KeyedTable:
    checkpoint, manifest = _version(directory, batch)
    chains = manifest.tables.get((operator, table))
    if chains is None:
        known = ", ".join(f"{o}/{t}" for o, t in sorted(manifest.tables)) or "none"
        raise StateError(
            f"checkpoint {directory} has no table '{table}' of operator '{operator}'; it has {known}"
        )
    mine = tuple(range(chains.tasks)) if tasks is None else tuple(tasks)
    levels = levels_for(manifest, operator, table, mine)
    store = LocalStore(directory / SEGMENTS)
    if _is_object(chains):
        return object_table(tasks=chains.tasks, mine=mine, levels=levels, store=store, operator=operator)
    key = checkpoint.identity.operators[operator].key if operator in checkpoint.identity.operators else ()
    if not levels:
        raise StateError(f"table '{table}' of operator '{operator}' is still empty in {directory}")
    return KeyedTable(
        spec=stored_spec(store.open(levels[0].ref).batch.schema, len(key)),
        tasks=chains.tasks,
        mine=mine,
        levels=levels,
        store=store,
        now_ms=int(time.time() * 1000) if now_ms is None else now_ms,
        operator=operator,
        table=table,
    )


def stored_spec(schema: pa.Schema, keys: int) -> TableSpec:
    """The declaration a segment was written with (its time to live is not stored: any stands in)."""
    stored = (schema.metadata or {}).get(b"keys")
    keys = int(stored) if stored is not None else keys
    lead = (schema.metadata or {}).get(b"lead")
    columns = [c for c in schema if c.name not in (HASH, DELETED, EXPIRES, TIMER, TIMER_ORDER)]
    return TableSpec(
        key=pa.schema(columns[:keys]),
        values=pa.schema(columns[keys:]),
        ttl_ms=NO_TIMER if EXPIRES in schema.names else None,
        timers=TIMER in schema.names,
        lead=None if lead is None else int(lead),
    )
