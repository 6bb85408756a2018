"""The journal of changes: who asked for what, what was done, how long it took and what it cost.

Append-only JSON lines. A line is a change as it was at one moment: one when it begins, one when it ends; the last line
with its number counts. So a crash leaves either a change that is still "running", which the next run marks as
interrupted, or half a line, which is skipped. A file that has grown too large becomes `FILE.1`, and so on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from updraft.control.lines import JsonLines

JOURNAL_FILE = "changes.jsonl"
"""Name of the journal in a checkpoint directory."""

log = logging.getLogger("updraft.control")


class Outcome(StrEnum):
    """How a change ended."""

    RUNNING = "running"  # not yet
    DONE = "done"
    FAILED = "failed"  # could not be prepared; the old plan stayed
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"  # a newer change took its place before it was in effect
    INTERRUPTED = "interrupted"  # the run ended first


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRecord:
    """One change, as far as it has come."""

    id: int
    who: str
    request: Mapping[str, Any]  # `Request.to_json()`
    started_at: float  # unix seconds
    outcome: Outcome = Outcome.RUNNING
    reason: str = ""  # why it ended otherwise than done
    steps: tuple[str, ...] = ()  # `step_lines`
    plan_from: int | None = None
    plan_to: int | None = None
    ended_at: float | None = None
    duration_ms: float | None = None
    tasks_moved: int = 0
    bytes_to_move: int = 0
    bytes_copied: int = 0
    phases: Mapping[str, float] = field(default_factory=dict)  # ms after the start at which each began
    added_delay_ms: float | None = None  # measured, of the switch

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "outcome": self.outcome.value, "steps": list(self.steps)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ChangeRecord:
        """Inverse of `to_json`; fields of a newer Updraft are left out, ValueError if it is no record."""
        known = {one.name for one in fields(cls)}
        kept = {name: found for name, found in value.items() if name in known}
        number, request = kept.get("id"), kept.get("request")
        if isinstance(number, bool) or not isinstance(number, int) or not isinstance(request, dict):
            raise ValueError("not a record of a change")
        kept["outcome"] = Outcome(kept.get("outcome", Outcome.RUNNING))
        kept["steps"] = tuple(kept.get("steps", ()))
        try:
            return cls(**kept)
        except TypeError as error:
            raise ValueError(f"not a record of a change: {error}") from error


class Journal:
    """The journal in one file and its predecessors; one process writes it, threads may share it."""

    def __init__(self, path: Path, *, max_bytes: int = 1_000_000, keep: int = 3) -> None:
        self.path = path
        self._lines = JsonLines(path, max_bytes=max_bytes, keep=keep)
        self._lock = threading.Lock()
        self._last_id: int | None = None

    def next_id(self) -> int:
        """A number that no change of this journal has."""
        with self._lock:
            if self._last_id is None:
                self._last_id = max((record.id for record in self._newest_lines()), default=0)
            self._last_id += 1
            return self._last_id

    def recover(self, now_s: float) -> tuple[ChangeRecord, ...]:
        """Mark what an earlier run left running as interrupted; call once before the run begins changes of its own."""
        left = tuple(record for record in self.records() if record.outcome is Outcome.RUNNING)
        ended = tuple(
            replace(
                record,
                outcome=Outcome.INTERRUPTED,
                ended_at=now_s,
                reason="the run ended before the change did",
            )
            for record in reversed(left)
        )
        for record in ended:
            self.append(record)
        return ended

    def append(self, record: ChangeRecord) -> bool:
        """Write the change as it is now. False, and logged, if that fails: a full disk must not end the stream."""
        with self._lock:
            try:
                self._lines.append(record.to_json())
            except OSError as error:
                log.error("change %d is not in the journal %s: %s", record.id, self.path, error)
                return False
        return True

    def records(self, limit: int | None = None) -> tuple[ChangeRecord, ...]:
        """Changes as they are known last, newest first."""
        found: dict[int, ChangeRecord] = {}
        with self._lock:
            for record in self._newest_lines():
                found.setdefault(record.id, record)
        ordered = sorted(found.values(), key=lambda record: -record.id)
        return tuple(ordered[:limit])

    def find(self, change_id: int) -> ChangeRecord | None:
        return next((record for record in self.records() if record.id == change_id), None)

    def _newest_lines(self) -> Iterator[ChangeRecord]:
        for value in self._lines.newest():
            try:
                yield ChangeRecord.from_json(value)
            except (ValueError, TypeError):  # not ours
                continue
