"""What every stage partition tells the driver about its part of a batch: plain values with a JSON form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from updraft.state.spec import Merge, Sealed, SegmentRef, task_ranges, tasks_of_ranges


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An operator's error. A value, not an exception: Spark would only retry what fails again."""

    operator: str
    tasks: str
    reason: str
    trace: str
    state: bool = False  # the state cannot be read or written, the operator is not wrong
    lost: bool = False  # a segment is missing or damaged, and there is no good copy where this worker looks


@dataclass(slots=True, kw_only=True)
class OperatorWork:
    """What one operator did in one partition."""

    rows_in: int = 0
    rows_out: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    late_rows: int = 0


@dataclass(slots=True, kw_only=True)
class Report:
    """One instance (or one source partition) in one batch."""

    level: int
    slot: int
    operator: str | None  # the head; None for the source stage
    instance: int | None
    worker: str
    pid: int
    started_ms: float = 0.0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    bytes_in: int = 0
    work: dict[str, OperatorWork] = field(default_factory=dict)
    bytes_to: dict[str, dict[int, int]] = field(default_factory=dict)  # consumer -> instance -> bytes
    rows_to_sinks: dict[int, int] = field(default_factory=dict)
    sealed: dict[str, Sealed] = field(default_factory=dict)  # by table
    tasks: tuple[int, ...] = ()
    seen_us: dict[str, int | None] = field(default_factory=dict)  # largest event time by source leg
    task_rows: dict[int, int] = field(default_factory=dict)  # about, of the heaviest tasks
    hot_keys: tuple[str, ...] = ()  # keys that are a large part of the rows
    process: tuple[float, int, float | None] | None = (
        None  # of the whole worker so far: CPU s, bytes, cores it may use
    )
    repaired: tuple[str, ...] = ()  # segments whose file on this worker was damaged and was replaced
    share_cores: float | None = None  # that it may use; None: no limit
    group_cpu_s: float | None = None  # what its group used, all threads; None: not counted by the kernel
    throttled_s: float | None = None  # for how long its share held it back
    unenforced: str | None = None  # why shares are not enforced on its worker
    notes: tuple[str, ...] = ()
    failure: Failure | None = None
    shadow_of: int | None = None  # the instance whose input this one processed too, its output discarded

    def to_json(self) -> bytes:
        """Compact JSON."""
        value: dict[str, Any] = {
            "level": self.level,
            "slot": self.slot,
            "operator": self.operator,
            "instance": self.instance,
            "worker": self.worker,
            "pid": self.pid,
            "started_ms": self.started_ms,
            "wall_s": self.wall_s,
            "cpu_s": self.cpu_s,
            "bytes_in": self.bytes_in,
            "work": {
                n: [w.rows_in, w.rows_out, w.wall_s, w.cpu_s, w.late_rows] for n, w in self.work.items()
            },
            "bytes_to": {n: list(to.items()) for n, to in self.bytes_to.items()},
            "rows_to_sinks": list(self.rows_to_sinks.items()),
            "sealed": {name: _sealed_json(sealed) for name, sealed in self.sealed.items()},
            "tasks": self.tasks,
            "seen_us": self.seen_us,
        }
        if self.task_rows:
            value["task_rows"] = list(self.task_rows.items())
        if self.hot_keys:
            value["hot_keys"] = self.hot_keys
        if self.process is not None:
            value["process"] = self.process
        if self.shadow_of is not None:
            value["shadow_of"] = self.shadow_of
        if self.repaired:
            value["repaired"] = self.repaired
        for name in ("share_cores", "group_cpu_s", "throttled_s", "unenforced", "notes"):
            if (found := getattr(self, name)) not in (None, ()):
                value[name] = found
        if self.failure is not None:
            value["failure"] = [
                getattr(self.failure, name)
                for name in ("operator", "tasks", "reason", "trace", "state", "lost")
            ]
        return json.dumps(value, separators=(",", ":")).encode()

    @staticmethod
    def from_json(text: bytes) -> Report:
        """Inverse of `to_json`."""
        value = json.loads(text)
        failure = value.pop("failure", None)
        value["work"] = {
            n: OperatorWork(rows_in=w[0], rows_out=w[1], wall_s=w[2], cpu_s=w[3], late_rows=w[4])
            for n, w in value["work"].items()
        }
        value["bytes_to"] = {n: dict(to) for n, to in value["bytes_to"].items()}
        value["rows_to_sinks"] = dict(value["rows_to_sinks"])
        value["sealed"] = {name: _sealed_from(sealed) for name, sealed in value["sealed"].items()}
        value["tasks"] = tuple(value["tasks"])
        value["task_rows"] = dict(value.get("task_rows", ()))
        value["hot_keys"] = tuple(value.get("hot_keys", ()))
        if "process" in value:
            value["process"] = tuple(value["process"])
        value["repaired"] = tuple(value.get("repaired", ()))
        value["notes"] = tuple(value.get("notes", ()))
        if failure is not None:
            operator, tasks, reason, trace, state, lost = failure
            value["failure"] = Failure(
                operator=operator, tasks=tasks, reason=reason, trace=trace, state=state, lost=lost
            )
        return Report(**value)


def _sealed_json(sealed: Sealed) -> dict[str, Any]:
    return {
        "added": sealed.added.to_json(),
        "replaced": sealed.replaced,
        "rows_written": sealed.rows_written,
        "live_rows": sealed.live_rows,
        "state_bytes": sealed.state_bytes,
        "only": {name: task_ranges(tasks) for name, tasks in sealed.only.items()},
        **({} if sealed.merge is None else {"merge": sealed.merge.to_json()}),
    }


def _sealed_from(value: Mapping[str, Any]) -> Sealed:
    return Sealed(
        added=SegmentRef.from_json(value["added"]),
        replaced=tuple(value["replaced"]),
        rows_written=value["rows_written"],
        live_rows=value["live_rows"],
        state_bytes=value["state_bytes"],
        only={name: tasks_of_ranges(tasks) for name, tasks in value["only"].items()},
        merge=Merge.from_json(value["merge"]) if "merge" in value else None,
    )
