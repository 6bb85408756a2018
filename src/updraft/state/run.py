"""A run: rows of one table sorted by hash, each key at most once; in memory or on a mapped segment file.

Fixed-width columns without nulls carry a zero-copy numpy view, which is what the hot path works on; every
other column goes through pyarrow's take and concat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from updraft.errors import StateError
from updraft.state.keys import I64, U64, Mask, fixed_view
from updraft.state.spec import DELETED, EXPIRES, HASH, TIMER, TIMER_ORDER, TableSpec

Raw: TypeAlias = npt.NDArray[Any]
NO_TIMER = int(np.iinfo(np.int64).max)
"""Timer value of a row without a timer."""
_RAW_BYTES = {8: "u1", 16: "u2", 32: "u4", 64: "u8"}


@dataclass(slots=True, eq=False, kw_only=True)
class Run:
    """Sorted rows; `deleted`, `expires_ms`, `timers_us` are None when no row has any."""

    hashes: U64
    keys: tuple[pa.Array, ...]
    values: tuple[pa.Array, ...]
    deleted: Mask | None = None
    expires_ms: I64 | None = None
    timers_us: I64 | None = None
    timer_order: npt.NDArray[np.uint32] | None = None
    raw_keys: tuple[Raw | None, ...] = field(init=False)
    raw_values: tuple[Raw | None, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.raw_keys = tuple(raw(column) for column in self.keys)
        self.raw_values = tuple(raw(column) for column in self.values)

    def __len__(self) -> int:
        return len(self.hashes)


def raw(column: pa.Array) -> Raw | None:
    """Zero-copy bits of a fixed-width column without nulls, or None where only pyarrow can handle it."""
    kind = column.type
    if column.null_count or not pa.types.is_primitive(kind) or pa.types.is_boolean(kind):
        return None
    dtype = _RAW_BYTES.get(kind.bit_width)
    return None if dtype is None else fixed_view(column, dtype)


def from_raw(values: Raw, kind: pa.DataType) -> pa.Array:
    """Inverse of `raw`."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)], null_count=0)


def empty_run(spec: TableSpec) -> Run:
    """A run without rows."""
    return Run(
        hashes=np.empty(0, np.uint64),
        keys=tuple(pa.array([], column.type) for column in spec.key),
        values=tuple(pa.array([], column.type) for column in spec.values),
        expires_ms=None if spec.ttl_ms is None else np.empty(0, np.int64),
        timers_us=np.empty(0, np.int64) if spec.timers else None,
    )


def take_rows(run: Run, rows: I64 | Sequence[slice]) -> Run:
    """The given rows of a run (ascending, so that the result is sorted again)."""
    if not isinstance(rows, np.ndarray):
        if len(rows) == 1:
            return _slice(run, rows[0])
        rows = (
            np.concatenate([np.arange(part.start, part.stop) for part in rows])
            if rows
            else np.empty(0, np.int64)
        )
    return Run(
        hashes=run.hashes[rows],
        keys=tuple(_pick(c, r, rows) for c, r in zip(run.keys, run.raw_keys, strict=True)),
        values=tuple(_pick(c, r, rows) for c, r in zip(run.values, run.raw_values, strict=True)),
        deleted=None if run.deleted is None else run.deleted[rows],
        expires_ms=None if run.expires_ms is None else run.expires_ms[rows],
        timers_us=None if run.timers_us is None else run.timers_us[rows],
    )


def _slice(run: Run, part: slice) -> Run:
    if part.start == 0 and part.stop == len(run):
        return run
    length = part.stop - part.start
    return Run(
        hashes=run.hashes[part],
        keys=tuple(column.slice(part.start, length) for column in run.keys),
        values=tuple(column.slice(part.start, length) for column in run.values),
        deleted=None if run.deleted is None else run.deleted[part],
        expires_ms=None if run.expires_ms is None else run.expires_ms[part],
        timers_us=None if run.timers_us is None else run.timers_us[part],
    )


def _pick(column: pa.Array, view: Raw | None, rows: I64) -> pa.Array:
    return take(column, rows) if view is None else from_raw(view[rows], column.type)


def take(column: pa.Array, rows: I64 | pa.Array) -> pa.Array:
    """Rows of any column; null where a row number is null."""
    indices = rows if isinstance(rows, pa.Array) else pa.array(rows)
    kind = column.type
    # pyarrow has no take for view types.
    if pa.types.is_string_view(kind):
        return column.cast(pa.large_string()).take(indices).cast(kind)
    if pa.types.is_binary_view(kind):
        return column.cast(pa.large_binary()).take(indices).cast(kind)
    return column.take(indices)


def to_batch(run: Run, spec: TableSpec, metadata: dict[str, str]) -> pa.RecordBatch:
    """The record batch a segment file stores for this run."""
    fields = [pa.field(HASH, pa.uint64(), nullable=False), *spec.key, *spec.values]
    arrays: list[pa.Array] = [from_raw(run.hashes, pa.uint64()), *run.keys, *run.values]

    def add(name: str, values: Raw | None, kind: pa.DataType) -> None:
        if values is not None:
            fields.append(pa.field(name, kind, nullable=False))
            arrays.append(from_raw(np.ascontiguousarray(values), kind))

    add(DELETED, None if run.deleted is None else run.deleted.view(np.uint8), pa.uint8())
    add(EXPIRES, run.expires_ms, pa.int64())
    add(TIMER, run.timers_us, pa.int64())
    if run.timers_us is not None:
        # Finding due timers then costs what is due, not the rows of the segment.
        add(TIMER_ORDER, np.argsort(run.timers_us).astype(np.uint32), pa.uint32())
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields, metadata=dict(metadata)))


def from_batch(batch: pa.RecordBatch, spec: TableSpec, name: str) -> Run:
    """The run stored in a segment's record batch, zero copy."""
    stored = pa.schema([column for column in batch.schema if not column.name.startswith("__")])
    names = batch.schema.names
    expected = [(c.name, c.type) for c in spec.columns]
    if names[:1] != [HASH] or [(c.name, c.type) for c in batch.schema][1 : 1 + len(expected)] != expected:
        raise StateError(
            f"segment '{name}' holds columns ({_describe(stored)}) but the table is declared with "
            f"({_describe(spec.columns)}); restore the declaration or start with a new checkpoint"
        )

    def extra(column: str, dtype: npt.DTypeLike) -> Raw | None:
        index = batch.schema.get_field_index(column)
        return None if index < 0 else fixed_view(batch.column(index), dtype)

    if (spec.ttl_ms is not None) != (EXPIRES in names) or spec.timers != (TIMER in names):
        raise StateError(
            f"segment '{name}' was written with another choice of ttl or timers than the table declares; "
            "restore the declaration or start with a new checkpoint"
        )
    split = 1 + len(spec.key)
    return Run(
        hashes=fixed_view(batch.column(0), np.uint64),
        keys=tuple(batch.columns[1:split]),
        values=tuple(batch.columns[split : split + len(spec.values)]),
        deleted=extra(DELETED, np.bool_),
        expires_ms=extra(EXPIRES, np.int64),
        timers_us=extra(TIMER, np.int64),
        timer_order=extra(TIMER_ORDER, np.uint32),
    )


def _describe(schema: pa.Schema) -> str:
    return ", ".join(f"{column.name} {column.type}" for column in schema)
