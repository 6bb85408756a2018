"""Plain values that describe keyed state: what a table holds, and which segments make up a version of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from updraft.errors import StateError
from updraft.state.keys import is_key_type

HASH = "__hash"
DELETED = "__deleted"
EXPIRES = "__expires_ms"
TIMER = "__timer_us"
TIMER_ORDER = "__timer_order"
RESERVED = frozenset({HASH, DELETED, EXPIRES, TIMER, TIMER_ORDER})


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """Declared shape of a keyed table: key columns, value columns, optional time to live and timers.

    `lead`: how many leading key columns decide the task, where the table's key is longer than the stream's
    (a key's windows, the rows of a key); None: all. The other columns only spread its rows within the task.
    """

    key: pa.Schema
    values: pa.Schema
    ttl_ms: int | None = None
    timers: bool = False
    event_timers: bool = False  # due by watermark, not by clock
    lead: int | None = None

    def __post_init__(self) -> None:
        problems = [
            *self._name_problems(),
            *(
                f"column '{column.name}' of type {column.type} cannot be a key; use integers, strings, "
                "binary, booleans, dates, times, decimals or floats"
                for column in self.key
                if not is_key_type(column.type) or pa.types.is_dictionary(column.type)
            ),
        ]
        if not len(self.key):
            problems.append("a table needs at least one key column")
        if self.lead is not None and not 0 < self.lead <= len(self.key):
            problems.append(f"lead is {self.lead}; it must be between 1 and the number of key columns")
        if self.ttl_ms is not None and self.ttl_ms <= 0:
            problems.append(f"ttl_ms is {self.ttl_ms}; it must be positive (or None to keep rows for ever)")
        if problems:
            raise StateError("invalid table: " + "; ".join(problems))

    def _name_problems(self) -> list[str]:
        names = [*self.key.names, *self.values.names]
        twice = sorted({name for name in names if names.count(name) > 1})
        reserved = sorted(RESERVED.intersection(names))
        return [f"column '{name}' is declared twice; rename one" for name in twice] + [
            f"column '{name}' has a reserved name; rename it" for name in reserved
        ]

    @property
    def columns(self) -> pa.Schema:
        """Key columns followed by value columns, without metadata."""
        return pa.schema([*self.key, *self.values])

    def fingerprint(self) -> str:
        """Short digest of names and types; two specs with the same one can read each other's segments."""
        parts = [
            *(f"k:{column.name}:{column.type}" for column in self.key),
            *(f"v:{column.name}:{column.type}" for column in self.values),
            f"ttl:{self.ttl_ms is not None}",
            f"timers:{self.timers}",
            # Only what differs from the default is named: tables of older checkpoints keep their digest.
            *([f"event_timers:{self.event_timers}"] if self.event_timers else []),
            *([f"lead:{self.lead}"] if self.lead is not None else []),
        ]
        return hashlib.blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRef:
    """Name and facts of one immutable segment file; the checksum covers the whole file."""

    name: str
    batch: int
    rows: int
    bytes: int
    checksum: str
    tasks: tuple[int, ...]
    min_timer_us: int | None = None

    def to_json(self) -> dict[str, Any]:
        """A JSON object that `from_json` reads back."""
        return {
            "name": self.name,
            "batch": self.batch,
            "rows": self.rows,
            "bytes": self.bytes,
            "checksum": self.checksum,
            "tasks": task_ranges(self.tasks),
            "min_timer_us": self.min_timer_us,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> SegmentRef:
        """Inverse of `to_json`."""
        return cls(
            name=value["name"],
            batch=value["batch"],
            rows=value["rows"],
            bytes=value["bytes"],
            checksum=value["checksum"],
            tasks=tasks_of_ranges(value["tasks"]),
            min_timer_us=value["min_timer_us"],
        )


def task_ranges(tasks: Iterable[int]) -> list[list[int]]:
    """Tasks as [first, last] pairs, the compact form used in JSON."""
    ranges: list[list[int]] = []
    for task in sorted(tasks):
        if ranges and ranges[-1][1] == task - 1:
            ranges[-1][1] = task
        else:
            ranges.append([task, task])
    return ranges


def task_text(tasks: Iterable[int]) -> str:
    """Tasks as people read them: "0..3,7"."""
    return ",".join(f"{first}" if first == last else f"{first}..{last}" for first, last in task_ranges(tasks))


def tasks_of_ranges(ranges: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """Inverse of `task_ranges`."""
    return tuple(task for first, last in ranges for task in range(first, last + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A segment as one instance sees it: only the rows of the live tasks count, others may be stale."""

    ref: SegmentRef
    live: frozenset[int] | None = field(default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """What a worker that holds the merged segments (perhaps none) needs besides to make the new one itself: the batch's own
    changes, a file on the worker that sealed, and which rows were left out."""

    changes: SegmentRef
    forgotten_us: int | None = None  # those with an earlier timer
    base_ms: int | None = None  # in a base: those that were deleted, or had expired by then

    def to_json(self) -> dict[str, Any]:
        """A JSON object that `from_json` reads back."""
        return {
            "changes": self.changes.to_json(),
            "forgotten_us": self.forgotten_us,
            "base_ms": self.base_ms,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Merge:
        """Inverse of `to_json`."""
        return cls(
            changes=SegmentRef.from_json(value["changes"]),
            forgotten_us=value["forgotten_us"],
            base_ms=value["base_ms"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """What one instance's batch added to a table, and which segments its tasks no longer need.

    `only`: of a replaced file of which only some of the instance's tasks were read, those tasks.
    `merge`: for copies, if that was asked for.
    """

    added: SegmentRef
    replaced: tuple[str, ...]
    rows_written: int
    live_rows: int
    state_bytes: int
    only: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    merge: Merge | None = None


def changes_name(segment: str) -> str:
    """The file of the changes that a merge of this name contains."""
    return f"{segment}~changes"


def segment_name(*, operator: str, table: str, instance: int, batch: int, attempt: int) -> str:
    """The name of the one segment that an attempt of an instance at a batch may write for a table."""
    return f"{operator}/{table}-i{instance}-b{batch}-a{attempt}"
