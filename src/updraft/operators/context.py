"""What an operator sees while it processes a batch: its place in the plan, the clock, its state.

The state classes are named here only by what operators ask of them, so that operators can be tested
against a dict and do not depend on how state is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Hashes = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]


class Found(Protocol):
    """The answer of a lookup: one row per key asked for, nulls where the key has no state."""

    @property
    def mask(self) -> Mask: ...

    @property
    def values(self) -> pa.Table: ...


class Members(Protocol):
    """The answer of `rows_of`: rows, and the number of the group each was found for."""

    @property
    def group(self) -> npt.NDArray[np.int64]: ...

    @property
    def rows(self) -> pa.Table: ...


class StateTable(Protocol):
    """The part of `updraft.state.KeyedTable` that operators use."""

    def get(self, keys: pa.Table, hashes: Hashes | None = None, *, presorted: bool = False) -> Found:
        """One answer per key; sees what this batch has put before. `presorted`: the hashes ascend."""
        ...

    def put(
        self,
        rows: pa.Table,
        hashes: Hashes | None = None,
        timers_us: npt.NDArray[np.int64] | pa.Array | None = None,
        *,
        presorted: bool = False,
    ) -> None:
        """Insert or replace rows of key and value columns; the last one wins where a key comes twice."""
        ...

    def delete(self, keys: pa.Table, hashes: Hashes | None = None, *, presorted: bool = False) -> Mask:
        """Remove keys; returns which of them existed."""
        ...

    def rows_of(self, groups: pa.Table, hashes: Hashes | None = None) -> Members:
        """All rows of these groups, each named once; only for a table declared with a `lead`."""
        ...

    def scan(self) -> pa.Table:
        """Every row of this instance's tasks: costs as much as the state is large."""
        ...

    def due(self, now_us: int) -> pa.Table:
        """Keys whose timer is at or before `now_us`, with the timer as `__timer_us`."""
        ...

    def between(self, low_us: int | None, high_us: int) -> pa.Table:
        """Rows (key and value columns) whose timer is in [low, high)."""
        ...

    def forget_before(self, us: int) -> None:
        """Rows with a timer before this may go."""
        ...

    def set_timers(
        self, keys: pa.Table, timers_us: npt.NDArray[np.int64] | pa.Array | None, hashes: Hashes | None = None
    ) -> Mask:
        """Set (null: clear) the timers of keys that have state; returns which have."""
        ...


class TaskObjects(Protocol):
    """The part of `updraft.state.ObjectState` that operators use."""

    def get(self, task: int) -> bytes | pa.Table | None: ...

    def set(self, task: int, value: bytes | pa.Table | None) -> None: ...


@dataclass(slots=True)
class Tally:
    """Rows an operator refused because they came after the watermark had passed them."""

    late_rows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Handed to `process` and `on_timer`; valid for that call only.

    `now_ms` is fixed once per batch and is the same on every worker and in every re-run of the batch: use it
    instead of a clock of your own, or a repeated batch will give another result.
    """

    batch_id: int
    now_ms: int
    operator: str
    instance: int
    tasks: tuple[int, ...]
    tasks_total: int
    keys: tuple[str, ...]
    hashes: Hashes
    """`hash_keys` of the key columns, one per row of `rows`; saves `get` and `put` the work."""
    input: pa.Schema
    output: pa.Schema
    """What must be returned; `ctx.output.empty_table()` says "nothing this time"."""
    tables: Mapping[str, StateTable] = field(default_factory=dict)
    objects: TaskObjects | None = None
    task: int | None = None
    """The task being processed; only an `ObjectOperator` works on one task at a time."""
    watermark_ms: int | None = None
    """Event time that was complete before this batch: older rows are late. None: not known (yet)."""
    next_watermark_ms: int | None = None
    """The same with the rows of this batch (of all instances): what it closes may be emitted now."""
    tally: Tally = field(default_factory=Tally)
    """`ctx.tally.late_rows += n` counts rows dropped as late; the batch's report shows them."""
    firing: str | None = None
    """The table whose timers are due; only set while `on_timer` runs."""

    @property
    def state(self) -> StateTable:
        """The one table of an operator that declares `state = {...}`."""
        return self.table("state")

    def table(self, name: str) -> StateTable:
        """The state table called `name`."""
        if name in self.tables:
            return self.tables[name]
        declared = ", ".join(sorted(self.tables)) or "none"
        raise KeyError(f"operator '{self.operator}' has no state table '{name}' (declared: {declared})")
