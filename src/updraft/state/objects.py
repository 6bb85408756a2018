"""Object state: one value (bytes or an Arrow table) per task, kept in the same segments as keyed state.

A task's object is the row whose hash is the start of the task's range, so objects are routed, migrated and
checkpointed exactly as keys are. Tables are stored as Arrow streams; nothing is ever pickled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from updraft.errors import StateError
from updraft.state.keys import U64, Column, task_starts
from updraft.state.spec import Level, Sealed, TableSpec
from updraft.state.store import SegmentStore
from updraft.state.table import KeyedTable

OBJECT_SPEC = TableSpec(
    key=pa.schema([("task", pa.int32())]),
    values=pa.schema([("kind", pa.uint8()), ("data", pa.large_binary())]),
)
OBJECT_TABLE = "object"
_BYTES, _TABLE = 0, 1

ObjectValue: TypeAlias = bytes | pa.Table


def object_table(
    *,
    tasks: int,
    mine: tuple[int, ...],
    levels: tuple[Level, ...],
    store: SegmentStore,
    operator: str = "",
    table: str = OBJECT_TABLE,
) -> KeyedTable:
    """The keyed table below object state: task to encoded value."""
    starts = task_starts(tasks)

    def hasher(columns: Sequence[Column]) -> U64:
        hashes: U64 = starts[np.asarray(columns[0])]
        return hashes

    return KeyedTable(
        spec=OBJECT_SPEC,
        tasks=tasks,
        mine=mine,
        levels=levels,
        store=store,
        operator=operator,
        table=table,
        hasher=hasher,
    )


class ObjectState:
    """Values of an instance's tasks during a batch; changes are written once, by `seal`."""

    def __init__(
        self,
        *,
        tasks: int,
        mine: tuple[int, ...],
        levels: tuple[Level, ...],
        store: SegmentStore,
        operator: str = "",
        table: str = OBJECT_TABLE,
    ) -> None:
        self._mine = frozenset(mine)
        self._operator = operator
        self._changed: dict[int, ObjectValue | None] = {}
        self.rows = object_table(
            tasks=tasks, mine=mine, levels=levels, store=store, operator=operator, table=table
        )

    def get(self, task: int) -> ObjectValue | None:
        """The task's value as of this batch, None if it never had one."""
        self._check(task)
        if task in self._changed:
            return self._changed[task]
        found = self.rows.get(pa.table({"task": pa.array([task], pa.int32())}))
        if not found.mask[0]:
            return None
        return decode(found.values["kind"][0].as_py(), found.values["data"][0].as_buffer())

    def set(self, task: int, value: ObjectValue | None) -> None:
        """Replace the task's value; None removes it."""
        self._check(task)
        if value is not None and not isinstance(value, bytes | bytearray | memoryview | pa.Table):
            raise StateError(
                f"operator '{self._operator}' set its state to a {type(value).__name__}; "
                "state is bytes or a pyarrow.Table, so encode it first (json, struct, Arrow ...)"
            )
        # A copy: what the operator does to its buffer afterwards must not reach the state.
        self._changed[task] = value if value is None or isinstance(value, pa.Table) else bytes(value)

    def seal(self, name: str, batch: int) -> Sealed | None:
        """Write the changed values as one segment; None if there are none."""
        gone = sorted(task for task, value in self._changed.items() if value is None)
        if gone:
            self.rows.delete(pa.table({"task": pa.array(gone, pa.int32())}))
        kept = [(task, encode(value)) for task, value in sorted(self._changed.items()) if value is not None]
        self.rows.put(
            pa.table(
                {
                    "task": pa.array([task for task, _ in kept], pa.int32()),
                    "kind": pa.array([kind for _, (kind, _) in kept], pa.uint8()),
                    "data": pa.array([data for _, (_, data) in kept], pa.large_binary()),
                }
            )
        )
        sealed = self.rows.seal(name, batch)
        self._changed.clear()
        return sealed

    def _check(self, task: int) -> None:
        if task not in self._mine:
            raise StateError(f"task {task} of operator '{self._operator}' is not run by this instance")


def encode(value: ObjectValue) -> tuple[int, bytes | pa.Buffer]:
    """Kind and bytes under which a value is stored."""
    if not isinstance(value, pa.Table):
        return _BYTES, value
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, value.schema) as writer:
        writer.write_table(value)
    return _TABLE, sink.getvalue().to_pybytes()


def decode(kind: int, data: pa.Buffer) -> ObjectValue:
    """Inverse of `encode`; a table is read in place, without copying."""
    if kind == _BYTES:
        return bytes(data.to_pybytes())
    if kind == _TABLE:
        return pa.ipc.open_stream(pa.BufferReader(data)).read_all()
    raise StateError(f"stored object has kind {kind}, which this Updraft does not know; upgrade Updraft")
