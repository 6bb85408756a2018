"""The record of decisions: what was seen, what was decided by which rule and why, what became of it, what was held back.

`decisions.jsonl` in the checkpoint directory, written like the journal of changes: one line when a decision is made, another
when more is known (carried out, effect measured); the last line with its number counts. Rounds that change nothing are recorded
only when something is held back or cannot be satisfied, once, not in every round.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from updraft.control.lines import JsonLines
from updraft.control.steering import Round
from updraft.policy.model import Snapshot

DECISIONS_FILE = "decisions.jsonl"
"""Name of the record in a checkpoint directory."""

log = logging.getLogger("updraft.control")


class Fate(StrEnum):
    """What became of a decision."""

    RUNNING = "running"  # being carried out
    DONE = "done"
    FAILED = "failed"  # the runtime could not, or would not
    SUPERSEDED = "superseded"  # another decision, or somebody's hand, came before it was carried out
    ADVISED = "advised"  # nothing is carried out in advise mode
    HELD = (
        "held"  # nothing was changed; what was held back or cannot be satisfied is in `blocked` and `unmet`
    )
    ERROR = "error"  # the policy itself failed; the last plan stays


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRecord:
    """One decision, as far as it is known."""

    id: int
    at_s: float  # unix seconds
    topology: str
    policy: str
    mode: str
    rule: str
    fate: Fate
    changes: tuple[str, ...] = ()  # in words
    reasons: tuple[str, ...] = ()
    unmet: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    running: Mapping[str, Any] = field(default_factory=dict)
    wanted: Mapping[str, Any] = field(default_factory=dict)
    expected: Mapping[str, float] = field(default_factory=dict)
    measured: Mapping[str, float | None] = field(default_factory=dict)
    measured_at_s: float | None = None
    change_ids: tuple[int, ...] = ()  # in the journal of changes
    added_delay_ms: float | None = None
    ended_at_s: float | None = None
    why: str = ""  # it failed, or ended otherwise

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "fate": self.fate.value}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> DecisionRecord:
        """Inverse of `to_json`; fields of a newer Updraft are left out, ValueError if it is no record."""
        known = {one.name for one in fields(cls)}
        kept = {name: found for name, found in value.items() if name in known}
        if not isinstance(kept.get("id"), int) or not isinstance(kept.get("wanted", {}), dict):
            raise ValueError("not a record of a decision")
        for name in ("changes", "reasons", "unmet", "blocked", "change_ids"):
            kept[name] = tuple(kept.get(name, ()))
        kept["fate"] = Fate(kept.get("fate", Fate.HELD))
        try:
            return cls(**kept)
        except TypeError as error:
            raise ValueError(f"not a record of a decision: {error}") from error


class Decisions:
    """The record of one run, in a file if there is a place for one, and the newest in memory."""

    def __init__(self, path: Path | None, *, keep: int = 200) -> None:
        self._lines = None if path is None else JsonLines(path, max_bytes=4_000_000)
        self._lock = threading.Lock()
        self._kept: dict[int, DecisionRecord] = {}
        self._keep = keep
        self._last_id = 0
        if self._lines is not None:
            self._last_id = max((record.id for record in read_decisions(self._lines.path)), default=0)

    def next_id(self) -> int:
        with self._lock:
            self._last_id += 1
            return self._last_id

    def write(self, record: DecisionRecord) -> None:
        """A decision as it is now; a disk that is full is logged and ends nothing."""
        with self._lock:
            self._kept[record.id] = record
            while len(self._kept) > self._keep:
                self._kept.pop(next(iter(self._kept)))
            if self._lines is None:
                return
            try:
                self._lines.append(record.to_json())
            except OSError as error:
                log.error("decision %d is not in the record %s: %s", record.id, self._lines.path, error)

    def newest(self, limit: int | None = None) -> tuple[DecisionRecord, ...]:
        """Of this run, newest first."""
        with self._lock:
            return tuple(sorted(self._kept.values(), key=lambda record: -record.id))[:limit]


def read_decisions(path: Path, limit: int | None = None) -> tuple[DecisionRecord, ...]:
    """What a run has recorded, newest first, from any process."""
    found: dict[int, DecisionRecord] = {}
    for value in JsonLines(path).newest():
        try:
            record = DecisionRecord.from_json(value)
        except (ValueError, TypeError):
            continue
        found.setdefault(record.id, record)
    return tuple(sorted(found.values(), key=lambda record: -record.id))[:limit]


def record_of(
    found: Round,
    *,
    number: int,
    policy: str,
    mode: str,
    changes: tuple[str, ...],
    price_per_hour: float | None,
) -> DecisionRecord:
    """A decision as it is made. Only one that changes something is ever being carried out."""
    decision, snapshot = found.decision, found.snapshot
    fate = Fate.ERROR if found.error is not None else Fate.HELD
    if changes and found.error is None:
        fate = Fate.ADVISED if mode == "advise" else Fate.RUNNING
    running = snapshot.configuration
    return DecisionRecord(
        id=number,
        at_s=snapshot.taken_at_s,
        topology=snapshot.topology,
        policy=policy,
        mode=mode,
        rule=decision.rule,
        fate=fate,
        changes=changes,
        reasons=decision.reasons,
        unmet=decision.unmet,
        blocked=decision.blocked,
        inputs=inputs_of(found),
        running={
            "parallelism": dict(running.parallelism),
            "workers": running.workers,
            **_priced(running.workers, price_per_hour),
        },
        wanted={
            "parallelism": dict(decision.parallelism),
            "workers": decision.workers,
            "shares": dict(decision.shares),
            "moves": [[move.operator, list(move.tasks), move.to_worker] for move in decision.moves],
            **_priced(decision.workers, price_per_hour),
        },
        expected=dict(decision.expected),
        why=found.error or "",
    )


def inputs_of(found: Round) -> dict[str, Any]:
    """What a decision was made from."""
    snapshot, forecast = found.snapshot, found.forecast
    return {
        **effect_of(snapshot),
        "backlog_rows": snapshot.backlog_rows,
        "change_cost_s": snapshot.change_cost_s,
        "utilisation": {
            operator.name: [_rounded(instance.utilisation) for instance in operator.instances]
            for operator in snapshot.operators
        },
        "worker_cpu": {worker.id: _rounded(worker.cpu) for worker in snapshot.workers},
        "forecast": None
        if forecast is None
        else {
            "method": forecast.method,
            "peak_rows_per_s": _rounded(forecast.peak_rows_per_s),
            "error": _rounded(forecast.error),
        },
        "gaps": list(snapshot.gaps),
    }


def effect_of(snapshot: Snapshot) -> dict[str, Any]:
    """What a change should have changed: compared with what was expected of it."""
    used = [worker.cpu for worker in snapshot.workers if worker.cpu is not None]
    return {
        "rows_per_s": _rounded(snapshot.input_rows_per_s),
        "time": _rounded(snapshot.pressure),
        "latency_s": _rounded(snapshot.latency_s),
        "backlog_s": _rounded(snapshot.backlog_s),
        "worker_cpu_max": _rounded(max(used, default=None)),
    }


def measured(record: DecisionRecord, snapshot: Snapshot) -> DecisionRecord:
    """The record with what was measured once the decision was in effect."""
    return replace(record, measured=effect_of(snapshot), measured_at_s=snapshot.taken_at_s)


def news(found: Round, changes: tuple[str, ...]) -> str:
    """What is worth a line of its own in a round; equal texts in a row are one. Empty: nothing is.

    Numbers are left out: "changed 10 s ago" and "changed 20 s ago" are the same news.
    """
    decision = found.decision
    said = (*((found.error,) if found.error else ()), *changes, *decision.blocked, *decision.unmet)
    return re.sub(r"[\d.,]+", "#", " | ".join(said))


def _priced(workers: int, price_per_hour: float | None) -> dict[str, float]:
    return {} if price_per_hour is None else {"cost_per_hour": round(workers * price_per_hour, 4)}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
